#!/usr/bin/env python3
"""Trains small models in PyTorch in f32 and under torch.autocast in bf16, and writes the losses.

Weights, data, optimizers and schedules are those of make_loss_tables.py; autocast says itself what
is computed in bf16. Run with a Python that has PyTorch and torchvision (build/peers/bin/python):

    make_autocast_tables.py [--out tests/nn/golden/autocast_tables.json]
"""

import argparse
import copy
import json
import pathlib

import make_loss_tables as tables
import torch


def under_autocast(model_class):
    """The model, called under autocast; loss and optimizer are left outside, as users have them."""

    class Autocast(model_class):
        def __call__(self, x, training):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                logits = super().__call__(x, training)
            return logits.float()

    return Autocast


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    here = pathlib.Path(__file__).resolve().parent
    parser.add_argument("--out", type=pathlib.Path, default=here / "autocast_tables.json")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    written = {"torch": torch.__version__, "steps": tables.STEPS, "batches": tables.BATCHES,
               "tables": {}}
    models = copy.copy(tables.MODELS)
    for name in ("mlp", "cnn", "gpt"):
        table = tables.TABLES[name]
        tables.choose_stream(table)
        f32 = tables.train(table, torch.float32)
        tables.MODELS[name] = under_autocast(models[name])
        bf16 = tables.train(table, torch.float32)
        written["tables"][name] = {**table, "f32": f32["loss"], "bf16": bf16["loss"]}
    arguments.out.write_text(json.dumps(written, indent=1) + "\n")


if __name__ == "__main__":
    main()
