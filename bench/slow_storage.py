#!/usr/bin/env python3
"""Runs a program as if each file that it opens for reading came from a storage that takes some time to answer,
as a network's does: the time passes without work.

Usage: slow_storage.py MILLISECONDS PROGRAM [ARGUMENT...]
"""

import builtins
import runpy
import sys
import time


def main():
    seconds, program = float(sys.argv[1]) / 1e3, sys.argv[2]
    direct = builtins.open

    def delayed(file, mode="r", *others, **named):
        if mode == "rb":
            time.sleep(seconds)
        return direct(file, mode, *others, **named)

    builtins.open = delayed
    sys.argv = sys.argv[2:]
    runpy.run_path(program, run_name="__main__")


if __name__ == "__main__":
    main()
