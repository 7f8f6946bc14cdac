"""Batches of a loader that one thread makes ahead, in the order in which the program would make them.

The bits stay what they are because nobody else draws random numbers meanwhile: a probing run saw it,
and it is watched here. Behind the first batches of a loader, and the fourth, eighth, sixteenth, ..., the
thread rests for a step, and sees whether that step drew. Whatever the program does that could show where the
generators are (another loader, a fork, their states, the end of an epoch that is left early) first
takes back what was made ahead: the generators then stand behind the batch that the program has.
"""
import contextlib
import contextvars
import functools
import os
import random
import sys
import threading
import weakref
from collections import deque

import ridge_samples

AHEAD = 2  # batches
FIRST_RESTS = 2  # steps of a loader that are looked at before any batch is ahead
FEW_RETURNS = 8  # times that batches may be taken back, and afterwards one of so many batches
DRAWS = "the program draws random numbers between batches (%s)"
LATE = "; it did not in its first steps, and some batches may have been changed"

living = weakref.WeakSet()  # makers of iterators that live
_local = threading.local()  # is_ours


@contextlib.contextmanager
def ours():
    """What is called within is no doing of the program."""
    was, _local.is_ours = getattr(_local, "is_ours", False), True
    try:
        yield
    finally:
        _local.is_ours = was


class Batch:
    def __init__(self, indices, data, before):
        self.indices, self.data, self.before = indices, data, before


class Maker:
    """Of one iterator over a loader. `entry`: the loader's (ridge_loaders.py); `refuse(text)` is
    called where the thread is not used any longer."""

    most_ahead = AHEAD

    def __init__(self, iterator, loader, entry, torch, refuse):
        self.indices, self.fetcher = iterator._sampler_iter, iterator._dataset_fetcher
        self.dataset, self.entry, self.torch, self.refuse = loader.dataset, entry, torch, refuse
        self.own_sampler = own_sampler(loader)
        sampler = loader.batch_sampler
        self.states = ridge_samples.RandomStates(
            torch, self.dataset, loader.collate_fn, sampler, with_device=False
        )
        samples = ridge_samples.RandomStates(torch, self.dataset, loader.collate_fn)
        self.of_sampler = [s for s in self.states.own if not any(s is one for one in samples.own)]
        self.modes = torch.is_inference_mode_enabled(), torch.is_grad_enabled()
        self.changed, self.thread = threading.Condition(), None
        self.made, self.kept = deque(), deque()  # batches; indices whose batches were taken back
        self.count = self.handed = self.allowed = 0  # batches made, handed out, and to be made
        self.is_busy = self.is_ended = self.is_closed = self.is_serial = False
        self.after = self.mark = self.error = self.failed_by = None
        living.add(self)

    # ---- the thread ----

    def start(self):
        context = contextvars.copy_context()
        self.thread = threading.Thread(
            target=context.run, args=(self.run,), name="ridge-batches", daemon=True
        )
        self.thread.start()

    def run(self):
        _local.is_ours = True
        is_inference, has_gradients = self.modes
        with self.torch.inference_mode(is_inference), self.torch.set_grad_enabled(has_gradients):
            while True:
                with self.changed:
                    self.changed.wait_for(lambda: self.is_closed or self.may_make())
                    if self.is_closed:
                        return
                    self.is_busy = True
                try:
                    self.make()
                finally:
                    with self.changed:
                        self.is_busy = False
                        self.changed.notify_all()

    def may_make(self):
        has_more = bool(self.kept) or not self.is_ended
        return has_more and not self.is_serial and self.count < self.allowed

    def make(self):
        indices, before = None, self.states.read()
        drawn = before
        if self.after is not None and self.states.moved(before, self.after):
            self.end_with(DRAWS % self.states.moved(before, self.after) + LATE)
            return
        try:
            indices = self.kept.popleft() if self.kept else next(self.indices)
            drawn = self.see_indices(before)
            batch = Batch(indices, self.fetcher.fetch(indices), before)
        except StopIteration as error:
            if indices is None:
                self.is_ended = True
                return
            self.fail(indices, drawn, error)
            return
        except BaseException as error:
            self.fail(indices, drawn, error)
            return
        self.after = self.states.read()
        with self.changed:
            self.made.append(batch)
            self.count += 1

    def see_indices(self, before):
        """The states behind the drawing of indices. Samplers of torch draw at once, for the first
        batch, but from generators of their own; nobody knows when others do."""
        if self.count and not self.own_sampler:
            return before
        drawn = self.states.read()
        # What is drawn for indices would not be drawn again if the batch was taken back.
        if self.count and self.states.moved(drawn, before):
            self.end_with("its %s draws random numbers between batches" % self.own_sampler)
        return drawn

    def fail(self, indices, drawn, error):
        """The program's own thread makes the batch anew, and may raise the same."""
        if indices is None:
            self.error = error  # of a sampler: it cannot be asked again
        else:
            self.states.restore(drawn, self.of_sampler)
            self.kept.appendleft(indices)
        self.is_serial = True
        self.failed_by = None if indices is None else error

    def end_with(self, why):
        self.is_serial = True
        self.refuse(why)

    # ---- the program's thread ----

    def next(self):
        """(indices, batch), where batch is None if it is to be made now."""
        pause_others(self)
        with self.changed:
            if not self.is_serial and self.allowed == self.handed:
                self.check_rest()
            if not self.is_serial:
                if self.thread is None:
                    self.start()
                self.allowed = max(self.allowed, self.handed + 1)
                self.changed.notify_all()
                self.changed.wait_for(self.has_answer)
            if self.made:
                return self.hand_out()
            if self.error is not None:
                error, self.error = self.error, None
                raise error
            return (self.kept.popleft() if self.kept else next(self.indices)), None

    def has_answer(self):
        return bool(self.made) or not self.is_busy and (
            self.is_serial or self.is_ended and not self.kept
        )

    def hand_out(self):
        batch = self.made.popleft()
        self.handed += 1
        self.entry.served += 1
        self.allowed = self.handed + self.most_now()
        self.mark = None
        if self.allowed == self.handed:
            self.mark = ridge_samples.fingerprint(self.dataset, self.torch)
        self.changed.notify_all()
        return batch.indices, batch

    def most_now(self):
        """Batches that may be ahead in the step that begins."""
        if self.entry.seen_steps < FIRST_RESTS or any(other.is_used() for other in living - {self}):
            return 0
        served = self.entry.served
        rest = 1 << (served - 1).bit_length()  # the next number of batches behind which it rests
        return min(AHEAD, rest - served)

    def is_used(self):
        return self.handed > 0 and not (self.is_ended or self.is_closed)

    def check_rest(self):
        """The thread rested for a step: what that step did shows, and has changed no bit."""
        if self.after is not None:
            drawn = self.drawn_since()
            path = ""
            if self.mark is not None:
                now = ridge_samples.fingerprint(self.dataset, self.torch)
                path = ridge_samples.changed(self.mark, now)
            late = "" if self.entry.seen_steps < FIRST_RESTS else LATE
            if drawn:
                self.end_with(DRAWS % drawn + late)
            elif path:
                self.end_with("the program changes the dataset between batches (its %s)" % path + late)
            self.entry.seen_steps += 1
        self.after = self.mark = None

    def drawn_since(self):
        """The source that was drawn from since the thread last did."""
        with ours():
            return self.states.moved(since=self.after) if self.after is not None else ""

    def fetch(self, indices):
        """On the program's thread."""
        batch = self.fetcher.fetch(indices)
        error, self.failed_by = self.failed_by, None
        if error is not None:
            self.refuse("samples cannot be made on another thread: %s" % str(error)[:100])
        return batch

    # ---- taken back ----

    def pause(self):
        """Nothing is ahead, and the generators are where the program takes them to be."""
        with self.changed:
            self.allowed = self.handed
            self.changed.wait_for(lambda: not self.is_busy)
            if self.made and self.take_back(self.of_sampler):
                self.entry.returns += 1
                returns = self.entry.returns
                if returns > FEW_RETURNS and FEW_RETURNS * returns > self.entry.served:
                    self.end_with("the program looks at random numbers too often between batches")
            self.after = self.mark = None

    def take_back(self, but):
        """False where somebody drew meanwhile: then no state is the one that it would be."""
        drawn = self.drawn_since()
        if drawn:
            self.end_with(DRAWS % drawn + LATE)
            return False
        with ours():
            self.states.restore(self.made[0].before, but)
        self.kept.extendleft(batch.indices for batch in reversed(self.made))
        self.made.clear()
        self.count = self.handed
        return True

    def close(self):
        """The iterator is gone: what its sampler drew ahead is taken back, too."""
        with self.changed:
            self.is_closed = True
            self.changed.notify_all()
            if threading.current_thread() is not self.thread:
                self.changed.wait_for(lambda: not self.is_busy)
            if self.made:
                self.take_back(())
        living.discard(self)

    def forked(self):
        """In a child, where there is no such thread."""
        self.changed, self.thread = threading.Condition(), None
        self.is_busy, self.is_serial = False, True

    # ---- for the gate ----

    def missing(self):
        """Batches that it makes ahead and that are not there yet."""
        with self.changed:
            return max(0, self.allowed - self.count) if self.may_make() else 0

    def is_drained(self):
        """The batches that lie ready are not followed by others."""
        return self.is_ended and not self.kept and self.count - self.handed < AHEAD


class Indices:
    """In place of an iterator's sampler."""

    def __init__(self, maker):
        self.maker, self.batch = maker, None

    def __iter__(self):
        return self

    def __next__(self):
        self.batch = None
        indices, self.batch = self.maker.next()
        return indices


class Fetcher:
    """In place of an iterator's own: the batch is there already."""

    def __init__(self, indices, original):
        self.indices, self.original = indices, original

    def __getattr__(self, name):
        return getattr(self.original, name)

    def fetch(self, indices):
        batch, self.indices.batch = self.indices.batch, None
        return self.indices.maker.fetch(indices) if batch is None else batch.data


def own_sampler(loader):
    """The name of a sampler's class that is not torch's; empty where there is none."""
    kinds = [type(sampler) for sampler in ridge_samples.samplers(loader)]
    own = [kind.__name__ for kind in kinds if not ridge_samples.is_of_torch(kind)]
    return own[0] if own else ""


def make_ahead(iterator, loader, entry, torch, refuse):
    """From now on, for one iterator in this process that has not been asked yet."""
    maker = Maker(iterator, loader, entry, torch, refuse)
    iterator._sampler_iter = Indices(maker)
    iterator._dataset_fetcher = Fetcher(iterator._sampler_iter, maker.fetcher)
    weakref.finalize(iterator, maker.close)


# ---- what takes back ----


def pause_all():
    pause_others(None)


def pause_others(maker):
    if not getattr(_local, "is_ours", False):
        for other in list(living):
            if other is not maker:
                other.pause()


def after_fork_in_child():
    for maker in list(living):
        maker.forked()


def pausing(original):
    @functools.wraps(original)
    def call(*args, **kwargs):
        pause_all()
        return original(*args, **kwargs)

    return call


def hook(torch):
    """Who asks where a generator is, or sets it, finds it as it would be without the thread."""
    os.register_at_fork(before=pause_all, after_in_child=after_fork_in_child)
    owners = [
        ((random,), ("seed", "getstate", "setstate")),
        ((torch.random, torch), ("seed", "manual_seed", "get_rng_state", "set_rng_state")),
    ]
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        owners.append(((numpy.random,), ("seed", "get_state", "set_state")))
    for modules, names in owners:
        for name in names:
            call = pausing(getattr(modules[0], name))
            for module in modules:
                setattr(module, name, call)
