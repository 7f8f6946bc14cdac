"""A harmless change of a known size, for a control of the guard: parameters are moved before they are
first used, and gradients before each step, each by a fixed share of itself with a random sign.

The share is the rounding of a change's class; it is never less than a tensor's own rounding. Fewer
digits round what each layer computes, too, and the gradients that come back to it: a gradient that is
a small sum of large numbers moves by more than any share of itself. So a coarse control moves the
results of modules that have parameters, by half of the share, which is the most that rounding does.
"""
from ridge_tensors import signs_of

COARSE = 1e-4  # shares from here on are those of fewer digits
PERIOD = 32749  # a prime, and not that of the directions that updates are projected on
APART = 4099  # signs of a tensor begin so much later than those of the one before


class Nudge:
    def __init__(self, torch, size, complain):
        """`size`: the share; 0: nothing is moved."""
        self.torch, self.size, self.complain = torch, size, complain
        self.signs = {}  # by device
        self.moved, self.held = set(), []  # ids of parameters, which are held for their ids' sake
        self.places = {}  # of a module among those that were called, by id

    def move_parameters(self, module):
        if self.size:
            self.move_once(module.parameters())

    def move_gradients(self, optimizer):
        if not self.size:
            return
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        self.move_once(parameters)  # that no module has
        try:
            for number, parameter in enumerate(parameters):
                gradient = parameter.grad
                if gradient is not None:
                    is_sparse = gradient.layout != self.torch.strided
                    self.move(gradient._values() if is_sparse else gradient, number)
        except Exception as error:
            self.complain("gradients could not be moved", error)

    def move_once(self, parameters):
        try:
            for parameter in parameters:
                if id(parameter) not in self.moved:
                    self.moved.add(id(parameter))
                    self.held.append(parameter)
                    self.move(parameter, len(self.held))
        except Exception as error:
            self.complain("parameters could not be moved", error)

    def move(self, tensor, number):
        if tensor.is_floating_point() and tensor.numel() > 0:
            with self.torch.no_grad():
                tensor.mul_(self.factors(tensor, number, self.size))

    def moved_result(self, module, result):
        """What a module gives, moved where a coarse control moves it; its gradient moves alike."""
        torch = self.torch
        if self.size < COARSE or not isinstance(result, torch.Tensor):
            return result
        has_own = next(module.parameters(recurse=False), None) is not None
        if not has_own or not result.is_floating_point() or result.layout != torch.strided:
            return result
        number = self.places.setdefault(id(module), len(self.places))
        return result * self.factors(result, number, self.size / 2)

    def factors(self, tensor, number, size):
        share = max(size, self.torch.finfo(tensor.dtype).eps)
        count, signs = tensor.numel(), self.signs_on(tensor.device)
        first = number * APART % PERIOD
        repeats = -(-(first + count) // PERIOD)
        pattern = signs.repeat(repeats)[first : first + count].reshape(tensor.shape)
        return (1.0 + share * pattern).to(tensor.dtype)

    def signs_on(self, device):
        if device not in self.signs:
            self.signs[device] = signs_of(self.torch, PERIOD, 19).to(device)
        return self.signs[device]
