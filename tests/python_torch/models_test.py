"""Small models: outputs, losses, gradients and running statistics are those of eager."""

import importlib.metadata
import os
import subprocess
import sys
import unittest
import warnings
from unittest import mock

import torch
from case import Case
from torch import nn

import ridge.torch
from ridge.torch._describe import operator_name
from ridge.torch._program import Program


class Block(nn.Module):
    """A layer of a transformer."""

    def __init__(self, width, heads, dropout=0.0):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.norm2(x))


class Transformer(nn.Module):
    def __init__(self, words=50, width=32, heads=4, layers=2, length=16):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*[Block(width, heads) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)
        self.head.weight = self.words.weight

    def forward(self, ids):
        x = self.words(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        return self.head(self.norm(self.blocks(x)))


class Residual(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU(),
            nn.Conv2d(channels, channels, 3, padding=1, groups=channels),
            nn.BatchNorm2d(channels),
        )

    def forward(self, x):
        return torch.relu(x + self.body(x))


def cnn():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8), nn.ReLU6(), nn.MaxPool2d(3, 2, 1),
        Residual(8), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5),
    )  # fmt: skip


class Models(Case):
    def test_perceptron(self):
        model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 3))
        self.check_model(model, torch.randn(5, 6))

    def test_cnn(self):
        self.check_model(cnn(), torch.randn(4, 3, 17, 16))

    def test_saved_images_lie_as_backward_reads_them(self):
        model, x = cnn(), torch.randn(4, 3, 17, 16)
        copied = []
        with mock.patch.object(Program, "_placed", lambda self, tensor, strides: copied.append(tensor.shape)):
            torch._dynamo.reset()
            compiled = self.compiled(model)
            for _ in range(2):
                compiled(x).square().sum().backward()
        self.assertEqual(copied, [])

    def test_cnn_of_channels_last(self):
        model = cnn().to(memory_format=torch.channels_last)
        self.check_model(model, torch.randn(4, 3, 17, 16).contiguous(memory_format=torch.channels_last))

    def test_transformer(self):
        self.check_model(Transformer(), torch.randint(0, 50, (3, 16)))


class Semantics(Case):
    @torch.no_grad()
    def test_weights_that_change(self):
        model = nn.Linear(4, 3).eval()
        compiled, x = self.compiled(model), torch.randn(2, 4)
        for change in (
            lambda: None,
            lambda: model.weight.add_(1.0),
            lambda: model.weight.data.mul_(2.0),
            lambda: setattr(model.weight, "data", torch.randn(3, 4)),
            lambda: model.load_state_dict({"weight": torch.randn(3, 4), "bias": torch.randn(3)}),
        ):
            change()
            for _ in range(2):
                self.assert_near(compiled(x), model(x))

    @torch.no_grad()
    def test_weights_that_always_change(self):
        model = nn.Linear(4, 3).eval()
        compiled, x = self.compiled(model), torch.randn(2, 4)
        for _ in range(8):
            model.weight.add_(0.5)
            self.assert_near(compiled(x), model(x))

    def test_inference_mode(self):
        with torch.inference_mode():
            model, x = nn.Linear(4, 3).eval(), torch.randn(2, 4)
            compiled = self.compiled(model)
            for _ in range(2):
                self.assert_near(compiled(x), model(x))

    @torch.no_grad()
    def test_inputs_that_lie_with_gaps(self):
        def f(x, y):
            return x * 2 + y

        wide = torch.randn(6, 8)
        for x, y in ((wide[::2, ::2], wide[:3, :4]), (wide.t()[:4, :3].t(), wide[:3, :1].expand(3, 4))):
            torch._dynamo.reset()
            self.assert_near(self.compiled(f)(x, y), f(x, y))

    @torch.no_grad()
    def test_outputs_are_not_shared(self):
        def f(x):
            y = x + 1
            return y, y, x, x.t(), y[0]

        x = torch.randn(3, 4)
        got, wanted = self.compiled(f)(x), f(x)
        self.assert_near(got, wanted)
        self.assertEqual(got[2].data_ptr(), x.data_ptr())
        again = self.compiled(f)(x + 1)
        self.assert_near(got[0], wanted[0])
        self.assertNotEqual(again[0].data_ptr(), got[0].data_ptr())

    @torch.no_grad()
    def test_inputs_are_written(self):
        def f(x, y):
            x.add_(1)
            y[0] = 5.0
            return x * y

        given = torch.randn(2, 3), torch.randn(2, 3)
        mine = [x.clone() for x in given]
        self.assert_near(self.compiled(f)(*mine), f(*given))
        self.assert_near(mine, list(given))

    @torch.no_grad()
    def test_what_ridge_has_not_stays_atens(self):
        def f(x):
            y = (x * 2).exp()
            z = torch.linalg.inv(y @ y.t() + 10 * torch.eye(x.shape[0]))
            return (z + 1).tanh() * y.sum()

        x = torch.randn(3, 4)
        got = self.run_whole(f, x, left=None, programs=2)
        self.assert_near(got, f(x))

    @torch.no_grad()
    def test_sizes_that_change(self):
        model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)).eval()
        compiled = torch.compile(model, backend="ridge", dynamic=True)
        for rows in (2, 5, 2, 7):
            x = torch.randn(rows, 4)
            self.assert_near(compiled(x), model(x))

    @torch.no_grad()
    def test_threads(self):
        model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)).eval()
        compiled, inputs = self.compiled(model), [torch.randn(2, 4) for _ in range(16)]
        compiled(inputs[0])
        from concurrent.futures import ThreadPoolExecutor

        def run(x):
            with torch.no_grad():
                return compiled(x)

        with ThreadPoolExecutor(4) as pool:
            for x, got in zip(inputs, pool.map(run, inputs)):
                self.assert_near(got, model(x))

    def test_dropout(self):
        layer = nn.Dropout(0.25)
        compiled, x = self.compiled(layer), torch.ones(40, 50, requires_grad=True)
        torch.manual_seed(3)
        with self.graphs():
            y = compiled(x)
        (gradient,) = torch.autograd.grad(y.sum(), x)
        self.assert_near(gradient, y.detach())
        self.assert_near(y.unique(), torch.tensor([0.0, 4 / 3]))
        self.assertAlmostEqual(float((y == 0).float().mean()), 0.25, delta=0.05)
        self.assertFalse(torch.equal(compiled(x), y))
        torch.manual_seed(3)
        self.assertTrue(torch.equal(compiled(x), y))
        layer.eval()
        self.assertTrue(torch.equal(compiled(x), x))

    def test_autocast(self):
        model, x = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4)), torch.randn(8, 16)
        with torch.autocast("cpu", torch.bfloat16):
            wanted = model(x)
            got = self.run_whole(model, x)
        self.assertEqual(got.dtype, torch.bfloat16)
        torch.testing.assert_close(got, wanted, rtol=0.02, atol=0.02)

    @torch.no_grad()
    def test_what_fails_stays_pytorchs(self):
        def f(x):
            return (x * 3).tanh()

        x = torch.randn(3)
        with mock.patch.object(ridge._ridge, "AtenProgram", side_effect=RuntimeError("no room today")):
            with self.assertWarnsRegex(UserWarning, "stays PyTorch's.*no room today"):
                got = self.compiled(f)(x)
        self.assert_near(got, f(x))

    @torch.no_grad()
    def test_verification(self):
        def wrong(target):
            name = operator_name(target)
            return "sub.Tensor" if name == "add.Tensor" else name

        x = torch.randn(3)
        with mock.patch.dict(os.environ, RIDGE_TORCH_VERIFY="1"):
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                self.assert_near(self.compiled(lambda x: (x * 2).exp() + 1)(x), (x * 2).exp() + 1)
            torch._dynamo.reset()
            with mock.patch("ridge.torch._describe.operator_name", wrong):
                with self.assertWarnsRegex(UserWarning, "node 'add' .aten.add.Tensor.: up to 2 apart"):
                    self.compiled(lambda x: (x * 2 + 1).relu() * 3)(x)

    def test_nothing_is_imported(self):
        if not importlib.metadata.entry_points(group="torch_dynamo_backends", name="ridge"):
            self.skipTest("the wheel is not installed, so that PyTorch does not know of its entry point")
        code = "import torch; print(torch.compile(lambda x: x + 1, backend='ridge')(torch.ones(1)).item())"
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout.strip()), (0, "2.0"), done.stderr)

    def test_unknown_option(self):
        with self.assertRaisesRegex(Exception, "no option 'feeze'"):
            self.compiled(lambda x: x + 1, feeze=True)(torch.randn(2))

    def test_explanation(self):
        explanation = ridge.torch.explain(nn.Sequential(nn.Linear(4, 3), nn.GELU()), (torch.randn(2, 4),))
        self.assertEqual((explanation.graphs, explanation.left), (2, []))
        self.assertIn("nothing is left to ATen", str(explanation))


if __name__ == "__main__":
    unittest.main()
