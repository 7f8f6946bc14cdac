#!/usr/bin/env python3
"""Trains small models in PyTorch as train.precision = "fp16" does, and writes what came of each step.

Operands of linear layers are rounded to f16 by `.half()`, forward and backward, and multiplied in
f32; the loss scale is torch.amp.GradScaler's own. Models, data and optimizers are those of
make_loss_tables.py. Run with a Python that has PyTorch and torchvision (build/peers/bin/python):

    make_fp16_tables.py [--out tests/nn/golden/fp16_tables.json]
"""

import argparse
import json
import pathlib
import warnings

import make_loss_tables as tables
import torch
import torch.nn.functional as F

STEPS = 24
# The scale begins beyond what survives, and grows so often that it gets there again.
SCALE = {"initial": 2.0**19, "growth_interval": 5}


def rounded(x):
    return x.half().float()


class RoundedLinear(torch.autograd.Function):
    """x w^T, each product of it and of its gradients with operands that are rounded."""

    @staticmethod
    def forward(ctx, x, weight):
        x, weight = rounded(x), rounded(weight)
        ctx.save_for_backward(x, weight)
        return x @ weight.t()

    @staticmethod
    def backward(ctx, dy):
        x, weight = ctx.saved_tensors
        dy = rounded(dy)
        rows = dy.reshape(-1, dy.shape[-1])
        return dy @ weight, rows.t() @ x.reshape(-1, x.shape[-1])


def linear(x, weight, bias=None):
    y = RoundedLinear.apply(x, weight)
    return y if bias is None else y + bias


def train(table):
    weights = tables.Weights(torch.float32)
    model = tables.MODELS[table["model"]["kind"]](weights, table["model"], table["sample"]["x"])
    optimizer = tables.make_optimizer(table["optimizer"], weights.all)
    scheduler = tables.make_scheduler(table["schedule"], optimizer)
    scaler = torch.amp.GradScaler(
        "cpu", init_scale=SCALE["initial"], growth_interval=SCALE["growth_interval"])
    rows = {"loss": [], "grad_norm": [], "scale": []}
    for step in range(STEPS):
        x, y = tables.batch_of(table, step % tables.BATCHES, torch.float32)
        logits = model(x, True)
        y = y.reshape(-1)
        loss = F.cross_entropy(logits.reshape(-1, logits.shape[-1]), y, reduction="sum")
        count = int((y != -100).sum())
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        for parameter in weights.all:
            parameter.grad /= count
        clip = table["optimizer"]["clip"] or float("inf")
        norm = torch.nn.utils.clip_grad_norm_(weights.all, clip).item()
        scaler.step(optimizer)
        scaler.update()
        scheduler.step()
        rows["loss"].append(loss.item() / count)
        rows["grad_norm"].append(norm if norm < float("inf") else None)
        rows["scale"].append(scaler.get_scale())
    return rows


def choose_stream(table):
    """As in make_loss_tables.py: no ReLU is called too near to zero."""
    for stream in range(1000, 10000, 100):
        table["sample"]["stream"] = stream
        tables.Relu.nearest = float("inf")
        rows = train(table)
        if tables.Relu.nearest > tables.MARGIN:
            return rows
    raise SystemExit("no stream of data keeps away from the kinks")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    here = pathlib.Path(__file__).resolve().parent
    parser.add_argument("--out", type=pathlib.Path, default=here / "fp16_tables.json")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    # The learning rate follows the steps, skipped ones too.
    warnings.filterwarnings("ignore", message="Detected call of `lr_scheduler.step")
    tables.STEPS = STEPS
    F.linear = linear
    written = {"torch": torch.__version__, "steps": STEPS, "batches": tables.BATCHES,
               "loss_scale": SCALE, "tables": {}}
    for name in ("mlp", "gpt"):
        table = tables.TABLES[name]
        rows = choose_stream(table)
        written["tables"][name] = {**table, **rows}
    arguments.out.write_text(json.dumps(written, indent=1) + "\n")


if __name__ == "__main__":
    main()
