"""A compactor that kills itself with -9 at a named point: python -m tests.compaction.crashing_compactor HDFS FOLDER
POINT NTH KEEP."""

from __future__ import annotations

import sys
import threading
from contextlib import nullcontext
from pathlib import Path

from artimon.model.clock import SYSTEM_CLOCK
from pipeline.compaction.compaction_settings import CompactorConfig, parse_keep, parse_rollups
from pipeline.compaction.compactor import Compactor
from pipeline.compaction.merge import MergeLimits
from tests.crashing import kill_at
from tests.spark.local_files import local_files

SMALL = MergeLimits(window_rows=8, fan_in=3)
"""So that a few files already need runs on disk and several windows."""
ROLLUPS = "5m=365,1h=ever,1d=ever"


def main(hdfs: str, folder: str, point: str, nth: int, keep: str) -> None:
    keeping, rollups = parse_keep(keep), parse_rollups(ROLLUPS)
    config = CompactorConfig("", hdfs, Path(folder), keeping=keeping, rollups=rollups, limits=SMALL, sweep_s=0.0)
    with local_files(SYSTEM_CLOCK) if hdfs.startswith("file:") else nullcontext():
        Compactor(config, None, probe=kill_at(point, nth)).run_due(threading.Event())


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5])
