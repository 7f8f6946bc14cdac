#!/usr/bin/env python3
"""Trains small models in PyTorch and writes their losses, step by step, as JSON.

The weights and the data come from one formula (`noise`, `weight_of`), which loss_table_test.cc has
too: nothing but numbers of the result is stored. The models, optimizers and schedules are
PyTorch's own, MobileNetV2 torchvision's. Run with a Python that has both (build/peers/bin/python):

    make_loss_tables.py [--out tests/nn/golden/loss_tables.json]
"""

import argparse
import json
import pathlib

import numpy as np
import torch
import torch.nn.functional as F
import torchvision

STEPS = 20
# Smallest magnitude of what enters a ReLU: nearer to zero, rounding to f32 may take the other side,
# and two correct programs part.
MARGIN = 5e-6
BATCHES = 4  # Step s trains on batch s % BATCHES.

TABLES = {
    "mlp": {
        "model": {"kind": "mlp", "hidden": [24, 16], "outputs": 4},
        "sample": {"x": [12], "batch": 32},
        "optimizer": {"kind": "sgd", "lr": 0.1, "momentum": 0.9, "weight_decay": 0.01, "clip": 0.0},
        "schedule": {"kind": "constant", "warmup": 3, "final_ratio": 0.1},
    },
    "cnn": {
        "model": {"kind": "cnn", "widths": [6, 8], "blocks": 1, "outputs": 4, "momentum": 0.1},
        "sample": {"x": [7, 6, 3], "batch": 16},
        "optimizer": {"kind": "adamw", "lr": 0.01, "beta1": 0.9, "beta2": 0.99, "eps": 1e-6,
                      "weight_decay": 0.05, "clip": 0.8},
        "schedule": {"kind": "cosine", "warmup": 4, "final_ratio": 0.1},
    },
    "resnet18": {
        "model": {"kind": "resnet18", "width": 3, "outputs": 4},
        "sample": {"x": [7, 6, 3], "batch": 12},
        "optimizer": {"kind": "adamw", "lr": 0.01, "beta1": 0.9, "beta2": 0.99, "eps": 1e-6,
                      "weight_decay": 0.05, "clip": 0.8},
        "schedule": {"kind": "constant", "warmup": 4, "final_ratio": 0.1},
        # So deep a net with so small batches parts in f32 within a few steps.
        "dtypes": ["f64"],
    },
    "mobilenetv2": {
        "model": {"kind": "mobilenetv2", "multiplier": 0.01, "outputs": 4},
        "sample": {"x": [9, 10, 3], "batch": 24},
        "optimizer": {"kind": "adamw", "lr": 0.005, "beta1": 0.9, "beta2": 0.99, "eps": 1e-6,
                      "weight_decay": 0.05, "clip": 0.8},
        "schedule": {"kind": "constant", "warmup": 2, "final_ratio": 0.1},
        "dtypes": ["f64"],
        "steps": 6,
    },
    "gpt": {
        "model": {"kind": "gpt", "vocab": 64, "context": 20, "layers": 2, "heads": 4, "width": 32},
        "sample": {"x": [16], "batch": 8},
        "optimizer": {"kind": "adamw", "lr": 0.02, "beta1": 0.9, "beta2": 0.95, "eps": 1e-6,
                      "weight_decay": 0.1, "clip": 1.0},
        "schedule": {"kind": "cosine", "warmup": 5, "final_ratio": 0.05},
    },
}


def noise(stream, count):
    """`count` numbers in [-1, 1): a hash of 32 bits of the stream and the place."""
    mask = np.uint64(0xFFFFFFFF)
    start = np.uint64(stream * 974711 + 1)
    h = (np.arange(count, dtype=np.uint64) * np.uint64(2654435761) + start) & mask
    for shift, factor in ((15, 2246822519), (13, 3266489917)):
        h = ((h ^ (h >> np.uint64(shift))) * np.uint64(factor)) & mask
    h ^= h >> np.uint64(16)
    return h.astype(np.float64) / 2.0**31 - 1.0


class Relu:
    """F.relu that remembers how near to zero it was called."""

    nearest = float("inf")

    @classmethod
    def call(cls, x):
        cls.nearest = min(cls.nearest, x.detach().abs().min().item())
        return F.relu(x)


class Weights:
    """Hands out the parameters in the order in which the model declares them."""

    def __init__(self, dtype):
        self.dtype, self.all = dtype, []

    def take(self, *shape, centre=0.0, move=None):
        """A parameter of Ridge's layout, moved to PyTorch's by `move`."""
        bound = np.sqrt(3.0 / np.prod(shape[:-1])) if len(shape) > 1 else 0.1
        values = noise(len(self.all), int(np.prod(shape))).reshape(shape) * bound + centre
        tensor = torch.tensor(values, dtype=self.dtype)
        parameter = torch.nn.Parameter((move(tensor) if move else tensor).contiguous())
        self.all.append(parameter)
        return parameter

    def linear(self, inputs, outputs):
        return self.take(inputs, outputs, move=lambda t: t.t()), self.take(outputs)

    def norm(self, channels):
        return self.take(channels, centre=1.0), self.take(channels)


class Mlp:
    def __init__(self, weights, model, x):
        sizes = [x[0], *model["hidden"], model["outputs"]]
        self.layers = [weights.linear(a, b) for a, b in zip(sizes, sizes[1:])]

    def __call__(self, x, training):
        for weight, bias in self.layers[:-1]:
            x = Relu.call(F.linear(x, weight, bias))
        return F.linear(x, *self.layers[-1])


class ConvNorm:
    def __init__(self, weights, inputs, outputs, kernel, stride, momentum):
        self.weight = weights.take(
            kernel, kernel, inputs, outputs, move=lambda t: t.permute(3, 2, 0, 1))
        self.scale, self.shift = weights.norm(outputs)
        self.mean = torch.zeros(outputs, dtype=weights.dtype)
        self.variance = torch.ones(outputs, dtype=weights.dtype)
        self.stride, self.padding, self.momentum = stride, kernel // 2, momentum

    def __call__(self, x, training):
        x = F.conv2d(x, self.weight, stride=self.stride, padding=self.padding)
        return F.batch_norm(x, self.mean, self.variance, self.scale, self.shift,
                            training=training, momentum=self.momentum)


class Block:
    def __init__(self, weights, inputs, outputs, stride, momentum):
        self.first = ConvNorm(weights, inputs, outputs, 3, stride, momentum)
        self.second = ConvNorm(weights, outputs, outputs, 3, 1, momentum)
        changes = stride != 1 or inputs != outputs
        self.shortcut = ConvNorm(weights, inputs, outputs, 1, stride, momentum) if changes else None

    def __call__(self, x, training):
        y = self.second(Relu.call(self.first(x, training)), training)
        return Relu.call(y + (self.shortcut(x, training) if self.shortcut else x))


class Cnn:
    def __init__(self, weights, model, x):
        widths, momentum = model["widths"], model["momentum"]
        self.stem = ConvNorm(weights, x[2], widths[0], 3, 1, momentum)
        self.blocks, inputs = [], widths[0]
        for stage, width in enumerate(widths):
            for block in range(model["blocks"]):
                stride = 2 if stage > 0 and block == 0 else 1
                self.blocks.append(Block(weights, inputs, width, stride, momentum))
                inputs = width
        self.head = weights.linear(inputs, model["outputs"])

    def __call__(self, x, training):
        x = Relu.call(self.stem(x.permute(0, 3, 1, 2), training))
        for block in self.blocks:
            x = block(x, training)
        return F.linear(x.mean(dim=(2, 3)), *self.head)


class ResNet18(Cnn):
    """Cnn of four widths and two blocks each is ResNet-18 with the stem for small images."""

    def __init__(self, weights, model, x):
        widths = [model["width"] << stage for stage in range(4)]
        super().__init__(weights, {**model, "widths": widths, "blocks": 2, "momentum": 0.1}, x)


class MobileNetV2:
    def __init__(self, weights, model, x):
        self.net = torchvision.models.mobilenet_v2(
            num_classes=model["outputs"], width_mult=model["multiplier"], dropout=0.0)
        self.net.to(weights.dtype)
        for module in self.net.modules():
            if isinstance(module, torch.nn.Conv2d):
                out, inputs, rows, columns = module.weight.shape
                module.weight = weights.take(
                    rows, columns, inputs, out, move=lambda t: t.permute(3, 2, 0, 1))
            elif isinstance(module, torch.nn.BatchNorm2d):
                module.weight, module.bias = weights.norm(module.num_features)
            elif isinstance(module, torch.nn.Linear):
                module.weight, module.bias = weights.linear(module.in_features, module.out_features)

    def __call__(self, x, training):
        return self.net.train(training)(x.permute(0, 3, 1, 2))


class Gpt:
    def __init__(self, weights, model, x):
        self.heads, width = model["heads"], model["width"]
        self.tokens = weights.take(model["vocab"], width)
        self.positions = weights.take(model["context"], width)
        self.blocks = [
            (weights.norm(width),
             weights.linear(width, 3 * width),
             weights.linear(width, width),
             weights.norm(width),
             weights.linear(width, 4 * width),
             weights.linear(4 * width, width))
            for _ in range(model["layers"])
        ]
        self.norm = weights.norm(width)

    def attend(self, x, qkv, out):
        batch, length, width = x.shape
        q, k, v = (
            part.view(batch, length, self.heads, -1).transpose(1, 2)
            for part in F.linear(x, *qkv).split(width, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return F.linear(y.transpose(1, 2).reshape(x.shape), *out)

    def __call__(self, x, training):
        h = F.embedding(x, self.tokens) + self.positions[: x.shape[1]]
        width = h.shape[2:]
        for norm1, qkv, out, norm2, up, down in self.blocks:
            h = h + self.attend(F.layer_norm(h, width, *norm1), qkv, out)
            m = F.linear(F.layer_norm(h, width, *norm2), *up)
            h = h + F.linear(F.gelu(m, approximate="tanh"), *down)
        return F.linear(F.layer_norm(h, width, *self.norm), self.tokens)


MODELS = {"mlp": Mlp, "cnn": Cnn, "resnet18": ResNet18, "mobilenetv2": MobileNetV2, "gpt": Gpt}


def batch_of(table, index, dtype):
    """x and y of a batch: what they are is written at each model."""
    shape = [table["sample"]["batch"], *table["sample"]["x"]]
    values = noise(table["sample"]["stream"] + index, int(np.prod(shape))).reshape(shape)
    kind = table["model"]["kind"]
    if kind == "gpt":  # Every token decides the next; every seventh target does not count.
        x = np.floor((values + 1.0) * 32.0).astype(np.int64)
        y = (x * 5 + 3) % 64
        y.reshape(-1)[3::7] = -100
        return torch.tensor(x), torch.tensor(y)
    labels = np.arange(shape[0]) % 4
    if kind == "mlp":  # The label's feature is larger by 1.
        values[np.arange(shape[0]), labels] += 1.0
    else:  # One quadrant of the image is brighter by 1.
        for sample, label in enumerate(labels):
            row, column = (label // 2) * 3, (label % 2) * 3
            values[sample, row : row + 3, column : column + 3, :] += 1.0
    return torch.tensor(values, dtype=dtype), torch.tensor(labels)


def make_optimizer(options, parameters):
    decay = options["weight_decay"]
    groups = [
        {"params": [p for p in parameters if p.dim() >= 2], "weight_decay": decay},
        {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
    ]
    if options["kind"] == "sgd":
        return torch.optim.SGD(groups, lr=options["lr"], momentum=options["momentum"])
    return torch.optim.AdamW(groups, lr=options["lr"], betas=(options["beta1"], options["beta2"]),
                             eps=options["eps"])


def make_scheduler(options, optimizer):
    schedulers = torch.optim.lr_scheduler
    warmup = options["warmup"]
    rise = schedulers.LinearLR(optimizer, start_factor=1.0 / warmup, total_iters=warmup - 1)
    if options["kind"] == "constant":
        return rise
    lowest = optimizer.param_groups[0]["initial_lr"] * options["final_ratio"]
    fall = schedulers.CosineAnnealingLR(optimizer, T_max=STEPS - 1 - warmup, eta_min=lowest)
    return schedulers.SequentialLR(optimizer, [rise, fall], milestones=[warmup])


def train(table, dtype):
    weights = Weights(dtype)
    model = MODELS[table["model"]["kind"]](weights, table["model"], table["sample"]["x"])
    optimizer = make_optimizer(table["optimizer"], weights.all)
    scheduler = make_scheduler(table["schedule"], optimizer)
    rows = {"loss": [], "grad_norm": [], "lr": []}

    def loss_of(index, training):
        x, y = batch_of(table, index, dtype)
        logits = model(x, training)
        return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), y.reshape(-1)), logits, y

    for step in range(table.get("steps", STEPS)):
        loss, _, _ = loss_of(step % BATCHES, True)
        optimizer.zero_grad()
        loss.backward()
        clip = table["optimizer"]["clip"] or float("inf")
        norm = torch.nn.utils.clip_grad_norm_(weights.all, clip)
        rows["lr"].append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
        rows["loss"].append(loss.item())
        rows["grad_norm"].append(norm.item())
    with torch.no_grad():
        loss, logits, y = loss_of(BATCHES, False)
        rows["eval_loss"] = loss.item()
        rows["eval_correct"] = int((logits.argmax(dim=-1) == y).sum())
    return rows


def choose_stream(table):
    """The first stream of data on which no ReLU is called too near to zero."""
    for stream in range(1000, 10000, 100):
        table["sample"]["stream"] = stream
        Relu.nearest = float("inf")
        rows = train(table, torch.float64)
        if Relu.nearest > MARGIN:
            return rows
    raise SystemExit("no stream of data keeps away from the kinks")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    here = pathlib.Path(__file__).resolve().parent
    parser.add_argument("--out", type=pathlib.Path, default=here / "loss_tables.json")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    tables = {"torch": torch.__version__, "steps": STEPS, "batches": BATCHES, "tables": {}}
    for name, table in TABLES.items():
        results = {"f64": choose_stream(table)}
        if "f32" in table.get("dtypes", ["f32"]):
            results["f32"] = train(table, torch.float32)
        tables["tables"][name] = {**table, **results}
    arguments.out.write_text(json.dumps(tables, indent=1) + "\n")


if __name__ == "__main__":
    main()
