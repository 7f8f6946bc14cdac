"""Sessions: arrays in and out, errors, threads."""

import gc
import pathlib
import sys
import threading
import time
import unittest

import numpy as np
import onnx_models
import ridge
from case import Case, perceptron_of


def resident_bytes():
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmHWM")


class Sessions(Case):
    def setUp(self):
        self.session = ridge.Session(self.perceptron(), threads=2)

    def rows(self, count):
        return np.random.default_rng(count).standard_normal((count, 3), np.float32)

    def test_tells_inputs_and_outputs(self):
        (x,), (y,) = self.session.inputs, self.session.outputs
        self.assertEqual((x.name, x.dtype, x.shape), ("x", "float32", ("N", 3)))
        self.assertEqual((y.name, y.dtype, y.shape), ("y", "float32", ("N", 4)))
        self.assertEqual(repr(x), "DataSpec(name='x', dtype='float32', shape=('N', 3))")
        self.assertIn("perceptron.onnx", repr(self.session))

    def test_runs(self):
        for count in (1, 5, 64):
            x = self.rows(count)
            outputs = self.session.run({"x": x})
            self.assertEqual(list(outputs), ["y"])
            self.assertEqual((outputs["y"].dtype, outputs["y"].shape), (np.float32, (count, 4)))
            np.testing.assert_allclose(outputs["y"], perceptron_of(x), rtol=1e-5, atol=1e-6)

    def test_takes_a_path(self):
        session = ridge.Session(pathlib.Path(self.perceptron()))
        session.bind({"N": 2})
        self.assertEqual(session.run({"x": self.rows(2)})["y"].shape, (2, 4))

    def test_outputs_own_their_memory(self):
        x = self.rows(3)
        first = self.session.run({"x": x})["y"]
        before = first.copy()
        self.session.run({"x": -x})
        del self.session
        gc.collect()
        np.testing.assert_array_equal(first, before)
        first[:] = 1  # it may be written

    def test_reads_what_may_not_be_written(self):
        x = self.rows(4)
        x.flags.writeable = False
        np.testing.assert_allclose(self.session.run({"x": x})["y"], perceptron_of(x), rtol=1e-5, atol=1e-6)

    def test_reads_any_address(self):
        # Its address is no multiple of an element's size: the engine copies it.
        memory = np.zeros(4 * 12 + 1, np.uint8)
        x = memory[1:].view(np.float32).reshape(4, 3)
        x[:] = self.rows(4)
        np.testing.assert_allclose(self.session.run({"x": x})["y"], perceptron_of(x), rtol=1e-5, atol=1e-6)

    def test_one_array_may_be_two_inputs(self):
        session = ridge.Session(self.put("sums.onnx", onnx_models.sums()))
        a = np.arange(5)
        np.testing.assert_array_equal(session.run({"a": a, "b": a})["sum"], 2 * a)

    def test_copies_no_input(self):
        session = ridge.Session(self.put("mean.onnx", onnx_models.mean()))
        x = np.ones(32 << 20, np.float32)
        session.bind({"N": x.size})
        before = resident_bytes()
        self.assertEqual(session.run({"x": x})["y"], 1)
        self.assertLess(resident_bytes() - before, x.nbytes / 4)

    def test_threads_share_a_session(self):
        batches = [self.rows(1 + i % 3) for i in range(24)]
        alone = [self.session.run({"x": x})["y"] for x in batches]
        together = [None] * len(batches)

        def run(first):
            for i in range(first, len(batches), 4):
                for _ in range(20):
                    together[i] = self.session.run({"x": batches[i]})["y"]

        threads = [threading.Thread(target=run, args=(first,)) for first in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for a, b in zip(alone, together):
            np.testing.assert_array_equal(a, b)

    def test_other_threads_run_meanwhile(self):
        # A thread keeps the interpreter's lock until it gives it up: a run that did not would end first.
        self.addCleanup(sys.setswitchinterval, sys.getswitchinterval())
        sys.setswitchinterval(1000)
        done = threading.Event()
        session = ridge.Session(self.put("long.onnx", onnx_models.products(60, 256)))
        x = np.ones((256, 256), np.float32)
        thread = threading.Thread(target=lambda: (session.run({"x": x}), done.set()))
        thread.start()
        steps = 0
        while not done.is_set():
            steps += 1
            time.sleep(0)
        thread.join()
        self.assertGreater(steps, 0)


class Errors(Case):
    """Each is one error, that says what was wrong and what to do."""

    def setUp(self):
        self.session = ridge.Session(self.perceptron())

    def error_of(self, inputs):
        with self.assertRaises(ridge.UserError) as caught:
            self.session.run(inputs)
        text = str(caught.exception)
        self.assertNotIn("\n", text)
        # The next call is as any other.
        x = np.ones((1, 3), np.float32)
        np.testing.assert_allclose(self.session.run({"x": x})["y"], perceptron_of(x), rtol=1e-5)
        return text

    def test_of_names(self):
        x = np.ones((2, 3), np.float32)
        self.assertEqual(self.error_of({}), "input 'x' is missing; give x f32[N,3]")
        self.assertEqual(
            self.error_of({"x": x, "xx": x}), "the model has no input 'xx', only x f32[N,3]; did you mean 'x'?"
        )
        self.assertIn("the model has no input '1'", self.error_of({"x": x, 1: x}))

    def test_of_dtypes(self):
        self.assertEqual(
            self.error_of({"x": np.ones((2, 3))}), "input 'x' has another dtype; got f64[2,3], expected f32[N,3]"
        )
        for dtype, name in ((np.complex64, "complex64"), (">f4", ">f4"), (object, "object"), ("U3", "<U3")):
            self.assertEqual(
                self.error_of({"x": np.ones((2, 3), dtype)}),
                f"input 'x' has another dtype; got {name}, expected f32[N,3]; convert it to float32",
            )

    def test_of_strides(self):
        x = np.ones((6, 6), np.float32)
        for strided in (x[::2, :3], x[:, ::2], np.ones((3, 2), np.float32).T, x[:2, 2::-1]):
            self.assertRegex(
                self.error_of({"x": strided}),
                r"^input 'x' has gaps or another order of axes; got strides [-\d, ]+, expected f32\[N,3\]; "
                r"give numpy.ascontiguousarray\(x\), which copies it$",
            )
        # The stride of an axis of one element says nothing.
        self.session.run({"x": np.ones((4, 3), np.float32)[::4]})

    def test_of_shapes(self):
        self.assertEqual(
            self.error_of({"x": np.ones((2, 4), np.float32)}),
            "input 'x' has another size in dimension 1; got f32[2,4], expected f32[N,3]",
        )
        self.assertIn("another number of dimensions", self.error_of({"x": np.ones(3, np.float32)}))
        self.error_of({"x": np.ones((0, 3), np.float32)})

    def test_of_what_is_no_array(self):
        for value, name in (([[1.0, 2.0, 3.0]], "list"), (1.0, "float"), (None, "NoneType"), ("x", "str")):
            self.assertEqual(
                self.error_of({"x": value}),
                f"input 'x' is no array; got {name}, expected f32[N,3]; give a NumPy array, as by "
                "numpy.asarray(x, 'float32'), or a tensor with DLPack",
            )

    def test_of_models(self):
        with self.assertRaisesRegex(ridge.UserError, "cannot .*nowhere.onnx"):
            ridge.Session("nowhere.onnx")
        with self.assertRaisesRegex(ridge.UserError, "threads"):
            ridge.Session(self.perceptron(), threads=-1)
        with self.assertRaisesRegex(ridge.UserError, "device 'gpu'"):
            ridge.Session(self.perceptron(), device="gpu")
        with self.assertRaisesRegex(ridge.UserError, "has weights of its own; leave out 'w.safetensors'"):
            ridge.Session(self.perceptron(), weights="w.safetensors")
        with self.assertRaisesRegex(ridge.UserError, "nowhere.toml"):
            ridge.Session(self.perceptron(), recipe="nowhere.toml")
        with self.assertRaises(ridge.UserError):
            self.session.bind({"M": 2})

    def test_is_told_as_the_package_names_it(self):
        self.assertEqual(f"{ridge.UserError.__module__}.{ridge.UserError.__qualname__}", "ridge.UserError")
        self.assertEqual(ridge.Session.__module__, "ridge")


if __name__ == "__main__":
    unittest.main()
