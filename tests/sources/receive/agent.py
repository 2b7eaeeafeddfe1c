"""A whole source with a real log that takes remote write: python -m tests.sources.receive.agent FOLDER HOST:PORT, until
it is killed."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from artimon.model.clock import SYSTEM_CLOCK
from artimon.model.values import Value
from pipeline.delivery.wal_sink import WalSink
from pipeline.wal.log import WriteAheadLog
from sources.artimon_source import ArtimonSource
from sources.delivery.source_config import SourceConfig
from tests.sources.helpers import HOST

NOWHERE = "127.0.0.1:1"


def open_log(place: Path) -> WriteAheadLog:
    return WriteAheadLog(place / "log", "agent1", 2, lambda _: None, host=HOST)


def logged(place: Path) -> list[tuple[str, int, int, int, Value | None]]:
    """Return source, fingerprint, time, birth and value of each sample in the log."""
    wal = open_log(place)
    found = [(one.source, *row) for one in WalSink(wal, "agent1", place / "log").replay() for row in one.samples.rows()]
    wal.close(3.0)
    return found


async def main(place: Path, address: str) -> None:
    sink = WalSink(open_log(place), "agent1", place / "log")
    config = SourceConfig("agent1", NOWHERE, place / "data", period_ms=1_000, host_metrics=False, receive=(address,))
    await ArtimonSource(config, sink, SYSTEM_CLOCK, hostname=HOST).run(asyncio.Event())


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
