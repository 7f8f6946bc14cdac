#!/usr/bin/env python3
"""What the shim of `ridge doctor -- CMD` costs a program outside of the steps that it records.

A process with the shim runs stretches of steps in turn with the shim's wrappers in place and with them
taken off (ABBA), so that both have their code and data in the same places: a step that takes 0.4 ms
differs by 10 % from one process to the next. A ratio is that of the stretches of one round, by the clock
and by the processor time that the process used, which other programs disturb less. With
--processes the stretches without are those of a process that never saw the shim. Needs a Python with torch.

Usage: bench/shim_overhead.py [--starts N] [--rounds N] [--seconds S] [--processes] [--json FILE]
"""

import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
KINDS = {"tiny": "steps of some 0.5 ms", "loader": "steps of some 20 ms with a DataLoader"}


def tiny_steps(torch):
    net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3, momentum=0.9)
    x = torch.randn(16, 64)
    while True:
        optimizer.zero_grad()
        net(x).square().mean().backward()
        optimizer.step()
        yield


def loader_steps(torch):
    from torch.utils.data import DataLoader, TensorDataset

    net = torch.nn.Sequential(torch.nn.Linear(784, 2048), torch.nn.ReLU(), torch.nn.Linear(2048, 10))
    optimizer = torch.optim.AdamW(net.parameters())
    data = TensorDataset(torch.randn(20000, 784), torch.randint(10, (20000,)))
    loader = DataLoader(data, batch_size=256, shuffle=True)
    loss = torch.nn.CrossEntropyLoss()
    while True:
        for x, y in loader:
            optimizer.zero_grad()
            loss(net(x), y).backward()
            optimizer.step()
            yield


def wrapped_names(torch):
    """Where the shim stands in a step: owner, name, its function, the one that it took the place of."""
    from torch.utils.data import dataloader

    places = [(dataloader._BaseDataLoaderIter, "__next__"), (dataloader.DataLoader, "__iter__"),
              (torch.optim.SGD, "step"), (torch.optim.AdamW, "step")]
    found = []
    for owner, name in places:
        function = vars(owner).get(name)
        if function is not None and "ridge_shim" in function.__code__.co_filename:
            found.append((owner, name, function, function.__wrapped__))
    return found


def child(kind):
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(1)
    steps = {"tiny": tiny_steps, "loader": loader_steps}[kind](torch)
    next(steps)
    wrapped = wrapped_names(torch)
    for line in sys.stdin:
        count, shim = line.split()
        for owner, name, ours, original in wrapped:
            setattr(owner, name, ours if shim == "with" else original)
        begin, used = time.perf_counter(), time.process_time()
        for _ in range(int(count)):
            next(steps)
        used = time.process_time() - used
        print(time.perf_counter() - begin, used, len(wrapped), flush=True)


class Program:
    """A process with the shim; `shim` None: one that never saw it."""

    def __init__(self, kind, shim):
        environment = dict(os.environ)
        if shim is not None:
            environment.update(PYTHONPATH=shim, RIDGE_SHIM_STEPS="0")
        words = [sys.executable, __file__, "--child", kind]
        self.process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def seconds(self, steps, shim):
        self.process.stdin.write(f"{steps} {shim}\n")
        self.process.stdin.flush()
        seconds, used, self.wrappers = self.process.stdout.readline().split()
        return float(seconds), float(used)

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def measure_start(kind, arguments, folder):
    """Pairs without and with, each of seconds and processor seconds, and the seconds of a step
    without."""
    watched = Program(kind, folder)
    plain = Program(kind, None) if arguments.processes else watched
    try:
        for count in (20, 20):
            watched.seconds(count, "with")
            steps = max(1, round(arguments.seconds / (plain.seconds(count, "without")[0] / count)))
        assert int(watched.wrappers) > 0, "the shim does not stand where this looks for it"
        sides = {"without": plain, "with": watched}
        pairs = []
        for i in range(arguments.rounds):
            order = ["without", "with", "with", "without"][:: 1 if i % 2 == 0 else -1]
            took = {"without": [0.0, 0.0], "with": [0.0, 0.0]}
            for shim in order:
                for clock, seconds in enumerate(sides[shim].seconds(steps, shim)):
                    took[shim][clock] += seconds
            pairs.append(took)
        return pairs, statistics.median(pair["without"][0] for pair in pairs) / (2 * steps)
    finally:
        watched.end()
        if plain is not watched:
            plain.end()


def measure(kind, arguments, folder):
    ratios, used, usual = [], [], []
    for _ in range(arguments.starts):
        pairs, step = measure_start(kind, arguments, folder)
        ratios += [pair["with"][0] / pair["without"][0] for pair in pairs]
        used += [pair["with"][1] / pair["without"][1] for pair in pairs]
        usual.append(step)
        facts = json.loads(next(pathlib.Path(folder).glob("facts_*.json")).read_text())
        assert facts["steps"] > 20, "the shim saw no steps"
    quarters = statistics.quantiles(ratios, n=4)
    return {
        "step_ms": statistics.median(usual) * 1e3,
        "overhead": statistics.median(ratios) - 1,
        "processor_overhead": statistics.mean(used) - 1,
        "quarters": [quarters[0] - 1, quarters[2] - 1],
        "pairs": len(ratios),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--starts", type=int, default=3, help="of processes")
    parser.add_argument("--rounds", type=int, default=30, help="of each start")
    parser.add_argument("--seconds", type=float, default=0.1, help="of a stretch of steps")
    parser.add_argument("--processes", action="store_true", help="without: in a process of its own")
    parser.add_argument("--json", help="writes the results to this file")
    parser.add_argument("--child", choices=KINDS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        return child(arguments.child)
    results = {}
    print(f"{'':40} {'step ms':>8} {'overhead':>9}   {'quarters':19} processor time")
    for kind, text in KINDS.items():
        with tempfile.TemporaryDirectory() as folder:
            for path in (ROOT / "ridge" / "attach" / "shim").glob("*.py"):
                shutil.copy(path, folder)
            results[kind] = row = measure(kind, arguments, folder)
        low, high = row["quarters"]
        quarters = f"{low:+.1%} to {high:+.1%}"
        print(f"{text:40} {row['step_ms']:8.3f} {row['overhead']:+9.1%}   {quarters:19} "
              f"{row['processor_overhead']:+.1%}")
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps(results, indent=2) + "\n")
    else:
        print(json.dumps(results))


if __name__ == "__main__":
    main()
