"""A tiny wrapper that runs before a part of the stack and becomes it by exec. A plain file, standard library only.

It makes the part die with the thread that started it (Linux), and caps the size of a core file to nothing. A wrapper
and not a hook between fork and exec: the supervisor has threads, and Python code after a fork there can hang.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> None:
    """`launch.py PARENT_PID PROGRAM ARGUMENT...`"""
    parent, command = int(arguments[0]), arguments[1:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it died before the line above
            os._exit(1)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.execvp(command[0], command)  # noqa: S606


if __name__ == "__main__":
    main(sys.argv[1:])
