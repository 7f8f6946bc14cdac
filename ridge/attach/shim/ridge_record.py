"""What a program computes in its first steps, for comparison with another run of it: losses, norms
of gradients, bits of the parameters; where modules are only called, their outputs.

Such a run is not timed, so all is read at once. Its file is ridge/attach/run_record.h's.
"""
import atexit
import functools
import json
import math
import os
import threading
import time
import weakref

from ridge_shim import Part as ShimPart
from ridge_shim import whole_number, write_whole

MOST_STEPS = 100_000
MOST_MODULES = 64
MOST_TROUBLE = 20
PATIENCE = 20  # seconds in which an optimizer that was made may step


class Part(ShimPart):
    def __init__(self, shim):
        super().__init__(shim)
        self.pid = os.getpid()
        self.wanted = whole_number(os.environ.get("RIDGE_SHIM_RECORD_STEPS"), 0)
        self.wanted = min(self.wanted, MOST_STEPS)
        reseed = whole_number(os.environ.get("RIDGE_SHIM_RESEED"), 0)
        self.tensors = shim.load("ridge_tensors")  # what is loaded below imports it
        self.seeds = shim.load("ridge_seeds").Seeds(shim, reseed)
        self.torch, self.is_compiling = None, None
        self.updates, self.nudge, self.thread = None, None, 0
        self.is_done = False
        self.losses, self.norms = [], []  # of the steps that ended
        self.step_losses, self.step_squares = [], {}  # of the one that goes on
        self.step_clipped = []
        self.outputs, self.modules, self.trouble = None, [], []
        self.within = threading.local()  # calls of modules and waits for data, one in another
        self.is_coarse = False
        self.optimizer = None  # whose steps they are; it may be gone when the program ends
        self.parameters_hash = ""

    def complain(self, what, error=None):
        text = what if error is None else "%s: %s" % (what, str(error).strip()[:200] or error)
        if text not in self.trouble and len(self.trouble) < MOST_TROUBLE:
            self.trouble.append(text)

    def new_outputs(self):
        return self.shim.load("ridge_outputs").Outputs(self.torch)

    # ---- where it is put into torch ----

    def hook_torch(self, torch):
        try:
            self.torch, self.thread = torch, threading.get_ident()
            self.outputs = self.new_outputs()
            self.updates = self.shim.load("ridge_updates").Updates(torch, self.complain)
            size = float(os.environ.get("RIDGE_SHIM_NUDGE") or 0)
            self.nudge = self.shim.load("ridge_nudge").Nudge(torch, size, self.complain)
            self.is_compiling = getattr(getattr(torch, "compiler", None), "is_compiling", never)
            self.seeds.hook(torch)
            self.hook_backward(torch.autograd)
            self.hook_clipping(torch.nn.utils)
            self.hook_calls(torch.nn.Module)
            atexit.register(self.at_exit)
        except Exception as error:
            self.complain("nothing can be recorded", error)

    def hook_backward(self, module):
        original = module.backward  # Tensor.backward calls it, too

        @functools.wraps(original)
        def backward(*args, **kwargs):
            if not self.is_done:
                self.saw_losses(args[0] if args else kwargs.get("tensors"))
            return original(*args, **kwargs)

        module.backward = backward

    def hook_clipping(self, module):
        """Behind it the norm is what the program wants it to be, whatever the gradients are."""
        original = module.clip_grad_norm_

        @functools.wraps(original)
        def clip_grad_norm_(*args, **kwargs):
            norm = original(*args, **kwargs)
            if not self.is_done and not self.is_compiling():
                self.saw_norm(norm)
            return norm

        module.clip_grad_norm_ = module.clip_grad.clip_grad_norm_ = clip_grad_norm_

    def hook_calls(self, module):
        """Hooks on modules would make torch.compile warn; this is asked about compilers first, and
        they leave it out."""
        original, is_compiling, part = module.__call__, self.is_compiling, self

        @functools.wraps(original)
        def call(self, *args, **kwargs):
            if is_compiling() or part.is_done:
                return original(self, *args, **kwargs)
            within = part.within
            depth = getattr(within, "calls", 0)
            within.calls = depth + 1
            try:
                # nn.DataParallel calls copies of a module on threads of its own.
                if not depth and part.shim.on and threading.get_ident() == part.thread:
                    part.nudge.move_parameters(self)
                    part.updates.before_call(self, args, kwargs)
                result = part.nudge.moved_result(self, original(self, *args, **kwargs))
            finally:
                within.calls = depth
            part.was_called(self, result, depth)
            return result

        module.__call__ = call

    def hook_optimizer(self, module):
        optimizer, part = module.Optimizer, self
        original = optimizer.profile_hook_step

        @functools.wraps(original)
        def profile_hook_step(func):
            hooked = original(func)

            @functools.wraps(hooked)
            def step(*args, **kwargs):
                if part.is_compiling is None or part.is_compiling() or part.is_done or not args:
                    return hooked(*args, **kwargs)
                # A closure makes the gradients within.
                closure = args[1] if len(args) > 1 else kwargs.get("closure")
                if closure is None:
                    part.nudge.move_gradients(args[0])
                    part.sees_gradients(args[0])
                copies = part.updates.before_step(args[0]) if part.shim.on else None
                result = hooked(*args, **kwargs)
                part.updates.after_step(copies)
                if closure is not None:
                    part.sees_gradients(args[0])
                return result

            return step

        optimizer.profile_hook_step = staticmethod(profile_hook_step)

    def hook_loader(self, module):
        """Modules that prepare data are part of no step: workers may call them elsewhere, and a knob
        may have all samples made at once."""
        module._BaseDataLoaderIter.__next__ = self.preparing(module._BaseDataLoaderIter.__next__)
        module.DataLoader.__iter__ = self.preparing(module.DataLoader.__iter__)

    def preparing(self, original):
        within = self.within

        @functools.wraps(original)
        def run(prepares):
            depth = getattr(within, "calls", 0)
            within.calls = depth + 1
            try:
                return original(prepares)
            finally:
                within.calls = depth

        return run

    # ---- what the program does ----

    def saw_losses(self, tensors):
        try:
            if not self.shim.on or self.is_compiling():
                return
            tensors = [tensors] if isinstance(tensors, self.torch.Tensor) else list(tensors)
            for tensor in tensors:
                if tensor.numel() == 1 and tensor.is_floating_point():
                    self.step_losses.append(float(tensor.detach().double().item()))
                    self.sees_type(tensor)
        except Exception as error:
            self.complain("a loss could not be read", error)

    def saw_norm(self, norm):
        try:
            if self.shim.on:
                self.step_clipped.append(float(norm) ** 2)
        except Exception as error:
            self.complain("a norm of gradients could not be read", error)

    def sees_type(self, tensor):
        if tensor.dtype in (self.torch.float16, self.torch.bfloat16):
            self.is_coarse = True

    def was_called(self, module, result, depth):
        try:
            if not self.shim.on:
                return
            self.is_coarse = self.is_coarse or has_autocast(self.torch)
            if depth or next(iter(module.parameters()), None) is None:
                return
            known = any(entry() is module for entry in self.modules)
            if not known and len(self.modules) < MOST_MODULES:
                self.modules.append(weakref.ref(module))
            if self.losses or self.outputs.count >= self.wanted:
                return
            self.outputs.add(result)
            if self.outputs.count == 1:
                self.seeds.note_unset_seed()
            made = self.shim.calls.optimizer_at
            waits = made and time.monotonic() - made < PATIENCE
            if self.outputs.count >= self.wanted and not waits and not self.step_losses:
                self.write()
        except Exception as error:
            self.complain("outputs could not be read", error)

    def sees_gradients(self, optimizer):
        """Of several optimizers that step in turn all count, each once."""
        try:
            if self.shim.on:
                squares = 0.0
                for group in optimizer.param_groups:
                    for parameter in group["params"]:
                        if parameter.grad is not None:
                            squares += self.tensors.squares_of(self.torch, parameter.grad)
                            self.sees_type(parameter)
                self.step_squares[id(optimizer)] = squares
        except Exception as error:
            self.complain("gradients could not be read", error)

    def at_step(self, marker):
        if self.is_done or self.shim.steps.source != "optimizer":
            return
        try:
            self.optimizer = marker
            self.updates.at_step()
            losses = self.step_losses
            squares = self.step_clipped or self.step_squares.values()
            self.step_losses, self.step_squares, self.step_clipped = [], {}, []
            self.losses.append(sum(losses) / len(losses) if losses else None)
            self.norms.append(math.sqrt(sum(squares)) if squares else None)
            if len(self.losses) == 1:
                self.seeds.note_unset_seed()
            if len(self.losses) >= self.wanted:
                self.write()
        except Exception as error:
            self.complain("a step could not be recorded", error)

    def hash_parameters(self):
        try:
            bits = self.tensors.Bits()
            parameters = [p for group in self.optimizer.param_groups for p in group["params"]]
            for parameter in parameters:
                bits.add(self.torch, parameter)
            seen = set()
            for entry in self.modules:
                module = entry()
                for buffer in [] if module is None else module.buffers():
                    if id(buffer) not in seen:
                        seen.add(id(buffer))
                        bits.add(self.torch, buffer)
            self.parameters_hash = bits.text()
        except Exception as error:
            self.complain("the parameters could not be read", error)

    # ---- what is written ----

    def at_exit(self):
        try:
            if not self.is_done and os.getpid() == self.pid:
                self.write()
        except Exception as error:
            self.complain("the end could not be recorded", error)

    def write(self):
        steps, trains = len(self.losses), bool(self.losses)
        if trains:
            self.hash_parameters()
        outputs = self.new_outputs() if trains else self.outputs
        if not trains:
            steps = outputs.count
        if steps == 0:
            self.complain("no step was seen")
        for values, what in ((self.losses, ".backward() on a loss"), (self.norms, "gradient")):
            missing = values.count(None)
            if missing:
                self.complain("%d of %d steps had no %s" % (missing, steps, what))
        record = {
            "rank": whole_number(os.environ.get("RANK"), -1),
            "steps": steps,
            "is_whole": steps >= self.wanted,
            "source": "optimizer" if trains else "module" if steps else "",
            "losses": numbers(self.losses),
            "gradient_norms": numbers(self.norms),
            "output_counts": outputs.counts,
            "output_sums": numbers(outputs.sums),
            "output_squares": numbers(outputs.squares),
            "output_projections": numbers(outputs.projections),
            "parameters_hash": self.parameters_hash,
            "outputs_hash": outputs.bits.text() if outputs.count else "",
            "updates": self.updates.records() if trains else [],
            "batch_hashes": self.updates.hashes if trains else [],
            "is_coarse": self.is_coarse,
            "trouble": self.trouble,
        }
        write_whole(
            os.path.join(self.shim.folder, "record_%d.json" % self.pid), json.dumps(record)
        )
        self.is_done = steps >= self.wanted
        self.optimizer = None


def never():
    return False


def has_autocast(torch):
    if torch.is_autocast_enabled():
        return True
    try:
        return torch.is_autocast_enabled("cpu")
    except TypeError:  # before torch 2.4
        return torch.is_autocast_cpu_enabled()


def numbers(values):
    """JSON has no numbers that are not finite; nothing where there is none at all."""
    if all(value is None for value in values):
        return []
    values = [math.nan if value is None else value for value in values]
    return [value if math.isfinite(value) else str(value) for value in values]
