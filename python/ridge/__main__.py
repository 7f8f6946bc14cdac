"""`python -m ridge`, and the command `ridge`: the program, in place of this process."""

import os
import signal
import sys

from ._verbs import PROGRAM


def main() -> None:
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it, and so would what this becomes
    os.execv(PROGRAM, ["ridge", *sys.argv[1:]])


if __name__ == "__main__":
    main()
