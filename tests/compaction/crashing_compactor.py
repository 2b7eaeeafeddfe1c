"""A compactor that kills itself with -9 at a named point: python -m tests.compaction.crashing_compactor HDFS FOLDER
POINT NTH KEEP."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path

from pipeline.compaction.compactor import Compactor
from pipeline.compaction.config import CompactorConfig, parse_keep
from pipeline.compaction.merge import Limits

SMALL = Limits(window_rows=8, fan_in=3)
"""So that a few files already need runs on disk and several windows."""


def main(hdfs: str, folder: str, point: str, nth: int, keep: str) -> None:
    met = 0

    def probe(here: str) -> None:
        nonlocal met
        met += here == point
        if met == nth:
            os.kill(os.getpid(), signal.SIGKILL)

    config = CompactorConfig("", hdfs, Path(folder), keeping=parse_keep(keep), limits=SMALL, sweep_s=0.0)
    Compactor(config, None, probe=probe).turn(threading.Event())


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5])
