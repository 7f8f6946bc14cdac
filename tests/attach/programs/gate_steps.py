"""Steps without torch, held by the real gate: MODE of what goes on between them, STEPS of them.

Writes how many it made into ./steps, as they go. With "timed" nothing takes time but by a clock of its
own, so that what the gate measures is the same on every machine; SEED is that of its noise.
"""
import importlib.util
import os
import queue
import random
import subprocess
import sys
import threading
import time

FOLDER = os.environ["PYTHONPATH"].split(":")[0]
STEP = 0.001 * float(os.environ.get("SLOWER", "1"))  # seconds
BATCH = 0.005


def load(name):
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, os.path.join(FOLDER, name + ".py"))
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


class Clock:
    """Stands still but for what steps are said to take: a hundredth more or less each."""

    def __init__(self, seed):
        self.random, self.ns = random.Random(seed), 10**9

    def __call__(self):
        return self.ns

    def step(self):
        self.ns += int(STEP * 1e9 * self.random.uniform(0.99, 1.01))


class Optimizer:
    """All that the shim wants of one is that it stays the same."""


class Iterator:
    """What the gate looks at in torch's iterator of a loader with two workers; here one thread."""

    def __init__(self, batches):
        self._prefetch_factor, self._num_workers, self._shutdown = 2, 2, False
        self._workers_status = [True, True]
        self._task_info, self._data_queue, self._num_yielded = {}, queue.Queue(), 0
        self.batches, self.sent, self.tasks = batches, 0, queue.Queue()
        threading.Thread(target=self.work, args=(self.tasks, self._data_queue), daemon=True).start()
        for _ in range(4):
            self.send()

    @staticmethod
    def work(tasks, done):
        while True:
            number = tasks.get()
            time.sleep(BATCH)
            done.put(number)

    def send(self):
        if self.sent < self.batches:
            self._task_info[self.sent] = (self.sent % 2,)
            self.tasks.put(self.sent)
            self.sent += 1

    def next(self):
        if not self._task_info:
            return False
        del self._task_info[self._data_queue.get()]
        self._num_yielded += 1
        self.send()
        return True


class Module:
    _MultiProcessingDataLoaderIter = Iterator


def steps(shim, count):
    marker = Optimizer()
    with open("steps", "w") as said:
        for step in range(1, count + 1):
            yield step
            said.seek(0)
            said.write("%d\n" % step)
            said.flush()
            shim.stepped(marker, os.environ.get("SOURCE", "optimizer"))


def batches(shim, epoch):
    while True:
        shim.iterations += 1
        iterator = Iterator(epoch)
        while iterator.next():
            yield


def main():
    mode, count = sys.argv[1], int(sys.argv[2])
    if mode == "children":
        env = dict(os.environ, MODE="child")
        children = []
        for number in range(3):
            os.mkdir("child%d" % number)
            words = [sys.executable, os.path.abspath(__file__), "plain", str(count)]
            children.append(subprocess.Popen(words, env=env, cwd="child%d" % number))
        sys.exit(max(child.wait() for child in children))
    clock = None
    if mode == "timed":
        clock = load("ridge_shim").clock = Clock(os.environ.get("SEED", "0"))
    shim = load("ridge_shim").Shim(FOLDER, load)
    part = shim.parts[-1]
    if clock is not None:
        load("ridge_gate").clock = clock
    if mode in ("loader", "epochs", "rounds"):
        part.hook_loader(Module)
        data = batches(shim, {"loader": 10**9, "epochs": 20, "rounds": 3}[mode])
    for step in steps(shim, count):
        if mode in ("loader", "epochs", "rounds"):
            next(data)
        elif mode == "alone":
            shim.iterations += 1
        elif mode == "breaks" and step % 10 == 0:
            shim.saves += 1
            time.sleep(0.02)
        elif mode == "crash" and step == 7:
            raise ValueError("broken on purpose")
        elif mode == "hang" and step == 30:
            time.sleep(1000)
        elif mode == "nonsense" and step == 5:
            part.connection.send(b'{"block":{"steps":-1}}')
        elif mode == "silent" and step == 5:
            part.close()
        elif mode == "orphan" and step == 1:
            subprocess.Popen(["sleep", "1000"], start_new_session=True)
        if clock is None:
            time.sleep(STEP)
        else:
            clock.step()
    shim.end()


main()
