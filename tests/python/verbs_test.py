"""Verbs as functions, and the program in the package."""

import contextlib
import importlib.metadata
import io
import json
import os
import pathlib
import subprocess
import sys
import unittest

import numpy as np
import ridge
from case import IS_SHORT, ROOT, Case

TRACE = ROOT / "tests" / "data" / "traces" / "simple_add.json.gz"
CONFIG = """
[model]
kind = "mlp"
hidden = [8]
outputs = 3
[data]
kind = "random"
shape = [4]
samples = 64
classes = 3
[train]
batch = 16
steps = 4
"""


class RunsPrograms(Case):
    def program(self, *words, **options):
        return subprocess.run(
            [sys.executable, "-m", "ridge", *map(str, words)],
            capture_output=True,
            text=True,
            cwd=self.folder,
            **options,
        )


class Verbs(RunsPrograms):
    def test_doctor_returns_what_the_program_prints(self):
        with contextlib.redirect_stderr(io.StringIO()):
            report = ridge.doctor(TRACE)
        self.assertEqual(report["schema"], "ridge.doctor/1")
        printed = json.loads(self.program("doctor", TRACE, "--json").stdout)
        self.assertEqual(report, printed)

    def test_options_are_those_of_the_verb(self):
        page = self.folder / "page.html"
        with contextlib.redirect_stderr(io.StringIO()):
            ridge.doctor(str(TRACE), html=page)
        self.assertIn("<html", page.read_text())
        with self.assertRaisesRegex(ridge.UserError, "unknown option '--htm' of 'doctor'; did you mean '--html'?"):
            ridge.doctor(TRACE, htm="page.html")

    @unittest.skipIf(IS_SHORT, "it measures for three seconds")
    def test_optimize_measures_a_configuration(self):
        config = self.folder / "mlp.toml"
        config.write_text(CONFIG)
        with contextlib.redirect_stderr(io.StringIO()):
            result = ridge.optimize(config, dry_run=True, budget=5, set={"train.batch": 8})
        self.assertEqual(result["schema"], "ridge.optimize/1")

    def test_errors_have_the_text_of_the_program(self):
        cases = [
            (lambda: ridge.doctor("nowhere.json"), ["doctor", "nowhere.json", "--json"]),
            (lambda: ridge.optimize("nowhere.toml"), ["optimize", "--json", "nowhere.toml"]),
            (lambda: ridge.optimize(["true"]), ["optimize", "--json", "--", "true"]),
        ]
        for call, words in cases:
            with self.assertRaises(ridge.UserError) as caught:
                call()
            done = self.program(*words)
            self.assertEqual((done.returncode, done.stderr), (2, f"error: {caught.exception}\n"))


class Program(RunsPrograms):
    def test_is_the_same_by_any_name(self):
        version = f"ridge {importlib.metadata.version('ridge-engine')}\n"
        self.assertEqual(self.program("--version").stdout, version)
        command = pathlib.Path(sys.executable).with_name("ridge")
        done = subprocess.run([command, "--version"], capture_output=True, text=True)
        self.assertEqual(done.stdout, version)
        self.assertEqual(f"ridge {ridge.__version__}\n", version)

    def test_has_all_verbs(self):
        text = self.program("--help").stdout
        for verb in ("inspect", "train", "eval", "predict", "bench", "export", "quantize", "optimize", "run", "doctor", "watch"):
            self.assertIn(f"\n  {verb} ", text)
            self.assertEqual(self.program(verb, "--help").returncode, 0, verb)

    def test_trains_and_a_session_runs_it(self):
        (self.folder / "mlp.toml").write_text(CONFIG)
        done = self.program("train", "mlp.toml", "--out", "run", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        done = self.program("export", "run", "--onnx", "mlp.onnx")
        self.assertEqual(done.returncode, 0, done.stderr)
        x = np.random.default_rng(0).standard_normal((5, 4), np.float32)
        own, exported = (ridge.Session(self.folder / name).run({"x": x})["logits"] for name in ("run", "mlp.onnx"))
        np.testing.assert_allclose(own, exported, rtol=1e-5, atol=1e-6)

    def test_watches_a_command(self):
        done = self.program("doctor", "--", sys.executable, "-c", "print(7)")
        self.assertEqual((done.returncode, done.stdout), (0, "7\n"), done.stderr)

    def test_has_the_backend_of_a_gpu(self):
        with self.assertRaisesRegex(ridge.UserError, "no NVIDIA driver was found"):
            os.environ["RIDGE_CUDA_DRIVER"] = "/nowhere/libcuda.so.1"
            self.addCleanup(os.environ.pop, "RIDGE_CUDA_DRIVER")
            ridge.Session(self.perceptron(), device="cuda")


if __name__ == "__main__":
    unittest.main()
