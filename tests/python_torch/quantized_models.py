"""Small PyTorch modules for quantized_test.py, with data for them, and their quantized ONNX files."""

import logging
import pathlib
import warnings

import onnx
import torch
import torch.nn.functional as F
from onnxruntime import quantization
from torch import nn


class Residual(nn.Module):
    """Convolutions with norms, a sum, pools and a head."""

    def __init__(self):
        super().__init__()
        self.stem, self.stem_norm = nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16)
        self.conv1, self.norm1 = nn.Conv2d(16, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16)
        self.conv2, self.norm2 = nn.Conv2d(16, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16)
        self.down = nn.Conv2d(16, 24, 3, stride=2)
        self.head = nn.Linear(24, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.stem_norm(self.stem(x))), 2)
        x = F.relu(x + self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x))))))
        x = F.relu(self.down(x))
        return self.head(F.adaptive_avg_pool2d(x, 1).flatten(1))


class Depthwise(nn.Module):
    """Inverted residuals."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(self.block(8, 24, 8) for _ in range(2))
        self.head = nn.Conv2d(8, 12, 1)

    @staticmethod
    def block(before, middle, after):
        return nn.Sequential(
            nn.Conv2d(before, middle, 1), nn.ReLU6(),
            nn.Conv2d(middle, middle, 3, padding=1, groups=middle), nn.ReLU6(),
            nn.Conv2d(middle, after, 1))

    def forward(self, x):
        for layer in self.layers:
            x = x + layer(x)
        return self.head(x)


class Perceptron(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(24, 48), nn.ReLU(), nn.Linear(48, 32), nn.ReLU(), nn.Linear(32, 10))

    def forward(self, x):
        return self.layers(x)


class Attention(nn.Module):
    """A layer of a transformer."""

    def __init__(self, width=32, heads=2):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x):
        batch, time, width = x.shape
        q, k, v = (
            each.view(batch, time, self.heads, width // self.heads).transpose(1, 2)
            for each in self.qkv(self.norm1(x)).split(width, dim=2)
        )
        weights = torch.softmax(q @ k.transpose(2, 3) / (width // self.heads) ** 0.5, -1)
        x = x + self.out((weights @ v).transpose(1, 2).reshape(batch, time, width))
        return x + self.mlp(self.norm2(x))


SHAPES = {Residual: (3, 14, 14), Depthwise: (8, 9, 9), Perceptron: (24,), Attention: (9, 32)}
ROWS = 6


def made(kind):
    """The module in eval(), with norms that have seen data."""
    torch.manual_seed(2)
    module = kind()
    with torch.no_grad():
        for seed in range(8):
            module.train()(data_of(kind, seed))
    return module.eval()


def data_of(kind, seed):
    return torch.randn(ROWS, *SHAPES[kind], generator=torch.Generator().manual_seed(seed))


def export(module, x, path, dynamo=False):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if dynamo:
            torch.onnx.export(module, (x,), str(path), input_names=["x"], output_names=["y"], dynamo=True, verbose=False)
        else:
            torch.onnx.export(module, (x,), str(path), input_names=["x"], output_names=["y"], dynamo=False,
                              opset_version=17, dynamic_axes={"x": {0: "N"}, "y": {0: "N"}})


class Samples(quantization.CalibrationDataReader):
    def __init__(self, kind):
        self.left = iter([{"x": data_of(kind, seed).numpy()} for seed in range(4)])

    def get_next(self):
        return next(self.left, None)


def saturates():
    """Whether ONNX Runtime's sums of pairs of u8 * s8 do, unless weights have 7 bits."""
    flags = pathlib.Path("/proc/cpuinfo").read_text()
    return not any(flag in flags for flag in ("avx512_vnni", "avx_vnni", "amx_int8"))


def by_onnxruntime(kind, source, path, way):
    """Quantizes as `way` says: static with bytes of two signs, an operator each, or dynamic."""
    logging.getLogger().setLevel(logging.ERROR)
    types = {"u8": quantization.QuantType.QUInt8, "s8": quantization.QuantType.QInt8}
    if way == "dynamic":
        quantization.quantize_dynamic(source, path, per_channel=True, reduce_range=saturates(),
                                      weight_type=quantization.QuantType.QInt8)
        return
    form, activations = way.split()
    quantization.quantize_static(
        source, path, Samples(kind), quant_format=quantization.QuantFormat[form], per_channel=form == "QDQ",
        reduce_range=saturates(), activation_type=types[activations], weight_type=quantization.QuantType.QInt8,
    )


def step_of(path, outputs):
    """What the last bit of the result is worth; of floats, of 8 bits over their range."""
    graph = onnx.load(path).graph
    makers = {name: node for node in graph.node for name in node.output}
    known = {each.name: onnx.numpy_helper.to_array(each) for each in graph.initializer}
    known.update({
        node.output[0]: onnx.numpy_helper.to_array(node.attribute[0].t)
        for node in graph.node if node.op_type == "Constant" and node.attribute[0].name == "value"
    })
    last = makers[graph.output[0].name]
    while last.op_type in ("Flatten", "Identity", "Reshape", "Transpose"):
        last = makers[last.input[0]]
    if last.op_type == "DequantizeLinear" and last.input[1] in known:
        return float(known[last.input[1]].max())
    return float(outputs.max() - outputs.min()) / 255
