"""Holds a program behind a step, and lets it run for so many as Ridge asks for (step_gate.h).

While it waits here, Ridge stops all of the program's processes: it costs nothing. A block of steps
begins and ends with loaders that have all their batches ready, so what lies ready gains nothing.
"""
import functools
import json
import os
import resource
import socket
import sys
import time
import weakref
from collections import deque

import ridge_shim

clock = time.perf_counter_ns
LOOK = 0.0002  # seconds between looks at what a loader has ready
MOST_FILL_NS = 1_000_000_000  # and three times what the batches should take
MOST_BREAKS = 100  # of a block that are told of
MOST_QUEUE = 1000
SURE = 3  # breaks without a step between them, until they are taken for what steps are like
PLAIN, DRAINED, BREAK = range(3)


class Block:
    """What came of one order to run."""

    def __init__(self, steps, shim):
        self.wanted, self.count, self.intervals = steps, 0, 0
        self.out_ns, self.out_waited = 0, 0  # left out: no steps
        self.breaks, self.open_break = [], None  # [ns, intervals in it]
        self.lately = deque(maxlen=MOST_QUEUE)  # steps: ns, of which waited
        self.shim = shim
        self.switches = switches()
        self.waited = shim.loader_ns
        self.interval_waited = shim.loader_ns
        self.begun = self.last = clock()

    def step(self, now):
        self.count += 1
        self.lately.append((now - self.last, self.shim.loader_ns - self.interval_waited))
        self.close_break()
        self.next_interval(now)

    def leave_out(self, now):
        """What went by since the last step; those without a step between them are one break."""
        self.add_to_break(now - self.last, self.shim.loader_ns - self.interval_waited)
        self.next_interval(now)

    def take_back(self, steps):
        """So many that were made last belong to the break that ends now."""
        for _ in range(min(steps - self.open_break[1] + 1, len(self.lately))):
            self.count -= 1
            self.add_to_break(*self.lately.pop())

    def add_to_break(self, ns, waited):
        if self.open_break is None:
            self.open_break = [0, 0]
        self.open_break[0] += ns
        self.open_break[1] += 1
        self.out_ns += ns
        self.out_waited += waited

    def close_break(self):
        if self.open_break is not None:
            self.breaks.append(self.open_break)
            self.open_break = None

    def next_interval(self, now):
        self.intervals += 1
        self.last, self.interval_waited = now, self.shim.loader_ns

    def usual_ns(self):
        return (self.last - self.begun) // max(1, self.intervals)

    def answer(self):
        self.close_break()
        return {
            "steps": self.count,
            "seconds": (self.last - self.begun - self.out_ns) * 1e-9,
            "waited": (self.shim.loader_ns - self.waited - self.out_waited) * 1e-9,
            "switches": switches() - self.switches,
            "breaks": [[ns * 1e-9, count] for ns, count in self.breaks[-MOST_BREAKS:]],
        }


class Part(ridge_shim.Part):
    def __init__(self, shim):
        super().__init__(shim)
        self.connection, self.is_off, self.pid = None, False, os.getpid()
        self.torch, self.loaders = None, None
        self.block = None
        self.plain_steps, self.lone_breaks, self.since_break = 0, 0, 0
        self.has_only_breaks = False
        self.with_saves = False  # of this block: nothing but saves is a break, and it is timed
        self.longest = 0  # steps between breaks, where blocks go from one to the next
        self.flips, self.is_flipping = 0, False
        self.seen = None
        self.streamed = 0  # loaders.streamed, of the interval before
        os.register_at_fork(after_in_child=self.close)

    # ---- what happens between steps ----

    def hook_torch(self, torch):
        """A module that is put back into training has evaluated something. Who freezes parts of it
        switches those alone, in the same direction each time."""
        self.torch = torch
        original = torch.nn.Module.train

        @functools.wraps(original)
        def train(module, mode=True):
            if self.is_flipping or ridge_shim.is_compiling():
                return original(module, mode)
            was_training, self.is_flipping = module.training, True
            try:
                return original(module, mode)
            finally:
                self.is_flipping = False
                if mode and not was_training:
                    self.flips += 1

        torch.nn.Module.train = train

    def hook_loader(self, module):
        iterator = getattr(module, "_MultiProcessingDataLoaderIter", None)
        if iterator is None:
            return
        self.loaders = Loaders()
        original = iterator.__init__

        @functools.wraps(original)
        def init(iterator_self, *args, **kwargs):
            original(iterator_self, *args, **kwargs)
            self.loaders.add(iterator_self)

        iterator.__init__ = init

    def is_whole(self):
        """Blocks go from break to break."""
        return self.has_only_breaks or self.with_saves

    def breaks_seen(self):
        shim = self.shim
        return (shim.saves,) if self.with_saves else (shim.iterations, shim.saves, self.flips)

    def what_went_by(self):
        """Of the interval that ends here."""
        seen = self.breaks_seen()
        was_break, self.seen = seen != self.seen, seen
        self.streamed = 0 if self.loaders is None else self.loaders.streamed
        is_drained = self.loaders is not None and self.loaders.were_drained()
        return BREAK if was_break else DRAINED if is_drained else PLAIN

    # ---- from step to step ----

    def at_step(self, marker):
        if self.is_off:
            return
        try:
            if self.connection is None:
                self.connect()
            else:
                self.stepped(clock())
        except Exception as error:
            self.shim.trouble("the gate", error)
            self.close()

    def connect(self):
        if self.is_follower():
            self.is_off = True
            return
        # A path through the folder's descriptor is short enough, wherever the folder is.
        folder = os.open(self.shim.folder, os.O_PATH | os.O_CLOEXEC)
        try:
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            connection.settimeout(None)
            connection.connect("/proc/self/fd/%d/gate" % folder)
        finally:
            os.close(folder)
        self.connection = connection
        self.send({"hello": {"pid": self.pid, "source": self.shim.steps.source}})
        self.wait()

    def is_follower(self):
        """Ranks step together: who holds the first one holds all."""
        distributed = getattr(self.torch, "distributed", None)
        if distributed is not None and distributed.is_available() and distributed.is_initialized():
            return distributed.get_rank() > 0
        return ridge_shim.whole_number(os.environ.get("RANK"), 0) > 0

    def stepped(self, now):
        block, what = self.block, self.what_went_by()
        self.since_break += 1
        is_whole = self.is_whole()
        if is_whole:
            block.step(now)
        elif what == PLAIN:
            self.plain_steps += 1
            block.step(now)
        else:
            self.left_out(block, what, now)
        if is_whole and what == BREAK:
            self.longest, self.since_break = max(self.longest, self.since_break), 0
        if block.count >= block.wanted and self.may_end(what):
            self.finish()

    def left_out(self, block, what, now):
        if what == BREAK:
            # What loads ahead begins anew.
            self.fill()
            now = clock()
        block.leave_out(now)
        if what != BREAK:
            return
        block.take_back(self.streamed)
        self.lone_breaks += 1
        if self.plain_steps == 0 and self.lone_breaks >= SURE:
            # A loader per step, or epochs that are no longer than the queue: nothing else would be
            # left to time.
            self.has_only_breaks, self.since_break = True, 0
            self.block = Block(block.wanted, self.shim)

    def may_end(self, what):
        if not self.is_whole():
            return True
        return what == BREAK or self.block.count > 4 * (self.block.wanted + self.longest) + 100

    def finish(self):
        block = self.block
        if self.torch is not None and self.torch.cuda.is_initialized():
            self.torch.cuda.synchronize()
            block.last = clock()
        if self.fill():
            block.last = clock()
        answer = block.answer()
        answer["queue"] = max(self.longest, self.loaders.capacity() if self.loaders else 0)
        answer["source"] = self.shim.steps.source
        self.shim.write()
        self.send({"block": answer})
        self.wait()

    def fill(self):
        """Waits until all batches that loaders were asked for are there; false: they do not come,
        as where an iterable has ended in a worker."""
        loaders = self.loaders
        if loaders is None or loaders.missing() <= 0:
            return True
        usual = max(self.block.usual_ns(), self.shim.steps.seconds() * 1e9)
        until = clock() + MOST_FILL_NS + 3 * loaders.capacity() * usual
        while loaders.missing() > 0:
            if clock() > until:
                return False
            time.sleep(LOOK)
        return True

    # ---- the other end ----

    def send(self, message):
        self.connection.send(json.dumps(message).encode())

    def wait(self):
        """Until Ridge lets it go; all other threads may go on until it stops them."""
        order = self.connection.recv(4096)
        order = json.loads(order.decode()) if order else {}
        steps, with_saves = order.get("go", 0), order.get("saves", False)
        if steps <= 0:  # Ridge has another process, or is gone
            self.close()
            return
        shim = self.shim
        if with_saves != self.with_saves:
            self.with_saves, self.longest, self.since_break = with_saves, 0, 0
        self.seen = self.breaks_seen()
        if self.loaders is not None:
            self.loaders.were_drained()
        # The time in which it was held is in no step, and in no block.
        shim.steps.settle()
        shim.next_flush = clock() + ridge_shim.FLUSH_NS
        self.block = Block(steps, shim)
        shim.steps.begun = self.block.begun

    def close(self):
        self.is_off = True
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.close()


class Loaders:
    """The iterators of loaders that have workers or a thread, while they live."""

    def __init__(self):
        # When were_drained() last looked: of iterators, and of threads (ridge_background.py).
        self.yielded, self.handed = weakref.WeakKeyDictionary(), weakref.WeakKeyDictionary()
        # The queue of an iterable that served then. Its end shows only behind its last batch.
        self.streamed = 0

    def add(self, iterator):
        self.yielded[iterator] = 0

    def were_drained(self):
        """Whether one served since it was last asked that has less under way than it may have: its
        epoch ends, and the batches that lie ready are not followed by others."""
        found, self.streamed = False, 0
        for iterator, before in list(self.yielded.items()):
            now = iterator._num_yielded
            if now != before:
                self.yielded[iterator] = now
                found = found or len(iterator._task_info) < limit(iterator)
                if getattr(iterator, "_dataset_kind", 0) != 0:
                    self.streamed += limit(iterator)
        for maker in makers():
            before, self.handed[maker] = self.handed.get(maker, 0), maker.handed
            found = found or maker.handed != before and maker.is_drained()
        return found

    def capacity(self):
        ahead = sum(limit(iterator) for iterator in list(self.yielded))
        return ahead + sum(maker.most_ahead for maker in makers())

    def missing(self):
        """Batches under way that no worker or thread has handed over."""
        missing = sum(maker.missing() for maker in makers())
        for iterator in list(self.yielded):
            if not iterator._shutdown:
                missing += max(0, under_way(iterator) - iterator._data_queue.qsize())
        return missing


def makers():
    background = sys.modules.get("ridge_background")
    return [] if background is None else list(background.living)


def limit(iterator):
    return iterator._prefetch_factor * iterator._num_workers


def under_way(iterator):
    # One that came before its turn has its data with it; a worker that has ended hands nothing over.
    tasks = list(iterator._task_info.values())
    return sum(1 for task in tasks if len(task) == 1 and iterator._workers_status[task[0]])


def switches():
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw
