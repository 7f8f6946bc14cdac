#!/usr/bin/env python3
"""Norm, softmax and cross-entropy, forward and backward: Ridge, PyTorch and a copy in turn.

A share is bytes over seconds, over those of PyTorch's copy in the same round; bytes are each large
operand read once plus each large result written once, so that 1 is what memory allows. The ratio's
interval is about 95 % for the median. On a GPU Ridge runs twice: by the kernels of the CPU's bits, and
by the fastest that are right (train.kernels = "fastest"). FILE is written behind each chain.

Usage: python bench/row_ops.py [--device cpu|cuda] [--dtype f32|bf16|f16] [--rounds N]
           [--stretch SECONDS] [--rows N] [--json FILE] [CHAIN...]
"""

import argparse
import pathlib
import statistics
import time

import torch
import torch.nn.functional as F

from training_step import OnDemand, Refused, find_program, rest, spread, wait_for, write_results

# As in GPT-2 at a batch of 64: tokens x width, tokens x context, tokens x vocabulary (of an eighth).
SHAPES = {"norm": (65536, 768), "softmax": (65536, 1024), "cross_entropy": (8192, 50257)}
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}


class Copy:
    """Of a whole array; bytes read and written count."""

    def __init__(self, device, dtype, rows, columns):
        self.from_, self.to = (torch.ones(rows, columns, dtype=dtype, device=device) for _ in "ab")
        self.bytes = 2 * self.from_.nbytes
        self.device = device

    def steps(self, count):
        wait_for(self.device)
        start = time.perf_counter()
        for _ in range(count):
            self.to.copy_(self.from_)
        wait_for(self.device)
        return time.perf_counter() - start


class Peer:
    def __init__(self, chain, device, dtype, rows, columns, compiled):
        self.device = device
        generator = torch.Generator().manual_seed(1)

        def numbers(*shape):
            # Where it is needed: drawn on the host, 400 million of them would take a minute.
            some = torch.rand(min(rows, 64), shape[-1], generator=generator).to(dtype)
            return some.repeat(-(-shape[0] // len(some)), 1)[: shape[0]].to(device)

        self.x = numbers(rows, columns).requires_grad_()
        if chain == "norm":
            gamma = numbers(1, columns)[0].requires_grad_()
            beta = numbers(1, columns)[0].requires_grad_()
            self.leaves = [self.x, gamma, beta]
            forward = lambda: F.layer_norm(self.x, (columns,), gamma, beta)  # noqa: E731
        elif chain == "softmax":
            self.leaves = [self.x]
            forward = lambda: F.softmax(self.x, -1)  # noqa: E731
        else:
            targets = (torch.arange(rows) * 7919 % columns).to(device)
            self.leaves = [self.x]
            forward = lambda: F.cross_entropy(self.x, targets)  # noqa: E731
        self.forward = torch.compile(forward) if compiled else forward
        self.dy = None if chain == "cross_entropy" else numbers(rows, columns)

    def steps(self, count):
        wait_for(self.device)
        start = time.perf_counter()
        for _ in range(count):
            for leaf in self.leaves:
                leaf.grad = None
            self.forward().backward(self.dy)
        wait_for(self.device)
        return time.perf_counter() - start


def measure(chain, arguments):
    rows, columns = SHAPES[chain]
    rows = arguments.rows or rows
    words = [find_program("bench_row_ops"), arguments.device, chain, arguments.dtype, rows, columns]
    ours = {}
    try:
        ridge = ours["ridge"] = OnDemand(words)
        if arguments.device != "cpu":
            ours["ridge_fastest"] = OnDemand([*words, "fastest"])
    except Refused as error:
        for each in ours.values():
            each.close()
        return {"chain": chain, "dtype": arguments.dtype, **error.row()}
    dtype = DTYPES[arguments.dtype]
    runs = {**ours, "copy": Copy(arguments.device, dtype, rows, columns)}
    without = {}
    for name in ("eager", "compile"):
        if name == "compile" and arguments.no_compile:
            continue
        try:
            peer = Peer(chain, arguments.device, dtype, rows, columns, name == "compile")
            peer.steps(1)
            runs[name] = peer
        except RuntimeError as error:  # out of memory, or what the compiler cannot
            without[name] = str(error).splitlines()[0]
    try:
        counts, rates = {}, {name: [] for name in runs}
        for name, run in runs.items():
            run.steps(2)
            counts[name] = max(1, round(arguments.stretch / (run.steps(2) / 2)))
        work = {name: ridge.about["bytes"] for name in runs}
        work["copy"] = runs["copy"].bytes
        for _ in range(arguments.rounds):
            for name, run in runs.items():
                rest()
                rates[name].append(work[name] * counts[name] / run.steps(counts[name]))
    except Refused as error:
        return {"chain": chain, "dtype": arguments.dtype, **error.row()}
    finally:
        for each in ours.values():
            each.close()
    shares = {
        name: [rate / copy for rate, copy in zip(values, rates["copy"])]
        for name, values in rates.items()
        if name != "copy"
    }
    return {
        "chain": chain,
        "dtype": arguments.dtype,
        "shape": [rows, columns],
        "bytes": ridge.about["bytes"],
        "share_of_copy": spread(shares["ridge"]),
        "fastest_share_of_copy": spread(shares["ridge_fastest"]) if "ridge_fastest" in shares else None,
        "peer_share": {n: statistics.median(v) for n, v in shares.items() if n not in ours},
        "copy_bytes_per_s": statistics.median(rates["copy"]),
        "bytes_per_s": rates,
        "without": without,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="f32", choices=DTYPES)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--stretch", type=float, default=0.2, help="seconds of one at a time")
    parser.add_argument("--rows", type=int, help="other than those of GPT-2")
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("chains", nargs="*", metavar="CHAIN", help=", ".join(SHAPES))
    arguments = parser.parse_args()
    unknown = [name for name in arguments.chains if name not in SHAPES]
    if unknown:
        parser.error(f"there is no chain '{unknown[0]}'; there are {', '.join(SHAPES)}")
    results = []
    print(f"torch {torch.__version__}, {arguments.device}, {arguments.dtype}; shares of a copy's bytes/s")
    for chain in arguments.chains or SHAPES:
        result = measure(chain, arguments)
        results.append(result)
        write_results(arguments.json, results)
        if "refused" in result:
            print(f"{chain:14} {result['refused']}", flush=True)
            continue
        share = result["share_of_copy"]
        peers = ", ".join(f"{name} {each:.2f}" for name, each in result["peer_share"].items())
        fastest = result["fastest_share_of_copy"]
        print(
            f"{chain:14} {share['median']:.2f} ({share['low']:.2f} to {share['high']:.2f}) of"
            f" {result['copy_bytes_per_s'] / 1e9:.1f} GB/s; "
            + (f"kernels of any bits {fastest['median']:.2f}, " if fastest else "")
            + peers,
            flush=True,
        )


if __name__ == "__main__":
    main()
