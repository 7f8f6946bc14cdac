"""What PyTorch's samples lack: values at the ends of a dtype, empty tensors, and strides that are not whole."""

import unittest

import torch
from case import IS_FULL
from op_db_names import FUNCTIONS, OPERATORS
from op_db_test import dtypes_of, name_of, op_db, samples_of
from traced import Sample, TracedCase

if op_db:
    from torch.testing._internal.opinfo.core import BinaryUfuncInfo, ReductionOpInfo, UnaryUfuncInfo

LISTED = {*OPERATORS, *FUNCTIONS} if IS_FULL else {*OPERATORS}
REAL = [
    float("nan"), float("inf"), float("-inf"), 0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 1.5, -2.5, 2.0, 3.0, -7.0, 1e-3, 30.0,
    -90.0, 120.0, 1e9, -3e18,
]  # fmt: skip


CASTS = ("byte", "char", "short", "int", "long")  # C++ leaves open what becomes of NaN and of large numbers


def edges(dtype):
    if dtype == torch.bool:
        return torch.tensor([False, True])
    if dtype == torch.int64:
        low, high = torch.iinfo(dtype).min, torch.iinfo(dtype).max
        return torch.tensor([low, low + 1, -(2**53) - 1, -3, -2, -1, 0, 1, 2, 3, 7, 2**31, 2**53 + 1, high - 1, high])
    limits = torch.finfo(dtype)
    least = limits.smallest_normal * limits.eps
    return torch.tensor([*REAL, limits.max, limits.min, limits.smallest_normal, least, -3 * least], dtype=dtype)


def layouts(x):
    """x as it is, every second element of a larger one, expanded, of no dimension, and of no element."""
    wide = torch.stack((x, x.flip(0)), 1)
    return [x, wide[:, 0], wide.t(), x[1:2].expand(3), x[-1], x[:0], x.new_zeros((2, 0, 3)).transpose(0, 2)]


def entries_of(kind):
    return [each for each in op_db if isinstance(each, kind) and name_of(each) in LISTED]


class Edges(TracedCase):
    def check(self, entry, samples):
        samples = [each for each in samples if each.is_defined()]
        for first in range(0, len(samples), self.MOST):
            with self.subTest(entry=name_of(entry), dtype=samples[0].tensors[0].dtype, first=first):
                self.assert_alike(samples[first : first + self.MOST])

    def each_dtype(self, kind):
        for entry in entries_of(kind):
            for dtype in dtypes_of(entry):
                yield entry, dtype

    def test_of_one(self):
        for entry, dtype in self.each_dtype(UnaryUfuncInfo):
            if entry.name in CASTS and dtype.is_floating_point:
                continue
            keywords = entry.sample_kwargs("cpu", dtype, edges(dtype))[0]
            self.check(entry, [Sample(entry, each, **keywords) for each in layouts(edges(dtype))])

    def test_of_two(self):
        for entry, dtype in self.each_dtype(BinaryUfuncInfo):
            x = edges(dtype)
            pairs = [(x[:, None], x), (x[:, None].expand(-1, 2), x[-2:]), (x, x[-1]), (x[:0], x[:1]), (x[1], x[-1])]
            samples = [Sample(entry, a, b) for a, b in pairs]
            if not samples[0].is_defined():  # a quotient by 0, a negative power
                y = x[x > 0]
                samples = [Sample(entry, x[:, None], y), Sample(entry, x[:0], y[:1])]
            self.check(entry, samples)

    def test_reductions(self):
        for entry, dtype in self.each_dtype(ReductionOpInfo):
            x = edges(dtype)
            if dtype.is_floating_point:
                x = x[: len(REAL) - 2]  # sums of large numbers are those of the order of their terms
            table = torch.stack((x, x.flip(0), x.roll(1)))
            given = [x, table.t(), table[:, 3:], x[3:].expand(2, -1), x[-1], x[:0], x.new_zeros((2, 0, 3))]
            samples = [Sample(entry, each) for each in given]
            samples += [Sample(entry, each, dim=0) for each in given]
            samples += [Sample(entry, each, dim=-1, keepdim=True) for each in given]
            self.check(entry, samples)

    def test_strides(self):
        for entry in op_db:
            if name_of(entry) in LISTED:
                for dtype in dtypes_of(entry):
                    self.check(entry, [strided(each) for each in samples_of(entry, dtype)])


def strided(sample):
    """The same call of tensors that lie two elements apart."""
    given = list(sample.arguments)
    for i, x in zip(sample.at, sample.tensors):
        wide = torch.stack((x.detach(), x.detach()), -1) if x.layout == torch.strided else x
        given[i] = wide[..., 0].requires_grad_(x.requires_grad) if wide is not x else x
    args, keywords = torch.utils._pytree.tree_unflatten(given, sample.spec)
    return Sample(sample.entry, *args, **keywords)


if __name__ == "__main__":
    unittest.main()
