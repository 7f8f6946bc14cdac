#!/usr/bin/env python3
"""What INT8 costs in accuracy on models that are trained here, by the same engines as quantized.py.

ResNet-18 and MobileNetV2 learn Fashion-MNIST, whose 10,000 test images measure them; the GPT of
examples/pytorch/char_gpt.py learns characters of Python's standard library, and is measured by the perplexity on the
last twentieth of the text, which it has not seen. The tools quantize on samples of the training set. Models are
trained once, in some minutes each, and stay in build/quantized_accuracy with their files.

The line is held where Ridge's own INT8 loses at most 0.3 points against Ridge in f32 (MobileNetV2 0.5) and 1 % of
perplexity.

Usage: PYTHONPATH=SITE build/peers/bin/python bench/quantized_accuracy.py [--models NAME,...] [--data FOLDER]
           [--epochs N] [--steps N] [--compile BACKEND] [--engines NAME,...]
           [--ridge PROGRAM] [--out FILE]
"""

import argparse
import contextlib
import copy
import dataclasses
import json
import pathlib
import sys
import time
import warnings
from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
import torchvision
from torch import nn

from quantized_engines import (
    ENGINES, PROGRAM, ROOT, Failed, check_peers, instruction_set, peer_of, predict, quantize,
)

sys.path.insert(0, str(ROOT / "examples" / "pytorch"))
import char_gpt  # noqa: E402
import fashion_cnn  # noqa: E402

SEED = 20261128
IMAGES, BATCH = 256, 128  # of calibration, of training
LENGTH, TEXTS, CALIBRATION_TEXTS, UNSEEN_SHARE = 128, 512, 64, 0.05
FOLDER = ROOT / "build" / "quantized_accuracy"


def resnet18():
    """Its stem keeps 14 by 14 pixels of 28 by 28."""
    model = torchvision.models.resnet18(num_classes=10)
    model.conv1 = nn.Conv2d(1, 64, 7, stride=2, padding=3, bias=False)
    model.maxpool = nn.Identity()
    return model


def mobilenet_v2():
    """Its stem keeps all pixels."""
    model = torchvision.models.mobilenet_v2(num_classes=10)
    model.features[0][0] = nn.Conv2d(1, 32, 3, padding=1, bias=False)
    return model


@dataclasses.dataclass
class Task:
    build: Callable     # the module
    draw: Callable      # inputs and targets of a step of training
    steps: int
    rate: float         # the largest learning rate
    calibration: np.ndarray
    inputs: np.ndarray
    targets: np.ndarray
    batch: int          # of the measurement
    most: float         # what INT8 may lose: points of accuracy, or a share of perplexity
    transformer: str = ""  # of quantized_files.py


def pictures_task(build, options, most):
    def read(name):
        folder = pathlib.Path(options.data)
        pixels = fashion_cnn.read_idx(folder / f"{name}-images-idx3-ubyte.gz").astype(np.float32)
        labels = fashion_cnn.read_idx(folder / f"{name}-labels-idx1-ubyte.gz").astype(np.int64)
        return ((pixels / 255 - 0.286) / 0.353)[:, None], labels

    (images, labels), (inputs, targets) = read("train"), read("t10k")
    x, y = torch.from_numpy(images), torch.from_numpy(labels)
    order = torch.Generator().manual_seed(SEED)
    state = {"left": torch.empty(0, dtype=torch.int64)}

    def draw():
        if len(state["left"]) < BATCH:
            state["left"] = torch.randperm(len(x), generator=order)
        now, state["left"] = state["left"][:BATCH], state["left"][BATCH:]
        return x[now].contiguous(memory_format=torch.channels_last), y[now]

    steps = options.epochs * (len(x) // BATCH)
    return Task(build, draw, steps, 3e-3, images[:IMAGES], inputs, targets, 100, most)


def text_task(options, most):
    text = char_gpt.corpus(None)
    letters = sorted(set(text))
    number = {letter: i for i, letter in enumerate(letters)}
    data = torch.tensor([number[letter] for letter in text])
    seen = data[:int(len(data) * (1 - UNSEEN_SHARE))]
    unseen = data[len(seen):]
    order = torch.Generator().manual_seed(SEED)

    def windows(of, starts):
        return torch.stack([of[i:i + LENGTH] for i in starts]), torch.stack([of[i + 1:i + LENGTH + 1] for i in starts])

    def draw():
        return windows(seen, torch.randint(len(seen) - LENGTH - 1, (16,), generator=order))

    def spread(of, count):
        step = (len(of) - LENGTH - 1) // count
        return windows(of, range(0, count * step, step))

    inputs, targets = spread(unseen, TEXTS)
    calibration, _ = spread(seen, CALIBRATION_TEXTS)
    return Task(lambda: char_gpt.Gpt(len(letters), LENGTH), draw, options.steps, 1e-3, calibration.numpy(),
                inputs.numpy(), targets.numpy(), 32, most, "gpt2,4,128")


MODELS = {
    "resnet18": lambda options: pictures_task(resnet18, options, 0.3),
    "mobilenet_v2": lambda options: pictures_task(mobilenet_v2, options, 0.5),
    "gpt": lambda options: text_task(options, 0.01),
}


def has_fast_bf16():
    return "amx_bf16" in pathlib.Path("/proc/cpuinfo").read_text()


def train(task, options):
    """The trained module in eval(); products run in bf16 where the processor is faster by it."""
    torch.manual_seed(SEED)
    model = task.build()
    is_image = not task.transformer
    if is_image:
        model = model.to(memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters(), lr=task.rate, weight_decay=0.01, fused=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, task.rate, total_steps=task.steps)
    run = torch.compile(model, backend=options.compile, dynamic=False) if options.compile else model
    start = time.monotonic()
    for step in range(task.steps):
        x, y = task.draw()
        with torch.autocast("cpu", torch.bfloat16, enabled=is_image and has_fast_bf16()):
            output = run(x)
        loss = F.cross_entropy(output.float().flatten(0, -2), y.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 100 == 0:
            print(f"step {step} of {task.steps}: loss {loss.item():.4f}, {time.monotonic() - start:.0f} s", flush=True)
    return model.eval().to(memory_format=torch.contiguous_format)


def exported(name, task, options):
    """The path of the trained model in f32."""
    folder = FOLDER / name
    path = folder / "model.onnx"
    if path.exists():
        return path
    model = train(task, options)
    folder.mkdir(parents=True, exist_ok=True)
    torch.save(model.state_dict(), folder / "model.pt")
    with contextlib.redirect_stdout(sys.stderr), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(copy.deepcopy(model), (torch.from_numpy(task.inputs[:2]),), str(folder / "model.part"),
                          input_names=["x"], output_names=["y"], dynamo=False, opset_version=17,
                          dynamic_axes={"x": {0: "N"}, "y": {0: "N"}})
    (folder / "model.part").rename(path)
    return path


def accuracy(logits, targets):
    """Percent."""
    return 100 * float(np.mean(logits.argmax(-1) == targets))


def perplexity(logits, targets):
    logits = logits.astype(np.float64)
    most = logits.max(-1, keepdims=True)
    norms = most[..., 0] + np.log(np.exp(logits - most).sum(-1))
    return float(np.exp(np.mean(norms - np.take_along_axis(logits, targets[..., None], -1)[..., 0])))


def study(name, options):
    """The rows of a model: what each engine gives, and what it loses against its own f32."""
    task = MODELS[name](options)
    model = exported(name, task, options)
    folder = model.parent
    np.savez(folder / "calibration.npz", x=task.calibration)
    np.savez(folder / "inputs.npz", x=task.inputs)
    failed = quantize(model, folder / "calibration.npz", folder, options.ridge, task.transformer)
    is_image = not task.transformer
    measure = accuracy if is_image else perplexity
    values, rows = {}, []
    for engine in options.engines.split(","):
        runtime, file = ENGINES[engine]
        row = {"model": name, "engine": engine, "measure": measure.__name__}
        rows.append(row)
        try:
            if file in failed:
                raise Failed(failed[file])
            if file != "model" and not (folder / file).exists():
                rows.pop()
                continue
            logits = predict(runtime, model if file == "model" else folder / file, options.threads,
                             folder / "inputs.npz", task.batch)
        except Failed as error:
            row["error"] = str(error)
            continue
        values[engine] = row["value"] = measure(logits, task.targets)
        base = values.get(f"{peer_of(engine)} f32")
        if base is not None:
            row["loss"] = base - row["value"] if is_image else row["value"] / base - 1
            row["held"] = row["loss"] <= task.most
    return rows


def text_of(row):
    head = f"{row['model']:14}{row['engine']:34}"
    if "error" in row:
        return f"{head}missing: {row['error']}"
    is_image = row["measure"] == "accuracy"
    value = f"{row['value']:.2f} %" if is_image else f"{row['value']:.4f}"
    if "loss" not in row or row["engine"].endswith("f32"):
        return f"{head}{value}"
    loss = f"{row['loss']:+.2f} points" if is_image else f"{100 * row['loss']:+.2f} %"
    return f"{head}{value:10} loses {loss}" + ("" if row["held"] else ", NOT HELD")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--data", default="/usr/share/datasets/fashion-mnist")
    parser.add_argument("--epochs", type=int, default=3, help="of Fashion-MNIST")
    parser.add_argument("--steps", type=int, default=2000, help="of the GPT")
    parser.add_argument("--compile", default="", help="the backend of torch.compile for the training")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--engines", default=",".join(ENGINES), help="those of f32 stand before their peer's others")
    parser.add_argument("--ridge", default=PROGRAM, help="the program that quantizes")
    parser.add_argument("--out", type=pathlib.Path)
    options = parser.parse_args()
    names = options.models.split(",")
    if unknown := [name for name in names if name not in MODELS]:
        parser.error(f"there is no {unknown[0]!r}; there are {', '.join(MODELS)}")
    if unknown := [name for name in options.engines.split(",") if name not in ENGINES]:
        parser.error(f"there is no engine {unknown[0]!r}; there are {', '.join(ENGINES)}")
    check_peers()
    torch.set_num_threads(options.threads)
    rows = []
    for name in names:
        found = study(name, options)
        rows += found
        print("\n".join(map(text_of, found)), flush=True)
        if options.out:
            options.out.parent.mkdir(parents=True, exist_ok=True)
            document = {"schema": "ridge.quantized_accuracy/1", "instructions": instruction_set(), "results": rows}
            options.out.write_text(json.dumps(document, indent=1) + "\n")
    own = [row for row in rows if row["engine"] == "ridge int8"]
    is_held = bool(own) and all(row.get("held", False) for row in own)
    print(f"quantized_accuracy: Ridge's INT8 is {'held' if is_held else 'NOT held'}")
    return 0 if is_held else 1


if __name__ == "__main__":
    sys.exit(main())
