"""Losses without torch, computed under the real watch of them (ridge_losses.py): MODE of what is
computed between the steps.
"""
import importlib.util
import os
import sys

FOLDER = os.environ["PYTHONPATH"].split(":")[0]


def load(name):
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, os.path.join(FOLDER, name + ".py"))
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


class Tensor:
    def __init__(self, value, samples=1):
        self.value, self.shape = value, (samples, 10)

    def __float__(self):
        return float(self.value)

    def detach(self):
        return self

    def numel(self):
        return 1

    def is_floating_point(self):
        return True


class Functional:
    @staticmethod
    def nll_loss(outputs, labels=None):
        return Tensor(outputs.value)

    @staticmethod
    def cross_entropy(outputs, labels=None):
        return Functional.nll_loss(outputs)  # one loss calls another


class Model:
    """All that the shim wants of an optimizer is that it stays the same."""


def make_torch(learns):
    class Torch:
        class nn:
            functional = Functional

        is_grad_enabled = staticmethod(lambda: learns[0])

    Torch.Tensor = Tensor
    return Torch


def main():
    mode = sys.argv[1]
    learns = [True]
    shim = load("ridge_shim").Shim(FOLDER, load)
    torch = make_torch(learns)
    shim.parts[-1].hook_torch(torch)
    model = Model()
    for step in range(60 if mode == "often" else 6):
        Functional.cross_entropy(Tensor(100.0, 64))  # of training
        shim.stepped(model, "optimizer")
        if mode == "often" or (mode != "never" and step % 3 == 2):
            learns[0] = False
            # Two batches of unequal sizes: their mean is 2.
            Functional.cross_entropy(Tensor(1.0, 30))
            if mode == "infinite":
                Functional.cross_entropy(Tensor(float("inf"), 30))
            Functional.cross_entropy(Tensor(5.0, 10))
            learns[0] = True
    shim.end()


main()
