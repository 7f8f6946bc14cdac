"""Attention that a model writes out becomes one operator where its gradient is wanted, and gives what eager gives."""

import math
import unittest
from unittest import mock

import torch
import torch.nn.functional as F
from case import Case
from torch import nn

from ridge.torch import _backend
from ridge.torch._attention import fuse_attention

_TIME = 9


def triangle():
    return torch.tril(torch.ones(_TIME, _TIME, dtype=torch.bool))


def masked_fill(q, k, v):
    scores = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(q.size(-1)))
    scores = scores.masked_fill(triangle().float()[None, None] == 0, float("-inf"))
    return F.dropout(F.softmax(scores, dim=-1), 0.1, False) @ v


def chosen(q, k, v):
    scores = torch.where(triangle(), torch.matmul(q, k.mT) / 3, torch.tensor(-math.inf))
    return torch.matmul(nn.Softmax(-1)(scores), v)


def chosen_otherwise(q, k, v):
    scores = torch.where(~triangle(), -math.inf, 0.5 * torch.matmul(q, k.permute(0, 1, 3, 2)))
    return torch.matmul(scores.softmax(3), v)


def in_place(q, k, v):
    scores = torch.matmul(q * 0.3, k.transpose(3, 2))
    return F.dropout(scores.masked_fill_(~triangle(), -math.inf).softmax(-1), 0.0) @ v


def plain(q, k, v):
    return (q @ k.transpose(2, 3)).softmax(dim=-1).matmul(v)


def of_one_head(q, k, v):
    q, k, v = (each.flatten(0, 1) for each in (q, k, v))
    mask = triangle().expand(6, -1, -1)
    return torch.bmm(F.softmax(torch.bmm(q, k.transpose(1, 2)).masked_fill(~mask, -math.inf), 2), v)


def with_its_weights(q, k, v):
    weights = (q @ k.transpose(2, 3)).softmax(-1)
    return weights @ v, weights


def of_large_numbers(q, k, v):
    return (q @ k.transpose(2, 3)).masked_fill(~triangle(), -1e9).softmax(-1) @ v


def over_queries(q, k, v):
    return (q @ k.transpose(2, 3)).softmax(-2) @ v


def with_dropout(q, k, v):
    return F.dropout((q @ k.transpose(2, 3)).softmax(-1), 0.5) @ v


def of_two_widths(q, k, v):
    return (q @ k.transpose(2, 3)).softmax(-1) @ torch.cat((v, v), -1)


def repeated(q, k, v):
    return (q @ k[:, :1].transpose(2, 3)).softmax(-1) @ v


class Attention(Case):
    def operands(self):
        return [torch.randn(2, 3, _TIME, 8, requires_grad=True) for _ in range(3)]

    def compiled_and_found(self, function, *operands):
        """The compiled function's results, and how many operators of attention its graph had."""
        found = []

        def fuse(module):
            fuse_attention(module)
            found.extend(node for node in module.graph.nodes if node.target is F.scaled_dot_product_attention)

        with mock.patch.object(_backend, "fuse_attention", fuse):
            return self.compiled(function)(*operands), len(found)

    def check_both(self, function, count):
        operands = self.operands()
        results, found = self.compiled_and_found(function, *operands)
        self.assertEqual(found, count)
        wanted = function(*operands)
        for got, want in zip(*(each if isinstance(each, tuple) else (each,) for each in (results, wanted))):
            self.assert_near(got, want)
            gradients = [torch.autograd.grad(each.sin().sum(), operands, retain_graph=True) for each in (got, want)]
            self.assert_near(*gradients)

    def test_forms_that_are_one_operator(self):
        for function in (masked_fill, chosen, chosen_otherwise, in_place, plain, of_one_head):
            with self.subTest(function.__name__):
                torch._dynamo.reset()
                self.check_both(function, 1)

    def test_forms_that_stay(self):
        for function in (of_large_numbers, over_queries, of_two_widths, repeated):
            with self.subTest(function.__name__):
                torch._dynamo.reset()
                self.check_both(function, 0)
        torch._dynamo.reset()
        self.assertEqual(self.compiled_and_found(with_dropout, *self.operands())[1], 0)
        torch._dynamo.reset()
        operands = self.operands()
        results, found = self.compiled_and_found(with_its_weights, *operands)
        self.assertEqual(found, 0)
        self.assert_near(results, with_its_weights(*operands))

    def test_a_query_without_a_key(self):
        mask = triangle()
        mask[4] = False

        def f(q, k, v):
            return (q @ k.mT).masked_fill(~mask, -math.inf).softmax(-1) @ v

        got, found = self.compiled_and_found(f, *self.operands())
        self.assertEqual(found, 1)
        self.assertTrue(torch.equal(got[:, :, 4], torch.zeros(2, 3, 8)))
        self.assertFalse(got.isnan().any())

    def test_masks_are_saved_as_they_are(self):
        q, k, v = self.operands()
        mask = triangle()
        sizes = []

        def pack(saved):
            sizes.append((saved.dtype, saved.shape))
            return saved

        def f(q, k, v):
            return F.scaled_dot_product_attention(q, k, v, mask)

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda saved: saved):
            got = self.compiled(f)(q, k, v)
        self.assertNotIn((torch.float32, (_TIME, _TIME)), sizes)
        self.assert_near(torch.autograd.grad(got.sum(), (q, k, v)), torch.autograd.grad(f(q, k, v).sum(), (q, k, v)))


if __name__ == "__main__":
    unittest.main()
