"""Shows that the peers in build/peers work on this machine; run with that environment's Python."""

import tempfile

import hta.trace_analysis  # noqa: F401
import numpy
import onnx
import onnxruntime
import torch
import torchvision


def check_torch():
    left = torch.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    right = torch.tensor([[5.0, 6.0], [7.0, 8.0]])
    product = left @ right
    assert product.tolist() == [[19.0, 22.0], [43.0, 50.0]]
    product.sum().backward()
    assert left.grad.tolist() == [[11.0, 15.0], [11.0, 15.0]]
    x = torch.linspace(-2.0, 2.0, 100)
    compiled = torch.compile(lambda x: torch.tanh(x) * 2 + x.exp())
    torch.testing.assert_close(compiled(x), torch.tanh(x) * 2 + x.exp())
    assert torchvision.models.resnet18().eval()(torch.zeros(1, 3, 32, 32)).shape == (1, 1000)


def check_onnx():
    value = onnx.helper.make_tensor_value_info
    node = onnx.helper.make_node("Add", ["x", "x"], ["y"])
    kind = onnx.TensorProto.FLOAT
    graph = onnx.helper.make_graph([node], "g", [value("x", kind, [3])], [value("y", kind, [3])])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)])
    model.ir_version = 8
    onnx.checker.check_model(model)
    with tempfile.NamedTemporaryFile(suffix=".onnx") as file:
        onnx.save(model, file.name)
        session = onnxruntime.InferenceSession(file.name, providers=["CPUExecutionProvider"])
        (y,) = session.run(None, {"x": numpy.array([1, 2, 3], numpy.float32)})
    assert y.tolist() == [2.0, 4.0, 6.0]


check_torch()
check_onnx()
print(torch.__version__, torchvision.__version__, onnx.__version__, onnxruntime.__version__)
