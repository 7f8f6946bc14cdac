"""Whether the engine's numbers, its memory and its replays on this GPU are right."""

import json
import shutil
import sys

from gpu_tasks import MIB, Outcome, missing, passed_if

STEPS = 20  # of a loss table

# What the examples read, in a bundle.
FASHION = "{root}/data/fashion-mnist/t10k"
IDX = [f"data.path={FASHION}-images-idx3-ubyte.gz", f"data.labels={FASHION}-labels-idx1-ubyte.gz"]
IDX += ["data.eval_path=", "data.eval_labels=", "data.eval_fraction=0.01"]
TEXT = ["data.path={root}/ridge", 'data.extensions=[".h", ".cc"]']
# At the usual scale the first steps overflow and are skipped, and f64 skips none.
FP16 = [*TEXT, "train.precision=fp16", "train.loss_scale=256"]


# ---- losses


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
        gpu, result = loss_table(context, name, config, context.device, own)
        cpu, _ = loss_table(context, name, config, "cpu", own)
        exact_flags = [flag for flag in own if not flag.startswith(("train.precision=", "train.loss_scale="))]
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


# ---- replays, memory, idle


def replay(context):
    """A captured step, launched again and again, against one launched kernel by kernel."""
    hashes = {}
    for capture in ("off", "on"):
        result = context.run_json(
            context.ridge(
                "train", context.root / "bench/configs/gpt_tiny.toml", "--device", context.device,
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
    """What the driver counts, from just before the arena to step 50, against the plan. Step 3 is told
    beside it: what libraries load when they first run is there by then."""
    words = [context.bin / "bench_training_step", context.root / "bench/configs/gpt_small.toml"]
    ended = context.run_well([*words, "1", context.work, f"train.device={context.device}"], says="3\n47\n")
    try:
        about, early, last = (json.loads(line) for line in ended.out.splitlines())
        planned, measured, first = int(about["planned"]), int(last["measured"]), int(early["measured"])
    except (ValueError, KeyError, TypeError) as error:
        raise Outcome("failed", f"bench_training_step printed something else: {error!r}") from error
    allowed = max(planned / 100, 8 * MIB)
    return passed_if(
        abs(measured - planned) <= allowed,
        f"{measured / MIB:.1f} MiB taken at step 50, {first / MIB:.1f} at step 3, {planned / MIB:.1f}"
        f" planned, {allowed / MIB:.1f} allowed between them",
        planned_bytes=planned,
        measured_bytes=measured,
        measured_bytes_at_step_3=first,
    )


def idle(context):
    """The share of a steady step of GPT-2 in which the GPU has nothing to run, from the kernels of
    its captured steps."""
    trace = context.work / "trace.json"
    config = context.root / "bench/gpu/gpt2_124m.toml"
    context.run_well(
        context.ridge(
            "train", config, "--device", context.device, "--steps", "14", "--trace", trace,
            "--set", "tune=false",
        )
    )  # fmt: skip
    # 1: it found something to say about the trace.
    report = context.run_json(context.ridge("doctor", trace, "--json"), codes=(0, 1))
    try:
        if report["input"]["cpu_only"]:
            raise missing("the trace of the run has no kernels of the GPU: CUPTI told nothing")
        step, busy = report["step_ms"]["mean"], report["breakdown_ms"]["busy"]
        share = 1 - busy / step
    except (KeyError, TypeError, ZeroDivisionError) as error:
        raise Outcome("failed", f"ridge doctor printed something else: {error!r}") from error
    is_replayed = b'"graph node id"' in trace.read_bytes()
    return passed_if(
        share <= 0.02,
        f"{share:.1%} of a step of {step:.3g} ms, wanted 2 % at most"
        + ("" if is_replayed else "; launched one by one, not captured"),
        idle_share=share,
        is_replayed=is_replayed,
        step_ms=report["step_ms"],
        breakdown_ms=report["breakdown_ms"],
    )
