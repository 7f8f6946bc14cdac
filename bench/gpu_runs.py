"""Programs that the evidence needs, run one after the other within a deadline.

A child is a session of its own, so that it can be ended with all that it started; what it prints
goes to files, so that a child that says nothing, or too much, holds nothing up.
"""

import os
import pathlib
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


def read_text(path):
    with open(path, "rb") as file:
        return file.read(MOST_READ).decode("utf-8", "replace")


def end_group(process):
    """Ends the child and all of its group: politely, then not."""
    for number, wait in ((signal.SIGTERM, GRACE), (signal.SIGKILL, None)):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            pass
        try:
            process.wait(wait)
        except subprocess.TimeoutExpired:
            continue
        if number == signal.SIGKILL:
            return


class Runs:
    """Children of one part, in `work`, until `deadline` (of time.monotonic())."""

    def __init__(self, work, deadline, environment):
        self.work = pathlib.Path(work)
        self.deadline = deadline
        self.environment = environment
        self.count = 0

    def left(self):
        return max(0.0, self.deadline - time.monotonic())

    def run(self, words, limit, says="", **environment):
        """Runs a program to its end, or until `limit` seconds or the deadline are over. `says` is
        what it reads from stdin, the rest joins its environment."""
        self.count += 1
        read, out, err = (self.work / f"{self.count}.{name}" for name in ("in", "out", "err"))
        read.write_text(says)
        begun = time.monotonic()
        seconds = min(limit, self.left())
        with open(read, "rb") as in_file, open(out, "wb") as out_file, open(err, "wb") as err_file:
            try:
                process = subprocess.Popen(
                    [os.fspath(word) for word in words],
                    stdin=in_file,
                    stdout=out_file,
                    stderr=err_file,
                    cwd=self.work,
                    env={**self.environment, **environment},
                    start_new_session=True,
                )
            except OSError as error:
                return Ended(127, "", f"error: cannot start '{words[0]}': {error.strerror}", 0.0, False)
            is_late = False
            try:
                process.wait(seconds)
            except subprocess.TimeoutExpired:
                is_late = True
            finally:
                # Also what a child leaves behind: it would run beside the next measurement.
                end_group(process)
        return Ended(
            process.returncode, read_text(out), read_text(err), time.monotonic() - begun, is_late
        )
