# mypy: ignore-errors
"""Cuts a joint graph into a forward and a backward graph that save no more between them than a limit."""

import operator

import torch
import torch.utils._pytree as pytree
from torch._functorch import partitioners

from ._compile import tell_once
from ._describe import operator_name

# It takes more than a pass over memory to compute their results again.
_DEAR = {
    "addmm.default", "baddbmm.default", "bmm.default", "convolution.default", "mm.default",
    "_scaled_dot_product_flash_attention_for_cpu.default",
}  # fmt: skip


def _output(graph):
    return next(node for node in graph.nodes if node.op == "output")


def _returned(graph):
    return pytree.arg_tree_leaves(*_output(graph).args)


def _value(node):
    value = node.meta.get("val") if isinstance(node, torch.fx.Node) else None
    return value if isinstance(value, torch.Tensor) else None


def _size(node):
    return partitioners._size_of(node) if _value(node) is not None else 0


def _writes(node):
    return isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable


def _maker(node):
    return node.args[0] if node.target is operator.getitem else node


def _is_random(node):
    return isinstance(node.target, torch._ops.OpOverload) and torch.Tag.nondeterministic_seeded in node.target.tags


def saved_bytes(forward, outputs):
    """Bytes that a forward graph saves besides its inputs and its first outputs, which live anyway."""
    returned = _returned(forward.graph)
    saved = {node for node in returned[outputs:] if isinstance(node, torch.fx.Node) and node.op != "placeholder"}
    return sum(_size(node) for node in saved - set(returned[:outputs]))


def _written_inputs(graph, outputs):
    """Inputs that hold something else by the time of the backward pass."""
    inputs = graph.find_nodes(op="placeholder")
    written = {node.args[0] for node in graph.nodes if _writes(node)}
    descriptions = _output(graph).meta.get("desc")
    if descriptions is None:  # this torch does not tell which outputs become inputs: all of the same type may do so
        types = {(value.shape, value.dtype) for value in map(_value, _returned(graph)[:outputs]) if value is not None}
        return written | {node for node in inputs if (value := _value(node)) is None or (value.shape, value.dtype) in types}
    places = [getattr(each, "mutated_input", None) for each in pytree.arg_tree_leaves(descriptions)[:outputs]]
    return written | {node for node in inputs if node.meta.get("desc") in places}


def _needs(value, available, written):
    """Random numbers that are needed to compute a value again; None where it cannot be computed again."""
    seen, stack, random = set(), [value], []
    while stack:
        node = stack.pop()
        if node in seen or (node in available and node is not value):
            continue
        seen.add(node)
        maker = _maker(node)
        if _is_random(maker) and node is not value:
            random.append(node)
        elif node.op == "call_function":
            is_operator = isinstance(maker.target, torch._ops.OpOverload)
            if not is_operator or _writes(maker) or _is_random(maker):
                return None
            if maker.target.namespace.startswith("_c10d") or written.intersection(maker.all_input_nodes):
                return None
            stack.extend(maker.all_input_nodes)
        elif node.op != "get_attr":
            return None
    return random


def _in_order(values):
    """The order in which values are dropped: what is cheap to compute first, then every second of the rest, and so on."""
    dear = [node for node in values if operator_name(_maker(node).target) in _DEAR]
    cheap = [node for node in values if node not in set(dear)]
    spread = sorted(range(len(dear)), key=lambda i: ((i + 1) & -(i + 1), i))
    return cheap + [dear[i] for i in spread]


def _within(limit, graph, saved, inputs, outputs):
    """Values to save that have at most `limit` bytes, from which all of `saved` can be computed; and their bytes."""
    written, lives = _written_inputs(graph, outputs), set(_returned(graph)[:outputs])
    kept = {node for node in saved if node not in set(inputs)}
    free = (set(inputs) - written) | (set(saved) & set(inputs))
    total = sum(_size(node) for node in kept - lives)
    for node in _in_order([node for node in graph.nodes if node in kept and node not in lives and _size(node) > 0]):
        if total <= limit:
            break
        random = _needs(node, kept | free, written)
        more = sum(map(_size, random or ()))
        if random is not None and more < _size(node):
            kept.remove(node)
            kept.update(random)
            total += more - _size(node)
    return [node for node in graph.nodes if node in kept or node in free], total


def partition(joint, joint_inputs, limit=None, **others):
    """PyTorch's cut, which computes again what costs next to nothing; above `limit` bytes as little more as keeps it."""
    cut = partitioners.min_cut_rematerialization_partition
    if limit is None:
        return cut(joint, joint_inputs, **others)
    choose, outputs = partitioners.choose_saved_values_set, others["num_fwd_outputs"]

    def chosen(graph, info, *budget, **budgets):
        saved, total = _within(limit, graph, choose(graph, info, *budget, **budgets), info.inputs, outputs)
        if total > limit:
            tell_once(
                f"ridge.torch: a graph saves {total} bytes for its backward pass at least, which is more than "
                f"memory_limit={limit}; give it that much, or a smaller batch"
            )
        return saved

    partitioners.choose_saved_values_set = chosen
    try:
        return cut(joint, joint_inputs, **others)
    finally:
        partitioners.choose_saved_values_set = choose
