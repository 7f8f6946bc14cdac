#!/usr/bin/env python3
"""What huge pages gain: two processes run stretches of steps in turn, one of which may have none.

Usage: bench/huge_pages.py [--threads N] [--rounds N] [--steps N] CONFIG...
"""

import argparse
import ctypes
import json
import pathlib
import statistics
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAM = ROOT / "build" / "release" / "bench" / "bench_training_step"
PR_SET_THP_DISABLE = 41  # of linux/prctl.h; children keep it


def without_huge_pages():
    if ctypes.CDLL(None).prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) != 0:
        raise OSError("the system does not let huge pages be turned off")


class Trainer:
    def __init__(self, config, threads, folder, huge):
        self.process = subprocess.Popen(
            [str(PROGRAM), str(config), str(threads), folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            preexec_fn=None if huge else without_huge_pages,
        )
        self.process.stdout.readline()

    def huge_mib(self):
        for line in open(f"/proc/{self.process.pid}/smaps_rollup"):
            if line.startswith("AnonHugePages:"):
                return int(line.split()[1]) // 1024
        return 0

    def seconds(self, steps):
        self.process.stdin.write(f"{steps}\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())["seconds"] / steps

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def measure(config, arguments):
    with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as second:
        huge = Trainer(config, arguments.threads, first, True)
        small = Trainer(config, arguments.threads, second, False)
        ratios = []
        for i in range(arguments.rounds + 1):
            pair = [huge, small] if i % 2 == 0 else [small, huge]
            times = {trainer: trainer.seconds(arguments.steps) for trainer in pair}
            if i > 0:  # the first steps warm up
                ratios.append(times[small] / times[huge])
        print(
            f"{config.stem}: a step without huge pages takes {statistics.median(ratios):.3f} of one "
            f"with them ({min(ratios):.3f} to {max(ratios):.3f}); MiB in huge pages: "
            f"{huge.huge_mib()} and {small.huge_mib()}",
            flush=True,
        )
        huge.end()
        small.end()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("configs", nargs="+", type=pathlib.Path)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--steps", type=int, default=1)
    arguments = parser.parse_args()
    for config in arguments.configs:
        measure(config, arguments)


if __name__ == "__main__":
    main()
