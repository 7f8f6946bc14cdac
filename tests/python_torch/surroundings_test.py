"""What lies around a program: the folder of the cache, the processor, verification, other processes."""

import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import textwrap
import unittest
import warnings
from unittest import mock

import torch
from case import IS_FULL, Case

from ridge.torch._describe import operator_name

_SCRIPT = """
    import warnings
    import torch
    import ridge.torch
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 96), torch.nn.GELU(), torch.nn.LayerNorm(96), torch.nn.Linear(96, 8))
    x = torch.randn(32, 64)
    wanted = model(x)
    wanted.square().sum().backward()
    gradients = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compiled = torch.compile(model, backend="ridge", fullgraph=True)
        got = compiled(x)
        got.square().sum().backward()
        with torch.no_grad():
            torch.testing.assert_close(compiled(x), wanted, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-5)
    for p, gradient in zip(model.parameters(), gradients):
        torch.testing.assert_close(p.grad, gradient, rtol=1e-3, atol=1e-4)
    print("same")
"""


class Surroundings(Case):
    def run_script(self, script=_SCRIPT, **environment):
        # The folders of this process, for tests run from sources as well as from a wheel.
        paths = os.pathsep.join(each for each in sys.path if each)
        result = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(script)],
            env={**os.environ, "PYTHONPATH": paths, **environment},
            capture_output=True,
            text=True,
        )
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stdout.split(), ["same"])
        return result.stderr

    @torch.no_grad()
    def check_products(self, size):
        """A program that has something to measure and to keep."""
        x, w = torch.randn(32, size), torch.randn(size, 96)
        torch._dynamo.reset()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            got = self.compiled(lambda x, w: torch.relu(x @ w))(x, w)
        torch.testing.assert_close(got, torch.relu(x @ w), rtol=1e-4, atol=1e-4)

    def test_caches_that_cannot_be_written(self):
        place = pathlib.Path(self.folder())
        (place / "a file").touch()
        (place / "closed").mkdir(mode=0o555)
        for i, each in enumerate(("closed", "a file", "closed/not/there", "/proc/self/none")):
            with self.subTest(each), mock.patch.dict(os.environ, XDG_CACHE_HOME=str(place / each)):
                self.check_products(48 + i)
        self.assertEqual(sorted(each.name for each in place.iterdir()), ["a file", "closed"])

    def test_a_cache_without_space(self):
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        with mock.patch.dict(os.environ, XDG_CACHE_HOME=self.folder()):
            resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))  # no file grows, as where a disk is full
            try:
                self.check_products(56)
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, before)

    def folder(self):
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        return place.name

    @unittest.skipUnless(IS_FULL, "a process: 5 s")
    def test_without_avx512(self):
        self.run_script(RIDGE_CPU_ISA="avx2", XDG_CACHE_HOME=self.folder())

    def test_verification(self):
        def wrong(target):
            name = operator_name(target)
            return "sub.Tensor" if name == "add.Tensor" else name

        def f(x, y):
            y.mul_(2)
            return (x * 2 + y).relu() * 3

        x, y = torch.randn(3), torch.randn(3)
        mine, other = y.clone(), y.clone()
        with mock.patch.dict(os.environ, RIDGE_TORCH_VERIFY="1"), torch.no_grad():
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                self.assert_near(self.compiled(f)(x, mine), f(x, other))
                self.assert_near(mine, other)  # written once, not once for each
            torch._dynamo.reset()
            with mock.patch("ridge.torch._describe.operator_name", wrong):
                with self.assertWarnsRegex(UserWarning, "node 'add' .aten.add.Tensor.: up to"):
                    self.compiled(f)(x, y)

    def test_verification_of_training(self):
        model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 3))
        with mock.patch.dict(os.environ, RIDGE_TORCH_VERIFY="1"), warnings.catch_warnings():
            warnings.simplefilter("error")
            compiled = self.compiled(model)
            for _ in range(2):
                compiled(torch.randn(6, 4)).square().sum().backward()
        self.assertEqual(int(model[1].num_batches_tracked), 2)


if __name__ == "__main__":
    unittest.main()
