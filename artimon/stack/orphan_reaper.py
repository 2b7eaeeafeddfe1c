"""Guard: a small process that outlives the supervisor and kills its orphans. A plain file, standard library only.

The supervisor writes the session id of every process it starts, one a line, to the guard's standard input, "-ID" when a
session has ended, and "bye" before a clean end. End of input without "bye", or a new parent, means that the supervisor
crashed. The guard then kills every process of those sessions, grandchildren included, whatever their process group.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator

POLL_S = 1.0


def _sessions() -> Iterator[tuple[int, int]]:
    """Yield (process id, session id) of every process of this machine."""
    if os.path.isdir("/proc/self"):
        for name in os.listdir("/proc"):
            if name.isdigit():
                try:
                    yield int(name), os.getsid(int(name))
                except OSError:
                    continue
        return
    listing = subprocess.run(["ps", "-axo", "pid=,sess="], capture_output=True, text=True, timeout=10, check=False)
    for line in listing.stdout.splitlines():
        fields = line.split()
        if len(fields) == 2 and fields[0].isdigit():
            try:
                yield int(fields[0]), os.getsid(int(fields[0]))
            except OSError:
                continue


def kill_sessions(sessions: set[int]) -> int:
    """Kill every process of `sessions` and return their number; further passes find children forked meanwhile."""
    killed = 0
    for _ in range(3):
        found = [pid for pid, session in _sessions() if session in sessions and pid != os.getpid()]
        if not found:
            break
        for pid in found:
            try:
                os.kill(pid, signal.SIGKILL)
                killed += 1
            except OSError:
                continue
    return killed


def main() -> None:
    """Track sessions from standard input; on its end without "bye", kill them."""
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    parent, sessions, rest = os.getppid(), set[int](), b""
    while os.getppid() == parent:
        if not select.select([0], [], [], POLL_S)[0]:
            continue
        data = os.read(0, 4096)
        if not data:
            break
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            if line == b"bye":
                return
            number = int(line)
            sessions.discard(-number) if number < 0 else sessions.add(number)
    kill_sessions(sessions)


if __name__ == "__main__":
    main()
    sys.exit(0)
