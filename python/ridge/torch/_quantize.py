# mypy: ignore-errors
"""Layers of inference that multiply bytes: calibration, and a copy of a module that has such layers.

A layer's input is rounded to u8 by one scale and zero point, its weights to i8 by a scale for each output
channel; sums are exact, and the result is f32 again:

    q = clamp(round(x / scale) + zero, 0, 255)
    y = f32(sum of (q - zero) * weight) * (scale * weight_scale) + bias
"""

import copy
import math

import torch
import torch.nn.functional as F

from ._operators import _library

_KEPT = 1 << 14  # elements of an input that one call keeps
_SHARES = torch.linspace(0.4, 1.0, 25)  # of the range, from which the one with the least error is taken
_LEAST_DB = 15  # a layer whose result is noisier stays in f32
_LEAST_DEPTH = 32  # products of fewer terms cost what rounding their input does

_library.define(
    "quantized_linear(Tensor x, Tensor weight, Tensor weight_scale, Tensor? bias, float scale, int zero) -> Tensor"
)
_library.define(
    "quantized_conv2d(Tensor x, Tensor weight, Tensor weight_scale, Tensor? bias, float scale, int zero, "
    "int[2] stride, int[2] padding, int[2] dilation, int groups) -> Tensor"
)


def _rounded(x, scale, zero):
    return torch.clamp(torch.round(x / scale) + zero, 0, 255)


def _scaled(sums, scale, weight_scale, bias, shape):
    y = sums.float() * (torch.tensor(scale, dtype=torch.float32) * weight_scale).view(shape)
    return y if bias is None else y + bias.view(shape)


# Sums of a few thousand products of bytes are whole numbers that f64 holds.
def _linear(x, weight, weight_scale, bias, scale, zero):
    sums = F.linear((_rounded(x, scale, zero) - zero).double(), weight.double())
    return _scaled(sums, scale, weight_scale, bias, (-1,))


def _conv2d(x, weight, weight_scale, bias, scale, zero, stride, padding, dilation, groups):
    q = (_rounded(x, scale, zero) - zero).double()
    sums = F.conv2d(q, weight.double(), None, stride, padding, dilation, groups)
    return _scaled(sums, scale, weight_scale, bias, (-1, 1, 1))


def _linear_meta(x, weight, weight_scale, bias, scale, zero):
    return F.linear(x, weight.to(x.dtype))


def _conv2d_meta(x, weight, weight_scale, bias, scale, zero, stride, padding, dilation, groups):
    return F.conv2d(x, weight.to(x.dtype), None, stride, padding, dilation, groups)


for _name, _eager, _meta in (
    ("quantized_linear", _linear, _linear_meta),
    ("quantized_conv2d", _conv2d, _conv2d_meta),
):
    _library.impl(_name, _eager, "CompositeExplicitAutograd")
    torch.library.register_fake(f"ridge::{_name}", _meta, lib=_library)


class _Range:
    """The scale and zero point of numbers as u8."""

    def __init__(self, least, most):
        least, most = min(least, 0.0), max(most, 0.0)  # zero is a number of its own
        width = most - least
        self.scale = width / 255 if width > 0 else 1.0
        self.zero = int(min(max(round(-least / self.scale), 0), 255))

    def error(self, values):
        rounded = (_rounded(values, self.scale, self.zero) - self.zero) * self.scale
        return float((rounded - values).double().square().mean())


class _Seen:
    """The inputs of a layer: their ends, some of their elements, and one sample."""

    def __init__(self):
        self.least, self.most, self.values, self.sample, self.why = math.inf, -math.inf, [], None, ""

    def take(self, x):
        if not isinstance(x, torch.Tensor) or x.dtype != torch.float32 or x.numel() == 0:
            self.why = self.why or "its input is no tensor of float32"
            return
        x = x.detach()
        least, most = (float(end) for end in torch.aminmax(x))
        if not math.isfinite(least) or not math.isfinite(most):
            self.why = self.why or "its input is not finite"
            return
        self.least, self.most = min(self.least, least), max(self.most, most)
        self.values.append(x.flatten()[:: max(1, x.numel() // _KEPT)].clone())
        if self.sample is None:
            self.sample = x[:1].clone()

    def range(self):
        """That with the least squared error, of some: first the upper end is drawn in, then the lower one."""
        values = torch.cat(self.values)

        def error(ends):
            return _Range(*ends).error(values)

        _, most = min(((self.least, self.most * share) for share in _SHARES.tolist()), key=error)
        return _Range(*min(((self.least * share, most) for share in _SHARES.tolist()), key=error))


class _Layer(torch.nn.Module):
    """A layer that was quantized."""

    def __init__(self, layer, limits):
        super().__init__()
        self.scale, self.zero = limits.scale, limits.zero
        weight = layer.weight.detach()
        most = weight.flatten(1).abs().amax(1)
        scale = torch.where(most > 0, most / 127, torch.ones_like(most))
        shape = (-1,) + (1,) * (weight.ndim - 1)
        self.register_buffer("weight", torch.round(weight / scale.view(shape)).clamp(-127, 127).to(torch.int8))
        self.register_buffer("weight_scale", scale)
        self.register_buffer("bias", None if layer.bias is None else layer.bias.detach())


class QuantizedLinear(_Layer):
    def forward(self, x):
        return torch.ops.ridge.quantized_linear(x, self.weight, self.weight_scale, self.bias, self.scale, self.zero)


class QuantizedConv2d(_Layer):
    def __init__(self, layer, limits):
        super().__init__(layer, limits)
        self.window = (list(layer.stride), list(layer.padding), list(layer.dilation), layer.groups)

    def forward(self, x):
        return torch.ops.ridge.quantized_conv2d(
            x, self.weight, self.weight_scale, self.bias, self.scale, self.zero, *self.window
        )


def _why_not(layer):
    """Why a layer cannot multiply bytes, or would gain nothing; empty where it can."""
    weight = layer.weight
    if weight.dtype != torch.float32 or weight.device.type != "cpu":
        return "its weights are not float32 on the CPU"
    if not bool(weight.detach().isfinite().all()):
        return "its weights are not finite"
    if isinstance(layer, torch.nn.Conv2d) and (layer.padding_mode != "zeros" or isinstance(layer.padding, str)):
        return "its padding is not a number of zeros"
    if weight[0].numel() < _LEAST_DEPTH:
        return f"its products have {weight[0].numel()} terms"
    return ""


_KINDS = {torch.nn.Linear: QuantizedLinear, torch.nn.Conv2d: QuantizedConv2d}


class Calibration:
    """Sees the inputs of a module's layers while it is called.

    with Calibration(model) as seen:
        for batch in batches:
            model(batch)
    fast = torch.compile(seen.quantized(), backend="ridge")
    """

    def __init__(self, module):
        self.module, self.seen, self.hooks = module, {}, []
        self.left = {}  # names of layers that stay in f32, and why

    def __enter__(self):
        for name, layer in self.module.named_modules():
            if type(layer) not in _KINDS:
                continue
            why = _why_not(layer)
            if why:
                self.left[name] = why
                continue
            seen = self.seen[name] = _Seen()
            self.hooks.append(layer.register_forward_pre_hook(lambda _, args, seen=seen: seen.take(args[0])))
        return self

    def __exit__(self, *_):
        for hook in self.hooks:
            hook.remove()
        self.hooks = []

    def quantized(self):
        """A copy for inference, the layers of which multiply bytes. The module itself is not changed. ValueError
        where no layer can."""
        made = {}
        with torch.no_grad():
            for name, seen in self.seen.items():
                layer = self.module.get_submodule(name)
                why = seen.why or ("" if seen.values else "it was not called")
                if not why:
                    made[name] = _KINDS[type(layer)](layer, seen.range())
                    noise = _decibels(layer(seen.sample), made[name](seen.sample))
                    why = "" if noise >= _LEAST_DB else f"its result is {noise:.0f} dB above the noise"
                if why:
                    self.left[name] = why
                    made.pop(name, None)
        if not made:
            reasons = "; ".join(f"{name or 'the module'}: {why}" for name, why in list(self.left.items())[:3])
            raise ValueError(f"no layer of {type(self.module).__name__} can multiply bytes: {reasons or 'it has none'}")
        if "" in made:
            return made[""].eval()
        known = {id(self.module.get_submodule(name)): layer for name, layer in made.items()}
        return copy.deepcopy(self.module, known).eval()

    def told(self):
        count = len(self.seen) - sum(name in self.left for name in self.seen)
        text = "1 layer multiplies bytes" if count == 1 else f"{count} layers multiply bytes"
        if self.left:
            some = ", ".join(f"{name} ({why})" for name, why in list(self.left.items())[:3])
            text += f"; in f32 stay {some}" + (f" and {len(self.left) - 3} more" if len(self.left) > 3 else "")
        return text


def _decibels(exact, rounded):
    error = float((rounded - exact).double().square().mean())
    signal = float(exact.double().square().mean())
    return math.inf if error == 0 else -math.inf if signal == 0 else 10 * math.log10(signal / error)


def quantize(module, batches):
    """A copy of `module` for inference on the CPU whose linear layers and convolutions multiply bytes: inputs as u8
    with a scale for each layer, weights as i8 with a scale for each channel, sums exact. `batches` are inputs to
    calibrate with, each a tensor or a tuple of arguments: a few that stand for what will come. Layers that would
    lose too much stay as they are. Compile the copy by torch.compile(..., backend="ridge"). ValueError where no
    layer can."""
    mode = module.training
    module.eval()
    try:
        with torch.no_grad(), Calibration(module) as seen:
            for batch in batches:
                module(*batch) if isinstance(batch, tuple) else module(batch)
        return seen.quantized()
    finally:
        module.train(mode)
