"""How fast the engine is on this GPU, in turn with PyTorch and with a copy."""

import json

from gpu_tasks import MIB, Outcome, ended_with, missing, passed_if


def needs_torch(task):
    def checked(context):
        if context.python_problem:
            raise missing(context.python_problem)
        return task(context)

    return checked


def measured_rows(context, words, out):
    """What a script of bench/ wrote into `out` behind each row, and why it has no more of them; empty
    where it came to its end."""
    cut = ""
    try:
        context.run_well(words)
    except Outcome as early:
        if not out.exists():
            raise
        cut = early.says
    return json.loads(out.read_text())["results"], cut


# ---- steps


def training_steps(name, rounds, stretch, goal):
    """Steps of bench/gpu/NAME.toml in turn with PyTorch."""

    def task(context):
        out = context.work / f"{name}.json"
        words = [
            context.python, "-B", context.root / "bench/training_step.py", "--device", context.device,
            "--rounds", str(rounds), "--stretch", str(stretch), "--limit", f"{context.left():.0f}",
            "--json", out, context.root / f"bench/gpu/{name}.toml",
        ]  # fmt: skip
        results, cut = measured_rows(context, words, out)
        if not results:
            raise missing(f"no row was measured: {cut}")
        result = results[0]
        if "refused" in result:
            raise ended_with("bench_training_step", result["exit_code"], result["refused"])
        if cut:
            result.setdefault("without", {})["more"] = cut
        end = goal(result)
        return Outcome(end.state, f"{end.says}; then {cut}" if cut else end.says, **end.values)

    return task


def against_compile(result):
    """The main row is by the fastest kernels that are right, against torch.compile of model and loss."""
    peer = "compile" if "compile" in result["step_ms"] else result["best_peer"]
    ratio, step = result["ratios"][peer], result["step_ms"]
    utilisation = result.get("flops_utilisation", {}).get("ridge")
    says = (
        f"{ratio['median']:.2f} ({ratio['low']:.2f} to {ratio['high']:.2f}) times as fast as {peer},"
        f" wanted 1.0: {step['ridge']:.2f} ms a step, {result['tokens_per_s']['ridge']:.0f} tokens/s"
    )
    if utilisation is not None:
        says += f", {utilisation:.1%} of peak FLOP/s"
    if "max_autotune" in result["ratios"]:
        says += f"; {result['ratios']['max_autotune']['median']:.2f} of max-autotune"
    if "ridge_same_bits" in step:
        says += f"; by the CPU's bits {step['ridge_same_bits']:.2f} ms"
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


# ---- rows


def share_of(row):
    """The best of Ridge's kernels: those of the CPU's bits, or the fastest that are right."""
    fastest = row.get("fastest_share_of_copy") or row["share_of_copy"]
    return max(row["share_of_copy"], fastest, key=lambda share: share["median"])


def row_ops(dtype):
    """Norm, softmax and cross-entropy, forward and backward, as shares of the bandwidth of PyTorch's
    copy in the same run."""

    def task(context):
        out = context.work / f"rows-{dtype}.json"
        words = [
            context.python, "-B", context.root / "bench/row_ops.py", "--device", context.device,
            "--dtype", dtype, "--json", out,
        ]  # fmt: skip
        rows, cut = measured_rows(context, words, out)
        refused = [row for row in rows if "refused" in row]
        good = [row for row in rows if "refused" not in row]
        if not good:
            if refused:
                raise ended_with("bench_row_ops", refused[0]["exit_code"], refused[0]["refused"])
            raise missing(f"no row was measured: {cut}")
        shares = {row["chain"]: share_of(row) for row in good}
        says = ", ".join(
            f"{chain} {each['median']:.0%} ({each['low']:.0%} to {each['high']:.0%})"
            for chain, each in shares.items()
        )
        says += f" of a copy's {good[0]['copy_bytes_per_s'] / 1e9:.0f} GB/s, wanted 80 %"
        if refused:
            says += f"; {refused[0]['chain']}: {refused[0]['refused']}"
        if cut:
            says += f"; then {cut}"
        is_good = not refused and not cut and all(each["median"] >= 0.8 for each in shares.values())
        return passed_if(is_good, says, rows=rows)

    return task


# ---- kernels


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
    """Each kernel of ours beside the libraries' on the nodes of GPT-2, timed alone. It comes before
    the steps, which then take the picks that it has written to the cache."""
    config = context.root / "bench/gpu/gpt2_124m.toml"
    found = context.run_json(
        context.ridge(
            "inspect", config, "--plan", "--device", context.device, "--set", "train.kernels=fastest", "--json"
        )
    )
    try:
        kinds = ladder(found["entries"])
        picks = [
            [launch["site"], launch["op"], launch["pick"]]
            for entry in found["entries"]
            for launch in entry["kernels"]
        ]
    except (KeyError, TypeError) as error:
        raise Outcome("failed", f"ridge inspect printed something else: {error!r}") from error
    if not kinds:
        raise missing("no node of GPT-2 has two kernels on this machine", picks=picks)
    best = [
        f"{kind['op']} {kind['kernels'][kind['pick']]['tflops_per_s']:.0f} TFLOP/s by {kind['pick']}"
        for kind in kinds[:3]
    ]
    says = f"{len(kinds)} kinds of nodes with several kernels: {', '.join(best)}"
    return passed_if(True, says, kinds=kinds, picks=picks)
