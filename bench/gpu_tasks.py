"""What all tasks of the evidence share: how one ends, and where it runs programs.

A task is a function of the context; it gives a state, a line that says what was seen, and the
values. What the engine refuses (exit code 2) is `missing`, in its own words; what breaks, or misses
its bound, is `failed`.
"""

import json
import os
import pathlib
import re

DEVICE = "cuda"
MIB = 1 << 20

# With exit code 2 and one of these the machine failed, and nothing was refused.
BROKEN = re.compile(r"CUDA_ERROR_|No space left on device|File too large|Disk quota exceeded")


class Outcome(Exception):
    """How a task ends: its state, a line, what was measured. It is returned, or raised from within."""

    def __init__(self, state, says, **values):
        super().__init__(says)
        self.state, self.says, self.values = state, says, values


def passed_if(good, says, **values):
    return Outcome("passed" if good else "failed", says, **values)


def missing(says, **values):
    return Outcome("missing", says, **values)


def ended_with(program, code, words, **values):
    """Of a program that did not do its work: with 2 it refused to, unless the machine failed."""
    if code == 2 and not BROKEN.search(words):
        return missing(f"{program}: {words}", **values)
    return Outcome("failed", f"{program} ended with {code}: {words}", **values)


def program_of(words):
    return os.path.basename(words[0])


class Context:
    """Where the bundle lies, where tasks may write, and what was done before in the same part."""

    def __init__(self, root, runs, python, python_problem, device=DEVICE):
        self.root, self.work = pathlib.Path(root), runs.work
        self.bin = self.root / "bin"
        self.runs = runs
        self.python = python  # that has PyTorch, if any
        self.python_problem = python_problem  # why it has none; empty where it has
        self.device = device  # as `ridge --device` takes it
        self.ends = runs.deadline  # of the task that runs
        self.done = {}  # tasks of this part by name

    def begin(self, name, seconds):
        """The task `name` begins, and may take so long."""
        self.runs.begin(name)
        self.ends = self.runs.clock() + seconds

    def left(self):
        """Seconds that the task has."""
        return min(self.runs.left(), max(0.0, self.ends - self.runs.clock()))

    def run(self, words, **options):
        """Runs a program within the task's time; what did not end by itself ends the task."""
        ended = self.runs.run(words, self.left(), **options)
        if ended.is_late:
            raise missing(
                f"out of time: {program_of(words)} was stopped after {ended.seconds:.0f} s",
                tail=ended.tail(),
            )
        return ended

    def run_well(self, words, codes=(0,), **options):
        """The same where any other exit code ends the task, too."""
        ended = self.run(words, **options)
        if ended.code in codes:
            return ended
        raise ended_with(program_of(words), ended.code, ended.words(), tail=ended.tail())

    def run_json(self, words, codes=(0,), **options):
        """What it prints, as one JSON object."""
        ended = self.run_well(words, codes, **options)
        try:
            value = json.loads(ended.out)
        except ValueError as error:
            raise Outcome("failed", f"{program_of(words)} printed no JSON: {error}") from error
        if not isinstance(value, dict):
            raise Outcome("failed", f"{program_of(words)} printed no JSON object")
        return value

    def ridge(self, *words):
        return [self.bin / "ridge", *words]
