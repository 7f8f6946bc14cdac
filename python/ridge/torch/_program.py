# mypy: ignore-errors
"""A compiled part of a graph, and tensors bound to it by address."""

import threading

import torch

from .. import _ridge
from ._describe import Description, copy_with_strides, dense_strides, strides_of_order
from ._memory import LEAST_KEPT, Layout, bytes_of, pool

_ridge.use_torch(
    "libtorch_cpu.so",
    torch._C._aoti.unsafe_alloc_void_ptrs_from_tensors,
    torch._C._aoti.alloc_tensors_by_stealing_from_void_ptrs,
)

# A frozen program whose weights change at nearly every call is compiled for weights that may change.
_MOST_REFRESHES = 3


def describe(part, constants=frozenset(), free=frozenset()):
    """The text of a part. `constants`: inputs that seldom change; `free`: outputs in any order of axes."""
    description = Description()
    for node in part.inputs:
        description.add_input(node, node in constants)
    for node in part.nodes:
        description.add_node(node)
    for node in part.outputs:
        description.add_output(node, node in free, part.over.get(node))
    return description.text()


class Program:
    """Takes the tensors of part.inputs, and returns those of part.outputs."""

    def __init__(self, part, constants=frozenset(), free=frozenset()):
        self.part = part
        self._free = free
        self._constants = [i for i, node in enumerate(part.inputs) if node in constants]
        self._inputs = [tuple(dense_strides(node.meta["val"])) for node in part.inputs]
        self._outputs = self._pieces = None
        self._program = self._now = None
        self._versions = self._kept = None
        self._calls = self._refreshes = 0
        self._reading = threading.Lock()
        self._text = describe(part, constants, free)
        if not self._constants:
            self._compile([0] * len(self._inputs))

    @property
    def is_frozen(self):
        return bool(self._constants)

    def _compile(self, addresses):
        self._program = _ridge.AtenProgram(self._text, addresses)
        values = [node.meta["val"] for node in self.part.outputs]
        self._outputs = [
            (tuple(value.shape), strides_of_order(value.shape, order), value.dtype)
            for value, order in zip(values, self._program.orders())
        ]
        self._bind()

    def _bind(self):
        constants = set(self._constants)
        inputs = [
            (i, tuple(node.meta["val"].shape), self._inputs[i])
            for i, node in enumerate(self.part.inputs)
            if i not in constants
        ]
        places = self._places()
        outputs = []
        for i, (shape, strides, dtype) in enumerate(self._outputs):
            name = str(dtype).removeprefix("torch.")
            over = self.part.over.get(self.part.outputs[i])
            place = {"over": self.part.inputs.index(over)} if over is not None else places.get(i, {})
            outputs.append(_ridge.AtenOutput(shape, strides, name, **place))
        self._program.bind(len(self.part.inputs), inputs, outputs, copy_with_strides)
        self._now = (self._program, self._kept)

    def _places(self):
        """Large outputs lie in pieces of the pool: those that are saved in one, others in one each."""
        self._pieces, places, number = [], {}, 0
        saved = [i for i, node in enumerate(self.part.outputs) if node in self._free]
        for i, (shape, _, dtype) in enumerate(self._outputs):
            if i not in saved and bytes_of(shape, dtype) >= LEAST_KEPT and self.part.outputs[i] not in self.part.over:
                self._pieces.append((bytes_of(shape, dtype), [dtype]))
                places[i] = {"piece": number}
                number += 1
        if saved:
            layout = Layout([self._outputs[i] for i in saved])
            dtypes = sorted({self._outputs[i][2] for i in saved}, key=str)
            self._pieces.append((layout.size, dtypes))
            for i, offset in zip(saved, layout.offsets):
                dtype = self._outputs[i][2]
                places[i] = {"piece": number + dtypes.index(dtype), "offset": offset // dtype.itemsize}
        return places

    def strides(self, node):
        """Those of an output."""
        return self._outputs[self.part.outputs.index(node)][1]

    def plan(self):
        return self._program.plan()

    def _placed(self, tensor, strides):
        """The tensor as the text says that it lies."""
        if tensor.stride() == strides:
            return tensor
        return copy_with_strides(tensor, strides)

    def _check_constants(self, tensors):
        """Weights are read once: again, where one was written to, or is another."""
        if not self._constants:  # another thread was here
            return
        self._calls += 1
        try:
            versions = [(tensors[i].data_ptr(), tensors[i]._version) for i in self._constants]
        except RuntimeError:  # made in inference mode: they count no versions
            return self._thaw()
        if self._program is not None and versions == self._versions and not self._program.is_stale():
            return
        if self._program is not None:
            self._refreshes += 1
            if self._refreshes > _MOST_REFRESHES and self._refreshes * 2 > self._calls:
                return self._thaw()
        self._kept = [self._placed(tensors[i], self._inputs[i]) for i in self._constants]
        addresses = [0] * len(self._inputs)
        for i, tensor in zip(self._constants, self._kept):
            addresses[i] = tensor.data_ptr()
        if self._program is None:
            self._compile(addresses)
        else:
            self._program.refresh(addresses)
            self._now = (self._program, self._kept)
        self._versions = versions

    def _thaw(self):
        self._constants = []
        self._text = describe(self.part, free=self._free)
        self._kept = self._versions = None
        self._compile([0] * len(self._inputs))

    def __call__(self, *tensors):
        if self._constants:
            with self._reading:
                self._check_constants(tensors)
        # Weights that were read stay as long as this call uses them, whatever other threads do.
        program, _weights = self._now
        pieces = [pool.take(size) for size, _ in self._pieces]
        bases = [piece.base(dtype) for piece, (_, dtypes) in zip(pieces, self._pieces) for dtype in dtypes]
        workspace = pool.workspace(program.workspace_bytes)
        _ridge.use_threads(torch.get_num_threads())
        outputs = program.run(tensors, bases, workspace.address)
        pool.leave(workspace)
        for piece in pieces:
            pool.keep(piece)
        return outputs
