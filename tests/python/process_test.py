"""Sessions in processes: forks, and the end of the interpreter."""

import os
import re
import threading
import unittest

import numpy as np
import onnx_models
import ridge
from case import IS_FULL, Case

# Threads that run while the program ends.
ENDS = """
import sys, threading, numpy, ridge
session = ridge.Session(sys.argv[1])
x = numpy.ones((128, 128), numpy.float32)
runs = threading.Event()
def run():
    while True:
        session.run({"x": x})
        runs.set()
for _ in range(2):
    threading.Thread(target=run, daemon=True).start()
runs.wait()
"""


class Forks(Case):
    def in_child(self, call):
        """The text that `call` gives in a forked child."""
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                text = call()
            except BaseException as error:  # noqa: BLE001
                text = f"{type(error).__name__}: {error}"
            os.write(write, text.encode())
            os._exit(0)
        os.close(write)
        with os.fdopen(read) as answer:
            text = answer.read()
        os.waitpid(child, 0)
        return text

    def test_a_session_runs_in_a_child(self):
        session = ridge.Session(self.put("products.onnx", onnx_models.products(3, 256)), threads=2)
        x = np.random.default_rng(0).standard_normal((256, 256), np.float32)
        before = session.run({"x": x})["y"]

        def run_both():
            fresh = ridge.Session(self.put("products.onnx", onnx_models.products(3, 256)))
            return str([np.array_equal(each.run({"x": x})["y"], before) for each in (session, fresh)])

        self.assertEqual(self.in_child(run_both), "[True, True]")
        np.testing.assert_array_equal(session.run({"x": x})["y"], before)

    def test_a_fork_beside_a_run_is_told(self):
        session = ridge.Session(self.put("long.onnx", onnx_models.products(200, 256)))
        other = ridge.Session(self.perceptron())
        x = np.ones((256, 256), np.float32)
        go_on = True

        def run():
            while go_on:
                session.run({"x": x})

        thread = threading.Thread(target=run)
        thread.start()
        try:
            rows = np.ones((1, 3), np.float32)
            # The fork may come between two runs.
            texts = {self.in_child(lambda: str(other.run({"x": rows})["y"].shape)) for _ in range(20)}
        finally:
            go_on = False
            thread.join()
        told = {text for text in texts if re.match(r"UserError: .* was forked while a session of .*; fork before", text)}
        self.assertTrue(told, texts)
        self.assertLessEqual(texts - told, {"(1, 4)"})


class Ends(Case):
    def test_while_sessions_run(self):
        model = self.put("products.onnx", onnx_models.products(20, 128))
        at_exit = "import atexit; atexit.register(lambda: session.run({'x': x}))\n"
        for program, code in ((ENDS, 0), (ENDS + "sys.exit(3)", 3), (at_exit + ENDS, 0)):
            for _ in range(70 if IS_FULL else 1):
                done = self.python(program, model)
                self.assertEqual((done.returncode, done.stderr), (code, ""))

    def test_while_one_is_loaded(self):
        model = self.put("products.onnx", onnx_models.products(20, 128))
        program = """
import sys, threading, ridge
started = threading.Event()
def load():
    while True:
        started.set()
        ridge.Session(sys.argv[1])
threading.Thread(target=load, daemon=True).start()
started.wait()
"""
        for _ in range(20 if IS_FULL else 1):
            done = self.python(program, model)
            self.assertEqual((done.returncode, done.stderr), (0, ""))


if __name__ == "__main__":
    unittest.main()
