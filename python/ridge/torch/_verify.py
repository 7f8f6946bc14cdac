# mypy: ignore-errors
"""RIDGE_TORCH_VERIFY=1: each call of a graph in eager beside the engine's; the first node that differs is named."""

import os
import warnings

import torch

from ._describe import is_tensor, read_results
from ._partition import Part
from ._program import Program

# Of the largest element. Sums in another order differ by much less, a wrong operator by much more.
_TOLERANCES = {torch.float64: 1e-8, torch.float32: 1e-3, torch.float16: 1e-2, torch.bfloat16: 5e-2}
_RANDOM = ("ridge.seed", "ridge.dropout")


def is_on():
    return os.environ.get("RIDGE_TORCH_VERIFY") == "1"


def difference(got, wanted):
    """None where both are the same up to rounding; else what differs."""
    if got.shape != wanted.shape or got.dtype != wanted.dtype:
        return f"{got.dtype} {tuple(got.shape)} instead of {wanted.dtype} {tuple(wanted.shape)}"
    if not wanted.is_floating_point():
        wrong = int((got != wanted).sum())
        return f"{wrong} of {wanted.numel()} elements are others" if wrong else None
    finite = torch.isfinite(wanted)
    if not torch.equal(finite, torch.isfinite(got)):
        return "other elements are finite"
    if not finite.any():
        return None
    error = float((got - wanted)[finite].abs().max())
    largest = float(wanted[finite].abs().max())
    if error <= _TOLERANCES[wanted.dtype] * max(largest, 1e-6):
        return None
    return f"up to {error:.3g} apart, where the largest is {largest:.3g}"


class _Recorded(torch.fx.Interpreter):
    """Keeps the value of each node."""

    def __init__(self, module):
        super().__init__(module, garbage_collect_values=False)
        self.values = {}

    def run_node(self, node):
        self.values[node] = super().run_node(node)
        return self.values[node]


def _first_difference(module, parts, args):
    """The first node of the parts that differs from eager, given eager's inputs of its part; or None."""
    recorded = _Recorded(module)
    with torch.no_grad():
        recorded.run(*args)
    for part in parts:
        nodes = [each for node in part.nodes for results in read_results(node).values() for each in results]
        nodes = [node for node in nodes if is_tensor(node.meta.get("val"))]
        program = Program(Part(part.nodes, part.inputs, nodes, part.level))
        got = program(*[recorded.values[node] for node in part.inputs])
        for node, result in zip(nodes, got):
            what = difference(result, recorded.values[node])
            if what is not None:
                return f"node '{node.name}' ({node.target}): {what}"
    return None


def verified(function, module, parts):
    """`function`, a boxed one, with eager beside it."""
    if any(str(node.target).startswith(_RANDOM) for node in module.graph.nodes):
        return function

    def call(args):
        given = list(args)
        result = function(args)
        with torch.no_grad():
            wanted = module(*given)
        for i, (mine, other) in enumerate(zip(result, wanted)):
            if not isinstance(other, torch.Tensor):
                continue
            what = difference(mine, other)
            if what is not None:
                where = _first_difference(module, parts, given) or "no node by itself differs"
                warnings.warn(f"ridge.torch: output {i} of a graph: {what}; {where}", stacklevel=2)
                break
        return result

    return call
