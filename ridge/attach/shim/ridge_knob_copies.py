"""The knob that copies batches to the GPU on a stream of its own, while the last step is computed.

The program gets the batch that its loader made. The copy is handed over where the program asks for one,
by .to() or .cuda(): so whatever else it does with the batch, on the CPU, holds as it is. A batch that
it has changed since is copied anew, as without us.
"""
import functools
import sys
import threading
import weakref

import ridge_samples
from ridge_knob_loader import LoaderKnob, findings, order_trouble
from ridge_knobs import offer, refusal
from ridge_loaders import the_loaders

SURE = 5  # batches that were moved whole, in a probing run


class Cuda:
    """All that is asked of a device; tests have one of their own."""

    def __init__(self, torch):
        self.torch, self.cuda = torch, torch.cuda
        self.original = torch.Tensor.to

    def is_there(self):
        return self.cuda.is_available() and self.cuda.is_initialized()

    def device(self):
        return self.torch.device("cuda", self.cuda.current_device())

    def is_here(self, device):
        """Whether it is the device that copies go to."""
        here = self.device()
        index = here.index if device.index is None else device.index
        return device.type == here.type and index == here.index

    def stream(self):
        return self.cuda.Stream()

    def copy(self, tensor, stream):
        """(copy, whether it is read from the tensor itself), on the stream."""
        is_pinned = tensor.is_pinned()
        source = tensor if is_pinned else tensor.pin_memory()
        with self.cuda.stream(stream):
            return self.original(source, self.device(), non_blocking=True), is_pinned

    def hand_over(self, copy, stream, waits):
        """What is computed from now on waits for the copy; `waits`: this thread, too."""
        current = self.cuda.current_stream()
        current.wait_stream(stream)
        copy.record_stream(current)
        if waits:
            stream.synchronize()


_device = None


def the_device(torch):
    global _device
    if _device is None:
        _device = Cuda(torch)
    return _device


# ---- calls that move a tensor ----


def wanted_device(torch, args, kwargs):
    """(device, non_blocking) of a call of .to() that wants another device and nothing else."""
    if len(args) == 1 and not set(kwargs) - {"non_blocking"}:
        target = args[0]
    elif not args and set(kwargs) <= {"device", "non_blocking"}:
        target = kwargs.get("device")
    else:
        return None, False
    if isinstance(target, (str, int)) and not isinstance(target, bool):
        target = torch.device(target) if isinstance(target, str) else torch.device("cuda", target)
    is_device = isinstance(target, torch.device)
    return (target if is_device else None), bool(kwargs.get("non_blocking"))


class Moves:
    """Watches .to(), .cuda() and what could change a tensor unseen, for all that are asked."""

    def __init__(self):
        self.listeners = []

    def hook(self, torch):
        if self.listeners:
            return
        tensor = torch.Tensor
        for name in ("to", "cuda"):
            self.wrap_move(torch, tensor, name)
        for name in ("numpy", "__array__"):
            self.wrap_view(tensor, name)

    def wrap_move(self, torch, kind, name):
        original, listeners = getattr(kind, name), self.listeners

        @functools.wraps(original)
        def move(tensor, *args, **kwargs):
            for listener in listeners:
                if listener.has(tensor):
                    is_plain = name == "cuda" and not args and kwargs.get("device") is None
                    asked = (torch.device("cuda"),) if is_plain else args
                    found = listener.moved(tensor, *wanted_device(torch, asked, kwargs))
                    if found is not None:
                        return found
            return original(tensor, *args, **kwargs)

        setattr(kind, name, move)

    def wrap_view(self, kind, name):
        original, listeners = getattr(kind, name), self.listeners

        @functools.wraps(original)
        def view(tensor, *args, **kwargs):
            for listener in listeners:
                listener.drop(tensor)
            return original(tensor, *args, **kwargs)

        setattr(kind, name, view)


_moves = Moves()


def plain_tensors(batch, torch):
    tensors = ridge_samples.tensors_in(batch, torch)
    return [
        t
        for t in tensors
        if type(t) is torch.Tensor
        and t.device.type == "cpu"
        and t.layout == torch.strided
        and not t.requires_grad
        and t.numel() > 0
    ]


class Seen:
    """In a probing run: whether the program moves each of its batches whole."""

    def __init__(self):
        self.lately, self.whole, self.parts, self.has_batch = {}, 0, 0, False

    def served(self, batch, torch):
        if self.has_batch:
            self.whole += not self.lately
            self.parts += bool(self.lately)
        tensors = plain_tensors(batch, torch)
        self.has_batch = bool(tensors)
        self.lately = {id(tensor): weakref.ref(tensor) for tensor in tensors}

    def has(self, tensor):
        return id(tensor) in self.lately

    def moved(self, tensor, device, _):
        if device is not None and the_device(sys.modules["torch"]).is_here(device):
            self.lately.pop(id(tensor), None)

    def drop(self, tensor):
        pass


_seen = Seen()


# ---- copies ----


class Ahead:
    def __init__(self, tensor, copy, is_direct):
        self.tensor, self.version = weakref.ref(tensor), tensor._version
        self.copy, self.is_direct = copy, is_direct


class Copies:
    """Of the batch that was handed over last, and of one that was not yet."""

    def __init__(self, torch):
        self.torch, self.device = torch, the_device(torch)
        self.stream, self.entries, self.thread = None, {}, 0
        self.count = 0  # that the program took

    def start(self, batch):
        self.stream = self.stream or self.device.stream()
        self.thread = threading.get_ident()
        entries = {}
        for tensor in plain_tensors(batch, self.torch):
            copy, is_direct = self.device.copy(tensor, self.stream)
            entries[id(tensor)] = Ahead(tensor, copy, is_direct)
        return entries

    def has(self, tensor):
        return id(tensor) in self.entries and threading.get_ident() == self.thread

    def moved(self, tensor, device, non_blocking):
        """The copy, where the program asks for just that."""
        if device is None or not self.device.is_here(device):
            return None
        entry = self.entries.pop(id(tensor))
        if entry.tensor() is not tensor or entry.version != tensor._version:
            return None
        # The program may change what it has as soon as a copy that waits is back.
        self.device.hand_over(entry.copy, self.stream, entry.is_direct and not non_blocking)
        self.count += 1
        return entry.copy

    def drop(self, tensor):
        self.entries.pop(id(tensor), None)


class ToDevice(LoaderKnob):
    key = "loader.to_device"

    def __init__(self, shim, value):
        super().__init__(shim, value)
        self.copies = None
        self.iterators = weakref.WeakKeyDictionary()  # that it serves: what is ahead, or None

    # ---- where it is put into torch ----

    def hook_loader(self, module):
        super().hook_loader(module)
        iterator, loader = module._BaseDataLoaderIter, module.DataLoader
        original_next, original_get = iterator.__next__, loader._get_iterator

        @functools.wraps(original_get)
        def get(loader_self):
            made = original_get(loader_self)
            entry = the_loaders(self.shim).entry(loader_self)
            if entry is not None and entry.copier is self:
                self.iterators[made] = None
            return made

        @functools.wraps(original_next)
        def next_batch(iterator_self):
            if iterator_self not in self.iterators:
                return original_next(iterator_self)
            return self.serve(iterator_self, original_next)

        self.original_next = original_next
        iterator.__next__, loader._get_iterator = next_batch, get

    # ---- batches ----

    def adapt(self, entry, loader):
        torch = sys.modules["torch"]
        if not the_device(torch).is_there():
            self.refuse("the program does not use CUDA", entry.site)
        elif self.state != "refused" and entry.copier is None:
            if self.copies is None:
                self.copies = Copies(torch)
                _moves.hook(torch)
                _moves.listeners.append(self.copies)
            entry.copier = self
            self.done_for(entry, "batches of %s are copied on a stream of their own" % entry.name())

    def serve(self, iterator, original_next):
        ahead, self.iterators[iterator] = self.iterators[iterator], None
        if ahead is None:
            ahead = self.pulled(iterator, original_next)
        batch, entries, error = ahead
        if error is not None:
            raise error
        self.copies.entries = entries
        return batch

    def pulled(self, iterator, original_next):
        """(batch, copies that go on, None), or (None, None, what its loader raised)."""
        try:
            batch = original_next(iterator)
        except Exception as error:
            return None, None, error
        try:
            entries = self.copies.start(batch) if self.shim.on and self.state == "applied" else {}
        except Exception as error:
            self.fail(error)
            entries = {}
        return batch, entries, None

    def at_step(self, marker):
        """The device computes still: the next batch is fetched where a worker has it ready."""
        if self.state != "applied" or not self.shim.on:
            return
        for iterator, ahead in list(self.iterators.items()):
            if ahead is None and is_ready(iterator):
                self.iterators[iterator] = self.pulled(iterator, self.original_next)

    # ---- what is offered ----

    @classmethod
    def offers(cls, shim, marker):
        torch, found = shim.torch, findings(shim)
        why = ""
        if not the_device(torch).is_there():
            why = "the program does not use CUDA"
        elif found.loader is None:
            why = found.trouble
        elif found.reading is not None and found.reading.is_on_gpu:
            why = "its batches are made on the GPU"
        elif _seen.parts or _seen.whole < SURE:
            why = "the program does not move its batches whole, by .to() or .cuda()"
        else:
            why = order_trouble(found.loader, torch, are_workers=False)
        if why:
            return [refusal(cls.key, why)]
        return [offer(cls.key, True, "the device waits while its next batch is copied")]


def is_ready(iterator):
    """Whether the next batch of an iterator with workers lies there, and its epoch goes on."""
    queue = getattr(iterator, "_data_queue", None)
    if queue is None or iterator._shutdown or iterator._rcvd_idx >= iterator._send_idx:
        return False
    task = iterator._task_info.get(iterator._rcvd_idx, ())
    return len(task) == 2 or queue.qsize() > 0


KNOBS = [ToDevice]


def watch_loader_of_probe(shim, module):
    torch = module.torch
    if not torch.cuda.is_available() and _device is None:
        return
    _moves.hook(torch)
    _moves.listeners.append(_seen)
    iterator = module._BaseDataLoaderIter
    original = iterator.__next__

    @functools.wraps(original)
    def next_batch(iterator_self):
        batch = original(iterator_self)
        entry = getattr(iterator_self, "_ridge_entry", None)
        if entry is not None and entry.passed_rule:
            _seen.served(batch, torch)
        return batch

    iterator.__next__ = next_batch
