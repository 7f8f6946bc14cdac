"""The shim of the folder SHIM without torch: what MODE asks of it. Prints "as expected"."""
import gc
import json
import os
import sys
import tempfile
import threading

SHIM, MODE = sys.argv[1:]


def load(name):
    import importlib.util

    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, os.path.join(SHIM, name + ".py"))
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


class Marker:
    """Stands for an optimizer, and for the iterator of a loader without workers."""

    _num_workers = 0


class Garbage:
    """Its finalizer does within a collection, wherever that runs, what a program might."""

    def __init__(self, shim, marker):
        self.itself, self.shim, self.marker = self, shim, marker

    def __del__(self):
        self.shim.next_flush = 0
        self.shim.waited(self.marker, load("ridge_shim").clock())


def threads(folder, steps=20000):
    """One thread steps, two wait for data, and collections run at any place of all."""
    os.environ["RIDGE_SHIM_STEPS"] = "0"
    sys.setswitchinterval(1e-6)
    load("ridge_shim").MOST_ROWS = 1 << 60  # none is left out where the writer has no processor
    shim = load("ridge_shim").Shim(folder, load)
    marker, iterator = Marker(), Marker()
    is_begun, is_over = threading.Event(), threading.Event()

    def step():
        # Steps count from the first that finds the lock free, and a thread that holds it may wait long.
        shim.stepped(marker, "optimizer")
        is_begun.set()
        for _ in range(steps - 1):
            shim.stepped(marker, "optimizer")

    def wait_for_data():
        while not is_over.is_set():
            shim.next_flush = 0
            shim.waited(iterator, load("ridge_shim").clock())
            Garbage(shim, iterator)
            if len(shim.spans.rows) > 5000:
                shim.write()

    others = [threading.Thread(target=wait_for_data) for _ in range(2)]
    gc.set_threshold(50)
    stepping = threading.Thread(target=step)
    stepping.start()
    is_begun.wait()
    for thread in others:
        thread.start()
    stepping.join()
    is_over.set()
    for thread in others:
        thread.join()
    shim.end()
    with open(os.path.join(folder, "facts_%d.json" % os.getpid())) as file:
        facts = json.load(file)
    assert facts["steps"] == steps, facts
    assert not facts["notes"], facts["notes"]
    with open(os.path.join(folder, "spans_%d.json" % os.getpid())) as file:
        spans = json.load(file)["traceEvents"]
    found = [(row["ts"], row["name"]) for row in spans if row["name"].startswith("Step#")]
    numbers = [int(name[5:]) for _, name in found]
    assert sorted(numbers) == list(range(2, steps + 1)), (len(numbers), len(set(numbers)))
    assert [name for _, name in sorted(found)] == ["Step#%d" % n for n in sorted(numbers)]


def text_file(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as file:
        file.write(text)


def room(folder):
    """A recording takes a part of what is free, and there is none where that is too little."""
    profile, mib = load("ridge_profile"), 1 << 20
    profile.PROC, profile.GROUPS = folder + "/proc", folder + "/group"
    disk = 100 << 30
    profile.free_disk = lambda _: disk
    assert profile.bytes_for("/tmp/x") == (profile.MOST_BYTES, ""), "nothing is known"

    text_file(profile.PROC + "/meminfo", "MemTotal: 9 kB\nMemAvailable:  2097152 kB\nHuge: 0\n")
    assert profile.bytes_for("/tmp/x") == (512 * mib, "")
    # The second group's limit counts beside its own one's "max"; what is cached can be given up.
    text_file(profile.PROC + "/self/cgroup", "3:cpu:/a\n0::/jobs/one\nbroken\n")
    text_file(profile.GROUPS + "/jobs/one/memory.max", "max\n")
    text_file(profile.GROUPS + "/jobs/memory.max", "%d\n" % (1000 * mib))
    text_file(profile.GROUPS + "/jobs/memory.current", "%d\n" % (900 * mib))
    text_file(profile.GROUPS + "/jobs/memory.stat", "anon 1\ninactive_file %d\n" % (300 * mib))
    assert profile.bytes_for("/tmp/x") == (100 * mib, "")
    text_file(profile.GROUPS + "/jobs/memory.current", "%d\n" % (1200 * mib))
    assert profile.bytes_for("/tmp/x") == (25 * mib, "failed: only 100 MiB of memory are free")
    text_file(profile.GROUPS + "/jobs/memory.current", "%d\n" % (2000 * mib))
    assert profile.bytes_for("/tmp/x") == (0, "failed: only 0 MiB of memory are free")

    text_file(profile.PROC + "/self/cgroup", "4:memory:/old\n")
    old = profile.GROUPS + "/memory/old/memory."
    text_file(old + "limit_in_bytes", "%d" % (800 * mib))
    text_file(old + "usage_in_bytes", "%d" % (400 * mib))
    assert profile.bytes_for("/tmp/x") == (100 * mib, "")
    disk = 120 * mib
    assert profile.bytes_for("/tmp/x") == (60 * mib, "")
    disk = 20 * mib
    assert profile.bytes_for("/tmp/x") == (10 * mib, "failed: only 20 MiB are free in '/tmp'")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        {"threads": threads, "room": room}[MODE](place)
    print("as expected")
