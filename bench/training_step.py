#!/usr/bin/env python3
"""Training steps of Ridge and PyTorch (eager and torch.compile) in turn, on the same work.

Every round runs a stretch of steps of each; the ratio is of the medians over the rounds, with the
interval that order statistics give. PyTorch has its fused AdamW, its fused attention, zero_grad with
set_to_none and as many threads; all start from the same parameters, and their batches, the same
ones, lie ready in memory.

Usage: build/peers/bin/python bench/training_step.py [--threads N] [--rounds N] [--stretch SECONDS]
           [--no-compile] [--json FILE] [CONFIG...]
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
import tomllib

import torch
import torch.nn.functional as F
import torchvision
from torch import nn

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAM = ROOT / "build" / "release" / "bench" / "bench_training_step"


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        # In the order in which Ridge has its parameters.
        self.norm1 = nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, c))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self, m):
        super().__init__()
        self.tokens = nn.Embedding(m["vocab"], m["width"])
        self.positions = nn.Embedding(m["context"], m["width"])
        self.blocks = nn.ModuleList(Block(m["width"], m["heads"]) for _ in range(m["layers"]))
        self.norm = nn.LayerNorm(m["width"])

    def forward(self, ids):
        x = self.tokens(ids) + self.positions.weight[: ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.norm(x) @ self.tokens.weight.T


def make_mlp(m, inputs):
    layers, width = [], inputs
    for hidden in m["hidden"]:
        layers += [nn.Linear(width, hidden), nn.ReLU()]
        width = hidden
    return nn.Sequential(*layers, nn.Linear(width, m["outputs"]))


def make_image_model(m):
    if m["kind"] == "mobilenetv2":
        model = torchvision.models.mobilenet_v2(num_classes=m["outputs"], dropout=m["dropout"])
    else:
        model = torchvision.models.resnet18(num_classes=m["outputs"])
        model.conv1, model.maxpool = nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.Identity()
    return model.to(memory_format=torch.channels_last)


def read_safetensors(path):
    """All tensors of a file by name."""
    dtypes = {"F32": torch.float32, "I64": torch.int64, "I32": torch.int32, "U8": torch.uint8}
    raw = bytearray(path.read_bytes())
    size = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + size])
    tensors = {}
    for name, about in header.items():
        if name == "__metadata__":
            continue
        begin, end = (8 + size + at for at in about["data_offsets"])
        flat = torch.frombuffer(memoryview(raw)[begin:end], dtype=dtypes[about["dtype"]])
        tensors[name] = flat.reshape(about["shape"]).clone()
    return tensors


def give_parameters(model, tensors, names):
    """Ridge has them in the same order: linear weights as (in, out), filters as (h, w, in, out)."""
    own = list(model.named_parameters())
    assert len(own) == len(names), f"{len(own)} parameters, but Ridge has {len(names)}"
    tables = {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding)}
    for (name, parameter), theirs in zip(own, names):
        value = tensors[theirs]
        if parameter.dim() == 4:
            value = value.permute(3, 2, 0, 1)
        elif parameter.dim() == 2 and id(parameter) not in tables:
            value = value.T
        assert parameter.shape == value.shape, f"{name} {parameter.shape}, {theirs} {value.shape}"
        with torch.no_grad():
            parameter.copy_(value)


class Peer:
    """Training steps of PyTorch from the parameters and on the batches that Ridge has."""

    def __init__(self, config, compiled, ridge, dtype=torch.float32):
        model = config["model"]
        batches = read_safetensors(ridge.folder / "batches.safetensors")
        count = len(batches) // 2
        self.x, self.y = ([batches[f"{field}{i}"] for i in range(count)] for field in "xy")
        self.y = [y.long() for y in self.y]
        if model["kind"] == "gpt":
            self.model = Gpt(model)
            self.x = [x.long() for x in self.x]
        elif model["kind"] in ("resnet18", "mobilenetv2"):
            self.model = make_image_model(model)
            # Channels last, as the model: images lie as (height, width, channels).
            self.x = [x.permute(0, 3, 1, 2) for x in self.x]
        else:
            self.model = make_mlp(model, config["data"]["shape"][0])
        give_parameters(
            self.model,
            read_safetensors(ridge.folder / "parameters.safetensors"),
            ridge.about["parameters"],
        )
        if dtype != torch.float32:
            self.model = self.model.to(dtype)
            self.x = [x.to(dtype) if x.is_floating_point() else x for x in self.x]
        self.run_model = torch.compile(self.model) if compiled else self.model
        o = config["optimizer"]
        self.clip = o["clip"]
        # As in Ridge, weights decay; biases and norms do not.
        parameters = list(self.model.parameters())
        groups = [
            {"params": [p for p in parameters if p.dim() >= 2]},
            {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
        ]
        self.optimizer = torch.optim.AdamW(groups, lr=float(o["lr"]), fused=True)
        self.at = 0

    def steps(self, count):
        start = time.perf_counter()
        for _ in range(count):
            x, y = self.x[self.at % len(self.x)], self.y[self.at % len(self.x)]
            self.at += 1
            logits = self.run_model(x)
            loss = F.cross_entropy(logits.flatten(0, -2), y.flatten())
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            self.clip_gradients()
            self.optimizer.step()
        self.loss = loss
        return time.perf_counter() - start

    def clip_gradients(self):
        nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)


class Ridge:
    def __init__(self, path, threads):
        self.kept = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self.kept.name)
        self.process = subprocess.Popen(
            [str(PROGRAM), str(path), str(threads), self.kept.name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.about = json.loads(self.process.stdout.readline())

    def steps(self, count):
        self.process.stdin.write(f"{count}\n")
        self.process.stdin.flush()
        self.last = json.loads(self.process.stdout.readline())
        return self.last["seconds"]

    def close(self):
        self.process.stdin.close()
        self.process.wait()
        self.kept.cleanup()


def interval(values):
    """About 95 % for the median, by order statistics (normal approximation)."""
    values, n = sorted(values), len(values)
    k = max(0, int((n - 1.96 * n**0.5) / 2))
    return values[k], values[n - 1 - k]


def measure(path, arguments):
    config = tomllib.loads(path.read_text())
    ridge = Ridge(path, arguments.threads)
    runs = {"ridge": ridge, "eager": Peer(config, False, ridge)}
    if not arguments.no_compile:
        runs["compile"] = Peer(config, True, ridge)
    counts = {}
    for name, run in runs.items():
        run.steps(3)
        seconds = run.steps(2) / 2
        counts[name] = max(1, round(arguments.stretch / seconds))
    times = {name: [] for name in runs}
    for _ in range(arguments.rounds):
        for name, run in runs.items():
            times[name].append(run.steps(counts[name]) / counts[name])
    runs["ridge"].close()
    medians = {name: statistics.median(values) for name, values in times.items()}
    best = min((n for n in medians if n != "ridge"), key=lambda n: medians[n])
    ratios = [peer / own for peer, own in zip(times[best], times["ridge"])]
    low, high = interval(ratios)
    return {
        "config": path.stem,
        "threads": arguments.threads,
        "step_ms": {name: 1e3 * value for name, value in medians.items()},
        "best_peer": best,
        "ratio": statistics.median(ratios),
        "interval": [low, high],
        "rounds": arguments.rounds,
        "planned_bytes": runs["ridge"].about["planned"],
        "measured_bytes": runs["ridge"].last["measured"],
        "state_bytes": runs["ridge"].about["state"],
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--stretch", type=float, default=1.0, help="seconds of steps at a time")
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("configs", nargs="*", type=pathlib.Path)
    arguments = parser.parse_args()
    if not PROGRAM.exists():
        sys.exit("training_step.py: build/release/bench/bench_training_step is missing; ./dev bench builds it")
    torch.set_num_threads(arguments.threads)
    torch.set_float32_matmul_precision("highest")
    configs = arguments.configs or sorted((ROOT / "bench" / "configs").glob("*.toml"))
    results = []
    print(f"torch {torch.__version__}, {arguments.threads} threads; step times in ms, ratio to the better peer")
    print(f"{'workload':18} {'ridge':>9} {'eager':>9} {'compile':>9} {'ratio':>7}  interval")
    for path in configs:
        r = measure(path, arguments)
        results.append(r)
        ms = r["step_ms"]
        print(
            f"{r['config']:18} {ms['ridge']:9.2f} {ms['eager']:9.2f} {ms.get('compile', float('nan')):9.2f}"
            f" {r['ratio']:7.2f}  {r['interval'][0]:.2f} to {r['interval'][1]:.2f}",
            flush=True,
        )
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps({"torch": torch.__version__, "results": results}, indent=1))


if __name__ == "__main__":
    main()
