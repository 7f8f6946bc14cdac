"""A bundle of stand-ins: programs that answer as Ridge's do, or fail as they are told to.

Most tests run them in their own process, on a clock that they set (Scripted); what is said of
processes needs real ones (Bundle.start), by the same answers. What programs are told is a table,
{"train:cuda": "hang", ...}, by verb and device or by verb alone.
"""

import hashlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tarfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
FAKE_CUDA = os.environ["RIDGE_FAKE_CUDA"]
REVISION = "0123456789abcdef0123456789abcdef01234567"

sys.path.insert(0, str(ROOT / "bench"))
import answers  # noqa: E402
import gpu_evidence  # noqa: E402
import gpu_runs  # noqa: E402

# What each real stand-in does: its answer, or what no function can do for it.
PROGRAM = """#!{python} -SB
import json, os, signal, sys, time
sys.path.insert(0, {here!r})
import answers
told = json.loads(os.environ.get("STAND_IN", "{{}}"))
end = answers.answer(sys.argv, dict(os.environ), lambda: sys.stdin.read(), told)
if end.how == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
sys.stdout.write(end.out)
sys.stdout.flush()
sys.stderr.write(end.err)
sys.stderr.flush()
if end.how == "crash":
    os.kill(os.getpid(), 9)
if end.how in ("hang", "stubborn"):
    os.fork()  # a child of its own, that would outlive it
    with open(os.environ["STAND_IN_LOG"] + ".hanging", "a") as file:
        file.write(f"{{os.getpid()}}\\n")
    time.sleep(600)
sys.exit(end.code)
"""

# Few tasks: what processes do is the same for all of them. The smoke alone starts a dozen.
FEW_TASKS = """
import gpu_runs

gpu_runs.GRACE = 0.2

def few(parts):
    names = ("losses.mlp_table", "losses.gpt_text", "replay")
    parts.TASKS["right"] = [each for each in parts.TASKS["right"] if each[0] in names]
"""


class Clock:
    """Time passes when a program runs, and else never."""

    def __init__(self):
        self.seconds = 1000.0

    def __call__(self):
        return self.seconds


class Scripted(gpu_runs.Runs):
    """Runs of programs that answer at once, in seconds of their own."""

    def __init__(self, bundle, *words):
        super().__init__(*words)
        self.bundle = bundle

    def run_beside(self, programs, limit, says=""):
        allowed, taken, ends = min(limit, self.left()), 0.0, []
        for words, more in programs:
            words = [os.fspath(word) for word in words]
            place = self.place(words)
            self.bundle.started.append(" ".join([pathlib.Path(words[0]).name, *words[1:]]))
            end = answers.answer(words, {**self.environment, **more}, lambda: says, self.bundle.told)
            is_late = end.seconds > allowed
            place.with_suffix(".out").write_text(end.out)
            place.with_suffix(".err").write_text(end.err)
            code = -signal.SIGKILL if end.how == "crash" else -signal.SIGTERM if is_late else end.code
            taken = max(taken, allowed + gpu_runs.GRACE if is_late else end.seconds)
            ends.append(gpu_runs.Ended(code, end.out, end.err, min(end.seconds, allowed), is_late))
        self.clock.seconds += taken
        return ends


class Bundle:
    """In `folder`: bundle/, evidence/ for the results, and the log of what was started."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.root = self.folder / "bundle"
        self.out = self.folder / "evidence"
        self.json = self.out / "nvidia-fake-9000.json"
        self.archive = self.out / "logs.tar.gz"
        self.log = self.folder / "log"
        self.temporary = self.folder / "tmp"
        self.temporary.mkdir()
        self.clock, self.told, self.started, self.facts = Clock(), {}, [], {}
        text = PROGRAM.format(python=sys.executable, here=str(pathlib.Path(__file__).parent))
        names = ("ridge", "test_ops", "bench_training_step", "bench_device_facts", "make_jpeg_folder")
        for path in (*(self.root / "bin" / name for name in names), self.folder / "python",
                     self.folder / "path" / "compute-sanitizer"):  # fmt: skip
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            path.chmod(0o755)
        (self.root / "bench").mkdir()
        for script in (ROOT / "bench").glob("gpu_*.py"):
            shutil.copy(script, self.root / "bench")
        (self.root / "tools").mkdir()
        (self.root / "tools" / "make_table").write_text("import sys; open(sys.argv[1], 'w').write('1,' * 200000)\n")
        (self.root / "cache" / "ridge").mkdir(parents=True)
        (self.root / "cache" / "ridge" / "kernel").write_text("compiled")
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

    # ---- in this process

    def run(self, *options, told=None):
        """The exit code of the command, run here by scripted programs."""
        self.told, self.started = told or {}, []
        options = gpu_evidence.parse(["--out", str(self.out), "--python", "python", *options])
        facts = {"python": "3.12.3", "wheels": "/nowhere", "torch": "2.15", "sees_gpu": True, **self.facts}
        saved = gpu_evidence.ROOT, gpu_evidence.torch_facts, gpu_evidence.say, os.environ.copy()
        gpu_evidence.ROOT, gpu_evidence.torch_facts = self.root, lambda python: facts
        gpu_evidence.say = lambda text: None
        os.environ.update(RIDGE_CUDA_DRIVER=FAKE_CUDA, TMPDIR=str(self.temporary))
        os.environ["PATH"] = f"{self.folder / 'path'}:{os.environ['PATH']}"
        try:
            return gpu_evidence.run(options, lambda *words: Scripted(self, *words), self.clock)
        finally:
            gpu_evidence.ROOT, gpu_evidence.torch_facts, gpu_evidence.say, environment = saved
            os.environ.clear()
            os.environ.update(environment)

    # ---- as a process

    def take_few_tasks(self):
        (self.root / "bench" / "gpu_few.py").write_text(FEW_TASKS)
        with open(self.root / "bench" / "gpu_parts.py", "a") as file:
            file.write("\n\nimport gpu_few  # noqa: E402\n\ngpu_few.few(__import__(__name__))\n")
        self.write_manifest()

    def start(self, *options, told=None, limit_file=None, **variables):
        def limits():
            if limit_file is not None:
                import resource

                resource.setrlimit(resource.RLIMIT_FSIZE, (limit_file, limit_file))

        command = [sys.executable, self.root / "bench" / "gpu_evidence.py", "--out", self.out]
        return subprocess.Popen(
            [*command, "--python", self.folder / "python", *options],
            env={
                **os.environ,
                "PATH": f"{self.folder / 'path'}:{os.environ['PATH']}",
                "RIDGE_CUDA_DRIVER": FAKE_CUDA,
                "STAND_IN": json.dumps(told or {}),
                "STAND_IN_LOG": str(self.log),
                "TMPDIR": str(self.temporary),
                **variables,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=limits,
        )

    def end_of(self, *options, **more):
        """(exit code, stdout, stderr)"""
        process = self.start(*options, **more)
        out, err = process.communicate(timeout=120)
        return process.returncode, out, err

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

    def hanging(self):
        """The processes that hang, or did."""
        file = pathlib.Path(str(self.log) + ".hanging")
        return [int(line) for line in file.read_text().split()] if file.exists() else []

    # ---- what it left

    def document(self):
        return json.loads(self.json.read_text())

    def tasks(self, part):
        return {task["name"]: task for task in self.document()["parts"][part]["tasks"]}

    def logs(self):
        """{name: text} of the archive."""
        with tarfile.open(self.archive) as tar:
            return {each.name: tar.extractfile(each).read().decode() for each in tar}
