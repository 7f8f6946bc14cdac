"""knobs_loader.py WHAT: trains with loaders of several kinds and prints all that can be told of each
batch, and where the random numbers are behind each epoch. Ridge may change how loaders do it, but
nothing of this. On stderr: how many samples were read, in this process.
"""
import collections
import hashlib
import random
import sys

import numpy as np
import torch
from torch.utils import data

EPOCHS = 3
READS = [0]
Point = collections.namedtuple("Point", "x label")


class Samples(data.Dataset):
    """Sample i is make(i)."""

    def __init__(self, count, make):
        self.count, self.make = count, make

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        READS[0] += 1
        return self.make(index)


def row(index, width=5):
    return torch.arange(width, dtype=torch.float32).mul(0.37).add(index).sin()


def spread(index):
    return np.float32(index) / 7, np.arange(3, dtype=np.int16) + index, index, index / 3, index % 2 == 0


def words(index):
    return {"text": "sample %d" % index, "raw": b"%d" % index, "at": (index, [row(index, 2), "x"])}


def permuted_row(index):
    return torch.arange(24, dtype=torch.float32).add(index).view(2, 4, 3).permute(2, 0, 1)


def uneven(index):
    return {"x": row(index, 1 + index % 4), "seen": []}


def padded(samples):
    """Changes the samples that it is given, as such functions do."""
    for sample in samples:
        sample["seen"].append(len(samples))
        sample["x"].mul_(2)
    return {
        "x": torch.nn.utils.rnn.pad_sequence([sample.pop("x") for sample in samples]),
        "seen": [sample["seen"] for sample in samples],
    }


def table(count):
    columns = torch.arange(count * 3, dtype=torch.float64).view(count, 3), torch.arange(count)
    return data.TensorDataset(*columns)


def parts(count):
    whole = data.ConcatDataset([Samples(count - 20, row), Samples(20, row)])
    return data.Subset(whole, list(range(0, count, 2)))


class Halves(data.Sampler):
    """A batch sampler of the program's own, which draws when it is asked for the first batch."""

    def __init__(self, count):
        self.count = count

    def __iter__(self):
        order = torch.randperm(self.count).tolist()
        yield order[: self.count // 2]
        yield order[self.count // 2 :]

    def __len__(self):
        return 2


class EagerHalves(Halves):
    """It draws when it is iterated: with workers that is done twice."""

    def __iter__(self):
        return iter(list(super().__iter__()))


class Drawing(data.Sampler):
    """It draws between batches."""

    def __iter__(self):
        for _ in range(40):
            yield torch.randint(40, ()).item()

    def __len__(self):
        return 40


def weighted(count):
    weights = torch.linspace(0.1, 1, count)
    return data.WeightedRandomSampler(weights, 2 * count)


SERVED = {
    "rows": lambda: data.DataLoader(Samples(300, row), batch_size=16, shuffle=True),
    "pairs": lambda: data.DataLoader(
        Samples(41, lambda i: (row(i), i)), batch_size=8, shuffle=True, drop_last=True
    ),
    "numbers": lambda: data.DataLoader(Samples(50, spread), batch_size=7, shuffle=True),
    "words": lambda: data.DataLoader(Samples(50, words), batch_size=8, shuffle=True),
    "named": lambda: data.DataLoader(
        Samples(30, lambda i: Point(row(i), i)), batch_size=4, shuffle=True
    ),
    "images": lambda: data.DataLoader(
        Samples(20, lambda i: row(i, 64).view(1, 8, 8)), batch_size=1, shuffle=True
    ),
    "uneven": lambda: data.DataLoader(
        Samples(30, uneven), batch_size=4, shuffle=True, collate_fn=padded
    ),
    "table": lambda: data.DataLoader(table(64), batch_size=16, shuffle=True),
    "parts": lambda: data.DataLoader(parts(60), batch_size=8, shuffle=True),
    "weighted": lambda: data.DataLoader(Samples(30, row), batch_size=8, sampler=weighted(30)),
    "batches": lambda: data.DataLoader(Samples(30, row), batch_sampler=Halves(30)),
    "seeded": lambda: data.DataLoader(
        Samples(30, row), batch_size=8, shuffle=True, generator=torch.Generator().manual_seed(7)
    ),
}


def described(value):
    if isinstance(value, torch.Tensor):
        bits = hashlib.sha1(value.contiguous().numpy().tobytes()).hexdigest()[:12]
        shape = tuple(value.shape), value.stride(), value.is_contiguous()
        return "%s %s %s %s %s" % (type(value).__name__, value.dtype, shape, value.requires_grad, bits)
    if isinstance(value, dict):
        parts = ", ".join("%r: %s" % (key, described(part)) for key, part in value.items())
    elif isinstance(value, (list, tuple)):
        parts = ", ".join(described(part) for part in value)
    else:
        return repr(value)
    return "%s(%s)" % (type(value).__name__, parts)


def states():
    text = "%r %r" % (random.getstate(), np.random.get_state()[1:3])
    bits = torch.get_rng_state().numpy().tobytes() + text.encode()
    return hashlib.sha1(bits).hexdigest()[:12]


class Training:
    def __init__(self):
        self.weight = torch.nn.Parameter(torch.zeros(()))
        self.optimizer = torch.optim.SGD([self.weight], lr=0.1)

    def step(self):
        self.optimizer.zero_grad()
        (self.weight * torch.rand(())).backward()  # as dropout, it draws
        self.optimizer.step()

    def epochs(self, name, loader, epochs=EPOCHS, behind=lambda epoch: None):
        for epoch in range(epochs):
            for batch in loader:
                print(name, epoch, described(batch))
                for tensor in batch if isinstance(batch, list) else ():
                    if isinstance(tensor, torch.Tensor):
                        tensor.zero_()  # it is the program's
                self.step()
            print(name, epoch, states())
            behind(epoch)


def served(names):
    training = Training()
    for name in names:
        loader = SERVED[name]()
        training.epochs(name, loader)
        del loader


def two():
    """One that feeds steps, and one that does not."""
    training = Training()
    train = data.DataLoader(Samples(40, row), batch_size=8, shuffle=True)
    test = data.DataLoader(Samples(10, row), batch_size=5)
    for epoch in range(EPOCHS):
        training.epochs("train", train, 1)
        for batch in test:
            print("test", described(batch))
    print(train.num_workers, test.num_workers, file=sys.stderr)


def together():
    """Two at once of one loader, one of them left early."""
    training = Training()
    loader = data.DataLoader(Samples(40, row), batch_size=8, shuffle=True)
    for epoch in range(EPOCHS):
        for one, other in zip(loader, loader):
            print(described(one), described(other))
            training.step()
        for batch in loader:
            print(described(batch))
            training.step()
            break
        print(states())


def anew(makes_samples=None):
    """A loader for each epoch, which nobody holds."""
    samples = Samples(400, row)
    training = Training()
    for epoch in range(EPOCHS):
        own = makes_samples() if makes_samples else samples
        for batch in data.DataLoader(own, batch_size=8, shuffle=True):
            print("anew", epoch, described(batch))
            training.step()
        print("anew", epoch, states())


def others():
    """And a dataset for each."""
    anew(lambda: Samples(400, row))


def changing():
    """The dataset is another behind the first epoch."""
    samples = Samples(40, row)
    loader = data.DataLoader(samples, batch_size=8, shuffle=True)

    def change(epoch):
        samples.make = (lambda i: row(i) + 1) if epoch == 0 else samples.make

    Training().epochs("changing", loader, behind=change)


def silent():
    """As above, within an array."""
    values = np.arange(40, dtype=np.float32)
    loader = data.DataLoader(Samples(40, lambda i: values[i]), batch_size=8, shuffle=True)

    def change(epoch):
        values[:] *= 2

    Training().epochs("silent", loader, behind=change)


def rare():
    """One sample alone draws random numbers."""
    make = lambda i: row(i) + (torch.rand(()) if i == 299 else 0)
    Training().epochs("rare", data.DataLoader(Samples(300, make), batch_size=8, shuffle=True))


def own(persistent):
    """Workers that the program has itself."""
    training = Training()
    for name in ("rows", "words"):
        made = SERVED[name]()
        loader = data.DataLoader(
            made.dataset,
            batch_size=made.batch_size,
            shuffle=True,
            num_workers=2,
            persistent_workers=persistent,
            timeout=60,
        )
        training.epochs(name, loader)


def forked():
    """A process that is forked behind the first epoch goes on by itself."""
    import os

    training = Training()
    loader = data.DataLoader(Samples(40, row), batch_size=8, shuffle=True)
    training.epochs("parent", loader, 1)
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        try:
            random.seed(0)  # Python has seeded it anew
            training.epochs("child", loader, 2)
            sys.stdout.flush()
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    training.epochs("parent", loader, 1)


def inference():
    model = torch.nn.Linear(5, 2).eval()
    loader = data.DataLoader(Samples(40, row), batch_size=8)
    with torch.no_grad():
        for _ in range(EPOCHS):
            for batch in loader:
                print(described(batch), model(batch).shape)


def permuted():
    loader = data.DataLoader(Samples(20, permuted_row), batch_size=4, shuffle=True)
    Training().epochs("permuted", loader)


def eager():
    loader = data.DataLoader(Samples(30, row), batch_sampler=EagerHalves(30))
    Training().epochs("eager", loader)


def odd():
    """Asks for samples from behind, and for one that is not there."""
    samples = Samples(40, row)
    order = [[-1, -40], [np.int64(3), torch.tensor(4)], [39, 0]]
    training = Training()
    training.epochs("odd", data.DataLoader(samples, batch_sampler=order))
    loader = data.DataLoader(table(8), batch_sampler=[[1, 2], [8]])
    try:
        training.epochs("missing", loader)
    except IndexError as error:
        print(error)


def main():
    torch.manual_seed(0)
    np.random.seed(0)
    random.seed(0)
    what = sys.argv[1]
    if what == "served":
        served(SERVED)
    elif what == "own":
        own(persistent=False)
        own(persistent=True)
    else:
        globals()[what]()
    print("read %d" % READS[0], file=sys.stderr)


if __name__ == "__main__":
    main()
