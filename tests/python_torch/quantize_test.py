"""Layers that multiply bytes: their arithmetic, what calibration sees, and models that have them."""

import copy
import math
import unittest

import torch
import torch.nn.functional as F
from case import Case
from torch import nn

from ridge.torch import quantize
from ridge.torch._quantize import Calibration, QuantizedConv2d, QuantizedLinear, _Range, _Seen


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16)
        self.one, self.two = nn.Conv2d(16, 32, 3, 2, 1), nn.Conv2d(16, 32, 1, 2)
        self.depthwise = nn.Conv2d(32, 32, 3, padding=1, groups=32)
        self.head = nn.Linear(32, 10)

    def forward(self, x):
        x = F.relu(self.norm(self.stem(x)))
        x = F.relu(self.one(x) + self.two(x))
        return self.head(F.relu6(self.depthwise(x)).mean((2, 3)))


def decibels(exact, rounded):
    error = (rounded - exact).double().square().mean().item()
    return math.inf if error == 0 else 10 * math.log10(exact.double().square().mean().item() / error)


def dequantized(x, scale, zero):
    """PyTorch's own quantization, in f64."""
    q = torch.quantize_per_tensor(x, scale, zero, torch.quint8)
    return (q.int_repr().double() - zero) * scale


class Quantize(Case):
    def eager_and_engine(self, layer, x):
        with torch.no_grad():
            wanted = layer(x)
            got = self.run_whole(layer, x, programs=1)
        self.assertEqual(got.stride(), wanted.stride())
        return wanted, got

    def test_layers_have_the_bits_of_eager(self):
        convolutions = (
            ((16, 24, 3), {"padding": 1}, (2, 16, 9, 7)),
            ((8, 12, (1, 5)), {"stride": (1, 2), "padding": (0, 3), "bias": False}, (1, 8, 4, 11)),
            ((12, 6, 3), {"groups": 3, "dilation": 2}, (3, 12, 8, 8)),
            ((32, 32, 3), {"groups": 32, "padding": 1, "stride": 2}, (2, 32, 10, 10)),
        )
        limits = _Range(-1.7, 2.9)
        for args, options, shape in convolutions:
            for memory in (torch.contiguous_format, torch.channels_last):
                with self.subTest(f"{args} {options} {memory}"):
                    torch._dynamo.reset()
                    layer = QuantizedConv2d(nn.Conv2d(*args, **options), limits)
                    x = torch.randn(shape).contiguous(memory_format=memory)
                    wanted, got = self.eager_and_engine(layer, x)
                    self.assertTrue(torch.equal(got, wanted))
        for shape in ((5, 70), (2, 3, 70), (70,)):
            with self.subTest(shape):
                torch._dynamo.reset()
                layer = QuantizedLinear(nn.Linear(70, 33), limits)
                wanted, got = self.eager_and_engine(layer, torch.randn(shape))
                self.assertTrue(torch.equal(got, wanted))

    def test_layers_are_those_of_pytorchs_quantization(self):
        limits = _Range(-2.0, 3.0)
        linear = nn.Linear(64, 40)
        layer, x = QuantizedLinear(linear, limits), torch.randn(9, 64)
        weight = torch.quantize_per_channel(
            linear.weight.detach(), layer.weight_scale, torch.zeros(40, dtype=torch.long), 0, torch.qint8
        )
        self.assertTrue(torch.equal(weight.int_repr(), layer.weight))
        exact = F.linear(dequantized(x, limits.scale, limits.zero), weight.dequantize().double(), linear.bias.double())
        torch.testing.assert_close(layer(x).double(), exact, rtol=1e-5, atol=1e-5)

    def test_a_model_keeps_its_signal_and_itself(self):
        model = Residual()
        model(torch.randn(16, 3, 32, 32))  # statistics
        model.train()
        before = copy.deepcopy(model.state_dict())
        batches = [torch.randn(4, 3, 32, 32) for _ in range(3)]
        fast = quantize(model, batches)
        self.assertTrue(model.training)
        for name, value in model.state_dict().items():
            self.assertTrue(torch.equal(value, before[name]), name)
        kinds = {name: type(layer).__name__ for name, layer in fast.named_modules()}
        self.assertEqual(kinds["one"], "QuantizedConv2d")
        self.assertEqual(kinds["head"], "QuantizedLinear")
        self.assertEqual(kinds["stem"], "Conv2d", "its products have 27 terms")
        self.assertEqual(kinds["depthwise"], "Conv2d")
        x = torch.randn(4, 3, 32, 32)
        with torch.no_grad():
            exact = model.eval()(x)
            self.assertGreater(decibels(exact, fast(x)), 25)
            self.assertGreater(decibels(exact, self.run_whole(fast, x, programs=1)), 25)

    def test_ranges_lose_less_than_the_ends(self):
        values = torch.rand(1 << 20) * 2 - 1
        values[0] = 3.0  # an outlier that would take half of the numbers
        seen = _Seen()
        for part in values.split(1 << 14):
            seen.take(part[None])
        self.assertEqual((seen.least, seen.most), (values.min().item(), 3.0))
        found, ends = seen.range(), _Range(seen.least, seen.most)
        self.assertLess(found.error(values), ends.error(values))
        self.assertLess(found.scale, ends.scale)

    def test_edges_end_in_a_stated_result(self):
        x = torch.randn(8, 64)
        model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4))
        with torch.no_grad():
            model[0].weight[3] = 0
            model[0].bias[3] = 0
        fast = quantize(model, [x])
        self.assertTrue(torch.equal(fast[0](x)[:, 3], torch.zeros(8)), "a channel of zeros")
        constant = quantize(nn.Sequential(nn.Linear(64, 4)), [torch.zeros(2, 64)])
        self.assertTrue(constant(x).isfinite().all())
        broken = x.clone()
        broken[0, 0] = math.nan
        for bad, model, why in (
            (broken, nn.Linear(64, 4), "its input is not finite"),
            (x.double(), nn.Linear(64, 4).double(), "its weights are not float32 on the CPU"),
            (x, nn.ReLU(), "it has none"),
            (x[:, :8], nn.Linear(8, 4), "its products have 8 terms"),
        ):
            with self.subTest(why), self.assertRaisesRegex(ValueError, "can multiply bytes: .*" + why):
                quantize(model, [bad])
        with Calibration(nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 4))) as seen:
            seen.module[0](x)
        seen.quantized()
        self.assertEqual(seen.left, {"1": "it was not called"})
        self.assertEqual(seen.told(), "1 layer multiplies bytes; in f32 stay 1 (it was not called)")


if __name__ == "__main__":
    unittest.main()
