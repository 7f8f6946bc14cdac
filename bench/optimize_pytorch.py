#!/usr/bin/env python3
"""What `ridge optimize -- python ...` makes of the programs in examples/pytorch/.

Each is run as it is, with its default threads, loader and batch. A recipe that comes back is then
proved again in fresh processes by `ridge ledger replay`. Pictures are made into build/; the results
are written behind each program, so that one that is stopped keeps what it has.

Usage: bench/optimize_pytorch.py [--budget SECONDS] [--replays N] [--replay-budget SECONDS]
           [--python PYTHON] [--json FILE] [--markdown FILE] [PROGRAM...]

Exits with 1 where a recipe does not hold what it says: a lower bound below 1, or a replay that is
slower.
"""

import argparse
import datetime
import json
import pathlib
import subprocess
import sys
import time
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent
RIDGE = ROOT / "build" / "release" / "ridge"
FOLDER = ROOT / "build" / "optimize_pytorch"
PICTURES = FOLDER / "pictures"
EXAMPLES = ROOT / "examples" / "pytorch"

# Long enough that a trial need not start anew; the folder of pictures ends when it has been read.
PROGRAMS = {
    "image_classifier": [PICTURES, "--epochs", "100"],
    "fashion_cnn": ["--epochs", "100"],
    "char_gpt": ["--steps", "1000000"],
    "tabular_mlp": ["--epochs", "100"],
    "finetune": [PICTURES, "--epochs", "100"],
    "predict_folder": [PICTURES],
}

WORTH = 1.25  # what four of the six are to gain at least

FACTS = """
import json, platform, torch, torchvision
has_gpu = torch.cuda.is_available()
print(json.dumps({
    "python": platform.python_version(), "torch": torch.__version__,
    "torchvision": torchvision.__version__, "cuda": torch.version.cuda,
    "gpu": torch.cuda.get_device_name() if has_gpu else None,
    "threads": torch.get_num_threads()}))
"""


def fail(text):
    sys.exit(f"optimize_pytorch.py: {text}")


def run_json(words):
    """What a verb of ridge says on stdout with --json; what it tells people goes where ours goes."""
    done = subprocess.run([str(word) for word in words], stdout=subprocess.PIPE, text=True)
    if not done.stdout:
        return None
    return json.loads(done.stdout)


def facts_of(python):
    done = subprocess.run([python, "-c", FACTS], capture_output=True, text=True)
    if done.returncode:
        fail(f"{python} cannot run the programs: {(done.stderr.splitlines() or ['?'])[-1]}")
    return json.loads(done.stdout)


def revision():
    words = ["git", "-C", ROOT, "describe", "--always", "--abbrev=40", "--dirty"]
    done = subprocess.run(words, capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


def make_pictures(python):
    """In a folder of its own first: a part of them would be taken for all."""
    if PICTURES.exists():
        return
    FOLDER.mkdir(parents=True, exist_ok=True)
    part = FOLDER / "pictures.part"
    subprocess.run([python, EXAMPLES / "make_pictures.py", part], check=True)
    part.rename(PICTURES)


def flat(table, prefix=""):
    """("loader.cache", True) of the tables of a recipe."""
    for key, value in table.items():
        if isinstance(value, dict):
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def knobs_of(recipe):
    tables = tomllib.loads(recipe)
    changes = [*flat(tables.get("pytorch", {})), *flat(tables.get("environment", {}))]
    return [key if value is True else f"{key}={value}" for key, value in changes]


def optimize(name, options):
    """The claim, and what proving it again in fresh processes says."""
    script = EXAMPLES / f"{name}.py"
    command = [options.python, script, *PROGRAMS[name], "--out", "{out}/result"]
    out = FOLDER / name
    begun = time.monotonic()
    found = run_json(
        [RIDGE, "optimize", "--json", "--budget", options.budget, "--out", out, "--", *command]
    )
    result = {"program": name, "command": " ".join(map(str, command))}
    if found is None:
        return {**result, "error": "ridge optimize said nothing"}
    result["seconds"] = time.monotonic() - begun
    kept = ("claim", "baseline", "result", "trials", "guard", "recipe", "machine", "notes")
    result.update({key: found[key] for key in kept})
    result["knobs"] = knobs_of(found["recipe"]) if found["recipe"] else []
    result["replays"] = []
    if found["recipe"]:
        again = [RIDGE, "ledger", "replay", out / "ledger.jsonl", "--json"]
        again += ["--budget", options.replay_budget, "--", *command]
        result["replays"] = [run_json(again) for _ in range(options.replays)]
    return result


def is_broken(result):
    """Whether a recipe does not hold what it says."""
    if "error" in result:
        return True
    if not result["recipe"]:
        return False
    if result["claim"]["lo"] is None or result["claim"]["lo"] < 1:
        return True
    # A replay with too few pairs has no interval: that proves nothing, either way.
    return any(r is None or (r["hi"] is not None and r["hi"] < 1) for r in result["replays"])


def range_text(claim):
    if claim is None:
        return "no answer"
    if claim["lo"] is None:
        return f"{claim['speedup']:.2f} (no interval)"
    return f"{claim['speedup']:.2f} ({claim['lo']:.2f} to {claim['hi']:.2f})"


COLUMNS = ("program", "claim", "proved again", "seconds", "kept")


def row(result):
    if "error" in result:
        return result["program"], result["error"], "-", "-", "-"
    has_recipe = bool(result["recipe"])
    return (
        result["program"],
        range_text(result["claim"]) if has_recipe else "no recipe",
        ", ".join(map(range_text, result["replays"])) or "-",
        f"{result['seconds']:.0f}",
        ", ".join(result["knobs"]) or "-",
    )


def line(cells):
    name, claim, replays, seconds, kept = cells
    return f"{name:17} {claim:21} {replays:21} {seconds:>7}  {kept}"


def summary(results):
    fast = sum(1 for r in results if r.get("recipe") and r["claim"]["speedup"] >= WORTH)
    broken = sum(map(is_broken, results))
    return f"{fast} of {len(results)} programs at {WORTH} or more; {broken} that do not hold"


def markdown(evidence):
    where = evidence["gpu"] or "no GPU"
    lines = [
        f"# PyTorch programs on {where}",
        "",
        f"Made by `bench/optimize_pytorch.py` on {evidence['date']} at revision"
        f" {evidence['revision']}: torch {evidence['torch']}, CUDA {evidence['cuda']}, a budget of"
        f" {evidence['budget_s']:.0f} s each. The factors are of time, with their bounds.",
        "",
        "| " + " | ".join(COLUMNS) + " |",
        "|---" * len(COLUMNS) + "|",
        *("| " + " | ".join(row(result)) + " |" for result in evidence["results"]),
        "",
        summary(evidence["results"]),
    ]
    return "\n".join(lines) + "\n"


def write(path, text):
    if path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--budget", type=float, default=300)
    parser.add_argument("--replays", type=int, default=1)
    parser.add_argument("--replay-budget", type=float, default=60)
    parser.add_argument("--python", default=str(ROOT / "build" / "peers" / "bin" / "python"))
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--markdown", type=pathlib.Path)
    parser.add_argument("programs", nargs="*", metavar="PROGRAM", help=", ".join(PROGRAMS))
    options = parser.parse_args()
    unknown = [name for name in options.programs if name not in PROGRAMS]
    if unknown:
        fail(f"there is no program '{unknown[0]}'; there are {', '.join(PROGRAMS)}")
    if not RIDGE.exists():
        fail("build/release/ridge is missing; ./dev build makes it")
    evidence = {
        "schema": "ridge.pytorch_evidence/1",
        "revision": revision(),
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        **facts_of(options.python),
        "budget_s": options.budget,
        "results": [],
    }
    make_pictures(options.python)
    print(line(COLUMNS), flush=True)
    for name in options.programs or PROGRAMS:
        evidence["results"].append(optimize(name, options))
        print(line(row(evidence["results"][-1])), flush=True)
        write(options.json, json.dumps(evidence, indent=1) + "\n")
        write(options.markdown, markdown(evidence))
    print(summary(evidence["results"]))
    sys.exit(any(map(is_broken, evidence["results"])))


if __name__ == "__main__":
    main()
