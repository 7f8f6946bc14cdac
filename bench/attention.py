#!/usr/bin/env python3
"""Attention of Ridge and PyTorch in turn: causal, f32, forward and backward.

PyTorch runs scaled_dot_product_attention with as many threads, its backward pass by autograd over a
graph that is kept. Each round runs one after the other; a ratio (PyTorch's time over Ridge's) is the
median over the rounds, with the interval that order statistics give.

Usage: build/peers/bin/python bench/attention.py [--heads N] [--depth N] [--lengths T...]
           [--threads N...] [--rounds N] [--stretch SECONDS] [--json FILE]
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import time

import torch
import torch.nn.functional as F

from training_step import interval, rest

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAM = ROOT / "build" / "release" / "bench" / "bench_attention"


class Ridge:
    def __init__(self, heads, depth, threads):
        self.process = subprocess.Popen(
            [str(PROGRAM), str(heads), str(depth), str(threads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def seconds(self, kind, length, count):
        self.process.stdin.write(f"{kind} {length} {count}\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())

    def close(self):
        self.process.stdin.close()
        self.process.wait()


class Peer:
    def __init__(self, heads, depth):
        self.heads, self.depth = heads, depth
        self.made = {}

    def operands(self, kind, length):
        if (kind, length) not in self.made:
            q, k, v, dy = (torch.randn(1, self.heads, length, self.depth) for _ in range(4))
            backward = kind == "backward"
            for x in (q, k, v):
                x.requires_grad_(backward)
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True) if backward else None
            self.made[kind, length] = (q, k, v, dy, y)
        return self.made[kind, length]

    def seconds(self, kind, length, count):
        q, k, v, dy, y = self.operands(kind, length)
        start = time.perf_counter()
        for _ in range(count):
            if kind == "forward":
                F.scaled_dot_product_attention(q, k, v, is_causal=True)
            else:
                torch.autograd.grad(y, (q, k, v), dy, retain_graph=True)
        return (time.perf_counter() - start) / count


def measure(runs, kind, length, arguments):
    times = {name: [] for name in runs}
    counts = {}
    for name, run in runs.items():
        run.seconds(kind, length, 2)
        counts[name] = max(1, round(arguments.stretch / run.seconds(kind, length, 2)))
    for _ in range(arguments.rounds):
        for name, run in runs.items():
            rest()
            times[name].append(run.seconds(kind, length, counts[name]))
    ratios = [peer / own for peer, own in zip(times["torch"], times["ridge"])]
    return {
        "kind": kind,
        "length": length,
        "ms": {name: 1e3 * statistics.median(values) for name, values in times.items()},
        "ratio": statistics.median(ratios),
        "interval": list(interval(ratios)),
        "rounds": arguments.rounds,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--depth", type=int, default=64)
    parser.add_argument("--lengths", type=int, nargs="+", default=[64, 256, 1024])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--stretch", type=float, default=0.1, help="seconds of each at a time")
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()
    if not PROGRAM.exists():
        sys.exit(f"attention.py: {PROGRAM} is missing; ninja -C build/release bench_attention")
    results = []
    print(f"torch {torch.__version__}; {arguments.heads} heads, depth {arguments.depth}; ms")
    print(f"{'threads':>7} {'kind':9} {'T':>5} {'ridge':>9} {'torch':>9} {'ratio':>6}  interval")
    for threads in arguments.threads:
        torch.set_num_threads(threads)
        ridge = Ridge(arguments.heads, arguments.depth, threads)
        runs = {"ridge": ridge, "torch": Peer(arguments.heads, arguments.depth)}
        for kind in ("forward", "backward"):
            for length in arguments.lengths:
                r = measure(runs, kind, length, arguments)
                results.append({"threads": threads, **r})
                print(
                    f"{threads:7} {kind:9} {length:5} {r['ms']['ridge']:9.3f} {r['ms']['torch']:9.3f}"
                    f" {r['ratio']:6.2f}  {r['interval'][0]:.2f} to {r['interval'][1]:.2f}",
                    flush=True,
                )
        ridge.close()
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        about = {"torch": torch.__version__, "heads": arguments.heads, "depth": arguments.depth}
        arguments.json.write_text(json.dumps({**about, "results": results}, indent=1))


if __name__ == "__main__":
    main()
