"""Tests of the installed package share this: a folder with models, programs in processes of their own."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import numpy as np
import onnx_models

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SCALE = os.environ.get("RIDGE_TEST_SCALE")
IS_FULL, IS_SHORT = SCALE == "full", SCALE == "short"


class Case(unittest.TestCase):
    """A folder with models."""

    @classmethod
    def setUpClass(cls):
        kept = tempfile.TemporaryDirectory()
        cls.addClassCleanup(kept.cleanup)
        cls.folder = pathlib.Path(kept.name)

    def put(self, name, data):
        path = self.folder / name
        path.write_bytes(data)
        return str(path)

    def perceptron(self):
        return self.put("perceptron.onnx", onnx_models.perceptron())

    def python(self, program, *words, python=sys.executable, **environment):
        """A program in a process of its own."""
        return subprocess.run(
            [python, "-c", program, *words],
            capture_output=True,
            text=True,
            cwd=self.folder,
            env={**os.environ, **environment},
            timeout=300,
        )


def perceptron_of(x):
    """The outputs of the perceptron, in f64."""
    weights = np.array(onnx_models.WEIGHTS).reshape(3, 4)
    return np.maximum(x.astype(np.float64) @ weights, 0)
