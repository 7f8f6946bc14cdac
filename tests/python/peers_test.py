"""The package beside others: tensors of PyTorch, and any order of imports. It needs the peers' Python."""

import json
import os
import pathlib
import subprocess
import sys
import unittest

import ridge
from case import IS_FULL, ROOT, Case

PYTHON = os.environ.get("RIDGE_PEERS_PYTHON") or str(ROOT / "build" / "peers" / "bin" / "python")
PROGRAM = ROOT / "examples" / "pytorch" / "tabular_mlp.py"
SITE = str(pathlib.Path(ridge.__file__).parent.parent)

TENSORS = """
import ridge, torch
session = ridge.Session("perceptron.onnx")
x = torch.randn(5, 3)
wanted = session.run({"x": x.numpy()})["y"]
assert (session.run({"x": x})["y"] == wanted).all()
assert (session.run({"x": x.clone().requires_grad_()})["y"] == wanted).all()
assert (torch.from_numpy(session.run({"x": x})["y"]).numpy() == wanted).all()
for tensor, says in (
    (x.double(), "input 'x' has another dtype; got f64[5,3], expected f32[N,3]"),
    (x.bfloat16(), "input 'x' has another dtype; got bf16[5,3], expected f32[N,3]"),
    (x.t().contiguous().t(), "has gaps or another order of axes"),
    (torch.complex(x, x), "input 'x' has another dtype; got torch.complex64, expected f32[N,3]"),
    (x.to("meta"), "input 'x' cannot be read; got Tensor, expected f32[N,3]; give a dense tensor on the host"),
    (x.to_sparse(), "input 'x' cannot be read; got Tensor"),
):
    try:
        session.run({"x": tensor})
        raise AssertionError(f"{says} was not told")
    except ridge.UserError as error:
        assert says in str(error), error
"""


@unittest.skipUnless(os.access(PYTHON, os.X_OK), "no build/peers/bin/python: ./dev peers installs it")
class Peers(Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        version = subprocess.run(
            [PYTHON, "-c", "import sys; print(sys.version_info[:2])"], capture_output=True, text=True
        ).stdout.strip()
        if version != str(sys.version_info[:2]):
            raise unittest.SkipTest(f"the peers are of Python {version}")

    def run_with_peers(self, program):
        self.perceptron()
        # Behind the peers' own packages.
        done = self.python(f"import sys; sys.path.append({SITE!r})\n" + program, python=PYTHON)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_reads_tensors(self):
        self.run_with_peers(TENSORS)

    def test_is_imported_in_any_order(self):
        run = "\nimport numpy; assert ridge.Session('perceptron.onnx').run({'x': numpy.ones((2, 3), 'f')})['y'].any()\n"
        for others in ("torch", "onnxruntime"):
            for first, second in (("ridge", others), (others, "ridge")):
                self.run_with_peers(f"import {first}, {second}{run}")

    def verb(self, *words):
        """What a verb of the installed program writes about the example."""
        command = [sys.executable, "-m", "ridge", *words, "--json", "--", PYTHON, str(PROGRAM), "--epochs", "1"]
        return subprocess.run(command, cwd=self.folder, capture_output=True, text=True, timeout=300)

    @unittest.skipUnless(IS_FULL, "takes a minute")
    def test_examines_a_program(self):
        file = self.folder / "report.json"
        done = self.verb("doctor", "--after", "5", "--output", str(file))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(json.loads(file.read_text())["findings"])

    @unittest.skipUnless(IS_FULL, "takes a minute")
    def test_optimizes_a_program(self):
        (self.folder / "tabular_mlp.pt").unlink(missing_ok=True)
        done = self.verb("optimize", "--sandbox", "--budget", "60", "--out", str(self.folder / "optimized"))
        self.assertEqual(done.returncode, 0, done.stderr)
        tried = [each for each in json.loads(done.stdout)["trials"] if each["verdict"] != "not tried"]
        self.assertTrue(tried, done.stderr)
        self.assertFalse((self.folder / "tabular_mlp.pt").exists())


if __name__ == "__main__":
    unittest.main()
