"""ONNX Runtime in a process of its own, which Ridge times in turn with its own session (onnxruntime_peer.h).

    onnxruntime_peer.py FOLDER MODEL THREADS

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
import onnxruntime

clock = time.perf_counter_ns


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


def open_session(model, threads):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.log_severity_level = 3  # errors
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def serve(folder, model, threads):
    orders, answers = open(folder + "/orders"), open(folder + "/answers", "w")

    def answer(**fields):
        answers.write(json.dumps(fields) + "\n")
        answers.flush()

    answer(version=onnxruntime.__version__)
    with numpy.load(folder + "/inputs.npz") as arrays:
        data = {name: arrays[name] for name in arrays.files}
    has_peak, before = reset_peak(), resident_bytes("VmRSS:")
    start = clock()
    session = open_session(model, threads)
    outputs = session.run(None, data)
    first_ns, peak = clock() - start, resident_bytes("VmHWM:")
    numpy.savez(folder + "/outputs.npz", *outputs)
    is_known = has_peak and before is not None and peak is not None
    answer(first_ns=first_ns, peak_bytes=peak - before if is_known else None)
    gc.disable()
    run = session.run
    for order in orders:
        times = []
        for _ in range(int(order)):
            start = clock()
            run(None, data)
            times.append(clock() - start)
        answer(ns=times)


if __name__ == "__main__":
    serve(sys.argv[1], sys.argv[2], int(sys.argv[3]))
