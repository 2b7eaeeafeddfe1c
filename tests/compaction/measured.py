"""One turn of a compactor in a process of its own, as careful with memory as the real one.

python -m tests.compaction.measured HDFS FOLDER prints its figures as JSON, with its peak of memory and its CPU time."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from artimon.model.clock import SYSTEM_CLOCK
from pipeline.compaction.compaction_settings import CompactorConfig
from pipeline.compaction.compactor import Compactor
from pipeline.compaction.compactor_process import lower_priority, resource_usage
from pipeline.compaction.plan import ClassRetention
from tests.spark.local_files import local_files

ROOT = Path(__file__).parents[2]


def measured_turn(hdfs: str, folder: Path, timeout_s: float = 600.0) -> dict[str, Any]:
    """The figures of one turn on the table at `hdfs`: those of the health file, with `peak_bytes` and `cpu_s`."""
    command = [sys.executable, "-m", "tests.compaction.measured", hdfs, str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, timeout=timeout_s, check=False)
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures


def main(hdfs: str, folder: str) -> None:
    lower_priority(niceness=0)  # a busy machine would let it wait for ever
    config = CompactorConfig("", hdfs, Path(folder), keeping=ClassRetention({}, 99_999))
    with local_files(SYSTEM_CLOCK) if hdfs.startswith("file:") else nullcontext():
        made = Compactor(config, None)
        made.run_due(threading.Event())
    print(json.dumps({**made.figures(), **resource_usage()}))


if __name__ == "__main__":
    main(*sys.argv[1:])
