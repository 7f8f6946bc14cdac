#!/usr/bin/env python3
"""Training steps of Ridge and PyTorch (eager and torch.compile) in turn, on the same work.

Every round runs a stretch of steps of each; the ratio is of the medians over the rounds, with the
interval that order statistics give. PyTorch has its fused AdamW, its fused attention, zero_grad with
set_to_none, as many threads, and autocast where the configuration says bf16; all start from the same
parameters, and their batches, the same ones, lie ready in memory (a GPU's own for PyTorch; Ridge
copies each to it).

Usage: build/peers/bin/python bench/training_step.py [--device cpu|cuda] [--threads N] [--rounds N]
           [--stretch SECONDS] [--no-compile] [--json FILE] [CONFIG...]

A model's FLOP/s utilisation counts 6 N + 12 L T C operations a token, of a GPT with N parameters (a
tied head once), L layers, T tokens and width C, over the peak of dense bf16 that the maker gives.
"""

import argparse
import contextlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
import tomllib

import torch
import torch.nn.functional as F
from torch import nn

ROOT = pathlib.Path(__file__).resolve().parent.parent

# Dense bf16, as the data sheets give it, by what the driver calls the GPU.
PEAK_FLOPS = {
    "NVIDIA H200": 989.4e12,
    "NVIDIA H100 80GB HBM3": 989.4e12,
    "NVIDIA A100-SXM4-80GB": 312e12,
    "NVIDIA A100-SXM4-40GB": 312e12,
}


def find_program(name):
    """Of a bundle (bin/), or of the build."""
    bundled = ROOT / "bin" / name
    return bundled if bundled.exists() else ROOT / "build" / "release" / "bench" / name


PROGRAM = find_program("bench_training_step")


def wait_for(device):
    if device != "cpu":
        torch.cuda.synchronize()


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
    import torchvision  # a GPU machine may have torch alone

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

    def __init__(self, config, compiled, ridge, dtype=torch.float32, device="cpu"):
        model = config["model"]
        self.device = device
        low = {"bf16": torch.bfloat16, "fp16": torch.float16}
        self.low = low.get(config["train"].get("precision", "f32"))
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
        self.model = self.model.to(device)
        self.x, self.y = ([each.to(device) for each in field] for field in (self.x, self.y))
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

    def rounded(self):
        if self.low is None:
            return contextlib.nullcontext()
        return torch.autocast(self.device.split(":")[0], dtype=self.low)

    def steps(self, count):
        wait_for(self.device)
        start = time.perf_counter()
        for _ in range(count):
            x, y = self.x[self.at % len(self.x)], self.y[self.at % len(self.x)]
            self.at += 1
            with self.rounded():
                logits = self.run_model(x)
                loss = F.cross_entropy(logits.flatten(0, -2), y.flatten())
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            self.clip_gradients()
            self.optimizer.step()
        self.loss = loss
        wait_for(self.device)
        return time.perf_counter() - start

    def clip_gradients(self):
        nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)


class Refused(Exception):
    """What a program of Ridge says when it cannot run, in its own words, and its exit code."""

    def __init__(self, words, code):
        super().__init__(words)
        self.code = code

    def row(self):
        return {"refused": str(self), "exit_code": self.code}


class OnDemand:
    """A program that describes itself in a line, and then answers a line for each line."""

    def __init__(self, words, kept=None):
        self.kept = kept or tempfile.TemporaryDirectory()
        self.err = open(pathlib.Path(self.kept.name) / "stderr", "w+")  # noqa: SIM115
        # In a bundle the plugin lies beside the program.
        plugin = ROOT / "build" / "release" / "libridge_cuda.so"
        environment = {"RIDGE_CUDA_PLUGIN": str(plugin)} if plugin.exists() else {}
        self.process = subprocess.Popen(
            [str(word) for word in words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.err,
            text=True,
            env={**environment, **os.environ},
        )
        self.about = self.answer()

    def answer(self):
        line = self.process.stdout.readline()
        if line:
            return json.loads(line)
        code = self.process.wait()
        self.err.seek(0)
        said = [line.strip() for line in self.err if line.strip()]
        self.close()
        raise Refused(said[-1] if said else f"it ended with {code} and said nothing", code)

    def steps(self, count):
        try:
            self.process.stdin.write(f"{count}\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # it says why
        self.last = self.answer()
        return self.last["seconds"]

    def close(self):
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.wait()
        self.err.close()
        self.kept.cleanup()


class Ridge(OnDemand):
    def __init__(self, path, threads, device="cpu"):
        kept = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(kept.name)
        super().__init__([PROGRAM, path, threads, kept.name, f"train.device={device}"], kept)


def interval(values):
    """About 95 % for the median, by order statistics (normal approximation)."""
    values, n = sorted(values), len(values)
    k = max(0, int((n - 1.96 * n**0.5) / 2))
    return values[k], values[n - 1 - k]


def rest():
    """After a stretch on several threads: those of OpenMP spin on for some 10 ms, on cores of whoever is next."""
    time.sleep(0.05)


def spread(values):
    low, high = interval(values)
    return {"median": statistics.median(values), "low": low, "high": high}


def flops_a_token(model, ridge):
    """Of a GPT; see above. None for other models."""
    if model["kind"] != "gpt":
        return None
    tensors = read_safetensors(ridge.folder / "parameters.safetensors")
    parameters = sum(tensors[name].numel() for name in ridge.about["parameters"])
    return 6 * parameters + 12 * model["layers"] * model["context"] * model["width"]


class Side:
    """One of those that take turns: what it runs, and what it needs at most."""

    def __init__(self, name, run, device, before):
        self.name, self.run, self.device = name, run, device
        run.steps(3)
        self.peak = torch.cuda.max_memory_allocated() - before if before is not None else None

    def stretch(self, count):
        """Seconds a step. Where memory is short, others may not keep what they do not use: then the
        first step takes it anew, and is not timed."""
        is_peer = self.device != "cpu" and isinstance(self.run, Peer)
        if is_peer:
            self.run.steps(1)
        seconds = self.run.steps(count) / count
        if is_peer:
            torch.cuda.empty_cache()
        return seconds


def make_sides(config, ridge, arguments):
    """Ridge and the peers that can run, and why the others cannot."""
    sides, without = {"ridge": Side("ridge", ridge, arguments.device, None)}, {}
    for name in ("eager",) if arguments.no_compile else ("eager", "compile"):
        before = None
        if arguments.device != "cpu":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
        try:
            peer = Peer(config, name == "compile", ridge, device=arguments.device)
            sides[name] = Side(name, peer, arguments.device, before)
        except RuntimeError as error:  # out of memory, or what the compiler cannot
            without[name] = str(error).splitlines()[0]
    return sides, without


def measure(path, arguments):
    config = tomllib.loads(path.read_text())
    ridge = None
    try:
        ridge = Ridge(path, arguments.threads, arguments.device)
        return compare(path, config, ridge, arguments)
    except Refused as error:
        return {"config": path.stem, **error.row()}
    finally:
        if ridge is not None:
            ridge.close()


def compare(path, config, ridge, arguments):
    sides, without = make_sides(config, ridge, arguments)
    if len(sides) == 1:
        return {"config": path.stem, "refused": f"PyTorch cannot: {without}", "exit_code": 2}
    counts = {n: max(1, round(arguments.stretch / side.stretch(2))) for n, side in sides.items()}
    times = {name: [] for name in sides}
    for _ in range(arguments.rounds):
        for name, side in sides.items():
            rest()
            times[name].append(side.stretch(counts[name]))
    medians = {name: statistics.median(values) for name, values in times.items()}
    best = min((n for n in medians if n != "ridge"), key=lambda n: medians[n])
    ratios = {
        name: spread([peer / own for peer, own in zip(values, times["ridge"])])
        for name, values in times.items()
        if name != "ridge"
    }
    result = {
        "config": path.stem,
        "device": arguments.device,
        "threads": arguments.threads,
        "step_ms": {name: 1e3 * value for name, value in medians.items()},
        "samples_ms": {name: [1e3 * each for each in values] for name, values in times.items()},
        "best_peer": best,
        "ratios": ratios,
        "rounds": arguments.rounds,
        "without": without,
        "planned_bytes": ridge.about["planned"],
        "measured_bytes": ridge.last["measured"],
        "state_bytes": ridge.about["state"],
        "peak_bytes": {n: side.peak for n, side in sides.items() if side.peak is not None},
    }
    if arguments.device != "cpu":
        result["peak_bytes"]["ridge"] = ridge.last["measured"]
    add_rates(result, config, ridge, medians, arguments)
    return result


def add_rates(result, config, ridge, medians, arguments):
    flops = flops_a_token(config["model"], ridge)
    if flops is None:
        return
    tokens = config["train"]["batch"] * config["model"]["context"]
    result["flops_per_token"] = flops
    result["tokens_per_s"] = {name: tokens / seconds for name, seconds in medians.items()}
    gpu = torch.cuda.get_device_name() if arguments.device != "cpu" else None
    if gpu in PEAK_FLOPS and config["train"].get("precision") == "bf16":
        result["peak_flops"] = PEAK_FLOPS[gpu]
        result["flops_utilisation"] = {
            name: rate * flops / PEAK_FLOPS[gpu] for name, rate in result["tokens_per_s"].items()
        }


def print_row(r):
    if "refused" in r:
        print(f"{r['config']:18} {r['refused']}", flush=True)
        return
    ms, ratio = r["step_ms"], r["ratios"][r["best_peer"]]
    missing = float("nan")
    print(
        f"{r['config']:18} {ms['ridge']:9.2f} {ms.get('eager', missing):9.2f}"
        f" {ms.get('compile', missing):9.2f} {ratio['median']:7.2f}"
        f"  {ratio['low']:.2f} to {ratio['high']:.2f}",
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu", help="cpu, or cuda: of both")
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
    print(
        f"torch {torch.__version__}, {arguments.device}, {arguments.threads} threads; step times in"
        " ms, ratio to the better peer"
    )
    print(f"{'workload':18} {'ridge':>9} {'eager':>9} {'compile':>9} {'ratio':>7}  interval")
    for path in configs:
        results.append(measure(path, arguments))
        print_row(results[-1])
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps({"torch": torch.__version__, "results": results}, indent=1))


if __name__ == "__main__":
    main()
