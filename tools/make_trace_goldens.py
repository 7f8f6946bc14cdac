#!/usr/bin/env python3
"""Copies the recorded traces for tests, and writes what an independent reading of them says.

The reading is Python's json with exact decimals; tests/doctor/read_kineto_test.cc compares.

Usage: make_trace_goldens.py FOLDER   (writes tests/data/traces)
"""

import collections
import decimal
import gzip
import json
import pathlib
import shutil
import sys
import zlib

ROOT = pathlib.Path(__file__).resolve().parent.parent
OUT = ROOT / "tests" / "data" / "traces"
LIMIT = 1_000_000  # bytes of a file

KINDS = {
    "cpu_op": "operator", "user_annotation": "range", "cuda_runtime": "runtime", "kernel": "kernel",
    "gpu_memcpy": "copy", "gpu_memset": "set", "cuda_sync": "synchronization",
    "gpu_user_annotation": "device range",
}
ELEMENT = {"Float": 4, "Int": 4, "Long": 8, "Byte": 1, "Double": 8}


def smaller(data):
    """The same trace without white space and without what the recording's owner was called."""
    trace = json.loads(data, parse_float=decimal.Decimal)
    keep = ("schemaVersion", "deviceProperties", "distributedInfo", "displayTimeUnit",
            "baseTimeNanoseconds", "traceEvents")
    trace = {key: value for key, value in trace.items() if key in keep}

    numbers = []

    def placeholder(value):
        """Stands for a decimal until its digits are put back as they were."""
        numbers.append(str(value))
        return f"@number{len(numbers) - 1}@"

    text = json.dumps(trace, separators=(",", ":"), default=placeholder)
    parts = text.split('"@number')
    out = [parts[0]]
    for part in parts[1:]:
        index, rest = part.split('@"', 1)
        out.append(numbers[int(index)] + rest)
    return "".join(out).encode()


def packed(data):
    """The shortest gzip file that zlib makes."""
    files = []
    for memory in range(6, 10):
        zlib_file = zlib.compressobj(9, zlib.DEFLATED, 31, memory)
        files.append(zlib_file.compress(data) + zlib_file.flush())
    return min(files, key=len)


def nanoseconds(value):
    return int((decimal.Decimal(value) * 1000).to_integral_value(decimal.ROUND_HALF_UP))


def reading(data):
    """What a table of the trace must say."""
    trace = json.loads(data, parse_float=decimal.Decimal)
    events = [e for e in trace["traceEvents"] if e.get("ph") == "X" and e.get("cat") in KINDS]
    zero = min(nanoseconds(e["ts"]) for e in events)
    kinds = collections.defaultdict(lambda: {"count": 0, "duration_ns": 0, "start_sum": 0})
    streams = collections.defaultdict(lambda: {"count": 0, "duration_ns": 0})
    sums = collections.Counter()
    syncs = collections.Counter()
    calls = {e["args"]["correlation"]: e["args"] for e in events
             if e["cat"] == "cuda_runtime" and "correlation" in e["args"]}
    for event in events:
        args, cat = event.get("args", {}), event["cat"]
        kind = kinds[KINDS[cat]]
        kind["count"] += 1
        kind["duration_ns"] += nanoseconds(event["dur"])
        kind["start_sum"] += nanoseconds(event["ts"]) - zero
        sums["correlations"] += args.get("correlation", -1) if cat != "cpu_op" else -1
        sums["name_bytes"] += len(event["name"].encode())
        if cat == "kernel":
            stream = streams[f"{args['device']}/{args['stream']}"]
            stream["count"] += 1
            stream["duration_ns"] += nanoseconds(event["dur"])
            by = args if "grid" in args else calls.get(args["correlation"], {})
            sums["grid"] += sum((i + 1) * n for i, n in enumerate(by.get("grid", [0, 0, 0])))
            sums["block"] += sum((i + 1) * n for i, n in enumerate(by.get("block", [0, 0, 0])))
            sums["registers"] += by.get("registers per thread", 0)
            sums["shared"] += by.get("shared memory", 0)
        if cat in ("gpu_memcpy", "gpu_memset"):
            sums["bytes"] += int(args.get("bytes", calls.get(args["correlation"], {}).get("size", -1)))
        if cat == "gpu_memcpy":
            sums["pageable"] += "(Pageable" in event["name"]
        if cat == "cuda_sync":
            syncs[event["name"]] += 1
            sums["waits"] += args.get("wait_on_cuda_event_record_corr_id", -1)
        if cat == "cpu_op":
            moved = max(args.get("In msg nelems", 0), args.get("Out msg nelems", 0))
            sums["collective"] += moved * ELEMENT.get(args.get("dtype"), 0)
            sums["shaped"] += bool(args.get("Input Dims"))
    info = trace.get("distributedInfo", {})
    base = trace.get("baseTimeNanoseconds", 0)
    return {
        "base_ns": base + zero, "rank": info.get("rank", -1), "world": info.get("world_size", 0),
        "devices": len(trace.get("deviceProperties", [])),
        "multiprocessors": sum(d["numSms"] for d in trace.get("deviceProperties", [])),
        "names": len({e["name"] for e in events}), "kinds": kinds, "kernel_streams": streams,
        "sums": sums, "syncs": syncs,
    }


def main():
    source = pathlib.Path(sys.argv[1])
    OUT.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source / "LICENSE", OUT / "LICENSE")
    goldens = {}
    for path in sorted(source.glob("*.json.gz")):
        data = gzip.decompress(path.read_bytes())
        goldens[path.name.removesuffix(".json.gz")] = reading(data)
        if path.stat().st_size < LIMIT:
            shutil.copyfile(path, OUT / path.name)
            continue
        data = smaller(data)
        assert reading(data) == goldens[path.name.removesuffix(".json.gz")]
        file = packed(data)
        assert len(file) < LIMIT, f"{path.name}: {len(file)}"
        (OUT / path.name).write_bytes(file)
    text = json.dumps(goldens, indent=1, sort_keys=True)
    (OUT / "goldens.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
