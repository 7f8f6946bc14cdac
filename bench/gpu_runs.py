"""Programs that the evidence needs, run within a deadline, with all that they print kept.

A child is a session of its own, so that it can be ended with all that it started; what it prints
goes to files, so that a child that says nothing, or too much, holds nothing up. The files of a task
lie in a folder of its name, and in the archive of the results (gpu_logs.py).
"""

import os
import pathlib
import shlex
import signal
import subprocess
import time

MOST_TEXT = 300  # of what a program says about its end
MOST_READ = 64 << 20  # of what a program prints
GRACE = 5  # seconds from the polite signal to the other


class Stopped(Exception):
    """A signal that asks us to end."""

    def __init__(self, number):
        super().__init__(signal.Signals(number).name)
        self.number = number


class Ended:
    """How a child ended: `is_late` when its time was over before it was."""

    def __init__(self, code, out, err, seconds, is_late):
        self.code, self.out, self.err = code, out, err
        self.seconds, self.is_late = seconds, is_late

    def words(self):
        """What it says about its end, in its own words: its error, or else its last line."""
        lines = [line.strip() for line in self.err.splitlines() if line.strip()]
        errors = [line for line in lines if line.startswith("error: ")]
        if errors or lines:
            return (errors or lines)[-1][:MOST_TEXT]
        return "it said nothing"

    def tail(self, lines=20):
        """The last lines of what it said, for the results: all of it is in the archive."""
        return (self.err or self.out).splitlines()[-lines:]


def read_text(path):
    with open(path, "rb") as file:
        return file.read(MOST_READ).decode("utf-8", "replace")


def send(process, number):
    try:
        os.killpg(process.pid, number)
    except ProcessLookupError:
        pass


def end_groups(processes):
    """Ends the children and all of their groups: politely, then not."""
    for process in processes:
        send(process, signal.SIGTERM)
    until = time.monotonic() + GRACE
    for process in processes:
        try:
            process.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            pass
    for process in processes:
        send(process, signal.SIGKILL)
        process.wait()


class Child:
    """A program on its way, and the files of what it reads and prints."""

    def __init__(self, place, words, says, environment, cwd):
        self.out, self.err = (place.with_suffix(f".{name}") for name in ("out", "err"))
        self.begun = time.monotonic()
        self.process, self.refusal = None, ""
        read = place.with_suffix(".in")
        read.write_text(says)
        words = [os.fspath(word) for word in words]
        place.with_suffix(".command").write_text(shlex.join(words) + "\n")
        with open(read, "rb") as in_file, open(self.out, "wb") as out, open(self.err, "wb") as err:
            try:
                self.process = subprocess.Popen(
                    words, stdin=in_file, stdout=out, stderr=err, cwd=cwd, env=environment,
                    start_new_session=True,
                )  # fmt: skip
            except OSError as error:
                self.refusal = f"error: cannot start '{words[0]}': {error.strerror}"
                err.write(self.refusal.encode())

    def ended(self, is_late):
        code = 127 if self.process is None else self.process.returncode
        seconds = time.monotonic() - self.begun
        return Ended(code, read_text(self.out), read_text(self.err), seconds, is_late)


class Runs:
    """Children of one part, in `work`, until `deadline` (of `clock`). What they print lies in `logs`, a
    folder a task."""

    def __init__(self, work, logs, deadline, environment, clock=time.monotonic):
        self.work, self.logs = pathlib.Path(work), pathlib.Path(logs)
        self.deadline, self.clock = deadline, clock
        self.environment = environment
        self.task, self.count = "task", 0

    def begin(self, task):
        """From now on children are of this task."""
        self.task, self.count = task, 0

    def left(self):
        return max(0.0, self.deadline - self.clock())

    def place(self, words):
        folder = self.logs / self.task
        folder.mkdir(parents=True, exist_ok=True)
        self.count += 1
        return folder / f"{self.count:02}-{pathlib.Path(words[0]).name.replace('.', '_')}"

    def run(self, words, limit, says="", **environment):
        """Runs a program to its end, or until `limit` seconds (None: it has none) or the deadline are
        over. `says` is what it reads from stdin, the rest joins its environment."""
        return self.run_beside([(words, environment)], limit, says)[0]

    def run_beside(self, programs, limit, says=""):
        """The same of several side by side, each as (words, what joins its environment)."""
        left = self.left() if limit is None else min(limit, self.left())
        until = time.monotonic() + left
        children, late = [], set()
        try:
            for words, more in programs:
                told = {**self.environment, **more}
                children.append(Child(self.place(words), words, says, told, self.work))
            for child in children:
                try:
                    if child.process is not None:
                        child.process.wait(None if left == float("inf") else max(0.0, until - time.monotonic()))
                except subprocess.TimeoutExpired:
                    late.add(child)
        finally:
            # Also what a child leaves behind: it would run beside the next measurement.
            end_groups([child.process for child in children if child.process is not None])
        return [child.ended(child in late) for child in children]
