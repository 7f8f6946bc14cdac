"""A small training: MODE of how it trains or ends, STEPS optimizer steps. Prints what it learnt."""
import hashlib
import os
import random
import sys
import threading

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


OWN = random.Random(5)


def jitter():
    return OWN.random()


class Points(Dataset):
    """`draws`: "torch", or "own" for a generator that only the module knows."""

    def __init__(self, draws=""):
        self.draws = draws

    def __len__(self):
        return 4096

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        x = torch.randn(16, generator=generator)
        if self.draws == "torch":
            x += torch.rand(1)
        elif self.draws == "own":
            x += jitter()
        return x, index % 4


def model():
    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 4))


def batches(loader):
    while True:
        yield from loader


def train(mode, steps):
    net, loss = model(), nn.CrossEntropyLoss()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 10)
    workers = 2 if mode in ("workers", "draws-workers") else 0
    draws = {"draws": "torch", "draws-workers": "torch", "draws-own": "own"}.get(mode, "")
    data = batches(DataLoader(Points(draws), batch_size=8, shuffle=True, num_workers=workers))
    parts = 4 if mode == "accumulate" else 1
    for step in range(steps):
        optimizer.zero_grad()
        for _ in range(parts):
            x, y = next(data)
            (loss(net(x), y) / parts).backward()
        optimizer.step()
        schedule.step()
        at_step(mode, step, net)
    return net


def at_step(mode, step, net):
    if mode == "crash" and step == 20:
        raise ValueError("broken on purpose")
    if mode == "exit" and step == 20:
        sys.exit(7)
    if mode == "gone" and step == 20:
        os._exit(9)
    if mode == "save" and step % 5 == 0:
        torch.save(net.state_dict(), os.devnull)
    if mode == "fork" and step == 9:  # while it is recorded
        child = os.fork()
        if child == 0:
            train("plain", 15)
            sys.exit(3)
        print("child", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


def train_gan(steps):
    first, second = nn.Linear(4, 4), nn.Linear(4, 1)
    optimizers = [torch.optim.SGD(net.parameters(), lr=0.01) for net in (second, first)]
    for _ in range(steps):
        for optimizer in optimizers:
            optimizer.zero_grad()
            second(first(torch.randn(8, 4))).mean().backward()
            optimizer.step()
    return first


def train_profiled(when, steps):
    """The program has a profiler of its own, over steps that it shares with ours or not."""
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    schedule = torch.profiler.schedule(wait=0, warmup=1, active=3, repeat=1)
    own = torch.profiler.profile(schedule=schedule)
    for step in range(steps):
        if step == when:
            own.start()
        net(torch.randn(4, 16)).sum().backward()
        optimizer.step()
        if when <= step < when + 4:
            own.step()
        if step == when + 4:
            own.stop()
    names = {event.key for event in own.key_averages()}
    print("has addmm:", "aten::addmm" in names)
    return net


def main():
    mode, steps = sys.argv[1], int(sys.argv[2])
    torch.manual_seed(1)
    torch.set_num_threads(1)
    if mode == "gan":
        net = train_gan(steps)
    elif mode == "early-profiler":
        net = train_profiled(2, steps)
    elif mode == "late-profiler":
        net = train_profiled(9, steps)
    elif mode == "compiled-step":
        net = model()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
        step = torch.compile(optimizer.step, backend="eager")
        for _ in range(steps):
            net(torch.randn(4, 16)).sum().backward()
            step()
    else:
        net = train(mode, steps)
    state = b"".join(p.detach().numpy().tobytes() for p in net.parameters())
    print(hashlib.sha256(state).hexdigest(), torch.rand(1).item())
    if mode not in ("workers", "draws-workers"):  # its feeding threads end when they end
        print(threading.active_count())
    print("sitecustomize" in sys.modules, torch.get_num_threads(), len(sys.path))


main()
