"""Thirty simulated days of pods that start and end, each a new source: the cost of an append, the size of the state
and the number of files and rows of every table stop growing. Raw query, tasks, tables, table of series and compactor
are the shipped ones, on a local folder with a clock of its own."""

from __future__ import annotations

import json
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from artimon.model.batch import BatchId, Samples, SeriesBlock, SeriesInfo
from artimon.model.batch_codec import encode_samples
from artimon.model.clock import ManualClock
from artimon.model.hash_routing import partition_of
from artimon.model.values import ValueType
from artimon.rawtable.announced_rows import rows_of
from artimon.rawtable.commit import RawTable
from artimon.rawtable.schema import raw_uri, series_uri, sources_uri
from artimon.rawtable.series_delta import SeriesTable
from artimon.rawtable.sources import RETIRED_MS, SourcesTable, read_sources
from artimon.rawtable.table_reader import read_raw
from artimon.rawtable.table_state import to_json
from artimon.runtime import file_access as files
from pipeline.compaction.compaction_settings import CompactorConfig, parse_keep, parse_rollups
from pipeline.compaction.compactor import Compactor
from tests.spark.local_files import LocalClient, local_files
from tests.spark.world import DAY_MS, PARTITIONS, START_MS, World

DAYS = 30
KEEP_DAYS = 2


SLOWER, SLACK_S = 2.0, 0.1
"""Limits of the growth of an append's processor time, which other processes of the machine disturb."""


@dataclass(frozen=True, slots=True)
class Scale:
    """Size of a run. The pods of one interval between appends start, send and end in it; `hosts` have an agent each."""

    starts_a_day: int
    appends_a_day: int
    hosts: int


SMALL = Scale(10, 2, 3)
WHOLE = Scale(20_000, 48, 100)


class CountingClient(LocalClient):
    """Counts requests to the file system."""

    requests = 0

    def write(self, path: str, data: bytes | memoryview) -> None:
        self.requests += 1
        super().write(path, data)

    def create(self, path: str) -> Any:
        self.requests += 1
        return super().create(path)

    def read(self, path: str) -> bytes:
        self.requests += 1
        return super().read(path)

    def open(self, path: str) -> Any:
        self.requests += 1
        return super().open(path)


@dataclass(slots=True)
class Day:
    """Figures of one day: greatest of its appends (requests, bytes of the state), and what there is at its end."""

    requests: int = 0
    state_bytes: int = 0
    files: int = 0
    sources: int = 0
    series: int = 0
    append_s: float = 0.0
    """Greatest processor time of an append."""


class Pods:
    """A fleet of pods on the hosts of a world, and the processes that store what they send."""

    def __init__(self, folder: Path, clock: ManualClock, client: LocalClient, scale: Scale) -> None:
        self.world, self._clock, self._scale = World(folder, clock, client), clock, scale
        hdfs = self.world.uri
        self._sources, self._series = SourcesTable(hdfs, clock), SeriesTable(hdfs, clock)
        config = CompactorConfig(
            "",
            hdfs,
            folder / "runs",
            keeping=parse_keep(f"*={KEEP_DAYS}"),
            rollups=parse_rollups(f"5m={KEEP_DAYS},1h={KEEP_DAYS}"),  # a source stays as long as its roll-ups
            sweep_s=0.0,
        )
        self._compactor = Compactor(config, None, clock)
        self._sent = Counter[int]()
        self._announced = self._started = 0

    def run_day(self, client: CountingClient) -> Day:
        day = Day()
        for _ in range(self._scale.appends_a_day):
            self._clock.advance(DAY_MS // self._scale.appends_a_day)
            names = [self._start_pod() for _ in range(self._scale.starts_a_day // self._scale.appends_a_day)]
            before, began = client.requests, time.process_time()
            self.world.drivers[0].step(10**6, 1)
            day.requests = max(day.requests, client.requests - before)
            day.append_s = max(day.append_s, time.process_time() - began)
            self._announce([*names, *(f"agent/host{n}/0" for n in range(self._scale.hosts))])
            self._sources.maintain()
            self._series.maintain()
        self._compactor.run_due(threading.Event())
        _, state = RawTable(self.world.uri).head()
        day.state_bytes = len(json.dumps(to_json(state, state)))
        uris = [uri(self.world.uri) for uri in (raw_uri, sources_uri, series_uri)]
        day.files = sum(_count_files(uri) for uri in uris)
        day.sources = len(read_sources(uris[1]))
        day.series = sum(file.rows for file in self._series.live())
        return day

    def _start_pod(self) -> str:
        """Start a pod, poll it once through the agent of its host, and end it."""
        self._started += 1
        name, now, host = f"shop/pod-{self._started}/0", self._clock.now_ms(), self._started % self._scale.hosts
        sequence, self._sent[host] = self._sent[host], self._sent[host] + 1
        id_ = BatchId(f"host{host}", host + 1, 0, sequence)
        rows = Samples.of([(1, now, now, self._started), (2, now, now, 0.5)])
        batch = encode_samples(id_, name, bytes(16), 0, now, "", rows)
        self.world.log.partitions[partition_of(*id_.lane_id, PARTITIONS)].append(now, batch.data)
        return name

    def _announce(self, names: list[str]) -> None:
        """Write announcements to the table of series, as the series writer does."""
        known = SeriesInfo("x{}", ValueType.INTEGER), SeriesInfo("y{}", ValueType.DOUBLE)
        blocks = [SeriesBlock(name, 0, self._clock.now_ms(), known) for name in names]
        rows, refused = rows_of(blocks, self._sources.assign(names))
        assert not refused
        start, until = {0: self._announced}, {0: self._announced + len(blocks)}
        assert self._series.add(rows, "topic", start, until)
        self._announced += len(blocks)

    def check_rows(self) -> None:
        """Check that the table has the samples of the last days, and that each source of them has its name."""
        found = read_raw(raw_uri(self.world.uri)).to_pylist()
        names = read_sources(sources_uri(self.world.uri))
        stored = {row["integer"]: names[row["source"]] for row in found if row["series"] == 1}
        kept = KEEP_DAYS * self._scale.starts_a_day
        assert len(found) == 2 * len(stored)
        assert all(stored[n] == f"shop/pod-{n}/0" for n in range(self._started - kept + 1, self._started + 1))


def _count_files(uri: str) -> int:
    """Count the files of a table without its log, whose old commits Delta itself deletes by the clock of the system."""
    return sum(not path.startswith("_delta_log") for path, _, _ in files.list_files(uri))


@contextmanager
def pods(folder: Path, scale: Scale) -> Iterator[tuple[Pods, CountingClient]]:
    clock = ManualClock(START_MS)
    with local_files(clock), pytest.MonkeyPatch.context() as patch:
        client = CountingClient(clock)
        patch.setattr(files, "_file_system", lambda _authority: client)
        yield Pods(folder, clock, client, scale), client


def check_flat(scale: Scale, folder: Path) -> list[Day]:
    """Run the days and check that nothing grew after samples, and then retired sources, began to expire."""
    with pods(folder, scale) as (fleet, client):
        days = [fleet.run_day(client) for _ in range(DAYS)]
        fleet.check_rows()
    settled = KEEP_DAYS + RETIRED_MS // DAY_MS + 4
    middle, end = days[settled : settled + 8], days[-8:]
    for name in ("requests", "state_bytes", "files", "sources", "series"):
        first, last = (max(getattr(day, name) for day in part) for part in (middle, end))
        assert last <= first * 1.1 + 8, (name, [getattr(day, name) for day in days])
    first_s, last_s = (median(day.append_s for day in part) for part in (middle, end))
    assert last_s <= SLOWER * first_s + SLACK_S, [round(day.append_s, 3) for day in days]
    assert end[-1].sources < (settled + 2) * scale.starts_a_day + scale.hosts
    return days


@pytest.mark.slow
@pytest.mark.parametrize("scale", [SMALL, pytest.param(WHOLE, marks=pytest.mark.timeout(7200))])
def test_thirty_days_of_pods_cost_no_more_than_ten(scale: Scale, tmp_path: Path) -> None:
    days = check_flat(scale, tmp_path)
    assert len({day.sources for day in days}) > 5  # sources came and went


if __name__ == "__main__":  # the figures of docs/scaling.md
    with tempfile.TemporaryDirectory() as place:
        for number, one in enumerate(check_flat(WHOLE if "--whole" in sys.argv else SMALL, Path(place)), 1):
            sys.stdout.write(f"day {number}: {one}\n")
