"""Finds the modules that a program calls as its models, each at its first call.

A model is an outermost module that has all the parameters of an optimizer, or nearly all of them;
one with parameters of which no optimizer has any; and, while there is no optimizer, one that is
called again and again. Its call then goes through what knobs put around it.
"""
import functools
import importlib.util
import os
import sys
import threading
import weakref

import ridge_knobs

NEARLY_ALL = 0.9  # of the numbers that an optimizer changes
SURE = 3  # calls of a module, where there is no optimizer
QUIET_CALLS = 12  # without a new model: then nobody looks any longer
MOST_CALLS = 100
LATE_STEPS = 30  # by then a program that calls its modules has called one
RIDGE = "ridge"  # Ridge's engine instead of a mode of Inductor
SHARDED = ("FullyShardedDataParallel", "FSDPModule")

KNOBS = []  # those that use what is found here: ridge_knob_model.py, ridge_knob_optimizer.py
_search = None


def the_search(shim):
    global _search
    if _search is None:
        _search = Search(shim)
    return _search


class Model:
    """A module that was found. `role`: "trained", "frozen", or "called" without an optimizer."""

    def __init__(self, module, role, torch, values):
        self.ref, self.role = weakref.ref(module), role
        self.name = type(module.__dict__.get("_modules", {}).get("_orig_mod", module)).__name__
        self.is_compiled = within_timed(module) is not None or "OptimizedModule" in self.bases()
        self.has_gradients = torch.is_grad_enabled()
        self.site = ridge_knobs.call_site()
        tensors = [value for value in values if isinstance(value, torch.Tensor)]
        self.dims = {tensor.dim() for tensor in tensors}

    def bases(self):
        module = self.ref()
        return [] if module is None else [base.__name__ for base in type(module).__mro__]


class Call:
    """What a module calls in place of its _call_impl: the knobs around it. It is never saved with
    the module, and a copy of the module is without it."""

    def __init__(self, module, inner):
        # A cycle would keep the module's memory until a collection.
        self.module, self.inner, self.arounds = weakref.ref(module), inner, {}
        self.outer = self.innermost

    def innermost(self, *args, **kwargs):
        if self.inner is not None:
            return self.inner(*args, **kwargs)
        module = self.module()
        return type(module)._call_impl(module, *args, **kwargs)

    def put(self, key, around):
        """`around`: makes a function of the one that is called within. What comes first in the
        table of knobs is outermost."""
        self.arounds[key] = around
        self.outer = self.innermost
        for key in reversed(list(ridge_knobs.TABLE)):
            if key in self.arounds:
                self.outer = self.arounds[key](self.outer)

    def __call__(self, *args, **kwargs):
        return self.outer(*args, **kwargs)

    def __reduce__(self):
        return type(None), ()

    def __deepcopy__(self, _):
        return None


SLOT = "_compiled_call_impl"


def timed_of(module):
    """What times the calls (ridge_calls.py), where that is in place."""
    present = module.__dict__.get(SLOT)
    return present if type(present).__name__ == "TimedCall" else None


def within_timed(module):
    timed = timed_of(module)
    return module.__dict__.get(SLOT) if timed is None else timed.inner


def call_of(module):
    """Within what times the calls, around what the program compiled itself."""
    timed, inner = timed_of(module), within_timed(module)
    if isinstance(inner, Call):
        return inner
    call = Call(module, inner)
    if timed is None:
        # Past the __setattr__ of the module, which may hand it on to another one.
        module.__dict__[SLOT] = call
    else:
        timed.inner = call
    return call


class Search:
    def __init__(self, shim):
        self.shim, self.torch = shim, None
        self.knobs, self.models, self.optimizers = [], [], []
        self.is_on, self.calls, self.quiet = False, 0, 0
        self.counts, self.parts = {}, []
        self.local, self.original = threading.local(), None

    # ---- where it is put into torch ----

    def watch_optimizer(self, module):
        original = module.Optimizer.__init__
        if hasattr(original, "_ridge"):
            return

        @functools.wraps(original)
        def init(optimizer, *args, **kwargs):
            original(optimizer, *args, **kwargs)
            self.optimizer_was_made(optimizer)

        init._ridge = True
        module.Optimizer.__init__ = init

    def optimizer_was_made(self, optimizer):
        try:
            if not self.shim.on:
                return
            self.optimizers.append(weakref.ref(optimizer))
            wanted = parameters_of(optimizer)
            for knob in self.knobs:
                knob.optimized(wanted)
            if self.can_look() and not self.is_on and not self.has_owner(wanted):
                self.start()
        except Exception as error:
            self.shim.trouble("optimizers", error)

    def begin(self, torch):
        if self.torch is None:
            self.torch = torch
            if self.can_look():
                self.start()

    def can_look(self):
        return self.torch is not None and hasattr(self.torch.nn.Module, "_compiled_call_impl")

    def start(self):
        self.is_on, self.calls, self.quiet = True, 0, 0
        self.look()

    def look(self):
        """Special methods are looked up on the class alone, so it is the class that changes: for
        as long as no model is within its call, and none of this is left when the search ends."""
        module = self.torch.nn.Module
        if self.original is None:
            self.original = module.__call__
            self.watched = self.watching(self.original)
        if self.is_on and module.__call__ is self.original:
            module.__call__ = self.watched

    def look_away(self):
        if self.torch.nn.Module.__call__ is self.watched:
            self.torch.nn.Module.__call__ = self.original

    def watching(self, original):
        local, compiler = self.local, getattr(self.torch, "compiler", None)
        is_compiling = getattr(compiler, "is_compiling", lambda: False)

        def __call__(module, *args, **kwargs):
            if is_compiling():
                return original(module, *args, **kwargs)
            if not self.is_on or getattr(local, "is_within", False):
                return original(module, *args, **kwargs)
            local.is_within = True
            try:
                self.look_away()
                self.called(module, args, kwargs)
                return original(module, *args, **kwargs)
            finally:
                local.is_within = False
                self.look()

        return __call__

    # ---- what is called ----

    def called(self, module, args, kwargs):
        try:
            if not self.shim.on:
                self.is_on = False
                return
            if self.torch.jit.is_tracing():
                return
            # Losses and transforms: a cache of samples calls thousands of them ahead.
            if next(module.parameters(), None) is None:
                return
            self.calls += 1
            self.quiet += 1
            if self.model_of(module) is None:
                role = self.role_of(module)
                if role:
                    self.found(module, role, list(args) + list(kwargs.values()))
            if self.calls >= MOST_CALLS or self.models and self.quiet >= QUIET_CALLS:
                self.end()
        except Exception as error:
            self.shim.trouble("calls of modules", error)
            self.is_on = False

    def end(self):
        self.is_on = False
        self.counts.clear()
        if not self.models:
            for knob in self.knobs:
                knob.refuse(self.reason())

    def role_of(self, module):
        own = {id(p): p.numel() for p in module.parameters() if not is_uninitialized(p)}
        if not own:
            return ""
        held = [dict((id(p), p.numel()) for p in ps) for ps in self.held()]
        if not held:
            entry = self.counts.setdefault(id(module), [weakref.ref(module), 0])
            if entry[0]() is not module:
                entry[:] = [weakref.ref(module), 0]
            entry[1] += 1
            return "called" if entry[1] >= SURE else ""
        for numbers in held:
            there = sum(number for key, number in numbers.items() if key in own)
            if there and there >= NEARLY_ALL * sum(numbers.values()):
                return "trained"
        if not any(key in own for numbers in held for key in numbers):
            return "frozen"
        name = type(module).__name__
        if name not in self.parts:
            self.parts.append(name)
        return ""

    def found(self, module, role, values):
        model = Model(module, role, self.torch, values)
        self.models.append(model)
        self.quiet = 0
        for knob in self.knobs:
            self.try_on(knob, module, model)

    def try_on(self, knob, module, model):
        # What one model refused need not hold for the next.
        was, what = knob.state, (knob.text, knob.site)
        try:
            knob.found(module, model)
        except Exception as error:
            knob.fail(error)
        if was == "applied" and knob.state == "refused":
            knob.state, (knob.text, knob.site) = was, what

    # ---- what is asked ----

    def model_of(self, module):
        return next((model for model in self.models if model.ref() is module), None)

    def held(self):
        """The parameters of each optimizer that lives."""
        return [parameters_of(optimizer) for optimizer in self.living_optimizers()]

    def living_optimizers(self):
        optimizers = [ref() for ref in self.optimizers]
        return [optimizer for optimizer in optimizers if optimizer is not None]

    def has_owner(self, parameters):
        wanted = {id(p) for p in parameters}
        for model in self.models:
            module = model.ref()
            own = set() if module is None else {id(p) for p in module.parameters()}
            if wanted <= own:
                model.role = "trained"
                return True
        return False

    def living(self):
        """Models that live, those that are trained first."""
        rank = {"trained": 0, "called": 1, "frozen": 2}
        models = [model for model in self.models if model.ref() is not None]
        return sorted(models, key=lambda model: rank[model.role])

    def reason(self):
        """Why there is no model."""
        if not self.can_look():
            return "calls of modules cannot be changed before torch 2.1"
        if self.parts:
            names = ", ".join(self.parts[:3]) + (", ..." if len(self.parts) > 3 else "")
            return (
                "no one module is called that has what the optimizer changes: it lies in modules "
                "that are called one by one (%s)" % names
            )
        if self.calls == 0:
            return "no module is called: the program has only functions"
        return "no module with parameters is called more than twice"


def is_uninitialized(parameter):
    return type(parameter).__name__.startswith("Uninitialized")


def parameters_of(optimizer):
    groups = getattr(optimizer, "param_groups", [])
    return [p for group in groups for p in group["params"]]


def watch_torch(shim, torch):
    if os.environ.get("RIDGE_SHIM_PROBE"):
        the_search(shim).begin(torch)


def watch_optimizer(shim, module):
    the_search(shim).watch_optimizer(module)


class ModelKnob(ridge_knobs.Knob):
    """A knob that changes how models are called."""

    def __init__(self, shim, value):
        super().__init__(shim, value)
        self.search, self.names, self.steps = the_search(shim), [], 0
        self.search.knobs.append(self)

    def hook_torch(self, torch):
        self.search.begin(torch)
        if not self.search.can_look():
            self.refuse(self.search.reason())

    def found(self, module, model):
        why = self.refusal_of(self.shim, module, model)
        if why:
            self.refuse(why, model.site)
            return
        if model.name not in self.names:
            self.names.append(model.name)
        self.apply(self.put(module, model), model.site)

    def put(self, module, model):
        """Says what was done."""
        raise NotImplementedError

    def named(self):
        return ", ".join(self.names[:3]) + (", ..." if len(self.names) > 3 else "")

    def optimized(self, parameters):
        """An optimizer was made, of these parameters."""

    def at_step(self, marker):
        self.steps += 1
        if self.steps == LATE_STEPS and self.state == "waiting":
            self.search.end()
            self.search.look_away()

    @classmethod
    def offers(cls, shim, marker):
        """From the first model that does not refuse; else the reason of the first."""
        search, why = the_search(shim), ""
        for model in search.living():
            module = model.ref()
            refusal = cls.refusal_of(shim, module, model) or cls.reason_not_to_try(module)
            if not refusal:
                return cls.offers_of(shim, module, model)
            why = why or refusal
        return [ridge_knobs.refusal(cls.key, why or search.reason())]

    @classmethod
    def refusal_of(cls, shim, module, model):
        """Why it cannot be applied; empty where it can."""
        sharded = [name for name in model.bases() if name in SHARDED]
        return "the model's parameters are sharded (%s)" % sharded[0] if sharded else ""

    @classmethod
    def reason_not_to_try(cls, module):
        """Why it could be applied, and would not gain."""
        return ""


def around_steps(module, run):
    """Optimizers of the module torch.optim.optimizer step by run(optimizer, step, args, kwargs), within
    the range that torch draws around a step, and its hooks."""
    original = module.Optimizer.profile_hook_step

    @functools.wraps(original)
    def profile_hook_step(func):
        @functools.wraps(func)
        def step(optimizer, *args, **kwargs):
            return run(optimizer, func, args, kwargs)

        return original(step)

    module.Optimizer.profile_hook_step = staticmethod(profile_hook_step)


def device_of(module):
    return next(module.parameters()).device.type


def why_no_ridge(device="cpu"):
    """What torch.compile(backend="ridge") needs and this Python has not."""
    if device != "cpu":
        return "Ridge's engine compiles modules on the CPU alone"
    spec = importlib.util.find_spec("ridge")
    folders = (spec.submodule_search_locations if spec is not None else None) or ()
    if any(os.path.isdir(os.path.join(folder, "torch")) for folder in folders):
        return ""
    return "Ridge's package is not in %s: pip install ridge-engine" % sys.executable


def with_tensors(value, torch, change, is_result=False):
    """`value` with `change` made to its tensors: lists, tuples and dicts come anew, of the same
    type. Objects of other types that hold tensors stay as they are; where `value` is the result
    of a model they are changed themselves, for nobody has seen them yet."""
    if isinstance(value, torch.Tensor):
        return change(value)

    def within(entry):
        return with_tensors(entry, torch, change, is_result)

    if type(value) in (list, tuple):
        return type(value)(within(entry) for entry in value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(within(entry) for entry in value))
    if type(value) is dict:
        return {key: within(entry) for key, entry in value.items()}
    if is_result and isinstance(value, dict):
        for key, entry in list(value.items()):
            value[key] = within(entry)
    elif is_result and hasattr(type(value), "__dataclass_fields__"):
        for name in type(value).__dataclass_fields__:
            if hasattr(value, name):
                object.__setattr__(value, name, within(getattr(value, name)))
    return value
