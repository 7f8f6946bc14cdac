"""Knob of torch.save: the state is copied, and a thread writes the file.

The file has the same bytes as without, and comes under its name when it is whole. Who could see that
it is not there yet waits: what opens, lists, renames or asks for it, another save, a fork, another
program, the end of the process. What fails is raised by the next save, or ends the process with 1.
"""
import atexit
import functools
import os
import stat
import sys
import threading
import time
import traceback
from collections import OrderedDict

import ridge_cache
from ridge_knob_process import local_ranks
from ridge_knobs import Knob, call_site, offer, refusal

LEAST_SHARE = 0.02  # of the time since the first step
PLAIN = (int, float, complex, str, bytes, bool, type(None))
CONTAINERS = (dict, OrderedDict, list, tuple)
# Events of Python's audit hooks: of a file or folder that the first or the first two arguments name,
# and those that any process could read files behind.
NAMING = {
    "open": 1, "os.listdir": 1, "os.scandir": 1, "os.rename": 2, "os.link": 2, "os.symlink": 2,
    "os.remove": 1, "os.truncate": 1, "os.chmod": 1, "os.chown": 1, "os.utime": 1,
}
STARTING = {
    "os.fork", "os.forkpty", "os.exec", "os.posix_spawn", "os.spawn", "os.system", "subprocess.Popen",
    "os.rmdir", "shutil.rmtree", "shutil.move",
}


def why_in_place(value, torch, sizes):
    """Why a value is not copied; empty where it is plain. `sizes`: of its storages, to be filled."""
    if isinstance(value, torch.Tensor):
        if type(value) not in (torch.Tensor, torch.nn.Parameter) or value.layout != torch.strided:
            return "a tensor of its own kind"
        if value.device.type != "cpu":
            return "tensors on the GPU"
        if not value.is_leaf:
            return "a tensor with a graph"
        if vars(value) or value._backward_hooks or value.is_quantized or value.is_conj() or value.is_neg():
            return "a tensor with more than its elements"
        storage = value.untyped_storage()
        sizes[storage.data_ptr()] = storage.nbytes()
        return ""
    if type(value) in PLAIN:
        return ""
    if type(value) not in CONTAINERS:
        return "an object of %s" % type(value).__name__
    parts = value.values() if isinstance(value, dict) else value
    keys = list(value) if isinstance(value, dict) else []
    attributes = [entry for entry in vars(value).values()] if hasattr(value, "__dict__") else []
    for part in [*keys, *parts, *attributes]:
        why = why_in_place(part, torch, sizes)
        if why:
            return why
    return ""


class Copies:
    """Of plain values: what is one object or one storage is one among the copies, too."""

    def __init__(self, torch):
        self.torch, self.made, self.storages = torch, {}, {}

    def copied(self, value):
        if type(value) in PLAIN:
            return value
        if id(value) not in self.made:
            self.made[id(value)] = self.copy(value)
        return self.made[id(value)]

    def copy(self, value):
        if isinstance(value, self.torch.Tensor):
            return self.tensor(value)
        if type(value) is tuple:
            return tuple(self.copied(part) for part in value)
        if type(value) is list:
            return [self.copied(part) for part in value]
        result = type(value)((self.copied(key), self.copied(part)) for key, part in value.items())
        for name, part in vars(value).items() if hasattr(value, "__dict__") else ():
            setattr(result, name, self.copied(part))
        return result

    def tensor(self, value):
        torch, storage = self.torch, value.untyped_storage()
        if storage._cdata not in self.storages:
            self.storages[storage._cdata] = storage.clone()
        with torch.no_grad():
            result = torch.empty(0, dtype=value.dtype)
            place = value.storage_offset(), value.size(), value.stride()
            result.set_(self.storages[storage._cdata], *place)
        if type(value) is torch.nn.Parameter:
            return torch.nn.Parameter(result, value.requires_grad)
        return result.requires_grad_(value.requires_grad)


def why_not_there(path):
    """Why a file of this name is not to be replaced by another one; empty where it may be."""
    folder = os.path.dirname(path)
    if not os.path.isdir(folder) or not os.access(folder, os.W_OK | os.X_OK):
        return "its folder cannot be written"
    try:
        status = os.lstat(path)
    except OSError:
        return ""
    is_own = stat.S_ISREG(status.st_mode) and status.st_nlink == 1 and status.st_uid == os.geteuid()
    return "" if is_own and os.access(path, os.W_OK) else "a file that has other names or owners"


class Writing:
    """One file, by a thread of its own, which the interpreter does not end without."""

    def __init__(self, save, value, path, name, kwargs):
        self.save, self.value, self.path, self.kwargs = save, value, path, kwargs
        self.name = name  # that the program gave
        self.error = None
        self.thread = threading.Thread(target=self.run, name="ridge-save")
        self.thread.start()

    def run(self):
        # The name of the file is in it: so it is written under this name, in a folder of ours.
        own = os.path.join(os.path.dirname(self.path), ".ridge-save-%d" % os.getpid())
        part = os.path.join(own, self.name)
        try:
            os.mkdir(own)
            try:
                self.save(self.value, part, **self.kwargs)
                if os.path.exists(self.path):
                    os.chmod(part, stat.S_IMODE(os.lstat(self.path).st_mode))
                os.replace(part, self.path)
            finally:
                if os.path.exists(part):
                    os.remove(part)
                os.rmdir(own)
        except BaseException as error:
            self.error = error
        self.value = None

    def concerns(self, path):
        """Whether this is its name, one that leads to it, or its folder."""
        try:
            path = os.path.realpath(os.fsdecode("." if path is None else path))
        except (TypeError, ValueError, OSError):
            return False
        return path in (self.path, os.path.dirname(self.path))

    def wait(self):
        if threading.get_ident() != self.thread.ident:
            self.thread.join()


class Saves(Knob):
    key = "save.background"
    is_told_late = True  # the first save may come behind many steps

    def __init__(self, shim, value):
        super().__init__(shim, value)
        self.torch, self.pending, self.failed = None, None, None
        self.local = threading.local()
        self.pid, self.count = os.getpid(), 0

    # ---- where it is put ----

    def hook_torch(self, torch):
        self.torch = torch
        timed = torch.save
        plain = getattr(timed, "__wrapped__", timed)  # within what the shim notes of saves

        @functools.wraps(plain)
        def save(obj, f, *args, **kwargs):
            self.settle()
            self.raise_failure()
            begin = time.perf_counter_ns()
            writing = None
            if not args and set(kwargs) <= {"pickle_protocol"}:
                writing = self.begun(plain, obj, f, kwargs)
            if writing is None:
                return timed(obj, f, *args, **kwargs)
            self.pending = writing
            self.shim.saves += 1
            self.shim.spans.add("torch.save", begin, time.perf_counter_ns())
            return None

        save._ridge = True
        torch.save = torch.serialization.save = save
        for name in ("stat", "lstat", "access"):
            setattr(os, name, self.waiting(getattr(os, name)))
        os._exit = self.waiting(os._exit, is_end=True)
        sys.addaudithook(self.audit)
        atexit.register(self.at_exit)

    # ---- a save ----

    def begun(self, plain, obj, f, kwargs):
        """Nothing where it is to be written in place."""
        if not self.shim.on or os.getpid() != self.pid:
            return None
        try:
            why, sizes = "", {}
            if not isinstance(f, (str, os.PathLike)):
                why = "no path"
            local = getattr(self.torch.serialization, "_serialization_tls", None)
            if getattr(local, "skip_data", False):
                why = "a file without data"
            distributed = getattr(self.torch, "distributed", None)
            if not why and distributed and distributed.is_available() and distributed.is_initialized():
                why = "several processes that may read the file"
            path = "" if why else os.path.realpath(os.path.abspath(os.fspath(f)))
            why = why or why_not_there(path) or why_in_place(obj, self.torch, sizes)
            if not why:
                ridge_cache.check_free_memory(sum(sizes.values()), local_ranks())
                copy, name = Copies(self.torch).copied(obj), os.path.basename(os.fspath(f))
                writing = Writing(plain, copy, path, name, kwargs)
                self.count += 1
                self.apply("%d files were written by a thread" % self.count, call_site())
                return writing
        except Exception as error:
            why = str(error)[:100]
        if self.state != "applied":
            self.refuse("a save is made in place: %s" % why, call_site())
        return None

    def settle(self):
        writing = self.pending
        if writing is None:
            return
        writing.wait()
        if self.pending is writing:
            self.pending, self.failed = None, self.failed or writing.error

    def raise_failure(self):
        failed, self.failed = self.failed, None
        if failed is not None:
            raise failed

    # ---- who waits ----

    def audit(self, event, args):
        if self.pending is not None and (event in STARTING or event in NAMING):
            self.wait_for([] if event in STARTING else args[: NAMING[event]])

    def wait_for(self, paths):
        """Of no paths: for any file."""
        writing = self.pending
        is_ours = getattr(self.local, "is_within", False)
        if writing is None or is_ours or threading.get_ident() == writing.thread.ident:
            return
        self.local.is_within = True  # what a path leads to is asked for here, too
        try:
            if not paths or any(writing.concerns(path) for path in paths):
                self.settle()
        finally:
            self.local.is_within = False

    def waiting(self, original, is_end=False):
        @functools.wraps(original)
        def call(*args, **kwargs):
            if self.pending is not None:
                self.wait_for([] if is_end else args[:1] or [kwargs.get("path")])
            return original(*args, **kwargs)

        return call

    def at_exit(self):
        if os.getpid() != self.pid:
            return
        self.settle()
        if self.failed is not None:
            traceback.print_exception(type(self.failed), self.failed, self.failed.__traceback__)
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
            self.pending = self.failed = None
            os._exit(1)

    # ---- the probe ----

    @classmethod
    def offers(cls, shim, marker):
        if not watched:
            return [refusal(cls.key, "it saved nothing so far")]
        # Time since the first step would have the probe and the profiler in it.
        saving = 1e-9 * sum(ns for ns, _ in watched)
        share = saving / max(1e-9, saving + shim.steps.count * shim.steps.seconds())
        if share < LEAST_SHARE:
            return [refusal(cls.key, "saves take %.1f %% of the time" % (100 * share))]
        why = next((why for _, why in watched if why), "")
        if why:
            return [refusal(cls.key, "a save has to be made in place: %s" % why)]
        return [offer(cls.key, True, "saves take %d %% of the time" % round(100 * share))]


watched = []  # saves behind the first step: nanoseconds, and why it would be made in place


def watch_torch(shim, torch):
    if not os.environ.get("RIDGE_SHIM_PROBE"):
        return
    original = torch.save

    @functools.wraps(original)
    def save(obj, f, *args, **kwargs):
        begin = time.perf_counter_ns()
        result = original(obj, f, *args, **kwargs)
        if shim.steps.first:
            why = why_in_place(obj, torch, {}) if isinstance(f, (str, os.PathLike)) else "no path"
            watched.append((time.perf_counter_ns() - begin, why))
        return result

    torch.save = torch.serialization.save = save


KNOBS = [Saves]
