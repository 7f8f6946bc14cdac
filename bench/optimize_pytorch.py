#!/usr/bin/env python3
"""What `ridge optimize -- python ...` makes of the programs in examples/pytorch/.

Each is run as it is, with its default threads, loader and batch. A recipe that comes back is then
proved again in fresh processes by `ridge ledger replay`. It runs from a checkout, where pictures and
runs lie in build/, and from a bundle. The results are written behind each program, so that one that
is stopped keeps what it has; those of other programs of the same revision stay in the file. All that
the programs printed is in logs.tar.gz beside it.

Usage: bench/optimize_pytorch.py [--budget SECONDS] [--replays N] [--replay-budget SECONDS]
           [--python PYTHON] [--out FOLDER] [PROGRAM...]

--out FOLDER gets pytorch-gpu-<gpu>.json and .md, or pytorch-cpu.json where there is no GPU. Exits
with 1 where a recipe does not hold what it says (a lower bound below 1, or a replay that is slower),
with 2 where the programs cannot run.
"""

import sys

sys.dont_write_bytecode = True  # a bundle is not written to
if sys.version_info < (3, 11):
    import os

    # The Python of --python has PyTorch, and may be newer than the one of the system.
    words = [part for word in sys.argv for part in (word.split("=", 1) if word.startswith("--python=") else [word])]
    named = next((word for flag, word in zip(words, words[1:]) if flag == "--python"), None)
    if named and not os.environ.get("RIDGE_PYTHON_WAS_NAMED"):
        os.environ["RIDGE_PYTHON_WAS_NAMED"] = "1"
        try:
            os.execvp(named, [named, *sys.argv])
        except OSError as error:
            print("optimize_pytorch.py: cannot start '%s': %s" % (named, error.strerror), file=sys.stderr)
            sys.exit(2)
    print(
        "optimize_pytorch.py: this is Python %d.%d, and 3.11 is needed; name another by --python"
        % sys.version_info[:2],
        file=sys.stderr,
    )
    sys.exit(2)


import argparse  # noqa: E402
import json  # noqa: E402
import os  # noqa: E402
import pathlib  # noqa: E402
import shutil  # noqa: E402
import subprocess  # noqa: E402
import tempfile  # noqa: E402
import time  # noqa: E402
import tomllib  # noqa: E402

import gpu_logs  # noqa: E402
import gpu_record  # noqa: E402
import gpu_runs  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUNDLED = ROOT / "MANIFEST.json"
RIDGE = ROOT / "bin" / "ridge" if BUNDLED.exists() else ROOT / "build" / "release" / "ridge"
EXAMPLES = ROOT / "examples" / "pytorch"

PICTURES = "pictures"  # in the folder where the programs run

# Long enough that a trial need not start anew; the folder of pictures ends when it has been read.
PROGRAMS = {
    "image_classifier": [PICTURES, "--epochs", "100"],
    "fashion_cnn": ["--epochs", "100"],
    "char_gpt": ["--steps", "1000000"],
    "tabular_mlp": ["--epochs", "100"],
    "recommender": ["--epochs", "100"],
    "unet_segmentation": ["--epochs", "100"],
    "finetune": [PICTURES, "--epochs", "100"],
    "predict_folder": [PICTURES],
}

WITHOUT_PICTURES = ("char_gpt", "tabular_mlp", "recommender")  # these do without torchvision

WORTH = 1.25  # what four of the six are to gain at least

# What a verb may take beyond its budget before it is ended: the start of a program with PyTorch, and the
# trial that runs when the budget ends.
MOST_BEYOND = 600
PICTURES_LIMIT = 600

FACTS = """
import json, platform, torch
try:
    import torchvision
except ImportError:
    torchvision = None
has_gpu = torch.cuda.is_available()
print(json.dumps({
    "python": platform.python_version(), "torch": torch.__version__,
    "torchvision": torchvision and torchvision.__version__, "cuda": torch.version.cuda,
    "gpu": torch.cuda.get_device_name() if has_gpu else None,
    "threads": torch.get_num_threads()}))
"""


def fail(text):
    print(f"optimize_pytorch.py: {text}", file=sys.stderr)
    sys.exit(2)


class Programs:
    """Runs of the examples in `folder`, with all that they print kept. What one of them tried is a history for those
    that follow, as on a user's machine; a program's own earlier ledger is none."""

    def __init__(self, folder, python):
        self.folder, self.python = folder, python
        self.logs = folder / "logs"
        self.state = folder / "state"
        environment = {**os.environ, "XDG_STATE_HOME": str(self.state)}
        self.runs = gpu_runs.Runs(folder, self.logs, float("inf"), environment)

    def run_json(self, words, budget):
        """(What a verb of ridge says on stdout with --json, or None, and why it says nothing)"""
        ended = self.runs.run([str(word) for word in words], budget + MOST_BEYOND)
        verb = f"ridge {words[1]}"
        if ended.is_late:
            return None, f"{verb} was stopped after {ended.seconds:.0f} s"
        try:
            return json.loads(ended.out), ""
        except ValueError:
            return None, f"{verb} ended with {ended.code}: {ended.words()}"

    def make_pictures(self):
        """In a folder of its own first: a part of them would be taken for all."""
        pictures = self.folder / PICTURES
        if pictures.exists():
            return
        part = self.folder / "pictures.part"
        self.runs.begin("pictures")
        ended = self.runs.run([self.python, EXAMPLES / "make_pictures.py", part], PICTURES_LIMIT)
        if ended.code != 0:
            fail(f"the pictures cannot be made: {ended.words()}")
        part.rename(pictures)

    def command(self, name):
        words = [self.folder / word if word == PICTURES else word for word in PROGRAMS[name]]
        return [self.python, EXAMPLES / f"{name}.py", *words, "--out", "{out}/result"]


def facts_of(python, names):
    try:
        done = subprocess.run([python, "-c", FACTS], capture_output=True, text=True)
    except OSError as error:
        fail(f"cannot start '{python}': {error.strerror}; name a Python that has PyTorch by --python")
    if done.returncode:
        last = (done.stderr.splitlines() or ["?"])[-1]
        fail(f"{python} cannot run the programs: {last}; name a Python that has PyTorch by --python")
    facts = json.loads(done.stdout)
    blind = [name for name in names if name not in WITHOUT_PICTURES]
    if blind and not facts["torchvision"]:
        fail(f"{python} has no torchvision, which {blind[0]} needs; {', '.join(WITHOUT_PICTURES)} do without")
    return facts


def revision():
    if BUNDLED.exists():
        return json.loads(BUNDLED.read_text())["revision"]
    words = ["git", "-C", ROOT, "describe", "--always", "--abbrev=40", "--dirty"]
    done = subprocess.run(words, capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


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


def optimize(name, programs, options):
    """The claim, and what proving it again in fresh processes says."""
    command = programs.command(name)
    out = programs.state / "ridge" / name
    shutil.rmtree(out, ignore_errors=True)
    programs.runs.begin(name)
    begun = time.monotonic()
    found, problem = programs.run_json(
        [RIDGE, "optimize", "--json", "--budget", options.budget, "--out", out, "--", *command],
        options.budget,
    )
    result = {"program": name, "command": " ".join(map(str, command))}
    if found is None:
        return {**result, "error": problem}
    result["seconds"] = time.monotonic() - begun
    kept = ("claim", "baseline", "result", "trials", "guard", "recipe", "machine", "notes")
    result.update({key: found[key] for key in kept})
    result["knobs"] = knobs_of(found["recipe"]) if found["recipe"] else []
    result["replays"] = []
    if found["recipe"]:
        again = [RIDGE, "ledger", "replay", out / "ledger.jsonl", "--json"]
        again += ["--budget", options.replay_budget, "--", *command]
        result["replays"] = [programs.run_json(again, options.replay_budget)[0] for _ in range(options.replays)]
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


def kept_results(path, evidence, names):
    """Of other programs, where the file that is there is of the same revision, GPU and PyTorch."""
    try:
        before = json.loads(path.read_text())
        same = all(before[key] == evidence[key] for key in ("schema", "revision", "gpu", "torch", "budget_s"))
        return [each for each in before["results"] if same and each["program"] not in names]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--budget", type=float, default=300)
    parser.add_argument("--replays", type=int, default=1)
    parser.add_argument("--replay-budget", type=float, default=60)
    peers = ROOT / "build" / "peers" / "bin" / "python"
    parser.add_argument("--python", default=str(peers) if peers.exists() else sys.executable)
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("programs", nargs="*", metavar="PROGRAM", help=", ".join(PROGRAMS))
    options = parser.parse_args()
    unknown = [name for name in options.programs if name not in PROGRAMS]
    if unknown:
        fail(f"there is no program '{unknown[0]}'; there are {', '.join(PROGRAMS)}")
    if not RIDGE.exists():
        fail("build/release/ridge is missing; ./dev build makes it")
    if "/" in options.python:  # the programs run elsewhere
        options.python = os.path.abspath(options.python)
    return options


def measure(options, folder):
    """Runs the programs in `folder`; returns the results, which are written behind each."""
    names = options.programs or list(PROGRAMS)
    evidence = {
        "schema": "ridge.pytorch_evidence/1",
        "revision": revision(),
        "date": gpu_record.now(),
        **facts_of(options.python, names),
        "budget_s": options.budget,
        "results": [],
    }
    target = None
    if options.out:
        gpu = evidence["gpu"]
        target = options.out / (f"pytorch-gpu-{gpu_record.file_stem(gpu)}.json" if gpu else "pytorch-cpu.json")
        evidence["results"] = kept_results(target, evidence, names)
    programs = Programs(folder, options.python)
    try:
        if any(name not in WITHOUT_PICTURES for name in names):
            programs.make_pictures()
        print(line(COLUMNS), flush=True)
        for name in names:
            evidence["results"].append(optimize(name, programs, options))
            print(line(row(evidence["results"][-1])), flush=True)
            if target:
                gpu_record.write(target, json.dumps(gpu_record.clean(evidence), indent=1) + "\n")
                gpu_record.write(target.with_suffix(".md"), markdown(gpu_record.clean(evidence)))
    finally:
        if target and programs.logs.exists():
            tasks = {path.name for path in programs.logs.iterdir()}
            gpu_logs.write(options.out / gpu_logs.NAME, programs.logs, "pytorch", tasks, {})
    if target:
        print(f"{target}")
    return evidence["results"]


def main():
    options = parse()
    try:
        if BUNDLED.exists():
            with tempfile.TemporaryDirectory(prefix="gpu-evidence-") as folder:
                results = measure(options, pathlib.Path(folder))
        else:
            folder = ROOT / "build" / "optimize_pytorch"
            folder.mkdir(parents=True, exist_ok=True)
            results = measure(options, folder)
    except (OSError, gpu_record.RecordError) as error:
        fail(str(error))
    print(summary(results))
    sys.exit(any(map(is_broken, results)))


if __name__ == "__main__":
    main()
