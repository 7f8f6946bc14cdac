# mypy: ignore-errors
"""The decomposition table: core ATen's, less what the engine has as one operator."""

import functools
import itertools

import torch
from torch._decomp import core_aten_decompositions

from .. import _ridge

aten = torch.ops.aten
_library = torch.library.Library("ridge", "DEF")
_library.define(
    "max_pool2d_backward(Tensor grad_output, Tensor self, int[2] kernel_size, int[2] stride, int[2] padding, "
    "int[2] dilation, bool ceil_mode) -> Tensor"
)


def _max_pool2d_backward(grad_output, self, kernel_size, stride, padding, dilation, ceil_mode):
    window = (kernel_size, stride, padding, dilation, ceil_mode)
    _, indices = aten.max_pool2d_with_indices(self, *window)
    return aten.max_pool2d_with_indices_backward(grad_output, self, *window, indices)


def _max_pool2d_backward_meta(grad_output, self, kernel_size, stride, padding, dilation, ceil_mode):
    return torch.empty_like(self)


_library.impl("max_pool2d_backward", _max_pool2d_backward, "CPU")
_library.impl("max_pool2d_backward", _max_pool2d_backward_meta, "Meta")


# Indices would be made in the forward pass, kept, and read in the backward pass.
def _without_indices(grad_output, self, kernel_size, stride, padding, dilation, ceil_mode, indices):
    if self.ndim != 4:
        return NotImplemented
    return torch.ops.ridge.max_pool2d_backward(
        grad_output, self, kernel_size, stride, padding, dilation, ceil_mode
    )


# Random numbers of dropout are the engine's, of a seed that torch's generator gives: another trajectory than
# eager's, reproducible by torch.manual_seed. A step's seed is {number, number of the operator, 0}. It has a
# device, by which checkpoints know whose generator they have to turn back.
_library.define(
    "seed(int key, *, Device device) -> Tensor",
    tags=(torch.Tag.nondeterministic_seeded, torch.Tag.flexible_layout),
)
_library.define("dropout(Tensor self, Tensor rng, float p, int key) -> (Tensor, Tensor)")


def _seed(key, *, device):
    return torch.stack((torch.randint(0, 1 << 62, ()), torch.tensor(key), torch.tensor(0)))


def _seed_meta(key, *, device):
    return torch.empty(3, dtype=torch.int64)


def _dropout(self, rng, p, key):
    generator = torch.Generator().manual_seed(int(rng[0]) + key)
    mask = torch.rand(self.shape, generator=generator) >= p
    return self * mask / (1 - p), mask


def _dropout_meta(self, rng, p, key):
    like = torch.empty(self.shape, dtype=self.dtype, device=self.device)
    return like, torch.empty(self.shape, dtype=torch.bool, device=self.device)


_library.impl("seed", _seed, "CompositeExplicitAutograd")
_library.impl("dropout", _dropout, "CPU")
_library.impl("dropout", _dropout_meta, "Meta")
torch.library.register_fake("ridge::seed", _seed_meta, lib=_library)
_CPU = torch.device("cpu")
# Each draw of a graph has a number of its own, and the same one when the graph is traced again.
_keys = itertools.count()


def count_draws_anew():
    global _keys
    _keys = itertools.count()


def _masked(self, p):
    key = next(_keys)
    return torch.ops.ridge.dropout(self, torch.ops.ridge.seed(key, device=_CPU), float(p), key)


def _native_dropout(input, p, train=None):
    if train is False or p == 0:
        return input.clone(), torch.ones_like(input, dtype=torch.bool)
    if p >= 1 or input.device.type != "cpu" or not input.is_floating_point():
        return NotImplemented
    return _masked(input, p)


def _bernoulli(self, p=0.5, *, generator=None):
    if generator is not None or not 0 < p <= 1 or self.device.type != "cpu":
        return NotImplemented
    ones = torch.ones(self.shape, dtype=torch.float32)
    return _masked(ones, 1 - p)[1].to(self.dtype)


# Masks of ATen's own numbers: it draws a number of 53 bits an element, one after the other as they lie in memory, at
# some 5 ns each. The engine's kernel makes the same numbers out of the generator's state five times as fast, and the
# rest of a dropout is part of a program. Another thread that draws meanwhile would get the same numbers. `order` has
# the axes from the outermost in memory to the innermost.
_library.define(
    "aten_bernoulli(SymInt[] size, int[] order, float p, *, Device device) -> Tensor",
    tags=(torch.Tag.nondeterministic_seeded, torch.Tag.flexible_layout),
)


def _empty_mask(size, order, device=None):
    inverse = sorted(range(len(order)), key=order.__getitem__)
    return torch.empty([size[axis] for axis in order], dtype=torch.bool, device=device).permute(inverse)


def draw_bernoulli(generator, size, order, p):
    """A mask whose elements are True with the probability `p`, as Tensor.bernoulli_(p) draws them; None where the
    generator's state is none that the engine knows."""
    mask, state = _empty_mask(size, order), generator.get_state()
    if not _ridge.draw_bernoulli(state.data_ptr(), state.numel(), p, mask.data_ptr(), mask.numel()):
        return None
    generator.set_state(state)
    return mask


def _aten_bernoulli(size, order, p, *, device):
    return draw_bernoulli(torch.default_generator, size, order, p)


def _aten_bernoulli_meta(size, order, p, *, device):
    return _empty_mask(size, order, device)


_library.impl("aten_bernoulli", _aten_bernoulli, "CompositeExplicitAutograd")
torch.library.register_fake("ridge::aten_bernoulli", _aten_bernoulli_meta, lib=_library)


def _drawn_like(like, p):
    """A mask that ATen would draw for a tensor like this one: it lies as empty_like() makes it lie."""
    strides = torch.empty_like(like, device="meta").stride()
    order = sorted(range(like.ndim), key=lambda axis: (-strides[axis], axis))
    return torch.ops.ridge.aten_bernoulli(like.shape, order, float(p), device=_CPU)


@functools.cache
def knows_generator():
    """Whether the engine draws what this torch draws, numbers and state."""
    ours, atens = torch.Generator().manual_seed(1), torch.Generator().manual_seed(1)
    for count, p in ((1, 0.5), (623, 0.9), (700, 0.1)):
        mask = draw_bernoulli(ours, (count,), (0,), p)
        wanted = torch.empty(count, dtype=torch.bool).bernoulli_(p, generator=atens)
        if mask is None or not torch.equal(mask, wanted) or not torch.equal(ours.get_state(), atens.get_state()):
            return False
    return True


def _same_bernoulli(self, p=0.5, *, generator=None):
    if generator is not None or not 0 <= p <= 1 or self.device.type != "cpu":
        return NotImplemented
    # The function makes a contiguous tensor, whatever it is given.
    order = list(range(self.ndim))
    return torch.ops.ridge.aten_bernoulli(self.shape, order, float(p), device=_CPU).to(self.dtype)


def _same_dropout(input, p, train=None):
    if train is False:
        return input.clone(), torch.ones_like(input, dtype=torch.bool)
    if p >= 1 or input.device.type != "cpu" or not input.is_floating_point():
        return NotImplemented
    mask = _drawn_like(input, 1 - p)
    return input * mask * (1 / (1 - p)), mask


# Without training there are no statistics of the batch: tensors without elements would be saved and read. In
# training, running statistics would be saved, and not read.
def _batch_norm_backward(grad, input, weight, mean, variance, save_mean, save_invstd, train, eps, output_mask):
    if train and mean is not None:
        return aten.native_batch_norm_backward(
            grad, input, weight, None, None, save_mean, save_invstd, train, eps, output_mask
        )
    if train or save_mean is None or save_mean.numel() > 0 or mean is None:
        return NotImplemented
    return aten.native_batch_norm_backward(
        grad, input, weight, mean, variance, mean, variance, train, eps, output_mask
    )


# Optimizers use these. Core's table writes them by an operator of its own (prims.fma), and asks at run time how
# large the weight of lerp is, which is a number.
def _lerp(self, end, weight):
    if isinstance(weight, torch.Tensor):
        return NotImplemented
    return self + weight * (end - self) if abs(weight) < 0.5 else end - (1 - weight) * (end - self)


def _fma(a, b, c):
    return a * b + c


def _vector_norm(self, ord=2, dim=None, keepdim=False, *, dtype=None):
    if ord != 2 or not self.is_floating_point() or self.ndim == 0:
        return NotImplemented
    self = self if dtype is None else self.to(dtype)
    return (self * self).sum(list(range(self.ndim)) if dim is None else dim, keepdim).sqrt()


def _power_of_number(self, exponent):
    dtype = torch.result_type(self, exponent)
    return torch.pow(torch.full((), self, dtype=dtype), exponent.to(dtype))


_OURS = (
    aten._log_softmax_backward_data,
    aten._native_batch_norm_legit_no_training,
    aten._scaled_dot_product_flash_attention_for_cpu,
    aten._softmax_backward_data,
    aten.addcmul,
    aten.addcmul_,
    aten.embedding_dense_backward,
    aten.gelu_backward,
    aten.hardtanh_backward,
    aten.native_batch_norm_backward,
    aten.native_dropout_backward,
    aten.native_layer_norm_backward,
    aten.silu,
    aten.silu_backward,
    aten.threshold_backward,
)


_LISTS = (
    "abs", "add", "addcdiv", "addcmul", "clamp_max", "clamp_min", "div", "exp", "lerp", "log", "maximum", "minimum",
    "mul", "neg", "norm", "pow", "reciprocal", "rsqrt", "sigmoid", "sign", "sqrt", "sub",
)  # fmt: skip
_IN_LISTS = {
    "norm": lambda x, ord=2, dtype=None: torch.linalg.vector_norm(x, ord, dtype=dtype),
    "addcdiv": lambda x, a, b, value=1: torch.addcdiv(x, a, b, value=value),
    "addcmul": lambda x, a, b, value=1: torch.addcmul(x, a, b, value=value),
}


def _over_lists(function):
    """An operator over lists of tensors as `function` of the elements of each."""

    def rule(*args, **keywords):
        count = next(len(each) for each in args if isinstance(each, (list, tuple)))

        def element(value, i):
            return value[i] if isinstance(value, (list, tuple)) else value

        return [function(*(element(each, i) for each in args), **keywords) for i in range(count)]

    return rule


def _of_lists():
    """The operators over lists that optimizers use, as the operators of their elements."""
    table = {}
    for name in _LISTS:
        packet = getattr(aten, f"_foreach_{name}", None)
        function = _IN_LISTS.get(name) or getattr(torch, name)
        for overload in packet.overloads() if packet is not None else ():
            op = getattr(packet, overload)
            is_packed = name in ("addcdiv", "addcmul") and overload == "Tensor"  # its numbers lie in one tensor
            if not overload.endswith("_out") and overload != "out" and not is_packed:
                table[op] = _over_lists(function)
    return table


@functools.cache
def decompositions(same_random=False):
    ours = {overload for packet in _OURS for overload in (getattr(packet, name) for name in packet.overloads())}
    table = {op: rule for op, rule in core_aten_decompositions().items() if op not in ours}
    table.update(_of_lists())
    table[aten.lerp.Scalar] = _lerp
    table[aten.linalg_vector_norm.default] = _vector_norm
    table[aten.pow.Scalar] = _power_of_number
    if hasattr(torch.ops.prims, "fma"):  # not in torch 2.8
        table[torch.ops.prims.fma.default] = _fma
    table[aten.max_pool2d_with_indices_backward.default] = _without_indices
    table[aten.native_batch_norm_backward.default] = _batch_norm_backward
    if same_random:
        random = torch.Tag.nondeterministic_seeded
        table = {op: rule for op, rule in table.items() if random not in getattr(op, "tags", ())}
        if knows_generator():
            table[aten.native_dropout.default] = _same_dropout
            table[aten.bernoulli.p] = _same_bernoulli
        return table
    table[aten.native_dropout.default] = _native_dropout
    table[aten.bernoulli.p] = _bernoulli
    return table
