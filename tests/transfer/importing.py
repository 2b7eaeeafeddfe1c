"""Imports, and the samples that are then in the history. As a program: an import that kills itself with -9 at a point:
python -m tests.transfer.importing FILE HDFS DATA POINT NTH."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from artimon.cli.history_import import ImportJob
from artimon.model.clock import SYSTEM_CLOCK
from pipeline.history.importer import ImportResult
from query_dsl.stores.history.engine import History
from query_dsl.stores.history.result import Sample
from sources.base.source_errors import RejectCounts
from tests.crashing import kill_at
from tests.spark.local_files import local_files

START_MS = 1_700_000_000_000
MINUTE_MS = 60_000


def job(file: Path, hdfs: str, data: Path, **settings: Any) -> ImportJob:
    given = {"form": None, "mapping": None, "source": "import", "keep": "default", **settings}
    return ImportJob.of(file, hdfs=hdfs, data=data, **given)


def run(file: Path, hdfs: str, **settings: Any) -> tuple[ImportResult, RejectCounts]:
    return job(file, hdfs, file.parent / "data", **settings).run()


def samples(hdfs: str, selector: str = '{__name__!=""}', after: object = 0) -> list[Sample]:
    """Every sample of the history, in order."""
    with History(hdfs) as history:
        return list(history.read(selector, after, "now", engine="local").samples())


def dump_text(series: int = 5, polls: int = 30, step_ms: int = 3 * 3_600_000) -> str:
    """A dump of counters that are reset at times, over several days."""
    lines = []
    for n in range(series):
        for poll in range(polls):
            value = poll % (7 + n)
            lines.append(f'{{__name__="req_total", host="h{n}"}} {value} {START_MS + poll * step_ms}')
    return "\n".join(lines) + "\n"


def main(words: Sequence[str]) -> None:
    file, hdfs, data, point, nth = words
    with local_files(SYSTEM_CLOCK):
        job(Path(file), hdfs, Path(data)).run(probe=kill_at(point, int(nth)))


if __name__ == "__main__":
    main(sys.argv[1:])
