# mypy: ignore-errors
"""Cuts a joint graph into a forward and a backward graph that save no more between them than a limit."""

import copy

import torch
from torch._functorch import config
from torch._functorch.partitioners import _size_of, min_cut_rematerialization_partition
from torch.utils.checkpoint import CheckpointPolicy

from ._compile import tell_once

_LEAST_BUDGET = 1e-6  # of 0 the partitioner computes everything again, random numbers too
_TRIES = 4


def _is_random(node):
    return isinstance(node.target, torch._ops.OpOverload) and torch.Tag.nondeterministic_seeded in node.target.tags


def saved_bytes(forward, outputs):
    """Bytes that a forward graph saves besides its inputs and its first outputs, which live anyway."""
    returned = next(node for node in forward.graph.nodes if node.op == "output").args[0]
    saved = {node for node in returned[outputs:] if isinstance(node, torch.fx.Node) and node.op != "placeholder"}
    return sum(_size_of(node) for node in saved - set(returned[:outputs]))


def _draws_again(forward, backward):
    """Whether the backward graph draws random numbers that the forward graph has drawn."""
    drawn = {node.name for node in forward.graph.nodes if _is_random(node)}
    return any(node.name in drawn for node in backward.graph.nodes)


def partition(joint, joint_inputs, limit=None, **others):
    """PyTorch's cut, which computes again what costs next to nothing; above `limit` bytes as little more as keeps it."""
    if limit is None:
        return min_cut_rematerialization_partition(joint, joint_inputs, **others)
    for node in joint.graph.nodes:
        if _is_random(node):
            node.meta["recompute"] = CheckpointPolicy.MUST_SAVE

    def cut(budget):
        with config.patch(activation_memory_budget=budget):
            graphs = min_cut_rematerialization_partition(copy.deepcopy(joint), joint_inputs, **others)
        return graphs, saved_bytes(graphs[0], others["num_fwd_outputs"])

    graphs, size = cut(1.0)
    if size <= limit:
        return graphs
    least, least_size = cut(_LEAST_BUDGET)
    if _draws_again(*least):
        least, least_size = graphs, size
    if least_size > limit:
        tell_once(
            f"ridge.torch: a graph saves {least_size} bytes for its backward pass at least, which is more than "
            f"memory_limit={limit}; give it that much, or a smaller batch"
        )
        return least
    low, high = 0.0, 1.0
    for _ in range(_TRIES):
        budget = (low + high) / 2
        graphs, size = cut(budget)
        if size <= limit and not _draws_again(*graphs):
            low, least = budget, graphs
        else:
            high = budget
    return least
