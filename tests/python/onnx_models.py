"""ONNX models as bytes, written by hand: the tests need no library that makes them."""

import struct

FLOAT, INT64 = 1, 7


def _varint(value):
    data = bytearray()
    while value >= 0x80:
        data.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*data, value])


def _field(number, value):
    """A field of a protobuf message: a number, a text, or a message."""
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    data = value.encode() if isinstance(value, str) else value
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _fields(number, values):
    return b"".join(_field(number, value) for value in values)


def value(name, sizes, dtype=FLOAT):
    """An input or output; a size is a number or a name."""
    dims = [_field(2, size) if isinstance(size, str) else _field(1, size) for size in sizes]
    tensor = _field(1, dtype) + _field(2, _fields(1, dims))
    return _field(1, name) + _field(2, _field(1, tensor))


def floats(name, sizes, elements):
    data = struct.pack(f"<{len(elements)}f", *elements)
    return _fields(1, sizes) + _field(2, FLOAT) + _field(8, name) + _field(9, data)


def node(op, inputs, outputs):
    return _fields(1, inputs) + _fields(2, outputs) + _field(4, op)


def model(nodes, inputs, outputs, weights=()):
    graph = _fields(1, nodes) + _field(2, "graph") + _fields(5, weights) + _fields(11, inputs) + _fields(12, outputs)
    return _field(1, 8) + _field(7, graph) + _field(8, _field(1, "") + _field(2, 17))


WEIGHTS = [(i * 7 % 13 - 6) / 4 for i in range(3 * 4)]


def perceptron():
    """y = relu(x w), of rows of 3 numbers."""
    return model(
        [node("MatMul", ["x", "w"], ["h"]), node("Relu", ["h"], ["y"])],
        [value("x", ["N", 3])],
        [value("y", ["N", 4])],
        [floats("w", [3, 4], WEIGHTS)],
    )


def products(count, width):
    """`count` products of square matrices, one after the other: a run takes as long as one likes."""
    names = ["x", *(f"h{i}" for i in range(count - 1)), "y"]
    scale = 1.0 / width
    return model(
        [node("MatMul", [names[i], "w"], [names[i + 1]]) for i in range(count)],
        [value("x", [width, width])],
        [value("y", [width, width])],
        [floats("w", [width, width], [scale] * (width * width))],
    )


def sums():
    """The sum of two tensors of any length, of 64-bit integers."""
    return model(
        [node("Add", ["a", "b"], ["sum"])],
        [value("a", ["N"], INT64), value("b", ["N"], INT64)],
        [value("sum", ["N"], INT64)],
    )


def mean():
    """The mean of all elements of a long vector."""
    return model([node("ReduceMean", ["x"], ["y"])], [value("x", ["N"])], [value("y", [1])])
