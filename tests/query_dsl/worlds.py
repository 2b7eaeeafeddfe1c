"""A world of raw samples in the forms that the evaluators take: lists for the plain one, stores for ours."""

from __future__ import annotations

from typing import Any

from artimon.model.values import Kind, ValueType
from query_dsl import offline
from tests.query_dsl.plain_store import PlainSeries, PlainStore
from tests.query_dsl.plain_store import Sample as Stored
from tests.query_dsl.plainly import Raw, Sample, World
from tests.query_dsl.plainly.things import series_text
from tests.query_dsl.pushing import Together
from tests.query_dsl.test_pushdown import Told
from tests.query_dsl.test_pushdown import fed_shards as fed


def plain_store(world: World) -> PlainStore:
    """The store that cuts samples into buckets on request."""
    return PlainStore([raw_series(raw) for raw in world.series], world.levels)


def raw_series(raw: Raw) -> PlainSeries:
    samples = [Stored(s.time, s.value, s.birth) for s in raw.samples]
    return PlainSeries(raw.name, dict(raw.labels), samples, Kind[raw.kind], ValueType[raw.type], raw.ended)


def offline_store(world: World) -> Any:
    """The store of query_dsl for samples in lists."""
    named = {series_text(raw.name, raw.labels): raw for raw in world.series}
    return offline(
        {name: [(s.time, s.value) for s in raw.samples] for name, raw in named.items()},
        step=f"{world.levels[0][0]}ms",
        kinds={name: raw.kind.lower() for name, raw in named.items()},
        births={name: [s.birth for s in raw.samples] for name, raw in named.items()},
        ended={name: raw.ended for name, raw in named.items() if raw.ended},
    )


def shards(world: World, count: int) -> Together:
    """Real shards that were fed all of it, behind what a client sees."""
    return fed(told_of(world), count)


def told_of(world: World) -> list[Told]:
    """The same as samples of several sources."""
    return [
        Told(
            raw.name,
            tuple(sorted(raw.labels.items())),
            Kind[raw.kind],
            (*((s.time, s.birth, s.value) for s in raw.samples), *_end(raw)),
            f"s{i % 3}",
            i,
        )
        for i, raw in enumerate(world.series)
    ]


def _end(raw: Raw) -> list[tuple[int, int, None]]:
    return [(raw.ended, raw.samples[-1].birth, None)] if raw.ended else []


def world_of(store: PlainStore) -> World:
    """The inverse of `plain_store`."""
    series = tuple(
        Raw(
            s.name,
            s.labels,
            s.type.name,
            tuple(Sample(x.time, x.value, x.birth) for x in s.samples),
            s.kind.name,
            s.ended,
        )
        for s in store.series
    )
    return World(series, store.level_table)
