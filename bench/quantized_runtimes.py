"""A runtime with a model in a process of its own, for quantized.py and quantized_accuracy.py.

    quantized_runtimes.py serve FOLDER RUNTIME MODEL THREADS           as ridge/tune/onnx/peer/runtime_peer.py
    quantized_runtimes.py predict RUNTIME MODEL THREADS INPUTS.npz OUTPUT.npy BATCH

RUNTIME is onnxruntime, openvino (in f32 but for what is quantized), openvino-default (by its own precision, which is
bf16 where the processor multiplies it), or ridge, whose package this Python has. `predict` runs `BATCH` rows at once
and writes the first output of all rows.
"""

import ctypes
import pathlib
import signal
import sys

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "ridge" / "tune" / "onnx" / "peer"))
import runtime_peer  # noqa: E402


class OpenVinoDefault(runtime_peer.OpenVino):
    hints = {}


class Ridge:
    def __init__(self):
        import ridge

        self.module, self.version = ridge, ridge.__version__

    def open(self, model, threads, data):
        session = self.module.Session(model, threads=threads)
        return lambda: session.run(data)

    def outputs(self, results):
        return list(results.values())


PR_SET_PDEATHSIG = 1
runtime_peer.RUNTIMES.update({"openvino-default": OpenVinoDefault, "ridge": Ridge})


def predict(name, model, threads, inputs, output, batch):
    with np.load(inputs) as arrays:
        data = {each: arrays[each] for each in arrays.files}
    count = len(next(iter(data.values())))
    if count % batch:
        raise SystemExit(f"{count} rows are no multiple of {batch}")
    runtime = runtime_peer.RUNTIMES[name]()
    # The same memory for all batches: OpenVINO reads where its tensors were bound.
    rows = {each: array[:batch].copy() for each, array in data.items()}
    run = runtime.open(model, threads, rows)
    results = []
    for start in range(0, count, batch):
        for each, array in data.items():
            rows[each][...] = array[start:start + batch]
        results.append(np.array(runtime.outputs(run())[0]))
    np.save(output, np.concatenate(results))


if __name__ == "__main__":
    verb, *words = sys.argv[1:]
    if verb == "serve":
        # Who is stopped would not see that nobody gives orders any more.
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        runtime_peer.serve(words[0], words[1], words[2], int(words[3]))
    else:
        predict(words[0], words[1], int(words[2]), words[3], words[4], int(words[5]))
