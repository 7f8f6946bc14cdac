"""Knobs of how a model is called: the format of its pictures, its precision, the compiler."""
import functools
import importlib
import os
import shutil
import sys
import sysconfig
import time

import ridge_scaler
from ridge_knobs import PRECISION, TABLE, offer, refusal
from ridge_models import RIDGE, ModelKnob, call_of, device_of, why_no_ridge, with_tensors

MOST_VARIANTS = 8  # that torch compiles of one function before it gives up


def counted(number, what):
    return "%d %s%s" % (number, what, "" if number == 1 else "s")


def torch_of():
    return sys.modules["torch"]


# ---- channels last ----


def convolutions(module):
    """Of pictures, and of volumes."""
    nn = torch_of().nn
    flat = [m for m in module.modules() if isinstance(m, (nn.Conv2d, nn.ConvTranspose2d))]
    deep = [m for m in module.modules() if isinstance(m, (nn.Conv3d, nn.ConvTranspose3d))]
    return flat, deep


def in_format(tensor, memory_format):
    """The tensor with its channels innermost in memory."""
    tensor = tensor.contiguous(memory_format=memory_format)
    if tensor.shape[1] == 1 and tensor.is_contiguous():
        # With one channel both formats are the same bytes, and the strides alone tell
        # convolutions which one is meant.
        strides = list(tensor.stride())
        strides[1] = 1
        tensor = tensor.as_strided(tensor.shape, strides)
    return tensor


def keep_dropout_masks(torch):
    """Dropout draws its numbers in the order of memory: with channels innermost the same numbers
    would make another mask, and so another training."""
    original = torch.nn.functional.dropout
    if hasattr(original, "_ridge"):
        return

    @functools.wraps(original)
    def dropout(input, p=0.5, training=True, inplace=False):
        # In the order of its axes, a recomputation within backward() draws the same mask again.
        is_reordered = (
            training
            and 0 < p < 1
            and isinstance(input, torch.Tensor)
            and input.dim() in (4, 5)
            and not input.is_contiguous()
            and input.is_contiguous(
                memory_format=torch.channels_last if input.dim() == 4 else torch.channels_last_3d
            )
        )
        if not is_reordered:
            return original(input, p, training, inplace)
        mask = original(torch.ones(input.shape, dtype=input.dtype, device=input.device), p, True)
        return input.mul_(mask) if inplace else input * mask

    dropout._ridge = True
    torch.nn.functional.dropout = dropout


class ChannelsLast(ModelKnob):
    """Inputs are converted at each call, and what is computed from them follows. Weights stay as
    they are where they are trained: the optimizer's state, gradients and checkpoints keep their
    format. Those that nobody trains are converted once."""

    key = "model.channels_last"

    def __init__(self, shim, value):
        super().__init__(shim, value)
        self.weights, self.count = {}, 0  # that were converted

    @classmethod
    def refusal_of(cls, shim, module, model):
        flat, deep = convolutions(module)
        if not flat and not deep:
            return "%s has no convolutions of pictures" % model.name
        if flat and deep:
            return "%s has convolutions of pictures and of volumes" % model.name
        if (4 if flat else 5) not in model.dims:
            return "%s is not called with a batch of pictures" % model.name
        return super().refusal_of(shim, module, model)

    @classmethod
    def offers_of(cls, shim, module, model):
        flat, deep = convolutions(module)
        text = "%s in %s, in NCHW" % (counted(len(flat or deep), "convolution"), model.name)
        return [offer(cls.key, True, text)]

    def put(self, module, model):
        torch = torch_of()
        flat, deep = convolutions(module)
        memory_format = torch.channels_last if flat else torch.channels_last_3d
        dim = 4 if flat else 5
        held = {id(p) for parameters in self.search.held() for p in parameters}
        is_trained = model.role == "trained" or model.has_gradients
        for convolution in flat or deep:
            weight = convolution.weight
            if id(weight) not in held and not (weight.requires_grad and is_trained):
                self.convert(weight, memory_format)

        def change(tensor):
            is_one = tensor.dim() == dim and tensor.layout == torch.strided
            return in_format(tensor, memory_format) if is_one else tensor

        def around(call):
            def run(*args, **kwargs):
                args = with_tensors(args, torch, change)
                return call(*args, **with_tensors(kwargs, torch, change))

            return run

        call_of(module).put(self.key, around)
        keep_dropout_masks(torch)
        text = "the inputs of %s come with channels last" % self.named()
        if self.count:
            text += ", and %s that nobody trains" % counted(self.count, "weight")
        return text

    def convert(self, weight, memory_format):
        torch = torch_of()
        # A tensor made in inference mode could not be trained later on.
        with torch.inference_mode(weight.is_inference()), torch.no_grad():
            weight.data = weight.data.contiguous(memory_format=memory_format)
        self.weights[id(weight)] = weight
        self.count += 1

    def optimized(self, parameters):
        for parameter in parameters:
            weight = self.weights.pop(id(parameter), None)
            if weight is not None:
                weight.data = weight.data.contiguous()
                self.count -= 1


# ---- autocast ----


@functools.lru_cache(None)
def cpu_multiplies_bf16():
    try:
        with open("/proc/cpuinfo") as file:
            text = file.read(1 << 16)
    except OSError:
        return False
    for line in text.splitlines():
        name, _, flags = line.partition(":")
        if name.strip() in ("flags", "Features"):
            return bool({"avx512_bf16", "amx_bf16", "bf16"} & set(flags.split()))
    return False


def is_autocast_on(torch):
    on_cpu = getattr(torch, "is_autocast_cpu_enabled", lambda: False)
    return torch.is_autocast_enabled() or on_cpu()


HALF = "f16"


class Autocast(ModelKnob):
    """16 bits within the model; what it returns is f32 again, so a loss outside of it is too. That of
    f16 is scaled (ridge_scaler.py)."""

    key = "model.autocast"
    uses = []  # by the program itself
    own = None  # our subclass of torch.autocast
    words = TABLE[key]["words"]

    def __init__(self, shim, value):
        super().__init__(shim, value)
        self.scaling = ridge_scaler.Scaling(shim, self.refuse) if value == HALF else None

    def hook_torch(self, torch):
        super().hook_torch(torch)
        self.watch(torch)
        if self.scaling is not None:
            self.scaling.hook_torch(torch)
        if self.value not in self.words:
            names = " and ".join(self.words)
            self.refuse("'%s' is no precision of autocast; it has %s" % (self.value, names))

    def hook_optimizer(self, module):
        if self.scaling is not None:
            self.scaling.hook_optimizer(module)

    def optimized(self, parameters):
        """One that was made late may be another one, or of other parameters."""
        for model in self.search.models if self.scaling is not None and self.scaling.is_on else ():
            module = model.ref()
            why = "" if module is None else ridge_scaler.why_not(self.shim, module, model)
            if why:
                self.scaling.end(why)
                return

    @classmethod
    def watch(cls, torch):
        ridge_scaler.Watch.hook(torch)
        if cls.own is not None:
            return
        original = torch.autocast.__enter__

        class OwnAutocast(torch.autocast):
            def __enter__(self):
                return original(self)

        @functools.wraps(original)
        def enter(context):
            if getattr(context, "_enabled", False) and not cls.uses:
                cls.uses.append(True)
            return original(context)

        cls.own, torch.autocast.__enter__ = OwnAutocast, enter

    @classmethod
    def refusal_of(cls, shim, module, model):
        torch = torch_of()
        if cls.uses or is_autocast_on(torch):
            return "the program uses autocast itself"
        kinds = {p.dtype for p in module.parameters() if p.is_floating_point()}
        if kinds != {torch.float32}:
            names = sorted(str(kind).replace("torch.", "") for kind in kinds)
            return "the parameters of %s are %s, not float32" % (model.name, " and ".join(names))
        if "DataParallel" in model.bases():
            return "threads of nn.DataParallel do not see the autocast of the thread that calls"
        return super().refusal_of(shim, module, model)

    @classmethod
    def reason_not_to_try(cls, module):
        device = device_of(module)
        if device == "cpu" and not cpu_multiplies_bf16():
            return "this CPU has no products of bf16 (avx512_bf16, amx_bf16)"
        if device == "cuda" and not cls.words_on_gpu():
            return "this GPU has no products of 16 bits: they came with compute capability 7.0"
        return ""

    @classmethod
    def words_on_gpu(cls):
        """bf16 comes first where the GPU has both: it needs no scale."""
        major = torch_of().cuda.get_device_capability()[0]
        return cls.words if major >= 8 else [HALF] if major == 7 else []

    @classmethod
    def words_for(cls, shim, module, model):
        """Those to be offered, and why f16 is not where it could be."""
        words = cls.words_on_gpu() if device_of(module) == "cuda" else ["bf16"]
        why = ridge_scaler.why_not(shim, module, model) if HALF in words else ""
        return [word for word in words if word != HALF or not why], why

    @classmethod
    def offers_of(cls, shim, module, model):
        nn = torch_of().nn
        kinds = (nn.Linear, nn.modules.conv._ConvNd, nn.MultiheadAttention, nn.RNNBase)
        products = sum(isinstance(m, kinds) for m in module.modules())
        text = "%s in %s multiply in f32" % (counted(products, "layer"), model.name)
        words, why = cls.words_for(shim, module, model)
        return [offer(cls.key, word, text) for word in words] or [refusal(cls.key, why)]

    def found(self, module, model):
        if self.value not in self.words:
            return
        why = self.scaling and ridge_scaler.why_not(self.shim, module, model)
        if why:
            self.refuse(why, model.site)
        else:
            super().found(module, model)

    def put(self, module, model):
        torch, device = torch_of(), device_of(module)
        context, scaling = self.own or torch.autocast, self.scaling
        kind = torch.bfloat16 if scaling is None else torch.float16
        if scaling is not None:
            scaling.begin(device)

        def to_f32(tensor):
            return tensor.float() if tensor.dtype == kind else tensor

        def around(call):
            def run(*args, **kwargs):
                if scaling is not None and not scaling.is_on:
                    return call(*args, **kwargs)
                with context(device_type=device, dtype=kind):
                    result = call(*args, **kwargs)
                return with_tensors(result, torch, to_f32, is_result=True)

            return run

        call_of(module).put(self.key, around)
        return "%s: products in %s, results in f32" % (self.named(), self.value)

    def fact(self):
        fact = super().fact()
        if self.scaling is not None and self.state == "applied":
            fact["text"] += self.scaling.told()
        return fact


# ---- the compiler ----


def why_no_compiler(device):
    """What torch.compile needs and this machine has not."""
    if device == "cpu":
        name = os.environ.get("CXX") or "g++"
        if shutil.which(name) is None:
            return "torch.compile needs a C++ compiler, and %s is not installed" % name
        header = os.path.join(sysconfig.get_paths()["include"], "Python.h")
        if not os.path.exists(header):
            return "torch.compile needs the headers of Python, and there is no %s" % header
    elif device == "cuda":
        import importlib.util

        if importlib.util.find_spec("triton") is None:
            return "torch.compile needs triton, which is not installed"
    return ""


def compiler_numbers():
    """Functions compiled, breaks within them, seconds: of this process so far."""
    utils = sys.modules.get("torch._dynamo.utils")
    if utils is None:
        return 0, 0, 0.0
    counters = utils.counters
    breaks = sum(list(counters["graph_break"].values()))
    times = getattr(utils, "compilation_time_metrics", {})
    seconds = 0.0
    for name in ("_compile.compile_inner", "_compile", "entire_frame_compile"):
        if times.get(name):
            seconds = sum(list(times[name]))
            break
    # Of gradients whose shapes were not known before the first ones were computed.
    seconds += sum(list(times.get("backward._backward_impl", ())))
    return counters["frames"]["ok"], breaks, seconds


def is_captured():
    """Whether `ridge capture` wants the graphs: also those of a model that the program compiles."""
    return bool(os.environ.get("RIDGE_TORCH_CAPTURE"))


def layers_of(module):
    """What a compiler is given. Before torch 2.12 it leaves a module of torch's own classes alone, and
    compiles what calls one."""
    if not type(module).__module__.startswith("torch.nn."):
        return module._call_impl

    def call(*args, **kwargs):
        return module._call_impl(*args, **kwargs)

    return call


class Compile(ModelKnob):
    key = "model.compile"
    modes = [word for word in TABLE[key]["words"] if word != RIDGE]

    def __init__(self, shim, value):
        super().__init__(shim, value)
        self.before, self.own_seconds = None, 0.0

    def hook_torch(self, torch):
        super().hook_torch(torch)
        if self.value == RIDGE:
            if why_no_ridge():
                self.refuse(why_no_ridge())
        elif self.value not in self.modes:
            self.refuse("'%s' is no mode of torch.compile" % self.value)

    @classmethod
    def refusal_of(cls, shim, module, model):
        torch, bases = torch_of(), model.bases()
        if model.is_compiled:
            return "the program compiles %s itself" % model.name
        if isinstance(module, torch.jit.ScriptModule) or "GraphModule" in bases:
            return "%s is a graph already" % model.name
        if "DataParallel" in bases:
            return "nn.DataParallel copies the model at each call"
        return super().refusal_of(shim, module, model)

    @classmethod
    def values_for(cls, device):
        values = [] if why_no_ridge(device) else [RIDGE]
        if not why_no_compiler(device):
            values += cls.modes if device == "cuda" else cls.modes[:1]
        return values

    @classmethod
    def reason_not_to_try(cls, module):
        device = device_of(module)
        return "" if cls.values_for(device) else why_no_compiler(device)

    @classmethod
    def offers_of(cls, shim, module, model):
        layers = sum(not list(m.children()) for m in module.modules())
        text = "%s of %s, called from Python" % (counted(layers, "layer"), model.name)
        # Under autocast the compiler chooses where numbers are rounded to 16 bits.
        kind = PRECISION if Autocast.uses or is_autocast_on(torch_of()) else None
        return [offer(cls.key, value, text, kind) for value in cls.values_for(device_of(module))]

    def found(self, module, model):
        if self.value != RIDGE and self.value not in self.modes:
            return
        why, device = "", device_of(module)
        if not is_captured():
            why = self.refusal_of(self.shim, module, model)
        why = why or (why_no_ridge(device) if self.value == RIDGE else why_no_compiler(device))
        if why:
            self.refuse(why, model.site)
        else:
            super().found(module, model)

    def put(self, module, model):
        torch, start = torch_of(), time.perf_counter()
        compiled = self.compiled(torch, module)
        self.before = self.before or compiler_numbers()
        self.own_seconds += time.perf_counter() - start
        call_of(module).put(self.key, lambda _: compiled)
        return ""

    def compiled(self, torch, module):
        """As module.compile() has it, so that the names of parameters stay."""
        if self.value == RIDGE:
            importlib.import_module("ridge.torch")  # the backend is known from then on
            options = None if is_captured() else {"same_random": True}
            return torch.compile(layers_of(module), backend=RIDGE, options=options)
        options = {}
        if self.value != "default":
            options.update(torch._inductor.list_mode_options(self.value))
        # Dropout then draws the numbers that it draws without a compiler.
        options["fallback_random"] = True
        return torch.compile(layers_of(module), options=options)

    def fact(self):
        if self.state == "applied":
            functions, breaks, seconds = (
                now - then for now, then in zip(compiler_numbers(), self.before)
            )
            self.seconds = round(self.own_seconds + seconds, 3)
            self.text = "%s: %s compiled" % (self.named(), counted(functions, "function"))
            if breaks:
                self.text += ", cut at %s" % counted(breaks, "place")
            if functions - breaks > MOST_VARIANTS * len(self.names):
                self.text += "; shapes or settings change so often that torch gives up"
        return super().fact()


KNOBS = [ChannelsLast, Autocast, Compile]


def watch_torch(shim, torch):
    if os.environ.get("RIDGE_SHIM_PROBE"):
        Autocast.watch(torch)
