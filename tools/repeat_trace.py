#!/usr/bin/env python3
"""Makes a large Kineto trace of a small one: its steps over and over, each time later.

Usage: repeat_trace.py TRACE.json[.gz] MEGABYTES OUT.json
"""

import gzip
import json
import pathlib
import sys

STEP = "ProfilerStep#"


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    path, megabytes, out = pathlib.Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    raw = path.read_bytes()
    trace = json.loads(gzip.decompress(raw) if path.suffix == ".gz" else raw, strict=False)
    events = trace.pop("traceEvents")
    spans = [e for e in events if e.get("ph") == "X" and e.get("cat") != "Trace"]
    marks = [e for e in spans if e["name"].startswith(STEP) and e.get("cat") == "user_annotation"]
    if not marks:
        sys.exit(f"repeat_trace.py: {path} has no steps that are marked")
    begin = min(float(e["ts"]) for e in marks)
    span = max(float(e["ts"]) + float(e["dur"]) for e in marks) - begin
    written = again = 0
    with open(out, "w", encoding="utf-8") as file:
        file.write(json.dumps(trace)[:-1] + ', "traceEvents": [\n')
        file.writelines(json.dumps(e) + ",\n" for e in events if e.get("ph") == "M")
        while written < megabytes * 1_000_000:
            for event in spans:
                copy = {**event, "ts": float(event["ts"]) + again * span}
                if copy["name"].startswith(STEP):
                    copy["name"] = f"{STEP}{int(copy['name'][len(STEP):]) + again * len(marks)}"
                if "correlation" in copy.get("args", {}):
                    number = copy["args"]["correlation"] + again * 10_000_000
                    copy["args"] = {**copy["args"], "correlation": number}
                written += file.write(json.dumps(copy, separators=(",", ":")) + ",\n")
            again += 1
        file.write('{"ph": "M", "name": "end", "pid": 0, "tid": 0}]}\n')


if __name__ == "__main__":
    main()
