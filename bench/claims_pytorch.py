#!/usr/bin/env python3
"""Puts claims of articles about training speed to the test, in PyTorch on the CPU; docs/claims.md has what came out.

Each setup runs in processes of its own, in turn with the others of its group. A line has the time of a sample,
the speed against the first setup and its range over the rounds, the share of the CPUs used, and the peak of memory.

Usage: claims_pytorch.py [--rounds N] workers|batch|memory|utilization
"""

import argparse
import concurrent.futures
import ctypes
import functools
import multiprocessing
import resource
import statistics
import time

import torch
from torch import nn
from torch.utils.data import ConcatDataset, DataLoader, TensorDataset
from torchvision import datasets, transforms

PICTURES = "build/pictures"  # made by build/release/make_jpeg_folder build/pictures 100
AUGMENT = transforms.Compose([transforms.RandomResizedCrop(96), transforms.ToTensor()])


def perceptron(width):
    hidden = (nn.Sequential(nn.Linear(width, width), nn.ReLU()) for _ in range(3))
    return nn.Sequential(*hidden, nn.Linear(width, 10))


def cnn():
    blocks = (nn.Sequential(nn.Conv2d(i, o, 3, 2), nn.ReLU()) for i, o in ((3, 16), (16, 32), (32, 64)))
    return nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


def timed(batches, work=lambda *_: None):
    """Microseconds a sample, and the share of the CPUs that this process used meanwhile."""
    start, busy, samples = time.perf_counter(), time.process_time(), 0
    for inputs, labels in batches:
        work(inputs, labels)
        samples += len(labels)
    seconds = time.perf_counter() - start
    return seconds / samples * 1e6, (time.process_time() - busy) / seconds / multiprocessing.cpu_count()


def trained(model, batches, warm_up, after_step=lambda: None):
    optimizer = torch.optim.AdamW(model.parameters())

    def step(inputs, labels):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
        after_step()

    timed(warm_up, step)
    return timed(batches, step)


def repeated(model, batch, samples, *shape, after_step=lambda: None, threads=None):
    torch.set_num_threads(threads or torch.get_num_threads())
    data = [(torch.randn(batch, *shape), torch.randint(0, 10, (batch,)))]
    return trained(model(), data * max(8, samples // batch), data * 3, after_step)


def loaded(model, dataset, batch, workers):
    loader = DataLoader(dataset, batch, shuffle=True, num_workers=workers)
    return trained(model(), loader, [next(iter(loader))] * 3) if model else timed(loader)


def groups(test):
    """{group: {setup: work}}; no arithmetic, which would start threads that a fork loses."""
    part, mlp = functools.partial, functools.partial(perceptron, 128)
    if test == "workers":
        pictures = ConcatDataset([datasets.ImageFolder(PICTURES, AUGMENT)] * 2)
        rows = TensorDataset(torch.zeros(1, 128).expand(40000, 128), torch.tensor(0).expand(40000))
        kinds = {"JPEG": (None, pictures, 32), "JPEG, CNN": (cnn, pictures, 32), "rows, perceptron": (mlp, rows, 64)}
        return {kind: {f"{n} workers": part(loaded, *a, n) for n in (0, 1, 2, 4, 8)} for kind, a in kinds.items()}
    if test == "batch":
        kinds = {"perceptron": (mlp, 60000, (32, 64, 128, 256, 1024, 4096), 128),
                 "CNN": (cnn, 1000, (8, 16, 32, 64, 128), 3, 96, 96)}  # fmt: skip
        return {kind: {f"batch {n}": part(repeated, model, n, samples, *shape) for n in batches}
                for kind, (model, samples, batches, *shape) in kinds.items()}  # fmt: skip
    if test == "memory":
        calls = {"nothing": lambda: None, "torch.cuda.empty_cache()": torch.cuda.empty_cache,
                 "malloc_trim(0)": lambda: ctypes.CDLL(None).malloc_trim(0)}  # fmt: skip
        steps = part(repeated, cnn, 32, 1000, 3, 96, 96)
        return {"CNN, after each step": {name: part(steps, after_step=call) for name, call in calls.items()}}
    return {f"perceptron of width {width}, batch {batch}": {
        f"{n} threads": part(repeated, part(perceptron, width), batch, 30000, width, threads=n) for n in (1, 2, 16)
    } for width, batch in ((64, 16), (512, 256))}  # fmt: skip


def measured(test, group, setup):
    return *groups(test)[group][setup](), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def fresh(*setup):
    with concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as pool:
        return pool.submit(measured, *setup).result()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("test", choices=("workers", "batch", "memory", "utilization"))
    options = parser.parse_args()
    for group, works in groups(options.test).items():
        turns = [[fresh(options.test, group, name) for name in works] for _ in range(options.rounds)]
        print(group)
        for name, *values in zip(works, *turns, strict=True):
            ratios = [turn[0][0] / value[0] for turn, value in zip(turns, values, strict=True)]
            time_us, busy, peak = (statistics.median(column) for column in zip(*values, strict=True))
            spread = f"{statistics.median(ratios):5.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
            print(f"  {name:24} {time_us:9.2f} us  {spread}  {busy:4.0%}  {peak:5.0f} MiB", flush=True)


if __name__ == "__main__":
    main()
