"""Reading samples of a dataset so that nothing of it is left, and what there is to know of them.

What a dataset holds is looked at through vars() alone: its properties are not ours to call.
"""
import collections
import functools
import io
import os
import random
import socket
import struct
import sys
import time
import warnings

MOST_DEPTH = 6
MOST_ENTRIES = 20  # of one container
MOST_OBJECTS = 3000
SOME_NUMBERS = 64  # of an array
READ_SAMPLES = 16
READ_SECONDS = 2.0
# Of these packages objects hold files or connections, which processes that were forked would share.
HANDLES = ("h5py", "lmdb", "sqlite3", "_sqlite3", "tables", "netCDF4", "psycopg2", "pymysql", "cv2")
# Functions of these packages draw from the common sources, which RandomStates reads anyway.
LIBRARIES = ("builtins", "torch", "numpy", "collections", "functools", "random")
MOST_FUNCTIONS = 1000
PLAIN = (int, float, complex, str, bytes, bool, type(None))


def walk(root):
    """(path, object) of what hangs on `root`, it first: a dataset, its transforms, the datasets in
    it. Of long containers the first entries."""
    queue = collections.deque([("", root, 0)])
    seen, count = {id(root)}, 0
    while queue and count < MOST_OBJECTS:
        path, value, depth = queue.popleft()
        count += 1
        yield path, value
        if depth == MOST_DEPTH or isinstance(value, PLAIN):
            continue
        for name, entry in entries(value):
            if id(entry) not in seen or isinstance(entry, PLAIN):
                seen.add(id(entry))
                queue.append(("%s.%s" % (path, name) if path else name, entry, depth + 1))


def entries(value):
    if isinstance(value, type):
        return []
    if hasattr(value, "__func__"):
        return [("__self__", value.__self__)]
    if hasattr(value, "__code__"):
        return closed_over(value)
    if isinstance(value, dict):
        found = [(str(key)[:40], value[key]) for key in list(value)[:MOST_ENTRIES]]
    elif isinstance(value, (list, tuple)):
        found = [(str(i), entry) for i, entry in enumerate(value[:MOST_ENTRIES])]
    elif isinstance(value, functools.partial):
        found = [("func", value.func), ("args", value.args), ("keywords", value.keywords)]
    else:
        found = []
    return found + list(getattr(value, "__dict__", {}).items())


def closed_over(function):
    found = []
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
        try:
            found.append((name, cell.cell_contents))
        except ValueError:  # it has not been set yet
            pass
    return found


def functions_of(value):
    """Python functions that may run when `value` is read or called: itself, or those of its class."""
    if hasattr(value, "__code__"):
        return [value]
    kind = value if isinstance(value, type) else type(value)
    entries = [entry for each in kind.__mro__ for entry in vars(each).values()]
    functions = [getattr(entry, "__func__", entry) for entry in entries]
    return [function for function in functions if hasattr(function, "__code__")]


def names_in(code):
    names = set(code.co_names)
    for constant in code.co_consts:
        if hasattr(constant, "co_names"):
            names |= names_in(constant)
    return names


def globals_of(values):
    """Objects that functions of `values` name as globals, and functions of those in turn."""
    queue, seen, found = collections.deque(values), set(), []
    while queue and len(seen) < MOST_FUNCTIONS:
        value = queue.popleft()
        owner = value if hasattr(value, "__code__") else type(value)
        if id(owner) in seen or is_of_library(owner):
            continue
        seen.add(id(owner))
        for function in functions_of(value):
            scope = {} if is_of_library(function) else getattr(function, "__globals__", {})
            named = [scope[name] for name in names_in(function.__code__) if name in scope]
            found += named
            queue.extend(value for value in named if hasattr(value, "__code__"))
    return found


def is_of_library(function):
    return (getattr(function, "__module__", None) or "").split(".")[0] in LIBRARIES


def shared_handle(dataset):
    """What workers that are forked would share with each other: a file's offset, a connection.
    Empty where nothing was found."""
    for path, value in walk(dataset):
        kind = type(value)
        is_memory = isinstance(value, (io.BytesIO, io.StringIO))
        if isinstance(value, io.IOBase) and not is_memory:
            return "an open file (its %s)" % path
        if isinstance(value, socket.socket):
            return "a connection (its %s)" % path
        if (kind.__module__ or "").split(".")[0] in HANDLES:
            return "an open %s.%s (its %s)" % (kind.__module__, kind.__name__, path)
    return ""


def gpu_tensor(dataset, torch):
    for path, value in walk(dataset):
        if isinstance(value, torch.Tensor) and value.is_cuda:
            return path
    return ""


def file_offsets():
    """Of open files on disk, by descriptor."""
    offsets = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            path = os.readlink("/proc/self/fd/" + name)
            with open("/proc/self/fdinfo/" + name) as file:
                offset = file.readline().split()[1]
        except (OSError, IndexError):
            continue
        if path.startswith("/") and not path.startswith(("/dev/", "/proc/")):
            offsets[name] = (path, offset)
    return offsets


def moved_file(before, after):
    for name, (path, offset) in before.items():
        if name in after and after[name][0] == path and after[name][1] != offset:
            return path
    return ""


def fingerprint(dataset, torch):
    """What is seen when a dataset changes: by path the values of numbers and texts, the lengths of
    containers, the versions of tensors, and which objects the others are."""
    marks = {}
    for path, value in walk(dataset):
        if isinstance(value, PLAIN):
            marks[path] = value if value == value else "nan"
        elif isinstance(value, torch.Tensor):
            marks[path] = (id(value), getattr(value, "_version", 0))
        elif isinstance(value, (dict, list, tuple, set)):
            marks[path] = (id(value), len(value))
        elif hasattr(value, "nbytes") and hasattr(value, "ravel"):
            marks[path] = (id(value), some_bytes(value))
        else:
            marks[path] = id(value)
    return marks


def some_bytes(array):
    """Of an array of numpy, of numbers."""
    if array.dtype.hasobject or array.size == 0:
        return array.shape
    step = max(1, array.size // SOME_NUMBERS)
    return array.shape, array.flat[::step].tobytes()


def changed(before, after):
    """The first path at which two fingerprints differ; empty where they are the same."""
    for path, mark in after.items():
        if before.get(path, "missing") != mark:
            return path or "itself"
    return next((path for path in before if path not in after), "")


class RandomStates:
    """Where all sources of random numbers are that a dataset may draw from, its own included;
    `with_device`: that of the GPU, too."""

    def __init__(self, torch, *roots, with_device=True):
        self.torch, self.numpy = torch, sys.modules.get("numpy")
        self.with_device = with_device
        values = [value for root in roots for _, value in walk(root)]
        objects = [value for value in values if not isinstance(value, PLAIN)]
        own = {id(value): value for value in values + globals_of(objects) if self.is_source(value)}
        self.own = list(own.values())
        self.states = self.read()

    def is_source(self, value):
        kinds = [random.Random, self.torch.Generator]
        if self.numpy is not None:
            kinds += [self.numpy.random.Generator, self.numpy.random.RandomState]
        return isinstance(value, tuple(kinds))

    def state_of(self, source):
        if hasattr(source, "bit_generator"):
            return repr(source.bit_generator.state), source.bit_generator.state
        if isinstance(source, self.torch.Generator):
            state = source.get_state()
            return state.numpy().tobytes(), state
        state = source.getstate() if hasattr(source, "getstate") else source.get_state()
        return repr(state) if isinstance(state, dict) else self.bytes_of(state), state

    @staticmethod
    def bytes_of(state):
        return tuple(part.tobytes() if hasattr(part, "tobytes") else part for part in state)

    def read(self):
        torch = self.torch
        states = [("random", (random.getstate(),) * 2)]
        if self.numpy is not None:
            state = self.numpy.random.get_state()
            states.append(("numpy.random", (self.bytes_of(state), state)))
        state = torch.get_rng_state()
        states.append(("torch", (state.numpy().tobytes(), state)))
        if self.with_device and torch.cuda.is_initialized():
            state = torch.cuda.get_rng_state()
            states.append(("torch.cuda", (state.numpy().tobytes(), state)))
        for source in self.own:
            states.append(("a generator of its own", self.state_of(source)))
        return states

    def moved(self, now=None, since=None):
        """The source that was drawn from since: between two results of read(), where they are given."""
        for (name, (was, _)), (_, (is_now, _)) in zip(since or self.states, now or self.read()):
            if was != is_now:
                return name
        return ""

    def restore(self, states=None, but=()):
        """`states`: a result of read(); `but`: generators of its own that stay where they are."""
        restorers = {
            "random": random.setstate,
            "numpy.random": lambda state: self.numpy.random.set_state(state),
            "torch": self.torch.set_rng_state,
            "torch.cuda": self.torch.cuda.set_rng_state,
        }
        own = iter(self.own)
        for name, (_, state) in states or self.states:
            if name in restorers:
                restorers[name](state)
                continue
            source = next(own)
            if any(source is one for one in but):
                continue
            if hasattr(source, "bit_generator"):
                source.bit_generator.state = state
            else:
                getattr(source, "setstate", getattr(source, "set_state", None))(state)


# ---- samplers ----


def samplers(loader):
    """The one that is asked for indices, and those within it."""
    # A sampler may have no length, and so no truth.
    found = [loader.sampler if loader.batch_sampler is None else loader.batch_sampler]
    while len(found) < 5:
        names = ("batch_sampler", "sampler")
        inner = [getattr(found[-1], name, None) for name in names]
        inner = [sampler for sampler in inner if sampler is not None]
        if not inner:
            break
        found.append(inner[0])
    return found


def is_of_torch(kind):
    """Whether torch, or Python itself, has this class of samplers."""
    return issubclass(kind, (list, tuple, range)) or (kind.__module__ or "").split(".")[0] == "torch"


# ---- values ----


def tensor_bits(tensor, torch):
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8).cpu().numpy().tobytes()


def same(one, other, torch, with_layout=False):
    """Whether two samples or batches are of the same types and bits. What it does not know how to
    compare is not the same."""
    if type(one) is not type(other):
        return False
    if isinstance(one, torch.Tensor):
        traits = ("dtype", "shape", "device", "requires_grad", "layout")
        if any(getattr(one, trait) != getattr(other, trait) for trait in traits):
            return False
        if one.layout != torch.strided or with_layout and one.stride() != other.stride():
            return False
        return tensor_bits(one, torch) == tensor_bits(other, torch)
    if isinstance(one, float):
        return struct.pack("d", one) == struct.pack("d", other)
    if isinstance(one, PLAIN):
        return one == other
    if isinstance(one, dict):
        return list(one) == list(other) and all(
            same(one[key], other[key], torch, with_layout) for key in one
        )
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(
            same(a, b, torch, with_layout) for a, b in zip(one, other)
        )
    return same_object(one, other, torch)


def same_object(one, other, torch):
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(one, (numpy.ndarray, numpy.generic)):
        if one.dtype.hasobject or one.dtype != other.dtype or one.shape != other.shape:
            return False
        return one.tobytes() == other.tobytes()
    if hasattr(one, "tobytes") and hasattr(one, "size") and hasattr(one, "mode"):  # of PIL
        return (one.size, one.mode, one.tobytes()) == (other.size, other.mode, other.tobytes())
    if getattr(one, "__dict__", None):
        return same(vars(one), vars(other), torch)
    return False


def bytes_of(value, torch):
    """That a sample or batch takes in memory, about."""
    if isinstance(value, torch.Tensor):
        return value.numel() * value.element_size()
    if isinstance(value, dict):
        return sum(bytes_of(entry, torch) for entry in value.values())
    if isinstance(value, (list, tuple)):
        return sum(bytes_of(entry, torch) for entry in value)
    if hasattr(value, "nbytes"):
        return int(value.nbytes)
    return len(value) if isinstance(value, (str, bytes)) else 8


def read_samples(dataset, indices):
    """As a loader does."""
    if getattr(dataset, "__getitems__", None):
        return dataset.__getitems__(list(indices))
    return [dataset[index] for index in indices]


class Reading:
    """A few samples of a map-style dataset, and the batch of them, read twice."""

    def __init__(self, loader, torch):
        self.loader, self.dataset, self.torch = loader, loader.dataset, torch
        self.drawn = self.mutated = self.moved = ""
        self.is_same, self.count = True, len(self.dataset)
        self.seconds = self.sample_bytes = self.batch_bytes = 0
        self.is_on_gpu, self.is_plain = False, True
        states = RandomStates(torch, self.dataset, self.loader.collate_fn)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self.read(states)
        finally:
            states.restore()

    def read(self, states):
        # Handles that open with the first sample are not there before.
        read_samples(self.dataset, [0])
        offsets = file_offsets()
        last = self.count - 1
        wanted = sorted({last * i // READ_SAMPLES for i in range(1, READ_SAMPLES + 1)})
        first, indices, began = [], [], time.perf_counter()
        for index in wanted:
            first += read_samples(self.dataset, [index])
            indices.append(index)
            if time.perf_counter() - began > READ_SECONDS:
                break
        self.seconds = (time.perf_counter() - began) / len(indices)
        mark = fingerprint(self.dataset, self.torch)
        batch = self.loader.collate_fn(list(first))
        self.drawn = states.moved()
        self.sample_bytes = sum(bytes_of(sample, self.torch) for sample in first) / len(first)
        self.batch_bytes = bytes_of(batch, self.torch) / len(first)
        # The other way round: what was read before shows where it matters.
        states.restore()
        second = [read_samples(self.dataset, [index])[0] for index in reversed(indices)][::-1]
        self.is_same = not self.drawn and same(first, second, self.torch)
        self.is_same = self.is_same and same(batch, self.loader.collate_fn(second), self.torch)
        self.mutated = changed(mark, fingerprint(self.dataset, self.torch))
        self.moved = moved_file(offsets, file_offsets())
        found = list(tensors_in(batch, self.torch))
        self.is_on_gpu = any(tensor.is_cuda for tensor in found)
        self.is_plain = all(tensor.is_contiguous() for tensor in found)


def tensors_in(value, torch):
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (dict, list, tuple)):
        for part in value.values() if isinstance(value, dict) else value:
            yield from tensors_in(part, torch)
