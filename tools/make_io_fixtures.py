#!/usr/bin/env python3
"""Makes the files under tests/data/io with numpy and plain Python, and what they must read as.

Needs the environment of `./dev peers`. Usage: build/peers/bin/python tools/make_io_fixtures.py
"""

import gzip
import json
import pathlib
import struct

import numpy as np

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "tests" / "data" / "io"


def safetensors():
    """A 2x3 tensor of each dtype named after it, element i = i - 2 (i where unsigned); a scalar t."""
    codes = {"F64": "d", "F32": "f", "F16": "e", "I64": "q", "I32": "i", "I16": "h", "U16": "H",
             "U8": "B", "I8": "b", "BOOL": "?"}
    tensors = [("t", "F32", [], struct.pack("<f", 1.5))]
    for dtype, code in codes.items():
        first = 0 if dtype.startswith("U") else -2
        raw = struct.pack("<6" + code, *range(first, first + 6))
        tensors.append((dtype.lower(), dtype, [2, 3], raw))
    halves = b"".join(struct.pack("<f", i - 2)[2:] for i in range(6))
    tensors.append(("bf16", "BF16", [2, 3], halves))
    tensors.sort(key=lambda t: (-len(t[3]) // max(1, int(np.prod(t[2]))), t[0]))
    header, data = {"__metadata__": {"format": "pt", "note": "\u00e9 \" \\"}}, b""
    for name, dtype, shape, raw in tensors:
        offsets = [len(data), len(data) + len(raw)]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": offsets}
        data += raw
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    (FOLDER / "all.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)


def idx():
    """2x1x3 files of each type, element i = i - 2 (u8: i + 250)."""
    codes = {"u8": (8, "B"), "i8": (9, "b"), "i16": (11, "h"), "i32": (12, "i"), "f32": (13, "f"),
             "f64": (14, "d")}
    for name, (number, code) in codes.items():
        first = 250 if name == "u8" else -2
        head = struct.pack(">BBBBIII", 0, 0, number, 3, 2, 1, 3)
        content = head + struct.pack(">6" + code, *range(first, first + 6))
        (FOLDER / f"{name}.idx").write_bytes(content)
        if name in ("u8", "i16"):
            (FOLDER / f"{name}.idx.gz").write_bytes(gzip.compress(content, mtime=0))


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    safetensors()
    idx()


if __name__ == "__main__":
    main()
