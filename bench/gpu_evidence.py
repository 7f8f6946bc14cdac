#!/usr/bin/env python3
"""Measures what Ridge does on this machine's GPU and writes it to OUT/<gpu>.json and OUT/<gpu>.md.

It runs from a bundle (`./dev bundle`), with Python 3.9 or later and nothing else; what is compared
with PyTorch needs a Python that has it (--python). Each part keeps within --limit seconds and says
what it left out; a part that is made again replaces what the file had of it, and --resume makes only
what a part of the same revision lacks. Each call begins with the task `smoke`. OUT/logs.tar.gz has
all that the programs printed, by part and task, of a part that failed or was cut too.

Usage: gpu-evidence [--part smoke|fast|right|loop] [--python PYTHON] [--out FOLDER]
           [--limit SECONDS] [--resume]
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
import shutil  # noqa: E402
import signal  # noqa: E402
import stat  # noqa: E402
import subprocess  # noqa: E402
import tempfile  # noqa: E402
import time  # noqa: E402
import traceback  # noqa: E402

import gpu_logs  # noqa: E402
import gpu_parts  # noqa: E402
import gpu_record  # noqa: E402
from gpu_device import NoGpu, find_gpu, machine  # noqa: E402
from gpu_runs import Runs, Stopped  # noqa: E402
from gpu_tasks import Context, Outcome  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # no task after it has any
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


def libraries(facts, cuda):
    """{variable: file} of what the environment does not name. Of a library that is there for several
    versions of CUDA it is the newest that the driver, which is for `cuda` ("13.0"), can load. The file
    of cuDNN does not name its CUDA, which is that of PyTorch."""
    found = {}
    newest = int(cuda.partition(".")[0])
    wheels = pathlib.Path(facts.get("wheels", "/nowhere")) / "nvidia"
    for variable, name in LIBRARIES.items():
        if os.environ.get(variable):
            continue
        files = sorted(wheels.glob(f"*/lib/{name}"), key=lambda file: file.suffix)
        if name.endswith("]"):
            files = [file for file in files if int(file.suffix[1:]) <= newest]
        elif int((facts.get("cuda") or cuda).partition(".")[0]) > newest:
            continue
        if files:
            found[variable] = str(files[-1])
    return found


def make_cache(work):
    """A folder for what the engine keeps from run to run, with the kernels that the bundle has
    compiled already: the bundle itself is not written to."""
    cache = pathlib.Path(work) / "cache"
    shipped = ROOT / "cache"
    if shipped.is_dir():
        shutil.copytree(shipped, cache)
        # A bundle may be read-only, and copies have the modes of what is copied.
        for path in (cache, *cache.rglob("*")):
            path.chmod(path.stat().st_mode | stat.S_IWUSR)
    else:
        cache.mkdir()
    return cache


# ---- one part


class Part:
    """A part on its way: whatever ends it, what is done is in the file, and what was printed in the
    archive beside it."""

    def __init__(self, name, options, target, gpu, revision, work):
        self.name, self.options, self.target = name, options, target
        self.clock = options.clock
        self.gpu, self.revision = gpu, revision
        self.work = pathlib.Path(work) / name
        self.logs = self.work / "logs"
        self.logs.mkdir(parents=True)
        self.begun = self.clock()
        self.seconds_before = 0.0
        self.document = gpu_record.read(target)
        self.tasks = self.kept_tasks() if options.resume else []
        self.notes = {}  # of tasks that broke: how

    def kept_tasks(self):
        before = (self.document or {}).get("parts", {}).get(self.name)
        if not before or before["revision"] != self.revision:
            return []
        if before["device"] != gpu_record.clean(self.gpu):
            return []  # another driver, say
        # A call begins with its first task, whatever was seen before.
        first = gpu_parts.FIRST[0]
        tasks = [task for task in before["tasks"] if task["name"] != first]
        kept = [task for task in tasks if task["state"] in gpu_record.DONE]
        # The ledger of the loop is gone with its folder, and its last task reads it.
        if self.name == "loop" and len(kept) < len(tasks):
            return []
        self.seconds_before = before["seconds"] if kept else 0.0
        return kept

    def write(self, state):
        order = [name for name, _, _ in gpu_parts.TASKS[self.name]]
        seconds = self.seconds_before + self.clock() - self.begun
        part = {
            "revision": self.revision,
            "date": gpu_record.now(),
            "seconds": round(seconds, 1),
            "limit_s": self.options.limit,
            "device": self.gpu,
            "machine": machine(),
            "state": state,
            "torch": self.options.facts.get("torch"),
            "logs": gpu_logs.NAME,
            "tasks": sorted(self.tasks, key=lambda task: order.index(task["name"])),
        }
        document = gpu_record.merged(self.document, self.gpu["name"], self.name, part)
        if wrong := gpu_record.problems(document):
            raise gpu_record.RecordError(f"what was measured makes no evidence: {wrong[0]}")
        gpu_record.write(self.target, json.dumps(document, indent=1) + "\n")
        gpu_record.write(self.target.with_suffix(".md"), gpu_record.markdown(document))

    def write_logs(self):
        """Of the tasks of this call; those that were kept have theirs in the archive."""
        tasks = [path.name for path in self.logs.iterdir()]
        gpu_logs.write(
            self.options.out / gpu_logs.NAME, self.logs, self.name, {*tasks, *self.notes}, self.notes
        )

    def add(self, name, state, says, seconds, values):
        says = says or state
        task = {"name": name, "state": state, "says": says, "seconds": round(seconds, 2), "values": values}
        self.tasks.append({**task, "logs": gpu_logs.folder_of(self.name, name)})
        say(f"{self.name}: {name}: {state}: {says}")

    def outcome(self, name, task, context):
        """How it ends, and whether there is room for another."""
        try:
            return task(context), True
        except Outcome as early:
            return early, True
        except Stopped:
            raise
        except Exception as error:  # a task that breaks must not take the others along
            self.notes[name] = traceback.format_exc()
            has_room = getattr(error, "errno", None) not in NO_ROOM
            fix = "" if has_room else "; make room, or set TMPDIR"
            return Outcome("failed", f"{type(error).__name__}: {error}{fix}"), has_room

    def run(self):
        """Runs what there is time for; returns whether all of it passed."""
        try:
            return self.run_tasks()
        finally:
            self.write_logs()

    def run_tasks(self):
        runs = self.options.make_runs(
            self.work, self.logs, self.begun + self.options.limit, self.options.environment, self.clock
        )
        context = Context(ROOT, runs, self.options.python, torch_problem(self.options.facts))
        context.done = {task["name"]: task for task in self.tasks}
        is_cut, has_room = False, True
        for name, task, limit in gpu_parts.TASKS[self.name]:
            if name in context.done or (name == gpu_parts.FIRST[0] and self.options.is_begun):
                continue
            self.options.is_begun = True
            left = context.runs.left()
            if not has_room or left < min(limit, self.options.least):
                is_cut = True
                reason = f"{left:.0f} s were left" if has_room else "the disk is full"
                self.add(name, "missing", f"left out: {reason}", 0.0, {})
                continue
            begun = self.clock()
            context.begin(name, limit)
            end, has_room = self.outcome(name, task, context)
            is_cut = is_cut or context.runs.left() == 0
            self.add(name, end.state, end.says, self.clock() - begun, end.values)
            context.done[name] = self.tasks[-1]
            # Until the part has ended, what ends us leaves this.
            self.write("interrupted")
            self.write_logs()
        self.write("cut short" if is_cut else "complete")
        return all(task["state"] == "passed" for task in self.tasks)


# ---- the command


def stop_by(number, _):
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.SIG_IGN)  # one is enough: what runs is ended in order
    raise Stopped(number)


def parse(words=None):
    parser = argparse.ArgumentParser(prog="gpu-evidence", description=__doc__.splitlines()[0])
    parser.add_argument("--part", choices=gpu_record.PARTS, help="one part; default: all, in turn")
    parser.add_argument("--python", default=sys.executable, help="a Python that has PyTorch")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("evidence"))
    parser.add_argument("--limit", type=float, default=gpu_parts.LIMIT, help="seconds a part (520)")
    parser.add_argument("--least", type=float, default=10, help="seconds under which none is begun")
    parser.add_argument("--resume", action="store_true", help="make only what a part lacks")
    parser.add_argument("--find-gpu", action="store_true", help="only say which GPU there is")
    options = parser.parse_args(words)
    if "/" in options.python:  # the tasks run elsewhere; a link of a virtual environment stays one
        options.python = os.path.abspath(options.python)
    if not 1 <= options.limit <= 86400:
        parser.error(f"--limit is {options.limit:g} s: it may be 1 to 86400")
    return options


def run(options, make_runs=Runs, clock=time.monotonic):
    """What the command does; its exit code."""
    options.make_runs, options.clock = make_runs, clock
    gpu = find_gpu()
    if options.find_gpu:
        say(gpu["name"])
        return 0
    revision = read_manifest(ROOT)
    target = options.out / f"{gpu_record.file_stem(gpu['name'])}.json"
    options.facts = torch_facts(options.python)
    options.is_begun = False  # the first task of the call
    say(f"{gpu['name']}, revision {revision[:12]}: {target}")
    good = True
    with tempfile.TemporaryDirectory(prefix="gpu-evidence-") as work:
        options.environment = {
            **os.environ,
            **libraries(options.facts, gpu["cuda"]),
            "PYTHONDONTWRITEBYTECODE": "1",
            "XDG_CACHE_HOME": str(make_cache(work)),
        }
        for name in [options.part] if options.part else gpu_record.PARTS:
            good = Part(name, options, target, gpu, revision, work).run() and good
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
