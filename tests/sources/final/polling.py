"""A whole source of an agent with a real log: python -m tests.sources.final.polling FOLDER ZOOKEEPER, until SIGTERM."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

from artimon.model.clock import SYSTEM_CLOCK
from pipeline.delivery.wal_sink import WalSink
from pipeline.wal.log import WriteAheadLog
from sources.artimon_source import ArtimonSource
from sources.delivery.source_config import SourceConfig
from tests.sources.helpers import HOST


async def poll(place: Path, zookeeper: str) -> None:
    wal = WriteAheadLog(place / "log", "agent1", 2, lambda _: None, host="web1")
    config = SourceConfig(
        "agent1",
        zookeeper,
        place,
        period_ms=1_000,
        reconcile_s=2.0,
        session_s=4.0,
        takeover_s=1.0,
        goodbye_s=0.5,
        host_metrics=False,
        dropin=place / "dropin",
    )
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    source = ArtimonSource(config, WalSink(wal, "agent1", place / "log"), SYSTEM_CLOCK, hostname=HOST)
    await source.run(stop)
    wal.close(3.0)


if __name__ == "__main__":
    asyncio.run(poll(Path(sys.argv[1]), sys.argv[2]))
