"""Knobs of torch's own optimizers: all parameters in one call (fused), in a few (foreach), or in a
program of Ridge's engine."""
import collections.abc
import functools
import importlib
import inspect
import sys
import time
import weakref

from ridge_knobs import PRECISION, REASSOCIATION, Knob, call_site, offer, refusal
from ridge_models import RIDGE, around_steps, the_search, why_no_ridge


def classes_with(torch, option):
    """Of torch.optim, by their class: the parameters of the constructor."""
    found = {}
    for value in vars(torch.optim).values():
        if isinstance(value, type) and issubclass(value, torch.optim.Optimizer):
            signature = inspect.signature(value.__init__)
            if option in signature.parameters:
                found[value] = signature
    return found


def devices_with(option):
    """Kinds of devices that have kernels for it; torch 1.13 to 2.4 have fewer, or do not say."""
    name = "_get_%s_kernels_supported_devices" % option
    for place in ("torch.optim.optimizer", "torch.utils._foreach_utils"):
        kinds = getattr(sys.modules.get(place), name, None)
        if kinds is not None:
            return set(kinds())
    return {"cuda"}


def groups_of(params):
    """As an optimizer takes them: tensors, names with tensors, or groups of either."""
    params = list(params)
    if not any(isinstance(entry, dict) for entry in params):
        params = [{"params": params}]
    groups = []
    for group in params:
        tensors = group["params"]
        tensors = [tensors] if hasattr(tensors, "dim") else list(tensors)
        tensors = [entry[1] if isinstance(entry, tuple) else entry for entry in tensors]
        groups.append((tensors, {key: group[key] for key in group if key != "params"}))
    return groups


def why_not(torch, option, name, groups):
    """Why an optimizer of this class cannot have it. `groups`: tensors and options of each."""
    tensors = [tensor for group, _ in groups for tensor in group]
    every = [options for _, options in groups]
    if any(o.get("fused") is not None or o.get("foreach") is not None for o in every):
        return "the program sets fused or foreach of %s itself" % name
    if any(o.get("differentiable") for o in every):
        return "%s is to be differentiable" % name
    if any(isinstance(value, torch.Tensor) for o in every for value in o.values()):
        return "%s has an option that is a tensor" % name
    if not tensors:
        return "%s has no parameters" % name
    if any(type(tensor) not in (torch.Tensor, torch.nn.Parameter) for tensor in tensors):
        return "%s has parameters of types of their own" % name
    if option == "foreach":
        return ""
    kinds = {tensor.device.type for tensor in tensors}
    missing = kinds - devices_with("fused")
    if name == "Adagrad":
        missing |= kinds - {"cpu"}
    if missing:
        return "%s has no fused form on %s in this torch" % (name, sorted(missing)[0])
    if not all(tensor.is_floating_point() for tensor in tensors):
        return "%s has parameters that are no real numbers" % name
    return ""


def read_twice(params):
    """What an iterator gives can be had only once, and is needed for a look and for use."""
    if isinstance(params, collections.abc.Iterator):
        params = list(params)
    for group in params if isinstance(params, (list, tuple)) else ():
        if isinstance(group, dict) and isinstance(group.get("params"), collections.abc.Iterator):
            group["params"] = list(group["params"])
    return params


def offers_of(knob, shim, value, how):
    """For the first optimizer that the knob is for. `how`: it updates its tensors now."""
    why = ""
    for optimizer in the_search(shim).living_optimizers():
        why = knob.refusal_of(sys.modules["torch"], optimizer)
        if not why:
            number = sum(len(group["params"]) for group in optimizer.param_groups)
            text = "%s updates %d tensors %s" % (type(optimizer).__name__, number, how)
            return [offer(knob.key, value, text, OptimizerKnob.class_of(optimizer))]
    return [refusal(knob.key, why or "the program has no optimizer of torch.optim")]


class OptimizerKnob(Knob):
    """An option of the constructors of torch.optim, where the program leaves it open."""

    option = ""
    MOST_NAMES = 3

    def __init__(self, shim, value):
        super().__init__(shim, value)
        self.torch, self.told = None, []

    def hook_torch(self, torch):
        self.torch = torch
        for cls, signature in classes_with(torch, self.option).items():
            self.wrap(cls, signature)

    def wrap(self, cls, signature):
        original = cls.__init__

        @functools.wraps(original)
        def init(optimizer, *args, **kwargs):
            # What a class of the program's own makes of the option nobody knows.
            if type(optimizer) is not cls or not self.shim.on:
                original(optimizer, *args, **kwargs)
                return
            if args:
                args = (read_twice(args[0]),) + args[1:]
            elif "params" in kwargs:
                kwargs["params"] = read_twice(kwargs["params"])
            is_changed = self.may_change(cls, signature, (optimizer,) + args, kwargs)
            if is_changed:
                kwargs[self.option] = True
            original(optimizer, *args, **kwargs)
            if is_changed:
                self.keep_checkpoints(optimizer)

        cls.__init__ = init

    def may_change(self, cls, signature, args, kwargs):
        try:
            try:
                given = dict(signature.bind(*args, **kwargs).arguments)
            except TypeError:
                return False  # torch tells the program
            options = {key: value for key, value in given.items() if key not in ("self", "params")}
            groups = groups_of(given["params"])
            groups = [(tensors, dict(options, **own)) for tensors, own in groups]
            why = why_not(self.torch, self.option, cls.__name__, groups)
            if why:
                if self.state != "applied":
                    self.refuse(why, call_site())
                return False
            number = sum(len(tensors) for tensors, _ in groups)
            self.told.append("%s of %d tensors is %s" % (cls.__name__, number, self.option))
            self.apply("; ".join(self.told[: self.MOST_NAMES]), call_site())
            return True
        except Exception as error:
            self.fail(error)
            return False

    def keep_checkpoints(self, optimizer):
        """A checkpoint says of the option what it says without us, and one that was written
        without us does not switch it off."""
        try:
            save = getattr(optimizer, "register_state_dict_post_hook", None)
            load = getattr(optimizer, "register_load_state_dict_pre_hook", None)
            if save is not None and load is not None:
                save(lambda _, state: self.with_option(state, True, None))
                load(lambda _, state: self.with_option(state, None, True))
        except Exception as error:
            self.shim.trouble("checkpoints of the optimizer", error)

    def with_option(self, state, old, new):
        groups = [dict(group) for group in state.get("param_groups", ())]
        for group in groups:
            if group.get(self.option) is old:
                group[self.option] = new
        return dict(state, param_groups=groups)

    @classmethod
    def offers(cls, shim, marker):
        return offers_of(cls, shim, True, "one by one")

    @classmethod
    def refusal_of(cls, torch, optimizer):
        name = type(optimizer).__name__
        if type(optimizer) not in classes_with(torch, cls.option):
            return "%s is no class of torch.optim that can be %s" % (name, cls.option)
        groups = groups_of(optimizer.param_groups)
        if any(p.grad is not None and p.grad.is_sparse for tensors, _ in groups for p in tensors):
            return "gradients of %s are sparse" % name
        return why_not(torch, cls.option, name, groups)

    @staticmethod
    def class_of(optimizer):
        """Kernels compute 16-bit numbers in f32, and round once."""
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        is_short = any(p.element_size() < 4 for p in parameters)
        return PRECISION if is_short else REASSOCIATION


class Fused(OptimizerKnob):
    key, option = "optimizer.fused", "fused"


class Foreach(OptimizerKnob):
    key, option = "optimizer.foreach", "foreach"

    @classmethod
    def refusal_of(cls, torch, optimizer):
        why = super().refusal_of(torch, optimizer)
        if why:
            return why
        if not Fused.refusal_of(torch, optimizer):
            return "optimizer.fused does more of the same"
        usual = devices_with("foreach")
        devices = {p.device.type for group in optimizer.param_groups for p in group["params"]}
        return "torch does so on %s by itself" % min(devices) if devices <= usual else ""


def numbers_of(optimizer):
    """Of its groups: a compiler takes them for constants."""
    return [
        [value for value in group.values() if isinstance(value, (int, float))]
        for group in optimizer.param_groups
    ]


class Compiled(Knob):
    """The step of an optimizer as one program. The first step stays torch's, which makes the state."""

    key = "optimizer.compile"

    def __init__(self, shim, value):
        super().__init__(shim, value)
        self.torch, self.told = None, []
        self.stepped = weakref.WeakKeyDictionary()  # optimizers: [compiled step, numbers]

    def hook_torch(self, torch):
        self.torch = torch
        if self.value != RIDGE:
            self.refuse("'%s' is no compiler of optimizers" % self.value)

    def hook_optimizer(self, module):
        def run(optimizer, step, args, kwargs):
            if not args and not kwargs and self.shim.on and self.state != "refused":
                step = self.step_of(optimizer, step)
            return step(optimizer, *args, **kwargs)

        around_steps(module, run)

    def step_of(self, optimizer, func):
        try:
            if self.torch is None or self.torch.compiler.is_compiling():
                return func
            entry = self.stepped.get(optimizer)
            if entry is None:
                why = self.refusal_of(self.torch, optimizer)
                if why:
                    self.refuse(why, call_site())
                else:
                    self.stepped[optimizer] = [None, numbers_of(optimizer)]
                return func
            if entry[1] != numbers_of(optimizer):
                self.refuse("the program changes a number of %s" % type(optimizer).__name__)
                return func
            if entry[0] is None:
                importlib.import_module("ridge.torch")
                entry[0] = self.torch.compile(func, backend=RIDGE)
                return self.first(entry[0])
            return entry[0]
        except Exception as error:
            self.fail(error)
            return func

    def first(self, compiled):
        def run(optimizer):
            began = time.perf_counter()
            result = compiled(optimizer)
            self.seconds += time.perf_counter() - began
            number = sum(len(group["params"]) for group in optimizer.param_groups)
            self.told.append("the step of %s over %d tensors is compiled" % (
                type(optimizer).__name__, number))
            self.apply("; ".join(self.told[: OptimizerKnob.MOST_NAMES]), call_site())
            return result

        return run

    @classmethod
    def offers(cls, shim, marker):
        return offers_of(cls, shim, RIDGE, "by an operation each")

    @classmethod
    def refusal_of(cls, torch, optimizer):
        name = type(optimizer).__name__
        if type(optimizer) not in vars(torch.optim).values():
            return "%s is no class of torch.optim" % name
        if getattr(optimizer.step, "_wrapped_by_lr_sched", False):
            return "a schedule changes the learning rate of %s" % name
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        devices = {p.device.type for p in parameters}
        if any(p.grad is not None and p.grad.is_sparse for p in parameters):
            return "gradients of %s are sparse" % name
        return why_no_ridge(max(devices, default="cpu"))


# What is wrapped later is asked first: fused, where a recipe has both.
KNOBS = [Foreach, Fused, Compiled]
