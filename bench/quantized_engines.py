"""What quantized.py and quantized_accuracy.py share: quantized files, engines in processes of their own, noise."""

import json
import math
import os
import pathlib
import select
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent
PEERS = ROOT / "build" / "peers-inference" / "bin" / "python"
PROGRAM = ROOT / "build" / "release" / "ridge"
RUNTIMES = ROOT / "bench" / "quantized_runtimes.py"
FILES = ROOT / "bench" / "quantized_files.py"

# Engines: runtime, and the file that it runs; "model" is the model as it was exported.
ENGINES = {
    "ridge f32": ("ridge", "model"),
    "ridge int8": ("ridge", "ridge.onnx"),
    "ridge on static_u8s8": ("ridge", "static_u8s8.onnx"),
    "ridge on static_products": ("ridge", "static_products.onnx"),
    "ridge on dynamic": ("ridge", "dynamic.onnx"),
    "ort f32": ("onnxruntime", "model"),
    "ort static_u8s8": ("onnxruntime", "static_u8s8.onnx"),
    "ort static_s8s8": ("onnxruntime", "static_s8s8.onnx"),
    "ort static_products": ("onnxruntime", "static_products.onnx"),
    "ort dynamic": ("onnxruntime", "dynamic.onnx"),
    "ort dynamic_fused": ("onnxruntime", "dynamic_fused.onnx"),
    "openvino f32": ("openvino", "model"),
    "openvino nncf": ("openvino", "nncf.xml"),
    "openvino nncf (own precision)": ("openvino-default", "nncf.xml"),
}


def is_quantized(engine):
    return not engine.endswith("f32")


def peer_of(engine):
    return engine.split()[0]


def instruction_set():
    """The widest set for products of bytes that this processor has."""
    flags = set()
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("flags"):
            flags = set(line.split())
            break
    for name, flag in (("AMX", "amx_int8"), ("AVX512-VNNI", "avx512_vnni"), ("AVX-VNNI", "avx_vnni")):
        if flag in flags:
            return name
    return "AVX2"


def needs_seven_bits():
    """ONNX Runtime's sums of pairs of u8 * s8 saturate in 16 bits there, unless weights have 7 bits."""
    return instruction_set() == "AVX2"


def check_peers():
    if not PEERS.exists():
        sys.exit("there is no build/peers-inference: ./dev peers-inference installs it")


def first_line(text):
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    return lines[-1][:300] if lines else "it said nothing"


def quantize(model, data, folder, program=PROGRAM, transformer="", most_drop=None):
    """Files of all ways in `folder`; for each that is missing, the reason. `transformer` is family, heads and width;
    `most_drop` is the limit of `ridge quantize`, in percent, where it is not that verb's own."""
    words = [FILES, model, data, folder, "--transformer", transformer]
    if needs_seven_bits():
        words.append("--seven-bits")
    failed = {}
    # The fusion imports PyTorch, which this Python has.
    for command in [[PEERS, *words], *([[sys.executable, *words, "--fused"]] if transformer else [])]:
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"quantized_files.py failed: {first_line(done.stderr)}")
        failed.update(json.loads(done.stdout.splitlines()[-1]))
    own = folder / "ridge.onnx"
    if not own.exists() and (reason := quantize_by_ridge(program, model, data, own, most_drop)):
        failed["ridge.onnx"] = reason
    return failed


def quantize_by_ridge(program, model, data, path, most_drop):
    """Why there is no file, or nothing."""
    if not pathlib.Path(program).exists():
        return f"{program} is missing: ./dev build"
    if subprocess.run([program, "quantize", "--help"], capture_output=True).returncode != 0:
        return "this ridge has no verb quantize"
    words = [program, "quantize", model, "--data", data, "--method", "static", "-o", path]
    words += [] if most_drop is None else ["--max-drop", str(most_drop)]
    done = subprocess.run(words, capture_output=True, text=True)
    return None if done.returncode == 0 else first_line(done.stderr)


def python_of(runtime):
    return sys.executable if runtime == "ridge" else str(PEERS)


class Failed(Exception):
    pass


class Engine:
    """A model in a process that is stopped, with all its threads, while it has no order."""

    def __init__(self, runtime, model, threads, inputs):
        self.folder = tempfile.mkdtemp(prefix="engine-")
        for name in ("orders", "answers"):
            os.mkfifo(f"{self.folder}/{name}")
        # Open for both directions, a pipe waits for nobody.
        self.orders, self.answers = (os.open(f"{self.folder}/{name}", os.O_RDWR) for name in ("orders", "answers"))
        np.savez(f"{self.folder}/inputs.npz", **inputs)
        self.pending = b""
        with open(f"{self.folder}/log", "wb") as log:
            self.process = subprocess.Popen(
                [python_of(runtime), RUNTIMES, "serve", self.folder, runtime, model, str(threads)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )
        try:
            self.version = self.answer()["version"]
            self.first_seconds = self.answer()["first_ns"] / 1e9
        except Failed:
            self.close()
            raise
        self.process.send_signal(signal.SIGSTOP)

    def answer(self):
        while b"\n" not in self.pending:
            has_ended = self.process.poll() is not None
            if select.select([self.answers], [], [], 0 if has_ended else 0.05)[0]:
                self.pending += os.read(self.answers, 1 << 16)
            elif has_ended:
                raise Failed(first_line(pathlib.Path(self.folder, "log").read_text(errors="replace")))
        line, self.pending = self.pending.split(b"\n", 1)
        return json.loads(line)

    def seconds(self, runs):
        """The time of each run, behind one that is not counted."""
        self.process.send_signal(signal.SIGCONT)
        os.write(self.orders, f"{runs + 1}\n".encode())
        times = self.answer()["ns"][1:]
        self.process.send_signal(signal.SIGSTOP)
        return [ns / 1e9 for ns in times]

    def output(self):
        """The first output of the first run."""
        with np.load(f"{self.folder}/outputs.npz") as arrays:
            return arrays["arr_0"]

    def close(self):
        self.process.kill()
        self.process.wait()
        for descriptor in (self.orders, self.answers):
            os.close(descriptor)
        shutil.rmtree(self.folder)


def in_turn(engines, rounds, stretch):
    """For each engine the median of its runs in each round; every round begins with another engine."""
    counts = {name: max(1, math.ceil(stretch / engine.seconds(1)[0])) for name, engine in engines.items()}
    times, names = {name: [] for name in engines}, list(engines)
    for _ in range(rounds):
        for name in names:
            times[name].append(statistics.median(engines[name].seconds(counts[name])))
        names = names[1:] + names[:1]
    return times


def predict(runtime, model, threads, inputs, batch):
    """The first output for all rows of the file `inputs`, `batch` rows at a time; raises Failed."""
    with tempfile.TemporaryDirectory() as folder:
        output = f"{folder}/y.npy"
        words = [python_of(runtime), RUNTIMES, "predict", runtime, model, str(threads), inputs, output, str(batch)]
        done = subprocess.run([*map(str, words)], capture_output=True, text=True)
        if done.returncode != 0:
            raise Failed(first_line(done.stderr))
        return np.load(output)


def signal_to_noise(output, reference):
    """Decibels, over all elements."""
    reference = reference.astype(np.float64)
    noise = np.sum((output - reference) ** 2)
    return math.inf if noise == 0 else 10 * math.log10(np.sum(reference**2) / noise)
