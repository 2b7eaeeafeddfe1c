"""Comparison of the buckets in the shards with the written samples."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Any

import numpy as np
import numpy.typing as npt
from kafka import KafkaProducer

from artimon.compute.statistics import STATISTICS
from artimon.model.batch import SeriesBlock, SeriesInfo
from artimon.model.batch_codec import encode_series
from artimon.model.clock import SYSTEM_CLOCK
from artimon.model.grid import DEFAULT_LEVELS, Grid, Level
from artimon.model.select import Matcher, SelectRequest
from artimon.model.values import ValueType
from benchmarks.loads.samples import MINUTE_MS, NAME, SERIES_A_SOURCE, TYPES, Expected, source_name, text_of
from benchmarks.loads.world import World, WrongCounts
from varstore.cluster.varstore_client import VarstoreClient

BLOCK = 750
ANNOUNCED_S = 120.0
Ints = npt.NDArray[np.int64]


def verify_values(world: World, expected: Expected) -> int:
    """Announce the sources that `expected` keeps, and compare every statistic of their buckets at each level; return
    the number of values. Raises WrongCounts."""
    announce(world.kafka, list(expected.kept))
    compared = 0
    with VarstoreClient(world.zookeeper) as client:
        _wait(client, expected)
        for source, polls in expected.kept.items():
            for level in DEFAULT_LEVELS:
                grid = _grid(level, [at for at, _ in polls])
                if grid is not None:
                    compared += _compare(client, source, polls, grid)
    return compared


def announce(kafka: str, sources: list[int]) -> None:
    """Write the series of these sources to the topic of announcements."""
    producer = KafkaProducer(bootstrap_servers=kafka, acks="all", max_block_ms=60_000)
    for source in sources:
        for block in _blocks(source):
            producer.send("artimon.series", value=encode_series("bench", block).data, key=block.key)
    producer.flush(60)
    producer.close()


def _blocks(source: int) -> Iterator[SeriesBlock]:
    now = SYSTEM_CLOCK.now_ms()
    for number, first in enumerate(range(0, SERIES_A_SOURCE, BLOCK)):
        infos = [SeriesInfo(text_of(source, i), ValueType(int(TYPES[i]))) for i in range(first, first + BLOCK)]
        yield SeriesBlock(source_name(source), number, now, tuple(infos))


def _wait(client: VarstoreClient, expected: Expected) -> None:
    """Wait until the shards have read all announcements."""
    grid, until = Grid(MINUTE_MS, MINUTE_MS, 1), time.monotonic() + ANNOUNCED_S
    for source in expected.kept:
        while len(client.select(_request(source, grid, ("count",))).series) < SERIES_A_SOURCE:
            if time.monotonic() > until:
                raise WrongCounts(f"shards: source {source} is not whole {ANNOUNCED_S:.0f} s after its announcement")
            time.sleep(0.2)


def _request(source: int, grid: Grid, statistics: tuple[str, ...]) -> SelectRequest:
    return SelectRequest((Matcher("host", "=", f"host-{source:04d}"),), grid, statistics)


def _grid(level: Level, times_ms: list[int]) -> Grid | None:
    """Return the newest kept buckets of a level that the polls fill; None if there are none."""
    newest = -(-max(times_ms) // MINUTE_MS) * MINUTE_MS // level.step_ms * level.step_ms
    oldest = -(-(min(times_ms) - MINUTE_MS) // level.step_ms) * level.step_ms
    count = min(level.count, (newest - oldest) // level.step_ms)
    return Grid(newest, level.step_ms, count) if count > 0 else None


def _compare(client: VarstoreClient, source: int, polls: list[tuple[int, Ints]], grid: Grid) -> int:
    found = client.select(_request(source, grid, STATISTICS))
    names = [f"{NAME}{i}" for i in range(SERIES_A_SOURCE)]
    rows = {series.name: row for row, series in enumerate(found.series)}
    if found.partial or sorted(rows) != sorted(names):
        raise WrongCounts(f"shards: {len(rows)} series of source {source}, partial: {found.partial}")
    order, wanted = [rows[name] for name in names], _statistics(polls, grid)
    doubles = TYPES == ValueType.DOUBLE
    for name in STATISTICS:
        cells, right = found.statistics[name][order], wanted[name]
        same = cells == right
        if name == "sum":
            same[doubles] = np.isclose(cells[doubles].view(np.float64), right[doubles].view(np.float64), rtol=1e-12)
        if not same.all():
            row, at = np.argwhere(~same)[0]
            raise WrongCounts(
                f"shards: {name} of {text_of(source, int(row))}, bucket {at} of {grid}, is {cells[row, at]}, not"
                f" {right[row, at]} ({int((~same).sum())} of {same.size} differ)"
            )
    return len(STATISTICS) * len(order) * grid.n


def _statistics(polls: list[tuple[int, Ints]], grid: Grid) -> dict[str, Ints]:
    """Return (series, buckets) for each statistic: int64, or the bits of a double."""
    times = np.array([at for at, _ in polls])
    ends = -(-times // grid.step_ms) * grid.step_ms
    cells = np.stack([values for _, values in polls])
    found: dict[str, list[Ints]] = {name: [] for name in STATISTICS}
    for end in grid.ends().tolist():
        for name, column in found.items():
            column.append(_reduce(name, cells[ends == end], times[ends == end]))
    return {name: np.stack(columns, axis=1) for name, columns in found.items()}


def _reduce(name: str, cells: Ints, times: Ints) -> Ints:
    """Return one statistic of one bucket for each series."""
    if name == "count":
        return np.full(cells.shape[1], len(cells), np.int64)
    if name == "last_time":
        return np.full(cells.shape[1], times[-1], np.int64)
    function: Callable[[Any], Any] = _newest if name == "last" else attrgetter(name)
    doubles = TYPES == ValueType.DOUBLE
    result: Ints = function(cells)(axis=0).copy()
    result[doubles] = function(np.ascontiguousarray(cells[:, doubles]).view(np.float64))(axis=0).view(np.int64)
    return result


def _newest(values: npt.NDArray[Any]) -> Callable[..., npt.NDArray[Any]]:
    return lambda axis: np.take(values, -1, axis)
