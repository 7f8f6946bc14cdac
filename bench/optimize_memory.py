#!/usr/bin/env python3
"""`ridge optimize --memory` at parts of what a configuration needs, and the recipes it gives.

The state is what lives from step to step in the plan without a limit. Each limit is the state and so
many per cent of what that plan needs above it. The recipe is then trained for some steps, once, while
its RssAnon is read from outside every 2 ms; it fails where that, less what the process had before it
took the plan's memory, is above the limit. A limit of the state's half is impossible, and has to be told.

Usage: bench/optimize_memory.py [--limits SHARE,...] [--budget S] [--steps N] [CONFIG...]
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
RIDGE = ROOT / "build" / "release" / "ridge"
CHECK = ROOT / "build" / "release" / "bench" / "bench_memory_check"
# Not mlp_table: of the 5.4 MiB above its state one gradient holds 4.0, and a gradient is held whole. Nor
# models with batch norm, whose batches cannot be taken apart.
CONFIGS = ("bench/configs/gpt_small", "bench/optimize/gpt_text")
MIB = 1 << 20


def run(words):
    return subprocess.run([str(w) for w in words], capture_output=True, text=True, cwd=ROOT)


def needs(path):
    """Bytes of the plan, and of its state."""
    found = json.loads(run([CHECK, path, 1]).stdout)
    return found["planned"], found["state"]


def resident_bytes(pid):
    try:
        for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


def train(path, recipe, steps):
    """Trains with the recipe: what Ridge measured itself, and the most that was seen from outside."""
    with tempfile.TemporaryDirectory() as folder:
        words = [RIDGE, "train", path, "--steps", steps, "--out", pathlib.Path(folder) / "run", "--json"]
        if recipe:
            file = pathlib.Path(folder) / "recipe.toml"
            file.write_text(recipe)
            words += ["--recipe", file]
        process = subprocess.Popen(
            [str(w) for w in words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=ROOT
        )
        most = 0
        while process.poll() is None:
            most = max(most, resident_bytes(process.pid))
            time.sleep(0.002)
        out = process.stdout.read()
    return process.returncode, json.loads(out)["memory"]["measured_bytes"] if out else 0, most


def check(path, arguments):
    planned, state = needs(path)
    ok = True
    for share in arguments.limits:
        limit = state + (planned - state) * share // 100
        words = [RIDGE, "optimize", path, "--memory", f"{limit // 1024}KiB", "--budget", arguments.budget]
        with tempfile.TemporaryDirectory() as folder:
            done = run([*words, "--out", folder, "--json"])
        if done.returncode != 0:
            ok = False
            print(f"| {path.stem} | {share} % | {limit / MIB:.1f} | {done.stderr.strip()} |", flush=True)
            continue
        found = json.loads(done.stdout)
        code, measured, seen = train(path, found["recipe"], arguments.steps)
        kept = code == 0 and 0 < measured <= limit
        ok &= kept
        print(
            f"| {path.stem} | {share} % | {limit / MIB:.1f} | {(found['result']['planned_bytes'] or 0) / MIB:.1f}"
            f" | {measured / MIB:.1f} | {seen / MIB:.1f} | {found['claim']['speedup']:.2f} | {'yes' if kept else 'NO'} |",
            flush=True,
        )
    done = run([RIDGE, "optimize", path, "--memory", f"{state // 2048}KiB", "--budget", 20, "--json"])
    print(f"{path.stem}, half of the state: exit {done.returncode}: {done.stderr.strip()[-400:]}", flush=True)
    return ok and done.returncode != 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("configs", nargs="*", type=pathlib.Path)
    parser.add_argument("--limits", type=lambda text: [int(w) for w in text.split(",")], default=[75, 50, 35])
    parser.add_argument("--budget", type=float, default=30)
    parser.add_argument("--steps", type=int, default=5)
    arguments = parser.parse_args()
    configs = arguments.configs or [ROOT / f"{name}.toml" for name in CONFIGS]
    print("| workload | above the state | limit, MiB | planned | measured | process | claim | kept |")
    print("|---|---|---|---|---|---|---|---|")
    return 0 if all([check(path.resolve(), arguments) for path in configs]) else 1


if __name__ == "__main__":
    sys.exit(main())
