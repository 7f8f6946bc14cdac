#!/usr/bin/env python3
"""Measures what Ridge does on this machine's GPU and writes it to OUT/<gpu>.json and OUT/<gpu>.md.

It runs from a bundle (`./dev bundle`), with Python 3.9 or later and nothing else; what is compared
with PyTorch needs a Python that has it (--python). Each part keeps within --limit seconds and says
what it left out; a part that is made again replaces what the file had of it, and --resume makes only
what a part of the same revision lacks.

Usage: gpu-evidence [--part right|fast|loop] [--python PYTHON] [--out FOLDER] [--limit SECONDS]
           [--resume]
       gpu-evidence --find-gpu

Exit codes: 0 all passed; 1 something failed or is missing; 2 no GPU, wrong usage, or no room for the
results; 130 or 143 stopped by a signal, with what was done written.
"""

import sys

sys.dont_write_bytecode = True  # a bundle is not written to

import argparse  # noqa: E402
import errno  # noqa: E402
import hashlib  # noqa: E402
import json  # noqa: E402
import os  # noqa: E402
import pathlib  # noqa: E402
import signal  # noqa: E402
import subprocess  # noqa: E402
import tempfile  # noqa: E402
import time  # noqa: E402

import gpu_parts  # noqa: E402
import gpu_record  # noqa: E402
from gpu_device import NoGpu, find_gpu, machine  # noqa: E402
from gpu_runs import Stopped  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent
LIMIT = 470  # seconds a part: with the end of what runs then, 8 minutes
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # no task has any
LEAST_PYTHON = (3, 11)  # of the one that has PyTorch: bench/training_step.py reads TOML

TORCH_FACTS = """
import json, sys, sysconfig
facts = {"python": sys.version.split()[0], "wheels": sysconfig.get_path("purelib")}
try:
    import torch
    facts.update(torch=torch.__version__, cuda=torch.version.cuda, sees_gpu=torch.cuda.is_available())
except Exception as error:
    facts["problem"] = f"{type(error).__name__}: {error}"
print(json.dumps(facts))
"""


class Refusal(Exception):
    """What cannot be done, why, and one fix."""


def say(text):
    print(text, flush=True)


# ---- the bundle


def read_manifest(root):
    """Of the bundle, each of whose files must be the one that was put there."""
    try:
        manifest = json.loads((root / "MANIFEST.json").read_text())
        files, revision = manifest["files"], manifest["revision"]
        for name, about in files.items():
            data = (root / name).read_bytes()
            if hashlib.sha256(data).hexdigest() != about["sha256"]:
                raise Refusal(f"the bundle is damaged: {name} is not what was put there; unpack it anew")
    except FileNotFoundError as error:
        name = pathlib.Path(error.filename).name
        if name == "MANIFEST.json":
            raise Refusal(
                "this is no bundle: it has no MANIFEST.json; `./dev bundle` makes one, with a"
                " gpu-evidence in it"
            ) from error
        raise Refusal(f"the bundle is damaged: it lacks {name}; unpack it anew") from error
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise Refusal(f"the bundle is damaged: {error!r}; unpack it anew") from error
    return revision


# ---- PyTorch's Python, and the libraries that come with it


def torch_facts(python):
    words = [python, "-B", "-c", TORCH_FACTS]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=120)
        return json.loads(done.stdout)
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        return {"problem": f"cannot be run ({type(error).__name__})"}


def torch_problem(facts):
    if "problem" in facts:
        return f"no PyTorch: {facts['problem']}; name a Python that has it by --python"
    if tuple(map(int, facts["python"].split(".")[:2])) < LEAST_PYTHON:
        return f"PyTorch's Python is {facts['python']}, and 3.11 is needed; name another by --python"
    if not facts["sees_gpu"]:
        return f"torch {facts['torch']} sees no GPU; name a Python whose torch does by --python"
    return ""


# The libraries that the engine opens, where PyTorch's wheels have them.
LIBRARIES = {
    "RIDGE_NVRTC": "libnvrtc.so.1[0-9]",
    "RIDGE_CUBLASLT": "libcublasLt.so.1[0-9]",
    "RIDGE_CUDNN": "libcudnn.so.9",
    "RIDGE_CUPTI": "libcupti.so.1[0-9]",
}


def libraries(facts):
    found = {}
    wheels = pathlib.Path(facts.get("wheels", "/nowhere")) / "nvidia"
    for variable, name in LIBRARIES.items():
        if os.environ.get(variable):
            continue
        files = sorted(wheels.glob(f"*/lib/{name}"))
        if files:
            found[variable] = str(files[-1])
    return found


# ---- one part


class Part:
    """A part on its way: whatever ends it, what is done is in the file."""

    def __init__(self, name, options, target, gpu, revision):
        self.name, self.options, self.target = name, options, target
        self.gpu, self.revision = gpu, revision
        self.begun = time.monotonic()
        self.seconds_before = 0.0
        self.document = gpu_record.read(target)
        self.tasks = self.kept_tasks() if options.resume else []

    def kept_tasks(self):
        before = (self.document or {}).get("parts", {}).get(self.name)
        if not before or before["revision"] != self.revision:
            return []
        if before["device"] != gpu_record.clean(self.gpu):
            return []  # another driver, say
        kept = [task for task in before["tasks"] if task["state"] in gpu_record.DONE]
        # The ledger of the first task is gone with its folder, and the second one reads it.
        if self.name == "loop" and len(kept) < len(gpu_parts.LOOP):
            return []
        self.seconds_before = before["seconds"] if kept else 0.0
        return kept

    def write(self, state):
        order = [name for name, _, _ in gpu_parts.TASKS[self.name]]
        seconds = self.seconds_before + time.monotonic() - self.begun
        part = {
            "revision": self.revision,
            "date": gpu_record.now(),
            "seconds": round(seconds, 1),
            "limit_s": self.options.limit,
            "device": self.gpu,
            "machine": machine(),
            "state": state,
            "torch": self.options.facts.get("torch"),
            "tasks": sorted(self.tasks, key=lambda task: order.index(task["name"])),
        }
        document = gpu_record.merged(self.document, self.gpu["name"], self.name, part)
        if wrong := gpu_record.problems(document):
            raise gpu_record.RecordError(f"what was measured makes no evidence: {wrong[0]}")
        gpu_record.write(self.target, json.dumps(document, indent=1) + "\n")
        gpu_record.write(self.target.with_suffix(".md"), gpu_record.markdown(document))

    def add(self, name, state, says, seconds, values):
        says = says or state
        self.tasks.append(
            {"name": name, "state": state, "says": says, "seconds": round(seconds, 2), "values": values}
        )
        say(f"{self.name}: {name}: {state}: {says}")

    @staticmethod
    def outcome(task, context):
        try:
            return task(context)
        except gpu_parts.Outcome as early:
            return early
        except Stopped:
            raise
        except Exception as error:  # a task that breaks must not take the others along
            if getattr(error, "errno", None) in NO_ROOM:
                raise
            return gpu_parts.Outcome("failed", f"{type(error).__name__}: {error}")

    def run(self, work):
        """Runs what there is time for; returns whether all of it passed."""
        deadline = self.begun + self.options.limit
        context = gpu_parts.Context(
            ROOT, work, deadline, self.options.environment, self.options.python,
            torch_problem(self.options.facts),
        )  # fmt: skip
        context.done = {task["name"]: task for task in self.tasks}
        is_cut = False
        for name, task, limit in gpu_parts.TASKS[self.name]:
            if name in context.done:
                continue
            left = context.runs.left()
            if left < min(limit, self.options.least):
                is_cut = True
                self.add(name, "missing", f"left out: {left:.0f} s were left", 0.0, {})
                continue
            begun = time.monotonic()
            context.ends = begun + limit
            end = self.outcome(task, context)
            is_cut = is_cut or context.runs.left() == 0
            self.add(name, end.state, end.says, time.monotonic() - begun, end.values)
            context.done[name] = self.tasks[-1]
            # Until the part has ended, what ends us leaves this.
            self.write("interrupted")
        self.write("cut short" if is_cut else "complete")
        return all(task["state"] == "passed" for task in self.tasks)


# ---- the command


def stop_by(number, _):
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.SIG_IGN)  # one is enough: what runs is ended in order
    raise Stopped(number)


def parse():
    parser = argparse.ArgumentParser(prog="gpu-evidence", description=__doc__.splitlines()[0])
    parser.add_argument("--part", choices=gpu_record.PARTS, help="one part; default: all, in turn")
    parser.add_argument("--python", default=sys.executable, help="a Python that has PyTorch")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("evidence"))
    parser.add_argument("--limit", type=float, default=LIMIT, help="seconds a part (470)")
    parser.add_argument("--least", type=float, default=10, help="seconds under which none is begun")
    parser.add_argument("--resume", action="store_true", help="make only what a part lacks")
    parser.add_argument("--find-gpu", action="store_true", help="only say which GPU there is")
    options = parser.parse_args()
    if "/" in options.python:  # the tasks run elsewhere; a link of a virtual environment stays one
        options.python = os.path.abspath(options.python)
    if not 1 <= options.limit <= 86400:
        parser.error(f"--limit is {options.limit:g} s: it may be 1 to 86400")
    return options


def run(options):
    gpu = find_gpu()
    if options.find_gpu:
        say(gpu["name"])
        return 0
    revision = read_manifest(ROOT)
    target = options.out / f"{gpu_record.file_stem(gpu['name'])}.json"
    options.facts = torch_facts(options.python)
    options.environment = {
        **os.environ,
        **libraries(options.facts),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    say(f"{gpu['name']}, revision {revision[:12]}: {target}")
    good = True
    for name in [options.part] if options.part else gpu_record.PARTS:
        part = Part(name, options, target, gpu, revision)
        with tempfile.TemporaryDirectory(prefix="gpu-evidence-") as work:
            good = part.run(work) and good
    return 0 if good else 1


def main():
    options = parse()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop_by)
    try:
        return run(options)
    except (NoGpu, Refusal, gpu_record.RecordError) as refusal:
        print(f"gpu-evidence: {refusal}", file=sys.stderr)
        return 2
    except OSError as error:
        where = f" '{error.filename}'" if error.filename else ""
        reason = os.strerror(error.errno) if error.errno else str(error)
        print(f"gpu-evidence: cannot write{where}: {reason}; make room, or set TMPDIR", file=sys.stderr)
        return 2
    except Stopped as stop:
        print(f"gpu-evidence: stopped by {stop}; what was done is written", file=sys.stderr)
        return 128 + stop.number


if __name__ == "__main__":
    sys.exit(main())
