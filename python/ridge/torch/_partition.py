# mypy: ignore-errors
"""Cuts a graph into programs of the engine and what stays ATen's."""

import dataclasses

import torch

from .. import _ridge
from ._describe import Description, NotDescribable, is_getitem, is_tensor, operator_name, read_results

# They move or make elements and compute nothing: no program is made of them alone.
_IDLE = {
    "view.default", "_unsafe_view.default", "reshape.default", "permute.default", "expand.default", "alias.default",
    "unsqueeze.default", "squeeze.dims", "squeeze.dim", "slice.Tensor", "select.int", "detach.default", "full.default",
    "scalar_tensor.default", "empty.memory_format", "arange.start_step", "clone.default", "lift_fresh_copy.default",
    "t.default", "transpose.int", "full_like.default", "zeros.default", "ones.default", "_to_copy.default",
}  # fmt: skip


@dataclasses.dataclass
class Part:
    """Nodes that become one program, the values that they take and those that others take from them."""

    nodes: list
    inputs: list
    outputs: list
    level: int


@dataclasses.dataclass
class Cut:
    parts: list  # in the order in which they run
    refusals: dict  # node -> the reason why the engine does not run it
    levels: dict  # node -> a program of a level runs before the nodes of ATen of that level

    def left(self):
        """Nodes that stay ATen's, each with the reason. Seeds of dropout are drawn between programs by design."""
        return {node: reason for node, reason in self.refusals.items() if operator_name(node.target) != "ridge.seed"}


def refusals(graph):
    """Nodes that stay ATen's, each with the reason."""
    description, refused, described = Description(), {}, []
    inputs = []
    for node in graph.nodes:
        if node.op in ("placeholder", "get_attr") and is_tensor(node.meta.get("val")):
            inputs.append(node)
    for node in inputs:
        description.add_input(node)
    # Results of nodes that cannot be described are inputs: the first round finds them.
    foreign = Description()
    foreign.numbers = dict(description.numbers)
    for node in graph.nodes:
        if node.op != "call_function" or is_getitem(node):
            continue
        try:
            foreign.add_node(node)
            described.append(node)
        except (NotDescribable, KeyError, AttributeError) as error:
            refused[node] = str(error) if isinstance(error, NotDescribable) else "it is no operator of ATen"
            for results in read_results(node).values():
                for each in results:
                    if is_tensor(each.meta.get("val")):
                        description.add_input(each)
                        foreign.numbers[each] = -1
    for node in described:
        description.add_node(node)
    for number, reason in _ridge.aten_refusals(description.text()):
        refused[described[number]] = reason
    return refused


def _source(node):
    return node.args[0] if is_getitem(node) else node


def _levels(graph, refused):
    """By node: how many islands of ATen lie on the longest way to it, those that need nothing of the engine
    not counted (they are of level -1, and come first). Nodes of the engine of one level need nothing of one
    another by way of ATen, and fewer programs than levels cannot run one after the other."""
    levels = {}
    for node in graph.nodes:
        level = -1
        is_ours = node.op == "call_function" and node not in refused and not is_getitem(node)
        for each in node.all_input_nodes:
            crosses = is_ours and _source(each) in refused
            level = max(level, levels[each] + crosses)
        levels[node] = max(level, 0) if is_ours else level
    return levels


def _grouped(graph, refused):
    levels, groups = _levels(graph, refused), {}
    for node in graph.nodes:
        if node.op == "call_function" and not is_getitem(node) and node not in refused:
            groups.setdefault(levels[node], []).append(node)
    return levels, groups


def _part(nodes, level):
    members, inputs, outputs = set(nodes), {}, {}
    for node in nodes:
        for each in node.all_input_nodes:
            if _source(each) not in members:
                inputs[each] = None
        for results in read_results(node).values():
            for each in results:
                if any(not is_getitem(user) and user not in members for user in each.users):
                    outputs[each] = None
    return Part(nodes, list(inputs), list(outputs), level)


def cut(graph):
    """The least number of programs; nodes without use are expected to be gone."""
    refused = refusals(graph)
    levels, groups = _grouped(graph, refused)
    idle = [group for group in groups.values() if all(operator_name(node.target) in _IDLE for node in group)]
    if idle:
        for group in idle:
            refused.update(dict.fromkeys(group, "nothing is computed around it"))
        levels, groups = _grouped(graph, refused)
    return Cut([_part(groups[level], level) for level in sorted(groups)], refused, levels)
