# mypy: ignore-errors
"""FX graphs of ATen operators as the text that the engine reads (ridge/import/aten/aten_graph.h)."""

import json
import math
import operator

import torch

DTYPES = {
    torch.float64: "f64",
    torch.float32: "f32",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.int64: "i64",
    torch.int32: "i32",
    torch.int16: "i16",
    torch.uint8: "u8",
    torch.int8: "i8",
    torch.bool: "bool",
}
MOST_DIMENSIONS = 8
MOST_BYTES = 1 << 48


class NotDescribable(Exception):
    """An argument or a tensor that the text has no words for."""


def is_tensor(value):
    """Whether the engine may know of such a tensor: dense, of static sizes, on the CPU, not empty."""
    if not isinstance(value, torch.Tensor) or value.layout != torch.strided or value.device.type != "cpu":
        return False
    if value.dtype not in DTYPES or value.ndim > MOST_DIMENSIONS:
        return False
    if not all(type(size) is int and size > 0 for size in (*value.shape,)):
        return False
    return all(type(s) is int for s in value.stride()) and value.numel() * value.element_size() < MOST_BYTES


def contiguous_strides(shape):
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


def strides_of_order(shape, order):
    """Those of a dense tensor with these axes from the outermost to the innermost."""
    strides, step = [0] * len(shape), 1
    for axis in reversed(order):
        strides[axis] = step
        step *= shape[axis]
    return tuple(strides)


def copy_with_strides(tensor, strides):
    """The tensor's elements in memory of their own, which lies by `strides`."""
    return torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype, device=tensor.device).copy_(tensor)


def dense_strides(value):
    """Its strides where its elements lie without gaps in some order of axes, else row-major ones."""
    wanted = 1
    for stride, size in sorted((stride, size) for stride, size in zip(value.stride(), value.shape) if size > 1):
        if stride != wanted:
            return contiguous_strides(value.shape)
        wanted *= size
    return tuple(value.stride())


def operator_name(target):
    """The engine's name of an operator; None for what is none of ATen's or ours."""
    if not isinstance(target, torch._ops.OpOverload):
        return None
    space, name = target._schema.name.split("::")
    if space == "ridge":
        return f"ridge.{name}"
    return f"{name}.{target._schema.overload_name or 'default'}" if space == "aten" else None


def positional(node):
    """The arguments of a node in the order of its schema, with defaults filled in."""
    given = []
    for i, argument in enumerate(node.target._schema.arguments):
        if i < len(node.args):
            given.append(node.args[i])
        else:
            default = argument.default_value if argument.has_default_value() else None
            given.append(node.kwargs.get(argument.name, default))
    return given


def is_getitem(node):
    return node.op == "call_function" and node.target is operator.getitem


def read_results(node):
    """By number: the nodes that stand for the results of `node` and are read; itself where it has one."""
    value = node.meta.get("val")
    has_several = value is None and any(is_getitem(user) for user in node.users)  # the partitioner's own nodes
    if not has_several and not isinstance(value, (tuple, list)):
        return {0: [node]}
    found = {}
    for user in node.users:
        if is_getitem(user):
            found.setdefault(user.args[1], []).append(user)
    return found


class Description:
    """Builds the text: inputs first, then nodes in order, then outputs."""

    def __init__(self):
        self.numbers = {}
        self.count = 0
        self.inputs, self.nodes, self.outputs = [], [], []

    def _number(self, nodes):
        for node in nodes:
            self.numbers[node] = self.count
        self.count += 1

    @staticmethod
    def _type(value, strides=()):
        return [DTYPES[value.dtype], list(value.shape), *strides]

    def add_input(self, node, is_constant=False):
        value = node.meta["val"]
        words = ["constant"] if is_constant else []
        self.inputs.append(self._type(value, [list(dense_strides(value)), *words]))
        self._number([node])

    def add_node(self, node):
        name = operator_name(node.target)
        if name is None:
            raise NotDescribable(f"{node.target} is no operator of ATen")
        arguments = [self._argument(each) for each in positional(node)]
        # These are of memory, of which the engine has to know.
        if name in ("as_strided.default", "as_strided_scatter.default"):
            base = node.args[0].meta["val"]
            if base.storage_offset() and arguments[-1] is not None:
                raise NotDescribable("its base begins within its memory")
            arguments.append(list(base.stride()))
        results = read_results(node)
        count = len(node.meta["val"]) if isinstance(node.meta.get("val"), (tuple, list)) else 1
        types = []
        for i in range(count):
            for each in results.get(i, ()):
                if not is_tensor(each.meta.get("val")):
                    raise NotDescribable("a result is empty, or no dense tensor on the CPU")
            types.append(self._type(results[i][0].meta["val"]) if i in results else None)
        self.nodes.append([name, node.name, arguments, types])
        for i in range(count):
            self._number(results.get(i, ()))

    def add_output(self, node, is_free=False, over=None):
        """A free one lies as the engine makes it; `over` is the input that it is written over."""
        if over is not None:
            strides = list(dense_strides(over.meta["val"]))
            self.outputs.append([self.numbers[node], strides, self.numbers[over]])
            return
        strides = None if is_free else list(dense_strides(node.meta["val"]))
        self.outputs.append([self.numbers[node], strides])

    def _argument(self, value):
        if isinstance(value, torch.fx.Node):
            if value not in self.numbers:
                raise NotDescribable(f"{value} is no dense tensor on the CPU")
            return {"v": self.numbers[value]}
        if value is None or isinstance(value, (torch.device, torch.layout, torch.memory_format)):
            return None
        if isinstance(value, (bool, int, str)):
            return value
        if isinstance(value, float):
            return value if math.isfinite(value) else {"f": str(value)}
        if isinstance(value, torch.dtype) and value in DTYPES:
            return {"d": DTYPES[value]}
        if isinstance(value, (list, tuple)):
            return [self._argument(each) for each in value]
        raise NotDescribable(f"an argument is of {type(value).__name__}")

    def text(self):
        return json.dumps(
            {"format": "ridge.aten/1", "inputs": self.inputs, "nodes": self.nodes, "outputs": self.outputs},
            separators=(",", ":"),
        )
