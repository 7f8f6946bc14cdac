# mypy: ignore-errors
"""PyTorch modules on Ridge's engine.

    model = torch.compile(model, backend="ridge")

What Ridge does not have stays PyTorch's; `explain` says what that is. Options, by
`torch.compile(..., options={...})`: `freeze` (default True) packs the weights of inference once, until
they change.
"""

from ._backend import backend
from ._explain import explain

__all__ = ["backend", "explain"]
