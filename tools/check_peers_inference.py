"""Shows that the peers in build/peers-inference work on this machine; run with that environment's Python."""

import os
import tempfile

os.environ.setdefault("NNCF_CI", "1")  # it sends no statistics

import nncf
import numpy as np
import onnx
import onnxruntime
import openvino
from onnxruntime import quantization

FLOAT = onnx.TensorProto.FLOAT


def write_layer(path):
    """y = x w, of rows of 8 numbers; w is returned."""
    value = onnx.helper.make_tensor_value_info
    w = np.random.default_rng(0).standard_normal((8, 8)).astype(np.float32)
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("MatMul", ["x", "w"], ["y"])],
        "layer",
        [value("x", FLOAT, ["N", 8])],
        [value("y", FLOAT, ["N", 8])],
        [onnx.numpy_helper.from_array(w, "w")],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)])
    model.ir_version = 8
    onnx.save(model, path)
    return w


class Reader(quantization.CalibrationDataReader):
    def __init__(self, x):
        self.rows = iter([{"x": x}])

    def get_next(self):
        return next(self.rows, None)


def check_near(y, wanted):
    assert np.abs(y - wanted).max() < 0.05 * np.abs(wanted).max(), (y, wanted)


with tempfile.TemporaryDirectory() as folder:
    file = f"{folder}/layer.onnx"
    w = write_layer(file)
    x = np.random.default_rng(1).standard_normal((16, 8)).astype(np.float32)
    quantization.quantize_static(file, f"{folder}/static.onnx", Reader(x))
    session = onnxruntime.InferenceSession(f"{folder}/static.onnx", providers=["CPUExecutionProvider"])
    check_near(session.run(None, {"x": x})[0], x @ w)
    model = nncf.quantize(openvino.Core().read_model(file), nncf.Dataset([{"x": x}]), subset_size=1)
    check_near(openvino.compile_model(model, "CPU")({"x": x})[0], x @ w)
for module in (onnx, onnxruntime, openvino, nncf):
    print(module.__name__, module.__version__)
