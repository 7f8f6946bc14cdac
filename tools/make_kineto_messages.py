#!/usr/bin/env python3
"""Writes the seeds of the fuzz target kineto_message: datagrams as libkineto sends them, and broken.

Usage: make_kineto_messages.py [FOLDER]
"""

import pathlib
import struct
import sys


def message(kind, payload, size=None):
    return struct.pack("=Q32s", len(payload) if size is None else size, kind) + payload


def main():
    root = pathlib.Path(__file__).resolve().parent.parent
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else root / "tests/fuzz/corpus/kineto_message")
    folder.mkdir(parents=True, exist_ok=True)
    poll = struct.pack("=iiq3i", 2, 3, 77, 4242, 17, 1)
    seeds = {
        "register": message(b"ctxt", struct.pack("=iiq", 0, 4242, 0)),
        "poll": message(b"req", poll),
        "busy": message(b"req", struct.pack("=iiqi", 1, 1, 0, 4242)),
        "many": message(b"req", struct.pack("=iiqi", 2, 0x7FFFFFFF, 0, 4242)),
        "negative": message(b"req", struct.pack("=iiqi", 2, -1, 0, 4242)),
        "long": message(b"req", poll, 2**64 - 40),
        "type": message(b"r" * 32, poll),
    }
    for name, content in seeds.items():
        (folder / name).write_bytes(content)


if __name__ == "__main__":
    main()
