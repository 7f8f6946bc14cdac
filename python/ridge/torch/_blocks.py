# mypy: ignore-errors
"""Memory for values that are saved for a backward graph: one block a call, used again when all of them are gone.

PyTorch's allocator on a CPU gives large pieces back to the system, which hands them out again page by page.
"""

import threading

import torch

_ALIGNMENT = 64
_MOST_KEPT = 2  # blocks that wait; a second forward pass before the first backward pass takes another one
_owners = getattr(torch._C, "_storage_Use_Count", None)


def _alone():
    """The count of a storage that nobody else has; None where this torch does not tell."""
    if _owners is None:
        return None
    storage = torch.UntypedStorage(64)
    before = _owners(storage._cdata)
    view = torch.empty(0, dtype=torch.uint8).set_(storage)
    is_counted = _owners(storage._cdata) > before
    del view
    return before if is_counted and _owners(storage._cdata) == before else None


_ALONE = _alone()


class Blocks:
    """Makes tensors of these types (shape, strides, dtype), dense, all in one block."""

    def __init__(self, types):
        self._places, self._bytes = [], 0
        for shape, strides, dtype in types:
            self._places.append((shape, strides, dtype, self._bytes // dtype.itemsize))
            size = torch.Size(shape).numel() * dtype.itemsize
            self._bytes += -(-size // _ALIGNMENT) * _ALIGNMENT
        self._kept = []
        self._taking = threading.Lock()

    def _storage(self):
        for storage in self._kept:
            if _owners(storage._cdata) == _ALONE:
                return storage
        storage = torch.UntypedStorage(self._bytes)
        if _ALONE is not None and len(self._kept) < _MOST_KEPT:
            self._kept.append(storage)
        return storage

    def take(self):
        with self._taking:  # from the look at a block to the first tensor in it
            storage = self._storage()
            return [
                torch.empty(0, dtype=dtype).set_(storage, offset, shape, strides)
                for shape, strides, dtype, offset in self._places
            ]
