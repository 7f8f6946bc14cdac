"""Has torch's own profiler record a few steady steps, in the program, on the thread that steps.

The parts of torch.autograd.profiler that torch.profiler is made of are used alone: the latter
imports the whole compiler before it records anything.
"""
import functools
import json
import os
import threading
import time

clock = time.perf_counter_ns
LONG_STEP = 4  # seconds: fewer of such are recorded
MOST_SECONDS = 30
MOST_BYTES = 1 << 30  # that the process may grow by: some two million events
LEAST_BYTES = 32 << 20  # less is soon full
PROC, GROUPS = "/proc", "/sys/fs/cgroup"
STACK_STEPS = 2
MOST_TRIES = 3
OWN = "failed: the program uses torch.profiler itself"


def number_in(name, default):
    try:
        return float(os.environ.get("RIDGE_SHIM_" + name, default))
    except ValueError:
        return default


def resident_bytes():
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


def free_memory():
    """Bytes that the process may still take: of the machine, and of its control groups."""
    free = [1024 * entries_of(PROC + "/meminfo").get("MemAvailable:", 1 << 40)]
    for limit, used, stat, cached in group_files():
        try:
            most, now = int(text_of(limit)), int(text_of(used))
        except (OSError, ValueError):  # of another layout, or without a limit: "max"
            continue
        free.append(most - now + entries_of(stat).get(cached, 0))
    return max(0, min(free))


def text_of(path):
    with open(path, "rb") as file:
        return file.read().decode("utf-8", "replace")


def entries_of(path):
    """Of a file with a name and a number in each line."""
    try:
        rows = [line.split() for line in text_of(path).splitlines()]
        return {row[0]: int(row[1]) for row in rows if len(row) > 1 and row[1].isdigit()}
    except OSError:
        return {}


def group_files():
    """Of each group that the process is in: its limit, what it uses, and what of that is cached.
    Within a container the names can be those outside, and the root is its own."""
    kinds = {
        "": (GROUPS, "memory.max", "memory.current", "inactive_file"),
        "memory": (
            GROUPS + "/memory",
            "memory.limit_in_bytes",
            "memory.usage_in_bytes",
            "total_inactive_file",
        ),
    }
    try:
        lines = text_of(PROC + "/self/cgroup").splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, name = (line.split(":", 2) + ["", ""])[:3]
        if controllers not in kinds:
            continue
        root, limit, used, cached = kinds[controllers]
        parts = [part for part in name.split("/") if part]
        for depth in range(len(parts) + 1):
            at = "/".join([root] + parts[:depth]) + "/"
            yield at + limit, at + used, at + "memory.stat", cached


def free_disk(folder):
    room = os.statvfs(folder)
    return room.f_bavail * room.f_frsize


def bytes_for(folder):
    """How much the process may grow by while it is recorded, and why that is too little, or "".
    A recording is held in memory and written, perhaps into memory too; the program needs some."""
    memory, disk = free_memory(), free_disk(folder)
    most = min(MOST_BYTES, memory // 4, disk // 2)
    if most >= LEAST_BYTES:
        return most, ""
    if memory // 4 <= disk // 2:
        return most, "failed: only %d MiB of memory are free" % (memory >> 20)
    return most, "failed: only %d MiB are free in '%s'" % (disk >> 20, os.path.dirname(folder))


def remove_old(folder, pid):
    """What an earlier process with this number left: it is not this one's."""
    for kind in ("facts", "spans", "trace", "stacks"):
        for end in (".json", ".json.part", ".part.json"):
            try:
                os.remove(os.path.join(folder, "%s_%d%s" % (kind, pid, end)))
            except OSError:
                pass


class Recording:
    def __init__(self, shim):
        self.shim = shim
        remove_old(shim.folder, shim.pid)
        steps = int(number_in("STEPS", 8))
        self.warm_steps = number_in("WARM_STEPS", 10)
        self.warm_seconds = number_in("WARM_SECONDS", 5)
        self.most_seconds = number_in("MOST_SECONDS", 40)
        # Stacks slow programs of small operators down, so the steps that are timed have none.
        self.plan = [("trace", steps, False), ("stacks", min(STACK_STEPS, steps), True)]
        self.state = "waiting"
        if steps <= 0:
            self.plan, self.state = [], "off"
        self.torch, self.is_kineto_up = None, False
        self.profiler = self.label = None
        self.is_running, self.is_ours = False, False
        self.name, self.has_labels = "", True
        self.current, self.tries = None, 0
        self.wanted, self.done, self.thread = 0, 0, 0
        self.began, self.bytes, self.prepared = 0, 0, 0
        self.most_bytes = MOST_BYTES

    def is_busy(self):
        return self.profiler is not None

    def is_idle(self, count):
        """Nothing is recorded, and no number of steps alone begins it."""
        if self.profiler is not None:
            return False
        return not self.plan or self.state == "waiting" and count > self.warm_steps

    def forget(self):
        self.plan, self.profiler, self.label = [], None, None

    def forget_in_child(self):
        """Libkineto waits at exit for a thread that a forked child does not have, so a child ends
        before that: its files closed, with the code that it has."""
        if self.is_kineto_up:
            try:
                import ctypes

                libc = ctypes.CDLL(None)
                libc.on_exit(libc._exit, None)
                libc.on_exit(libc.fcloseall, None)  # called before the one above
            except Exception:
                pass
        self.forget()

    # ---- the program's own use of the profiler ----

    def hook(self, torch):
        self.torch = torch
        module = torch.autograd.profiler
        for owner, name in (
            (module, "_prepare_profiler"),
            (module, "_enable_profiler"),
            (torch.profiler.profile, "start"),
        ):
            original = getattr(owner, name)
            if not hasattr(original, "_ridge"):
                setattr(owner, name, self.guarded(original))

    def guarded(self, original):
        @functools.wraps(original)
        def call(*args, **kwargs):
            if not self.is_ours:
                self.step_aside()
            return original(*args, **kwargs)

        call._ridge = True
        return call

    def step_aside(self):
        try:
            if self.profiler is None:
                if self.plan:
                    self.state = OWN if self.state == "waiting" else "written"
                    self.plan = []
            elif threading.get_ident() == self.thread:
                self.stop(OWN)
        except Exception as error:
            self.fail(error)

    def before_fork(self):
        """A child that inherits a running recording can crash in it: also the workers of a loader
        whose epoch begins. What there is is kept where it is half at least, or tried anew."""
        try:
            if self.profiler is None or threading.get_ident() != self.thread:
                return
            if self.tries >= MOST_TRIES or self.done * 2 >= self.wanted:
                self.stop("failed: the program starts processes all the time")
                return
            self.tries += 1
            self.plan.insert(0, self.current)
            self.end_profiler()
            self.state = "waiting" if self.name == "trace" else "recording"
        except Exception as error:
            self.fail(error)

    # ---- from step to step ----

    def is_steady(self, now):
        steps = self.shim.steps
        went = (now - steps.first) * 1e-9
        if steps.count >= self.warm_steps and went >= self.warm_seconds:
            return True
        return went >= self.most_seconds and steps.count > 1

    def at_mark(self, now):
        if not self.plan and self.profiler is None:
            return
        try:
            if self.profiler is None:
                if self.is_steady(now):
                    self.prepare(now)
            elif threading.get_ident() != self.thread:
                pass
            elif not self.is_running:
                self.start()
            else:
                self.next_step(now)
        except Exception as error:
            self.fail(error)

    def within_step(self, now):
        """Of a step that is longer than what is recorded, a part."""
        if self.is_running and self.label is None and self.is_much(now):
            if threading.get_ident() == self.thread:
                self.stop()

    def is_much(self, now):
        grown = resident_bytes() - self.bytes
        return (now - self.began) * 1e-9 > MOST_SECONDS or grown > self.most_bytes

    def prepare(self, now):
        name, steps, with_stack = self.plan[0]
        torch, usual = self.torch, self.shim.steps.seconds()
        module = torch.autograd.profiler
        if getattr(module, "_is_profiler_enabled", False):
            self.state, self.plan = OWN, []
            return
        is_giant = usual > MOST_SECONDS
        if is_giant and not self.shim.loader_waits > 2 * self.shim.steps.count:
            self.plan = []
            self.state = "failed: a step takes %d s, too long to be recorded" % usual
            return
        if usual > LONG_STEP:
            steps = max(1, min(steps, int(MOST_SECONDS / usual)))
        self.current = self.plan.pop(0)
        self.most_bytes, why = bytes_for(self.shim.folder)
        if name == "stacks" and (why or usual * steps > MOST_SECONDS / 2):
            self.state = "written"
            self.shim.write()
            return
        if why:
            self.state, self.plan = why, []
            self.shim.write()
            return
        self.name, self.wanted, self.done, self.has_labels = name, steps, 0, not is_giant
        self.thread, self.began, self.bytes = threading.get_ident(), now, resident_bytes()
        self.prepared = now
        self.state = "recording"
        options = {"record_shapes": True, "with_stack": with_stack, "use_kineto": True}
        if torch.cuda.is_initialized():
            is_new = "use_device" in module.profile.__init__.__code__.co_varnames
            options["use_device" if is_new else "use_cuda"] = "cuda" if is_new else True
        self.profiler, self.is_kineto_up = module.profile(**options), True
        # Sets up what records devices, a step before anything is recorded.
        self.call(self.profiler._prepare_trace)
        self.shim.write()

    def call(self, function, *args):
        self.is_ours = True
        try:
            return function(*args)
        finally:
            self.is_ours = False

    def start(self):
        self.call(self.profiler._start_trace)
        self.is_running = True
        self.began = clock()
        self.name_rank()
        self.open_label()

    def name_rank(self):
        try:
            group = self.torch.distributed
            if group.is_available() and group.is_initialized():
                facts = {"rank": group.get_rank(), "world_size": group.get_world_size()}
                self.torch.autograd._add_metadata_json("distributedInfo", json.dumps(facts))
        except Exception:
            pass

    def open_label(self):
        if self.has_labels:
            name = "ProfilerStep#%d" % (self.shim.steps.count + 1)
            self.label = self.torch.autograd.profiler.record_function(name)
            self.label.__enter__()

    def close_label(self):
        label, self.label = self.label, None
        if label is not None:
            label.__exit__(None, None, None)

    def next_step(self, now):
        self.close_label()
        self.done += 1
        if self.done >= self.wanted or self.is_much(now):
            self.stop()
        else:
            self.open_label()

    # ---- the end ----

    def stop(self, why=""):
        """Writes what was recorded. `why`: it is not whole, and this is the state without it."""
        self.state = "writing"
        profiler, was_running = self.end_profiler()
        is_first = self.name == "trace"
        has_steps = was_running and (self.done > 0 or not self.has_labels)
        if has_steps and (is_first or not why):
            self.write(profiler)
        self.shim.spans.add("ridge profiling", self.prepared, clock())
        if is_first and not has_steps:
            self.state, self.plan = why, []
        elif why or not self.plan:
            self.state, self.plan = "written", []
        else:
            self.state = "recording"
        self.shim.write()

    def end_profiler(self):
        self.close_label()
        profiler, self.profiler = self.profiler, None
        was_running, self.is_running = self.is_running, False
        if not was_running:  # prepared alone: only a start and a stop lay that down
            self.call(profiler._start_trace)
        profiler.__exit__(None, None, None)
        return profiler, was_running

    def write(self, profiler):
        stem = os.path.join(self.shim.folder, "%s_%d" % (self.name, self.shim.pid))
        part = stem + ".part.json"
        profiler.export_chrome_trace(part)
        os.replace(part, stem + ".json")

    def fail(self, error):
        text = str(error).strip().split("\n")[0][:200] or type(error).__name__
        if self.state != "written":
            self.state = "failed: " + text
        profiler, was_running = self.profiler, self.is_running
        self.plan, self.profiler, self.label, self.is_running = [], None, None, False
        if was_running:
            try:
                profiler.__exit__(None, None, None)
            except Exception:
                pass

    def at_exit(self):
        try:
            if self.profiler is None:
                if self.state == "recording":
                    self.state = "written"
                elif self.state == "waiting" and self.shim.steps.count > 0:
                    self.state = "failed: the program ended before its steps were steady"
            elif threading.get_ident() == self.thread:
                left = self.wanted - self.done
                self.stop("failed: the program ended while it was recorded")
                if self.state == "written":
                    self.shim.note("the program ended %d steps before all were recorded" % left)
            else:
                self.forget()
                self.state = "failed: the program ended while it was recorded"
        except Exception as error:
            self.fail(error)
