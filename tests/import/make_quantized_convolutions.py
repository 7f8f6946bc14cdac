"""Writes quantized convolutions at random as ONNX models, and what ONNX Runtime makes of an input.

For each number N: N.onnx, its input and output as bytes in N.x and N.y, and a description in N.txt.

Usage: make_quantized_convolutions.py FOLDER COUNT SEED
"""

import pathlib
import sys

import numpy
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

onnxruntime.set_default_logger_severity(3)
BYTES = {"u8": (numpy.uint8, TensorProto.UINT8), "i8": (numpy.int8, TensorProto.INT8)}


class Case:
    """A convolution: sizes, window and bytes."""

    def __init__(self, random):
        self.random = random
        self.groups = int(random.choice([1, 1, 2, 8, 33]))
        each = 1 if self.groups > 2 else int(random.choice([1, 3, 16, 40]))
        out = int(random.choice([1, 1, 2])) if self.groups > 2 else int(random.choice([1, 5, 16, 33]))
        self.channels, self.out = each * self.groups, out * self.groups
        self.kernel = [int(k) for k in random.integers(1, 5, 2)]
        self.strides = [int(k) for k in random.integers(1, 3, 2)]
        self.dilations = [int(k) for k in random.integers(1, 3, 2)]
        self.pads = [int(random.integers(0, k)) for k in self.kernel * 2]
        reach = [d * (k - 1) + 1 for k, d in zip(self.kernel, self.dilations)]
        self.size = [int(r + random.integers(0, 8)) for r in reach]
        self.x_kind = str(random.choice(["u8", "i8"]))
        # ONNX Runtime multiplies i8 by i8 alone. On processors without VNNI it lets sums of two
        # products saturate, which small weights avoid.
        self.w_kind = "i8" if self.x_kind == "i8" else str(random.choice(["u8", "i8"]))
        self.x = self.bytes(self.x_kind, [int(random.integers(1, 3)), self.channels, *self.size])
        low, high = (-64, 64) if self.w_kind == "i8" else (0, 128)
        self.w = random.integers(low, high, [self.out, each, *self.kernel]).astype(BYTES[self.w_kind][0])
        self.x_zero = self.bytes(self.x_kind, [])
        zero = 0 if self.w_kind == "i8" else random.integers(40, 90)
        self.w_zero = numpy.array(zero, BYTES[self.w_kind][0])
        self.depth = each * self.kernel[0] * self.kernel[1]

    def bytes(self, kind, shape):
        limits = numpy.iinfo(BYTES[kind][0])
        return numpy.asarray(self.random.integers(limits.min, limits.max + 1, shape)).astype(BYTES[kind][0])

    def attributes(self):
        return {
            "group": self.groups,
            "kernel_shape": self.kernel,
            "strides": self.strides,
            "dilations": self.dilations,
            "pads": self.pads,
        }

    def describe(self):
        return f"{self.x_kind} {self.x.shape} by {self.w_kind} {self.w.shape}, {self.attributes()}"


def conv_integer(case):
    case.x_kind = "u8"  # ONNX Runtime has no other
    case.x, case.x_zero = case.x.view(numpy.uint8), case.x_zero.view(numpy.uint8)
    names = ["x", "w", "xz", "wz"]
    constants = {"w": case.w, "xz": case.x_zero, "wz": case.w_zero}
    return [helper.make_node("ConvInteger", names, ["y"], **case.attributes())], constants, TensorProto.INT32


def qlinear_conv(case):
    random = case.random
    y_kind = case.x_kind
    scales = random.uniform(0.5, 1.5, [case.out] if random.integers(2) else []).astype("f") * numpy.float32(0.01)
    constants = {
        "xs": numpy.float32(random.uniform(0.01, 0.02)),
        "xz": case.x_zero,
        "w": case.w,
        "ws": numpy.asarray(scales),
        "wz": numpy.broadcast_to(case.w_zero, scales.shape),
        "ys": numpy.float32(random.uniform(0.004, 0.006) * case.depth**0.5),
        "yz": case.bytes(y_kind, []),
    }
    names = ["x", *constants]
    if random.integers(2):
        constants["b"] = random.integers(-20000, 20000, [case.out]).astype(numpy.int32)
        names.append("b")
    return [helper.make_node("QLinearConv", names, ["y"], **case.attributes())], constants, BYTES[y_kind][1]


def quantized_layer(case):
    """DequantizeLinear, Conv, an activation and QuantizeLinear, of scales that f32 multiplies exactly."""
    random = case.random
    constants = {
        "xs": numpy.float32(2.0**-5),
        "xz": case.x_zero,
        "w": case.w,
        "ws": (2.0 ** random.integers(-8, -5, [case.out])).astype("f"),
        "wz": numpy.broadcast_to(case.w_zero, [case.out]),
        "b": (random.integers(-4000, 4000, [case.out]) * 2.0**-11).astype("f"),
        "ys": numpy.float32(2.0**-2),
        "yz": case.bytes(case.x_kind, []),
        "low": numpy.float32(random.uniform(-9, 0)),
        "high": numpy.float32(random.uniform(0, 9)),
    }
    activation = [
        helper.make_node("Relu", ["p"], ["a"]),
        helper.make_node("Clip", ["p", "low", "high"], ["a"]),
        helper.make_node("Clip", ["p", "", "high"], ["a"]),
    ][int(random.integers(3))]
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "xs", "xz"], ["d"]),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["dw"], axis=0),
        helper.make_node("Conv", ["d", "dw", "b"], ["p"], **case.attributes()),
        activation,
        helper.make_node("QuantizeLinear", ["a", "ys", "yz"], ["y"]),
    ]
    return nodes, constants, BYTES[case.x_kind][1]


def model_of(case, nodes, constants, y_type):
    # ascontiguousarray() makes vectors of scalars.
    arrays = {name: numpy.ascontiguousarray(v).reshape(numpy.shape(v)) for name, v in constants.items()}
    tensors = [numpy_helper.from_array(array, name) for name, array in arrays.items()]
    x = helper.make_tensor_value_info("x", BYTES[case.x_kind][1], case.x.shape)
    y = helper.make_tensor_value_info("y", y_type, None)
    graph = helper.make_graph(nodes, "graph", [x], [y], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def main():
    folder, count, seed = pathlib.Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    # Node by node: else ONNX Runtime makes QLinearConv of the last kind, which adds a rounded bias.
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    for number in range(count):
        case = Case(numpy.random.default_rng([seed, number]))
        kind = [conv_integer, qlinear_conv, quantized_layer][number % 3]
        data = model_of(case, *kind(case)).SerializeToString()
        session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
        (y,) = session.run(None, {"x": case.x})
        (folder / f"{number}.onnx").write_bytes(data)
        (folder / f"{number}.x").write_bytes(case.x.tobytes())
        (folder / f"{number}.y").write_bytes(y.tobytes())
        (folder / f"{number}.txt").write_text(f"{kind.__name__}: {case.describe()}")


main()
