"""Knobs of fewer updates: larger batches, and an update for several of them. The optimizer follows by
the usual rules.

A loader is changed when it is made, so that its length is right from the beginning. Numbers of an
optimizer are others within its step() alone: schedules, checkpoints and what the program prints have
those of the program. A number of steps that the program counts by itself stays as it is.
"""
import functools
import resource
import sys
import weakref

import ridge_cache
from ridge_knob_process import local_ranks
from ridge_knobs import Knob, call_site, offer, refusal
from ridge_loaders import the_loaders
from ridge_models import around_steps, parameters_of, the_search

FACTORS = 2, 4
LEAST_STEPS = 100  # that have to be left of an epoch: a batch is no more than 1 % of the data


# ---- what an optimizer counts in steps ----


def root(value, factor):
    return value * factor**0.5


def in_proportion(value, factor):
    return value * factor


def by_samples(value, factor):
    """A mean that keeps this share at each step keeps as much of it sample by sample."""
    if isinstance(value, (list, tuple)):
        return tuple(by_samples(part, factor) for part in value)
    return value**factor


# As for Ridge's own training (ridge/tune/engine/technique_batch.cc): the step of SGD goes in proportion,
# that of optimizers that divide by the size of the gradient with the root, and means by samples.
SGD = {"lr": in_proportion}
ADAM = {"lr": root, "betas": by_samples}
DECOUPLED = dict(ADAM, weight_decay=root)
RULES = {
    "SGD": SGD,
    "Adam": ADAM,
    "AdamW": DECOUPLED,
    "NAdam": ADAM,
    "RAdam": ADAM,
    "RMSprop": {"lr": root, "alpha": by_samples},
}


def rules_of(optimizer, torch):
    """What to do to the numbers of its groups; nothing where no rule is known."""
    name = type(optimizer).__name__
    return RULES.get(name) if type(optimizer) is getattr(torch.optim, name, None) else None


def why_no_rule(optimizer):
    return "no rule says how the learning rate of %s follows the batch" % type(optimizer).__name__


class Scaled:
    """While it lasts, groups of the optimizer have the numbers of a batch that is `factor` as large."""

    def __init__(self, optimizer, rules, factor):
        self.groups, self.rules, self.factor, self.own = optimizer.param_groups, rules, factor, []

    def __enter__(self):
        for group in self.groups:
            # Decay that takes its share of the weights themselves goes with the rate.
            rules = DECOUPLED if group.get("decoupled_weight_decay") else self.rules
            own = {name: group[name] for name in rules if name in group}
            self.own.append((group, own))
            group.update({name: rules[name](value, self.factor) for name, value in own.items()})

    def __exit__(self, *_):
        for group, own in self.own:
            group.update(own)


# ---- why not ----


def loader_trouble(loader, entry, torch):
    """Why batches of this loader are not to be larger."""
    if not isinstance(loader.batch_size, int):
        return "the program makes its batches itself"
    if type(loader.batch_sampler) is not torch.utils.data.BatchSampler:
        return "a batch sampler of the program's own makes its batches"
    if entry is None or not entry.shuffles():
        return "the loader does not shuffle: it is not told from those of held-out samples"
    return ""


def steps_trouble(loader, factor):
    try:
        left = len(loader) // factor
    except TypeError:  # nobody knows how many samples there are
        return ""
    if left >= LEAST_STEPS:
        return ""
    return "%d times the batch would leave %d steps an epoch, fewer than %d" % (
        factor,
        left,
        LEAST_STEPS,
    )


def memory_trouble(factor, torch):
    """All that the process has taken is supposed to grow with the batch."""
    if torch.cuda.is_initialized():
        free, taken = torch.cuda.mem_get_info()[0], torch.cuda.max_memory_reserved()
    else:
        free = ridge_cache.available_bytes() // 2 // local_ranks()
        taken = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    if taken * (factor - 1) <= free:
        return ""
    return "%d times the batch may take %s more memory, and %s may be used" % (
        factor,
        ridge_cache.size_text(taken * (factor - 1)),
        ridge_cache.size_text(free),
    )


class Batch(Knob):
    key = "loader.batch"

    def __init__(self, shim, value):
        super().__init__(shim, value)
        self.torch, self.factor = None, 1
        self.grown = []  # loaders, and the sizes of their batches as the program has them

    # ---- the loaders ----

    def hook_loader(self, module):
        self.torch = module.torch
        loader = module.DataLoader
        original = loader.__init__

        @functools.wraps(original)
        def init(loader_self, *args, **kwargs):
            original(loader_self, *args, **kwargs)
            if self.shim.on and self.state != "refused":
                try:
                    self.made(loader_self)
                except Exception as error:
                    self.fail(error)

        loader.__init__ = init

    def made(self, loader):
        entry = the_loaders(self.shim).entry(loader)
        why = loader_trouble(loader, entry, self.torch)
        own = loader.batch_size
        if not why and (self.value <= own or self.value % own):
            why = "%d samples are no multiple of its batch of %d" % (self.value, own)
        factor = 1 if why else self.value // own
        if not why and self.factor not in (1, factor):
            why = "its loaders have batches of several sizes"
        if why:
            # Those of held-out samples stay as they are, and say least.
            if self.state != "applied" and (not self.text or entry is not None and entry.shuffles()):
                self.text, self.site = why, call_site()
            return
        self.factor = self.work = factor
        self.set(loader, self.value)
        self.grown.append((weakref.ref(loader), own))
        text = "%s has batches of %d samples, not %d" % (entry.name(), self.value, own)
        self.apply(text, entry.site)

    @staticmethod
    def set(loader, size):
        # torch lets nobody set it by its name once the loader is made.
        loader.__dict__["batch_size"] = loader.batch_sampler.batch_size = size

    def take_back(self, why):
        for ref, own in self.grown:
            if ref() is not None:
                self.set(ref(), own)
        self.factor = self.work = 1
        self.refuse(why)

    # ---- the optimizers ----

    def hook_optimizer(self, module):
        def run(optimizer, step, args, kwargs):
            rules = self.rules_for(optimizer)
            if rules is None:
                return step(optimizer, *args, **kwargs)
            with Scaled(optimizer, rules, self.factor):
                return step(optimizer, *args, **kwargs)

        around_steps(module, run)

    def rules_for(self, optimizer):
        if self.factor == 1 or not self.shim.on:
            return None
        rules = rules_of(optimizer, sys.modules["torch"])
        if rules is None:
            self.take_back(why_no_rule(optimizer))
        return rules

    # ---- what is offered ----

    @classmethod
    def offers(cls, shim, marker):
        torch, loaders = shim.torch, the_loaders(shim)
        feeding = loaders.feeding()
        why = cls.trouble_of(loaders, feeding, torch) or cls.optimizer_trouble(shim, torch)
        found, loader = [], feeding[0].loader() if feeding else None
        for factor in () if why else FACTORS:
            why = steps_trouble(loader, factor) or memory_trouble(factor, torch)
            if why:
                break
            text = "what a step costs whatever its batch of %d is divided by more samples"
            found.append(
                offer(cls.key, factor * loader.batch_size, text % loader.batch_size, work=factor)
            )
        return found or [refusal(cls.key, why)]

    @staticmethod
    def trouble_of(loaders, feeding, torch):
        if not feeding:
            return "no DataLoader feeds the steps"
        if len(feeding) > 1:
            return "several loaders feed the steps"
        loader = feeding[0].loader()
        if loader is None:
            return "the loader that fed the steps is gone"
        others = [entry for entry in loaders.living() if entry is not feeding[0]]
        if any(entry.shuffles() and entry.loader() is not None for entry in others):
            return "a loader that does not feed the steps shuffles, too"
        return loader_trouble(loader, feeding[0], torch)

    @staticmethod
    def optimizer_trouble(shim, torch):
        optimizers = the_search(shim).living_optimizers()
        if not optimizers:
            return "the program trains nothing"
        unknown = [one for one in optimizers if rules_of(one, torch) is None]
        return why_no_rule(unknown[0]) if unknown else ""


class Accumulate(Knob):
    """Gradients of several steps are added up beside those of the program, which it may clip and clear
    as it likes. The last of them makes one update of their mean."""

    key = "optimizer.accumulate"

    def __init__(self, shim, value):
        super().__init__(shim, value)
        self.sums = weakref.WeakKeyDictionary()  # optimizers: [steps, {parameter: sum}]

    def hook_optimizer(self, module):
        def run(optimizer, step, args, kwargs):
            rules = self.rules_for(optimizer, args, kwargs)
            if rules is None:
                return step(optimizer, *args, **kwargs)
            if not self.takes_mean(optimizer):
                return None
            with Scaled(optimizer, rules, self.value):
                return step(optimizer)

        around_steps(module, run)

    def rules_for(self, optimizer, args, kwargs):
        torch = sys.modules["torch"]
        if self.state == "refused" or not self.shim.on or torch.compiler.is_compiling():
            return None
        has_closure = (args[0] if args else kwargs.get("closure")) is not None
        why = accumulation_trouble(optimizer, torch)
        if has_closure:
            why = "a step of %s computes losses itself" % type(optimizer).__name__
        if why:
            self.refuse(why, call_site())
            return None
        if self.state != "applied":
            name = type(optimizer).__name__
            self.apply("%s updates once for %d steps" % (name, self.value), call_site())
        return rules_of(optimizer, torch)

    def takes_mean(self, optimizer):
        """Adds the gradients of this step; true where the parameters now have the mean."""
        torch = sys.modules["torch"]
        entry = self.sums.setdefault(optimizer, [0, {}])
        entry[0] += 1
        is_last, sums = entry[0] % self.value == 0, entry[1]
        with torch.no_grad():
            for parameter in parameters_of(optimizer):
                gradient, number = parameter.grad, id(parameter)
                if is_last:
                    parameter.grad = mean_of(gradient, sums.get(number), self.value)
                elif gradient is not None and number in sums:
                    sums[number].add_(gradient)
                elif gradient is not None:
                    sums[number] = gradient.clone()
        if is_last:
            sums.clear()
        return is_last

    @classmethod
    def offers(cls, shim, marker):
        torch, why = shim.torch, ""
        optimizers = the_search(shim).living_optimizers()
        if not optimizers:
            why = "the program trains nothing"
        for optimizer in optimizers:
            why = why or accumulation_trouble(optimizer, torch)
        if why:
            return [refusal(cls.key, why)]
        text = "an update takes its time whatever the number of samples behind it"
        return [offer(cls.key, number, text) for number in FACTORS]


def accumulation_trouble(optimizer, torch):
    if rules_of(optimizer, torch) is None:
        return why_no_rule(optimizer)
    if any(p.grad is not None and p.grad.is_sparse for p in parameters_of(optimizer)):
        return "gradients of %s are sparse" % type(optimizer).__name__
    return ""


def mean_of(gradient, others, number):
    if gradient is None or others is None:
        only = others if gradient is None else gradient
        return None if only is None else only.div_(number)
    return gradient.add_(others).div_(number)


KNOBS = [Batch, Accumulate]
