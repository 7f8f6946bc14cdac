"""Watches the losses that a program computes without gradients: those of its held-out samples.

All that it computes between two steps is one evaluation, and the loss of that the mean over its samples.
"""
import functools
import threading

import ridge_shim

MOST_EVALUATIONS = 50  # the last ones are kept
LOSSES = (
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "cosine_embedding_loss",
    "cross_entropy",
    "ctc_loss",
    "gaussian_nll_loss",
    "hinge_embedding_loss",
    "huber_loss",
    "kl_div",
    "l1_loss",
    "margin_ranking_loss",
    "mse_loss",
    "multi_margin_loss",
    "multilabel_margin_loss",
    "multilabel_soft_margin_loss",
    "nll_loss",
    "poisson_nll_loss",
    "smooth_l1_loss",
    "soft_margin_loss",
    "triplet_margin_loss",
)


class Part(ridge_shim.Part):
    def __init__(self, shim):
        super().__init__(shim)
        self.torch, self.is_compiling = None, None
        self.within = threading.local()
        self.steps, self.sum, self.samples = 0, 0.0, 0
        self.evaluations, self.count = [], 0

    def hook_torch(self, torch):
        try:
            self.torch = torch
            compiler = getattr(torch, "compiler", None)
            self.is_compiling = getattr(compiler, "is_compiling", lambda: False)
            for name in LOSSES:
                if hasattr(torch.nn.functional, name):
                    self.watch(torch.nn.functional, name)
        except Exception as error:
            self.shim.trouble("held-out losses", error)

    def watch(self, functional, name):
        original, is_compiling, within = getattr(functional, name), self.is_compiling, self.within

        @functools.wraps(original)
        def loss(*args, **kwargs):
            if is_compiling():
                return original(*args, **kwargs)
            depth = getattr(within, "depth", 0)  # one loss may call another
            within.depth = depth + 1
            try:
                result = original(*args, **kwargs)
            finally:
                within.depth = depth
            if depth == 0:
                self.saw(result, args[0] if args else kwargs.get("input"))
            return result

        setattr(functional, name, loss)

    def saw(self, result, outputs):
        try:
            torch = self.torch
            if not self.shim.on or torch.is_grad_enabled() or not isinstance(result, torch.Tensor):
                return
            if result.numel() != 1 or not result.is_floating_point():
                return
            shape = getattr(outputs, "shape", ())
            samples = int(shape[0]) if len(shape) > 0 else 1
            self.sum += float(result.detach()) * samples
            self.samples += samples
        except Exception as error:
            self.shim.trouble("a held-out loss", error)

    def at_step(self, marker):
        self.close()
        self.steps += 1

    def close(self):
        if self.samples:
            self.evaluations.append(self.evaluation(False))
            del self.evaluations[:-MOST_EVALUATIONS]
            self.count += 1
        self.sum, self.samples = 0.0, 0

    def evaluation(self, is_open):
        samples = max(1, self.samples)
        # As text: JSON has no numbers that are not finite.
        loss = repr(self.sum / samples)
        return {"step": self.steps, "loss": loss, "samples": samples, "is_open": is_open}

    def facts(self):
        last = [self.evaluation(True)] if self.samples else []
        return {"evaluations": self.evaluations + last, "evaluated": self.count + len(last)}
