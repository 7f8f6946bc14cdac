"""What the programs of the guard's tests share: GUARD_CHANGE names what is changed in them."""
import os

import torch

CHANGE = os.environ.get("GUARD_CHANGE", "")


def changed(model, optimizer=None):
    """As a program is changed from outside: by a forward of another precision or layout."""
    if CHANGE == "bf16":
        inner = model.forward

        def forward(*args):
            with torch.autocast("cpu", torch.bfloat16):
                result = inner(*args)
            return result.float()

        model.forward = forward
    if CHANGE == "channels_last":
        model.to(memory_format=torch.channels_last)
    if CHANGE == "compile":
        model.compile(backend="aot_eager")
    if optimizer is not None:
        for group in optimizer.param_groups:
            if CHANGE == "foreach":
                group["foreach"] = True
            if CHANGE == "rate":
                group["lr"] *= 20
    return model


def wrong(loss, step):
    """Breaks that a guard has to see."""
    if CHANGE == "nan" and step == 7:
        return loss * float("nan")
    if CHANGE == "end" and step == 7:
        raise SystemExit(0)
    if CHANGE == "gradients":
        return loss.detach() + (loss - loss.detach()) * 1.5
    return loss
