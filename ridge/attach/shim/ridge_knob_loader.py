"""Knobs of the loaders that feed steps: a cache, workers and how those go on, a thread.

Batches and their order stay what they were, and so do the program's random numbers, but where
samples draw some of their own.
"""
import multiprocessing
import os
import sys

import ridge_background
import ridge_cache
import ridge_samples
from ridge_knob_process import local_ranks, usable_cpus
from ridge_knobs import Knob, class_of_workers, offer, refusal
from ridge_loaders import the_loaders
from ridge_samples import is_of_torch, samplers

LEAST_SHARE = 0.02  # of a step that a loader takes: below there is nothing to be had
MOST_FILL_SECONDS = 60
MOST_WORKERS = 16
ASKED_INDICES = 200


def watch_loader(shim, module):
    the_loaders(shim).hook(module)


def watch_loader_of_probe(shim, module):
    the_loaders(shim).time(module)


# ---- why not ----


def is_iterable(loader):
    return loader._dataset_kind != 0


def kind_trouble(loader):
    if is_iterable(loader):
        return "an iterable dataset has no samples by number"
    if loader.batch_sampler is None:
        return "the dataset makes its batches itself"
    return ""


def names_workers(dataset):
    """Whether an iterable dataset asks which worker it is in."""
    functions = ridge_samples.functions_of(dataset)
    asks = {"get_worker_info", "_worker_info"}
    return any(asks & ridge_samples.names_in(function.__code__) for function in functions)


def forking_trouble(loader, torch):
    """Why its dataset is not to be read in processes that are forked from this one."""
    if torch.utils.data.get_worker_info() is not None:
        return "it is in a worker itself"
    handle = ridge_samples.shared_handle(loader.dataset)
    if handle:
        return "the dataset has %s: workers would share it" % handle
    path = ridge_samples.gpu_tensor(loader.dataset, torch)
    if path:
        return "the dataset is on the GPU (its %s)" % path
    method = multiprocessing.get_start_method(allow_none=True)
    if method not in (None, "fork") and not is_default_method(method):
        return "the program starts processes by '%s'" % method
    if multiprocessing.current_process().daemon:
        return "its process may not start others"
    return ""


def is_default_method(method):
    return multiprocessing.get_all_start_methods()[0] == method


def datapipe_trouble(loader, torch):
    kinds = [getattr(torch.utils.data, name, None) for name in ("IterDataPipe", "MapDataPipe")]
    is_pipe = isinstance(loader.dataset, tuple(kind for kind in kinds if kind is not None))
    return "a DataPipe shards itself" if is_pipe else ""


def order_trouble(loader, torch, are_workers=True):
    """Indices are asked for some batches ahead: no numbers may be drawn between batches. Samplers of
    torch draw all at once, others are tried."""
    foreign = [sampler for sampler in samplers(loader) if not is_of_torch(type(sampler))]
    if not foreign:
        return ""
    sampler, name = samplers(loader)[0], type(foreign[0]).__name__
    before = ridge_samples.RandomStates(torch, sampler)
    try:
        indices = iter(sampler)
        if are_workers and before.moved():
            return "its %s draws random numbers at once, and workers iterate it twice" % name
        next(indices, None)
        drawn = ridge_samples.RandomStates(torch, sampler)
        for _ in zip(indices, range(ASKED_INDICES)):
            pass
        if drawn.moved():
            return "its %s draws random numbers between batches" % name
        return ""
    finally:
        before.restore()


def shared_memory_trouble(wanted):
    try:
        status = os.statvfs("/dev/shm")
    except OSError:
        return "there is no /dev/shm, in which workers leave their batches"
    free = status.f_bavail * status.f_frsize
    if wanted > free:
        return "workers would need %s in /dev/shm, which has %s" % (
            ridge_cache.size_text(wanted),
            ridge_cache.size_text(free),
        )
    return ""


# ---- what a probing run finds ----


class Findings:
    """Of the loader that feeds most; made once for all keys."""

    def __init__(self, shim):
        self.torch, self.loaders = shim.torch, the_loaders(shim)
        self.entry = self.loader = self.reading = None
        self.trouble = self.class_text = ""
        self.trouble = self.find()

    def find(self):
        feeding = self.loaders.feeding()
        if not feeding:
            return "no DataLoader feeds the steps"
        if any(entry.passed_rule is False for entry in feeding):
            return "the loader that feeds the steps is not told from others when it is iterated"
        self.entry = feeding[0]
        self.loader = self.entry.loader()
        if self.loader is None:
            return "the loader that fed the steps is gone"
        if self.entry.share() < LEAST_SHARE:
            return "the loader takes %.1f %% of a step" % (100 * self.entry.share())
        pipes = datapipe_trouble(self.loader, self.torch)
        if pipes:
            return pipes
        if not is_iterable(self.loader):
            self.reading = ridge_samples.Reading(self.loader, self.torch)
        return ""

    def why(self):
        where = "in workers" if self.loader.num_workers else "on the thread that steps"
        return "the loader takes %d %% of a step, %s" % (round(100 * self.entry.share()), where)

    def batch_size(self):
        loader = self.loader
        size = loader.batch_size or getattr(loader.batch_sampler, "batch_size", None)
        return size if isinstance(size, int) else 1

    def workers_class(self):
        reading = self.reading
        if reading is None:
            return class_of_workers(True, "", True, True)
        return class_of_workers(False, reading.drawn, reading.is_same, reading.is_plain)

    def semantic_class(self):
        """Of other numbers of workers."""
        return self.workers_class()[0]

    def class_reason(self):
        reason = self.workers_class()[1]
        return "; " + reason if reason else ""

    def workers_trouble(self):
        loader, reading = self.loader, self.reading
        if self.trouble:
            return self.trouble
        if is_iterable(loader) and not names_workers(loader.dataset):
            return "an iterable dataset that does not share itself out: workers would repeat it"
        trouble = forking_trouble(loader, self.torch)
        if trouble:
            return trouble
        if loader.worker_init_fn is not None and loader.num_workers == 0:
            return "its worker_init_fn has not been called so far"
        if reading is not None and reading.moved:
            name = os.path.basename(reading.moved)
            return "reading a sample moves the offset of an open file (%s): workers would share it" % name
        if reading is not None and reading.is_on_gpu:
            return "its batches are made on the GPU"
        return "" if is_iterable(loader) else order_trouble(loader, self.torch)


_findings = {}


def findings(shim):
    if "all" not in _findings:
        _findings["all"] = Findings(shim)
    return _findings["all"]


# ---- the knobs ----


class LoaderKnob(Knob):
    """Is asked at each epoch of each loader that feeds steps."""

    def __init__(self, shim, value):
        super().__init__(shim, value)
        self.count = 0

    def hook_loader(self, module):
        the_loaders(self.shim).adapters.append(self)

    def adapt(self, entry, loader):
        raise NotImplementedError

    def take_back(self, entry, loader, error):
        """What was done to it did not work."""

    def done_for(self, entry, text):
        self.count += 1
        more = " and %d more" % (self.count - 1) if self.count > 1 else ""
        self.apply(text + more, entry.site)


class Cache(LoaderKnob):
    key = "loader.cache"

    def __init__(self, shim, value):
        super().__init__(shim, value)
        self.filled = []  # caches, each with the entry that it was filled for

    @classmethod
    def offers(cls, shim, marker):
        found = findings(shim)
        trouble = found.trouble or cls.trouble_of(found.loader, found.reading)
        if trouble:
            return [refusal(cls.key, trouble)]
        reading = found.reading
        size = reading.sample_bytes * reading.count
        seconds = reading.seconds * reading.count
        try:
            most = ridge_cache.check_free_memory(size, local_ranks())
        except ridge_cache.Unfit as error:
            return [refusal(cls.key, str(error))]
        if seconds > MOST_FILL_SECONDS:
            return [refusal(cls.key, "reading its samples once would take %d s" % seconds)]
        text = "%s; its samples are the same each time, take %s of %s that may be used, and %.1f s" % (
            found.why(),
            ridge_cache.size_text(size),
            ridge_cache.size_text(most),
            seconds,
        )
        return [offer(cls.key, True, text)]

    @staticmethod
    def trouble_of(loader, reading):
        trouble = kind_trouble(loader)
        if trouble:
            return trouble
        if reading.drawn:
            return "samples draw random numbers (%s): each has to be made anew" % reading.drawn
        if not reading.is_same:
            return "samples differ when they are read again"
        if reading.mutated:
            return "the dataset changes as it is read (its %s)" % reading.mutated
        return "its samples are on the GPU" if reading.is_on_gpu else ""

    def earlier(self, entry, loader):
        """What another loader of the same samples filled: programs make one for each epoch."""
        for cache, filled in self.filled:
            if cache.dataset is loader.dataset and cache.collate == loader.collate_fn:
                return cache
            if filled.site == entry.site and filled.loader() is None and cache.uses < 2:
                raise ridge_cache.Unfit("each epoch makes another dataset, which is read once only")
        self.filled = [one for one in self.filled if one[1].loader() is not None]
        return None

    def adapt(self, entry, loader):
        torch = sys.modules["torch"]
        if entry.cache is not None:
            self.go_on(entry, loader)
            return
        if self.state == "refused":
            return
        trouble = kind_trouble(loader) or datapipe_trouble(loader, torch)
        if trouble or loader._iterator is not None:
            self.refuse(trouble or "its workers run already", entry.site)
            return
        try:
            entry.cache = self.earlier(entry, loader)
            if entry.cache is not None:
                loader.num_workers, loader.timeout = 0, 0
                self.go_on(entry, loader)
                return
            cache = ridge_cache.Cache(loader, torch, local_ranks())
            # Workers collate into memory of one layout.
            if loader.num_workers and not all(
                tensor.is_contiguous()
                for tensor in ridge_samples.tensors_in(cache.samples.batch([0, 0]), torch)
            ):
                raise ridge_cache.Unfit("its workers lay batches out otherwise")
            entry.cache = cache
            self.filled.append((cache, entry))
        except ridge_cache.Unfit as error:
            self.refuse(str(error), entry.site)
            return
        self.seconds += entry.cache.seconds
        loader.num_workers, loader.timeout = 0, 0
        text = "%s serves %d samples from memory" % (entry.name(), entry.cache.count)
        self.done_for(entry, text)

    def go_on(self, entry, loader):
        """Another epoch from what is there."""
        stale = entry.cache.stale()
        if stale:
            self.filled = [one for one in self.filled if one[0] is not entry.cache]
            entry.restore(loader)
            self.refuse("the dataset has changed (its %s)" % stale, entry.site)
        else:
            entry.cache.uses += 1


class Workers(LoaderKnob):
    key = "loader.workers"

    @classmethod
    def offers(cls, shim, marker):
        found = findings(shim)
        cpus = min(MOST_WORKERS, len(usable_cpus()) // local_ranks())
        trouble = found.workers_trouble()
        if not trouble and cpus <= 1:
            trouble = "there is one CPU for each process"
        if not trouble and found.reading is not None:
            wanted = found.reading.batch_bytes * found.batch_size() * (2 * cpus + 2)
            trouble = shared_memory_trouble(wanted)
        if trouble:
            return [refusal(cls.key, trouble)]
        text = found.why() + found.class_reason()
        return [
            offer(cls.key, number, text, found.semantic_class())
            for number in (cpus, cpus // 2)
            if number != found.loader.num_workers
        ]

    def adapt(self, entry, loader):
        torch = sys.modules["torch"]
        if entry.has_new_workers:
            return
        if entry.cache is not None:
            self.refuse("its samples are in memory (loader.cache)", entry.site)
            return
        trouble = datapipe_trouble(loader, torch)
        if not trouble and is_iterable(loader) and not names_workers(loader.dataset):
            trouble = "an iterable dataset that does not share itself out: workers would repeat it"
        trouble = trouble or forking_trouble(loader, torch)
        if loader._iterator is not None:
            trouble = "its workers run already"
        if trouble:
            self.refuse(trouble, entry.site)
            return
        entry.has_new_workers = True
        self.set(loader, self.value)
        self.done_for(entry, "%s has %d workers" % (entry.name(), self.value))

    @staticmethod
    def set(loader, number):
        loader.num_workers = number
        if number == 0:
            loader.timeout = 0  # torch takes no other without workers
        if number and loader.prefetch_factor is None:
            loader.prefetch_factor = 2  # what torch would have set
        # From Python 3.14 on the default would start the program's file once more.
        is_forked = multiprocessing.get_all_start_methods()[0] == "fork"
        if number and loader.multiprocessing_context is None and not is_forked:
            loader.multiprocessing_context = "fork"

    def take_back(self, entry, loader, error):
        self.fail(error)


def thread_trouble(loader, torch):
    """Why its batches are not to be made on another thread of this process."""
    trouble = kind_trouble(loader) or datapipe_trouble(loader, torch)
    if trouble:
        return trouble
    if loader.num_workers:
        return "it has workers"
    path = ridge_samples.gpu_tensor(loader.dataset, torch)
    return "the dataset is on the GPU (its %s)" % path if path else ""


def mode_trouble(torch):
    """Modes are those of the thread that set them."""
    if torch.is_autocast_enabled() or torch.is_autocast_cpu_enabled():
        return "its batches are made under autocast"
    modes = getattr(torch._C, "_len_torch_function_stack", lambda: 0)()
    return "its batches are made under a mode of torch, such as a default device" if modes else ""


class Background(LoaderKnob):
    key = "loader.background"

    def hook_torch(self, torch):
        ridge_background.hook(torch)

    @classmethod
    def offers(cls, shim, marker):
        found = findings(shim)
        trouble = found.trouble or cls.trouble_of(found)
        if not trouble and len(usable_cpus()) // local_ranks() <= 1:
            trouble = "there is one CPU for each process"
        if trouble:
            return [refusal(cls.key, trouble)]
        return [offer(cls.key, True, found.why() + "; nobody else draws between two batches")]

    @staticmethod
    def trouble_of(found):
        trouble = thread_trouble(found.loader, found.torch)
        if trouble:
            return trouble
        if found.entry.drawn_between:
            return "the program draws random numbers between batches (%s)" % found.entry.drawn_between
        if found.reading.is_on_gpu or found.reading.drawn == "torch.cuda":
            return "its batches are made on the GPU"
        return order_trouble(found.loader, found.torch, are_workers=False)

    def adapt(self, entry, loader):
        torch = sys.modules["torch"]
        trouble = thread_trouble(loader, torch) or mode_trouble(torch)
        if entry.cache is not None:
            trouble = "its samples are in memory (loader.cache)"
        if trouble:
            entry.background = None
            self.refuse(trouble, entry.site)
        elif entry.background is None and self.state != "refused":
            entry.background = self
            self.done_for(entry, "a thread makes the batches of %s" % entry.name())

    def begin(self, iterator, loader, entry):
        def refuse(text):
            entry.background = None
            self.refuse(text, entry.site)

        try:
            ridge_background.make_ahead(iterator, loader, entry, sys.modules["torch"], refuse)
        except Exception as error:
            self.fail(error)


class Prefetch(LoaderKnob):
    key = "loader.prefetch"

    @classmethod
    def offers(cls, shim, marker):
        found = findings(shim)
        trouble = found.workers_trouble()
        if trouble:
            return [refusal(cls.key, trouble)]
        if found.loader.prefetch_factor not in (None, 2):
            return [refusal(cls.key, "the program has set it")]
        text = "a worker loads two batches ahead"
        return [offer(cls.key, 4, text)]

    def adapt(self, entry, loader):
        if loader.num_workers == 0:
            self.refuse("there are no workers", entry.site)
        elif loader._iterator is None and loader.prefetch_factor != self.value:
            loader.prefetch_factor = self.value
            self.done_for(entry, "%d batches a worker are loaded ahead" % self.value)


class Persistent(LoaderKnob):
    key = "loader.persistent"

    @classmethod
    def offers(cls, shim, marker):
        found = findings(shim)
        trouble = found.workers_trouble()
        if trouble:
            return [refusal(cls.key, trouble)]
        if found.loader.persistent_workers:
            return [refusal(cls.key, "the program has set it")]
        text = "workers are started anew for each epoch" + found.class_reason()
        return [offer(cls.key, True, text, found.semantic_class())]

    def adapt(self, entry, loader):
        if loader.num_workers == 0:
            self.refuse("there are no workers", entry.site)
        elif not loader.persistent_workers and not entry.persists:
            # torch forbids this while an epoch may go on with other workers. None has begun.
            loader.__dict__["persistent_workers"] = entry.persists = True
            self.done_for(entry, "workers stay from one epoch to the next")


class Pin(LoaderKnob):
    key = "loader.pin"

    @classmethod
    def offers(cls, shim, marker):
        found = findings(shim)
        if not shim.torch.cuda.is_initialized():
            return [refusal(cls.key, "the program does not use CUDA")]
        if found.trouble:
            return [refusal(cls.key, found.trouble)]
        if found.loader.pin_memory:
            return [refusal(cls.key, "the program has set it")]
        if found.reading is not None and found.reading.is_on_gpu:
            return [refusal(cls.key, "its batches are made on the GPU")]
        return [offer(cls.key, True, "batches are copied from memory that may be swapped")]

    def adapt(self, entry, loader):
        torch = sys.modules["torch"]
        if not torch.cuda.is_available():
            self.refuse("there is no CUDA", entry.site)
        elif not loader.pin_memory and loader._iterator is None:
            loader.pin_memory = True
            self.done_for(entry, "batches lie in pinned memory")


KNOBS = [Cache, Workers, Background, Prefetch, Persistent, Pin]
