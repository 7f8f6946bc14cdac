"""Functions of tensors without Dynamo: traced by AOT autograd, imported, run, and held against eager."""

import torch
from torch._functorch.aot_autograd import aot_function

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
