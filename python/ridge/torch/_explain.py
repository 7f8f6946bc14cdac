# mypy: ignore-errors
"""What of a model runs on the engine, and what stays PyTorch's."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import torch
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.aot_autograd import make_boxed_func
from torch._functorch.partitioners import min_cut_rematerialization_partition

from ._describe import is_getitem
from ._operators import decompositions
from ._partition import cut


@dataclasses.dataclass
class LeftOperator:
    """An operator that stays ATen's."""

    name: str
    count: int
    share: float  # of the time of the graphs in eager
    reason: str


@dataclasses.dataclass
class Explanation:
    graphs: int
    programs: int
    nodes: int  # of the engine's programs
    left: list  # of LeftOperator, the largest share first

    def __str__(self):
        lines = [f"{self.graphs} graphs, {self.programs} programs of {self.nodes} nodes on Ridge"]
        for each in self.left:
            lines.append(f"{each.share:6.1%}  {each.count:4} {each.name}: {each.reason}")
        return "\n".join(lines if self.left else [*lines, "nothing is left to ATen"])


class _Timed(torch.fx.Interpreter):
    """Runs a graph in eager; seconds by node."""

    def __init__(self, module):
        super().__init__(module)
        self.seconds = {}

    def run_node(self, node):
        start = time.perf_counter()
        result = super().run_node(node)
        self.seconds[node] = time.perf_counter() - start
        return result


class _Recorder:
    def __init__(self):
        self.graphs = []

    def compile(self, module, example_inputs):
        entry = (module, cut(module.graph), {})
        self.graphs.append(entry)

        def run(*args):
            timed = _Timed(module)
            with torch.no_grad():
                result = timed.run(*args)
            entry[2].update(timed.seconds)
            return result

        return make_boxed_func(run)


def _run_backward(model, outputs):
    """Backward graphs are made when they first run; gradients of parameters stay as they are."""
    through = [each for each in torch.utils._pytree.tree_leaves(outputs) if isinstance(each, torch.Tensor)]
    through = [each for each in through if each.requires_grad]
    weights = [each for each in getattr(model, "parameters", list)() if each.requires_grad]
    if through and weights:
        torch.autograd.grad(through, weights, [torch.ones_like(each) for each in through], allow_unused=True)


def explain(model: Callable[..., Any], inputs: tuple[Any, ...] | dict[str, Any]) -> Explanation:
    """Runs `model` on `inputs` (a tuple, or a dict of keyword arguments) once, and says which operators
    of its graphs Ridge takes. Where gradients are enabled the backward graphs count, too."""
    recorder = _Recorder()
    compiler = aot_autograd(
        fw_compiler=recorder.compile,
        partition_fn=min_cut_rematerialization_partition,
        decompositions=dict(decompositions()),
    )
    torch._dynamo.reset()
    compiled = torch.compile(model, backend=compiler, dynamic=False)
    outputs = compiled(**inputs) if isinstance(inputs, dict) else compiled(*inputs)
    _run_backward(model, outputs)
    torch._dynamo.reset()
    left, total = {}, 0.0
    for module, cut_graph, seconds in recorder.graphs:
        reasons = cut_graph.left()
        for node in module.graph.nodes:
            if node.op != "call_function" or is_getitem(node):
                continue
            total += seconds.get(node, 0.0)
            if node in reasons:
                name = str(node.target)
                entry = left.setdefault((name, reasons[node]), [0, 0.0])
                entry[0] += 1
                entry[1] += seconds.get(node, 0.0)
    rows = [
        LeftOperator(name, count, spent / total if total else 0.0, reason)
        for (name, reason), (count, spent) in left.items()
    ]
    parts = [part for _, cut_graph, _ in recorder.graphs for part in cut_graph.parts]
    return Explanation(
        len(recorder.graphs),
        len(parts),
        sum(len(part.nodes) for part in parts),
        sorted(rows, key=lambda row: -row.share),
    )
