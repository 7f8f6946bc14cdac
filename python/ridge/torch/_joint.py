# mypy: ignore-errors
"""What is changed in the joint graph of forward and backward pass before it is cut."""

import torch
from torch.utils.checkpoint import CheckpointPolicy

aten = torch.ops.aten
_ATTENTION = {
    aten._scaled_dot_product_flash_attention_for_cpu.default,
    aten._scaled_dot_product_flash_attention_for_cpu_backward.default,
}


def save_masks(joint):
    """torch gives attention numbers for a mask of bool, and would save these for the backward pass. The engine reads
    the mask itself: that is what is saved, and the numbers are made again, of which a program keeps nothing."""
    for node in joint.graph.nodes:
        mask = node.kwargs.get("attn_mask") if node.target in _ATTENTION else None
        if isinstance(mask, torch.fx.Node) and mask.target is aten.where.self and "recompute" not in node.meta:
            mask.meta.setdefault("recompute", CheckpointPolicy.PREFER_RECOMPUTE)


def read_clamped(joint):
    """Gradients of hardtanh (ReLU6) read its result, which the next layer saves anyway, in place of what it took:
    both lie between the bounds at the same elements. In place, it has kept a copy of what it took."""
    results = {}
    for node in joint.graph.nodes:
        if node.target is aten.hardtanh.default:
            results[node.args] = node
        elif node.target is aten.hardtanh_backward.default:
            _, taken, *bounds = node.args
            while taken.target in (aten.clone.default, aten.alias.default):
                taken = taken.args[0]
            result = results.get((taken, *bounds))
            if result is not None and bounds[0] < bounds[1]:
                node.update_arg(1, result)
