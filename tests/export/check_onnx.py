"""Holds each NAME.onnx of a folder against onnx.checker, and ONNX Runtime's results for NAME-I.x.npy
against NAME-I.logits.npy.

Usage: check_onnx.py FOLDER
"""

import json
import pathlib
import sys

import numpy
import onnx
import onnxruntime

onnxruntime.set_default_logger_severity(3)
TOLERANCE = 1e-4  # of the largest result


def check_model(path):
    onnx.checker.check_model(str(path), full_check=True)
    model = onnx.load(str(path))
    assert model.producer_name == "ridge", model.producer_name
    assert json.loads({p.key: p.value for p in model.metadata_props}["classes"]) == ["a"]
    assert model.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "B"
    assert model.graph.output[0].type.tensor_type.shape.dim[0].dim_param == "B"
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    for data in sorted(path.parent.glob(f"{path.stem}-*.x.npy")):
        wanted = numpy.load(str(data).replace(".x.npy", ".logits.npy"))
        (got,) = session.run(["logits"], {"x": numpy.load(data)})
        assert got.shape == wanted.shape and got.dtype == wanted.dtype, (data, got.shape, got.dtype)
        error = numpy.abs(got - wanted).max() / numpy.abs(wanted).max()
        assert error <= TOLERANCE, f"{data}: off by {error}"


models = sorted(pathlib.Path(sys.argv[1]).glob("*.onnx"))
assert models
for each in models:
    try:
        check_model(each)
    except Exception as error:
        raise SystemExit(f"{each.name}: {type(error).__name__}: {error}") from error
