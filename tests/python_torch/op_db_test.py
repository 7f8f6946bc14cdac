"""PyTorch's own samples of operators (`op_db`): results and gradients are those of eager.

They need PyPI's `expecttest`. The short form takes two samples an operator and dtype, all of an operator in one
graph; the full form takes all samples, and sees that no other entry reaches the engine.
"""

import pathlib
import re
import unittest

import torch
from case import IS_FULL
from op_db_names import APART, FUNCTIONS, OPERATORS
from traced import Sample, TracedCase

from ridge.torch._describe import operator_name
from ridge.torch._operators import decompositions

try:
    from torch.testing._internal.common_methods_invocations import op_db
except ImportError:
    op_db = []

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
DTYPES = (torch.float32, torch.float64, torch.int64, torch.bool)
LISTED = {*OPERATORS, *FUNCTIONS}
UNDEFINED = ("empty", "new_empty")  # whatever their memory holds
# Operators that no graph of AOT autograd has, or whose random numbers are not eager's; no sample reaches the kernels
# of attention (operators_test.py does).
ELSEWHERE = {
    "_reshape_copy.default", "_scaled_dot_product_flash_attention_for_cpu.default",
    "_scaled_dot_product_flash_attention_for_cpu_backward.default", "reshape.default", "ridge.dropout",
    "where.ScalarOther", "where.ScalarSelf",
}  # fmt: skip


def imported():
    """The names in the tables of the importer that a graph may have: the others are taken apart before."""
    sources = (ROOT / "ridge" / "import" / "aten" / "ops").glob("*.cc")
    names = {name for source in sources for name in re.findall(r'^    \{"([^"]+)", ', source.read_text(), re.M)}
    return names - {operator_name(each) for each in decompositions()} - ELSEWHERE


def name_of(entry):
    return entry.name + (f"/{entry.variant_test_name}" if entry.variant_test_name else "")


def dtypes_of(entry):
    return [each for each in DTYPES if each in entry.supported_dtypes("cpu")]


def samples_of(entry, dtype):
    torch.manual_seed(0)
    given = entry.sample_inputs("cpu", dtype, requires_grad=dtype.is_floating_point and entry.supports_autograd)
    samples = [Sample(entry, each.input, *each.args, **each.kwargs) for each in given]
    if not IS_FULL:
        samples = samples[:1] + samples[1:][-1:]
    return [sample for sample in samples if sample.is_defined()]


class Samples(TracedCase):
    count = 0  # of entries

    def check_entry(self, entry):
        programs, is_apart = 0, name_of(entry) in APART
        samples = [sample for dtype in dtypes_of(entry) for sample in samples_of(entry, dtype)]
        for first in range(0, len(samples), self.MOST):
            with self.subTest(samples=first):
                programs += self.assert_alike(samples[first : first + self.MOST], is_apart)
        self.assertEqual(programs > 0, name_of(entry) in LISTED, "whether the engine takes some of it")
        type(self).count += 1

    @classmethod
    def tearDownClass(cls):
        if IS_FULL and cls.count >= len(LISTED):
            missing = imported() - {operator_name(each) for each in cls.reached}
            assert not missing, f"no entry reaches {sorted(missing)}"


def add_test(entry):
    name = f"test_{name_of(entry)}".replace(".", "_").replace("/", "_")
    setattr(Samples, name, lambda self: self.check_entry(entry))


@unittest.skipUnless(op_db, "PyTorch's tests need expecttest")
class Names(unittest.TestCase):
    def test_are_those_of_operators(self):
        self.assertEqual(sorted(LISTED - {name_of(each) for each in op_db}), [])


for each in op_db:
    if name_of(each) in OPERATORS or IS_FULL and not each.name.startswith(UNDEFINED):
        add_test(each)


if __name__ == "__main__":
    unittest.main()
