#!/usr/bin/env python3
"""A program for bench/guard_rates.py: trains one of the networks of models.py on data that are drawn.

GUARD_DEFECT in its environment names a defect of defects.py, which stands for a change that does more
than it says.
"""
import argparse
import os

import defects
import torch
from models import PROGRAMS

SAMPLES, BATCH = 176, 32  # the last batch of an epoch has half as many


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=PROGRAMS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=20)
    options = parser.parse_args()
    network, data, optimizer, loss, most = PROGRAMS[options.name]
    own = torch.Generator().manual_seed(1000 + options.seed)
    samples = torch.utils.data.TensorDataset(*data(own, SAMPLES))
    torch.manual_seed(options.seed)
    defect = defects.DEFECTS[os.environ.get("GUARD_DEFECT") or "none"]()
    model = network()
    model.train()
    defect.changes_model(model)
    parts = {
        "optimizer": defect.changes_optimizer(optimizer(model.parameters())),
        "loss": loss(),
        "loader": torch.utils.data.DataLoader(
            samples, batch_size=BATCH, shuffle=True, drop_last=defect.drops_last
        ),
        "most": defect.changes_bound(most),
    }
    train(model, parts, defect, options.steps)


def train(model, parts, defect, steps):
    optimizer, step = parts["optimizer"], 0
    while step < steps:
        for inputs, targets in parts["loader"]:
            inputs, targets = defect.changes_batch(inputs, targets)
            if defect.clears_gradients:
                optimizer.zero_grad()
            results = model(inputs)
            if targets.dim() == 2:  # a word at each place
                results, targets = results.flatten(0, 1), targets.flatten()
            defect.changes_loss(parts["loss"](results, targets)).backward()
            defect.changes_gradients(model)
            if parts["most"] is not None:
                torch.nn.utils.clip_grad_norm_(model.parameters(), parts["most"])
            optimizer.step()
            step += 1
            if step == steps:
                break


if __name__ == "__main__":
    main()
