"""Watches how the program makes its batches: for how long, and whether it draws random numbers.

`ridge doctor` runs the program of the user once, so no sample is read for it: some batches are looked
at while the program makes them. A probing run reads samples twice instead (ridge_samples.Reading).
Loader workers are other processes: each leaves what it saw in a file of the folder.
"""
import functools
import json
import os
import time

import ridge_shim

FIRST_LOOKS = 3  # batches of a loader's iterator; then its fourth, eighth, sixteenth, ...
MOST_LOOKS = 24


class Part(ridge_shim.Part):
    def __init__(self, shim):
        super().__init__(shim)
        self.knobs, self.samples = shim.load("ridge_knobs"), shim.load("ridge_samples")
        self.torch, self.looks, self.was_read = None, [], set()

    def hook_loader(self, module):
        try:
            self.torch = module.torch
            self.watch(module._utils.fetch._MapDatasetFetcher, False)
            self.watch(module._utils.fetch._IterableDatasetFetcher, True)
        except Exception as error:
            self.shim.trouble("how batches are made", error)

    def watch(self, kind, is_iterable):
        original = kind.fetch

        @functools.wraps(original)
        def fetch(fetcher, indices):
            number = fetcher.__dict__["_ridge_number"] = fetcher.__dict__.get("_ridge_number", 0) + 1
            is_due = number <= FIRST_LOOKS or number & (number - 1) == 0
            if not is_due or len(self.looks) >= MOST_LOOKS or not (self.shim.on or self.is_worker()):
                return original(fetcher, indices)
            return self.look(original, fetcher, indices, is_iterable)

        kind.fetch = fetch

    def is_worker(self):
        return os.getpid() != self.shim.pid

    def look(self, original, fetcher, indices, is_iterable):
        states = None
        try:
            states = self.samples.RandomStates(self.torch, fetcher.dataset, fetcher.collate_fn)
        except Exception as error:
            self.shim.trouble("how batches are made", error)
        began = time.perf_counter()
        batch = original(fetcher, indices)
        seconds = time.perf_counter() - began
        try:
            if states is not None:
                self.note(is_iterable, states.moved(), batch, seconds)
        except Exception as error:
            self.shim.trouble("how batches are made", error)
        return batch

    def note(self, is_iterable, drawn, batch, seconds):
        tensors = list(self.samples.tensors_in(batch, self.torch))
        is_plain = all(tensor.is_contiguous() for tensor in tensors)
        kind, reason = self.knobs.class_of_workers(is_iterable, drawn, True, is_plain)
        self.looks.append(
            {
                "wants_gradients": self.torch.is_grad_enabled(),
                "workers_class": kind,
                "reason": reason,
                "seconds": seconds,
                "bytes": int(self.samples.bytes_of(batch, self.torch)),
            }
        )
        if self.is_worker():
            name = "batches_%d_%d.json" % (self.shim.pid, os.getpid())
            ridge_shim.write_whole(os.path.join(self.shim.folder, name), json.dumps(self.looks))

    def read_workers(self):
        """Adds the looks of workers to ours, so that workers of later epochs need not look again."""
        mine = "batches_%d_" % self.shim.pid
        for name in os.listdir(self.shim.folder):
            if not (name.startswith(mine) and name.endswith(".json")) or name in self.was_read:
                continue
            with open(os.path.join(self.shim.folder, name)) as file:
                looks = json.load(file)
            if len(looks) >= FIRST_LOOKS:
                self.was_read.add(name)
                self.looks += looks

    def facts(self):
        try:
            if len(self.looks) < MOST_LOOKS:
                self.read_workers()
            return {"batches": self.found()} if self.looks else {}
        except (OSError, ValueError):
            return {}

    def found(self):
        """Sums the looks up. Batches of an evaluation, which want no gradients, count where no others
        are."""
        looks = [look for look in self.looks if look["wants_gradients"]] or self.looks
        worst = max(looks, key=lambda look: look["workers_class"])
        return {
            "workers_class": worst["workers_class"],
            "reason": worst["reason"],
            "seconds": sorted(look["seconds"] for look in looks)[len(looks) // 2],
            "bytes": max(look["bytes"] for look in looks),
            "looks": len(looks),
        }
