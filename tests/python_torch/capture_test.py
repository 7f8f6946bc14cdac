"""`ridge capture`: graphs of a program, as its own torch.compile or the verb gives them to Ridge."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import textwrap
import unittest
from unittest import mock

import torch
from case import Case

from ridge._verbs import PROGRAM

_PROGRAM = """
    import torch
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        optimizer.zero_grad()
        model(torch.randn(8, 6)).square().mean().backward()
        optimizer.step()
    print("trained")
"""
# 2 * (8 * 6 * 16 + 8 * 16 * 3) in the forward pass
_FLOPS = 2304


class Capture(Case):
    def folder(self):
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        return pathlib.Path(place.name)

    def test_graphs_are_kept(self):
        folder = self.folder()
        model = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))
        with mock.patch.dict(os.environ, RIDGE_TORCH_CAPTURE=str(folder)):
            self.compiled(model)(torch.randn(8, 6)).sum().backward()
            torch._dynamo.reset()
            with torch.no_grad():
                self.compiled(lambda x: torch.linalg.inv(x @ x) + 1)(torch.randn(4, 4))
        graphs = [json.loads(path.read_text()) for path in sorted(folder.iterdir())]
        self.assertEqual([graph["kind"] for graph in graphs], ["forward", "backward", "inference"])
        self.assertEqual([len(graph["programs"]) for graph in graphs], [1, 1, 2])
        self.assertEqual(graphs[0]["programs"][0]["format"], "ridge.aten/1")
        self.assertIn("aten.linalg_inv_ex.default", [left[0] for left in graphs[2]["left"]])

    def test_a_folder_that_is_gone(self):
        with mock.patch.dict(os.environ, RIDGE_TORCH_CAPTURE="/no/such/folder"), torch.no_grad():
            x = torch.randn(3)
            self.assert_near(self.compiled(lambda x: x.exp() + 1)(x), x.exp() + 1)

    def ridge(self, *words, code=0):
        paths = os.pathsep.join(each for each in sys.path if each)
        result = subprocess.run(
            [PROGRAM, *words], env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True
        )
        self.assertEqual(result.returncode, code, result.stderr)
        return result

    @unittest.skipUnless(os.path.exists(PROGRAM), "the package has no program")
    def test_programs_are_captured(self):
        folder = self.folder()
        script, out = folder / "train.py", str(folder / "model.graph")
        script.write_text(textwrap.dedent(_PROGRAM))
        result = self.ridge("capture", "--out", out, "--", sys.executable, str(script))
        self.assertEqual(result.stdout, "trained\n")
        self.assertIn("2 graphs are in", result.stderr)
        report = json.loads(self.ridge("inspect", out, "--json").stdout)
        self.assertEqual([graph["kind"] for graph in report["graphs"]], ["forward", "backward"])
        products = [op for op in report["graphs"][0]["ops"] if op["op"] == "matmul"]
        self.assertEqual(sum(op["flops"] for op in products), _FLOPS)
        text = self.ridge("inspect", out).stdout
        self.assertIn("graph 0: forward, 1 programs", text)

    @unittest.skipUnless(os.path.exists(PROGRAM), "the package has no program")
    def test_nothing_is_captured(self):
        out = self.folder() / "model.graph"
        result = self.ridge("capture", "--out", str(out), "--", "true", code=1)
        self.assertIn("no graph was captured: no Python that the program ran", result.stderr)
        self.assertFalse(out.exists())


if __name__ == "__main__":
    unittest.main()
