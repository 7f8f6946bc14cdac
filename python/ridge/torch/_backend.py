# mypy: ignore-errors
"""The backend of torch.compile."""

from __future__ import annotations

import functools
import importlib.metadata
from collections.abc import Callable
from typing import Any

import torch
from torch._dynamo import register_backend
from torch._dynamo.backends.common import aot_autograd

from ._compile import compile_graph, take_strides, tell_once
from ._attention import fuse_attention
from ._joint import read_clamped, save_masks
from ._operators import count_draws_anew, decompositions
from ._recompute import partition


def _static_inputs(module):
    """Placeholders that are parameters and buffers which the graph does not write."""
    context = torch._guards.TracingContext.try_get()
    metadata = context.fw_metadata if context is not None else None
    if metadata is None:
        return frozenset()
    placeholders = module.graph.find_nodes(op="placeholder")
    return frozenset(
        placeholders[i]
        for i in metadata.static_input_indices
        if i < len(placeholders) and i < len(metadata.input_info) and not metadata.input_info[i].mutates_data
    )


_FIXED = "ridge_fixed_outputs"  # in the meta of a forward graph: how many outputs are not saved values


def _compile_forward(module, example_inputs):
    take_strides(module, example_inputs)
    return compile_graph(module, fixed_outputs=module.meta.get(_FIXED), kind="forward")


def _compile_backward(module, example_inputs):
    take_strides(module, example_inputs)
    return compile_graph(module, kind="backward")


def _compile_inference(module, example_inputs, freeze):
    return compile_graph(module, _static_inputs(module) if freeze else frozenset())


def _partition(joint, joint_inputs, memory_limit=None, **others):
    read_clamped(joint)
    save_masks(joint)
    forward, backward = partition(joint, joint_inputs, memory_limit, **others)
    forward.meta[_FIXED] = others["num_fwd_outputs"]
    return forward, backward


@functools.cache
def _compiler(freeze, memory_limit, same_random):
    return aot_autograd(
        fw_compiler=_compile_forward,
        bw_compiler=_compile_backward,
        inference_compiler=functools.partial(_compile_inference, freeze=freeze),
        partition_fn=functools.partial(_partition, memory_limit=memory_limit),
        decompositions=decompositions(same_random),
        keep_inference_input_mutations=True,
    )


_OPTIONS = {"freeze": True, "memory_limit": None, "same_random": False}


def backend(
    module: torch.fx.GraphModule,
    example_inputs: list[Any],
    *,
    options: dict[str, Any] | None = None,
    **others: Any,
) -> Callable[..., Any]:
    """torch.compile(model, backend="ridge", options={"freeze": True, "memory_limit": None, "same_random": False})"""
    given = dict(_OPTIONS, **(options or {}))
    unknown = sorted(set(given) - set(_OPTIONS))
    if unknown:
        raise ValueError(
            f"backend 'ridge' has no option {unknown[0]!r}; got {sorted(given)}, expected {list(_OPTIONS)}"
        )
    elsewhere = {each.device.type for each in example_inputs if isinstance(each, torch.Tensor)} - {"cpu"}
    if elsewhere:
        tell_once(f"ridge.torch: a graph on {', '.join(sorted(elsewhere))} goes to Inductor: Ridge takes the CPU alone")
        return torch._dynamo.lookup_backend("inductor")(module, example_inputs)
    count_draws_anew()
    limit = given["memory_limit"]
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 0):
        raise ValueError(f"backend 'ridge': memory_limit is a number of bytes; got {limit!r}, expected 0 or more")
    if torch.is_grad_enabled():
        fuse_attention(module)
    return _compiler(bool(given["freeze"]), limit, bool(given["same_random"]))(module, example_inputs)


# The entry point of an installed wheel registers it on first use, and twice is an error.
if not importlib.metadata.entry_points(group="torch_dynamo_backends", name="ridge"):
    register_backend(backend, name="ridge")
