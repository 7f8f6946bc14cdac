# mypy: ignore-errors
"""PyTorch modules on Ridge's engine.

    model = torch.compile(model, backend="ridge")

What Ridge does not have stays PyTorch's; `explain` says what that is. Options, by
`torch.compile(..., options={...})`: `freeze` (default True) packs the weights of inference once, until
they change; `memory_limit` (default None) is the most bytes that a graph saves for its backward pass, besides
its inputs: above it, values are computed again; `same_random` (default False) draws the numbers that ATen draws,
so that dropout is eager's. `empty_cache` gives memory back that waits to be used again. `quantize` makes a copy of a
module for inference whose layers multiply bytes.
"""

from ._backend import backend
from ._explain import explain
from ._memory import pool
from ._quantize import quantize

empty_cache = pool.empty

__all__ = ["backend", "empty_cache", "explain", "quantize"]
