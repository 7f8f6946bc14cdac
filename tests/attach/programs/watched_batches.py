"""Batches without torch, made under the real watch of them (ridge_batches.py): MODE of what their
samples draw from.
"""
import importlib.util
import os
import random
import sys

FOLDER = os.environ["PYTHONPATH"].split(":")[0]
OWN = random.Random(5)


def load(name):
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, os.path.join(FOLDER, name + ".py"))
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


class State:
    """What torch says of its random numbers: nobody draws from them here."""

    def numpy(self):
        return self

    def tobytes(self):
        return b"torch"


class Tensor:
    def __init__(self, is_plain):
        self.is_plain = is_plain

    def is_contiguous(self):
        return self.is_plain

    def numel(self):
        return 10

    def element_size(self):
        return 4


class Torch:
    """All of torch that the watch asks for."""

    Tensor, Generator, wants_gradients = Tensor, type("Generator", (), {}), True

    class cuda:
        is_initialized = staticmethod(lambda: False)

    @staticmethod
    def get_rng_state():
        return State()

    @staticmethod
    def is_grad_enabled():
        return Torch.wants_gradients


class Fetcher:
    def __init__(self, dataset):
        self.dataset, self.collate_fn = dataset, list

    def fetch(self, indices):
        return self.collate_fn(self.dataset[index] for index in indices)


class Module:
    torch = Torch

    class _utils:
        class fetch:
            _MapDatasetFetcher = type("Map", (Fetcher,), {"fetch": Fetcher.fetch})
            _IterableDatasetFetcher = type("Iterable", (Fetcher,), {"fetch": Fetcher.fetch})


def jitter():
    return OWN.random()


class Samples:
    def __init__(self, mode):
        self.mode = mode

    def __getitem__(self, index):
        if self.mode == "common":
            random.random()
        elif self.mode in ("own", "worker"):
            jitter()
        elif self.mode == "rarely" and index == 15:
            random.random()
        return Tensor(self.mode != "layout")


def main():
    mode = sys.argv[1]
    shim = load("ridge_shim").Shim(FOLDER, load)
    shim.parts[-1].hook_loader(Module)
    fetchers = Module._utils.fetch
    kind = fetchers._IterableDatasetFetcher if mode == "iterable" else fetchers._MapDatasetFetcher
    if mode == "worker" and os.fork() != 0:
        os.wait()
        shim.end()
        return
    before = random.getstate()
    batches = kind(Samples("" if mode == "evaluation" else mode))
    for number in range(16):
        assert len(batches.fetch([number] * 3)) == 3
    if mode == "evaluation":
        Torch.wants_gradients = False
        kind(Samples("common")).fetch([1])
    assert (random.getstate() == before) == (mode not in ("common", "rarely", "evaluation"))
    shim.end()


main()
