#!/usr/bin/env python3
"""Training steps of Ridge and PyTorch (eager and torch.compile) in turn, on the same work.

Every round runs a stretch of steps of each; the ratio is of the medians over the rounds, with the
interval that order statistics give. PyTorch has its fused AdamW, its fused attention, zero_grad with
set_to_none, as many threads, and autocast where the configuration says bf16; what is compiled is the
model and its loss as one function. All start from the same parameters, and their batches, the same
ones, lie ready in memory (a GPU's own for PyTorch; Ridge copies each to it).

On a GPU Ridge's row is by the fastest kernels that are right. Two more rows come behind it: Ridge by
the kernels of the CPU's bits, and mode="max-autotune" of torch.compile. FILE is written behind each
row; what there is no time for within --limit is named.

Usage: build/peers/bin/python bench/training_step.py [--device cpu|cuda] [--threads N] [--rounds N]
           [--stretch SECONDS] [--limit SECONDS] [--no-compile] [--json FILE] [CONFIG...]

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

    def __init__(self, config, mode, ridge, dtype=torch.float32, device="cpu"):
        """`mode`: "eager", or one of torch.compile's."""
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
        # In one function with the model, so that nothing of the step is left to the slow path.
        self.run_loss = self.loss_of if mode == "eager" else torch.compile(self.loss_of, mode=mode)
        self.is_replayed = mode == "max-autotune" and device != "cpu"
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

    def loss_of(self, x, y):
        return F.cross_entropy(self.model(x).flatten(0, -2), y.flatten())

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
            if self.is_replayed:
                torch.compiler.cudagraph_mark_step_begin()
            with self.rounded():
                loss = self.run_loss(x, y)
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
        self.process = subprocess.Popen(
            [str(word) for word in words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.err,
            text=True,
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
    def __init__(self, path, threads, device="cpu", kernels=None):
        """`kernels`: a value of train.kernels; None takes that of the configuration."""
        kept = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(kept.name)
        more = [f"train.kernels={kernels}"] if kernels else []
        super().__init__([PROGRAM, path, threads, kept.name, f"train.device={device}", *more], kept)


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
        if device != "cpu" and isinstance(run, Ridge):
            # What the driver counts on the whole device: right only here, where no peer has begun.
            self.peak = run.last["measured"]

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


def make_peer(config, name, ridge, arguments):
    """A side by PyTorch: `name` is eager, compile or max_autotune. RuntimeError where it cannot."""
    before = None
    if arguments.device != "cpu":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
    mode = {"compile": "default", "max_autotune": "max-autotune"}.get(name, name)
    peer = Peer(config, mode, ridge, device=arguments.device)
    return Side(name, peer, arguments.device, before)


def first_line(error):
    return (str(error).splitlines() or [type(error).__name__])[0]


# What PyTorch raises for what it cannot: memory, a compiler that fails (both are RuntimeErrors), or
# one that is not installed.
CANNOT = (RuntimeError, ImportError, OSError)


def make_peers(config, names, ridge, arguments, without):
    """The sides that can run; why the others cannot goes into `without`."""
    sides = {}
    for name in names:
        try:
            sides[name] = make_peer(config, name, ridge, arguments)
        except CANNOT as error:
            without[name] = first_line(error)
    return sides


class Row:
    """What was measured with one configuration, written behind each row of it."""

    def __init__(self, path, config, arguments, write):
        self.path, self.config, self.arguments, self.write = path, config, arguments, write
        self.result = {"config": path.stem}

    def open_ridge(self, kernels=None):
        is_gpu = self.arguments.device != "cpu"
        return Ridge(
            self.path, self.arguments.threads, self.arguments.device, kernels if is_gpu else None
        )

    def left(self):
        return self.arguments.ends - time.monotonic()

    def measure(self):
        """The result, with a reason for what it lacks."""
        ridge = None
        try:
            ridge = self.open_ridge("fastest")
            peers = self.main_row(ridge)
            ridge.close()
            if self.arguments.device != "cpu" and "refused" not in self.result:
                ridge = self.more_rows(peers)
        except Refused as error:
            self.refused(error)
        finally:
            if ridge is not None:
                ridge.close()
        self.write(self.result)
        return self.result

    def refused(self, error):
        """Of the main row it is the result; behind it, one row less."""
        if "ratios" in self.result:
            self.result["without"]["more"] = str(error)
        else:
            self.result.update(error.row())

    def main_row(self, ridge):
        """Ridge, PyTorch eager and compiled; returns the peers."""
        without = {}
        sides = {"ridge": Side("ridge", ridge, self.arguments.device, None)}
        names = ("eager",) if self.arguments.no_compile else ("eager", "compile")
        peers = make_peers(self.config, names, ridge, self.arguments, without)
        if not peers:
            self.result.update(refused=f"PyTorch cannot: {without}", exit_code=2)
            return peers
        sides.update(peers)
        times = in_turn(sides, self.arguments)
        self.result.update(main_result(self.config, ridge, sides, times, without, self.arguments))
        self.write(self.result)
        return peers

    def more_rows(self, peers):
        """By the CPU's bits, then against max-autotune, whose compiling takes minutes. Returns what
        of Ridge still runs."""
        peer = next(name for name in ("compile", "eager") if name in peers)
        ridge = self.open_ridge("same_bits")
        try:
            self.add_row("ridge_same_bits", {"ridge_same_bits": ridge, peer: peers[peer]}, peer)
        finally:
            ridge.close()
        peers.clear()
        torch.compiler.reset()
        torch.cuda.empty_cache()
        without = self.result["without"]
        if self.arguments.no_compile or self.left() < LEAST_FOR_AUTOTUNE:
            without["max_autotune"] = f"{self.left():.0f} s were left"
            return ridge
        ridge = self.open_ridge("fastest")
        sides = make_peers(self.config, ["max_autotune"], ridge, self.arguments, without)
        if sides:
            self.add_row("max_autotune", {"ridge": ridge, **sides}, "ridge")
        return ridge

    def add_row(self, name, runs, other):
        """`name` in turn with `other`, by which its ratio is; both are in `runs`."""
        sides = {
            each: run if isinstance(run, Side) else Side(each, run, self.arguments.device, None)
            for each, run in runs.items()
        }
        times = in_turn(sides, self.arguments)
        ours = "ridge" if other == "ridge" else name
        peer = name if other == "ridge" else other
        ratio = spread([a / b for a, b in zip(times[peer], times[ours])])
        self.result["step_ms"][name] = 1e3 * statistics.median(times[name])
        self.result["samples_ms"][name] = [1e3 * each for each in times[name]]
        if other == "ridge":
            self.result["ratios"][name] = ratio
        else:
            self.result["same_bits_ratios"] = {peer: ratio}
        self.write(self.result)


# Seconds under which max-autotune is not begun: of GPT-2 it took more than 150 on an H200.
LEAST_FOR_AUTOTUNE = 300


def in_turn(sides, arguments):
    """{side: seconds a step, one a round}."""
    counts = {n: max(1, round(arguments.stretch / side.stretch(2))) for n, side in sides.items()}
    times = {name: [] for name in sides}
    for _ in range(arguments.rounds):
        for name, side in sides.items():
            rest()
            times[name].append(side.stretch(counts[name]))
    return times


def main_result(config, ridge, sides, times, without, arguments):
    medians = {name: statistics.median(values) for name, values in times.items()}
    ratios = {
        name: spread([peer / own for peer, own in zip(values, times["ridge"])])
        for name, values in times.items()
        if name != "ridge"
    }
    result = {
        "device": arguments.device,
        "threads": arguments.threads,
        "step_ms": {name: 1e3 * value for name, value in medians.items()},
        "samples_ms": {name: [1e3 * each for each in values] for name, values in times.items()},
        "best_peer": min((n for n in medians if n != "ridge"), key=lambda n: medians[n]),
        "ratios": ratios,
        "rounds": arguments.rounds,
        "without": without,
        "planned_bytes": ridge.about["planned"],
        "measured_bytes": sides["ridge"].peak if arguments.device != "cpu" else ridge.last["measured"],
        "state_bytes": ridge.about["state"],
        "peak_bytes": {n: side.peak for n, side in sides.items() if side.peak is not None},
    }
    if arguments.device != "cpu":
        result["kernels"] = "fastest"
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
    parser.add_argument("--limit", type=float, default=float("inf"), help="seconds for all of it")
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("configs", nargs="*", type=pathlib.Path)
    arguments = parser.parse_args()
    arguments.ends = time.monotonic() + arguments.limit
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
        config = tomllib.loads(path.read_text())

        def write(result):
            write_results(arguments.json, [*results, result])

        results.append(Row(path, config, arguments, write).measure())
        print_row(results[-1])


def write_results(path, results):
    """All of it or nothing, so that one who reads it meanwhile sees whole rows."""
    if not path:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    part.write_text(json.dumps({"torch": torch.__version__, "results": results}, indent=1))
    part.replace(path)


if __name__ == "__main__":
    main()
