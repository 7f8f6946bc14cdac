"""Functions of tensors without Dynamo: traced by AOT autograd, imported, run, and held against eager."""

import itertools
import unittest
import unittest.mock
import warnings

import torch
from torch._functorch.aot_autograd import aot_function
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException

from ridge.torch import _partition
from ridge.torch._backend import _partition as partition
from ridge.torch._compile import compile_static
from ridge.torch._operators import decompositions
from ridge.torch._partition import cut


class Random(Exception):
    """A graph has random numbers, which are not eager's."""


class Compiler:
    """Compiles graphs of AOT autograd; counts the programs, and collects the operators that the engine takes."""

    def __init__(self):
        self.programs = 0
        self.taken = set()

    def __call__(self, module, inputs):
        module.graph.eliminate_dead_code()
        for node in module.graph.nodes:
            if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
                raise Random(str(node.target))
        for part in cut(module.graph).parts:
            self.programs += 1
            self.taken.update(node.target for node in part.nodes)
        return compile_static(module, fixed_outputs=module.meta.get("ridge_fixed_outputs"))

    def compiled(self, function):
        return aot_function(function, self, self, partition, decompositions(), inference_compiler=self)


def taken_apart(function):
    """The function as PyTorch takes it apart, run by its own kernels."""
    return aot_function(function, *[lambda module, _: module] * 2, decompositions=decompositions())


def results(run, tensors):
    """Outputs of `run`, and gradients of those that have one."""
    given = [each.detach().clone().requires_grad_(each.requires_grad) for each in tensors]
    outputs = run(*given)
    through = [each for each in outputs if each.requires_grad]
    wanted = [each for each in given if each.requires_grad]
    found = []
    if through and wanted:
        seeds = [torch.linspace(0.5, 1.5, each.numel()).to(each.dtype).reshape(each.shape) for each in through]
        found = torch.autograd.grad(through, wanted, seeds, allow_unused=True)
    return [each.detach() for each in outputs], list(found)


def pairs(got, wanted):
    """(kind, number, ours, eager's) of all results; a gradient that one of them lacks is zero."""
    for kind, ours, theirs in zip(("output", "gradient"), got, wanted):
        assert len(ours) == len(theirs), f"{len(ours)} of kind {kind}, not {len(theirs)}"
        for i, (a, b) in enumerate(zip(ours, theirs)):
            if a is not None or b is not None:
                yield (
                    kind,
                    i,
                    torch.zeros_like(b) if a is None else a,
                    torch.zeros_like(a) if b is None else b,
                )


def widened(tensors):
    return [x.detach().double().requires_grad_(x.requires_grad) if x.is_floating_point() else x for x in tensors]


def is_as_near(ours, theirs, true):
    """Whether f32 results are not much further from those of f64 than eager's, where rounding is amplified."""
    if true is None or true.shape != ours.shape:
        return False
    ours, theirs, true = (each.double() for each in (ours, theirs, true))
    is_there = ours.isfinite() & theirs.isfinite() & true.isfinite()
    mine, own = ((each - true)[is_there].abs() for each in (ours, theirs))
    is_same = torch.allclose(ours[~is_there], theirs[~is_there], equal_nan=True)
    return is_same and len(own) > 0 and bool(mine.max() <= 8 * own.max())


def tensors_of(tree):
    return [each for each in torch.utils._pytree.tree_leaves(tree) if isinstance(each, torch.Tensor)]


def is_plain(tensor):
    return tensor.layout == torch.strided and not tensor.is_complex() and not tensor.is_quantized


class Sample:
    """One call of an operator as a function of its tensors."""

    def __init__(self, entry, *args, **kwargs):
        self.entry = entry
        self.arguments, self.spec = torch.utils._pytree.tree_flatten((args, kwargs))
        self.at = [i for i, each in enumerate(self.arguments) if isinstance(each, torch.Tensor)]
        self.tensors = [self.arguments[i] for i in self.at]

    def __call__(self, *tensors):
        given = list(self.arguments)
        for i, tensor in zip(self.at, tensors):
            given[i] = tensor
        args, kwargs = torch.utils._pytree.tree_unflatten(given, self.spec)
        return tensors_of(self.entry(*args, **kwargs))

    def is_defined(self):
        """Whether eager takes it, and the engine could."""
        try:
            outputs, gradients = results(self, self.tensors)
        except Exception:
            return False
        return all(is_plain(each) for each in [*self.tensors, *outputs, *gradients] if each is not None)


class TracedCase(unittest.TestCase):
    UNTRACED = (Random, DataDependentOutputException, DynamicOutputShapeException)
    MOST = 12  # samples of a graph
    reached = set()  # operators

    def setUp(self):
        # Views alone are left to ATen elsewhere.
        patch = unittest.mock.patch.object(_partition, "_IDLE", frozenset())
        patch.start()
        self.addCleanup(patch.stop)

    def assert_alike(self, samples, is_apart=False):
        """Returns the number of programs of the engine."""

        def function(*tensors):
            tensors = iter(tensors)
            return [each for sample in samples for each in sample(*itertools.islice(tensors, len(sample.tensors)))]

        compiler, tensors = Compiler(), [each for sample in samples for each in sample.tensors]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.filterwarnings("error", message="ridge.torch.*")
            wanted = results(taken_apart(function) if is_apart else function, tensors)
            try:
                got = results(compiler.compiled(function), tensors)
            except self.UNTRACED:
                return sum(self.assert_alike([each], is_apart) for each in samples) if len(samples) > 1 else 0
        true = None
        for kind, number, ours, theirs in pairs(got, wanted):
            with self.subTest(kind, number=number):
                is_narrow = theirs.dtype == torch.float32
                near = {"rtol": 1e-4, "atol": 1e-4} if is_narrow else {}
                try:
                    torch.testing.assert_close(ours, theirs, equal_nan=True, **near)
                except AssertionError:
                    if not is_narrow:
                        raise
                    true = true or results(function, widened(tensors))
                    if not is_as_near(ours, theirs, true[kind == "gradient"][number]):
                        raise
        self.reached.update(compiler.taken)
        return compiler.programs
