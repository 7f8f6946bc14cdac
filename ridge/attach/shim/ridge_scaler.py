"""Scales the losses of a program that computes in f16 and knows nothing of it.

What torch's documentation has a program do, around its own calls: the loss is multiplied before
backward(), gradients are divided behind it, a step whose gradients are not finite is left out, and
the scale follows. Between its calls the program always has gradients of its own loss: whatever it does
with them, such as clipping or adding up those of several batches, holds as it is. The scale is a power
of two, so neither multiplying nor dividing rounds.
"""
import functools

from ridge_models import around_steps, parameters_of, the_search

# Smaller than torch's first scale: a first step that overflows is a step less.
FIRST_SCALE = 2.0**12


class Stand:
    """Stands for the optimizer before the scaler, which asks it for gradients and tells it to step."""

    def __init__(self, parameters):
        self.param_groups, self.has_stepped = [{"params": parameters}], False

    def step(self, *args, **kwargs):
        self.has_stepped = True


class Watch:
    """What the program itself does that does not go together with a scaler of ours."""

    scalers, gradients = [], []
    own = None  # our subclass of torch's scaler

    @classmethod
    def hook(cls, torch):
        kind = getattr(torch.amp, "GradScaler", None)
        if cls.own is not None or kind is None:
            return
        original_init, original_grad = kind.__init__, torch.autograd.grad

        class OwnScaler(kind):
            def __init__(self, *args, **kwargs):
                original_init(self, *args, **kwargs)

        @functools.wraps(original_init)
        def init(scaler, *args, **kwargs):
            original_init(scaler, *args, **kwargs)
            if scaler.is_enabled() and not cls.scalers:
                cls.scalers.append(True)

        @functools.wraps(original_grad)
        def grad(*args, **kwargs):
            if not cls.gradients:
                cls.gradients.append(True)
            return original_grad(*args, **kwargs)

        cls.own, kind.__init__, torch.autograd.grad = OwnScaler, init, grad


def why_not(shim, module, model):
    """Why losses of this model are not to be scaled; empty where they may be."""
    if Watch.own is None:
        return "this torch has no GradScaler for all devices"
    if Watch.scalers:
        return "the program has a GradScaler itself"
    if Watch.gradients:
        return "the program computes gradients by torch.autograd.grad"
    optimizers = the_search(shim).living_optimizers()
    if len(optimizers) > 1:
        return "several optimizers step: it is not known which losses are theirs"
    if not optimizers or not model.has_gradients:
        return ""  # nothing is trained, or not yet
    if type(optimizers[0]).__name__ == "LBFGS":
        return "a step of LBFGS computes losses itself"
    return why_not_these(module.parameters(), parameters_of(optimizers[0]), model.name)


def why_not_these(parameters, optimized, name):
    held = {id(parameter) for parameter in optimized}
    for parameter in parameters:
        if not parameter.requires_grad:
            continue
        if id(parameter) not in held:
            return "parameters of %s that no optimizer has get gradients" % name
        hooks = getattr(parameter, "_post_accumulate_grad_hooks", None)
        if parameter._backward_hooks or hooks:
            return "parameters of %s have hooks, which would see scaled gradients" % name
    return ""


class Scaling:
    """`refuse(text)` is called where the program turns out to be none for it; it is off then."""

    def __init__(self, shim, refuse):
        self.shim, self.refuse = shim, refuse
        self.is_on, self.scaler, self.device = False, None, ""
        self.is_within = False  # its own backward(), which may call others: of checkpointed layers
        self.stands, self.steps, self.skipped = [], 0, 0

    def begin(self, device):
        self.is_on, self.device = True, device

    def end(self, why):
        self.is_on, self.stands = False, []
        self.refuse(why)

    # ---- where it is put into torch ----

    def hook_torch(self, torch):
        Watch.hook(torch)
        original = torch.autograd.backward  # Tensor.backward calls it, too

        @functools.wraps(original)
        def backward(tensors, *args, **kwargs):
            if not self.may_scale(torch, args, kwargs):
                return original(tensors, *args, **kwargs)
            return self.backward(torch, original, tensors, args, kwargs)

        torch.autograd.backward = backward

    def hook_optimizer(self, module):
        def run(optimizer, step, args, kwargs):
            if not self.is_on or not self.shim.on:
                return step(optimizer, *args, **kwargs)
            if (args[0] if args else kwargs.get("closure")) is not None:
                self.end("a step of %s computes losses itself" % type(optimizer).__name__)
            if not self.stands or self.may_step():
                return step(optimizer, *args, **kwargs)
            return None

        around_steps(module, run)

    # ---- what the program does ----

    def optimizers(self):
        return the_search(self.shim).living_optimizers()

    def may_scale(self, torch, args, kwargs):
        if not self.is_on or self.is_within or not self.shim.on:
            return False
        if torch.compiler.is_compiling():
            return False
        if Watch.scalers:
            self.end("the program has a GradScaler itself")
        elif Watch.gradients:
            self.end("the program computes gradients by torch.autograd.grad")
        elif kwargs.get("create_graph") or len(args) > 2 and args[2]:
            self.end("the program computes gradients of gradients")
        return self.is_on and len(self.optimizers()) == 1

    def backward(self, torch, original, tensors, args, kwargs):
        if self.scaler is None:
            self.scaler = Watch.own(self.device, init_scale=FIRST_SCALE)
        parameters = parameters_of(self.optimizers()[0])
        losses = tensors if isinstance(tensors, torch.Tensor) else list(tensors)
        scaled = self.scaler.scale(losses)
        present = [p.grad for p in parameters if p.grad is not None]
        if present:
            # Gradients that are added up have to be of the same scale meanwhile.
            factor = self.scaler.scale(torch.ones((), device=present[0].device))
            with torch.no_grad():
                for gradient in present:
                    gradient.mul_(factor.to(gradient.device))
        self.is_within = True
        try:
            result = original(scaled, *args, **kwargs)
        finally:
            self.is_within = False
        parameters = [p for p in parameters if p.grad is not None]
        if parameters:
            stand = Stand(parameters)
            self.scaler.unscale_(stand)
            self.stands.append(stand)
        return result

    def may_step(self):
        """Whether all gradients since the last step are finite. The scale follows."""
        stands, self.stands = self.stands, []
        for stand in stands:
            self.scaler.step(stand)
        self.scaler.update()
        is_finite = all(stand.has_stepped for stand in stands)
        self.steps += 1
        self.skipped += not is_finite
        return is_finite

    def told(self):
        if not self.steps:
            return ""
        return "; losses are scaled, and %d of %d steps were left out" % (self.skipped, self.steps)
