"""OUT/logs.tar.gz: all that the programs of the evidence printed, a folder for each task.

    right/losses.gpt_text/01-ridge.command, .in, .out, .err

A part that is made again replaces its own folder; those of other parts stay.
"""

import gzip
import io
import os
import pathlib
import tarfile
import tempfile

NAME = "logs.tar.gz"


def folder_of(part, task):
    """Where the logs of a task lie in the archive."""
    return f"{part}/{task}"


def add(tar, path, name):
    """A file as it is now: it may grow meanwhile, and times and users are nobody's matter."""
    data = path.read_bytes()
    entry = tarfile.TarInfo(name)
    entry.size, entry.mtime = len(data), int(path.stat().st_mtime)
    tar.addfile(entry, io.BytesIO(data))


def kept(path, replaced):
    """(entry, data) of an archive, but for what begins with one of `replaced`. What cannot be read
    of it is lost: the new logs matter more."""
    try:
        with tarfile.open(path, "r:gz") as tar:
            for entry in tar:
                if entry.isfile() and not entry.name.startswith(replaced):
                    yield entry, tar.extractfile(entry).read()
    except (OSError, EOFError, tarfile.TarError):
        return


def add_text(tar, text, name):
    data = text.encode("utf-8", "replace")
    entry = tarfile.TarInfo(name)
    entry.size = len(data)
    tar.addfile(entry, io.BytesIO(data))


def write(path, logs, part, tasks, notes):
    """Puts the logs of `tasks`, folders of `logs`, into the archive in place of those that it has of
    them, and `notes`, {task: text}, as `exception.txt` of each. All of it or nothing: the archive that was there stays until the new one is on the disk.
    OSError where it cannot be written."""
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    replaced = tuple(folder_of(part, task) + "/" for task in tasks)
    handle, new = tempfile.mkstemp(prefix=path.name + ".", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as raw:
            with gzip.GzipFile("", "wb", 6, raw, 0) as file, tarfile.open(fileobj=file, mode="w") as tar:
                for entry, data in kept(path, replaced):
                    tar.addfile(entry, io.BytesIO(data))
                for task in sorted(tasks):
                    if task in notes:
                        add_text(tar, notes[task], f"{folder_of(part, task)}/exception.txt")
                    for each in sorted((pathlib.Path(logs) / task).glob("*")):
                        add(tar, each, f"{folder_of(part, task)}/{each.name}")
            raw.flush()
            os.fsync(raw.fileno())
        os.chmod(new, 0o644)
        os.replace(new, path)
    except BaseException:
        pathlib.Path(new).unlink(missing_ok=True)
        raise
