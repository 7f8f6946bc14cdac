#!/usr/bin/env python3
"""torch.compile(backend="ridge") in turn with PyTorch's eager mode and its Inductor, on ten models.

Each model has a process of its own per number of threads. A step of training is forward pass, loss,
backward pass and the optimizer's step (AdamW, fused, in eager for all); `of the graphs` leaves the
optimizer out. Inference runs in eval() under no_grad with a batch of 1 and of 16; Inductor freezes weights
there as Ridge does. All three run on the same parameters and data. Every round runs a stretch of steps of
each, in another order; a ratio is the time of the better of the two others over Ridge's, of medians and of
minima.

Further jobs, each in processes of their own:
  autocast  training under torch.autocast(bf16), pictures with their channels last for all; beside the three,
            Ridge's steps in f32 in the same rounds, over which a second ratio stands
  memory    the peak of resident memory in three steps of training above what the process had before its
            first one, once compiled, eager and Ridge
  compile   seconds of the first step of training with empty caches: Dynamo and AOT tracing (PyTorch's
            backend aot_eager_decomp_partition), Ridge and Inductor
  calls     processor time of the passes of a step of training, and of its programs run alone with the same
            memory; in the row `call` microseconds from AOT autograd's call of our function to its return,
            for a graph that adds 1 to tensors of one element

Usage: build/peers/bin/python bench/torch_compile.py [--threads 1,2] [--models NAME,...] [--jobs JOB,...]
           [--seconds S] [--json FILE]
"""

import argparse
import copy
import ctypes
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import torch

from torch_models import MODELS

JOBS = ("train", "autocast", "infer", "memory", "compile", "calls")
SIDES = ("eager", "inductor", "ridge")
PLAIN = "ridge in f32"
BATCHES = (1, 16)  # of inference
STRETCH = 0.05  # least seconds of a side in a round
REST = 0.05  # threads of OpenMP spin on for some 10 ms, on cores of whoever is next
LEAST_ROUNDS, MOST_ROUNDS = 5, 25
MIB = 1 << 20


def make(name, batch=None):
    """The module, and data for it."""
    torch.manual_seed(1)
    entry = MODELS[name]
    return entry.build(), entry.inputs(batch or entry.batch)


def compiled(model, side):
    """A twin of the model with the same parameters, compiled for a side."""
    if side == "eager":
        return model
    shared = {id(each): each for each in (*model.parameters(), *model.buffers())}
    return torch.compile(copy.deepcopy(model, shared), backend=side, dynamic=False)


class Training:
    """Steps of one side; seconds of the last one without and with the optimizer."""

    def __init__(self, name, model, data, side, optimizer=None, autocast=False):
        self.run, self.data, self.loss = compiled(model, side), data, MODELS[name].loss
        self.model, self.optimizer, self.autocast = model, optimizer, autocast

    def step(self):
        start = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16, enabled=self.autocast):
            loss = self.loss(self.run(**self.data))
        loss.backward()
        passes = time.perf_counter()
        if self.optimizer is not None:
            self.optimizer.step()
        for parameter in self.model.parameters():
            parameter.grad = None
        return passes - start, time.perf_counter() - start


class Inference:
    def __init__(self, model, data, side):
        self.run, self.data = compiled(model, side), data

    @torch.no_grad()
    def step(self):
        start = time.perf_counter()
        self.run(**self.data)
        seconds = time.perf_counter() - start
        return seconds, seconds


def stretch(side, count):
    """Seconds a step, the mean of `count`: of the passes, and of all."""
    steps = [side.step() for _ in range(count)]
    return tuple(sum(column) / count for column in zip(*steps))


def in_turn(sides, seconds):
    """For each side what `stretch` gave, a pair a round."""
    times, counts = {name: [] for name in sides}, {}
    for name, side in sides.items():
        for _ in range(3):
            last = side.step()[1]
        counts[name] = max(1, math.ceil(STRETCH / last))
    names, end = list(sides), time.monotonic() + seconds
    while len(times[names[0]]) < LEAST_ROUNDS or (
        time.monotonic() < end and len(times[names[0]]) < MOST_ROUNDS
    ):
        for name in names:
            time.sleep(REST)
            times[name].append(stretch(sides[name], counts[name]))
        names = names[1:] + names[:1]
    return times


def speed_row(times):
    """Milliseconds and ratios; see above."""
    row = {"rounds": len(times["ridge"])}
    for key, which in (("graphs", 0), ("all", 1)):
        part = row[key] = {}
        for word, of in (("median", statistics.median), ("least", min)):
            ms = {name: 1e3 * of(pair[which] for pair in pairs) for name, pairs in times.items()}
            best = min(ms[name] for name in ms if name in SIDES and name != "ridge")
            part[word] = {**ms, "ratio": best / ms["ridge"]}
            if PLAIN in ms:
                part[word]["over_f32"] = ms[PLAIN] / ms["ridge"]
    return row


def train(name, seconds):
    model, data = make(name)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    sides = {side: Training(name, model, data, side, optimizer) for side in SIDES}
    return [{"batch": MODELS[name].batch, **speed_row(in_turn(sides, seconds))}]


def autocast(name, seconds):
    model, data = make(name)
    data = {
        key: value.contiguous(memory_format=torch.channels_last) if value.ndim == 4 else value
        for key, value in data.items()
    }
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    sides = {side: Training(name, model, data, side, optimizer, autocast=True) for side in SIDES}
    sides[PLAIN] = Training(name, model, data, "ridge", optimizer)
    return [{"batch": MODELS[name].batch, **speed_row(in_turn(sides, seconds))}]


def infer(name, seconds):
    import torch._inductor.config

    torch._inductor.config.freezing = True
    rows = []
    for batch in BATCHES:
        torch._dynamo.reset()
        model, data = make(name, batch)
        model.eval()
        sides = {side: Inference(model, data, side) for side in SIDES}
        rows.append({"batch": batch, **speed_row(in_turn(sides, seconds))})
    return rows


def status_bytes(field):
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/self/status has no {field}")


def memory(name, side):
    """Bytes above those before the first step: at most in a step, and between steps."""
    import ridge.torch  # noqa: F401  both sides have all modules

    torch.compile(lambda x: x + 1, backend="aot_eager_decomp_partition")(torch.ones(2))
    model, data = make(name)
    training = Training(name, model, data, side)
    trim = ctypes.CDLL(None).malloc_trim
    trim(0)
    before = status_bytes("VmRSS:")
    for _ in range(2):
        training.step()
    trim(0)
    pathlib.Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    for _ in range(3):
        training.step()
    peak = status_bytes("VmHWM:")
    trim(0)
    return {"peak": peak - before, "between": status_bytes("VmRSS:") - before}


def compile_time(name, side):
    """Seconds of the first step of training; that of eager is in all."""
    import ridge.torch  # noqa: F401

    torch.compile(lambda x: x + 1, backend="aot_eager_decomp_partition")(torch.ones(2))
    model, data = make(name)
    return {"seconds": Training(name, model, data, side).step()[1]}


class Programs:
    """Stands for AtenProgram in ridge.torch: it keeps what the runs of a step take, and times our functions."""

    def __init__(self, real):
        self.real = real
        self.start()

    def start(self):
        self.seconds, self.calls, self.tensors, self.taken = 0.0, 0, 0, []

    def __call__(self, *arguments):
        program, of = self.real(*arguments), self

        class Program:
            def run(self, tensors, pieces, workspace):
                of.taken.append((program, tensors, list(pieces), workspace))
                return program.run(tensors, pieces, workspace)

            def __getattr__(self, name):
                return getattr(program, name)

        return Program()

    def run_again(self):
        """The programs alone, with the same memory."""
        for program, tensors, pieces, workspace in self.taken:
            program.run(tensors, pieces, workspace)

    def timed(self, compile_graph):
        def compile_timed(*arguments, **others):
            function = compile_graph(*arguments, **others)

            def call(args):
                self.tensors += len(args)
                start = time.perf_counter()
                result = function(args)
                self.seconds += time.perf_counter() - start
                self.tensors += len(result)
                self.calls += 1
                return result

            call._boxed_call = True
            return call

        return compile_timed


def watched():
    """From here on what is compiled is watched."""
    import ridge.torch._backend

    programs = Programs(ridge._ridge.AtenProgram)
    ridge._ridge.AtenProgram = programs
    ridge.torch._backend.compile_graph = programs.timed(ridge.torch._backend.compile_graph)
    return programs


def processor_ms(step):
    """Milliseconds of processor time a step, in a stretch of them."""
    start, count, stop = time.process_time(), 0, time.monotonic() + STRETCH
    while time.monotonic() < stop:
        step()
        count += 1
    return 1e3 * (time.process_time() - start) / count


def calls(name, seconds):
    """Processor time of a step of training, and of its programs alone, in turn; medians."""
    programs = watched()
    model, data = make(name)
    training = Training(name, model, data, "ridge")
    for _ in range(3):
        training.step()
    whole, alone, end = [], [], time.monotonic() + seconds
    while len(whole) < LEAST_ROUNDS or time.monotonic() < end:
        whole.append(processor_ms(training.step))
        programs.start()
        training.step()
        time.sleep(REST)
        alone.append(processor_ms(programs.run_again))
    row = {"processor_ms": statistics.median(whole), "programs_ms": statistics.median(alone)}
    row["ratio"] = row["processor_ms"] / row["programs_ms"]
    return {**row, "runs": programs.calls, "tensors": programs.tensors}


def call_time():
    """Microseconds of a call of a graph that adds 1 to each of some tensors of one element, kernels included."""
    programs, found = watched(), {}
    for count in (1, 101):
        torch._dynamo.reset()
        run = torch.compile(lambda *xs: [x + 1 for x in xs], backend="ridge", dynamic=False)
        inputs = [torch.ones(1) for _ in range(count)]
        times = []
        for _ in range(300):
            programs.start()
            run(*inputs)
            times.append(programs.seconds)
        found[count] = 1e6 * statistics.median(times)
    return {"us": found[1], "us_a_tensor": (found[101] - found[1]) / 200}


def child(words, folder=None):
    """What this program prints in a process of its own, with empty caches in `folder` if one is given."""
    caches = {} if folder is None else {"XDG_CACHE_HOME": folder, "TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor"}
    done = subprocess.run(
        [sys.executable, __file__, "--one", *words], env={**os.environ, **caches}, capture_output=True, text=True
    )
    if done.returncode != 0:
        return {"error": " ".join(done.stderr.strip().splitlines()[-1:])[:500]}
    return json.loads(done.stdout.splitlines()[-1])


def study(job, name, threads, seconds):
    """Rows of a job for a model."""
    words = [job, name, str(threads), str(seconds)]
    if job == "memory":
        sides = {side: child([*words, side]) for side in ("eager", "ridge")}
        rows = [sides]
    elif job == "compile":
        rows = [{}]
        for side in ("aot_eager_decomp_partition", "ridge", "inductor"):
            with tempfile.TemporaryDirectory() as folder:
                rows[0][side] = child([*words, side], folder)
    else:
        found = child(words)
        rows = found if isinstance(found, list) else [found]
    return [{"job": job, "model": name, "threads": threads, **row} for row in rows]


def one(job, name, threads, seconds, side=None):
    torch.set_num_threads(int(threads))
    if job in ("memory", "compile"):
        result = {"memory": memory, "compile": compile_time}[job](name, side)
    elif name == "call":
        result = call_time()
    else:
        result = {"train": train, "autocast": autocast, "infer": infer, "calls": calls}[job](name, float(seconds))
    print(json.dumps(result))


def text_of(row):
    head = f"{row['job']:9}{row['model']:16}{row['threads']:2}"
    parts = [row, *(each for each in row.values() if isinstance(each, dict))]
    errors = [part["error"] for part in parts if "error" in part]
    if errors:
        return f"{head}  {errors[0]}"
    if "all" in row:
        median, least = row["all"]["median"], row["all"]["least"]
        ms = "  ".join(f"{side} {median[side]:8.2f} ({least[side]:8.2f})" for side in SIDES)
        graphs = row["graphs"]["median"]["ratio"], row["graphs"]["least"]["ratio"]
        of = f"; of the graphs {graphs[0]:.2f} ({graphs[1]:.2f})" if row["job"] in ("train", "autocast") else ""
        if "over_f32" in median:
            of += f"; over f32 {median['over_f32']:.2f} ({least['over_f32']:.2f})"
        return f"{head} B={row['batch']:<3} {ms} ms  ratio {median['ratio']:.2f} ({least['ratio']:.2f}){of}"
    if row["job"] == "memory":
        eager, ridge = row["eager"], row["ridge"]
        cells = [f"{word} {ridge[word] / MIB:.0f} against {eager[word] / MIB:.0f}" for word in ("peak", "between")]
        return f"{head}  MiB: {', '.join(cells)}"
    if row["job"] == "compile":
        traced, ridge, inductor = (row[side]["seconds"] for side in ("aot_eager_decomp_partition", "ridge", "inductor"))
        return f"{head}  seconds: traced {traced:.1f}, ridge {ridge:.1f}, inductor {inductor:.1f}"
    if row["model"] == "call":
        return f"{head}  {row['us']:.1f} us + {row['us_a_tensor']:.2f} us a tensor, elements"
    return (
        f"{head}  processor {row['processor_ms']:.2f} ms, of programs {row['programs_ms']:.2f} ({row['ratio']:.3f}); "
        f"{row['runs']} calls, {row['tensors']} tensors"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--jobs", default=",".join(JOBS))
    parser.add_argument("--seconds", type=float, default=10, help="of each measurement, at most some rounds more")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--one", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        return one(*options.one)
    names, jobs = options.models.split(","), options.jobs.split(",")
    for given, known in ((names, MODELS), (jobs, JOBS)):
        if unknown := sorted(set(given) - set(known)):
            parser.error(f"there is no {unknown[0]!r}; there are {', '.join(known)}")
    rows = []
    for threads in map(int, options.threads.split(",")):
        for name in [*names, *(["call"] if "calls" in jobs else [])]:
            for job in jobs if name != "call" else ["calls"]:
                for row in study(job, name, threads, options.seconds):
                    print(text_of(row), flush=True)
                    rows.append(row)
                if options.json:
                    options.json.parent.mkdir(parents=True, exist_ok=True)
                    options.json.write_text(json.dumps({"torch": torch.__version__, "results": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
