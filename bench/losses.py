#!/usr/bin/env python3
"""Losses of Ridge beside those of PyTorch, step by step, from equal parameters on equal batches.

PyTorch sums the squares of a gradient in f32, which for the 39 million numbers of an embedding makes
the norm 1.6e-3 too small, with any number of threads; what is clipped by it leaves the trajectory of
f64. So the norm that PyTorch clips by is summed in f64 here; --own-norm takes it as it comes.

Ridge passes where it is within three times what PyTorch in f32 differs from itself between one thread
and two, or no further from PyTorch in f64 than three times PyTorch's own distance. `beyond` counts the
steps that are further from PyTorch than that, and further from f64 than PyTorch is.

Convolutions in f64 take PyTorch minutes: --no-f64 leaves that out.

Usage: build/peers/bin/python bench/losses.py [--steps N] [--no-f64] [--own-norm] [CONFIG...]
"""

import argparse
import math
import pathlib
import sys
import tomllib

import torch
from training_step import ROOT, Peer, Ridge


class ExactlyClipped(Peer):
    def clip_gradients(self):
        gradients = [p.grad for p in self.model.parameters()]
        norm = math.sqrt(sum(g.double().pow(2).sum().item() for g in gradients))
        for gradient in gradients:
            gradient.mul_(min(1.0, self.clip / (norm + 1e-6)))


def losses(run, steps):
    found = []
    for _ in range(steps):
        run.steps(1)
        found.append(run.last["loss"] if isinstance(run, Ridge) else run.loss.item())
    return found


def largest(a, b):
    return max(abs(x - y) for x, y in zip(a, b))


def count_beyond(own, peers, exact, noise):
    """Steps further from both runs of PyTorch than three times its noise, and further from f64."""
    return sum(
        min(abs(x - y) for y in at_step) > 3 * noise
        and abs(x - z) > max(abs(y - z) for y in at_step)
        for x, at_step, z in zip(own, zip(*peers), exact)
    )


def compare(path, steps, with_f64, peer):
    config = tomllib.loads(path.read_text())
    ridge = Ridge(path, 2)
    own = losses(ridge, steps)
    peers = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        peers.append(losses(peer(config, "eager", ridge), steps))
    exact = losses(peer(config, "eager", ridge, torch.float64), steps) if with_f64 else None
    ridge.close()
    noise = largest(*peers)
    return {
        "first": own[0],
        "last": own[-1],
        "noise": noise,
        "apart": min(largest(own, peer) for peer in peers),
        "peer_error": max(largest(exact, peer) for peer in peers) if exact else math.nan,
        "error": largest(exact, own) if exact else math.nan,
        "beyond": count_beyond(own, peers, exact, noise) if exact else "",
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--no-f64", action="store_true")
    parser.add_argument("--own-norm", action="store_true")
    parser.add_argument("configs", nargs="*", type=pathlib.Path)
    arguments = parser.parse_args()
    torch.set_float32_matmul_precision("highest")
    configs = arguments.configs or sorted((ROOT / "bench" / "configs").glob("*.toml"))
    print(f"torch {torch.__version__}, {arguments.steps} steps; largest differences of losses")
    print(
        f"{'workload':18} {'first':>8} {'last':>8} {'1 to 2 threads':>14} {'ridge to torch':>14}"
        f" {'torch to f64':>13} {'ridge to f64':>13} {'beyond':>7}"
    )
    failed = False
    for path in configs:
        peer = Peer if arguments.own_norm else ExactlyClipped
        r = compare(path, arguments.steps, not arguments.no_f64, peer)
        passed = r["apart"] <= 3 * r["noise"] or r["error"] <= 3 * r["peer_error"]
        failed |= not passed
        print(
            f"{path.stem:18} {r['first']:8.4f} {r['last']:8.4f} {r['noise']:14.2e} {r['apart']:14.2e}"
            f" {r['peer_error']:13.2e} {r['error']:13.2e} {r['beyond']:>7}"
            f"{'' if passed else '  too far'}",
            flush=True,
        )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
