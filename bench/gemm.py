#!/usr/bin/env python3
"""Matrix products of Ridge and of MKL as PyTorch calls it, in turn, on the same shapes.

Every shape of gemm_shapes.txt is measured as NN, NT and TN. A round times a stretch of Ridge's products,
the multiply-add peak for 10 ms before it and after it, and a stretch of torch.mm (torch.bmm for a batch)
with out=, packing inside both; the ratio is torch's time over Ridge's, the share of the peak is that of the
peak beside it, medians over the rounds. All products have some rounds before any has more, each time with
new operands: a minute in which others use the machine takes few rounds of each, not all of one. Operands are
random and lie on huge pages for both. Below some microseconds torch's time is mostly its call.

Usage: build/peers/bin/python bench/gemm.py [--threads N] [--quick] [--match TEXT] [--isa ISA]
           [--rounds N] [--stretch SECONDS] [--dtype f32|f64] [--shapes FILE] [--json FILE]
"""

import argparse
import json
import math
import os
import pathlib
import re
import statistics
import subprocess
import sys
import time

os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")  # torch's own switch for huge pages
import torch  # noqa: E402
from training_step import rest  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
PROGRAM = HERE.parent / "build" / "release" / "bench" / "bench_gemm"
LAYOUTS = ("NN", "NT", "TN")
ROUNDS_TOGETHER = 3


class Ridge:
    def __init__(self, arguments):
        self.process = subprocess.Popen(
            [str(PROGRAM), "--threads", str(arguments.threads), "--isa", arguments.isa, "--serve", "yes"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            sys.exit(f"gemm.py: bench_gemm ended at '{line}'")
        return answer.strip()

    def run(self, calls):
        return float(self.ask(f"run {calls}")) / calls


class Torch:
    def __init__(self, shape, layout, dtype):
        m, n, k, batch = shape
        kind = {"f32": torch.float32, "f64": torch.float64}[dtype]
        lead = (batch,) if batch > 1 else ()

        def operand(rows, columns, transposed):
            if transposed:
                return torch.rand(*lead, columns, rows, dtype=kind).sub_(0.5).transpose(-1, -2)
            return torch.rand(*lead, rows, columns, dtype=kind).sub_(0.5)

        self.a, self.b = operand(m, k, layout[0] == "T"), operand(k, n, layout[1] == "T")
        self.c = torch.empty(*lead, m, n, dtype=kind)
        self.multiply = torch.bmm if batch > 1 else torch.mm

    def run(self, calls):
        multiply, a, b, c = self.multiply, self.a, self.b, self.c
        start = time.perf_counter()
        for _ in range(calls):
            multiply(a, b, out=c)
        return (time.perf_counter() - start) / calls


def read_shapes(path, dtype):
    shapes = []
    for line in path.read_text().splitlines():
        words = line.split("#")[0].split()
        if not words:
            continue
        m, n, k = map(int, words[:3])
        batch, kind = 1, "f32"
        for word in words[3:]:
            if re.fullmatch(r"x\d+", word):
                batch = int(word[1:])
            elif re.fullmatch(r"b?f\d+", word):
                kind = word
        if kind == dtype and (m, n, k, batch) not in shapes:
            shapes.append((m, n, k, batch))
    return shapes


def calls_for(run, stretch):
    run.run(1)
    seconds = run.run(1)
    if seconds < stretch / 20:
        seconds = run.run(max(1, round(stretch / 20 / seconds)))
    return max(1, round(stretch / seconds))


class Product:
    def __init__(self, shape, layout):
        self.shape, self.layout = shape, layout
        self.own, self.other, self.peaks = [], [], []  # by round: seconds, seconds, FLOP/s

    def measure(self, ridge, rounds, arguments):
        m, n, k, batch = self.shape
        ridge.ask(f"case {m} {n} {k} {self.layout} {arguments.dtype} x{batch}")
        peer = Torch(self.shape, self.layout, arguments.dtype)
        own_calls, peer_calls = (calls_for(run, arguments.stretch) for run in (ridge, peer))

        def run_ridge():
            rest()
            before = float(ridge.ask(f"peak {arguments.dtype}"))
            self.own.append(ridge.run(own_calls))
            self.peaks.append((before + float(ridge.ask(f"peak {arguments.dtype}"))) / 2)

        for i in range(len(self.own), len(self.own) + rounds):
            if i % 2:
                run_ridge()
            self.other.append(peer.run(peer_calls))
            if i % 2 == 0:
                run_ridge()

    def result(self):
        m, n, k, batch = self.shape
        flops, peak = 2.0 * m * n * k * batch, statistics.median(self.peaks)
        shares = [flops / seconds / near for seconds, near in zip(self.own, self.peaks)]
        return {
            "m": m,
            "n": n,
            "k": k,
            "batch": batch,
            "layout": self.layout,
            "ratio": statistics.median(o / r for o, r in zip(self.other, self.own)),
            "ridge_us": 1e6 * statistics.median(self.own),
            "torch_us": 1e6 * statistics.median(self.other),
            "ridge_of_peak": statistics.median(shares),
            "torch_of_peak": flops / statistics.median(self.other) / peak,
            "ridge_of_peak_best": flops / min(self.own) / max(self.peaks),
            "peak_gflops": peak / 1e9,
        }


def name_of(r):
    batch = f" x{r['batch']}" if r["batch"] > 1 else ""
    return f"{r['m']}x{r['n']}x{r['k']}{batch} {r['layout']}"


def report_misses(title, results, value, floor):
    misses = sorted((value(r), name_of(r)) for r in results if value(r) < floor)
    listed = ", ".join(f"{name} {v:.2f}" for v, name in misses)
    print(f"{title}, floor {floor}: {len(results) - len(misses)} of {len(results)} reach it. Below: {listed or 'none'}")


def summarise(results, threads):
    mean = math.exp(statistics.fmean(math.log(r["ratio"]) for r in results))
    print(f"geometric mean of the ratios {mean:.3f} (floor 0.97)")
    report_misses("ratio", results, lambda r: r["ratio"], 0.85)
    skinny = [r for r in results if 2 <= r["m"] <= 16]
    report_misses("ratio, m of 2 to 16", skinny, lambda r: r["ratio"], 1.2)
    large = [r for r in results if min(r["m"], r["n"], r["k"]) >= 256]
    floor = 0.88 if threads == 1 else 0.83
    report_misses("of peak, all sizes >= 256, medians", large, lambda r: r["ridge_of_peak"], floor)
    report_misses("of peak, all sizes >= 256, best round", large, lambda r: r["ridge_of_peak_best"], floor)
    return mean


def products_of(arguments):
    products = []
    for shape in read_shapes(arguments.shapes, arguments.dtype):
        m, n, k, batch = shape
        if arguments.quick and 2.0 * m * n * k * batch > 6e9:
            continue
        for layout in LAYOUTS:
            if re.search(arguments.match, name_of(dict(m=m, n=n, k=k, batch=batch, layout=layout))):
                products.append(Product(shape, layout))
    return products


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--stretch", type=float, default=0.02, help="seconds of products at a time")
    parser.add_argument("--quick", action="store_true", help="3 rounds of 4 ms, without products above 6 GFLOP")
    parser.add_argument("--match", default="", help="only shapes whose name (MxNxK LAYOUT) this expression finds")
    parser.add_argument("--isa", default="auto")
    parser.add_argument("--dtype", default="f32", choices=("f32", "f64"))
    parser.add_argument("--shapes", type=pathlib.Path, default=HERE / "gemm_shapes.txt")
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()
    if not PROGRAM.exists():
        sys.exit("gemm.py: build/release/bench/bench_gemm is missing; ./dev bench builds it")
    if arguments.quick:
        arguments.rounds, arguments.stretch = 3, 0.004
    torch.set_num_threads(arguments.threads)
    torch.set_float32_matmul_precision("highest")
    products = products_of(arguments)
    if not products:
        sys.exit("gemm.py: no shape matches")
    ridge = Ridge(arguments)
    for done in range(0, arguments.rounds, ROUNDS_TOGETHER):
        for product in products:
            product.measure(ridge, min(arguments.rounds - done, ROUNDS_TOGETHER), arguments)
    results = [product.result() for product in products]
    print(f"torch {torch.__version__}, {arguments.dtype}, {arguments.threads} threads; times in us")
    print(f"{'m x n x k':28} {'ridge':>10} {'torch':>10} {'ratio':>6} {'of peak':>8} {'torch':>6}")
    for r in results:
        print(
            f"{name_of(r):28} {r['ridge_us']:10.1f} {r['torch_us']:10.1f} {r['ratio']:6.2f}"
            f" {r['ridge_of_peak']:8.3f} {r['torch_of_peak']:6.3f}"
        )
    mean = summarise(results, arguments.threads)
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        about = {"torch": torch.__version__, "threads": arguments.threads, "dtype": arguments.dtype}
        arguments.json.write_text(json.dumps(about | {"geometric_mean": mean, "results": results}, indent=1))


if __name__ == "__main__":
    main()
