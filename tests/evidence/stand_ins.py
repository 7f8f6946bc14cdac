"""A bundle of stand-ins: programs that answer as Ridge's do, or fail as they are told to.

What they are told is in the environment: STAND_IN is JSON, {"train:cuda": "hang", ...}, by verb and
device or by verb alone; STAND_IN_LOG takes a line for each program that was started.
"""

import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
FAKE_CUDA = os.environ["RIDGE_FAKE_CUDA"]
REVISION = "0123456789abcdef0123456789abcdef01234567"

COMMON = """#!{python} -B
import json, os, pathlib, signal, sys, time
words = sys.argv[1:]

def behave(*names):
    told = json.loads(os.environ.get("STAND_IN", "{{}}"))
    with open(os.environ["STAND_IN_LOG"], "a") as log:
        log.write(" ".join([pathlib.Path(sys.argv[0]).name, *words]) + "\\n")
    how = next((told[name] for name in names if name in told), "fine")
    if how == "refuse":
        sys.exit(print("note: one\\nerror: cuda:0 cannot multiply in bf16; take f32", file=sys.stderr) or 2)
    if how == "driver":
        print("error: CUDA: cuMemAlloc failed: out of memory (CUDA_ERROR_OUT_OF_MEMORY)", file=sys.stderr)
        sys.exit(2)
    if how == "refuse with a place":
        host = os.uname().nodename
        print(f"error: {{host}}: cannot read '/home/someone/x.bin' ({{host}})", file=sys.stderr)
        sys.exit(2)
    if how == "crash":
        print("all of it is lost", file=sys.stderr, flush=True)
        os.kill(os.getpid(), 9)
    if how == "garbage":
        print("{{]")
        sys.exit(0)
    if how == "odd":
        print('{{"schema": "of something else"}}')
        sys.exit(0)
    if how == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if how in ("hang", "stubborn"):
        # A child of its own, that would outlive it.
        if os.fork() == 0:
            print("", end="", flush=True)
        with open(os.environ["STAND_IN_LOG"] + ".hanging", "a") as file:
            file.write(f"{{os.getpid()}}\\n")
        time.sleep(600)
    return how
"""

RIDGE = """
verb = words[0]
device = words[words.index("--device") + 1] if "--device" in words else "cpu"
name = pathlib.Path(words[1]).stem if verb == "train" else ""
how = behave(f"{verb}:{name}:{device}", f"{verb}:{device}", f"{verb} {words[1]}", verb)
if verb == "train":
    if "--out" in words:
        out = pathlib.Path(words[words.index("--out") + 1])
        out.mkdir(parents=True)
        exact = "model.dtype=f64" in words
        apart = 0 if exact else 1e-6 if device == "cpu" else 5e-6 if how == "far" else 2e-6
        with open(out / "metrics.jsonl", "w") as file:
            for step in range(1, 21):
                file.write(json.dumps({"step": step, "loss": 2.5 + apart}) + "\\n")
            file.write(json.dumps({"step": 20, "eval_loss": 2.0}) + "\\n")
    if "--trace" in words:
        pathlib.Path(words[words.index("--trace") + 1]).write_text("[]")
    captured = "train.capture=on" in words and how == "other"
    print(json.dumps({"schema": "ridge.train/1", "state_hash": "b" * 16 if captured else "a" * 16}))
elif verb == "doctor":
    print(json.dumps({"input": {"cpu_only": how == "cpu only"}, "step_ms": {"mean": 10.0},
                      "breakdown_ms": {"busy": 9.0 if how == "idle" else 9.9}}))
    sys.exit(1)
elif verb == "inspect":
    times = [{"name": "library", "seconds": 2e-3}, {"name": "printed", "seconds": 4e-3}]
    kernel = {"op": "matmul", "site": "a", "pick": "library", "flops": 8e9, "bytes": 4e6, "candidates": times}
    alone = {"op": "fused", "site": "b", "pick": "printed", "flops": 1e6, "bytes": 4e6,
             "candidates": [{"name": "printed", "seconds": 1e-3}, {"name": "expanded", "note": "op by op"}]}
    print(json.dumps({"entries": [{"kernels": [alone] if how == "alone" else [kernel, alone, kernel]}]}))
elif verb == "optimize":
    out = pathlib.Path(words[words.index("--out") + 1])
    out.mkdir(parents=True)
    (out / "ledger.jsonl").write_text("{}\\n")
    low = 2.9 if how == "slow" else 3.1
    print(json.dumps({"claim": {"speedup": 3.5, "lo": low, "hi": 4.0}, "baseline": {}, "result": {},
                      "recipe": "train.precision = 'bf16'", "seconds": 1.0,
                      "trials": [{"technique": "bf16", "verdict": "kept"}]}))
elif verb == "ledger":
    print(json.dumps({"schema": "ridge.ledger.replay/1", "speedup": 3.4, "lo": 3.2, "hi": 3.6}))
"""

TEST_OPS = """
how = behave("test_ops")
for op in ("add", "matmul", "gather"):
    print(f"[ RUN      ] AllOps/RegistryWalk.OpIsComplete/{op}", flush=True)
    good = op != "matmul" or how != "wrong"
    if not good:
        print(f"registry_test.cc:30: Failure\\nFailed\\nop '{op}', sample 'x': no kernel on 'cuda'")
    print(f"[  {'     OK' if good else 'FAILED '} ] AllOps/RegistryWalk.OpIsComplete/{op} (1 ms)", flush=True)
if how == "wrong":
    print("[  FAILED  ] AllOps/RegistryWalk.OpIsComplete/matmul")
if how == "slow":
    time.sleep(600)
sys.exit(how == "wrong")
"""

TRAINING_STEP = """
how = behave("steps")
steps = int(sys.stdin.readline())
print(json.dumps({"planned": 300 << 20, "state": 1, "threads": 1, "parameters": []}))
taken = (330 if how == "more" else 303) << 20
print(json.dumps({"seconds": 1.0, "loss": 2.5, "measured": taken}))
"""

PICTURES = """
behave("pictures")
pathlib.Path(words[0]).mkdir()
"""

PYTHON = """
if words[0] == "-B":
    words = words[1:]
if words[0] == "-c":
    told = json.loads(os.environ.get("STAND_IN", "{}")).get("torch", "fine")
    facts = {"python": "3.12.3", "wheels": "/nowhere", "torch": "2.15", "sees_gpu": told == "fine"}
    if told == "none":
        facts = {"python": "3.12.3", "wheels": "/nowhere", "problem": "ModuleNotFoundError: torch"}
    print(json.dumps(facts))
    sys.exit(0)
script = pathlib.Path(words[0]).stem
how = behave(script, "peer")
out = pathlib.Path(words[words.index("--json") + 1])
samples = {"ridge": [100.0, 101.0], "eager": [600.0, 601.0], "compile": [110.0, 111.0]}
if how == "refused":
    words = "error: [matmul] bf16 is not there yet on cuda; take f32"
    result = {"config": "x", "refused": words, "exit_code": 2}
elif how == "broke":
    words = "error: CUDA: cuLaunchKernel failed: unspecified launch failure (CUDA_ERROR_LAUNCH_FAILED)"
    result = {"config": "x", "refused": words, "exit_code": 2}
elif script == "training_step":
    ratio = {"eager": 6.0, "compile": 0.9 if how == "slower" else 1.1}
    result = {
        "config": "x", "step_ms": {n: v[0] for n, v in samples.items()}, "samples_ms": samples,
        "best_peer": "compile", "without": {}, "tokens_per_s": {"ridge": 655360.0},
        "ratios": {n: {"median": r, "low": r - 0.05, "high": r + 0.05} for n, r in ratio.items()},
        "flops_utilisation": {"ridge": 0.57}, "peak_bytes": {"ridge": 6 << 30, "eager": 10 << 30},
    }
else:
    result = {"share_of_copy": {"median": 0.85, "low": 0.8, "high": 0.9}, "copy_bytes_per_s": 4.3e12,
              "peer_share": {"eager": 0.4}, "bytes_per_s": {"ridge": [1.0, float("nan")]}}
out.write_text(json.dumps({"torch": "2.15", "results": [result]}))
"""

SANITIZER = """
tool = words[words.index("--tool") + 1]
how = behave(tool, "sanitizer")
print("========= COMPUTE-SANITIZER")
if how == "blind":
    sys.exit(print("========= Error: Device not supported") or 1)
if how != "quiet":
    print(f"========= {'ERROR' if tool == 'memcheck' else 'RACECHECK'} SUMMARY: {int(how == 'finds')} errors")
sys.exit(86 if how == "finds" else 0)
"""

PROGRAMS = {
    "bin/ridge": RIDGE,
    "bin/test_ops": TEST_OPS,
    "bin/bench_training_step": TRAINING_STEP,
    "bin/make_jpeg_folder": PICTURES,
}


def program(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(COMMON.format(python=sys.executable) + text)
    path.chmod(0o755)


class Bundle:
    """In `folder`: bundle/, evidence/ for the results, and the log of what was started."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.root = self.folder / "bundle"
        self.out = self.folder / "evidence"
        self.json = self.out / "nvidia-fake-9000.json"
        self.log = self.folder / "log"
        self.temporary = self.folder / "tmp"
        self.temporary.mkdir()
        for path, text in PROGRAMS.items():
            program(self.root / path, text)
        program(self.folder / "python", PYTHON)
        program(self.folder / "path" / "compute-sanitizer", SANITIZER)
        (self.root / "bench").mkdir()
        for script in (ROOT / "bench").glob("gpu_*.py"):
            shutil.copy(script, self.root / "bench")
        (self.root / "tools").mkdir()
        shutil.copy(ROOT / "tools" / "make_table", self.root / "tools")
        self.write_manifest()

    def write_manifest(self, revision=REVISION):
        (self.root / "MANIFEST.json").unlink(missing_ok=True)
        files = {
            str(path.relative_to(self.root)): {"sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
            for path in self.root.rglob("*")
            if path.is_file()
        }
        manifest = {"schema": "ridge.bundle/1", "revision": revision, "files": files}
        (self.root / "MANIFEST.json").write_text(json.dumps(manifest))

    def words(self, *options):
        command = [sys.executable, self.root / "bench" / "gpu_evidence.py", "--out", self.out]
        return [*command, "--python", self.folder / "python", *options]

    def environment(self, told=None, **variables):
        return {
            **os.environ,
            "PATH": f"{self.folder / 'path'}:{os.environ['PATH']}",
            "RIDGE_CUDA_DRIVER": FAKE_CUDA,
            "STAND_IN": json.dumps(told or {}),
            "STAND_IN_LOG": str(self.log),
            "TMPDIR": str(self.temporary),
            **variables,
        }

    def start(self, *options, told=None, limit_file=None, **variables):
        def limits():
            if limit_file is not None:
                import resource

                resource.setrlimit(resource.RLIMIT_FSIZE, (limit_file, limit_file))

        return subprocess.Popen(
            self.words(*options),
            env=self.environment(told, **variables),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=limits,
        )

    def run(self, *options, **more):
        """(exit code, stdout, stderr)"""
        process = self.start(*options, **more)
        out, err = process.communicate(timeout=120)
        return process.returncode, out, err

    def document(self):
        return json.loads(self.json.read_text())

    def tasks(self, part):
        return {task["name"]: task for task in self.document()["parts"][part]["tasks"]}

    def start_hanging(self, *options, told):
        """Starts it, and waits until one of its programs hangs."""
        pathlib.Path(str(self.log) + ".hanging").unlink(missing_ok=True)
        process = self.start(*options, told=told)
        for _ in range(1200):
            if self.hanging():
                return process
            time.sleep(0.05)
        process.kill()
        raise AssertionError("no program hangs")

    def started(self):
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        self.log.unlink(missing_ok=True)
        return lines

    def hanging(self):
        """The processes that hang, or did."""
        file = pathlib.Path(str(self.log) + ".hanging")
        return [int(line) for line in file.read_text().split()] if file.exists() else []
