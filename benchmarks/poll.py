"""Poll many endpoints at once: seconds from the first request until the log of an agent has every sample on disk.

`poll.1000x1500`: 1,000 endpoints of 1,500 variables each, the best of two polls of all; `poll.10000x150`: as many
samples from ten times as many endpoints. `NAME@cpu`: core-seconds of the polling process. `NAME@first`: the first
poll, in which every series is new. Endpoints are ports of other processes on the same cores.

python -m benchmarks.poll [ENDPOINTS VARIABLES]
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import NamedTuple

from artimon.model.clock import SYSTEM_CLOCK
from benchmarks.common import Parts, emit
from benchmarks.limits import asked_s, emit_limit
from benchmarks.loads.endpoints import AGENT, endpoints
from pipeline.delivery.wal_sink import WalSink
from pipeline.wal.log import WriteAheadLog
from sources.base.endpoint_address import EndpointAddress
from sources.delivery.commit_group import GroupCommitSink
from sources.delivery.endpoint_status import EndpointStatuses
from sources.delivery.placement_resolver import PlacementResolver
from sources.delivery.poll_context import PollContext, PollLimits
from sources.delivery.reading_delivery import ReadingDelivery
from sources.delivery.source_config import SourceConfig
from sources.delivery.source_counts import SourceCounts
from sources.delivery.source_owners import SourceOwners
from sources.poll.process_poller import ProcessFollower
from sources.state.state_store import SourceStateStore

ROUNDS = 2
LANES = 4
ENVELOPE_BYTES, CONNECTIONS = 200, 50
"""For the limit: bytes of an answer beside its values; connections that read at the same time."""
SIZES = ((1_000, 1_500), (10_000, 150))


class Round(NamedTuple):
    """One poll of all endpoints: seconds, and core-seconds of this process."""

    seconds: float
    cpu: float


async def measure(found: list[EndpointAddress], variables: int, data: Path) -> list[Round]:
    """Measure the first poll, with schemas, and those after it. Raises RuntimeError unless the log has every sample."""
    log = WriteAheadLog(data / "log", AGENT, LANES, lambda _placed: None)
    intake = WalSink(log, AGENT, data / "log")
    shared = _shared(data, intake)
    shared.delivery.store.load([], 0)
    followers = [ProcessFollower(one, shared) for one in found]
    writer = asyncio.create_task(shared.delivery.store.write_forever())
    rounds = []
    for _ in range(ROUNDS + 1):
        began, cpu, before = SYSTEM_CLOCK.monotonic(), time.process_time(), intake.samples
        await asyncio.gather(*(follower.answers(sure=True) for follower in followers))
        rounds.append(Round(SYSTEM_CLOCK.monotonic() - began, time.process_time() - cpu))
        if intake.samples - before != len(found) * variables:
            raise RuntimeError(f"{intake.samples - before} samples: {shared.figures.to_json()}")
        await shared.delivery.store.flush()
    writer.cancel()
    intake.close()
    await asyncio.to_thread(log.close, 60)
    return rounds


def _shared(data: Path, intake: WalSink) -> PollContext:
    clock, figures = SYSTEM_CLOCK, SourceCounts()
    config = SourceConfig(AGENT, "", data, deadline_s=60)
    store = SourceStateStore(config.folder, config.max_series)
    delivery = ReadingDelivery(GroupCommitSink(intake), store, figures, clock)
    placement = PlacementResolver(data / "names.json", (), clock)
    statuses = EndpointStatuses(data / "vanished.json", config.vanished_ms)
    return PollContext(
        config, clock, PollLimits(config.concurrency), delivery, placement, SourceOwners(), statuses, figures
    )


def run(count: int, variables: int) -> None:
    """Measure and print the lines."""
    with endpoints(count, variables, ROUNDS) as found, tempfile.TemporaryDirectory() as folder:
        first, *later = asyncio.run(measure(found, variables, Path(folder)))
    best = min(later)
    name = f"poll.{count}x{variables}"
    emit(name, best.seconds, "s")
    limit = asked_s(count, 8 * variables + ENVELOPE_BYTES, CONNECTIONS)
    emit_limit(name, best.seconds, limit, f"s (as many answers of the same size, {CONNECTIONS} at a time)", more=False)
    emit(f"{name}@cpu", best.cpu, "s")
    emit(f"{name}@first", first.seconds, "s")


if __name__ == "__main__":
    parts = Parts()
    for size in [tuple(map(int, sys.argv[1:3]))] if len(sys.argv) > 2 else SIZES:
        parts.run(f"poll.{size[0]}x{size[1]}", partial(run, *size))
    parts.finish()
