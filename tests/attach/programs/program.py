"""What the programs here have in common: how long they run, and what they tell at their end."""

import argparse
import hashlib
import time

import torch


def arguments(steps):
    """`steps`: so many take about 15 seconds on two cores."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=steps)
    parser.add_argument("--seconds", type=float, help="instead of --steps; no two runs are equal")
    parser.add_argument("--out", help="where some of them write their weights")
    return parser.parse_args()


def counted(given):
    """The numbers of the steps that are asked for."""
    begun = time.monotonic()
    step = 0
    while step < given.steps if given.seconds is None else time.monotonic() - begun < given.seconds:
        yield step
        step += 1


def save(model, given):
    """As most programs do: over what the last run wrote."""
    if given.out:
        torch.save(model.state_dict(), given.out)


def tell(model, loss):
    digest = hashlib.sha256()
    for name, value in sorted(model.state_dict().items()):
        digest.update(name.encode())
        digest.update(value.contiguous().numpy().tobytes())
    print(f"loss {float(loss):.6f}")
    print(f"weights {digest.hexdigest()}")
