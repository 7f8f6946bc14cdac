"""Verbs of the program whose answer is an object. They run it, and so return what its `--json` is."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any

from ._ridge import UserError

PROGRAM = str(pathlib.Path(__file__).with_name("ridge"))
_ERROR = "error: "

_Path = str | os.PathLike[str]


def doctor(*traces: _Path, **options: Any) -> dict[str, Any]:
    """Says where the steps of a traced program lose time, and how to get it back (ridge.doctor/1).

    Several traces are the ranks of one run. `options` are those of `ridge doctor`: html="report.html".
    """
    return _answer(["doctor", *_flags(options), "--json", *(os.fspath(trace) for trace in traces)])


def optimize(what: _Path | Sequence[str], **options: Any) -> dict[str, Any]:
    """Finds what makes it faster, and proves it (ridge.optimize/1).

    `what` is a file that `ridge optimize` takes, or the words of a command. `options` are those of the
    verb, with _ for -: budget=60, sandbox=True, set={"train.batch": 64}.
    """
    words = ["optimize", *_flags(options), "--json"]
    if isinstance(what, (str, os.PathLike)):
        return _answer([*words, os.fspath(what)])
    return _answer([*words, "--", *what])


def _flags(options: dict[str, Any]) -> Iterator[str]:
    for key, value in options.items():
        flag = "--" + key.replace("_", "-")
        if value is True:
            yield flag
        elif isinstance(value, dict):
            for name, each in value.items():
                yield from (flag, f"{name}={each}")
        elif value is not None and value is not False:
            yield from (flag, os.fspath(value) if isinstance(value, os.PathLike) else str(value))


def _answer(words: Sequence[str]) -> dict[str, Any]:
    errors = []
    with tempfile.TemporaryFile() as out:
        with subprocess.Popen(
            [PROGRAM, *words], stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.PIPE, text=True, errors="replace"
        ) as process:
            assert process.stderr is not None
            for line in process.stderr:
                if line.startswith(_ERROR):
                    errors.append(line.removeprefix(_ERROR).rstrip("\n"))
                else:
                    sys.stderr.write(line)
        out.seek(0)
        text = out.read().decode(errors="replace")
    if process.returncode in (0, 1) and not errors:  # 1: something was found
        answer: dict[str, Any] = json.loads(text)
        return answer
    if errors:
        raise UserError("\n".join(errors))
    raise RuntimeError(f"ridge {words[0]} ended with exit code {process.returncode}")
