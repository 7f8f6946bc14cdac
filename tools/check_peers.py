"""Shows that the peers in build/peers work on this machine; run with that environment's Python."""

import tempfile

import accelerate
import hta.trace_analysis  # noqa: F401
import lightning
import numpy
import onnx
import onnxruntime
import onnxscript
import torch
import torchvision
import transformers


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


class Line(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)

    def forward(self, x, labels):
        return {"loss": ((self.layer(x) - labels) ** 2).mean()}

    def training_step(self, sample, _):
        return self(**sample)["loss"]

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def check_trainers():
    samples = [{"x": torch.tensor([x]), "labels": torch.tensor([2 * x])} for x in (1.0, 2.0)]

    def check(train):
        model = Line()
        before = model.layer.weight.item()
        train(model)
        assert model.layer.weight.item() != before

    def by_lightning(model):
        trainer = lightning.Trainer(
            max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False,
            enable_progress_bar=False, enable_model_summary=False,
        )
        trainer.fit(model, torch.utils.data.DataLoader(samples))

    def by_accelerate(model):
        accelerator = accelerate.Accelerator(cpu=True)
        model, optimizer = accelerator.prepare(model, model.configure_optimizers())
        accelerator.backward(model(**samples[0])["loss"])
        optimizer.step()

    def by_transformers(model):
        with tempfile.TemporaryDirectory() as folder:
            arguments = transformers.TrainingArguments(
                folder, use_cpu=True, max_steps=1, report_to="none", disable_tqdm=True
            )
            transformers.Trainer(model, arguments, train_dataset=samples).train()

    for train in (by_lightning, by_accelerate, by_transformers):
        check(train)


check_torch()
check_onnx()
check_trainers()
for module in (torch, torchvision, onnx, onnxruntime, onnxscript, lightning, accelerate, transformers):
    print(module.__name__, module.__version__)
