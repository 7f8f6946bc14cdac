"""Measures what a call from Python costs on top of the run: sessions of small ONNX models, in turn with `ridge bench`.

Usage: build/wheel-test/bin/python bench/python_calls.py
"""

import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np
import ridge

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests" / "python"))
import onnx_models  # noqa: E402

ROUNDS, CALLS = 7, 2000
MODELS = {
    "one row, 3 to 4": (onnx_models.perceptron(), (1, 3)),
    "4 products of 48": (onnx_models.products(4, 48), (48, 48)),
}


def from_python(session, inputs):
    """Seconds a call, the mean of many."""
    start = time.perf_counter()
    for _ in range(CALLS):
        session.run(inputs)
    return (time.perf_counter() - start) / CALLS


def from_cxx(model):
    """The median of single runs."""
    words = [sys.executable, "-m", "ridge", "bench", model, "--threads", "1", "--seconds", "0.3", "--json", "-"]
    report = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
    return report["results"][0]["latency_ms"]["median"] / 1e3


def main():
    with tempfile.TemporaryDirectory() as folder:
        for name, (data, shape) in MODELS.items():
            path = pathlib.Path(folder) / "model.onnx"
            path.write_bytes(data)
            session = ridge.Session(path, threads=1)
            inputs = {"x": np.ones(shape, np.float32)}
            from_python(session, inputs)
            pairs = [(from_python(session, inputs), from_cxx(path)) for _ in range(ROUNDS)]
            python, cxx = (statistics.median(column) * 1e6 for column in zip(*pairs))
            print(f"{name}: {python:.2f} us a call from Python, {cxx:.2f} us in the program, {python - cxx:.2f} us on top")


if __name__ == "__main__":
    main()
