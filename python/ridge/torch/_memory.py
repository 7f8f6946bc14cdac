# mypy: ignore-errors
"""Memory of programs: taken from torch's allocator, and taken again when nobody else has it any more.

That allocator gives large pieces back to the system on a CPU, which hands them out again page by page: each step of
a training would wait for the pages of its gradients anew.
"""

import collections
import itertools
import sys

import torch

from .. import _ridge

_ALIGNMENT = 64
_LEAST_KEPT = 1 << 20  # bytes; the heap keeps smaller pieces by itself
_MOST_LOOKS = 16  # whoever has a piece for that many looks is not expected to give it back soon

_owners = getattr(torch._C, "_storage_Use_Count", None)


class _Piece:
    """A storage, with what shows whether somebody else has it, and whether it is as it was made."""

    __slots__ = ("storage", "size", "address", "used", "looks")

    def __init__(self, size):
        self.storage = torch.UntypedStorage(size)
        self.size, self.address = size, self.storage.data_ptr()
        self.used = self.looks = 0

    def owners(self):
        """Tensors own a storage, and so does whoever has the object of Python."""
        return _owners(self.storage._cdata), sys.getrefcount(self.storage)

    def is_as_made(self):
        """Whether nobody gave it another size, or shared it with other processes."""
        return self.storage.nbytes() == self.size and self.storage.data_ptr() == self.address

    def tensor(self, offset, shape, strides, dtype):
        return torch.empty(0, dtype=dtype).set_(self.storage, offset // dtype.itemsize, shape, strides)


def _alone():
    """The owners of a storage that nobody else has; None where this torch does not tell."""
    if _owners is None:
        return None
    piece = _Piece(_ALIGNMENT)
    alone = piece.owners()
    tensor = piece.tensor(0, (1,), (1,), torch.uint8)
    is_told = piece.owners()[0] > alone[0]
    storage = tensor.untyped_storage()
    del tensor
    is_told = is_told and piece.owners() != alone
    del storage
    return alone if is_told and piece.owners() == alone else None


_ALONE = _alone()


class Pool:
    """Pieces that were used before. Whoever looks at one takes it out of its queue first: threads need no lock."""

    def __init__(self):
        self._queues = collections.defaultdict(collections.deque)  # by size
        self._workspaces = []
        self._clock = itertools.count(1)

    def strided(self, shape, strides, dtype):
        """A dense tensor in a storage of its own."""
        size = torch.Size(shape).numel() * dtype.itemsize
        if size < _LEAST_KEPT or _ALONE is None:
            return torch.empty_strided(shape, strides, dtype=dtype)
        piece = self._taken(size)
        tensor = piece.tensor(0, shape, strides, dtype)
        self._keep(piece)
        return tensor

    def block(self, layout):
        """Tensors of a layout, all in one storage."""
        if layout.size < _LEAST_KEPT or _ALONE is None:
            return layout.tensors(_Piece(layout.size))
        piece = self._taken(layout.size)
        tensors = layout.tensors(piece)
        self._keep(piece)
        return tensors

    def workspace(self, size):
        """A piece of at least that size, to be given to leave()."""
        piece = self._workspaces.pop() if self._workspaces else None
        if piece is not None and piece.size >= size:
            return piece
        piece = None
        return self._made(size)

    def leave(self, workspace):
        self._workspaces.append(workspace)

    def idle_bytes(self):
        idle = self._take_idle()
        for piece in idle:
            self._queues[piece.size].append(piece)
        return sum(piece.size for piece in (*idle, *self._workspaces))

    def empty(self):
        """Gives back what nobody has."""
        self._take_idle()
        self._workspaces.clear()

    def _keep(self, piece):
        piece.used = next(self._clock)
        self._queues[piece.size].append(piece)

    def _taken(self, size):
        queue = self._queues[size]
        for _ in range(len(queue)):
            try:
                piece = queue.popleft()
            except IndexError:  # another thread looks at the last one
                break
            if piece.owners() == _ALONE:
                if piece.is_as_made():
                    piece.looks = 0
                    return piece
                continue
            piece.looks += 1
            if piece.looks < _MOST_LOOKS:
                queue.append(piece)
        return self._made(size)

    def _take_idle(self):
        """All pieces that nobody has, out of their queues, the one that was used last at the end."""
        idle = []
        for queue in list(self._queues.values()):
            for _ in range(len(queue)):
                try:
                    piece = queue.popleft()
                except IndexError:
                    break
                (idle if piece.owners() == _ALONE else queue).append(piece)
        return sorted(idle, key=lambda piece: piece.used)

    def _made(self, size):
        """A new piece, in place of idle ones as large: there are never more bytes than were in use at once."""
        room = 0
        for piece in self._take_idle():
            if room < size:
                room += piece.size
            else:
                self._queues[piece.size].append(piece)
        piece = None
        try:
            piece = _Piece(size)
        except RuntimeError:  # out of memory
            self.empty()
            piece = _Piece(size)
        if size >= _LEAST_KEPT:
            _ridge.make_resident(piece.address, size)
        return piece


class Layout:
    """Dense tensors of these types (shape, strides, dtype), one after the other."""

    def __init__(self, types):
        self._places, self.size = [], 0
        for shape, strides, dtype in types:
            self._places.append((self.size, shape, strides, dtype))
            size = torch.Size(shape).numel() * dtype.itemsize
            self.size += -(-size // _ALIGNMENT) * _ALIGNMENT

    def tensors(self, piece):
        return [piece.tensor(*place) for place in self._places]


pool = Pool()
