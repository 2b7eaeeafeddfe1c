"""The history with roll-ups gives the answers of samples, before and after each compaction, correction and expiry."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from artimon.model.clock import ManualClock
from artimon.model.fingerprint import fingerprint, signed
from artimon.model.grid import Grid
from artimon.rawtable.commit import CompactionLog
from artimon.rawtable.rollups import RollupFile, RollupTable, stem_of
from artimon.rawtable.schema import DAY_MS
from pipeline.compaction import plan, rollup_job
from pipeline.compaction.compaction_settings import CompactorConfig, parse_keep, parse_rollups
from pipeline.compaction.compactor import Compactor
from pipeline.compaction.job import DigestMismatchError
from query_dsl import evaluate, parse
from query_dsl.evaluation import planner
from query_dsl.evaluation.planner import FROM_BUCKETS
from query_dsl.promql import pushed_windows, query_store
from query_dsl.promql.pushed_windows import ALIGNED
from query_dsl.stores.bucket_accumulator import BucketAccumulator
from query_dsl.stores.history.engine import History
from query_dsl.stores.history_store import HistoryStore
from tests.history.engine_world import file_of, some_series, text_of
from tests.history.world import HistoryWorld
from tests.query_dsl.engine_worlds import made_of, request_of
from tests.query_dsl.test_engines_auto import plain
from tests.query_dsl.test_pushdown import HOUR, MINUTE, NOW, T, Told
from tests.rollups.conftest import SERIES

GRIDS = [Grid(T, 5 * MINUTE, 30), Grid(T, 15 * MINUTE, 16), Grid(T, HOUR, 6), Grid(-(-T // DAY_MS) * DAY_MS, DAY_MS, 3)]
QUERIES = [
    "fetch('v0').increase('5m').sum(by=[\"rack\"]).range('2h')",
    "fetch('v1').bucketize('mean', '1h').range('6h')",
    "fetch('{rack=\"r1\"}').bucketize('max', '15m').range('3h')",
    "fetch('v3').bucketize('last', '1h').range('4h')",
    "fetch('v4').map('rate', '10m').range('2h')",
]
EVERYTHING = "*=99999"
ALL_LEVELS = "5m=365,1h=ever,1d=ever"


def turn(
    world: HistoryWorld, clock: ManualClock, tmp_path: Path, keep: str = EVERYTHING, rollups: str = ALL_LEVELS
) -> Compactor:
    """One turn of the compactor, after which nothing before the clock's day is missing."""
    world.builder.settle(clock.now_ms() // DAY_MS * DAY_MS)
    config = CompactorConfig(
        "",
        world.hdfs,
        tmp_path / "compactor",
        keeping=parse_keep(keep),
        rollups=parse_rollups(rollups),
        sweep_s=0.0,
    )
    made = Compactor(config, None, clock)
    made.run_due(threading.Event())
    return made


def answers(store: HistoryStore, lives: bool = True) -> list[Any]:
    found = [made_of(store.select(request_of(["v.*"], grid)), lives) for grid in GRIDS]
    return [*found, *(plain(evaluate(parse(text), store, NOW)) for text in QUERIES)]


def of_samples(
    world: HistoryWorld, store: HistoryStore, ask: Callable[[HistoryStore], list[Any]] = answers
) -> list[Any]:
    """The answers of the raw table alone, at the same time."""
    folder = Path(world.hdfs.removeprefix("file://")) / "artimon" / "rollups"
    aside = folder.rename(folder.with_name("aside"))
    try:
        return ask(store)
    finally:
        aside.rename(folder)


def levels_read(store: HistoryStore, grid: Grid) -> str:
    """The levels that the answer names."""
    found = store.select(request_of(["v.*"], grid))
    return found.parts[0].detail.partition(" buckets of ")[2].partition(",")[0]


def rollups_of(world: HistoryWorld) -> list[RollupFile]:
    table = RollupTable(world.hdfs)
    table.refresh()
    return table.live()


def raw_names(world: HistoryWorld) -> set[str]:
    log = CompactionLog(world.hdfs)
    log.refresh()
    return {stem_of(file.path) for file in log.live()}


def later(told: Sequence[Told], version: int) -> list[Told]:
    """The same series some of whose samples come late: new ones between the old."""
    return [
        replace(one, samples=tuple((at + 11_000 + version, birth, value) for at, birth, value in one.samples[::7]))
        for one in told
        if all(value is not None for *_, value in one.samples[::7])
    ]


def test_answers_are_those_of_samples(
    world: HistoryWorld, store: HistoryStore, clock: ManualClock, tmp_path: Path
) -> None:
    expected = answers(store)
    assert levels_read(store, GRIDS[0]) == ""
    made = turn(world, clock, tmp_path)
    assert made.given_up() == []
    assert {file.level_ms for file in rollups_of(world)} == {5 * MINUTE, HOUR, DAY_MS}
    assert answers(store) == expected
    assert levels_read(store, GRIDS[0]).startswith("5m of ")
    assert levels_read(store, GRIDS[2]).startswith("1h of ")
    assert levels_read(store, GRIDS[3]).startswith("1d of ")
    assert levels_read(store, Grid(T, MINUTE, 60)) == ""
    assert levels_read(store, Grid(T - 60_000, 5 * MINUTE, 12)) == ""


def test_the_least_values_of_opening_buckets_are_read_alone(
    world: HistoryWorld, store: HistoryStore, clock: ManualClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn(world, clock, tmp_path)
    taken: list[int] = []
    take = BucketAccumulator.take_least

    def counting(self: BucketAccumulator, other: BucketAccumulator, rows: Any, columns: Any) -> None:
        taken.append(len(rows))
        take(self, other, rows, columns)

    monkeypatch.setattr(BucketAccumulator, "take_least", counting)
    least_read = 0
    for grid in GRIDS:
        asked = request_of(["v.*"], grid, ("count", "last", "last_time", "min"))
        for name in range(6):
            one = replace(asked, matchers=request_of([f"v{name}"], grid).matchers)
            whole, found = store.select(one).statistics, store.select(replace(one, opening=True)).statistics
            several = np.asarray(whole["count"]) > 0
            opening = several.copy()
            opening[:, 1:] &= ~several[:, :-1]
            opening &= np.asarray(whole["count"]) > 1
            for statistic in ("count", "last", "last_time"):
                assert np.array_equal(whole[statistic], found[statistic]), (grid, name, statistic)
            assert np.array_equal(whole["min"][opening], found["min"][opening]), (grid, name)
            least_read += int(opening.sum())
    assert 0 < sum(taken) <= least_read


@pytest.mark.parametrize("function", FROM_BUCKETS)
def test_days_come_from_buckets_of_days(
    world: HistoryWorld,
    store: HistoryStore,
    clock: ManualClock,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    function: str,
) -> None:
    """A bucketize by days, or other multiples of hours, gives what the buckets of hours give."""
    turn(world, clock, tmp_path)
    midnight = T // DAY_MS * DAY_MS
    between = f".between({midnight - 5 * DAY_MS}, {midnight + DAY_MS})"
    wanted = [
        (f"bucketize('{function}', '1d'){between}", "1d"),
        (f"bucketize('{function}', '2d'){between}", "1d"),
        (f"bucketize('{function}', '6h'){between}", "1h"),
        (f"bucketize('{function}', '1d').range('7d')", "1d"),
        (f"offset('1d').bucketize('{function}', '1d').between({midnight - 4 * DAY_MS}, {midnight + 2 * DAY_MS})", "1d"),
        (f"offset('1h').bucketize('{function}', '1d'){between}", "1h"),
    ]
    texts = [f"fetch('{{rack=\"r1\"}}').{call}" for call, _ in wanted]
    found = [evaluate(parse(text), store, clock.now_ms()) for text in texts]
    for one, (_, level) in zip(found, wanted, strict=True):
        assert any(f"buckets of {level} of" in note for note in one.notes), one.notes
    monkeypatch.setattr(planner, "_whole_step_ms", lambda *_: None)
    for text, one in zip(texts, found, strict=True):
        hourly = evaluate(parse(text), store, clock.now_ms())
        assert any("buckets of 1h of" in note for note in hourly.notes)
        assert (one.series, one.grid, one.types.tolist()) == (hourly.series, hourly.grid, hourly.types.tolist())
        assert all(map(near, *([value for i in range(len(m)) for value in m.tolist(i)] for m in (one, hourly))))


@pytest.mark.parametrize(
    "call",
    [
        "bucketize('median', '1d')",
        "bucketize('mean', '1d', nulls='propagate')",
        "map('increase', '1h').bucketize('max', '1d')",
    ],
)
def test_other_functions_read_the_buckets_of_a_level(
    world: HistoryWorld, store: HistoryStore, clock: ManualClock, tmp_path: Path, call: str
) -> None:
    turn(world, clock, tmp_path)
    midnight = T // DAY_MS * DAY_MS
    text = f"fetch('v0').{call}.between({midnight - 5 * DAY_MS}, {midnight + DAY_MS})"
    assert not any("buckets of 1d" in note for note in evaluate(parse(text), store, clock.now_ms()).notes)


@pytest.mark.parametrize("function", [name for name in ALIGNED if name])
def test_promql_reads_no_samples_where_buckets_suffice(
    world: HistoryWorld,
    store: HistoryStore,
    clock: ManualClock,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    function: str,
) -> None:
    turn(world, clock, tmp_path)
    midnight, asked = T // DAY_MS * DAY_MS, f"{function}({{__name__=~'v0|v2|v4|v5|v7|v9'}}"
    queries = [
        (f"{asked}[1d])", midnight - 2 * DAY_MS, midnight + DAY_MS, DAY_MS),
        (f"{asked}[2h])", T - 3 * HOUR, T, HOUR),
        (f"sum by (k) ({asked}[1h]))", T - 3 * HOUR, T + 2 * HOUR, HOUR),
    ]

    def ask() -> list[Any]:
        now_ms = clock.now_ms()
        found = [query_store(text, store, now_ms, start_ms=a, end_ms=b, step_ms=c) for text, a, b, c in queries]
        return [series for one in found for series in one.series()]

    with monkeypatch.context() as patch:
        patch.setattr(HistoryStore, "samples", None)
        found = ask()
    monkeypatch.setattr(pushed_windows, "HISTORY_STEPS_MS", ())
    right = ask()
    assert len(right) > len(queries)
    assert [labels for labels, _ in found] == [labels for labels, _ in right]
    for (_, points), (_, expected) in zip(found, right, strict=True):
        assert [at for at, _ in points] == [at for at, _ in expected]
        assert np.allclose([v for _, v in points], [v for _, v in expected], rtol=1e-12)


def test_exact_increases_of_promql_are_those_of_the_language(
    world: HistoryWorld, store: HistoryStore, clock: ManualClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn(world, clock, tmp_path)
    monkeypatch.setattr(HistoryStore, "samples", None)
    own = evaluate(parse(f"fetch('v0').increase('1h').between({T - 6 * HOUR}, {T + 80 * HOUR})"), store, T + 90 * HOUR)
    start, end = T - 5 * HOUR, T + 80 * HOUR
    found = query_store(
        "increase(v0[1h])", store, T + 90 * HOUR, start_ms=start, end_ms=end, step_ms=HOUR, exact_increase=True
    )
    points = {labels["k"]: [value for _, value in values] for labels, values in found.series()}
    assert points == {
        dict(own.keys[i].labels)["k"]: [float(value) for value in own.tolist(i) if value is not None]
        for i in range(len(own))
    }


def near(one: Any, other: Any) -> bool:
    """True for equal values; sums of doubles may differ in their last bits."""
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-12, abs_tol=1e-12) or (math.isnan(one) and math.isnan(other))
    return bool(one == other)


def test_late_samples_correct_every_answer(
    world: HistoryWorld, store: HistoryStore, clock: ManualClock, tmp_path: Path
) -> None:
    """They come while the day has roll-ups, are read as samples, then from roll-ups of their own day."""
    turn(world, clock, tmp_path)
    before = answers(store)
    put_at(world, later(some_series(11, SERIES, 120), 1), clock.now_ms())
    mixed = answers(store)
    assert mixed != before
    assert mixed == of_samples(world, store)
    clock.advance(2 * DAY_MS)
    turn(world, clock, tmp_path)
    assert {file.raw_name for file in rollups_of(world)} == raw_names(world)
    assert answers(store) == of_samples(world, store)
    assert len({file.period for file in rollups_of(world)}) == 2
    expected = answers(store)
    turn(world, clock, tmp_path, rollups="none")
    assert rollups_of(world) == []
    assert answers(store) == expected


def put_at(world: HistoryWorld, told: Sequence[Told], at_ms: int) -> None:
    ids = world.sources.assign(sorted({one.source for one in told}))
    rows = [
        (ids[one.source], signed(fingerprint(text_of(one))), time, birth, value)
        for one in told
        for time, birth, value in one.samples
    ]
    world.builder.append_tables([(at_ms, "default", file_of(rows))])


def test_a_day_that_is_merged_again_gets_new_rollups(
    world: HistoryWorld, store: HistoryStore, clock: ManualClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Late hours of a closed day: one more file, then one file of all. From that version on the roll-ups of replaced
    files are ignored, until there are new ones."""
    monkeypatch.setattr(plan, "DAY_FILES", 2)
    turn(world, clock, tmp_path)
    put_at(world, later(some_series(11, SERIES, 120), 1), T - 1)
    turn(world, clock, tmp_path)
    first = {file.raw_name for file in rollups_of(world)}
    assert len(first) == 2
    put_at(world, later(some_series(11, SERIES, 120), 2), T - 1)
    with monkeypatch.context() as patch:
        patch.setattr(rollup_job, "counted_samples", lambda _uri: -1)
        with pytest.raises(DigestMismatchError):
            turn(world, clock, tmp_path)
    assert {file.raw_name for file in rollups_of(world)} == first
    assert not first & raw_names(world)
    assert answers(store) == of_samples(world, store)
    turn(world, clock, tmp_path)
    assert {file.raw_name for file in rollups_of(world)} == raw_names(world)
    assert answers(store) == of_samples(world, store)
    assert levels_read(store, GRIDS[0]).startswith("5m of ")


def test_rollups_survive_their_samples(
    world: HistoryWorld, store: HistoryStore, clock: ManualClock, tmp_path: Path
) -> None:
    """Samples expire, then the roll-ups of 5 min: what a coarser level can answer is unchanged, the rest says so."""
    expected = answers(store)
    turn(world, clock, tmp_path)
    clock.advance(20 * DAY_MS)
    turn(world, clock, tmp_path, keep="*=7")
    assert raw_names(world) == set()
    assert answers(store) == expected
    fine = store.select(request_of(["v.*"], Grid(T, MINUTE, 60)))
    assert fine.partial
    assert any("have expired" in note and "step of 5m" in note for note in fine.notes)
    clock.advance(20 * DAY_MS)
    turn(world, clock, tmp_path, keep="*=7", rollups="5m=30,1h=ever,1d=ever")
    assert {file.level_ms for file in rollups_of(world)} == {HOUR, DAY_MS}
    with History(world.hdfs) as history:  # one that has not looked up the series before
        fresh = HistoryStore(history, engine="local")
        coarse = fresh.select(request_of(["v.*"], GRIDS[0]))
        assert coarse.partial
        assert any("have expired" in note and "step of 1h" in note for note in coarse.notes)
        assert made_of(fresh.select(request_of(["v.*"], GRIDS[2]))) == expected[2]


def test_samples_wait_for_their_rollups(
    world: HistoryWorld, store: HistoryStore, clock: ManualClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While roll-ups cannot be written expired samples stay, for 30 days at most; nothing is counted twice."""
    expected = answers(store)
    with monkeypatch.context() as patch:
        patch.setattr(rollup_job, "counted_samples", lambda _uri: -1)
        clock.advance(20 * DAY_MS)
        with pytest.raises(DigestMismatchError):
            turn(world, clock, tmp_path, keep="*=7")
        assert len(raw_names(world)) == 1
        assert answers(store) == expected
    made = turn(world, clock, tmp_path, keep="*=7")
    assert raw_names(world) == set()
    assert made.figures()["rollups"]["held_back"] == 0
    assert answers(store) == expected
    with monkeypatch.context() as patch:
        patch.setattr(rollup_job, "counted_samples", lambda _uri: -1)
        put_at(world, later(some_series(11, SERIES, 120), 1), clock.now_ms())
        clock.advance(45 * DAY_MS)
        with pytest.raises(DigestMismatchError):
            turn(world, clock, tmp_path, keep="*=7")
        assert raw_names(world) == set()
    assert answers(store) == expected
