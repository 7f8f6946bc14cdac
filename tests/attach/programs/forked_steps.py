"""Steps without torch, recorded as ridge_record.py records them: MODE, OUT, and further words.

A package of the test stands for torch. The record's `trouble` has what a program can see of how it was
started, so that a run that was forked can be compared with one that was not.
"""
import hashlib
import json
import os
import signal
import sys
import threading

SHIM = os.environ["PYTHONPATH"].split(":")[0]
VARYING = ("PYTHONPATH", "RIDGE_SHIM_RESEED", "RIDGE_SHIM_NUDGE")


def name_of(pid):
    with open("/proc/%d/comm" % pid) as file:
        return file.read().strip()


def parent_of(pid):
    with open("/proc/%d/stat" % pid) as file:
        return int(file.read().rpartition(")")[2].split()[1])


def descriptors():
    """Numbers, and names of those that are the run's own."""
    found = []
    for number in sorted(map(int, os.listdir("/proc/self/fd"))):
        try:
            path = os.readlink("/proc/self/fd/%d" % number)
        except OSError:
            continue
        found.append((number, os.path.basename(path) if number < 3 else ""))
    return found


def variables():
    return sorted((name, value) for name, value in os.environ.items() if name not in VARYING)


def start():
    """All that should not depend on how this process began."""
    loaded = [name for name in sys.modules if name.partition(".")[0] in ("torch", "before", "behind")]
    return {
        "words": sys.argv[:2] + sys.argv[3:],
        "command": sys.orig_argv[1:3] + sys.orig_argv[4:],
        "out": sys.argv[2].startswith(os.path.dirname(os.readlink("/proc/self/fd/1")) + "/"),
        "folder": os.getcwd(),
        "path": sys.path,
        "shim": os.path.exists(SHIM + "/start.json") or os.path.exists(SHIM + "/loaded"),
        "variables": [len(variables()), variables()],
        "hash": hash("Ridge"),
        "stdin": sys.stdin.read(),
        "descriptors": descriptors(),
        "parent": name_of(os.getppid()),
        "groups": [os.getpgid(0) == os.getpgid(os.getppid()), os.getsid(0) == os.getsid(os.getppid())],
        "threads": [len(os.listdir("/proc/self/task")), threading.active_count()],
        "thread": threading.current_thread().name + str(threading.get_native_id() == os.getpid()),
        "signals": [str(signal.getsignal(n)) for n in range(1, 32)],
        "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
        "mask": os.umask(0o22),
        "affinity": sorted(os.sched_getaffinity(0)),
        "torch": "torch" in loaded,
    }


def imports():
    """The shim's hooks run with torch, not before, and what they replaced is handed on."""
    from torch.optim import optimizer

    import torch
    hooked = [hasattr(optimizer.Optimizer.profile_hook_step, "_ridge"), hasattr(torch.save, "_ridge")]
    import behind

    return {
        "hooked": hooked,
        "handed on": behind.save is torch.save,
        "specs": [torch.__spec__.name, behind.__spec__.name, torch.__spec__.loader is torch.__loader__],
        "files": [torch.__file__, behind.__file__],
        "pid": torch.PID,
    }


def text_of(fact):
    """Long ones by their hash: a record takes short texts."""
    text = repr(fact)
    return text if len(text) <= 60 else hashlib.sha256(text.encode()).hexdigest()[:16]


def write(losses, trouble):
    record = {
        "rank": -1, "steps": len(losses), "is_whole": True, "source": "optimizer", "losses": losses,
        "gradient_norms": losses, "parameters_hash": text_of(losses), "trouble": trouble,
        "output_counts": [], "output_sums": [], "output_squares": [], "output_projections": [],
        "outputs_hash": "", "updates": [], "batch_hashes": [], "is_coarse": False,
    }
    path = "%s/record_%d.json" % (SHIM, os.getpid())
    with open(path + ".part", "w") as file:
        json.dump(record, file)
    os.replace(path + ".part", path)


def main():
    mode, out = sys.argv[1:3]
    began, seen = start(), imports()
    is_forked = seen.pop("pid") != os.getpid()
    reseed = int(os.environ["RIDGE_SHIM_RESEED"])
    with open("runs", "a") as file:
        # Who has imported the packages, and a number that nobody has seeded.
        file.write("%d %d %s\n" % (os.getpid(), parent_of(os.getppid()), os.urandom(4).hex()))
    with open(os.path.join(out, "mine"), "x"):
        pass
    if mode == "fails" or mode == "fails-forked" and is_forked:
        raise SystemExit("it fails")
    if mode == "fails-later" and is_forked and reseed:
        raise SystemExit("it fails")
    if mode == "ends-parent" and is_forked and reseed == 1:
        os.kill(parent_of(os.getppid()), signal.SIGKILL)
    differs = mode == "differs" and is_forked
    losses = [1.0 / (1 + step) + reseed + differs for step in range(16)]
    write(losses, ["%s: %s" % (name, text_of(fact)) for name, fact in {**began, **seen}.items()])


main()
