"""What `ridge optimize` gains on this GPU, and whether its claim holds when it is timed again."""

from gpu_tasks import Outcome, missing, passed_if

OPTIMIZE_BUDGET, REPLAY_BUDGET = 325, 95


def range_text(claim):
    if claim.get("lo") is None:
        return f"{claim['speedup']:.2f} times as fast, without an interval"
    return f"{claim['speedup']:.2f} ({claim['lo']:.2f} to {claim['hi']:.2f}) times as fast"


def optimize(context):
    found = context.run_json(
        context.ridge(
            "optimize", context.root / "bench/gpu/gpt_naive.toml", "--device", context.device,
            "--budget", str(min(OPTIMIZE_BUDGET, int(context.left()) - 20)),
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
