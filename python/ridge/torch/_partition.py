# mypy: ignore-errors
"""Cuts a graph into programs of the engine and what stays ATen's."""

import dataclasses

import torch

from .. import _ridge
from ._describe import (
    Description,
    NotDescribable,
    dense_strides,
    is_getitem,
    is_tensor,
    operator_name,
    read_results,
)

# They move or make elements and compute nothing: no program is made of them alone.
_IDLE = {
    "view.default", "_unsafe_view.default", "reshape.default", "permute.default", "expand.default", "alias.default",
    "unsqueeze.default", "squeeze.dims", "squeeze.dim", "slice.Tensor", "select.int", "detach.default", "full.default",
    "scalar_tensor.default", "empty.memory_format", "arange.start_step", "clone.default", "lift_fresh_copy.default",
    "t.default", "transpose.int", "full_like.default", "zeros.default", "ones.default", "_to_copy.default",
}  # fmt: skip


_DRAWS = ("ridge.seed", "ridge.aten_bernoulli")


@dataclasses.dataclass
class Part:
    """Nodes that become one program, the values that they take and those that others take from them."""

    nodes: list
    inputs: list
    outputs: list
    level: int
    over: dict = dataclasses.field(default_factory=dict)  # output -> the input that it is written over


@dataclasses.dataclass
class Cut:
    parts: list  # in the order in which they run
    refusals: dict  # node -> the reason why the engine does not run it
    levels: dict  # node -> a program of a level runs before the nodes of ATen of that level
    written: dict  # a node that copies to an input -> that input, where a program writes over it instead

    def left(self):
        """Nodes that stay ATen's, each with the reason. What dropout draws is drawn between programs by design."""
        return {
            node: reason
            for node, reason in self.refusals.items()
            if node not in self.written and operator_name(node.target) not in _DRAWS
        }


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


def is_random(node):
    """Whether it uses the generator, as far as can be told: operators of higher order may."""
    if node.op != "call_function" or is_getitem(node):
        return False
    if isinstance(node.target, torch._ops.HigherOrderOperator):
        return True
    return torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())


def _levels(graph, refused):
    """By node: how many islands of ATen lie on the longest way to it, those that need nothing of the engine
    not counted (they are of level -1, and come first). Nodes of the engine of one level need nothing of one
    another by way of ATen, and fewer programs than levels cannot run one after the other. Nodes that draw
    random numbers stay in their order."""
    levels, random = {}, -1
    for node in graph.nodes:
        level = random if is_random(node) else -1
        is_ours = node.op == "call_function" and node not in refused and not is_getitem(node)
        for each in node.all_input_nodes:
            crosses = is_ours and _source(each) in refused
            level = max(level, levels[each] + crosses)
        levels[node] = max(level, 0) if is_ours else level
        if is_random(node):
            random = levels[node]
    return levels


def _grouped(graph, refused):
    levels, groups = _levels(graph, refused), {}
    for node in graph.nodes:
        if node.op == "call_function" and not is_getitem(node) and node not in refused:
            groups.setdefault(levels[node], []).append(node)
    return levels, groups


def is_copy_to_input(node):
    is_copy = node.op == "call_function" and node.target is torch.ops.aten.copy_.default
    return is_copy and node.args[0].op == "placeholder"


def _readers(node, refused):
    """Nodes that read its memory, by themselves or through views of ATen's."""
    found, waiting = [], [node]
    while waiting:
        for user in waiting.pop().users:
            found.append(user)
            schema = getattr(user.target, "_schema", None)
            is_view = is_getitem(user) or schema is None or any(each.alias_info for each in schema.returns)
            if is_view and (user in refused or is_getitem(user)) and not is_copy_to_input(user):
                waiting.append(user)
    return found


def _is_written_over(node, levels, refused):
    """Whether the program that makes its value may write it over the input: it lies as the input does, no other
    output has it, and whatever runs later needs the old elements no more."""
    to, value = node.args[:2]
    maker = _source(value)
    if maker.op != "call_function" or maker in refused or len(node.args) > 2:
        return False
    old, new = to.meta["val"], value.meta["val"]
    if not is_tensor(old) or (old.shape, old.dtype) != (new.shape, new.dtype):
        return False
    if tuple(old.stride()) != dense_strides(old):
        return False
    level = levels[maker]
    for reader in _readers(to, refused):
        if reader is node or reader.op == "output":
            continue
        is_ours = reader not in refused and not is_getitem(reader)
        if is_copy_to_input(reader) or levels[reader] > level or (levels[reader] == level and not is_ours):
            return False
    return all(each is node or not (is_copy_to_input(each) or each.op == "output") for each in _readers(value, refused))


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
    parts = {level: _part(groups[level], level) for level in sorted(groups)}
    written = {}
    for node in graph.nodes:
        if is_copy_to_input(node) and _is_written_over(node, levels, refused):
            to, value = node.args[:2]
            written[node] = to
            part = parts[levels[_source(value)]]
            part.over[value] = to
            if to not in part.inputs:
                part.inputs.append(to)
    return Cut(list(parts.values()), refused, levels, written)
