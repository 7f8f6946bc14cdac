"""PyTorch's own samples of operators (`op_db`): results and gradients are those of eager.

They need PyPI's `expecttest`. The short form takes two samples an operator and dtype, all of an operator in one
graph; the full form takes all samples, and sees that no other entry reaches the engine.
"""

import itertools
import pathlib
import re
import unittest
import unittest.mock
import warnings

import torch
from case import IS_FULL
from op_db_names import FUNCTIONS, OPERATORS
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException
from traced import Compiler, Random, pairs, results

from ridge.torch import _partition
from ridge.torch._describe import operator_name
from ridge.torch._operators import decompositions

try:
    from torch.testing._internal.common_methods_invocations import op_db
except ImportError:
    op_db = []

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
UNTRACED = (Random, DataDependentOutputException, DynamicOutputShapeException)
DTYPES = (torch.float32, torch.float64, torch.int64, torch.bool)
LISTED = {*OPERATORS, *FUNCTIONS}
MOST = 12  # samples of a graph
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


def tensors_of(tree):
    return [each for each in torch.utils._pytree.tree_leaves(tree) if isinstance(each, torch.Tensor)]


def is_plain(tensor):
    return tensor.layout == torch.strided and not tensor.is_complex() and not tensor.is_quantized


class Sample:
    """One call of an operator as a function of its tensors."""

    def __init__(self, entry, given):
        self.entry = entry
        self.arguments, self.spec = torch.utils._pytree.tree_flatten((given.input, given.args, given.kwargs))
        self.at = [i for i, each in enumerate(self.arguments) if isinstance(each, torch.Tensor)]
        self.tensors = [self.arguments[i] for i in self.at]

    def __call__(self, *tensors):
        given = list(self.arguments)
        for i, tensor in zip(self.at, tensors):
            given[i] = tensor
        first, args, kwargs = torch.utils._pytree.tree_unflatten(given, self.spec)
        return tensors_of(self.entry(first, *args, **kwargs))

    def is_defined(self):
        """Whether eager takes it, and the engine could."""
        try:
            outputs, gradients = results(self, self.tensors)
        except Exception:
            return False
        return all(is_plain(each) for each in [*self.tensors, *outputs, *gradients] if each is not None)


def samples_of(entry, dtype):
    torch.manual_seed(0)
    given = entry.sample_inputs("cpu", dtype, requires_grad=dtype.is_floating_point and entry.supports_autograd)
    samples = [Sample(entry, each) for each in given]
    if not IS_FULL:
        samples = samples[:1] + samples[1:][-1:]
    return [sample for sample in samples if sample.is_defined()]


class Samples(unittest.TestCase):
    reached = set()  # operators
    count = 0  # of entries

    def setUp(self):
        # Views alone are left to ATen elsewhere.
        patch = unittest.mock.patch.object(_partition, "_IDLE", frozenset())
        patch.start()
        self.addCleanup(patch.stop)

    def check(self, samples):
        """Returns the number of programs of the engine."""

        def function(*tensors):
            tensors = iter(tensors)
            return [each for sample in samples for each in sample(*itertools.islice(tensors, len(sample.tensors)))]

        compiler, tensors = Compiler(), [each for sample in samples for each in sample.tensors]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.filterwarnings("error", message="ridge.torch.*")
            wanted = results(function, tensors)
            try:
                got = results(compiler.compiled(function), tensors)
            except UNTRACED:
                return sum(self.check([each]) for each in samples) if len(samples) > 1 else 0
        for kind, number, ours, theirs in pairs(got, wanted):
            with self.subTest(kind, number=number):
                near = {"rtol": 1e-4, "atol": 1e-4} if theirs.dtype == torch.float32 else {}
                torch.testing.assert_close(ours, theirs, equal_nan=True, **near)
        self.reached.update(compiler.taken)
        return compiler.programs

    def check_entry(self, entry):
        programs = 0
        dtypes = [each for each in DTYPES if each in entry.supported_dtypes("cpu")]
        if name_of(entry) == "linspace/tensor_overload":
            dtypes.remove(torch.int64)  # cut from floats that PyTorch's decomposition and its kernel round apart
        samples = [sample for dtype in dtypes for sample in samples_of(entry, dtype)]
        for first in range(0, len(samples), MOST):
            with self.subTest(samples=first):
                programs += self.check(samples[first : first + MOST])
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
        self.assertEqual(sorted(set(LISTED) - {name_of(each) for each in op_db}), [])


for each in op_db:
    if name_of(each) in OPERATORS or IS_FULL and not each.name.startswith(UNDEFINED):
        add_test(each)


if __name__ == "__main__":
    unittest.main()
