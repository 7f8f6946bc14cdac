#!/usr/bin/env python3
"""Makes the files under tests/data/io with numpy, pandas and plain Python, what they must read as,
and the seeds of the fuzz targets.

Needs the environment of `./dev peers`. Usage: build/peers/bin/python tools/make_io_fixtures.py
"""

import gzip
import io
import json
import pathlib
import struct

import numpy as np
import pandas as pd

TESTS = pathlib.Path(__file__).resolve().parent.parent / "tests"
FOLDER = TESTS / "data" / "io"


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


def npy():
    """2x3x4 arrays with element i = i - 2 (i where unsigned, i % 2 for bool); names tell the form."""
    folder = FOLDER / "npy"
    folder.mkdir(exist_ok=True)
    for code in "b1 i1 u1 i2 u2 i4 u4 i8 u8 f2 f4 f8".split():
        values = np.arange(24) - (0 if code[0] == "u" else 2)
        values = np.arange(24) % 2 if code[0] == "b" else values
        for order, name in (("<", "little"), (">", "big")):
            if code[1] == "1" and order == ">":
                continue
            array = values.reshape(2, 3, 4).astype(np.dtype(order + code))
            np.save(folder / f"{code}_{name}.npy", array)
    array = (np.arange(24) - 2).reshape(2, 3, 4)
    np.save(folder / "f4_fortran.npy", np.asfortranarray(array.astype("<f4")))
    np.save(folder / "i2_fortran_big.npy", np.asfortranarray(array.astype(">i2")))
    for version in (2, 3):
        content = io.BytesIO()
        np.lib.format.write_array(content, array.astype("<f8"), (version, 0))
        (folder / f"f8_version{version}.npy").write_bytes(content.getvalue())
    np.save(folder / "scalar.npy", np.float32(1.5))
    np.save(folder / "complex.npy", np.zeros(2, "c8"))
    np.save(folder / "empty.npy", np.zeros((0, 3), "f4"))


def npz():
    """Arrays x f4[2,3] with element i = i - 2 and `long name` i8[1000] of 7s, stored and deflated."""
    arrays = {"x": (np.arange(6) - 2).reshape(2, 3).astype("<f4"),
              "long name": np.full(1000, 7, "<i8")}
    np.savez(FOLDER / "stored.npz", **arrays)
    np.savez_compressed(FOLDER / "deflated.npz", **arrays)


CSV = '''\
id,"length, cm",city,"note ""x""",flag,gap
1,5.25,Z\u00fcrich,"two
lines",True,
+2,-1e-7,Bern,"say ""hi""",False,NA
3,,"Bern",plain,True,nan
-4,0.1, Aarau ,,False,
5,1.7976931348623157e308,NA,"a,b",True,None
6,1e999,Bern,"",True,N/A
7,4.9e-324,B,0,False,null
8,1e-999,Chur,0x10,True,NULL
9,-1e400,Bern,1_000,True,""
'''


def csv():
    """A file of all that columns may hold, and what pandas makes of it."""
    (FOLDER / "mixed.csv").write_bytes(CSV.replace("\n", "\r\n").encode())
    frame = pd.read_csv(io.StringIO(CSV))
    columns = []
    for name in frame.columns:
        column = frame[name]
        if column.dtype == bool:  # Ridge has categories for these
            column = column.astype(str)
        if pd.api.types.is_numeric_dtype(column):
            shown = [v.hex() for v in column.astype("float64")]
            columns.append({"name": name, "numbers": shown})
        else:
            categories = column.astype("category").cat
            columns.append({"name": name, "categories": list(categories.categories),
                            "ids": categories.codes.tolist()})
    (FOLDER / "mixed.csv.json").write_text(json.dumps(columns, indent=1) + "\n")


def seeds():
    """A few of the files for each fuzz target, and a manifest without its seal."""
    chosen = {
        "safetensors": ["all.safetensors"],
        "idx": ["u8.idx", "u8.idx.gz", "i16.idx", "f64.idx"],
        "npy": ["npy/b1_little.npy", "npy/u8_big.npy", "npy/f4_fortran.npy", "npy/f8_version3.npy"],
        "npz": ["deflated.npz"],
        "csv": ["mixed.csv"],
        "checkpoint_manifest": [],
    }
    for target, names in chosen.items():
        folder = TESTS / "fuzz" / "corpus" / target
        folder.mkdir(parents=True, exist_ok=True)
        for name in names:
            (folder / pathlib.Path(name).name).write_bytes((FOLDER / name).read_bytes())
    manifest = {
        "schema": "ridge.checkpoint/1", "step": 123, "epoch": 1, "sample": 4096,
        "texts": {"model": "mlp"}, "numbers": {"loss": 0.1, "best": "inf", "zero": -0.0},
        "integers": {"seed": 2**63 - 1},
        "files": {"state.safetensors": {"bytes": 1000, "xxh64": "ef46db3751d8e999"}},
        "tensors": [{"name": "w", "dtype": "f32", "shape": [2, 3], "xxh64": "d24ec4f1a98c6e5b"}],
    }
    text = json.dumps(manifest, indent=2)
    (TESTS / "fuzz" / "corpus" / "checkpoint_manifest" / "small.json").write_text(text)


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    safetensors()
    idx()
    npy()
    npz()
    csv()
    seeds()


if __name__ == "__main__":
    main()
