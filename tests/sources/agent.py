"""An agent's source as a process of its own, which tests kill and stop: python -m tests.sources.agent NAME ZOOKEEPER
DATA, and settings of SourceConfig as JSON. Each accepted sample is a line of JSON: source, fingerprint, time, birth,
value."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from artimon.model.batch import PollResult
from artimon.model.clock import SYSTEM_CLOCK
from artimon.model.protocols import NewestPoll
from sources.artimon_source import ArtimonSource
from sources.delivery.source_config import SourceConfig
from tests.sources.helpers import HOST


class PrintingSink:
    """Accept everything and print each sample."""

    async def accept(self, polled: Sequence[PollResult]) -> None:
        for part in polled:
            for row in part.samples.rows():
                sys.stdout.write(json.dumps([part.source, *row]) + "\n")
        sys.stdout.flush()

    def replay(self, since: NewestPoll | None = None) -> Iterable[PollResult]:
        return ()


async def run(name: str, zookeeper: str, data: Path, settings: str) -> None:
    config = SourceConfig(name, zookeeper, data, host_metrics=False, **json.loads(settings))
    source, stop = ArtimonSource(config, PrintingSink(), SYSTEM_CLOCK, hostname=HOST), asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await source.run(stop)


if __name__ == "__main__":
    asyncio.run(run(sys.argv[1], sys.argv[2], Path(sys.argv[3]), sys.argv[4]))
