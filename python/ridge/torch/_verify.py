# mypy: ignore-errors
"""RIDGE_TORCH_VERIFY=1: each call of a graph in eager beside the engine's; the first node that differs is named."""

import os
import warnings

import torch

from ._describe import is_tensor, read_results
from ._partition import Part, is_random
from ._program import Program

# Of the largest element. Sums in another order differ by much less, a wrong operator by much more.
_TOLERANCES = {torch.float64: 1e-8, torch.float32: 1e-3, torch.float16: 1e-2, torch.bfloat16: 5e-2}
_MOST_TIMES = 16  # of eager's own error


def is_on():
    return os.environ.get("RIDGE_TORCH_VERIFY") == "1"


def difference(got, wanted, exact=None):
    """None where both are the same up to rounding; else what differs. `exact` is what f64 gives, where that is
    known: a sum whose terms cancel is mostly rounding, in eager, too."""
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
    if exact is not None and wanted.dtype != torch.float64:
        mine, own = (float((each.double() - exact)[finite].abs().max()) for each in (got, wanted))
        if mine <= _MOST_TIMES * own:
            return None
    return f"up to {error:.3g} apart, where the largest is {largest:.3g}"


class _Recorded(torch.fx.Interpreter):
    """Keeps the value of each node."""

    def __init__(self, module):
        super().__init__(module, garbage_collect_values=False)
        self.values = {}

    def run_node(self, node):
        result = super().run_node(node)
        is_input = node.op == "placeholder" and isinstance(result, torch.Tensor)
        self.values[node] = result.clone() if is_input else result  # the graph may write to it
        return result


def _exact_values(module, args):
    """The values of the nodes in f64; none where the graph is not for f64."""
    recorded = _Recorded(module)
    try:
        with torch.no_grad():
            recorded.run(*(each.double() if _is_narrow(each) else each for each in args))
    except Exception:
        return {}
    return {node: each for node, each in recorded.values.items() if getattr(each, "dtype", None) == torch.float64}


def _is_narrow(value):
    return isinstance(value, torch.Tensor) and value.dtype == torch.float32


def _first_difference(module, parts, args, exact):
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
            what = difference(result, recorded.values[node], exact.get(node))
            if what is not None:
                return f"node '{node.name}' ({node.target}): {what}"
    return None


def verified(function, module, parts, written):
    """`function`, a boxed one, with eager beside it. `written`: the numbers of the inputs that it writes to."""

    def copied(args):
        return [each.clone() if i in written else each for i, each in enumerate(args)]

    if any(is_random(node) for node in module.graph.nodes):
        return function

    def call(args):
        given, changed = copied(args), [args[i] for i in written]
        result = function(args)
        with torch.no_grad():
            eagers = copied(given)
            wanted = module(*eagers)
        nodes = next(node for node in module.graph.nodes if node.op == "output").args[0]
        pairs = [*zip(result, wanted, nodes), *((mine, eagers[i], None) for i, mine in zip(written, changed))]
        exact = None
        for i, (mine, other, node) in enumerate(pairs):
            if not isinstance(other, torch.Tensor):
                continue
            what = difference(mine, other)
            if what is not None:
                exact = _exact_values(module, copied(given)) if exact is None else exact
                what = difference(mine, other, exact.get(node))
            if what is not None:
                where = _first_difference(module, parts, copied(given), exact) or "no node by itself differs"
                warnings.warn(f"ridge.torch: output {i} of a graph: {what}; {where}", stacklevel=2)
                break
        return result

    return call
