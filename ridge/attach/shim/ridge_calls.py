"""Steps of a program without an optimizer: the calls of its outermost module.

Which module that is, a thread of ours sees on the stacks of the others: hooks on all modules would
have torch.compile warn and trace them. Then this one object is called through us.
"""
import _thread
import os
import sys
import time
import weakref

EVERY = 0.05  # seconds
REST = 1.0  # once it is found
SURE = 3  # sightings
PATIENCE = 20  # seconds in which an optimizer that was made may step
MOST_FRAMES = 500
CALLS = ("_call_impl", "_wrapped_call_impl")


class TimedCall:
    """What a module calls in place of its _call_impl. It is never saved with the module."""

    def __init__(self, module, calls, inner):
        # A cycle would keep the module's memory until a collection.
        self.module, self.inner = weakref.ref(module), inner
        self.shim, self.is_compiling = calls.shim, calls.torch.compiler.is_compiling

    def __call__(self, *args, **kwargs):
        module = self.module()
        if self.inner is not None:
            result = self.inner(*args, **kwargs)
        else:
            result = type(module)._call_impl(module, *args, **kwargs)
        if not self.is_compiling():
            self.shim.stepped(module, "module")
        return result

    def __reduce__(self):
        return type(None), ()

    def __deepcopy__(self, _):
        return None


class Calls:
    def __init__(self, shim):
        self.shim = shim
        self.optimizer_at, self.is_going = 0, False
        self.bell = _thread.allocate_lock()
        self.torch, self.timed, self.seen = None, None, {}
        self.module_file, self.loader_files = "", ()

    def optimizer_was_made(self):
        self.optimizer_at = self.optimizer_at or time.monotonic()

    def begin(self, torch):
        self.torch = torch
        if not hasattr(torch.nn.Module, "_compiled_call_impl"):
            self.shim.note("before torch 2.1 calls of modules are not seen")
            return
        self.module_file = torch.nn.modules.module.__file__
        loader = sys.modules.get("torch.utils.data.dataloader")
        background = os.path.join(os.path.dirname(os.path.abspath(__file__)), "ridge_background.py")
        self.loader_files = getattr(loader, "__file__", ""), background
        # A process that forks has, while it does, this thread less.
        os.register_at_fork(before=self.stop, after_in_parent=self.start)
        self.start()

    def start(self):
        if self.shim.on and not self.is_going and self.shim.steps.source != "optimizer":
            self.is_going = True
            self.bell.acquire(False)
            _thread.start_new_thread(self.watch, ())

    def stop(self):
        if self.is_going and self.bell.locked():
            self.bell.release()
            for _ in range(100):
                if not self.is_going:
                    break
                time.sleep(0.0001)

    def watch(self):
        try:
            while self.shim.on and self.shim.steps.source != "optimizer":
                if self.bell.acquire(True, REST if self.timed_lately() else EVERY):
                    break
                if self.may_look():
                    self.look()
        except Exception as error:
            self.shim.trouble("calls of modules", error)
        self.is_going = False

    def timed_lately(self):
        steps = self.shim.steps
        return self.timed is not None and time.perf_counter_ns() - steps.last < 3_000_000_000

    def may_look(self):
        made = self.optimizer_at
        return not self.timed_lately() and (not made or time.monotonic() - made > PATIENCE)

    def look(self):
        ours = _thread.get_ident()
        for thread, frame in sys._current_frames().items():
            module = None if thread == ours else self.outermost(frame)
            if module is not None:
                self.sighted(module)
                return

    def outermost(self, frame):
        found = None
        for _ in range(MOST_FRAMES):
            if frame is None:
                break
            code = frame.f_code
            if code.co_filename in self.loader_files:
                found = None  # what prepares data is no step
            elif code.co_filename == self.module_file and code.co_name in CALLS:
                found = frame
            frame = frame.f_back
        module = None if found is None else found.f_locals.get("self")
        is_module = isinstance(module, self.torch.nn.Module)
        # A graph that the compiler made is within something that was called.
        if not is_module or type(module).__module__.startswith("torch.fx"):
            return None
        return module

    def sighted(self, module):
        """Modules without weights, as losses and transforms are, count only where nothing else is
        called for a while."""
        entry = self.seen.get(id(module))
        if entry is None or entry[0]() is not module:
            if len(self.seen) > 100:
                self.seen.clear()
            entry = self.seen[id(module)] = [weakref.ref(module), 0]
        entry[1] += 1
        has_weights = next(iter(module.parameters()), None) is not None
        if entry[1] >= (SURE if has_weights else 20 * SURE):
            self.seen.clear()
            self.time(module)

    def time(self, module):
        if self.timed is not None:
            last = self.timed.module()
            if last is module:
                return
            if last is not None and last.__dict__.get("_compiled_call_impl") is self.timed:
                last._compiled_call_impl = self.timed.inner
        inner = module._compiled_call_impl
        if isinstance(inner, TimedCall):
            return
        self.timed = TimedCall(module, self, inner)
        module._compiled_call_impl = self.timed
