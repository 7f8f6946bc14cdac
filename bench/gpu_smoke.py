"""Whether the engine runs at all on this GPU, and what it runs there: the first thing to look at.

`smoke` takes a minute at most: the driver and the libraries, and three steps of a tiny GPT in each
way that a step can run. `memcheck`, `racecheck`, `synccheck` and `initcheck` are NVIDIA's, over the
kernels of 16 bits that no library replaces; `registry` holds every op against the reference.
"""

import json
import os
import re
import shutil

from gpu_tasks import Outcome, ended_with, missing, passed_if

SMOKE_RUN = 12  # seconds of one run of three steps, most of them compiling
SMOKE_PLAN = 20  # of picking kernels: all that are offered are compiled and timed
LEAST_LEFT = 1  # seconds under which no run of it is begun
SANITIZER_FAILED = 86  # an exit code that neither ridge nor a test has
MOST_REPORT = 20_000  # characters of a sanitizer's report in the results; all of it is in the logs
MOST_SHARDS = 8  # processes of the registry walk

# What keeps the libraries out: then all kernels are Ridge's own.
OWN = {"RIDGE_CUBLASLT": "none", "RIDGE_CUDNN": "none"}
KERNELS = {"own": OWN, "libraries": {}}
TINY = "bench/configs/gpt_tiny.toml"
# In f32 the first kernel that is offered for each node runs. In 16 bits those run that timing picks,
# as in a user's run, and the head has columns of padding, as few vocabularies are multiples of 64.
KEYS = {
    "f32": ["train.precision=f32", "tune=false"],
    "bf16": ["train.precision=bf16", "model.vocab=4099", "data.classes=4099"],
}


def settings(precision):
    return [word for key in KEYS[precision] for word in ("--set", key)]


# ---- smoke


def picks_of(report):
    """[site, op, kernel] of each launch of a plan."""
    return [
        [launch["site"], launch["op"], launch["pick"]]
        for entry in report["entries"]
        for launch in entry["kernels"]
    ]


class Smoke:
    """Runs of one call of `smoke`: what each way did, and in its own words what it did not do."""

    def __init__(self, context):
        self.context = context
        self.facts, self.picks, self.runs, self.wrong = {}, {}, {}, []

    def train(self, precision, capture, environment):
        words = self.context.ridge(
            "train", self.context.root / TINY, "--device", self.context.device, "--steps", "3", "--json",
            "--set", f"train.capture={capture}", *settings(precision),
        )  # fmt: skip
        return self.context.runs.run(words, min(SMOKE_RUN, self.context.left()), **environment)

    def ask(self):
        """What the engine finds: the device, libraries with version and path, and what it does without."""
        words = [self.context.bin / "bench_device_facts", self.context.device]
        ended = self.context.runs.run(words, min(SMOKE_RUN, self.context.left()))
        try:
            if ended.code != 0 or ended.is_late:
                raise ValueError("it was stopped" if ended.is_late else ended.words())
            self.facts = json.loads(ended.out)
        except ValueError as error:
            self.wrong.append(f"facts: {error}")

    def inspect(self, name, precision, environment):
        """The kernel that is picked for each node. The runs behind it take these from the cache."""
        if self.context.left() < LEAST_LEFT:
            self.wrong.append(f"plan of {name}: no time was left")
            return
        words = self.context.ridge(
            "inspect", self.context.root / TINY, "--plan", "--json", "--device", self.context.device,
            *settings(precision),
        )  # fmt: skip
        ended = self.context.runs.run(words, min(SMOKE_PLAN, self.context.left()), **environment)
        try:
            if ended.code != 0 or ended.is_late:
                raise ValueError("it was stopped" if ended.is_late else ended.words())
            self.picks[name] = picks_of(json.loads(ended.out))
        except (ValueError, KeyError, TypeError) as error:
            self.wrong.append(f"plan of {name}: {error}")

    def run(self, name, precision, capture, environment):
        """One way to run, and once more with launches that wait where it fails: which one it was."""
        if self.context.left() < LEAST_LEFT:
            self.wrong.append(f"{name}: no time was left")
            return None
        ended = self.train(precision, capture, environment)
        says = f"stopped after {ended.seconds:.0f} s" if ended.is_late else ended.words()
        row = {"seconds": round(ended.seconds, 2), "code": ended.code}
        if ended.code == 0 and not ended.is_late:
            try:
                row["state_hash"] = json.loads(ended.out).get("state_hash")
            except (ValueError, AttributeError):
                says = "it printed no JSON"
        if not row.get("state_hash"):
            row.update(says=says, tail=ended.tail())
            self.wrong.append(f"{name}: {says}")
            if self.context.left() >= LEAST_LEFT:
                again = self.train(precision, capture, {**environment, "CUDA_LAUNCH_BLOCKING": "1"})
                row.update(blocking=again.words(), blocking_tail=again.tail())
        self.runs[name] = row
        return row.get("state_hash")

    def all(self):
        self.ask()
        for precision in KEYS:
            for kernels, environment in KERNELS.items():
                name = f"{precision}.{kernels}"
                if "tune=false" not in KEYS[precision]:
                    self.inspect(name, precision, environment)
                hashes = {
                    capture: self.run(f"{name}.{capture}", precision, capture, environment)
                    for capture in ("off", "on")
                }
                if all(hashes.values()) and hashes["on"] != hashes["off"]:
                    self.wrong.append(f"{name}: captured {hashes['on']}, launch by launch {hashes['off']}")


def smoke(context):
    done = Smoke(context)
    done.all()
    good = sum("state_hash" in run for run in done.runs.values())
    hardware = done.facts.get("hardware")
    says = f"{good} of 8 ways ran three steps" + (f" on {hardware}" if hardware else "")
    if done.wrong:
        says += f"; {done.wrong[0]}" + (f" (and {len(done.wrong) - 1} more)" if done.wrong[1:] else "")
    return passed_if(
        good == 8 and not done.wrong, says, facts=done.facts, runs=done.runs, wrong=done.wrong,
        picks=done.picks,
    )  # fmt: skip


# ---- NVIDIA's sanitizer


def sanitizer(tool):
    def task(context):
        program = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
        if not os.access(program, os.X_OK):
            raise missing("compute-sanitizer is not on this machine; it comes with the CUDA toolkit")
        ended = context.run(
            [
                program, "--tool", tool, "--error-exitcode", str(SANITIZER_FAILED),
                *context.ridge("train", context.root / TINY), "--device", context.device, "--steps", "3",
                # The picks are those that smoke has timed without the sanitizer.
                "--json", *settings("bf16"),
                # A report names the kernel of each launch; of a graph it would name the graph.
                "--set", "train.capture=off",
            ],
            **OWN,
        )  # fmt: skip
        said = [line for line in (ended.out + ended.err).splitlines() if line.startswith("=")]
        report = "\n".join(said)[:MOST_REPORT]
        found = re.search(r"(?:ERROR|RACECHECK) SUMMARY: (.*)", ended.out + ended.err)
        if ended.code == 2:
            raise ended_with("ridge", ended.code, ended.words(), report=report)
        if not found:
            # It could not watch the program: its own reason is what there is to say.
            reason = said[-1][:200] if said else ended.words()
            raise missing(f"{tool} gave no summary: {reason}", report=report)
        if ended.code not in (0, SANITIZER_FAILED):
            words = f"ridge ended with {ended.code} under {tool}: {ended.words()}"
            raise Outcome("failed", words, report=report, tail=ended.tail())
        return passed_if(
            ended.code == 0, f"three steps in bf16 by own kernels: {found[1]}", report=report
        )

    return task


# ---- the registry


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
    """In several processes: most of its time is that of compiling kernels. They write no file of results: as
    part of `./dev test` one of their few cases would lie where the program's own is looked for."""
    words = [context.bin / "test_ops", "--gtest_filter=AllOps/RegistryWalk.*", "--gtest_color=no"]
    shards = max(1, min(MOST_SHARDS, len(os.sched_getaffinity(0))))
    programs = [
        (
            words,
            {
                "RIDGE_TEST_DEVICE": context.device,
                "GTEST_OUTPUT": "",
                "GTEST_TOTAL_SHARDS": str(shards),
                "GTEST_SHARD_INDEX": str(i),
            },
        )
        for i in range(shards)
    ]
    verdicts, reasons, broken, late = {}, {}, [], []
    for ended in context.runs.run_beside(programs, context.left()):
        seen, why = registry_verdicts(ended.out)
        verdicts.update(seen)
        reasons.update(why)
        if ended.is_late:
            late.append(ended)
        elif ended.code not in (0, 1) or (ended.code == 1 and all(seen.values())):
            broken.append(ended)
    values = {"ops": verdicts, "reasons": reasons, "shards": shards}
    wrong = [name for name, good in verdicts.items() if not good]
    if broken:
        says = f"the walk ended with {broken[0].code}: {broken[0].words()}"
        raise Outcome("failed", says, **values, tail=broken[0].tail())
    says = f"{len(verdicts) - len(wrong)} of {len(verdicts)} ops agree with `ref`"
    if wrong:
        says += f"; not {', '.join(wrong[:6])}" + (", ..." if len(wrong) > 6 else "")
    if late:
        says += f"; out of time: the walk was stopped after {late[0].seconds:.0f} s"
        if not wrong:
            raise missing(says, **values)
    elif not verdicts:
        raise Outcome("failed", "the walk walked over no op")
    return passed_if(not wrong, says, **values)
