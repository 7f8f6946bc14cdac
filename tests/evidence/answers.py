"""What stand-ins for the programs of a bundle print, as they are told. It imports little: each
stand-in that is a process starts with it."""

import json
import os

HANGS = float("inf")


class End:
    def __init__(self, code=0, out="", err="", seconds=1.0, how="fine"):
        self.code, self.out, self.err, self.seconds, self.how = code, out, err, seconds, how


def failure(how):
    """The end of a program that is told to fail in a way that any may; None: it is not."""
    host = os.uname().nodename
    ends = {
        "refuse": End(2, "", "note: one\nerror: cuda:0 cannot multiply in bf16; take f32\n"),
        "driver": End(2, "", "error: CUDA: cuMemAlloc failed: out of memory (CUDA_ERROR_OUT_OF_MEMORY)\n"),
        "kernel": End(2, "", "error: CUDA: unspecified launch failure (CUDA_ERROR_LAUNCH_FAILED)\n"),
        "no compiler": End(2, "", "error: [nvrtc] cannot open the compiler: libnvrtc.so.13 is not there\n"),
        "full": End(2, "", "error: cannot write the trace: No space left on device\n"),
        "refuse with a place": End(2, "", f"error: {host}: cannot read '/home/someone/x.bin' ({host})\n"),
        "crash": End(-9, "", "all of it is lost\n"),
        "garbage": End(0, "{]\n"),
        "odd": End(0, '{"schema": "of something else"}\n'),
        "hang": End(0, "it began\n", "", HANGS),
        "stubborn": End(0, "it began\n", "", HANGS),
    }
    end = ends.get(how)
    if end is not None:
        end.how = how
    return end


def word_after(words, name, other=None):
    return words[words.index(name) + 1] if name in words else other


def how_of(told, *names):
    return next((told[name] for name in names if name in told), "fine")


def text(value):
    return json.dumps(value) + "\n"


def stem(path):
    return os.path.basename(path).partition(".")[0]


def train(words, how):
    device = word_after(words, "--device", "cpu")
    if "--out" in words:
        out = word_after(words, "--out")
        os.makedirs(out)
        exact = "model.dtype=f64" in words
        apart = 0 if exact else 1e-6 if device == "cpu" else 5e-6 if how == "far" else 2e-6
        with open(os.path.join(out, "metrics.jsonl"), "w") as file:
            for step in range(1, 21):
                file.write(text({"step": step, "loss": 2.5 + apart}))
            file.write(text({"step": 20, "eval_loss": 2.0}))
    if "--trace" in words:
        with open(word_after(words, "--trace"), "w") as file:
            file.write("[]" if how == "launched" else '[{"args": {"graph node id": 1}}]')
    captured = "train.capture=on" in words and how == "other"
    return End(0, text({"schema": "ridge.train/1", "state_hash": ("b" if captured else "a") * 16}))


def inspect(how):
    times = [{"name": "library", "seconds": 2e-3}, {"name": "printed", "seconds": 4e-3}]
    kernel = {"op": "matmul", "site": "a", "pick": "library", "flops": 8e9, "bytes": 4e6, "candidates": times}
    alone = {"op": "fused", "site": "b", "pick": "printed", "flops": 1e6, "bytes": 4e6,
             "candidates": [{"name": "printed", "seconds": 1e-3}, {"name": "expanded", "note": "op by op"}]}  # fmt: skip
    launches = [alone] if how == "alone" else [kernel, alone, kernel]
    return End(0, text({"entries": [{"kernels": launches}]}))


def device_facts(told):
    if end := failure(how_of(told, "facts")):
        return end
    libraries = [{"name": "NVRTC", "version": "13.0", "path": "/usr/lib/libnvrtc.so.13"},
                 {"name": "cuDNN", "path": None}]  # fmt: skip
    return End(0, text({"hardware": "Fake 9000, sm_90", "libraries": libraries, "notes": ["no cuDNN"]}))


def optimize(words, how):
    out = word_after(words, "--out")
    os.makedirs(out)
    with open(os.path.join(out, "ledger.jsonl"), "w") as file:
        file.write("{}\n")
    low = 2.9 if how == "slow" else 3.1
    return End(0, text({"claim": {"speedup": 3.5, "lo": low, "hi": 4.0}, "baseline": {}, "result": {},
                        "recipe": "train.precision = 'bf16'", "seconds": 1.0,
                        "trials": [{"technique": "bf16", "verdict": "kept"}]}))  # fmt: skip


def ridge(words, environment, told):
    verb = words[0]
    device = word_after(words, "--device", "cpu")
    name = stem(words[1])
    own = "own" if environment.get("RIDGE_CUBLASLT") == "none" else "libraries"
    precision = next((w.partition("=")[2] for w in words if w.startswith("train.precision=")), "f32")
    how = how_of(told, f"{verb}:{name}:{precision}:{own}", f"{verb}:{name}:{device}", f"{verb}:{device}",
                 f"{verb} {words[1]}", verb)  # fmt: skip
    if end := failure(how):
        if environment.get("CUDA_LAUNCH_BLOCKING"):
            end.err += "error: blocking: kernel 'mul' failed\n"
        return end
    if verb == "train":
        return train(words, how)
    if verb == "doctor":
        return End(1, text({"input": {"cpu_only": how == "cpu only"}, "step_ms": {"mean": 10.0},
                            "breakdown_ms": {"busy": 9.0 if how == "idle" else 9.9}}))  # fmt: skip
    if verb == "inspect":
        return inspect(how)
    if verb == "optimize":
        return optimize(words, how)
    return End(0, text({"schema": "ridge.ledger.replay/1", "speedup": 3.4, "lo": 3.2, "hi": 3.6}))


def test_ops(environment, told):
    """Of each process its share, as GoogleTest cuts it."""
    how = how_of(told, "test_ops")
    if end := failure(how):
        return end
    assert environment["GTEST_OUTPUT"] == ""
    count, index = int(environment["GTEST_TOTAL_SHARDS"]), int(environment["GTEST_SHARD_INDEX"])
    out, code = "", 0
    for op in ("add", "matmul", "gather")[index::count]:
        out += f"[ RUN      ] AllOps/RegistryWalk.OpIsComplete/{op}\n"
        good = op != "matmul" or "wrong" not in how
        if not good:
            code = 1
            out += f"registry_test.cc:30: Failure\nFailed\nop '{op}', sample 'x': no kernel on 'cuda'\n"
        out += f"[  {'     OK' if good else 'FAILED '} ] AllOps/RegistryWalk.OpIsComplete/{op} (1 ms)\n"
    if code:
        out += "[  FAILED  ] AllOps/RegistryWalk.OpIsComplete/matmul\n"
    return End(code, out, "", HANGS if "slow" in how else 1.0)


def training_step(says, told):
    how = how_of(told, "steps")
    if end := failure(how):
        return end
    taken = (330 if how == "more" else 303) << 20
    rows = [{"planned": 300 << 20, "state": 1, "threads": 1, "parameters": []}]
    rows += [{"seconds": 1.0, "loss": 2.5, "measured": taken} for _ in says().split()]
    return End(0, "".join(map(text, rows)))


REFUSED = {"config": "x", "refused": "error: [matmul] bf16 is not there yet on cuda; take f32", "exit_code": 2}
BROKE = {
    "config": "x",
    "refused": "error: CUDA: cuLaunchKernel failed: unspecified launch failure (CUDA_ERROR_LAUNCH_FAILED)",
    "exit_code": 2,
}


def step_rows(how):
    samples = {"ridge": [100.0, 101.0], "eager": [600.0, 601.0], "compile": [110.0, 111.0]}
    ratio = {"eager": 6.0, "compile": 0.9 if how == "slower" else 1.1}
    if how != "cut":
        samples.update(ridge_same_bits=[120.0], max_autotune=[105.0])
        ratio["max_autotune"] = 1.05
    return [{
        "config": "x", "step_ms": {n: v[0] for n, v in samples.items()}, "samples_ms": samples,
        "best_peer": "compile", "without": {}, "tokens_per_s": {"ridge": 655360.0},
        "ratios": {n: {"median": r, "low": r - 0.05, "high": r + 0.05} for n, r in ratio.items()},
        "flops_utilisation": {"ridge": 0.57}, "peak_bytes": {"ridge": 6 << 30, "eager": 10 << 30},
    }]  # fmt: skip


def chain_rows(how):
    def row(chain):
        share = {"median": 0.85, "low": 0.8, "high": 0.9}
        return {"chain": chain, "share_of_copy": share, "copy_bytes_per_s": 4.3e12,
                "peer_share": {"eager": 0.4}, "bytes_per_s": {"ridge": [1.0, float("nan")]}}  # fmt: skip

    return [row(chain) for chain in (("norm",) if how == "cut" else ("norm", "softmax", "cross_entropy"))]


def python(words, told):
    """The two scripts that need PyTorch, and what makes a table."""
    words = words[1:] if words[0] == "-B" else words
    script = stem(words[0])
    if script == "make_table":
        with open(words[1], "w") as file:
            file.write("1," * 200000)
        return End()
    if words[0] == "-c":
        facts = {"python": "3.12.3", "wheels": "/nowhere", "torch": "2.15", "sees_gpu": True}
        return End(0, text(facts))
    how = how_of(told, script, "peer")
    if end := failure(how):
        return end
    rows = step_rows(how) if script == "training_step" else chain_rows(how)
    if how in ("refused", "broke"):
        rows = [{"refused": REFUSED, "broke": BROKE}[how]]
    with open(word_after(words, "--json"), "w") as file:
        file.write(text({"torch": "2.15", "results": rows}))
    return End(0, "", "", HANGS if how == "cut" else 1.0)


def sanitizer(words, told):
    tool = word_after(words, "--tool")
    how = how_of(told, tool, "sanitizer")
    if end := failure(how):
        return end
    out = "========= COMPUTE-SANITIZER\n"
    if how == "blind":
        return End(1, out + "========= Error: Device not supported\n")
    if how == "finds":
        out += "========= Invalid __global__ write of size 2 bytes\n=========     at mul_mma+0x1f0\n"
    if how != "quiet":
        out += f"========= {'RACECHECK' if tool == 'racecheck' else 'ERROR'} SUMMARY: {int(how == 'finds')} errors\n"
    return End(86 if how == "finds" else 0, out)


def answer(argv, environment, says, told):
    """How the program `argv` ends; `says` gives what it is told on stdin."""
    program, words = os.path.basename(argv[0]), list(argv[1:])
    if program == "ridge":
        return ridge(words, environment, told)
    if program == "test_ops":
        return test_ops(environment, told)
    if program == "bench_training_step":
        return training_step(says, told)
    if program == "bench_device_facts":
        return device_facts(told)
    if program == "compute-sanitizer":
        return sanitizer(words, told)
    if program == "make_jpeg_folder":
        os.makedirs(words[0])
        return End()
    return python(words, told)
