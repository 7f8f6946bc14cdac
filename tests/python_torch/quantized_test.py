"""ONNX models that ONNX Runtime's tools quantize, or PyTorch exports quantized: results are ONNX Runtime's.

They are held against ONNX Runtime without its optimizations, which runs the operators as they are written: a byte may
be one off, where two engines round sums in another order. With its optimizations ONNX Runtime adds and exponentiates
bytes by tables of its own, and leaves its own results by some steps: Ridge's may be one step further from these.
RIDGE_TEST_SCALE=full tells how many results differ.
"""

import pathlib
import tempfile
import unittest
import warnings

import numpy as np
import onnx
import onnxruntime
import torch
from case import IS_FULL
from quantized_models import (
    Attention, Depthwise, Perceptron, Residual, by_onnxruntime, data_of, export, made, step_of,
)
from torch import nn
from torch.ao import quantization

import ridge

MOST_OFF = 0.05  # the share of results that may be one step off
KINDS = {"residual": Residual, "depthwise": Depthwise, "perceptron": Perceptron, "attention": Attention}


def run_onnxruntime(path, x, level):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = level
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]


class Case(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        kept = tempfile.TemporaryDirectory()
        cls.addClassCleanup(kept.cleanup)
        cls.folder = pathlib.Path(kept.name)

    def check(self, path, kind):
        x = data_of(kind, 100).numpy()
        levels = onnxruntime.GraphOptimizationLevel
        written = run_onnxruntime(path, x, levels.ORT_DISABLE_ALL)
        optimized = run_onnxruntime(path, x, levels.ORT_ENABLE_ALL)
        got = ridge.Session(path, threads=1).run({"x": x})["y"]
        self.assertEqual((got.shape, got.dtype), (written.shape, written.dtype))
        step = step_of(path, written)

        def steps(a, b):
            return np.abs(a.astype(np.float64) - b) / step

        off = steps(got, written)
        share = float(np.mean(off > 0.01))
        own = steps(optimized, written).max()
        if IS_FULL:
            print(f"{self.id().split('.')[-1]}: {share:.2%} of {off.size} results differ, by {off.max():.2f} steps at "
                  f"most; ONNX Runtime's optimizations move its own by {own:.2f}, and are {steps(got, optimized).max():.2f} away")
        self.assertLessEqual(off.max(), 1.01)
        self.assertLessEqual(share, MOST_OFF)
        self.assertLessEqual(steps(got, optimized).max(), own + 1.01)


class ByOnnxRuntime(Case):
    """Static in both formats, and dynamic."""

    def check_way(self, name, way):
        kind = KINDS[name]
        source, path = str(self.folder / f"{name}.onnx"), str(self.folder / f"{name}.{way}.onnx")
        if not pathlib.Path(source).exists():
            export(made(kind), data_of(kind, 0), source)
        by_onnxruntime(kind, source, path, way)
        self.check(path, kind)


def add_case(name, way):
    def test(self):
        self.check_way(name, way)

    setattr(ByOnnxRuntime, f"test_{name}_{way.replace(' ', '_').lower()}", test)


for _name in KINDS:
    for _way in ("QDQ u8", "QDQ s8", "QOperator u8", "dynamic"):
        add_case(_name, _way)


class OfFourBits(unittest.TestCase):
    """Weights of 4 bits, which files have packed: one scale, one for each column, and one for each block of rows."""

    def check(self, dtype, scales, axis, block=0):
        depth, columns = 97, 51  # an odd number of elements, and more than are computed while a model is imported
        random = np.random.default_rng(len(scales) + block)
        low, high = (-8, 8) if dtype == onnx.TensorProto.INT4 else (0, 16)
        weights = random.integers(low, high, (depth, columns))
        zeros = random.integers(low, high, scales)
        initializers = [
            onnx.helper.make_tensor("w", dtype, weights.shape, weights.flatten()),
            onnx.numpy_helper.from_array(random.uniform(0.1, 1, scales).astype(np.float32), "s"),
            onnx.helper.make_tensor("z", dtype, scales, np.atleast_1d(zeros).flatten()),
        ]
        attributes = {"axis": axis, **({"block_size": block} if block else {})}
        nodes = [onnx.helper.make_node("DequantizeLinear", ["w", "s", "z"], ["d"], **attributes),
                 onnx.helper.make_node("MatMul", ["x", "d"], ["y"])]
        sides = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [5, size])
                 for name, size in (("x", depth), ("y", columns))]
        graph = onnx.helper.make_graph(nodes, "four_bits", sides[:1], sides[1:], initializers)
        model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=10)
        x = random.standard_normal((5, depth)).astype(np.float32)
        with tempfile.TemporaryDirectory() as folder:
            path = str(pathlib.Path(folder) / "model.onnx")
            onnx.save(model, path)
            wanted = run_onnxruntime(path, x, onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL)
            np.testing.assert_allclose(ridge.Session(path, threads=1).run({"x": x})["y"], wanted, rtol=1e-5, atol=1e-4)

    def test_scales(self):
        for dtype in (onnx.TensorProto.INT4, onnx.TensorProto.UINT4):
            for scales, axis, block in (((), 0, 0), ((51,), 1, 0), ((13, 51), 0, 8)):
                with self.subTest(dtype=dtype, scales=scales):
                    self.check(dtype, scales, axis, block)


class Fixed(nn.Module):
    """A FakeQuantize that has seen its data."""

    def __init__(self, fake):
        super().__init__()
        self.scale, zero = fake.calculate_qparams()
        self.zero = zero.to(torch.int32)
        self.limits, self.axis = (fake.quant_min, fake.quant_max), fake.ch_axis

    def forward(self, x):
        if self.scale.numel() > 1:
            return torch.fake_quantize_per_channel_affine(x, self.scale, self.zero, self.axis, *self.limits)
        return torch.fake_quantize_per_tensor_affine(x, float(self.scale), int(self.zero), *self.limits)


class ByTorch(Case):
    """What PyTorch exports of quantized modules: of its graph mode, and with its fake quantization."""

    def quantized(self, kind):
        from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            mapping = quantization.get_default_qconfig_mapping("x86")
            prepared = prepare_fx(made(kind), mapping, (data_of(kind, 0),))
            for seed in range(4):
                prepared(data_of(kind, seed))
            return prepared, convert_fx

    def check_graph_mode(self, kind):
        prepared, convert = self.quantized(kind)
        path = str(self.folder / f"{kind.__name__}.onnx")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            export(convert(prepared), data_of(kind, 0), path)
        self.check(path, kind)

    def test_graph_mode_residual(self):
        self.check_graph_mode(Residual)

    def test_graph_mode_perceptron(self):
        self.check_graph_mode(Perceptron)

    def test_graph_mode_depthwise(self):
        self.check_graph_mode(Depthwise)

    def check_decomposed(self, kind):
        """As PT2E writes it: quantize and dequantize as operators, by the newer exporter."""
        from torch.ao.quantization.quantize_fx import _convert_to_reference_decomposed_fx

        prepared, _ = self.quantized(kind)
        path = str(self.folder / f"{kind.__name__}.decomposed.onnx")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            export(_convert_to_reference_decomposed_fx(prepared), data_of(kind, 0), path, dynamo=True)
        self.check(path, kind)

    @unittest.skipUnless(IS_FULL, "the newer exporter takes seconds")
    def test_decomposed_residual(self):
        self.check_decomposed(Residual)

    @unittest.skipUnless(IS_FULL, "the newer exporter takes seconds")
    def test_decomposed_perceptron(self):
        self.check_decomposed(Perceptron)

    def fake_quantized(self, kind):
        """A module with FakeQuantize before each layer and on its weights, as training that knows of it leaves one."""
        module = made(kind)
        activations = quantization.FakeQuantize.with_args(
            observer=quantization.MinMaxObserver, quant_min=0, quant_max=255, dtype=torch.quint8)
        weights = quantization.FakeQuantize.with_args(
            observer=quantization.PerChannelMinMaxObserver, quant_min=-128, quant_max=127, dtype=torch.qint8,
            qscheme=torch.per_channel_symmetric, ch_axis=0)

        class Layer(nn.Module):
            def __init__(self, layer):
                super().__init__()
                self.layer, self.input, self.weight = layer, activations(), weights()

            def forward(self, x):
                x, weight = self.input(x), self.weight(self.layer.weight)
                if isinstance(self.layer, nn.Conv2d):
                    return self.layer._conv_forward(x, weight, self.layer.bias)
                return nn.functional.linear(x, weight, self.layer.bias)

        class Whole(nn.Module):
            def __init__(self):
                super().__init__()
                self.module, self.last = module, activations()

            def forward(self, x):
                return self.last(self.module(x))

        for parent in list(module.modules()):
            for name, child in list(parent.named_children()):
                if isinstance(child, (nn.Conv2d, nn.Linear)):
                    setattr(parent, name, Layer(child))
        whole = Whole().eval()
        with torch.no_grad():
            for seed in range(4):
                whole(data_of(kind, seed))
        for parent in list(whole.modules()):
            for name, child in list(parent.named_children()):
                if isinstance(child, quantization.FakeQuantize):
                    setattr(parent, name, Fixed(child))
        return whole

    def check_fake_quantized(self, kind, dynamo):
        path = str(self.folder / f"{kind.__name__}.fake{dynamo}.onnx")
        export(self.fake_quantized(kind), data_of(kind, 0), path, dynamo)
        self.check(path, kind)

    def test_fake_quantized_perceptron(self):
        self.check_fake_quantized(Perceptron, dynamo=False)

    def test_fake_quantized_depthwise(self):
        self.check_fake_quantized(Depthwise, dynamo=False)

    @unittest.skipUnless(IS_FULL, "the newer exporter takes seconds")
    def test_fake_quantized_by_the_newer_exporter(self):
        self.check_fake_quantized(Perceptron, dynamo=True)
        self.check_fake_quantized(Depthwise, dynamo=True)


if __name__ == "__main__":
    unittest.main()
