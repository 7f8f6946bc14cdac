# mypy: ignore-errors
"""A compiled part of a graph, and tensors bound to it by address."""

import threading

import torch

from .. import _ridge
from ._describe import Description, copy_with_strides, dense_strides, strides_of_order
from ._memory import Layout, pool

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
        self._outputs = None
        self._over = [
            (i, part.inputs.index(part.over[node])) for i, node in enumerate(part.outputs) if node in part.over
        ]
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
        self._set_now()
        values = [node.meta["val"] for node in self.part.outputs]
        self._outputs = [
            (tuple(value.shape), strides_of_order(value.shape, order), value.dtype)
            for value, order in zip(values, self._program.orders())
        ]
        self._saved = [i for i, node in enumerate(self.part.outputs) if node in self._free]
        self._seen = [
            i for i, node in enumerate(self.part.outputs) if node not in self._free and node not in self.part.over
        ]
        self._block = Layout([self._outputs[i] for i in self._saved])
        self._workspace = self._program.workspace_bytes

    def _set_now(self):
        """What a call needs: the program, the inputs that it reads, and the weights that it has read."""
        read = [(i, strides) for i, strides in enumerate(self._inputs) if i not in set(self._constants)]
        self._now = (self._program, read, self._kept)

    def strides(self, node):
        """Those of an output."""
        return self._outputs[self.part.outputs.index(node)][1]

    def plan(self):
        return self._program.plan()

    def _made(self):
        """Memory of the outputs: those that a user can see have their own."""
        outputs = [None] * len(self._outputs)
        for i in self._seen:
            outputs[i] = pool.strided(*self._outputs[i])
        if self._saved:
            for i, tensor in zip(self._saved, pool.block(self._block)):
                outputs[i] = tensor
        return outputs

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
            self._set_now()
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
        program, read, weights = self._now
        placed, addresses = {-1: weights}, [0] * len(tensors)
        for i, strides in read:
            tensor = tensors[i]
            if tensor.stride() != strides:
                tensor = placed[i] = self._placed(tensor, strides)
            addresses[i] = tensor.data_ptr()
        outputs = self._made()
        for i, at in self._over:
            outputs[i] = placed.get(at, tensors[at])
        workspace = pool.workspace(self._workspace)
        _ridge.use_threads(torch.get_num_threads())
        program.run(addresses, [output.data_ptr() for output in outputs], workspace.address)
        pool.leave(workspace)
        for i, at in self._over:
            if at in placed:
                outputs[i] = tensors[at].copy_(placed[at])
        return outputs
