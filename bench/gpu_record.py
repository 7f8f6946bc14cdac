"""The file docs/evidence/<gpu>.json: what it holds, how parts of it are replaced, the table beside it.

    {"schema": "ridge.gpu_evidence/1", "gpu": "NVIDIA H200",
     "parts": {"right": {"revision", "date", "seconds", "limit_s", "device", "machine", "state",
                         "logs": "logs.tar.gz", "tasks": [...]}, ...}}

A part is replaced as a whole, and says itself where it was made: two may be of two machines. Its state is `complete` (each task came to an end), `cut short` (the
deadline left some out) or `interrupted`. A task has `name`, `state` (`passed`, `failed`, or `missing`
with the reason), `says` (one line), `seconds`, `values`: what was measured, raw samples included, and
`logs`: its folder in the archive, which lies beside the file and is no part of a repository.
"""

import datetime
import json
import math
import os
import pathlib
import re
import socket
import tempfile

SCHEMA = "ridge.gpu_evidence/1"
PARTS = ("smoke", "fast", "right", "loop")  # by worth
MADE_BY = {part: f"`./dev gpu-evidence --part {part}`" for part in PARTS}
PART_STATES = ("complete", "cut short", "interrupted")
DONE = ("passed", "failed")
TASK_STATES = (*DONE, "missing")

# After a letter or a number a slash divides: "GB/s".
PATH = re.compile(r"(?<![\w.%])(?:~|\.{1,2})?/(?:[\w.+@%-]+/)*[\w.+@%-]+/?")
WORD = r"(?<![\w-]){}(?![\w-])"


class RecordError(Exception):
    """What is wrong with a file of evidence, and one thing to do about it."""


def now():
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def file_stem(gpu_name):
    """The name of a GPU as that of a file: "NVIDIA H200" becomes nvidia-h200."""
    return re.sub(r"[^a-z0-9]+", "-", gpu_name.lower()).strip("-") or "gpu"


# ---- what must not be in it


def host_names():
    name = socket.gethostname()
    return {part for part in (name, name.split(".")[0]) if len(part) > 1}


def clean(value, hosts=None):
    """`value` without names of this machine: of a path only its last part stays. Numbers that JSON
    has no word for become null."""
    hosts = host_names() if hosts is None else hosts
    if isinstance(value, dict):
        return {str(key): clean(each, hosts) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [clean(each, hosts) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if not isinstance(value, str):
        return value
    text, before = value, None
    while text != before:  # what is left of "//a/b" is a path again
        before = text
        text = PATH.sub(lambda found: found[0].rstrip("/").rsplit("/", 1)[-1], text)
    for host in hosts:
        text = re.sub(WORD.format(re.escape(host)), "HOST", text)
    return text


def texts(value):
    """All texts of a document, keys aside."""
    if isinstance(value, dict):
        for each in value.values():
            yield from texts(each)
    elif isinstance(value, list):
        for each in value:
            yield from texts(each)
    elif isinstance(value, str):
        yield value


# ---- the document


def task_problems(where, task):
    if not isinstance(task, dict):
        yield f"{where} is no object"
        return
    if not isinstance(task.get("name"), str) or not task["name"]:
        yield f"{where} has no name"
    if task.get("state") not in TASK_STATES:
        yield f"{where} has the state {task.get('state')!r}"
    if not isinstance(task.get("says"), str) or not task["says"]:
        yield f"{where} says nothing"
    if not isinstance(task.get("seconds"), (int, float)):
        yield f"{where} has no seconds"
    if not isinstance(task.get("values"), dict):
        yield f"{where} has no values"
    if not isinstance(task.get("logs"), str):
        yield f"{where} has no logs"


def part_problems(name, part):
    if name not in PARTS:
        yield f"part {name!r} is none of {', '.join(PARTS)}"
        return
    if not isinstance(part, dict):
        yield f"part {name} is no object"
        return
    if part.get("state") not in PART_STATES:
        yield f"part {name} has the state {part.get('state')!r}"
    if not re.fullmatch(r"[0-9a-f]{7,40}(-dirty)?", str(part.get("revision"))):
        yield f"part {name} has no revision"
    if not re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", str(part.get("date"))):
        yield f"part {name} has no date"
    for field in ("seconds", "limit_s"):
        if not isinstance(part.get(field), (int, float)):
            yield f"part {name} has no {field}"
    for field in ("device", "machine"):
        if not isinstance(part.get(field), dict):
            yield f"part {name} has no {field}"
    tasks = part.get("tasks")
    if not isinstance(tasks, list) or not tasks:
        yield f"part {name} has no tasks"
        return
    for at, task in enumerate(tasks):
        yield from task_problems(f"part {name}, task {at + 1}", task)
    names = [task.get("name") for task in tasks if isinstance(task, dict)]
    if len(set(map(str, names))) != len(names):
        yield f"part {name} has two tasks of one name"


def problems(document):
    """What is wrong with a document, a line each; empty when nothing is."""
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        return [f"it is no {SCHEMA}"]
    found = []
    if not isinstance(document.get("gpu"), str) or not document["gpu"]:
        found.append("it names no GPU")
    parts = document.get("parts")
    if not isinstance(parts, dict) or not parts:
        return [*found, "it has no parts"]
    for name, part in parts.items():
        found += part_problems(name, part)
    for text in texts(document):
        if path := PATH.search(text):
            found.append(f"it holds a path: {path[0]}")
    return found


def read(path):
    """The document in a file; None where there is no file. RecordError for what is none."""
    try:
        document = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise RecordError(f"cannot read '{path}': {error}; move it away") from error
    if wrong := problems(document):
        raise RecordError(f"'{path}' is no evidence that can be added to: {wrong[0]}; move it away")
    return document


def write(path, text):
    """All of it or nothing: the file that was there stays until the new one is on the disk."""
    part = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, part = tempfile.mkstemp(prefix=path.name + ".", dir=path.parent)
        with os.fdopen(handle, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(part, 0o644)
        os.replace(part, path)
    except BaseException as error:
        if part is not None:
            pathlib.Path(part).unlink(missing_ok=True)
        if not isinstance(error, OSError):
            raise
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise RecordError(f"cannot write '{path}': {reason}; name another folder by --out") from error


def merged(document, gpu, name, part):
    """The document with one part in place of what it had of that name."""
    parts = dict(document["parts"]) if document else {}
    parts[name] = part
    ordered = {each: parts[each] for each in PARTS if each in parts}
    return clean({"schema": SCHEMA, "gpu": gpu, "parts": ordered})


def missing_parts(documents):
    """Parts that no document holds as far as they can be made."""
    held = {
        name
        for document in documents
        for name, part in document["parts"].items()
        if part["state"] != "interrupted"
    }
    return [name for name in PARTS if name not in held]


# ---- the table


def cell(text):
    return text.replace("|", "\\|").replace("\n", " ")


def where(part):
    device = part["device"]
    words = {"driver": device.get("driver"), "CUDA": device.get("cuda"), "torch": part.get("torch")}
    return "".join(f", {name} {value}" for name, value in words.items() if value)


def markdown(document):
    """The document as a page for people; the same for the same document."""
    lines = [f"# Ridge on {document['gpu']}", ""]
    for name, part in document["parts"].items():
        counts = [
            f"{sum(task['state'] == state for task in part['tasks'])} {state}"
            for state in TASK_STATES
        ]
        lines += [
            f"## {name}",
            "",
            f"{part['date']}, revision {part['revision'][:12]}{where(part)}; {part['seconds']:.0f} s of"
            f" {MADE_BY[name]}. {part['state'].capitalize()}: {', '.join(counts)}.",
            "",
            "| task | | what was seen |",
            "|---|---|---|",
            *(
                f"| {cell(task['name'])} | {task['state']} | {cell(task['says'])} |"
                for task in part["tasks"]
            ),
            "",
        ]
    return "\n".join(lines)
