#!/usr/bin/env python3
"""Writes the seeds of tests/fuzz/onnx_model.cc: small models of many kinds of nodes.

Needs the package onnx (./dev peers). Usage: build/peers/bin/python tools/make_onnx_corpus.py
"""

import pathlib

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDER = ROOT / "tests/fuzz/corpus/onnx_model"
FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def value(name, shape, dtype=FLOAT):
    return helper.make_tensor_value_info(name, dtype, shape)


def constant(name, array, dtype=np.float32):
    return numpy_helper.from_array(np.asarray(array, dtype), name)


def write(name, nodes, inputs, constants=(), outputs=("y",), opset=17, functions=()):
    graph = helper.make_graph(
        nodes, name, inputs, [value(each, None) for each in outputs], list(constants)
    )
    opsets = [helper.make_opsetid("", opset)]
    opsets += [helper.make_opsetid(function.domain, 1) for function in functions]
    model = helper.make_model(graph, opset_imports=opsets, functions=functions, ir_version=8)
    (FOLDER / name).write_bytes(model.SerializeToString())


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    node = helper.make_node
    numbers = np.arange(24, dtype=np.float32) / 8

    write(
        "perceptron",
        [node("Gemm", ["x", "w", "b"], ["h"], transB=1), node("Gelu", ["h"], ["g"]),
         node("Softmax", ["g"], ["y"])],
        [value("x", ["N", 4])],
        [constant("w", numbers.reshape(6, 4)), constant("b", numbers[:6])],
        opset=20,
    )
    write(
        "convolution",
        [node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1], strides=[2, 2]),
         node("BatchNormalization", ["c", "s", "s", "s", "s"], ["n"]),
         node("Relu", ["n"], ["r"]), node("MaxPool", ["r"], ["m"], kernel_shape=[2, 2], ceil_mode=1),
         node("GlobalAveragePool", ["m"], ["p"]), node("Flatten", ["p"], ["y"])],
        [value("x", ["N", 1, 6, 6])],
        [constant("w", np.resize(numbers, (2, 1, 3, 3))), constant("s", numbers[1:3])],
    )
    write(
        "shapes",
        [node("Shape", ["x"], ["s"]), node("Slice", ["s", "zero", "one"], ["n"]),
         node("Concat", ["n", "rest"], ["to"], axis=0), node("Reshape", ["x", "to"], ["z"]),
         node("Transpose", ["z"], ["t"], perm=[1, 0]), node("Split", ["t"], ["a", "b"], axis=0),
         node("Pad", ["a", "pads"], ["p"], mode="reflect"), node("ReduceSum", ["p", "zero"], ["y"])],
        [value("x", ["N", 2, 3])],
        [constant(n, v, np.int64) for n, v in
         {"zero": [0], "one": [1], "rest": [-1], "pads": [0, 1, 1, 0]}.items()],
        outputs=("y", "b"),
    )
    write(
        "indices",
        [node("Gather", ["x", "i"], ["g"], axis=1), node("ScatterND", ["x", "at", "u"], ["z"]),
         node("TopK", ["z", "k"], ["v", "o"]), node("Resize", ["g4", "", "scales"], ["r"], mode="linear"),
         node("CumSum", ["z", "k"], ["y"]), node("Einsum", ["x", "z"], ["e"], equation="ij,kj->ik")],
        [value("x", [3, 4]), value("g4", [1, 1, 2, 2])],
        [constant("i", [[0, -1]], np.int64), constant("at", [[1]], np.int64),
         constant("u", numbers[:4].reshape(1, 4)), constant("k", [1], np.int64),
         constant("scales", [1, 1, 2, 1.5])],
        outputs=("g", "v", "o", "r", "y", "e"),
    )
    body = helper.make_graph(
        [node("Identity", ["c"], ["d"]), node("Add", ["h", "x"], ["t"]), node("Neg", ["t"], ["q"])],
        "body", [value("i", [], INT64), value("c", [], BOOL), value("h", [2])],
        [value("d", [], BOOL), value("t", [2]), value("q", [2])],
    )
    branch = helper.make_graph([node("Sigmoid", ["x"], ["b"])], "branch", [], [value("b", [2])])
    write(
        "control",
        [node("Loop", ["times", "", "x"], ["l", "all"], body=body),
         node("If", ["yes"], ["y"], then_branch=branch, else_branch=branch)],
        [value("x", [2])],
        [constant("times", 3, np.int64), constant("yes", True, np.bool_)],
        outputs=("y", "l", "all"),
    )
    function = helper.make_function(
        "own", "Twice", ["a"], ["b"], [node("Add", ["a", "a"], ["b"])],
        [helper.make_opsetid("", 17)],
    )
    write(
        "function",
        [node("Twice", ["x"], ["t"], domain="own"), node("Twice", ["t"], ["y"], domain="own")],
        [value("x", [2])],
        functions=[function],
    )
    outside = constant("w", numbers[:3])
    outside.ClearField("raw_data")
    outside.data_location = TensorProto.EXTERNAL
    for key, text in (("location", "weights"), ("offset", "0"), ("length", "12")):
        outside.external_data.add(key=key, value=text)
    write("external", [node("Add", ["x", "w"], ["y"])], [value("x", [3])], [outside])


if __name__ == "__main__":
    main()
