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
LEAST_KEPT = 1 << 16  # bytes; the heap keeps smaller pieces by itself
_MOST_LOOKS = 16  # whoever has a piece for that many looks is not expected to give it back soon

_count_owners = getattr(torch._C, "_storage_Use_Count", None)


class _Piece:
    """A storage, with what shows whether somebody else has it, and whether it is as it was made."""

    __slots__ = ("storage", "size", "address", "used", "looks", "_bases", "_alone")

    def __init__(self, size):
        self.storage = torch.UntypedStorage(size)
        self.size, self.address = size, self.storage.data_ptr()
        self.used = self.looks = 0
        self._bases, self._alone = {}, None

    def base(self, dtype):
        """A tensor of all of it. Programs make others of its memory."""
        if dtype not in self._bases:
            with torch.inference_mode(False):
                base = torch.empty(0, dtype=dtype, device="cpu")
                self._bases[dtype] = base.set_(self.storage, 0, (self.size // dtype.itemsize,), (1,))
            self._alone = self._owners()
        return self._bases[dtype]

    def _owners(self):
        """Tensors own a storage, and so does whoever has the object of Python."""
        return _count_owners(self.storage._cdata), sys.getrefcount(self.storage)

    def is_alone(self):
        """Whether nobody else has it; to be asked when it has a base."""
        return self._owners() == self._alone

    def is_as_made(self):
        """Whether nobody gave it another size, or shared it with other processes."""
        return self.storage.nbytes() == self.size and self.storage.data_ptr() == self.address


def _tells_owners():
    """Whether this torch tells who else has a storage."""
    if _count_owners is None:
        return False
    piece = _Piece(_ALIGNMENT)
    view = piece.base(torch.uint8)[:1]
    is_told = not piece.is_alone()
    storage = view.untyped_storage()
    del view
    is_told = is_told and not piece.is_alone()
    del storage
    return is_told and piece.is_alone()


class Pool:
    """Pieces that were used before. Whoever looks at one takes it out of its queue first: threads need no lock."""

    def __init__(self):
        self._queues = collections.defaultdict(collections.deque)  # by size
        self._workspaces = []
        self._clock = itertools.count(1)

    def take(self, size):
        """A piece of so many bytes; give it to keep() when tensors of it are made."""
        queue = self._queues[size]
        for _ in range(len(queue)):
            try:
                piece = queue.popleft()
            except IndexError:  # another thread looks at the last one
                break
            if piece.is_alone():
                if piece.is_as_made():
                    piece.looks = 0
                    return piece
                continue
            piece.looks += 1
            if piece.looks < _MOST_LOOKS:
                queue.append(piece)
        return self._made(size)

    def keep(self, piece):
        if piece.size >= LEAST_KEPT and _CAN_KEEP:
            piece.used = next(self._clock)
            self._queues[piece.size].append(piece)

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

    def _take_idle(self):
        """All pieces that nobody has, out of their queues, the one that was used last at the end."""
        idle = []
        for queue in list(self._queues.values()):
            for _ in range(len(queue)):
                try:
                    piece = queue.popleft()
                except IndexError:
                    break
                (idle if piece.is_alone() else queue).append(piece)
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
        if size >= LEAST_KEPT:
            _ridge.make_resident(piece.address, size)
        return piece


class Layout:
    """Places of dense tensors of these types (shape, strides, dtype), one after the other: byte offsets."""

    def __init__(self, types):
        self.offsets, self.size = [], 0
        for shape, _, dtype in types:
            self.offsets.append(self.size)
            self.size += -(-bytes_of(shape, dtype) // _ALIGNMENT) * _ALIGNMENT


def bytes_of(shape, dtype):
    return torch.Size(shape).numel() * dtype.itemsize


_CAN_KEEP = _tells_owners()
pool = Pool()
