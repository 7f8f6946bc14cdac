#!/usr/bin/env python3
"""What train.precision = "bf16" or "fp16" gains: two processes run stretches of steps in turn, one in f32.

Usage: bench/precision.py [--precision P] [--threads N] [--rounds N] [--steps N] [--program FILE] CONFIG...
"""

import argparse
import json
import pathlib
import re
import statistics
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAM = ROOT / "build" / "release" / "bench" / "bench_training_step"


class Trainer:
    def __init__(self, config, precision, arguments):
        self.folder = tempfile.TemporaryDirectory()
        path = pathlib.Path(self.folder.name) / config.name
        text, count = re.subn(
            r"(?m)^\[train\]$", f'[train]\nprecision = "{precision}"', config.read_text()
        )
        if count != 1:
            raise ValueError(f"{config}: no [train]")
        path.write_text(text)
        self.process = subprocess.Popen(
            [str(arguments.program), str(path), str(arguments.threads), self.folder.name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        self.process.stdout.readline()

    def run(self, steps):
        """Seconds a step, and the last loss."""
        self.process.stdin.write(f"{steps}\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        self.loss = answer["loss"]
        return answer["seconds"] / steps

    def end(self):
        self.process.stdin.close()
        self.process.wait()
        self.folder.cleanup()


def measure(config, arguments):
    low_name = arguments.precision
    f32, low = (Trainer(config, precision, arguments) for precision in ("f32", low_name))
    times = {f32: [], low: []}
    for i in range(arguments.rounds + 1):
        for trainer in (f32, low) if i % 2 == 0 else (low, f32):
            seconds = trainer.run(arguments.steps)
            if i > 0:  # the first steps warm up
                times[trainer].append(seconds)
    ratios = [a / b for a, b in zip(times[f32], times[low])]
    print(
        f"{config.stem}, {arguments.threads} threads: f32 {statistics.median(times[f32]) * 1e3:.0f} ms, "
        f"{low_name} {statistics.median(times[low]) * 1e3:.0f} ms; f32 takes "
        f"{statistics.median(ratios):.2f} times as long ({min(ratios):.2f} to {max(ratios):.2f}); "
        f"losses {f32.loss:.5f} and {low.loss:.5f}",
        flush=True,
    )
    f32.end()
    low.end()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("configs", nargs="+", type=pathlib.Path)
    parser.add_argument("--precision", choices=("bf16", "fp16"), default="bf16")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--steps", type=int, default=1)
    parser.add_argument("--program", type=pathlib.Path, default=PROGRAM)
    arguments = parser.parse_args()
    for config in arguments.configs:
        measure(config, arguments)


if __name__ == "__main__":
    main()
