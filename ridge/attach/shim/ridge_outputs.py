"""What the calls of a program's modules give back, of one that trains none."""
from ridge_tensors import Bits, flattened, signs_of, tensors_in

MOST_DEPTH = 8  # of what a module gives back
SIGNS = 65521  # a prime: rows of outputs do not all begin with the same signs


class Outputs:
    """Of the calls so far, in order."""

    def __init__(self, torch):
        self.torch, self.signs = torch, None
        self.count, self.bits = 0, Bits()
        self.counts, self.sums, self.squares, self.projections = [], [], [], []

    def add(self, result):
        count, total, squares, projection = 0, 0.0, 0.0, 0.0
        for tensor in tensors_in(self.torch, result, MOST_DEPTH):
            self.bits.add(self.torch, tensor)
            if not tensor.is_floating_point():
                continue
            flat = flattened(self.torch, tensor)
            for begin in range(0, flat.numel(), SIGNS):
                part = flat[begin : begin + SIGNS].double()
                total += float(part.sum())
                squares += float((part * part).sum())
                projection += float((part * self.sign(part)).sum())
            count += flat.numel()
        self.count += 1
        self.counts.append(count)
        self.sums.append(total)
        self.squares.append(squares)
        self.projections.append(projection)

    def sign(self, like):
        if self.signs is None:
            self.signs = signs_of(self.torch, SIGNS, 9).double()
        if self.signs.device != like.device:
            self.signs = self.signs.to(like.device)
        return self.signs[: like.numel()]
