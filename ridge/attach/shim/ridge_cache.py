"""All samples of a dataset in memory, and batches made of them: the same bits as from the dataset.

Samples of one shape lie stacked, and a batch is one index operation a column. Others are kept one by
one, and go through the loader's own collate_fn.
"""
import copy
import os
import time
import warnings

import ridge_samples
from ridge_samples import RandomStates, bytes_of, read_samples, same

CHUNK = 256  # samples
CHECKED = 64  # samples of a batch that is compared
AGAIN = 3  # samples that are read anew in each epoch


class Unfit(Exception):
    """Why these samples cannot be served from memory."""


class Uneven(Exception):
    """They cannot be stacked."""


# ---- memory ----


def read_number(path):
    try:
        with open(path) as file:
            return int(file.read())
    except (OSError, ValueError):
        return None


def free_of_group():
    """Bytes that this process's cgroup may still take; nothing where there is no limit."""
    try:
        with open("/proc/self/cgroup") as file:
            lines = file.read().splitlines()
    except OSError:
        return None
    free = []
    for line in lines:
        number, names, path = line.split(":", 2)
        if number == "0":
            free += free_of_groups("/sys/fs/cgroup", path, "memory.max", "memory.current")
        elif "memory" in names.split(","):
            root = "/sys/fs/cgroup/memory"
            free += free_of_groups(root, path, "memory.limit_in_bytes", "memory.usage_in_bytes")
    return min(free) if free else None


def free_of_groups(root, path, limit_name, usage_name):
    """A limit of a group holds for all that are in it."""
    while True:
        folder = root + path.rstrip("/")
        limit = read_number(os.path.join(folder, limit_name))
        usage = read_number(os.path.join(folder, usage_name))
        if limit is not None and usage is not None:
            yield max(0, limit - usage)
        if path in ("", "/"):
            return
        path = os.path.dirname(path)


def available_bytes():
    available = 0
    try:
        with open("/proc/meminfo") as file:
            for line in file:
                if line.startswith("MemAvailable:"):
                    available = int(line.split()[1]) << 10
    except (OSError, ValueError, IndexError):
        pass
    free = free_of_group()
    return available if free is None else min(available, free)


def size_text(size):
    return "%.1f GB" % (size / 1e9) if size >= 1e9 else "%.1f MB" % (size / 1e6)


def check_free_memory(wanted, ranks):
    """Bytes that a cache may take: the other half of what is free is the program's own to grow into."""
    most = available_bytes() // 2 // ranks
    if wanted > most:
        raise Unfit(
            "its samples take %s, and half of the free memory is %s"
            % (size_text(wanted), size_text(most))
        )
    return most


# ---- columns: what a part of a sample becomes in a batch ----


class Tensors:
    def __init__(self, batch, count, torch):
        self.kept = torch.empty((count,) + tuple(batch.shape[1:]), dtype=batch.dtype)

    def put(self, begin, batch):
        part = self.kept[begin : begin + len(batch)]
        if part.shape != batch.shape or part.dtype != batch.dtype:
            raise Uneven
        part.copy_(batch)

    def batch(self, _, index):
        return self.kept.index_select(0, index)


class Texts:
    """Strings stay as they are; in a list or a tuple, as default_collate leaves them."""

    def __init__(self, batch, count):
        self.kind, self.kept = type(batch), [None] * count

    def put(self, begin, batch):
        self.kept[begin : begin + len(batch)] = batch

    def batch(self, indices, _):
        return self.kind([self.kept[index] for index in indices])


class Group:
    """Parts by key, or by place."""

    def __init__(self, kind, keys, parts):
        self.kind, self.keys, self.parts = kind, keys, parts

    def put(self, begin, batch):
        for key, part in zip(self.keys, self.parts):
            part.put(begin, batch[key])

    def batch(self, indices, index):
        parts = [part.batch(indices, index) for part in self.parts]
        if self.kind is dict:
            return dict(zip(self.keys, parts))
        return parts if self.kind is list else self.kind(*parts)


def column(sample, batch, count, torch):
    """Of one part of a sample and what default_collate made of some; Uneven where that is none of
    the usual."""
    if type(batch) is torch.Tensor:
        if isinstance(sample, torch.Tensor) and not sample.is_contiguous():
            raise Uneven
        return Tensors(batch, count, torch)
    if isinstance(sample, (str, bytes)) and type(batch) in (list, tuple):
        return Texts(batch, count)
    if type(sample) is dict and type(batch) is dict:
        keys = list(sample)
    elif type(sample) in (list, tuple) and type(batch) is list:
        keys = list(range(len(sample)))
    elif isinstance(sample, tuple) and hasattr(sample, "_fields") and type(batch) is type(sample):
        keys = list(range(len(sample)))
    else:
        raise Uneven
    parts = [column(sample[key], batch[key], count, torch) for key in keys]
    return Group(type(batch), keys, parts)


def shape_of(value, torch):
    """Equal for samples of which default_collate makes batches of one type."""
    kind = type(value)
    if kind is torch.Tensor:
        if value.requires_grad or value.device.type != "cpu" or value.layout != torch.strided:
            raise Uneven
        return value.dtype, value.shape, value.is_contiguous()
    if kind in (int, float, bool, str, bytes):
        return kind
    if kind is dict:
        return kind, tuple(value), tuple(shape_of(part, torch) for part in value.values())
    if kind in (list, tuple) or isinstance(value, tuple) and hasattr(value, "_fields"):
        return kind, tuple(shape_of(part, torch) for part in value)
    if hasattr(value, "dtype") and hasattr(value, "shape"):  # of numpy
        return kind, value.dtype, value.shape
    raise Uneven


# ---- the samples ----


class Stacked:
    def __init__(self, cache):
        self.cache, self.columns, self.shape = cache, None, None

    def put(self, begin, samples):
        torch, cache = self.cache.torch, self.cache
        if self.columns is None:
            self.shape = shape_of(samples[0], torch)
        if any(shape_of(sample, torch) != self.shape for sample in samples):
            raise Uneven
        batch = cache.collate(samples)
        if self.columns is None:
            size = bytes_of(batch, torch) / len(samples) * cache.count
            check_free_memory(size, cache.ranks)
            self.columns = column(samples[0], batch, cache.count, torch)
        self.columns.put(begin, batch)

    def batch(self, indices):
        torch = self.cache.torch
        index = torch.tensor(indices, dtype=torch.int64)
        return self.columns.batch(indices, index)


class OneByOne:
    """Each gets samples of its own: a collate_fn may change them."""

    def __init__(self, cache):
        self.cache, self.kept, self.bytes = cache, [], 0
        self.most = 0

    def put(self, begin, samples):
        cache = self.cache
        self.kept += [copied(sample, cache.torch) for sample in samples]
        self.bytes += sum(bytes_of(sample, cache.torch) for sample in samples)
        if begin == 0:
            self.most = check_free_memory(self.bytes / len(samples) * cache.count, cache.ranks)
        if self.bytes > self.most:
            check_free_memory(self.bytes / len(self.kept) * cache.count, cache.ranks)

    def batch(self, indices):
        torch = self.cache.torch
        if any(index < 0 for index in indices):
            raise IndexError
        return self.cache.collate([copied(self.kept[index], torch) for index in indices])


def copied(value, torch):
    if type(value) is torch.Tensor:
        if value.device.type != "cpu":
            raise Unfit("its samples are on the GPU")
        return value.detach().clone().requires_grad_(value.requires_grad)
    if isinstance(value, ridge_samples.PLAIN):
        return value
    kind = type(value)
    if kind is dict:
        return {key: copied(part, torch) for key, part in value.items()}
    if kind in (list, tuple):
        return kind([copied(part, torch) for part in value])
    return copy.deepcopy(value)


class Cache:
    """Of one loader. Unfit where its samples cannot be kept."""

    def __init__(self, loader, torch, ranks):
        self.dataset, self.collate, self.torch = loader.dataset, loader.collate_fn, torch
        self.ranks, self.count = ranks, len(loader.dataset)
        self.uses = 1  # epochs
        if self.count == 0:
            raise Unfit("its dataset is empty")
        began = time.perf_counter()
        states = RandomStates(torch, self.dataset, self.collate)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self.samples = self.filled(states, is_default_collate(self.collate, torch))
        finally:
            states.restore()
        self.mark = ridge_samples.fingerprint(self.dataset, torch)
        self.seconds = time.perf_counter() - began

    def filled(self, states, is_stackable):
        if is_stackable:
            try:
                return self.fill(Stacked(self), states)
            except Uneven:
                pass
        return self.fill(OneByOne(self), states)

    def fill(self, samples, states):
        for begin in range(0, self.count, CHUNK):
            indices = range(begin, min(begin + CHUNK, self.count))
            samples.put(begin, read_samples(self.dataset, indices))
            drawn = states.moved()
            if drawn:
                raise Unfit("its samples draw random numbers (%s)" % drawn)
        step = max(1, self.count // CHECKED)
        for indices in ([0], [self.count - 1, 0], list(range(0, self.count, step))[::-1]):
            batch = self.collate(read_samples(self.dataset, indices))
            if not same(samples.batch(indices), batch, self.torch, with_layout=True):
                if isinstance(samples, Stacked):
                    raise Uneven
                raise Unfit("its samples differ when they are read again")
        return samples

    def fetcher(self, original):
        return Fetcher(self, original)

    def stale(self):
        """What has changed in the dataset since; empty where nothing has."""
        if len(self.dataset) != self.count:
            return "its length"
        path = ridge_samples.changed(
            self.mark, ridge_samples.fingerprint(self.dataset, self.torch)
        )
        if path:
            return path
        states = RandomStates(self.torch, self.dataset)
        try:
            for index in {self.count * i // AGAIN for i in range(AGAIN)}:
                batch = self.collate(read_samples(self.dataset, [index]))
                if not same(self.samples.batch([index]), batch, self.torch):
                    return "sample %d" % index
        finally:
            states.restore()
        # What holds handles may have opened one.
        self.mark = ridge_samples.fingerprint(self.dataset, self.torch)
        return ""


class Fetcher:
    """In place of a loader's own: what is not among the samples comes from there."""

    def __init__(self, cache, original):
        self.cache, self.original = cache, original

    def __getattr__(self, name):
        return getattr(self.original, name)

    def fetch(self, indices):
        try:
            return self.cache.samples.batch(indices)
        except (IndexError, TypeError, ValueError, RuntimeError):
            return self.original.fetch(indices)


def is_default_collate(function, torch):
    module = torch.utils.data._utils.collate
    return function is module.default_collate
