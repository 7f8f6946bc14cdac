"""The models of torch_compile.py, with random weights, and batches for them."""

import dataclasses
from collections.abc import Callable

import torch
import torch.nn.functional as F
import torchvision
from torch import nn


class Recommender(nn.Module):
    """As in DLRM: tables of categories, products of all pairs of vectors, a perceptron before and behind."""

    def __init__(self, tables=26, rows=10000, width=16, dense=13):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(rows, width) for _ in range(tables))
        self.bottom = perceptron(dense, 512, 256, width)
        pairs = torch.tril_indices(tables + 1, tables + 1, -1)
        self.register_buffer("rows", pairs[0], persistent=False)
        self.register_buffer("columns", pairs[1], persistent=False)
        self.top = perceptron(width + pairs.shape[1], 512, 256, 1)

    def forward(self, numbers, categories):
        first = self.bottom(numbers)
        vectors = torch.stack([first, *[table(c) for table, c in zip(self.tables, categories.unbind(1))]], 1)
        products = vectors @ vectors.transpose(1, 2)
        return self.top(torch.cat([first, products[:, self.rows, self.columns]], 1))


def perceptron(*widths):
    layers = []
    for before, after in zip(widths, widths[1:]):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


@dataclasses.dataclass
class Entry:
    build: Callable  # makes the module
    batch: int  # of training
    inputs: Callable  # for a batch: keyword arguments of the module
    loss: Callable  # of the module's output


def _pictures(build, batch, size=224, classes=1000):
    return Entry(
        lambda: build(num_classes=classes),
        batch,
        lambda count: {"x": torch.randn(count, 3, size, size)},
        lambda y: F.cross_entropy(y, torch.arange(len(y)) % classes),
    )


def _vit_small(num_classes):
    return torchvision.models.VisionTransformer(224, 16, 12, 6, 384, 1536, num_classes=num_classes)


class _Keyword(nn.Module):
    """A module of one argument, by the name `x`."""

    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, x):
        return self.module(x)


def _bert():
    from transformers import BertConfig, BertForSequenceClassification

    return BertForSequenceClassification(BertConfig())


def _gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(GPT2Config(use_cache=False))


def _llama():
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(
        LlamaConfig(
            hidden_size=512, intermediate_size=1376, num_hidden_layers=6, num_attention_heads=8, use_cache=False
        )
    )


def _tokens(count, length, vocabulary):
    return torch.randint(0, vocabulary, (count, length))


def _texts(build, batch, length, vocabulary):
    def inputs(count):
        ids = _tokens(count, length, vocabulary)
        return {"input_ids": ids, "labels": ids}

    return Entry(build, batch, inputs, lambda y: y.loss)


MODELS = {
    "resnet18": _pictures(torchvision.models.resnet18, 64, 32, 10),
    "mobilenet_v2": _pictures(torchvision.models.mobilenet_v2, 8),
    "efficientnet_b0": _pictures(torchvision.models.efficientnet_b0, 8),
    "convnext_tiny": _pictures(torchvision.models.convnext_tiny, 4),
    "vit_s_16": _pictures(lambda num_classes: _Keyword(_vit_small(num_classes)), 8),
    "bert_base": Entry(
        _bert,
        8,
        lambda count: {"input_ids": _tokens(count, 128, 30522), "labels": torch.arange(count) % 2},
        lambda y: y.loss,
    ),
    "gpt2_124m": _texts(_gpt2, 4, 64, 50257),
    "llama_6x512": _texts(_llama, 4, 128, 32000),
    "mlp": Entry(
        lambda: _Keyword(perceptron(100, 256, 256, 128, 10)),
        64,
        lambda count: {"x": torch.randn(count, 100)},
        lambda y: F.cross_entropy(y, torch.arange(len(y)) % 10),
    ),
    "dlrm": Entry(
        Recommender,
        128,
        lambda count: {"numbers": torch.randn(count, 13), "categories": _tokens(count, 26, 10000)},
        lambda y: F.binary_cross_entropy_with_logits(y[:, 0], (torch.arange(len(y)) % 2).float()),
    ),
}
