"""What Ridge sees of a program in PyTorch: steps, waits for data, saves (ridge/attach/shim.h).

Nothing here prints, raises into the program, or touches its random numbers and settings.
"""
import atexit
import functools
import gc
import json
import os
import sys
import threading
import time
import weakref
from collections import deque

clock = time.perf_counter_ns
get_thread = threading.get_ident
LONG_COLLECTION_NS = 1_000_000
MOST_SPAN_BYTES = 64 << 20
MOST_ROWS = 20_000  # that wait for being written
FLUSH_NS = 500_000_000
MOST_NOTES = 20
MOST_LOADERS = 16


def never():
    return False


is_compiling = never  # torch's, once it is imported
_shim = None


def the_shim(folder, load):
    global _shim
    if _shim is None:
        _shim = Shim(folder, load)
    return _shim


def write_whole(path, text):
    """Replaces a file, so that a reader sees the old or the new one."""
    part = path + ".part"
    number = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        os.write(number, text.encode("utf-8", "replace"))
    finally:
        os.close(number)
    os.replace(part, path)


class Spans:
    """A Chrome trace that grows. The file is opened anew for each piece: a program may close all
    descriptors that it does not know."""

    def __init__(self, path, process):
        self.path, self.process = path, process
        self.pid = os.getpid()
        self.rows, self.threads, self.written, self.dropped = [], set(), 0, 0
        self.zero, self.wall_zero = clock(), time.time_ns()
        self.lock = threading.Lock()
        self.is_kept = not os.environ.get("RIDGE_SHIM_NO_SPANS")

    def add(self, name, begin, end, number=0):
        """`number`: of the thread, where it is not the one that calls."""
        if not self.is_kept:
            return
        if len(self.rows) < MOST_ROWS:
            self.rows.append((name, number or threading.get_native_id(), begin, end))
        else:
            self.dropped += 1

    def wall(self, at):
        return self.wall_zero + at - self.zero

    def name_thread(self, number):
        self.threads.add(number)
        if number == self.pid:
            return self.metadata("thread_name", number, "MainThread")
        # current_thread() would add an object of its own for a thread that Python does not know.
        names = {thread.native_id: thread.name for thread in threading.enumerate()}
        return self.metadata("thread_name", number, names.get(number, "thread %d" % number))

    def metadata(self, what, number, name):
        row = {"ph": "M", "name": what, "pid": self.pid, "tid": number, "args": {"name": name}}
        return ",\n" + json.dumps(row)

    def head(self):
        return '{"baseTimeNanoseconds":%d,"displayTimeUnit":"ms","traceEvents":[\n%s' % (
            self.wall_zero,
            self.metadata("process_name", self.pid, self.process)[2:],
        )

    def flush(self, is_last=False):
        # Not two at a time; a collection can also run within, and find the lock taken.
        if not self.lock.acquire(False):
            return
        try:
            rows = self.rows[:]
            del self.rows[: len(rows)]
            if self.written > MOST_SPAN_BYTES:
                self.dropped += len(rows)
                rows = []
            if rows or is_last and self.written > 0:
                self.append(rows, is_last)
        finally:
            self.lock.release()

    def append(self, rows, is_last):
        pieces = [self.head()] if self.written == 0 else []
        pid, zero = self.pid, self.zero
        for name, number, begin, end in rows:
            if number not in self.threads:
                pieces.append(self.name_thread(number))
            # Microseconds as nanoseconds e-3: of thousands a second, integers are cheap to write.
            pieces.append(
                f',\n{{"ph":"X","cat":"user_annotation","name":"{name}","pid":{pid},"tid":{number},'
                f'"ts":{begin - zero}e-3,"dur":{end - begin}e-3}}'
            )
        if is_last:
            pieces.append("\n]}\n")
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        number = os.open(self.path, flags | (os.O_TRUNC if self.written == 0 else 0), 0o600)
        try:
            self.written += os.write(number, "".join(pieces).encode("utf-8", "replace"))
        finally:
            os.close(number)


class Steps:
    """When steps end. Of several optimizers the one that stepped first says so.

    Any thread may mark, wait for data and so write. Nobody waits for the lock: a collection can
    run within, and call anything.
    """

    def __init__(self, shim):
        self.shim = shim
        self.source, self.marker, self.thread = "", None, 0
        self.marker_id = 0  # of the object that is marked by, while it lives
        self.is_idle = False  # only time can begin a recording
        self.ends = []  # of steps that settle() has not seen
        self.count, self.others, self.begun, self.number = 0, 0, 0, 0
        self.first, self.last = 0, 0
        self.lately = deque(maxlen=99)
        self.lock = threading.Lock()

    def takes_over(self, marker, source):
        if source == "module" and self.source == "optimizer":
            return False
        if self.marker is not None and self.marker() is not None:
            if source == self.source:
                self.others += 1
                if self.others < 50:
                    return False
            elif self.shim.recording.is_busy():
                return False
        if source != self.source:
            self.count, self.first = 0, 0
            self.lately.clear()
        self.source, self.marker = source, weakref.ref(marker, self.forget_marker)
        self.marker_id = id(marker)
        self.thread, self.begun, self.is_idle = get_thread(), 0, False
        return True

    def forget_marker(self, marker):
        if marker is self.marker:
            self.marker_id = 0

    def settle(self):
        """Makes ranges of the steps whose ends alone were noted; who has the lock does so too."""
        if self.lock.acquire(False):
            try:
                self.settle_locked()
            finally:
                self.lock.release()

    def settle_locked(self):
        # Ends that come meanwhile stay.
        ends = self.ends[:]
        del self.ends[: len(ends)]
        if ends:
            self.others, self.last = 0, ends[-1]
            self.lately.extend(b - a for a, b in zip([self.begun] + ends, ends))
        add, begun = self.shim.spans.add, self.begun
        for count, end in enumerate(ends, self.count + 1):
            add(f"Step#{count}", begun, end, self.number)
            begun = end
        self.count, self.begun = self.count + len(ends), begun

    def mark(self, marker, source, now):
        """Whether a step ended here."""
        if self.lock.acquire(False):
            try:
                return self.mark_locked(marker, source, now)
            finally:
                self.lock.release()
        is_next = id(marker) == self.marker_id and get_thread() == self.thread
        if is_next:
            self.ends.append(now)
        return is_next

    def mark_locked(self, marker, source, now):
        self.settle_locked()
        if self.marker is None or self.marker() is not marker:
            if not self.takes_over(marker, source):
                return False
        elif get_thread() != self.thread:
            if self.shim.recording.is_busy():
                return False
            self.thread, self.begun, self.is_idle = get_thread(), 0, False
        self.count += 1
        self.others = 0
        self.last = now
        if self.first == 0:
            self.first = now
        shim = self.shim
        self.number = threading.get_native_id()
        if self.begun:
            shim.spans.add("Step#%d" % self.count, self.begun, now, self.number)
            if not shim.recording.is_busy():
                self.lately.append(now - self.begun)
        shim.recording.at_mark(now)
        self.is_idle = shim.recording.is_idle(self.count)
        shim.tick(now)
        self.begun = clock()  # what we took ourselves is in no step
        return True

    def seconds(self):
        lately = sorted(self.lately)
        return lately[len(lately) // 2] * 1e-9 if lately else 0.0


class Shim:
    def __init__(self, folder, load):
        self.on = True
        self.pid = os.getpid()
        self.folder, self.load = folder, load
        self.program = self.program_name()
        self.spans = Spans(os.path.join(folder, "spans_%d.json" % self.pid), self.program)
        self.steps = Steps(self)
        self.recording = load("ridge_profile").Recording(self)
        self.calls = load("ridge_calls").Calls(self)
        self.torch, self.has_run_before = None, False
        self.loaders, self.loader_ns, self.loader_waits = [], 0, 0
        self.iterations, self.saves = 0, 0
        self.notes, self.forks = [], 0
        self.next_flush = 0
        self.writing, self.is_asked = threading.Lock(), False
        self.collection = 0
        self.parts = [part for part in map(self.part, asked_parts(folder)) if part is not None]
        os.register_at_fork(
            before=self.recording.before_fork,
            after_in_parent=self.forked,
            after_in_child=self.switch_off,
        )

    def part(self, name):
        try:
            return self.load(name).Part(self)
        except Exception as error:
            self.trouble(name, error)
            return None

    @staticmethod
    def program_name():
        path = (getattr(sys, "argv", None) or [""])[0]
        name = os.path.basename(path)
        if name == "__main__.py":  # python -m package
            name = os.path.basename(os.path.dirname(path))
        return name or "python"

    # ---- what the program did ----

    def stepped(self, marker, source):
        if not self.on:
            return
        # What is done at each of thousands of steps a second is as little as can be.
        steps, now = self.steps, clock()
        if (
            id(marker) == steps.marker_id
            and steps.is_idle
            and now < self.next_flush
            and get_thread() == steps.thread
        ):
            steps.ends.append(now)
            ended = True
        else:
            try:
                ended = steps.mark(marker, source, now)
            except Exception as error:
                self.trouble("steps", error)
                return
        if ended:
            for part in self.parts:
                part.at_step(marker)

    def waited(self, iterator, begin):
        try:
            now = clock()
            workers = getattr(iterator, "_num_workers", 0)
            self.spans.add(
                "DataLoader.__next__ (workers)" if workers else "DataLoader.__next__", begin, now
            )
            self.loader_waits += 1
            if get_thread() == self.steps.thread:
                self.loader_ns += now - begin
                self.recording.within_step(now)
            self.tick(now)
        except Exception as error:
            self.trouble("loaders", error)

    def iterated(self, loader, begin):
        self.iterations += 1
        try:
            self.spans.add("DataLoader.__iter__", begin, clock())
            fact = loader_fact(loader)
            if fact not in self.loaders and len(self.loaders) < MOST_LOADERS:
                self.loaders.append(fact)
        except Exception as error:
            self.trouble("loaders", error)

    def collected(self, phase, _):
        if phase == "start":
            self.collection = clock()
        elif self.on and self.collection:
            now = clock()
            if now - self.collection > LONG_COLLECTION_NS:
                self.spans.add("gc.collect", self.collection, now)

    def forked(self):
        self.forks += 1

    def switch_off(self):
        """In a process that was forked: what it does is not the program's training."""
        self.on = False
        self.recording.forget_in_child()
        self.spans.rows.clear()
        self.steps.ends.clear()

    def note(self, text):
        if text not in self.notes and len(self.notes) < MOST_NOTES:
            self.notes.append(text)

    def trouble(self, where, error):
        self.note("%s could not be seen: %s" % (where, str(error)[:200] or type(error).__name__))

    # ---- what is written ----

    def tick(self, now):
        if now >= self.next_flush or len(self.spans.rows) > MOST_ROWS // 2:
            self.next_flush = now + FLUSH_NS
            self.write()

    def write(self, is_last=False):
        """Who finds another thread at it leaves it to that one, and only the last word waits."""
        self.is_asked = True
        while self.is_asked and self.writing.acquire(is_last, 1 if is_last else -1):
            try:
                self.is_asked = False
                self.write_now(is_last)
            finally:
                self.writing.release()
            if is_last:
                break

    def write_now(self, is_last):
        # The folder is gone when Ridge is: there is nobody to write for.
        try:
            self.steps.settle()
            self.spans.flush(is_last)
            write_whole(
                os.path.join(self.folder, "facts_%d.json" % self.pid), json.dumps(self.facts())
            )
        except OSError as error:
            if not os.path.isdir(self.folder):
                self.on = False
                self.recording.fail(error)
        except Exception as error:
            self.trouble("what is written", error)

    def facts(self):
        steps, torch, spans = self.steps, self.torch, self.spans
        notes = list(self.notes)
        if self.forks:
            one, many = "process was forked; it is", "processes were forked; they are"
            notes.append("%d %s not looked into" % (self.forks, one if self.forks == 1 else many))
        if spans.dropped:
            notes.append("%d ranges were more than is kept" % spans.dropped)
        facts = {
            "pid": self.pid,
            "program": self.program,
            "python": "%d.%d.%d" % sys.version_info[:3],
            "torch": str(getattr(torch, "__version__", "")),
            "rank": whole_number(os.environ.get("RANK"), -1),
            "world": whole_number(os.environ.get("WORLD_SIZE"), 0),
            "step_source": steps.source,
            "steps": steps.count,
            "first_step_wall_ns": spans.wall(steps.first) if steps.first else 0,
            "last_step_wall_ns": spans.wall(steps.last) if steps.last else 0,
            "step_seconds": steps.seconds(),
            "loader_seconds": self.loader_ns * 1e-9,
            "loaders": self.loaders,
            "profile": self.recording.state,
            "notes": notes,
        }
        if steps.count and torch is not None:
            # Before the first step the question could settle what the program still wants to set.
            facts.update(self.load("ridge_device").facts(torch))
        for part in self.parts:
            facts.update(part.facts())
        return facts

    def end(self):
        if self.on and os.getpid() == self.pid:
            self.calls.stop()
            self.recording.at_exit()
            self.on = False
            self.write(is_last=True)
        self.on = False

    # ---- where it is put into torch ----

    def hook_optimizer(self, module):
        """Steps are marked behind the range that torch draws around each of them."""
        self.run_hooks("hook_optimizer", module)
        optimizer = module.Optimizer
        original = optimizer.profile_hook_step
        if hasattr(original, "_ridge"):
            return

        @functools.wraps(original)
        def profile_hook_step(func):
            self.calls.optimizer_was_made()
            hooked = original(func)

            @functools.wraps(hooked)
            def step(*args, **kwargs):
                if is_compiling():
                    return hooked(*args, **kwargs)
                result = hooked(*args, **kwargs)
                if args:
                    self.stepped(args[0], "optimizer")
                return result

            return step

        profile_hook_step._ridge = True
        optimizer.profile_hook_step = staticmethod(profile_hook_step)

    def run_hooks(self, hook, *modules):
        if self.on:
            for part in self.parts:
                getattr(part, hook)(*modules)

    def before_torch(self, _):
        if not self.has_run_before:
            self.has_run_before = True
            self.run_hooks("before_torch")

    def hook_loader(self, module):
        self.run_hooks("hook_loader", module)
        iterator, loader = module._BaseDataLoaderIter, module.DataLoader
        original_next, original_iter = iterator.__next__, loader.__iter__
        original_init = loader.__init__

        @functools.wraps(original_next)
        def timed_next(iterator_self):
            if not self.on:
                return original_next(iterator_self)
            begin = clock()
            try:
                return original_next(iterator_self)
            finally:
                self.waited(iterator_self, begin)

        @functools.wraps(original_iter)
        def timed_iter(loader_self):
            begin = clock()
            result = original_iter(loader_self)
            if self.on:
                self.iterated(loader_self, begin)
            return result

        @functools.wraps(original_init)
        def timed_init(loader_self, *args, **kwargs):
            begin = clock()
            original_init(loader_self, *args, **kwargs)
            if self.on:
                self.spans.add("DataLoader.__init__", begin, clock())

        iterator.__next__, loader.__iter__ = timed_next, timed_iter
        loader.__init__ = timed_init

    def hook_save(self, torch):
        original = torch.save

        @functools.wraps(original)
        def save(*args, **kwargs):
            begin = clock()
            try:
                return original(*args, **kwargs)
            finally:
                self.saves += 1
                if self.on:
                    self.spans.add("torch.save", begin, clock())

        save._ridge = True
        torch.save = save
        torch.serialization.save = save

    def hook_torch(self, torch):
        global is_compiling
        is_first, self.torch = self.torch is None, torch
        if not self.on:
            return
        is_compiling = getattr(getattr(torch, "compiler", None), "is_compiling", never)
        if not hasattr(torch.save, "_ridge"):
            self.hook_save(torch)
        self.recording.hook(torch)
        if is_first:
            self.run_hooks("hook_torch", torch)
            gc.callbacks.append(self.collected)
            atexit.register(self.end)
            self.calls.begin(torch)
            self.write()


class Part:
    """What a run of `ridge optimize` or `ridge run` adds. An exception in any of these but facts()
    is for the part itself to catch and tell of."""

    def __init__(self, shim):
        self.shim = shim

    def before_torch(self):
        """Once, before torch is loaded, and so before it asks how many CPUs there are. Only where
        there is a recipe."""

    def hook_torch(self, torch):
        """Once, behind the import of torch."""

    def hook_optimizer(self, module):
        """Behind torch.optim.optimizer, before its steps are marked."""

    def hook_loader(self, module):
        """Behind torch.utils.data.dataloader, before its waits are timed."""

    def at_step(self, marker):
        """A step ended: on the thread that steps, behind the optimizer's step() or the call of the
        outermost module, which is `marker`."""

    def facts(self):
        """For facts_PID.json; also from another thread. Does not raise."""
        return {}


def asked_parts(folder):
    """In the order in which they are told of things: knobs change the program, the others look at
    what it is then; the gate may hold it."""
    asked = {
        "ridge_knobs": os.path.exists(os.path.join(folder, "recipe.json")),
        "ridge_batches": bool(os.environ.get("RIDGE_SHIM_BATCHES")),
        "ridge_probe": bool(os.environ.get("RIDGE_SHIM_PROBE")),
        "ridge_imports": bool(os.environ.get("RIDGE_SHIM_PROBE")),
        "ridge_losses": bool(os.environ.get("RIDGE_SHIM_LOSSES")),
        "ridge_record": whole_number(os.environ.get("RIDGE_SHIM_RECORD_STEPS"), 0) > 0,
        "ridge_gate": bool(os.environ.get("RIDGE_SHIM_GATE")),
    }
    return [name for name, is_asked in asked.items() if is_asked]


def whole_number(text, default):
    try:
        return int(text)
    except (TypeError, ValueError):
        return default


def loader_fact(loader):
    batch = loader.batch_size
    if batch is None:
        batch = getattr(loader.batch_sampler, "batch_size", None)
    try:
        # An iterable data set may not know, or may read everything to find out.
        samples = len(loader.dataset) if getattr(loader, "_dataset_kind", 1) == 0 else -1
    except Exception:
        samples = -1
    sampler = getattr(loader, "sampler", None)
    order = type(sampler).__name__
    return {
        "batch": whole_number(batch, 0),
        "workers": whole_number(loader.num_workers, 0),
        "prefetch": whole_number(loader.prefetch_factor, 0),
        "samples": whole_number(samples, -1),
        "pins_memory": bool(loader.pin_memory),
        "is_persistent": bool(loader.persistent_workers),
        "shuffles": "Random" in order or bool(getattr(sampler, "shuffle", False)),
        "dataset": type(loader.dataset).__name__,
    }
