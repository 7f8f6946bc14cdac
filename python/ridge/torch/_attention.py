# mypy: ignore-errors
"""Makes one operator of an attention that a model writes out, before it is differentiated:

    softmax(mask(q @ k^T * scale)) @ v    ->    scaled_dot_product_attention(q, k, v, mask, scale)

The engine then keeps no scores, forward or backward, and leaves out blocks of keys that a mask forbids. Masks are
those of bool with minus infinity. A query without any key gets zeros, as from that operator, and no NaN. Graphs
without gradients are left as they are: the engine's own passes recognize more of these."""

import math
import operator

import torch
import torch.nn.functional as F

_FUNCTIONS = {
    operator.matmul: "matmul", torch.matmul: "matmul", torch.bmm: "matmul",
    operator.mul: "mul", torch.mul: "mul", operator.truediv: "div", torch.div: "div",
    torch.softmax: "softmax", F.softmax: "softmax", F.dropout: "dropout",
    torch.masked_fill: "masked_fill", torch.where: "where", torch.tensor: "tensor",
}  # fmt: skip
_METHODS = {
    "matmul": "matmul", "bmm": "matmul", "mul": "mul", "div": "div", "softmax": "softmax",
    "masked_fill": "masked_fill", "masked_fill_": "masked_fill",
}  # fmt: skip
_PARAMETERS = {
    "matmul": ("input", "other"), "mul": ("input", "other"), "div": ("input", "other"),
    "softmax": ("input", "dim", "_stacklevel", "dtype"), "dropout": ("input", "p", "training", "inplace"),
    "masked_fill": ("input", "mask", "value"), "where": ("condition", "input", "other"), "tensor": ("data",),
}  # fmt: skip
_SAME = {"mat2": "other", "tensor2": "other", "self": "input"}  # names of one parameter


def _call(node):
    """What it calls and with which arguments; None for anything else."""
    if not isinstance(node, torch.fx.Node):
        return None, {}
    table = {"call_function": _FUNCTIONS, "call_method": _METHODS}.get(node.op, {})
    name = table.get(node.target) if isinstance(node.target, str) or callable(node.target) else None
    if name is None or len(node.args) > len(_PARAMETERS[name]):
        return None, {}
    given = dict(zip(_PARAMETERS[name], node.args))
    given.update({_SAME.get(key, key): value for key, value in node.kwargs.items()})
    if node.op == "call_method" and name == "softmax" and len(node.args) > 2:
        return None, {}  # its third argument is the dtype
    return name, given


def _value(node):
    value = node.meta.get("example_value") if isinstance(node, torch.fx.Node) else None
    return value if isinstance(value, torch.Tensor) else None


def _is_minus_infinity(value):
    name, given = _call(value)
    number = given.get("data") if name == "tensor" else value
    return isinstance(number, float) and number == -math.inf


def _is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _masked(node):
    """The scores behind a mask, the mask, and whether it forbids keys."""
    name, given = _call(node)
    if name == "masked_fill" and _is_minus_infinity(given.get("value")):
        return given["input"], given["mask"], True
    if name == "where" and _is_minus_infinity(given.get("other")):
        return given["input"], given["condition"], False
    if name == "where" and _is_minus_infinity(given.get("input")):
        return given["other"], given["condition"], True
    return node, None, False


def _scaled(node):
    """The product behind a factor, and that."""
    name, given = _call(node)
    if name == "mul" and _is_number(given.get("input")):
        return given["other"], float(given["input"])
    if name == "mul" and _is_number(given.get("other")):
        return given["input"], float(given["other"])
    if name == "div" and set(given) == {"input", "other"} and _is_number(given["other"]) and given["other"] != 0:
        return given["input"], 1 / given["other"]
    return node, 1.0


def _weighted(node):
    """The product of weights and values that alone reads the weights, and the values."""
    while len(node.users) == 1:
        user = next(iter(node.users))
        name, given = _call(user)
        if name == "matmul" and given["input"] is node and given["other"] is not node:
            return user, given["other"]
        drops = name == "dropout" and given.get("training", True) and given.get("p", 0.5) != 0
        if name != "dropout" or drops or given["input"] is not node:
            break
        node = user
    return None, None


def _fits(q, transposed, v, mask):
    """Whether the operator takes these: as many heads of one width, in one dtype."""
    q, k, v = _value(q), _value(transposed), _value(v)
    if any(each is None or not each.is_floating_point() for each in (q, k, v)) or not q.dtype == k.dtype == v.dtype:
        return False
    rank = q.ndim
    if rank not in (3, 4) or k.ndim != rank or v.ndim != rank:
        return False
    same = q.shape[:-2] == k.shape[:-2] == v.shape[:-2] and q.shape[-1] == k.shape[-2] == v.shape[-1]
    if not same or k.shape[-1] != v.shape[-2]:
        return False
    if mask is None:
        return True
    mask = _value(mask)
    scores = (*q.shape[:-1], k.shape[-1])
    return (
        mask is not None and mask.dtype == torch.bool and mask.ndim <= rank
        and all(each in (1, size) for each, size in zip(reversed(mask.shape), reversed(scores)))
    )  # fmt: skip


def _replace(graph, product, q, transposed, v, mask, forbids, scale):
    is_single = _value(q).ndim == 3  # of one head
    with graph.inserting_before(product):
        def call(node, method, *arguments):
            return graph.call_method(method, (node, *arguments))

        k = call(transposed, "transpose", -2, -1)
        if mask is not None:
            has_batch = _value(mask).ndim == 3
            mask = call(mask, "logical_not") if forbids else mask
            mask = call(mask, "unsqueeze", 1) if is_single and has_batch else mask
        if is_single:
            q, k, v = (call(each, "unsqueeze", 1) for each in (q, k, v))
        result = graph.call_function(
            F.scaled_dot_product_attention, (q, k, v), {"attn_mask": mask, "scale": scale}
        )
        if is_single:
            result = call(result, "squeeze", 1)
    product.replace_all_uses_with(result)


def fuse_attention(module):
    """Changes a graph of Dynamo."""
    found = False
    for node in list(module.graph.nodes):
        name, given = _call(node)
        scores = _value(given.get("input"))
        if name != "softmax" or scores is None or given.get("dtype") is not None:
            continue
        if given.get("dim") not in (-1, scores.ndim - 1):
            continue
        product, v = _weighted(node)
        read = chain = given["input"]
        read, mask, forbids = _masked(read)
        behind, scale = _scaled(read)
        name, operands = _call(behind)
        if product is None or name != "matmul" or any(len(each.users) != 1 for each in {chain, read, behind}):
            continue
        q, transposed = operands["input"], operands["other"]
        if _fits(q, transposed, v, mask):
            _replace(module.graph, product, q, transposed, v, mask, forbids, scale)
            found = True
    if found:
        module.graph.eliminate_dead_code()
        module.recompile()
