#!/usr/bin/env python3
"""Writes hta.json: what HolisticTraceAnalysis says of the traces in tests/data/traces.

Times are microseconds. `first` and `last` are of the device rows that HTA keeps (it leaves the last
profiler step out), counted from the first device row of the file.

Run it in the environment of `./dev peers`:  build/peers/bin/python tests/doctor/golden/make_hta.py
"""

import importlib.metadata
import json
import logging
import pathlib
import warnings

warnings.filterwarnings("ignore")
logging.disable(logging.CRITICAL)

from hta.trace_analysis import TraceAnalysis  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
TRACES = HERE.parent.parent / "data" / "traces"
NAMES = (
    "alexnet_inference",
    "simple_add",
    "mi250_minitoy_train",
    "train_nccl",
    "train_ns_resolution",
)


def golden(name):
    analysis = TraceAnalysis(trace_files={0: str(TRACES / f"{name}.json.gz")})
    times = analysis.get_temporal_breakdown(visualize=False).to_dict("records")[0]
    idle, _ = analysis.get_idle_time_breakdown(ranks=[0], visualize=False)
    frame = analysis.t.get_trace(0)
    device = frame[frame["stream"].ne(-1)]
    late = idle[idle["idle_category"] == "host_wait"]
    return {
        "trace": name,
        "rows": int(len(device)),
        "length": float((device["ts"] + device["dur"]).max() - device["ts"].min()),
        "idle": float(times["idle_time(us)"]),
        "compute": float(times["compute_time(us)"]),
        "non_compute": float(times["non_compute_time(us)"]),
        "host_wait": {str(r["stream"]): float(r["idle_time"]) for r in late.to_dict("records")},
    }


def main():
    text = {
        "peer": "HolisticTraceAnalysis " + importlib.metadata.version("HolisticTraceAnalysis"),
        "traces": [golden(name) for name in NAMES],
    }
    (HERE / "hta.json").write_text(json.dumps(text, indent=1) + "\n")


if __name__ == "__main__":
    main()
