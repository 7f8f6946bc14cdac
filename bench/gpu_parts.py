"""What each part of the evidence measures: `right`, `fast`, `loop`.

A task is a function of the context; it gives a state, a line that says what was seen, and the
values. What the engine refuses (exit code 2) is `missing`, in its own words; what breaks, or misses
its bound, is `failed`.
"""

import json
import os
import pathlib
import re
import shutil
import sys
import time

from gpu_runs import Runs

DEVICE = "cuda"
STEPS = 20  # of a loss table
SANITIZER_FAILED = 86  # an exit code that neither ridge nor a test has
MIB = 1 << 20


class Outcome(Exception):
    """How a task ends: its state, a line, what was measured. It is returned, or raised from within."""

    def __init__(self, state, says, **values):
        super().__init__(says)
        self.state, self.says, self.values = state, says, values


def passed_if(good, says, **values):
    return Outcome("passed" if good else "failed", says, **values)


def missing(says, **values):
    return Outcome("missing", says, **values)


def ended_with(program, code, words):
    """Of a program that did not do its work: with 2 it refused to, unless the GPU's driver did."""
    if code == 2 and "CUDA_ERROR_" not in words:
        return missing(f"{program}: {words}")
    return Outcome("failed", f"{program} ended with {code}: {words}")


class Context:
    """Where the bundle lies, where tasks may write, and what was done before in the same part."""

    def __init__(self, root, work, deadline, environment, python, python_problem):
        self.root, self.work = pathlib.Path(root), pathlib.Path(work)
        self.bin = self.root / "bin"
        self.runs = Runs(work, deadline, environment)
        self.python = python  # that has PyTorch, if any
        self.python_problem = python_problem  # why it has none; empty where it has
        self.ends = deadline  # of the task that runs
        self.done = {}  # tasks of this part by name

    def run(self, words, **options):
        """Runs a program within the task's time; what did not end by itself ends the task."""
        ended = self.runs.run(words, max(0.0, self.ends - time.monotonic()), **options)
        if ended.is_late:
            raise missing(f"out of time: {os.path.basename(words[0])} was stopped after {ended.seconds:.0f} s")
        return ended

    def run_well(self, words, codes=(0,), **options):
        """The same where any other exit code ends the task, too."""
        ended = self.run(words, **options)
        if ended.code in codes:
            return ended
        raise ended_with(os.path.basename(words[0]), ended.code, ended.words())

    def run_json(self, words, codes=(0,), **options):
        """What it prints, as one JSON object."""
        ended = self.run_well(words, codes, **options)
        try:
            value = json.loads(ended.out)
        except ValueError as error:
            raise Outcome("failed", f"{os.path.basename(words[0])} printed no JSON: {error}") from error
        if not isinstance(value, dict):
            raise Outcome("failed", f"{os.path.basename(words[0])} printed no JSON object")
        return value

    def ridge(self, *words):
        return [self.bin / "ridge", *words]


# ---- right: registry


GTEST_LINE = re.compile(r"^\[\s+(OK|FAILED|SKIPPED)\s+\] \w+/RegistryWalk\.OpIsComplete/(\w+)", re.M)


def registry_verdicts(text):
    """{op: passed}, and the first line that says why of each that failed."""
    verdicts, reasons, at = {}, {}, 0
    for found in GTEST_LINE.finditer(text):
        name = found[2]
        if name not in verdicts:  # failed ones are listed once more at the end
            verdicts[name] = found[1] == "OK"
            said = re.search(r"^op '.*$", text[at : found.start()], re.M)
            if said and not verdicts[name]:
                reasons[name] = said[0][:300]
        at = found.end()
    return verdicts, reasons


def registry(context):
    words = [context.bin / "test_ops", "--gtest_filter=AllOps/RegistryWalk.*", "--gtest_color=no"]
    try:
        ended = context.run(words, RIDGE_TEST_DEVICE=DEVICE)
    except Outcome as late:
        # What was walked by then is in the file of its output.
        text = (context.work / f"{context.runs.count}.out").read_text(errors="replace")
        verdicts, reasons = registry_verdicts(text)
        raise missing(
            f"{late.says}; by then {sum(verdicts.values())} of {len(verdicts)} ops were right",
            ops=verdicts,
            reasons=reasons,
        ) from late
    verdicts, reasons = registry_verdicts(ended.out)
    if not verdicts:
        raise Outcome("failed", f"the walk ended with {ended.code} before its first op: {ended.words()}")
    if ended.code not in (0, 1):
        raise Outcome("failed", f"the walk ended with {ended.code}: {ended.words()}", ops=verdicts)
    wrong = [name for name, good in verdicts.items() if not good]
    shown = ", ".join(wrong[:6]) + (", ..." if len(wrong) > 6 else "")
    return passed_if(
        not wrong and ended.code == 0,
        f"{len(verdicts) - len(wrong)} of {len(verdicts)} ops agree with `ref`"
        + (f"; not {shown}" if wrong else ""),
        ops=verdicts,
        reasons=reasons,
    )


# ---- right: losses


def loss_table(context, name, config, device, flags):
    """Losses of the first steps, from equal parameters on equal batches."""
    out = context.work / f"{name}-{device}-{len(context.done)}-{context.runs.count}"
    flags = ["train.eval_every=1000000", "metrics.every=1", *flags]
    words = [word for flag in flags for word in ("--set", flag)]
    result = context.run_json(
        context.ridge(
            "train", context.root / config, "--device", device, "--steps", str(STEPS),
            "--out", out, "--json", *words,
        )
    )  # fmt: skip
    losses = []
    for line in (out / "metrics.jsonl").read_text().splitlines():
        row = json.loads(line)
        if "loss" in row:
            losses.append(row["loss"])
    shutil.rmtree(out, ignore_errors=True)  # its checkpoints would fill the disk
    if len(losses) != STEPS or not all(isinstance(each, float) for each in losses):
        raise Outcome("failed", f"{len(losses)} losses of {STEPS} steps on {device}")
    return losses, result


def largest(a, b):
    return max(abs(x - y) for x, y in zip(a, b))


def compare_losses(name, config, flags=()):
    """The GPU may be no further from f64 than three times what the CPU's f32 is: both round, in
    another order."""

    def task(context):
        own = [flag.format(root=context.root, work=context.work) for flag in flags]
        # A step's time is no matter here, nor are kernels picked by it.
        own.append("tune=false")
        gpu, result = loss_table(context, name, config, DEVICE, own)
        cpu, _ = loss_table(context, name, config, "cpu", own)
        exact_flags = [flag for flag in own if not flag.startswith("train.precision=")]
        exact, _ = loss_table(context, name, config, "cpu", [*exact_flags, "model.dtype=f64"])
        apart, allowed = largest(gpu, exact), 3 * largest(cpu, exact)
        return passed_if(
            apart <= allowed,
            f"{apart:.2e} from f64 at most in {STEPS} steps, allowed {allowed:.2e};"
            f" {largest(gpu, cpu):.2e} from the CPU",
            losses={"cuda": gpu, "cpu": cpu, "cpu_f64": exact},
            state_hash=result.get("state_hash"),
        )

    return task


def make_table(context):
    """What examples/mlp_table.toml reads."""
    table = context.work / "table.csv"
    if not table.exists():
        context.run_well([sys.executable, "-B", context.root / "tools" / "make_table", table])


def make_pictures(context):
    pictures = context.work / "pictures"
    if not pictures.exists():
        context.run_well([context.bin / "make_jpeg_folder", pictures, "24"])


def after(make, task):
    def both(context):
        make(context)
        return task(context)

    return both


# ---- right: replays, memory, idle


def replay(context):
    """A captured step, launched again and again, against one launched kernel by kernel."""
    hashes = {}
    for capture in ("off", "on"):
        result = context.run_json(
            context.ridge(
                "train", context.root / "bench/configs/gpt_tiny.toml", "--device", DEVICE,
                "--steps", "50", "--json", "--set", f"train.capture={capture}",
            )
        )  # fmt: skip
        hashes[capture] = result.get("state_hash")
    return passed_if(
        hashes["on"] is not None and hashes["on"] == hashes["off"],
        f"state after 50 steps: captured {hashes['on']}, launch by launch {hashes['off']}",
        **hashes,
    )


def memory(context):
    """What the driver counts, from just before the arena to step 50, against the plan."""
    words = [context.bin / "bench_training_step", context.root / "bench/configs/gpt_small.toml"]
    ended = context.run_well([*words, "1", context.work, f"train.device={DEVICE}"], says="50\n")
    try:
        about, last = (json.loads(line) for line in ended.out.splitlines())
        planned, measured = int(about["planned"]), int(last["measured"])
    except (ValueError, KeyError, TypeError) as error:
        raise Outcome("failed", f"bench_training_step printed something else: {error!r}") from error
    allowed = max(planned / 100, 8 * MIB)
    return passed_if(
        abs(measured - planned) <= allowed,
        f"{measured / MIB:.1f} MiB taken at step 50, {planned / MIB:.1f} planned,"
        f" {allowed / MIB:.1f} allowed between them",
        planned_bytes=planned,
        measured_bytes=measured,
    )


def idle(context):
    """The share of a steady step in which the GPU has nothing to run."""
    trace = context.work / "trace.json"
    config = context.root / "bench/configs/gpt_small.toml"
    context.run_well(
        context.ridge("train", config, "--device", DEVICE, "--steps", "30", "--trace", trace)
    )
    # 1: it found something to say about the trace.
    report = context.run_json(context.ridge("doctor", trace, "--json"), codes=(0, 1))
    try:
        if report["input"]["cpu_only"]:
            raise missing("the trace of the run has no kernels of the GPU: CUPTI told nothing")
        step, busy = report["step_ms"]["mean"], report["breakdown_ms"]["busy"]
        share = 1 - busy / step
    except (KeyError, TypeError, ZeroDivisionError) as error:
        raise Outcome("failed", f"ridge doctor printed something else: {error!r}") from error
    return passed_if(
        share <= 0.02,
        f"{share:.1%} of a step of {step:.3g} ms, wanted 2 % at most",
        idle_share=share,
        step_ms=report["step_ms"],
        breakdown_ms=report["breakdown_ms"],
    )


# ---- right: NVIDIA's sanitizer


def sanitizer(tool):
    def task(context):
        program = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
        if not os.access(program, os.X_OK):
            raise missing("compute-sanitizer is not on this machine; it comes with the CUDA toolkit")
        ended = context.run(
            [
                program, "--tool", tool, "--error-exitcode", str(SANITIZER_FAILED),
                *context.ridge("train", context.root / "bench/configs/gpt_tiny.toml"),
                "--device", DEVICE, "--steps", "3", "--json", "--set", "tune=false",
            ]
        )  # fmt: skip
        found = re.search(r"(?:ERROR|RACECHECK) SUMMARY: (.*)", ended.out + ended.err)
        if ended.code == 2:
            raise ended_with("ridge", ended.code, ended.words())
        if not found:
            # It could not watch the program: its own reason is what there is to say.
            said = [line for line in (ended.out + ended.err).splitlines() if line.startswith("=")]
            raise missing(f"{tool} gave no summary: {said[-1][:200] if said else ended.words()}")
        if ended.code not in (0, SANITIZER_FAILED):
            raise Outcome("failed", f"ridge ended with {ended.code} under {tool}: {ended.words()}")
        return passed_if(ended.code == 0, f"three steps of gpt_tiny: {found[1]}")

    return task


# ---- fast


def training_steps(name, rounds, stretch, goal):
    """Steps of bench/gpu/NAME.toml in turn with PyTorch."""

    def task(context):
        out = context.work / f"{name}.json"
        context.run_well(
            [
                context.python, "-B", context.root / "bench/training_step.py", "--device", DEVICE,
                "--rounds", str(rounds), "--stretch", str(stretch), "--json", out,
                context.root / f"bench/gpu/{name}.toml",
            ]
        )  # fmt: skip
        result = json.loads(out.read_text())["results"][0]
        if "refused" in result:
            raise ended_with("bench_training_step", result["exit_code"], result["refused"])
        return goal(result)

    return task


def against_compile(result):
    peer = "compile" if "compile" in result["step_ms"] else result["best_peer"]
    ratio, step = result["ratios"][peer], result["step_ms"]
    utilisation = result.get("flops_utilisation", {}).get("ridge")
    says = (
        f"{ratio['median']:.2f} ({ratio['low']:.2f} to {ratio['high']:.2f}) times as fast as {peer},"
        f" wanted 1.0: {step['ridge']:.2f} ms a step, {result['tokens_per_s']['ridge']:.0f} tokens/s"
    )
    if utilisation is not None:
        says += f", {utilisation:.1%} of peak FLOP/s"
    if peer != "compile":
        says += f"; torch.compile has no number: {result['without'].get('compile', 'not asked for')}"
    return passed_if(peer == "compile" and ratio["median"] >= 1.0, says, **result)


def against_eager(result):
    if "eager" not in result["ratios"]:
        raise missing(f"PyTorch eager has no number: {result['without'].get('eager')}", **result)
    ratio, step = result["ratios"]["eager"], result["step_ms"]
    return passed_if(
        ratio["median"] >= 5,
        f"{ratio['median']:.2f} ({ratio['low']:.2f} to {ratio['high']:.2f}) times as fast as eager,"
        f" wanted 5: {step['ridge']:.3f} ms a step, eager {step['eager']:.3f}",
        **result,
    )


def peak_memory(context):
    """Of the GPT-2 steps that were measured before."""
    steps = context.done.get("step.gpt2_124m")
    peaks = (steps or {}).get("values", {}).get("peak_bytes", {})
    if not peaks.get("ridge") or not peaks.get("eager"):
        raise missing("the steps of GPT-2 have no peak of both Ridge and eager")
    share = peaks["ridge"] / peaks["eager"]
    return passed_if(
        share <= 0.7,
        f"{share:.2f} of PyTorch eager's, wanted 0.7 at most: {peaks['ridge'] / MIB:.0f} MiB,"
        f" eager {peaks['eager'] / MIB:.0f}",
        peak_bytes=peaks,
    )


def row_ops(chain, dtype):
    """Forward and backward as a share of the bandwidth of PyTorch's copy in the same run."""

    def task(context):
        out = context.work / f"{chain}-{dtype}.json"
        context.run_well(
            [
                context.python, "-B", context.root / "bench/row_ops.py", "--device", DEVICE,
                "--dtype", dtype, "--json", out, chain,
            ]
        )  # fmt: skip
        result = json.loads(out.read_text())["results"][0]
        if "refused" in result:
            raise ended_with("bench_row_ops", result["exit_code"], result["refused"])
        share = result["share_of_copy"]
        peers = ", ".join(f"{name} {each:.0%}" for name, each in result["peer_share"].items())
        # By the kernels of the CPU's bits, and by the fastest, which `ridge optimize` proposes.
        fastest = result.get("fastest_share_of_copy") or share
        return passed_if(
            max(share["median"], fastest["median"]) >= 0.8,
            f"{share['median']:.0%} ({share['low']:.0%} to {share['high']:.0%}) of a copy's"
            f" {result['copy_bytes_per_s'] / 1e9:.0f} GB/s, wanted 80 %; kernels of any bits"
            f" {fastest['median']:.0%}; {peers}",
            **result,
        )

    return task


def ladder(entries):
    """The kinds of nodes that have several kernels, by the time that the pick takes of all: what each
    kernel takes, and its rate of operations and of bytes."""
    kinds = {}
    for entry in entries:
        for launch in entry["kernels"]:
            times = {each["name"]: each["seconds"] for each in launch["candidates"] if each.get("seconds")}
            if len(times) < 2:
                continue
            # Layers share a measurement, so equal times are of the same node.
            kind = kinds.setdefault((launch["op"], tuple(times.items())), {
                "op": launch["op"], "site": launch["site"], "launches": 0, "pick": launch["pick"],
                "flops": launch["flops"], "bytes": launch["bytes"], "kernels": {},
            })  # fmt: skip
            kind["launches"] += 1
            for name, seconds in times.items():
                kind["kernels"][name] = {
                    "seconds": seconds,
                    "tflops_per_s": launch["flops"] / seconds * 1e-12,
                    "gb_per_s": launch["bytes"] / seconds * 1e-9,
                }

    def taken(kind):
        return kind["launches"] * kind["kernels"][kind["pick"]]["seconds"]

    return sorted(kinds.values(), key=taken, reverse=True)


def kernels(context):
    """Each kernel of ours beside the libraries' on the nodes of GPT-2, timed alone."""
    config = context.root / "bench/gpu/gpt2_124m.toml"
    found = context.run_json(
        context.ridge(
            "inspect", config, "--plan", "--device", DEVICE, "--set", "train.kernels=fastest", "--json"
        )
    )
    try:
        kinds = ladder(found["entries"])
    except (KeyError, TypeError) as error:
        raise Outcome("failed", f"ridge inspect printed something else: {error!r}") from error
    if not kinds:
        raise missing("no node of GPT-2 has two kernels on this machine")
    best = [
        f"{kind['op']} {kind['kernels'][kind['pick']]['tflops_per_s']:.0f} TFLOP/s by {kind['pick']}"
        for kind in kinds[:3]
    ]
    return passed_if(True, f"{len(kinds)} kinds of nodes with several kernels: {', '.join(best)}", kinds=kinds)


def needs_torch(task):
    def checked(context):
        if context.python_problem:
            raise missing(context.python_problem)
        return task(context)

    return checked


# ---- loop


OPTIMIZE_BUDGET, REPLAY_BUDGET = 240, 60


def range_text(claim):
    if claim.get("lo") is None:
        return f"{claim['speedup']:.2f} times as fast, without an interval"
    return f"{claim['speedup']:.2f} ({claim['lo']:.2f} to {claim['hi']:.2f}) times as fast"


def optimize(context):
    found = context.run_json(
        context.ridge(
            "optimize", context.root / "bench/gpu/gpt_naive.toml", "--device", DEVICE,
            "--budget", str(min(OPTIMIZE_BUDGET, int(context.runs.left()) - 20)),
            "--set", f"data.path={context.root}/ridge", "--out", context.work / "optimize", "--json",
        )
    )  # fmt: skip
    try:
        claim, baseline, result = found["claim"], found["baseline"], found["result"]
        kept = [trial["technique"] for trial in found["trials"] if trial.get("verdict") == "kept"]
        good = bool(found["recipe"]) and claim["lo"] is not None and claim["lo"] >= 3
        says = f"{range_text(claim)}, wanted 3, proven; kept: {', '.join(kept) or 'nothing'}"
    except (KeyError, TypeError) as error:
        raise Outcome("failed", f"ridge optimize printed something else: {error!r}") from error
    values = {"claim": claim, "baseline": baseline, "result": result, "recipe": found["recipe"]}
    return passed_if(good, says, **values, trials=found["trials"], seconds=found.get("seconds"))


def ledger_replay(context):
    ledger = context.work / "optimize" / "ledger.jsonl"
    claim = context.done.get("optimize", {}).get("values", {}).get("claim")
    if not claim or not ledger.exists():
        raise missing("`ridge optimize` left no ledger in this run")
    # 1: it was not faster.
    again = context.run_json(
        context.ridge("ledger", "replay", ledger, "--budget", str(REPLAY_BUDGET), "--json"),
        codes=(0, 1),
    )
    try:
        says, low = f"{range_text(again)} when timed again", again["lo"]
    except (KeyError, TypeError) as error:
        raise Outcome("failed", f"ridge ledger printed something else: {error!r}") from error
    return passed_if(low is not None and low > 1, says, **again)


# ---- the parts: (name, task, the most seconds that it may take)

FASHION = "{root}/data/fashion-mnist/t10k"
IDX = [f"data.path={FASHION}-images-idx3-ubyte.gz", f"data.labels={FASHION}-labels-idx1-ubyte.gz"]
IDX += ["data.eval_path=", "data.eval_labels=", "data.eval_fraction=0.01"]
TEXT = ["data.path={root}/ridge", 'data.extensions=[".h", ".cc"]']

RIGHT = [
    ("losses.mlp_table", after(make_table, compare_losses("mlp_table", "examples/mlp_table.toml", ["data.path={work}/table.csv"])), 60),
    ("losses.fashion_mnist", compare_losses("fashion_mnist", "examples/fashion_mnist.toml", IDX), 90),
    ("losses.gpt_text", compare_losses("gpt_text", "examples/gpt_text.toml", TEXT), 90),
    ("losses.jpeg_folder", after(make_pictures, compare_losses("jpeg_folder", "examples/jpeg_folder.toml", ["data.path={work}/pictures"])), 90),
    ("losses.gpt_text.bf16", compare_losses("gpt_text_bf16", "examples/gpt_text.toml", [*TEXT, "train.precision=bf16"]), 90),
    ("losses.gpt_text.fp16", compare_losses("gpt_text_fp16", "examples/gpt_text.toml", [*TEXT, "train.precision=fp16"]), 90),
    ("replay", replay, 60),
    ("memory", memory, 60),
    ("idle", idle, 60),
    ("registry", registry, 240),
    ("memcheck", sanitizer("memcheck"), 120),
    ("racecheck", sanitizer("racecheck"), 120),
]  # fmt: skip

FAST = [
    ("step.gpt2_124m", needs_torch(training_steps("gpt2_124m", 7, 3, against_compile)), 240),
    ("memory.gpt2_124m", peak_memory, 5),
    ("step.launch_bound", needs_torch(training_steps("gpt_launch_bound", 9, 1, against_eager)), 120),
    *(
        (f"{chain}.{dtype}", needs_torch(row_ops(chain, dtype)), 60)
        for dtype in ("bf16", "f32")
        for chain in ("norm", "softmax", "cross_entropy")
    ),
    ("kernels", kernels, 120),
]

LOOP = [("optimize", optimize, 360), ("ledger_replay", ledger_replay, 120)]

TASKS = {"right": RIGHT, "fast": FAST, "loop": LOOP}
