"""How the first steps of a program move its tensors, and the data that its modules are called with.

For each parameter and each step: the update as norm and as projections on three fixed directions and
on the parameter itself, its gradient, as norm and projections, and how far the update leads along that
gradient. A buffer, such as a running mean, has an update alone. Directions are random signs that follow from the tensor's place, so that two runs
of a program project on the same. The bits of a batch are hashed in the order of its indices, however
they lie in memory.
"""
import math
import weakref

from ridge_tensors import Bits, flattened, signs_of, tensors_in

STEPS = 3  # of which updates are kept
MOST_TENSORS = 4096
MOST_MODULES = 64
MOST_INPUTS = 64  # a step
MOST_DEPTH = 8  # of what a module is called with
HASH_DIGITS = 12
DIRECTIONS = 3
CHUNK = 65521  # a prime: rows of a matrix do not all begin with the same signs
APART = 7919  # signs of a tensor begin so much later than those of the one before


class Tensor:
    """One tensor's numbers, step by step."""

    def __init__(self, name, index, tensor, is_buffer):
        self.name, self.index, self.is_buffer = name, index, is_buffer
        self.elements = tensor.numel()
        self.rows = {}  # number of a step: numbers by their names
        self.last = None  # values of a buffer when the last step ended

    def record(self, steps):
        def numbers(key, width):
            nothing = [0.0] * width
            rows = [self.rows.get(step, {}).get(key, nothing) for step in range(steps)]
            return [x if math.isfinite(x) else str(x) for row in rows for x in row]

        return {
            "name": self.name,
            "elements": self.elements,
            "is_buffer": self.is_buffer,
            "sizes": numbers("size", 1),
            "updates": numbers("update", 1),
            "update_projections": numbers("update_projections", DIRECTIONS),
            "along": numbers("along", 1),
            "gradients": numbers("gradient", 1),
            "gradient_projections": numbers("gradient_projections", DIRECTIONS),
            "along_gradients": numbers("along_gradient", 1),
        }


class Updates:
    def __init__(self, torch, complain):
        self.torch, self.complain = torch, complain
        self.step, self.is_done = 0, False
        self.tensors, self.places, self.names = [], {}, {}
        self.modules, self.held = [], []  # what is held keeps its id until the record is whole
        self.inputs, self.hashes = [], []  # of the step that goes on; of steps that ended
        self.signs = {}  # by device

    # ---- what the program does ----

    def before_call(self, module, args, kwargs):
        """From outside of all modules, before it computes."""
        try:
            self.saw_inputs(args, kwargs)
            has_room = not self.is_done and len(self.modules) < MOST_MODULES
            if has_room and all(entry() is not module for entry in self.modules):
                self.modules.append(weakref.ref(module))
                self.saw_module(module)
        except Exception as error:
            self.complain("the inputs of a module could not be read", error)

    def saw_inputs(self, args, kwargs):
        """A tensor that has a gradient was computed, and so is no part of a batch."""
        for tensor in tensors_in(self.torch, (args, kwargs), MOST_DEPTH):
            if len(self.inputs) < MOST_INPUTS and not tensor.requires_grad:
                bits = Bits()
                bits.add(self.torch, tensor)
                self.inputs.append(bits.text()[:HASH_DIGITS])

    def saw_module(self, module):
        for name, parameter in module.named_parameters():
            self.names.setdefault(id(parameter), plain(name))
            self.held.append(parameter)
        for name, buffer in module.named_buffers():
            if buffer.is_floating_point():
                tensor = self.place(buffer, plain(name), True)
                if tensor is not None:
                    tensor.last = flattened(self.torch, buffer).clone()

    def place(self, tensor, name, is_buffer):
        """Where its numbers are kept; None where there is no room."""
        found = self.places.get(id(tensor))
        if found is None and len(self.tensors) < MOST_TENSORS:
            found = Tensor(name, len(self.tensors), tensor, is_buffer)
            self.tensors.append(found)
            self.places[id(tensor)] = found
            self.held.append(tensor)
        if found is None:
            self.complain("only %d tensors have their updates recorded" % MOST_TENSORS)
        return found

    def before_step(self, optimizer):
        """What after_step() needs: the parameters as they are."""
        if self.is_done:
            return None
        try:
            parameters = [p for group in optimizer.param_groups for p in group["params"]]
            return [(p, flattened(self.torch, p).clone()) for p in parameters]
        except Exception as error:
            self.complain("parameters could not be copied", error)
            return None

    def after_step(self, copies):
        if copies is None or self.is_done:
            return
        try:
            for number, (parameter, before) in enumerate(copies):
                name = self.names.get(id(parameter), "parameter %d" % (number + 1))
                tensor = self.place(parameter, name, False)
                if tensor is not None:
                    self.saw_update(tensor, before, parameter)
        except Exception as error:
            self.complain("updates could not be read", error)

    def saw_update(self, tensor, before, parameter):
        row = tensor.rows.setdefault(self.step, {})
        after = flattened(self.torch, parameter)
        self.note_move(row, tensor, before, after)
        if parameter.grad is not None:
            gradient = flattened(self.torch, parameter.grad)
            sums = self.sums(tensor.index, gradient)
            norm = sums[3] ** 0.5
            row["gradient"], row["gradient_projections"] = [norm], sums[:3]
            row["along_gradient"] = [move_along(before, after, gradient) / norm if norm else 0.0]

    def note_move(self, row, tensor, before, after):
        sums = self.sums(tensor.index, after, before)
        size = sums[5] ** 0.5
        row["size"], row["update"], row["update_projections"] = [size], [sums[3] ** 0.5], sums[:3]
        row["along"] = [sums[4] / size if size else 0.0]

    def at_step(self):
        self.hashes.append(" ".join(self.inputs))
        self.inputs.clear()
        if self.is_done:
            return
        try:
            for tensor in self.held:
                entry = self.places.get(id(tensor))
                if entry is not None and entry.is_buffer and entry.last is not None:
                    now = flattened(self.torch, tensor)
                    self.note_move(entry.rows.setdefault(self.step, {}), entry, entry.last, now)
                    entry.last = now.clone()
        except Exception as error:
            self.complain("buffers could not be read", error)
        self.step += 1
        if self.step >= STEPS:
            self.is_done = True
            self.held, self.modules = [], []
            for entry in self.tensors:
                entry.last = None

    # ---- numbers ----

    def sums(self, index, after, before=None):
        """Three projections and the squares of the difference, its product with the values before,
        and the squares of those."""
        torch, device = self.torch, after.device
        total = torch.zeros(DIRECTIONS + 3, dtype=torch.float64, device=device)
        signs, first = self.signs_on(device), index * APART % CHUNK
        for begin in range(0, after.numel(), CHUNK):
            part = after[begin : begin + CHUNK].double()
            if before is not None:
                old = before[begin : begin + CHUNK].double()
                part = part - old
                total[4] += (part * old).sum()
                total[5] += (old * old).sum()
            total[:DIRECTIONS] += (signs[:, first : first + part.numel()] * part).sum(1)
            total[DIRECTIONS] += (part * part).sum()
        return total.tolist()

    def signs_on(self, device):
        if device not in self.signs:
            rows = [signs_of(self.torch, 2 * CHUNK, 20 + row) for row in range(DIRECTIONS)]
            self.signs[device] = self.torch.stack(rows).double().to(device)
        return self.signs[device]

    def records(self):
        steps = min(self.step, STEPS)
        return [tensor.record(steps) for tensor in self.tensors] if steps else []


def move_along(before, after, direction):
    """The product of a difference with `direction`, in f64."""
    total = 0.0
    for begin in range(0, after.numel(), CHUNK):
        part = slice(begin, begin + CHUNK)
        move = after[part].double() - before[part].double()
        total += (move * direction[part].double()).sum().item()
    return total


def plain(name):
    """Without the parts that a compiler's or a parallel wrapper puts into it."""
    return ".".join(part for part in name.split(".") if part not in ("_orig_mod", "module"))
