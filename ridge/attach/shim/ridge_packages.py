"""Modules of installed packages, and the variables that a process began with."""
import os
import sys

PACKAGES = ("site-packages", "dist-packages")


def first_environment():
    """Variables as the process got them."""
    with open("/proc/self/environ", "rb") as file:
        entries = file.read().split(b"\0")
    pairs = (os.fsdecode(entry).partition("=") for entry in entries if b"=" in entry)
    found = {name: value for name, _, value in pairs}
    # Python itself sets it in the C locale.
    if "LC_CTYPE" in os.environ:
        found.setdefault("LC_CTYPE", os.environ["LC_CTYPE"])
    return found


def words_of_process():
    with open("/proc/self/cmdline", "rb") as file:
        return [os.fsdecode(word) for word in file.read().split(b"\0")[:-1]]


def changes_of(before):
    """Variables of os.environ that are others than in `before`; None: gone."""
    now = dict(os.environ)
    names = sorted(set(before) | set(now))
    return {name: now.get(name) for name in names if now.get(name) != before.get(name)}


def file_of(module):
    """Of a module as it was found, or "". Nothing of it is asked for that it would have to make."""
    spec = getattr(module, "__dict__", {}).get("__spec__")
    origin = getattr(spec, "origin", None)
    return origin if isinstance(origin, str) else ""


def is_installed(path):
    return any(part in PACKAGES for part in path.split(os.sep))


def installed():
    """[name, file] of the modules of installed packages, in the order in which they were begun."""
    found = []
    # A package that is run by `python -m` is the program itself.
    program = getattr(getattr(sys.modules.get("__main__"), "__spec__", None), "name", "")
    own = program.partition(".")[0]
    for name, module in list(sys.modules.items()):
        path = file_of(module)
        is_it = is_installed(path) and module.__dict__["__spec__"].name == name
        if is_it and name.partition(".")[0] != own:
            found.append([name, path])
    return found
