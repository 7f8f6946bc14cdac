"""Holds each NAME.onnx of a folder against onnx.checker and onnx's own rules of shapes, and Ridge's results
against those of ONNX Runtime, with its optimizations and without.

NAME.I.x.npy is an input, NAME.I.y.npy the result of Ridge, NAME.I.f.npy that of the model in floats. Every result
is the same but for the rounding of sums of floats. Where the processor has no VNNI, ONNX Runtime's products of bytes
saturate, as its documentation says: there the files are compared that it computes in floats.

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


def has_vnni():
    flags = pathlib.Path("/proc/cpuinfo").read_text()
    return "avx512_vnni" in flags or "avx_vnni" in flags


def check_results(path, level):
    runner = session(path, level)
    count = 0
    for data in sorted(path.parent.glob(f"{path.stem}.*.x.npy")):
        stem = str(data)[: -len("x.npy")]
        wanted, floats = numpy.load(stem + "y.npy"), numpy.load(stem + "f.npy")
        (got,) = runner.run(["y"], {"x": numpy.load(data)})
        assert got.shape == wanted.shape and got.dtype == wanted.dtype, (data, got.shape, got.dtype)
        apart = numpy.abs(got - wanted).max() / numpy.abs(floats).max()
        assert apart <= 1e-5, f"{level}, {data.name}: apart by {apart} of the largest result"
        count += got.size
    return count


def check_model(path):
    onnx.checker.check_model(str(path), full_check=True)
    levels = onnxruntime.GraphOptimizationLevel
    in_floats = "static" in path.stem
    plain = check_results(path, levels.ORT_DISABLE_ALL) if in_floats or has_vnni() else 0
    optimized = path.with_suffix(".optimized")
    session(path, levels.ORT_ENABLE_ALL, optimized)
    fused = check_results(path, levels.ORT_ENABLE_ALL) if has_vnni() else 0
    ops = [node.op_type for node in onnx.load(str(optimized)).graph.node]
    quantized = sum(op in FUSED for op in ops)
    assert quantized >= 1, f"nothing is fused: {ops}"
    return f"{path.stem}: the same {plain} plain and {fused} fused, {quantized} products of bytes in {sorted(set(ops))}"


models = sorted(pathlib.Path(sys.argv[1]).glob("*.onnx"))
assert models
for each in models:
    try:
        print(check_model(each))
    except Exception as error:
        raise SystemExit(f"{each.name}: {type(error).__name__}: {error}") from error
