#!/usr/bin/env python3
"""Writes seeds of tests/fuzz/aten_graph.cc: the graphs of training steps of small models, as captured.

Usage: PYTHONPATH=SITE build/peers/bin/python tools/make_aten_corpus.py, where SITE holds the package
of `./dev wheel`.
"""

import pathlib

import torch
from torch import nn
from torch.nn import functional

import ridge.torch._program as program

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "tests/fuzz/corpus/aten_graph"


class Pictures(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(2, 4, 3, stride=2, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(4)
        self.depthwise = nn.Conv2d(4, 4, 3, padding=1, groups=4)
        self.up = nn.ConvTranspose2d(4, 2, 2, stride=2)

    def forward(self, x):
        y = functional.relu(self.norm(self.conv(x)))
        y = functional.max_pool2d(functional.silu(self.depthwise(y)), 2) + functional.avg_pool2d(y, 2)
        return functional.interpolate(self.up(y), scale_factor=2).mean()


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(5, 4)
        self.norm = nn.LayerNorm(4)
        self.three = nn.Linear(4, 12)
        self.out = nn.Linear(4, 5)

    def forward(self, tokens):
        x = self.table(tokens)
        q, k, v = self.three(self.norm(x)).view(2, 3, 2, 6).transpose(1, 2).chunk(3, -1)
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)
        y = functional.dropout(functional.gelu(x + y.reshape(2, 3, 4)), 0.5)
        return functional.cross_entropy(self.out(y).flatten(0, 1), tokens.flatten())


class Rows(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(3, 4)

    def forward(self, x):
        y = torch.tanh(self.inner(x))
        y = torch.where(y > 0, y, y.abs().sqrt()) / (1 + torch.sigmoid(y).cumsum(0))
        rows = torch.index_select(y, 0, torch.tensor([2, 0])).softmax(-1)
        return torch.cat([rows, y[1:3].log_softmax(-1)]).pow(2).sum() + y.amax() - y.std()


def write(name, model, *arguments):
    """One file a program: forward, backward, or what lies between two that are left to ATen."""
    texts, real = [], program._ridge.AtenProgram

    def listen(text, constants):
        texts.append(text)
        return real(text, constants)

    program._ridge.AtenProgram = listen
    try:
        torch.compile(model, backend="ridge", dynamic=False)(*arguments).backward()
    finally:
        program._ridge.AtenProgram = real
    for index, text in enumerate(texts):
        (FOLDER / f"{name}_{index}").write_text(text)


def main():
    torch.manual_seed(0)
    write("pictures", Pictures(), torch.randn(1, 2, 8, 8))
    write("words", Words(), torch.tensor([[0, 1, 2], [3, 4, 0]]))
    write("rows", Rows(), torch.randn(4, 3))


if __name__ == "__main__":
    main()
