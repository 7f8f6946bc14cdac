"""A runtime for ONNX models in a process of its own, which Ridge times in turn with its session (runtime_peer.h).

    runtime_peer.py FOLDER RUNTIME MODEL THREADS

FOLDER has the data of a run, inputs.npz, and two pipes, of lines: `orders` to this process, each a number of
runs, and `answers` from it, each an object of JSON:

    {"version": "1.22.0"}                     it is there
    {"first_ns": 1234, "peak_bytes": 5678}    the model was loaded and ran once; outputs.npz has the results
    {"ns": [12, 11, 12]}                      the time of each run of an order

What it cannot do ends it with a traceback.
"""
import gc
import json
import sys
import time

import numpy

clock = time.perf_counter_ns


class OnnxRuntime:
    def __init__(self):
        import onnxruntime
        self.module, self.version = onnxruntime, onnxruntime.__version__

    def open(self, model, threads, data):
        """A function that runs the model on the data."""
        options = self.module.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.graph_optimization_level = self.module.GraphOptimizationLevel.ORT_ENABLE_ALL
        options.log_severity_level = 3  # errors
        session = self.module.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        return lambda: session.run(None, data)

    def outputs(self, results):
        """In the order of the model."""
        return results


class OpenVino:
    """It compiles for the sizes of the data, and copies neither them nor its results."""
    hints = {"INFERENCE_PRECISION_HINT": "f32"}

    def __init__(self):
        import openvino
        self.module, self.version = openvino, openvino.__version__.split("-")[0]  # without the build

    def open(self, model, threads, data):
        core = self.module.Core()
        graph = core.read_model(model)
        graph.reshape({name: list(array.shape) for name, array in data.items()})
        compiled = core.compile_model(graph, "CPU", {**self.hints, "INFERENCE_NUM_THREADS": threads,
                                                     "PERFORMANCE_HINT": "LATENCY"})
        request = compiled.create_infer_request()
        for name, array in data.items():
            request.set_tensor(name, self.module.Tensor(array, shared_memory=True))
        return lambda: request.infer(share_outputs=True)

    def outputs(self, results):
        return [results[i] for i in range(len(results))]


RUNTIMES = {"onnxruntime": OnnxRuntime, "openvino": OpenVino}


def resident_bytes(field):
    """Of this process; nothing where the system does not say."""
    with open("/proc/self/status") as status:
        for line in status:
            if line.startswith(field):
                return int(line.split()[1]) * 1024
    return None


def reset_peak():
    try:
        with open("/proc/self/clear_refs", "w") as control:
            control.write("5")
        return True
    except OSError:
        return False


def serve(folder, name, model, threads):
    orders, answers = open(folder + "/orders"), open(folder + "/answers", "w")

    def answer(**fields):
        answers.write(json.dumps(fields) + "\n")
        answers.flush()

    runtime = RUNTIMES[name]()
    answer(version=runtime.version)
    with numpy.load(folder + "/inputs.npz") as arrays:
        data = {name: arrays[name] for name in arrays.files}
    has_peak, before = reset_peak(), resident_bytes("VmRSS:")
    start = clock()
    run = runtime.open(model, threads, data)
    results = run()
    first_ns, peak = clock() - start, resident_bytes("VmHWM:")
    numpy.savez(folder + "/outputs.npz", *runtime.outputs(results))
    del results
    is_known = has_peak and before is not None and peak is not None
    answer(first_ns=first_ns, peak_bytes=peak - before if is_known else None)
    gc.disable()
    for order in orders:
        times = []
        for _ in range(int(order)):
            start = clock()
            run()
            times.append(clock() - start)
        answer(ns=times)


if __name__ == "__main__":
    serve(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
