"""The program's loaders, and which of them feed its steps: those alone are changed.

Which one that is has to be known when it is iterated, before it has fed anything. So there is a
rule, and a probing run checks it by what the loaders then do.
"""
import functools
import multiprocessing.process
import os
import sys
import threading
import time
import weakref

import ridge_background
import ridge_knobs
from ridge_samples import RandomStates, changed, fingerprint, samplers

clock = time.perf_counter_ns


class Entry:
    """One loader."""

    def __init__(self, loader, site):
        self.loader, self.site = weakref.ref(loader), site
        self.own_workers = loader.num_workers
        self.own_persistent = bool(loader.persistent_workers)
        self.own_prefetch, self.own_timeout = loader.prefetch_factor, loader.timeout
        self.passed_rule = None  # the last time it was iterated
        self.epochs = 0
        # What was done to it.
        self.cache, self.has_new_workers, self.persists, self.mark = None, False, False, None
        self.background = None  # the knob that has a thread make its batches
        self.copier = None  # the knob that copies its batches to a device
        # Batches of that thread, how often some were taken back, and steps that it saw drawing nothing.
        self.served = self.returns = self.seen_steps = 0
        # Of a probing run.
        self.states, self.behind, self.drawn_between = None, None, ""
        self.fed, self.yields, self.steps_then, self.began, self.ended, self.ns = 0, 0, -1, 0, 0, 0

    def restore(self, loader):
        """As the program made it."""
        loader.num_workers, loader.timeout = self.own_workers, self.own_timeout
        loader.prefetch_factor = self.own_prefetch
        if self.persists:
            loader.__dict__["persistent_workers"] = False
        self.cache, self.has_new_workers, self.persists = None, False, False
        self.background = None

    def shuffles(self):
        loader = self.loader()
        return loader is not None and any(
            "Random" in type(sampler).__name__ or bool(getattr(sampler, "shuffle", False))
            for sampler in samplers(loader)
        )

    def yielded(self, steps, begin, now):
        if self.yields and steps != self.steps_then:
            self.fed += 1
        self.steps_then = steps
        self.yields += 1
        self.ns += now - begin
        self.began = self.began or begin
        self.ended = now

    def asked(self):
        """In a probing run: notes what was drawn from since the last batch of this loader."""
        if self.behind is not None:
            self.drawn_between = self.drawn_between or self.states.moved(since=self.behind)

    def answered(self, loader, torch):
        if self.states is None:
            self.states = RandomStates(torch, loader.dataset, with_device=False)
        self.behind = self.states.read()

    def share(self):
        """Of the time from its first batch to its last."""
        whole = self.ended - self.began
        return self.ns / whole if whole > 0 else 0.0

    def name(self):
        loader = self.loader()
        dataset = None if loader is None else loader.dataset
        return "the loader of %s%s" % (
            type(dataset).__name__,
            " (%s)" % self.site if self.site else "",
        )


class Loaders:
    def __init__(self, shim):
        self.shim, self.torch = shim, None
        self.entries = {}
        self.adapters = []  # knobs
        self.inherited = []
        self.is_hooked = self.are_timed = False

    def entry(self, loader):
        found = self.entries.get(id(loader))
        return found if found is not None and found.loader() is loader else None

    def living(self):
        return [entry for entry in self.entries.values() if entry.loader() is not None]

    def made(self, loader, site):
        if len(self.entries) > 100:
            self.entries = {id(entry.loader()): entry for entry in self.living()}
        self.entries[id(loader)] = Entry(loader, site)

    def rule(self, entry):
        """A loader of a training is iterated where gradients are wanted, and shuffles unless none
        does."""
        if not self.shim.calls.optimizer_at:
            return True
        if not self.torch.is_grad_enabled():
            return False
        return entry.shuffles() or not any(other.shuffles() for other in self.living())

    def feeding(self):
        """In a probing run: the loaders that fed steps, the one that did most first."""
        least = 1 if self.shim.steps.count < 10 else 2
        found = [entry for entry in self.living() if entry.fed >= least]
        return sorted(found, key=lambda entry: -entry.fed)

    # ---- an epoch begins ----

    def adapt(self, entry, loader):
        entry.passed_rule = self.rule(entry)
        if entry.passed_rule:
            for knob in self.adapters:
                try:
                    knob.adapt(entry, loader)
                except Exception as error:
                    knob.fail(error)

    def iterate(self, original, loader):
        ridge_background.pause_all()  # an iterator draws a seed
        entry = self.entry(loader)
        if entry is None or not self.shim.on:
            return original(loader)
        entry.epochs, entry.behind = entry.epochs + 1, None
        try:
            self.adapt(entry, loader)
            if entry.persists:
                self.persist(entry, loader)
        except Exception as error:
            if entry.persists:
                loader._iterator = None
            self.shim.trouble("a loader", error)
        if not entry.has_new_workers or loader._iterator is not None:
            return original(loader)
        states = RandomStates(self.torch)
        try:
            return original(loader)
        except OSError as error:  # no memory or no process is left
            states.restore()
            entry.restore(loader)
            for knob in self.adapters:
                knob.take_back(entry, loader, error)
            return original(loader)

    def persist(self, entry, loader):
        """Workers that stay draw no seed at the next epoch, and know nothing of what became of the
        dataset: both would show in the batches."""
        mark = fingerprint(loader.dataset, self.torch)
        if loader._iterator is not None:
            # Somebody may still be within the last epoch, as with two at a time.
            if is_held(loader) or changed(entry.mark, mark):
                loader._iterator = None
            else:
                draw_seed(loader, self.torch)
        entry.mark = mark

    def iterator_of(self, original, loader):
        entry = self.entry(loader)
        is_alone = entry is not None and loader.num_workers == 0
        # Workers that stay would have drawn a seed in the first epoch alone.
        if not (is_alone and entry.own_persistent and entry.own_workers and entry.epochs > 1):
            iterator = original(loader)
        else:
            generator = loader.generator
            if generator is None:
                generator = self.torch.default_generator
            state = generator.get_state()
            iterator = original(loader)
            generator.set_state(state)
        # The program may have given it workers again.
        if is_alone and entry.cache is not None:
            iterator._dataset_fetcher = entry.cache.fetcher(iterator._dataset_fetcher)
        elif is_alone and entry.background is not None:
            entry.background.begin(iterator, loader, entry)
        return iterator

    def forked(self):
        """In a process of the program's own, where other workers are not known."""
        for entry in self.living():
            loader = entry.loader()
            if entry.persists and loader._iterator is not None:
                # They are not its children, to be waited for.
                self.inherited.append(loader._iterator)
                workers = getattr(loader._iterator, "_workers", ())
                multiprocessing.process._children.difference_update(workers)
                loader._iterator = None
            if entry.persists or entry.has_new_workers or entry.cache is not None:
                entry.restore(loader)

    # ---- where it is put into torch ----

    def hook(self, module):
        if self.is_hooked:
            return
        self.is_hooked, self.torch = True, module.torch
        os.register_at_fork(after_in_child=self.forked)
        loader = module.DataLoader
        original_init, original_iter = loader.__init__, loader.__iter__
        original_get = loader._get_iterator

        @functools.wraps(original_init)
        def made_init(loader_self, *args, **kwargs):
            original_init(loader_self, *args, **kwargs)
            if self.shim.on:
                self.made(loader_self, ridge_knobs.call_site())

        @functools.wraps(original_iter)
        def adapted_iter(loader_self):
            return self.iterate(original_iter, loader_self)

        @functools.wraps(original_get)
        def adapted_get(loader_self):
            return self.iterator_of(original_get, loader_self)

        loader.__init__, loader.__iter__ = made_init, adapted_iter
        loader._get_iterator = adapted_get

    def time(self, module):
        """In a probing run: who waits for which loader."""
        if self.are_timed:
            return
        self.are_timed = True
        iterator, loader = module._BaseDataLoaderIter, module.DataLoader
        original_next, original_get = iterator.__next__, loader._get_iterator

        @functools.wraps(original_get)
        def noted_get(loader_self):
            result = original_get(loader_self)
            result._ridge_entry = self.entry(loader_self)
            # Of `for batch in DataLoader(...)` nobody holds the loader itself. One that keeps its
            # iterator would hold itself.
            if not loader_self.persistent_workers:
                result._ridge_loader = loader_self
            return result

        @functools.wraps(original_next)
        def noted_next(iterator_self):
            entry = getattr(iterator_self, "_ridge_entry", None)
            if entry is not None:
                entry.asked()
            begin = clock()
            result = original_next(iterator_self)
            now = clock()
            steps = self.shim.steps
            if entry is not None and steps.thread in (0, threading.get_ident()):
                entry.yielded(steps.count + len(steps.ends), begin, now)
            loader = entry and entry.loader()
            if loader is not None:
                entry.answered(loader, self.torch)
            return result

        iterator.__next__, loader._get_iterator = noted_next, noted_get


class Held:
    def __init__(self):
        self._iterator = object()


def references(holder):
    iterator = holder._iterator
    return sys.getrefcount(iterator)


def is_held(loader):
    """Whether somebody but the loader holds its iterator."""
    return references(loader) > references(Held())


def draw_seed(loader, torch):
    """What torch draws for each epoch of workers that do not stay."""
    torch.empty((), dtype=torch.int64).random_(generator=loader.generator)


_loaders = None


def the_loaders(shim):
    global _loaders
    if _loaders is None:
        _loaders = Loaders(shim)
    return _loaders
