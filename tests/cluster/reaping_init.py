"""First process of scripts/isolated: runs a command, reaps the orphans of all others, ends with the command's code."""

from __future__ import annotations

import os
import signal
import subprocess
import sys


def main(command: list[str]) -> int:
    """Run the command. At the return of this process the kernel kills whatever else is left in the namespace."""
    child = subprocess.Popen(command)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal sends it to the command as well
    signal.signal(signal.SIGTERM, lambda number, _frame: child.send_signal(number))
    while True:
        pid, status = os.wait()
        if pid == child.pid:
            return os.waitstatus_to_exitcode(status) & 0xFF


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
