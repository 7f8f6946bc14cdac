"""background_loader.py WHAT: trains with loaders whose samples draw random numbers, and prints all that
can be told of each batch and where the random numbers are. A thread may make the batches, and nothing
of this is another. On stderr: how many samples were made on another thread than the one that steps.
"""
import os
import random
import sys
import threading

import numpy as np
import torch
from torch.utils import data

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from knobs_loader import Drawing, Samples, described, row, states

ELSEWHERE = [0]
OWN = np.random.default_rng(5)


def crop(index):
    """Draws from all sources, its own included."""
    ELSEWHERE[0] += threading.current_thread() is not threading.main_thread()
    begin = int(torch.randint(3, ()))
    noise = np.random.rand() + random.random() + OWN.normal()
    return row(index, 8)[begin : begin + 4] * noise, index


def loader(count=80, **options):
    return data.DataLoader(Samples(count, crop), **{"batch_size": 4, "shuffle": True, **options})


class Training:
    """Its steps draw nothing."""

    def __init__(self):
        self.weight = torch.nn.Parameter(torch.zeros(()))
        self.optimizer = torch.optim.SGD([self.weight], lr=0.1)

    def step(self, batch):
        print(described(batch))
        self.optimizer.zero_grad()
        (self.weight * batch[0].sum()).backward()
        self.optimizer.step()

    def epochs(self, train, epochs=3, behind=lambda step: None):
        for epoch in range(epochs):
            for step, batch in enumerate(train):
                self.step(batch)
                behind(step)
            print("epoch", epoch, states(), self.weight.item())


def crops():
    Training().epochs(loader())


def seeded():
    """Samples that set the generators, as some do for the same crop in each epoch."""

    def make(index):
        torch.manual_seed(index)
        return crop(index)

    Training().epochs(data.DataLoader(Samples(40, make), batch_size=4, shuffle=True))


def left():
    """Epochs that are left early; of one the numbers of the sampler come in pieces."""
    training, generator = Training(), torch.Generator().manual_seed(7)
    sampler = data.RandomSampler(range(80), replacement=True, num_samples=400, generator=generator)
    for train in (loader(), loader(shuffle=False, sampler=sampler)):
        for last in (1, 6, 9, 15):
            for step, batch in enumerate(train):
                training.step(batch)
                if step == last:
                    break
            print(states(), generator.get_state().sum().item())


def other():
    """Another loader in the middle of an epoch, and one more of its own."""
    train, test = loader(), data.DataLoader(Samples(8, crop), batch_size=4)

    def evaluate(step):
        if step % 7 == 5:
            print([described(batch) for batch in test], states())

    training = Training()
    training.epochs(train, behind=evaluate)
    for one, another in zip(train, train):
        training.step(one)
        print(described(another))
    print(states())


def looks():
    """As who saves a checkpoint with the states of generators."""

    def look(step):
        if step % 6 == 4:
            print(states())
        if step == 10:
            torch.manual_seed(3)
            random.seed(4)
            np.random.seed(5)

    Training().epochs(loader(), behind=look)


def forks():
    def fork(step):
        if step != 6:
            return
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            random.seed(0)  # Python has seeded it anew
            torch.rand(())
            return
        os.waitpid(child, 0)

    training, pid = Training(), os.getpid()
    training.epochs(loader(), 1, fork)
    if os.getpid() != pid:
        sys.stdout.flush()
        os._exit(0)
    training.epochs(loader(), 1)


def draws():
    """Each step draws, as dropout does."""
    Training().epochs(loader(), behind=lambda step: torch.rand(()))


def changes():
    """Each step changes the dataset, as one that is filled while it is trained with."""
    train = loader()
    train.dataset.seen = 0

    def change(step):
        train.dataset.seen += 1

    train.dataset.make = lambda index: crop(index + train.dataset.seen)
    Training().epochs(train, behind=change)


def late():
    """Steps draw from the sixth on, where batches are ahead already."""
    Training().epochs(loader(), behind=lambda step: step > 5 and torch.rand(()))


def sampler():
    Training().epochs(loader(shuffle=False, sampler=Drawing()))


def bound():
    """Samples that only the thread that made the dataset can read."""
    owner = threading.get_ident()

    def make(index):
        torch.rand(())
        if threading.get_ident() != owner:
            raise RuntimeError("made in another thread")
        return crop(index)

    Training().epochs(data.DataLoader(Samples(40, make), batch_size=4, shuffle=True))


def fails():
    def make(index):
        if index == 39:
            raise ValueError("sample 39 is broken")
        return crop(index)

    train = data.DataLoader(Samples(80, make), batch_size=4)
    try:
        Training().epochs(train)
    except ValueError as error:
        print(error, states())


def ends():
    """The program ends while batches are ahead."""
    global batches
    training, batches = Training(), iter(loader())
    for _ in range(6):
        training.step(next(batches))


def main():
    torch.manual_seed(0)
    np.random.seed(0)
    random.seed(0)
    globals()[sys.argv[1]]()
    print("elsewhere %d" % ELSEWHERE[0], file=sys.stderr)


if __name__ == "__main__":
    main()
