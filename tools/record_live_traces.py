#!/usr/bin/env python3
"""Records the programs of tests/attach/programs as the doctor sees a live program.

For each: NAME.trace.json.gz (torch.profiler, 8 steps), NAME.spans.json.gz (steps and what cost
time in them, as ridge/attach/shim.h has it), NAME.facts.json (the fields of LiveFacts), and with
--stacks NAME.stacks.json.gz (one more step, with the frames of the interpreter).

tests/data/traces/live has sick_loop by --profiled 3 --stacks: 8 steps of it take a megabyte.

Usage: record_live_traces.py OUT [NAME ...] [--seconds N] [--cpus N] [--profiled N] [--stacks]
"""

import argparse
import gzip
import json
import os
import pathlib
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAMS = ROOT / "tests" / "attach" / "programs"
MOST_MARKS = 3000
NANOSECONDS = 1e9


# ---- within the program ----

class Recorder:
    """Marks steps and what is known to cost time, and profiles some steps in the middle."""

    def __init__(self, folder, warm_seconds, profiled, with_stacks):
        import torch
        self.torch = torch
        self.folder = folder
        self.warm_seconds = warm_seconds
        self.spans = []
        self.step = 0
        self.begun = None
        self.profiler = None
        self.plan = [("trace", profiled, False)] + [("stacks", 1, True)] * with_stacks
        self.facts = {"torch_threads": -1, "batch": -1, "loader_workers": -1,
                      "step_source": "optimizer"}
        self.install()
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
            pass  # the first one imports the whole compiler
        self.first = time.monotonic()

    def span(self, name, begun, ended):
        self.spans.append({"ph": "X", "cat": "user_annotation", "name": name, "pid": os.getpid(),
                           "tid": os.getpid(), "ts": begun / 1e3, "dur": (ended - begun) / 1e3})

    def timed(self, owner, name, label):
        inner = getattr(owner, name)

        def outer(*args, **kwargs):
            begun = time.time_ns()
            try:
                return inner(*args, **kwargs)
            finally:
                self.span(label, begun, time.time_ns())

        setattr(owner, name, outer)

    def install(self):
        torch = self.torch
        from torch.optim.optimizer import register_optimizer_step_post_hook
        from torch.utils.data import dataloader
        self.timed(dataloader._SingleProcessDataLoaderIter, "__next__", "DataLoader.__next__")
        self.timed(dataloader._MultiProcessingDataLoaderIter, "__next__",
                   "DataLoader.__next__ (workers)")
        self.timed(torch, "save", "torch.save")
        made = torch.utils.data.DataLoader.__init__

        def makes(loader, *args, **kwargs):
            made(loader, *args, **kwargs)
            self.facts["batch"] = loader.batch_size or -1
            self.facts["loader_workers"] = loader.num_workers

        torch.utils.data.DataLoader.__init__ = makes
        register_optimizer_step_post_hook(lambda *_: self.stepped())

    def stepped(self):
        now = time.time_ns()
        if self.begun is not None:
            self.span(f"Step#{self.step}", self.begun, now)
        self.step += 1
        self.facts["torch_threads"] = self.torch.get_num_threads()
        if self.profiler is None and self.plan and self.step > 10 and \
                time.monotonic() - self.first > self.warm_seconds:
            self.profile(now)
        elif self.profiler is not None and self.left > 0:
            self.left -= 1
            self.profiler.step()
            if self.left == 0:
                self.finish()
        self.begun = time.time_ns()

    def profile(self, now):
        profile = self.torch.profiler
        self.profiling_since = now
        self.name, steps, with_stack = self.plan.pop(0)
        self.left = steps + 1
        self.profiler = profile.profile(
            activities=[profile.ProfilerActivity.CPU], record_shapes=True, with_stack=with_stack,
            schedule=profile.schedule(wait=0, warmup=1, active=steps, repeat=1))
        self.profiler.start()

    def finish(self):
        self.profiler.stop()
        self.profiler.export_chrome_trace(str(self.folder / f"{self.name}.json"))
        self.profiler = None
        self.span("ridge profiling", self.profiling_since, time.time_ns())

    def write(self):
        (self.folder / "spans.json").write_text(
            "[" + "".join(json.dumps(span) + ",\n" for span in self.spans))
        (self.folder / "facts.json").write_text(json.dumps(self.facts))


def run_recorded(folder, warm_seconds, profiled, with_stacks, program, *words):
    import runpy
    sys.argv = [program, *words]
    sys.path[0] = str(PROGRAMS)
    recorder = Recorder(
        pathlib.Path(folder), float(warm_seconds), int(profiled), int(with_stacks))
    try:
        runpy.run_path(program, run_name="__main__")
    finally:
        recorder.write()


# ---- outside of it ----

def thread_times(pid):
    """Seconds that each thread ran, and was ready without a processor."""
    times = {}
    for task in pathlib.Path(f"/proc/{pid}/task").glob("*"):
        try:
            ran, waited, _ = (task / "schedstat").read_text().split()
        except (OSError, ValueError):
            continue
        times[int(task.name)] = (int(ran) / NANOSECONDS, int(waited) / NANOSECONDS)
    return times


def sample(process, after, facts):
    """Over what is left of the run `after` seconds from its start."""
    time.sleep(after)
    begun, first, last = time.monotonic(), thread_times(process.pid), {}
    ended = begun
    while process.poll() is None:
        now = thread_times(process.pid)
        if process.pid in now:
            last, ended = now, time.monotonic()
        time.sleep(0.2)
    seconds = ended - begun
    if seconds <= 0:
        return
    ran = waited = 0
    for thread, (run, wait) in last.items():
        run_before, wait_before = first.get(thread, (0, 0))
        ran += run - run_before
        waited += wait - wait_before
    main = [b - a for a, b in zip(first[process.pid], last[process.pid])]
    facts.update(seconds=round(seconds, 3), main_cpu=round(main[0] / seconds, 4),
                 main_queue=round(main[1] / seconds, 4), queue=round(waited / seconds, 4),
                 used_cpus=round(ran / seconds, 4), busy_threads=round((ran + waited) / seconds, 4))


def record(name, out, given):
    folder = out / f"{name}.d"
    folder.mkdir(parents=True, exist_ok=True)
    words = [sys.executable, __file__, "--child", str(folder), str(given.seconds / 3),
             str(given.profiled), str(int(given.stacks)), str(PROGRAMS / f"{name}.py"), "--seconds", str(given.seconds)]
    facts = {"cpus": given.cpus or len(os.sched_getaffinity(0)), "quota_cpus": -1, "throttled": -1}
    with subprocess.Popen(words, env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}) as process:
        watcher = threading.Thread(target=sample, args=(process, given.seconds / 2 + 2, facts))
        watcher.start()
        process.wait()
        watcher.join()
    facts.update(json.loads((folder / "facts.json").read_text()))
    for part in ("trace", "spans") + ("stacks",) * given.stacks:
        data = (folder / f"{part}.json").read_bytes()
        data = shortened(data) if part == "spans" else stripped(data)
        with gzip.GzipFile(out / f"{name}.{part}.json.gz", "wb", 9, mtime=0) as file:
            file.write(data)
        (folder / f"{part}.json").unlink()
    (folder / "facts.json").unlink()
    folder.rmdir()
    (out / f"{name}.facts.json").write_text(json.dumps(facts, indent=1) + "\n")


def shortened(data):
    """Of many marks those around the profile."""
    rows = data.splitlines(keepends=True)
    profile = [i for i, row in enumerate(rows) if b"ridge profiling" in row]
    begin = max(0, (profile[0] if profile else 0) - MOST_MARKS // 2)
    kept = rows[begin:begin + MOST_MARKS]
    return (b"" if begin == 0 else b"[") + b"".join(kept)


def stripped(data):
    """Without what names the machine, and without what takes room and tells nothing."""
    trace = json.loads(data)
    events = [event for event in trace["traceEvents"]
              if event["ph"] == "X" and __file__ not in event["name"]]
    first = int(min(event["ts"] for event in events))
    for event in events:
        event["ts"] = round(event["ts"] - first, 1)
        event["dur"] = round(event["dur"], 1)
        args = event.pop("args", {})
        kept = {key: args[key] for key in ("Input Dims", "CallFrom") if key in args and __file__ not in args[key]}
        if kept:
            event["args"] = kept
    base = trace["baseTimeNanoseconds"] + 1000 * first
    return json.dumps({"schemaVersion": 1, "baseTimeNanoseconds": base, "traceEvents": events},
                      separators=(",", ":")).encode()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--seconds", type=float, default=9)
    parser.add_argument("--cpus", type=int, help="that the programs are said to have")
    parser.add_argument("--profiled", type=int, default=8, help="steps")
    parser.add_argument("--stacks", action="store_true", help="of one more step")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    programs = sorted(path.stem for path in PROGRAMS.glob("*.py") if path.stem != "program")
    for name in given.names or programs:
        record(name, given.out, given)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        run_recorded(*sys.argv[2:])
    else:
        main()
