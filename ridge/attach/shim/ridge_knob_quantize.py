"""The knob that lets layers of a model multiply bytes where nobody trains it."""
import importlib
import sys

from ridge_knobs import offer, refusal
from ridge_models import RIDGE, ModelKnob, call_of, device_of, why_no_ridge

CALLS = 4  # that ranges are taken from
FLAGS = {"avx512_vnni", "avx_vnni", "amx_int8"}


def cpu_multiplies_bytes():
    try:
        with open("/proc/cpuinfo") as file:
            text = file.read(1 << 16)
    except OSError:
        return False
    flags = next((line for line in text.splitlines() if line.startswith("flags")), "")
    return bool(FLAGS & set(flags.split()))


class Layers:
    """A model whose first calls show the ranges of its layers' inputs, and whose later ones are those of
    a copy that multiplies bytes."""

    def __init__(self, knob, module, site):
        self.knob, self.module, self.site = knob, module, site
        self.torch = sys.modules["torch"]
        self.calls, self.seen, self.fast, self.weights = 0, None, None, None

    def around(self, call):
        def run(*args, **kwargs):
            if not self.may_multiply():
                return call(*args, **kwargs)
            if self.fast is not None:
                return self.fast(*args, **kwargs)
            if self.seen is None:
                module = importlib.import_module("ridge.torch._quantize")
                self.seen = module.Calibration(self.module).__enter__()
                self.weights = self.versions()
            result = call(*args, **kwargs)
            self.calls += 1
            if self.calls == CALLS:
                self.quantize()
            return result

        return run

    def may_multiply(self):
        torch = self.torch
        if self.knob.state == "refused" or not self.knob.shim.on or torch.compiler.is_compiling():
            return False
        if torch.is_grad_enabled() or self.module.training:
            return False
        if self.weights is not None and self.weights != self.versions():
            self.end("the program changes the weights of %s" % type(self.module).__name__)
            return False
        return True

    def versions(self):
        try:
            return [(id(p), p._version) for p in self.module.parameters()]
        except RuntimeError:  # tensors of inference have none
            return [id(p) for p in self.module.parameters()]

    def quantize(self):
        torch = self.torch
        self.seen.__exit__(None, None, None)
        try:
            # A tensor that is made in inference mode could not be used out of it.
            with torch.inference_mode(False), torch.no_grad():
                copy = self.seen.quantized()
        except ValueError as error:
            return self.end(str(error))
        self.fast = torch.compile(lambda *args, **kwargs: copy(*args, **kwargs), backend=RIDGE)
        self.knob.apply(
            "%s: %s, with ranges of %d calls" % (self.knob.named(), self.seen.told(), CALLS), self.site
        )

    def end(self, why):
        if self.seen is not None:
            self.seen.__exit__(None, None, None)
        self.fast = None
        self.knob.refuse(why, self.site)


class Quantize(ModelKnob):
    key = "model.quantize"
    words = ("int8",)

    def hook_torch(self, torch):
        super().hook_torch(torch)
        if self.value not in self.words:
            self.refuse("'%s' is no dtype that layers are quantized to; it has int8" % self.value)

    @classmethod
    def refusal_of(cls, shim, module, model):
        if model.role == "trained" or model.has_gradients:
            return "%s is called with gradients, which products of bytes have not" % model.name
        if model.is_compiled:
            return "the program compiles %s itself" % model.name
        return why_no_ridge(device_of(module)) or super().refusal_of(shim, module, model)

    @classmethod
    def reason_not_to_try(cls, module):
        if cpu_multiplies_bytes():
            return ""
        return "this CPU has no products of bytes (%s)" % ", ".join(sorted(FLAGS))

    @classmethod
    def offers_of(cls, shim, module, model):
        nn = sys.modules["torch"].nn
        count = sum(type(layer) in (nn.Linear, nn.Conv2d) for layer in module.modules())
        if count == 0:
            return [refusal(cls.key, "%s has no linear layer and no convolution of pictures" % model.name)]
        return [offer(cls.key, "int8", "%d layers of %s multiply in f32" % (count, model.name))]

    def found(self, module, model):
        why = self.refusal_of(self.shim, module, model)
        if why:
            self.refuse(why, model.site)
        elif self.state != "refused":
            if model.name not in self.names:
                self.names.append(model.name)
            call_of(module).put(self.key, Layers(self, module, model.site).around)


KNOBS = [Quantize]
