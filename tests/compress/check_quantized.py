"""Holds each NAME.onnx of a folder against onnx.checker and onnx's own rules of shapes, and Ridge's results
against those of ONNX Runtime, with its optimizations and without.

NAME.I.x.npy is an input, NAME.I.y.npy the result of Ridge, NAME.I.f.npy that of the model in floats. A result
is the same where it is off by a small share of what quantization costs: engines round sums and products
in another order, so that a byte between two layers is another one now and then.

Usage: check_quantized.py FOLDER
"""

import pathlib
import sys

import numpy
import onnx
import onnxruntime

onnxruntime.set_default_logger_severity(3)
FUSED = ("QLinearConv", "QGemm", "MatMulIntegerToFloat", "DynamicQuantizeMatMul", "MatMulInteger")


def session(path, level, optimized=None):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = level
    if optimized:
        options.optimized_model_filepath = str(optimized)
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def power(errors):
    return sum(float((error.astype("f8") ** 2).sum()) for error in errors)


def check_results(path, level, optimized=None):
    runner = session(path, level, optimized)
    apart, cost, same, count = [], [], 0, 0
    for data in sorted(path.parent.glob(f"{path.stem}.*.x.npy")):
        stem = str(data)[: -len("x.npy")]
        wanted, floats = numpy.load(stem + "y.npy"), numpy.load(stem + "f.npy")
        (got,) = runner.run(["y"], {"x": numpy.load(data)})
        assert got.shape == wanted.shape and got.dtype == wanted.dtype, (data, got.shape, got.dtype)
        apart.append(got - wanted)
        cost.append(got - floats)
        same += int((numpy.abs(got - wanted) <= 1e-5 * numpy.abs(floats).max()).sum())
        count += got.size
    share = power(apart) / power(cost)
    assert share <= 0.2, f"{level}: apart by {share} of the error of quantization, {same} of {count} the same"
    return same, count


def check_model(path):
    onnx.checker.check_model(str(path), full_check=True)
    levels = onnxruntime.GraphOptimizationLevel
    plain = check_results(path, levels.ORT_DISABLE_ALL)
    optimized = path.with_suffix(".optimized")
    fused = check_results(path, levels.ORT_ENABLE_ALL, optimized)
    ops = [node.op_type for node in onnx.load(str(optimized)).graph.node]
    quantized = sum(op in FUSED for op in ops)
    assert quantized >= 1, f"nothing is fused: {ops}"
    return f"{path.stem}: plain {plain}, fused {fused}, {quantized} products of bytes in {sorted(set(ops))}"


models = sorted(pathlib.Path(sys.argv[1]).glob("*.onnx"))
assert models
for each in models:
    try:
        print(check_model(each))
    except Exception as error:
        raise SystemExit(f"{each.name}: {type(error).__name__}: {error}") from error
