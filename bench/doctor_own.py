#!/usr/bin/env python3
"""`ridge doctor` on traces of Ridge's own training: configurations that are sick on purpose.

Each is trained for some steps with --trace, as it is and with what the first finding says to do, in
turn; the doctor reads the trace. Right is a first finding of the rule that belongs to the sickness, and
a measured gain (mean step over mean step, the median of the rounds) within the predicted interval.

Usage: bench/doctor_own.py [--rounds N] [--steps N]
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
RIDGE = ROOT / "build" / "release" / "ridge"

MLP = """[model]
kind = "mlp"
hidden = [1024, 1024]
[data]
kind = "random"
shape = [256]
samples = 4096
[train]
batch = 64
eval_every = 100000
out = "{out}"
"""

# Name, configuration (a file, or a text), what makes it sick, what the finding says to do, its rule.
CASES = (
    ("no loader thread", "bench/optimize/jpeg_cnn.toml", {"loader.workers": 0}, {"loader.workers": 2}, "R01"),
    ("a checkpoint every 4 steps", MLP, {"checkpoint.every": 4}, {"checkpoint.every": 100000}, "R29"),
    ("an evaluation every 4 steps", MLP, {"train.eval_every": 4}, {"train.eval_every": 100000}, "R29"),
)


def traced(config, settings, steps, folder):
    """What the doctor says of a run of its own."""
    trace = folder / "trace.json"
    words = [RIDGE, "train", config, "--steps", steps, "--out", folder / "run", "--trace", trace]
    for key, value in {"train.eval_every": 100000, **settings}.items():
        words += ["--set", f"{key}={value}"]
    done = subprocess.run([str(w) for w in words], cwd=ROOT, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"doctor_own.py: {done.stderr.strip()}")
    done = subprocess.run([str(RIDGE), "doctor", str(trace), "--json"], capture_output=True, text=True)
    if done.returncode > 1:
        sys.exit(f"doctor_own.py: {done.stderr.strip()}")
    return json.loads(done.stdout)


def mean_step(found):
    return found["breakdown_ms"]["busy"] + found["breakdown_ms"]["idle"]


def examine(case, arguments):
    name, config, sick, fixed, rule = case
    gains, ranges, rules = [], [], []
    for _ in range(arguments.rounds):
        steps = {}
        for kind, settings in (("sick", sick), ("fixed", fixed)):
            with tempfile.TemporaryDirectory() as temporary:
                folder = pathlib.Path(temporary)
                path = ROOT / config
                if not config.endswith(".toml"):
                    path = folder / "run.toml"
                    path.write_text(config.format(out=folder / "run"))
                found = traced(path, settings, arguments.steps, folder)
            steps[kind] = mean_step(found)
            if kind == "sick":
                first = [f for f in found["findings"] if f["rule"] != "R00"]
                rules.append(first[0]["rule"] if first else "none")
                ranges.append((first[0]["predicted"]["lo"], first[0]["predicted"]["hi"]) if first else (1, 1))
        gains.append(steps["sick"] / steps["fixed"])
    gain = statistics.median(gains)
    low, high = (statistics.median(ends) for ends in zip(*ranges))
    ok = set(rules) == {rule} and low <= gain <= high
    print(
        f"| {name} | {rule} | {' '.join(sorted(set(rules)))} | {low:.2f} to {high:.2f} | {gain:.2f}"
        f" ({min(gains):.2f} to {max(gains):.2f}) | {'yes' if ok else 'NO'} |",
        flush=True,
    )
    return ok


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=40)
    arguments = parser.parse_args()
    print("| sickness | rule | found first | predicted | measured | right |")
    print("|---|---|---|---|---|---|")
    return 0 if all([examine(case, arguments) for case in CASES]) else 1


if __name__ == "__main__":
    sys.exit(main())
