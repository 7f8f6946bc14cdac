"""What is read of tensors: their values in the order of the indices, a hash of their bits, random
signs of our own. Nothing of it touches the program's random numbers.
"""
import ctypes
import hashlib

AT_ONCE = 1 << 22  # elements that are copied to f64


class Bits:
    """A hash of tensors in the order of their indices, however they lie in memory."""

    def __init__(self):
        self.sum = hashlib.sha256()

    def add(self, torch, tensor):
        self.sum.update(("%s%s" % (tensor.dtype, tuple(tensor.shape))).encode())
        flat = flattened(torch, tensor).cpu()
        size = flat.numel() * flat.element_size()
        if size:
            self.sum.update((ctypes.c_char * size).from_address(flat.data_ptr()))

    def text(self):
        return self.sum.hexdigest()[:32]


def tensors_in(torch, value, depth):
    if isinstance(value, torch.Tensor):
        yield value
    elif depth > 0 and isinstance(value, dict):
        for entry in value.values():
            yield from tensors_in(torch, entry, depth - 1)
    elif depth > 0 and isinstance(value, (list, tuple)):
        for entry in value:
            yield from tensors_in(torch, entry, depth - 1)


def flattened(torch, tensor):
    """The values in the order of the indices; of a sparse tensor those that it has."""
    tensor = tensor.detach()
    if tensor.layout != torch.strided:
        tensor = tensor.coalesce().values() if tensor.is_sparse else tensor.values()
    if tensor.device.type not in ("cpu", "cuda"):
        tensor = tensor.cpu()  # not all have f64
    for resolve in ("resolve_conj", "resolve_neg"):
        tensor = getattr(tensor, resolve, lambda tensor=tensor: tensor)()
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    return tensor.contiguous().reshape(-1)


def squares_of(torch, tensor):
    flat, total = flattened(torch, tensor), 0.0
    for begin in range(0, flat.numel(), AT_ONCE):
        part = flat[begin : begin + AT_ONCE].double()
        total += float((part * part).sum())
    return total


def signs_of(torch, count, seed):
    """So many f32 numbers that are 1 or -1, on the CPU, from a generator of our own."""
    own = torch.Generator(device="cpu").manual_seed(seed)
    return 2.0 * torch.randint(0, 2, (count,), generator=own, device="cpu").float() - 1.0
