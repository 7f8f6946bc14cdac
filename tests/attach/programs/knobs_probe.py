"""knobs_probe.py: what the probe of a shim says of loaders, one line an offer: "CASE KEY VALUE CLASS
TEXT" or "CASE KEY refused: WHY". All in one process: importing torch takes longer than the rest.
"""
import itertools
import os
import random
import sqlite3
import sys
import tempfile
import time

import numpy as np
import torch
from torch.utils import data

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from knobs_loader import Drawing, EagerHalves, Halves, Samples, Training, permuted_row, row

shim = sys.modules["ridge_shim"]._shim
part = next(each for each in shim.parts if hasattr(each, "files"))
# A millisecond passes each time that the clock is read. On a busy machine one step may take longer than
# all batches of a case, and a loader that takes too little of the time is offered nothing.
sys.modules["ridge_loaders"].clock = itertools.count(0, 1_000_000).__next__
folder = tempfile.TemporaryDirectory()
path = os.path.join(folder.name, "samples.bin")
with open(path, "wb") as file:
    file.write(bytes(range(256)) * 4096)


class OfFile(data.Dataset):
    """A file that is opened once, and sought in."""

    def __init__(self):
        self.file = open(path, "rb")

    def __len__(self):
        return 200

    def __getitem__(self, index):
        self.file.seek(index * 16)
        return torch.tensor(list(self.file.read(16)))


class OfDescriptor(OfFile):
    def __init__(self):
        self.number = os.open(path, os.O_RDONLY)

    def __getitem__(self, index):
        os.lseek(self.number, index * 16, os.SEEK_SET)
        return torch.tensor(list(os.read(self.number, 16)))


class OfPlaces(OfDescriptor):
    """It shares no offset."""

    def __getitem__(self, index):
        return torch.tensor(list(os.pread(self.number, 16, index * 16)))


class OfTable(data.Dataset):
    def __init__(self):
        self.table = sqlite3.connect(":memory:")

    def __len__(self):
        return 40

    def __getitem__(self, index):
        return self.table.execute("select ?", (index,)).fetchone()[0]


class Counting(Samples):
    reads = 0

    def __getitem__(self, index):
        self.reads += 1
        return super().__getitem__(index)


class Own(data.Dataset):
    """It has a generator of its own, which is not read where torch's are."""

    def __init__(self):
        self.generator = np.random.default_rng(0)

    def __len__(self):
        return 40

    def __getitem__(self, index):
        return self.generator.normal()


class Stream(data.IterableDataset):
    def __iter__(self):
        return iter(range(400))


class SharedStream(data.IterableDataset):
    def __iter__(self):
        worker = data.get_worker_info()
        return iter(range(worker.id, 400, worker.num_workers) if worker else range(400))


class Giant(Samples):
    def __len__(self):
        return 10**11


class Slow(Samples):
    """At least 1000 seconds to read and 8 MB to keep, on whatever machine."""

    def __len__(self):
        return 10**6

    def __getitem__(self, index):
        time.sleep(0.001)
        return super().__getitem__(index)


class QuietTraining(Training):
    def step(self):
        self.optimizer.zero_grad()
        (self.weight * 2).backward()
        self.optimizer.step()


def loader(dataset, **options):
    return data.DataLoader(dataset, **{"batch_size": 4, "shuffle": True, **options})


def plain(make):
    return lambda: loader(Samples(80, make))


CASES = {
    "rows": plain(row),
    "permuted": plain(permuted_row),
    "torch": plain(lambda i: row(i) + torch.rand(())),
    "numpy": plain(lambda i: i + np.random.rand()),
    "random": plain(lambda i: i + random.random()),
    "own": lambda: loader(Own()),
    "entropy": plain(lambda i: os.urandom(4)),
    "file": lambda: loader(OfFile()),
    "nested": lambda: loader(data.Subset(OfFile(), list(range(80)))),
    "descriptor": lambda: loader(OfDescriptor()),
    "places": lambda: loader(OfPlaces()),
    "sqlite": lambda: loader(OfTable()),
    "closure": lambda: (lambda file: loader(Samples(80, lambda i: len(str(file)) * 0 + i)))(
        open(path, "rb")
    ),
    "counting": lambda: loader(Counting(80, row)),
    "stream": lambda: loader(Stream(), shuffle=False),
    "shared_stream": lambda: loader(SharedStream(), shuffle=False),
    "unbatched": lambda: loader(Samples(80, row), batch_size=None),
    "init": lambda: loader(Samples(80, row), worker_init_fn=print),
    "halves": lambda: data.DataLoader(Samples(60, row), batch_sampler=Halves(60)),
    "eager": lambda: data.DataLoader(Samples(60, row), batch_sampler=EagerHalves(60)),
    "drawing": lambda: loader(Samples(40, row), shuffle=False, sampler=Drawing()),
    "giant": lambda: loader(
        Giant(80, row), shuffle=False, sampler=data.SubsetRandomSampler(range(80))
    ),
    "slow": lambda: loader(
        Slow(80, lambda i: i), shuffle=False, sampler=data.SubsetRandomSampler(range(80))
    ),
    "workers": lambda: loader(Samples(80, row), num_workers=1, prefetch_factor=3),
    "text": lambda: loader(Samples(80, str), collate_fn=lambda samples: torch.tensor(len(samples))),
}


# Their steps draw nothing.
QUIET = {
    "quiet": plain(lambda i: row(i) + torch.rand(())),
    "quiet_file": lambda: loader(OfFile()),
    "quiet_drawing": lambda: loader(Samples(40, row), shuffle=False, sampler=Drawing()),
}


def probe(name, train, training=None):
    """As in a process of its own."""
    part.offers, part.is_probed, part.first = [], False, 0.0
    shim.steps.settle()
    shim.steps.count = 0
    files = {file.__name__: file for file in part.files}
    files["ridge_knob_loader"]._findings.clear()

    training = training or Training()
    try:
        while not part.is_probed:
            for _ in train:
                drawn = random.getstate(), np.random.get_state()[1].tobytes()
                training.step()
                if (random.getstate(), np.random.get_state()[1].tobytes()) != drawn:
                    print(name, "the probe drew random numbers")
                if part.is_probed:
                    break
    finally:
        sys.modules["ridge_loaders"]._loaders.entries.clear()
    for offer in part.offers:
        if offer["key"].startswith("loader."):
            if offer["refusal"]:
                print(name, offer["key"], "refused:", offer["refusal"])
            else:
                print(name, offer["key"], offer["value"], offer["class"], offer["text"])


def without():
    """Steps that no loader feeds."""
    while not part.is_probed:
        yield row(1)


def evaluated():
    """A loader that feeds steps where it looks as for evaluation."""
    train, other = loader(Samples(80, row), shuffle=False), loader(Samples(80, row))
    yield from train
    yield from train
    del other


def main():
    for name, make in CASES.items():
        probe(name, make())
    for name, make in QUIET.items():
        probe(name, make(), QuietTraining())
    probe("without", without())
    probe("evaluated", evaluated())


main()
