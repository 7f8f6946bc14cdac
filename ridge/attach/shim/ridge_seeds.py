"""Random numbers of runs that are compared with each other (ridge_record.py).

A program that sets no seed is given one, at its import of torch. Reseeded, it is the same program
on the same data that begins elsewhere: from its first parameter on, every seed is another, so that
weights, dropout and the order of samples are. What was drawn before is left alone, and so are
generators of the program's own: data are made from them.
"""
import functools
import random
import sys

FIRST = 20_240_611
APART = 0x9E3779B1  # odd, and far from what people write
MOST = 1 << 63


class Seeds:
    def __init__(self, shim, reseed):
        self.shim, self.shift = shim, reseed * APART
        self.torch, self.numpy = None, None
        self.is_on, self.is_nested = False, False
        self.was_set, self.unseeded = False, 0

    def hook(self, torch):
        self.torch = torch
        self.numpy = getattr(sys.modules.get("numpy"), "random", None)
        torch.manual_seed(FIRST)
        random.seed(FIRST)
        for owner, name, most in (
            (torch.random, "manual_seed", MOST),
            (torch.cuda, "manual_seed", MOST),
            (torch.cuda, "manual_seed_all", MOST),
            (random, "seed", 0),
        ):
            self.follow(owner, name, most)
        torch.manual_seed = torch.random.manual_seed
        if self.numpy is not None:
            self.numpy.seed(FIRST)
            self.follow(self.numpy, "seed", 1 << 32)
            self.seed_generators(self.numpy)
        if self.shift:
            self.begin_with_first_parameter(torch.nn.Module)

    def follow(self, owner, name, most):
        """`most`: seeds are below it; 0: any is one."""
        original = getattr(owner, name)

        @functools.wraps(original)
        def seed(*args, **kwargs):
            # torch.manual_seed calls those of the devices.
            if self.is_nested or not self.shim.on:
                return original(*args, **kwargs)
            self.was_set = True
            self.is_nested = True
            try:
                args = [self.other(value, most) for value in args]
                kwargs = {key: self.other(value, most) for key, value in kwargs.items()}
                return original(*args, **kwargs)
            finally:
                self.is_nested = False

        setattr(owner, name, seed)

    def other(self, value, most):
        if not self.is_on or not isinstance(value, int) or isinstance(value, bool):
            return value
        return (value + self.shift) % most if most else value + self.shift

    def seed_generators(self, module):
        original = module.default_rng

        @functools.wraps(original)
        def default_rng(seed=None):
            if seed is None and self.shim.on:
                self.unseeded += 1
                seed = FIRST + self.unseeded
            return original(seed)

        module.default_rng = default_rng

    def begin_with_first_parameter(self, module):
        original = module.register_parameter

        @functools.wraps(original)
        def register_parameter(self_module, name, param):
            if param is not None and not self.is_on:
                module.register_parameter = original
                self.begin()
            return original(self_module, name, param)

        module.register_parameter = register_parameter

    def begin(self):
        try:
            self.is_nested = True
            self.torch.manual_seed((self.torch.initial_seed() + self.shift) % MOST)
            random.seed(random.getrandbits(64) + self.shift)
            if self.numpy is not None:
                self.numpy.seed((int(self.numpy.randint(1 << 31)) + self.shift) % (1 << 32))
        except Exception as error:
            self.shim.note("the program could not be reseeded: %s" % str(error)[:200])
        finally:
            self.is_nested = False
            self.is_on = True

    def note_unset_seed(self):
        if not self.was_set:
            self.shim.note("the program sets no seed: it was given one, to compare its runs")
