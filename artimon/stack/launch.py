"""Wrapper that sets process limits and then becomes a part of the stack by exec. A plain file, standard library only.

It makes the part die with the thread that started it (Linux), and disables core files. It replaces `preexec_fn`,
because the supervisor has threads, and Python code between fork and exec can hang there.
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
        if os.getppid() != parent:  # the parent died before prctl took effect
            os._exit(1)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.execvp(command[0], command)  # noqa: S606


if __name__ == "__main__":
    main(sys.argv[1:])
