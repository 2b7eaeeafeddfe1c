"""Rows, types, announcements, the log at start, and the state on disk."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import sources.state.schema_binding
from artimon.model.batch import MAX_BLOCK_SERIES, MAX_SAMPLES, PollResult, Samples, SeriesBlock
from artimon.model.fingerprint import fingerprint
from artimon.model.values import Kind, Value
from sources.base.source_errors import SourceStateError
from sources.state import state_files as state
from sources.state import state_store
from sources.state.schema_binding import bind_schema
from sources.state.series_memory import FORGET_MS, PlacedColumns, PreparedPoll, SourceSeries
from sources.state.source_reading import Reading, ReadingBuilder, SourceSchema, SourceVariable
from sources.state.state_store import SourceStateStore
from tests.waiting import until

AUTOMATIC = {"context": "shop", "instance": "0", "host": "web1"}
UUID = bytes(range(16))


class Process:
    """A process of one source; `poll` delivers variables by name."""

    def __init__(self, series: SourceSeries, uuid: bytes = UUID, birth_ms: int = 500) -> None:
        self.series, self._maker = series, ReadingBuilder(uuid, birth_ms)

    def prepare(self, time_ms: int, *variables: SourceVariable) -> tuple[PlacedColumns, PreparedPoll]:
        reading = self._maker.make(variables, time_ms)
        placed = self.series.place(bind_schema(reading.schema, AUTOMATIC), time_ms)
        return placed, self.series.prepare(reading, placed)

    def poll(self, time_ms: int, **values: Value) -> tuple[PlacedColumns, PreparedPoll]:
        variables = [SourceVariable(name, {}, value, Kind.COUNTER) for name, value in values.items()]
        placed, prepared = self.prepare(time_ms, *variables)
        self.series.commit(prepared)
        return placed, prepared


def sample_rows(prepared: PreparedPoll) -> list[tuple[int, int, int, Value | None]]:
    return [row for polled in prepared.polled for row in polled.samples.rows()]


def blocks(prepared: PreparedPoll) -> list[SeriesBlock]:
    return [block for polled in prepared.polled for block in polled.blocks]


def print_of(name: str) -> int:
    return fingerprint(f'{name}{{context="shop",host="web1",instance="0"}}')


def test_a_label_given_by_hand_wins_and_an_empty_one_takes_away() -> None:
    reading = ReadingBuilder(UUID, 0).make([SourceVariable("a", {"host": "mine", "instance": "", "route": "/"}, 1)], 10)
    (column,) = bind_schema(reading.schema, AUTOMATIC).columns
    assert column.text == 'a{context="shop",host="mine",route="/"}'


def test_bad_names_and_labels_are_refused_and_the_others_go_on() -> None:
    long = "x" * 2_000
    variables = [
        SourceVariable("good", {}, 1),
        SourceVariable("not good", {}, 1),
        SourceVariable("b", {"__x": "1"}, 1),
        SourceVariable("c", {"l": long}, 1),
    ]
    bound = bind_schema(ReadingBuilder(UUID, 0).make(variables, 10).schema, AUTOMATIC)
    assert [column.text.partition("{")[0] for column in bound.columns] == ["good"]
    assert bound.refused == {"bad name or label": 3}
    assert "not good" in bound.examples["bad name or label"]


def test_two_columns_that_become_one_series_are_not_merged() -> None:
    variables = [SourceVariable("a", {}, 1), SourceVariable("a", {"host": "web1"}, 2)]
    bound = bind_schema(ReadingBuilder(UUID, 0).make(variables, 10).schema, AUTOMATIC)
    assert len(bound.columns) == 1
    assert bound.refused == {"same series twice": 1}


def test_an_integer_becomes_a_double_once() -> None:
    process = Process(SourceSeries("s"))
    process.poll(10_000, a=7)
    placed, prepared = process.poll(20_000, a=6.5)
    assert not placed.refused
    assert sample_rows(prepared) == [(print_of("a"), 20_000, 10_000, 6.5)], "7 -> 6.5 is a counter that fell"
    assert len(blocks(prepared)) == 1, "the new type is announced"
    placed, prepared = process.poll(30_000, a=8)
    assert placed.refused == {"type change": 1}
    assert sample_rows(prepared) == [(print_of("a"), 30_000, 10_000, None)], "it has no value of its type any more"
    placed, prepared = process.poll(40_000, a=9.0)
    assert sample_rows(prepared) == [(print_of("a"), 40_000, 30_000, 9.0)]


@pytest.mark.parametrize(("first", "second"), [(1, True), (True, 1), (2.0, False), (1.0, 1)])
def test_any_other_change_of_type_is_refused_counted_and_named(first: Value, second: Value) -> None:
    process = Process(SourceSeries("s"))
    process.poll(10_000, a=first, b=1)
    placed, prepared = process.poll(20_000, a=second, b=2)
    assert placed.refused == {"type change": 1}
    assert "type change" in placed.problems[0]
    assert 'a{context="shop"' in placed.problems[0]
    assert (print_of("b"), 20_000, 500, 2) in sample_rows(prepared)


def test_a_fingerprint_with_two_texts_is_refused_loudly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources.state.schema_binding, "fingerprint", lambda text: 42)
    process = Process(SourceSeries("s"))
    process.poll(10_000, a=1)
    placed, prepared = process.poll(20_000, a=2, b=100)
    assert placed.refused == {"fingerprint clash": 1}
    assert [row[3] for row in sample_rows(prepared)] == [2]


def test_blocks_are_whole_grow_at_the_end_and_are_announced_when_they_change() -> None:
    process = Process(SourceSeries("s"))
    names = [f"v{i}" for i in range(MAX_BLOCK_SERIES + 1)]
    _, first = process.poll(10_000, **dict.fromkeys(names, 1))
    assert [(b.block, len(b.series)) for b in blocks(first)] == [(0, MAX_BLOCK_SERIES), (1, 1)]
    _, steady = process.poll(20_000, **dict.fromkeys(names, 2))
    assert not blocks(steady)
    _, grown = process.poll(30_000, **dict.fromkeys([*names, "new"], 3))
    (block,) = blocks(grown)
    assert (block.block, [s.text.partition("{")[0] for s in block.series]) == (1, [names[-1], "new"])
    assert block.version == 30_000
    assert [s.first_seen_ms for s in block.series] == [10_000, 30_000]


def test_a_change_of_kind_help_or_unit_is_announced() -> None:
    process = Process(SourceSeries("s"))
    for i, variable in enumerate(
        (
            SourceVariable("a", {}, 1, Kind.UNKNOWN),
            SourceVariable("a", {}, 1, Kind.GAUGE),
            SourceVariable("a", {}, 1, Kind.GAUGE, "ms"),
        )
    ):
        _, prepared = process.prepare(10_000 * (i + 1), variable)
        process.series.commit(prepared)
        ((info,),) = (block.series for block in blocks(prepared))
        assert (info.kind, info.unit) == (variable.kind, variable.unit)


def test_everything_is_announced_again_after_a_day_and_versions_grow() -> None:
    process = Process(SourceSeries("s"))
    _, first = process.poll(10_000, a=1)
    _, later = process.poll(10_000 + 86_400_000, a=1)
    assert [b.block for b in blocks(later)] == [0]
    process.series._days.clear()
    _, again = process.poll(20_000 + 86_400_000, a=1)
    versions = [b.version for prepared in (first, later, again) for b in blocks(prepared)]
    assert versions == sorted(set(versions))


def test_an_announcement_that_was_not_accepted_goes_with_the_next_poll() -> None:
    process = Process(SourceSeries("s"))
    process.prepare(10_000, SourceVariable("a", {}, 1))
    _, prepared = process.prepare(20_000, SourceVariable("a", {}, 1))
    assert len(blocks(prepared)) == 1


def test_large_polls_are_split_and_announced_once() -> None:
    process = Process(SourceSeries("s"))
    _, prepared = process.poll(10_000, **{f"v{i}": i for i in range(MAX_SAMPLES + 5)})
    assert [len(polled.samples) for polled in prepared.polled] == [MAX_SAMPLES, 5]
    assert len(blocks(prepared)) == 11
    assert not prepared.polled[1].blocks


def test_a_clock_that_is_set_back_a_little_gives_no_sample_twice() -> None:
    process = Process(SourceSeries("s"))
    process.poll(10_000, a=1)
    _, prepared = process.poll(9_500, a=2)
    assert [row[1] for row in sample_rows(prepared)] == [10_001]


def test_a_full_source_refuses_new_series_until_old_ones_are_long_gone() -> None:
    process = Process(SourceSeries("s", max_series=2))
    process.poll(10_000, a=1, b=1)
    placed, _ = process.poll(20_000, a=1, c=1)
    assert placed.refused == {"too many series": 1}
    placed, prepared = process.poll(30_000 + FORGET_MS, a=1, c=1)
    assert not placed.refused
    (block,) = blocks(prepared)
    assert [s.text.partition("{")[0] for s in block.series] == ["a", "c"]


def test_the_end_of_a_process_ends_what_is_live() -> None:
    process = Process(SourceSeries("s"))
    process.poll(10_000, a=1, b=1)
    process.poll(20_000, a=1)
    prepared = process.series.prepare_end(25_000)
    assert sample_rows(prepared) == [(print_of("a"), 25_000, 500, None)]
    process.series.commit(prepared)
    assert process.series.live == 0
    _, back = process.poll(30_000, a=4)
    assert sample_rows(back) == [(print_of("a"), 30_000, 25_000, 4)]


def test_a_successor_continues_the_series_and_ends_what_it_does_not_have() -> None:
    series = SourceSeries("s")
    Process(series).poll(10_000, a=10, b=1)
    _, prepared = Process(series, bytes(16), birth_ms=15_000).poll(20_000, a=12)
    assert sample_rows(prepared) == [(print_of("a"), 20_000, 15_000, 12), (print_of("b"), 20_000, 500, None)]


# --- state on disk


def restored(series: SourceSeries) -> SourceSeries:
    return state.decode_state(state.encode_descriptions(series), state.encode_values(series), 100)


def test_the_state_survives_a_restart_to_the_last_birth() -> None:
    process = Process(SourceSeries("shop/web1/0"))
    process.poll(10_000, a=10, b=2.5, c=True)
    process.poll(20_000, a=5, c=False)
    again = restored(process.series)
    assert (again.name, again.uuid, again.last_poll_ms) == ("shop/web1/0", UUID, 20_000)
    successor = Process(again)
    _, prepared = successor.poll(30_000, a=6, b=1.0, c=True, d=1)
    born = {row[0]: row[2] for row in sample_rows(prepared)}
    assert born == {
        print_of("a"): 10_000,
        print_of("b"): 20_000,
        print_of("c"): 500,
        print_of("d"): 20_000,
    }
    assert len(blocks(prepared)) == 1, "all at start"


def test_what_the_log_holds_beyond_the_state_is_made_up_for() -> None:
    """The state is older than the last polls: one added a series, one let a counter fall, one ended a series."""
    process = Process(SourceSeries("s"))
    process.poll(10_000, a=10, gone=1)
    old = restored(process.series)
    log = [
        polled
        for poll in (
            process.poll(20_000, a=4, gone=1, new=7),
            process.poll(30_000, a=5, new=8),
        )
        for polled in poll[1].polled
    ]
    for polled in log:
        old.replay(polled)
    expected = sample_rows(process.poll(40_000, a=6, gone=2, new=3)[1])
    assert sorted(sample_rows(Process(old).poll(40_000, a=6, gone=2, new=3)[1])) == sorted(expected)


def test_announcements_in_the_log_give_lost_rows_back_and_say_nothing_of_the_process() -> None:
    """As the log replays them: apart from the samples, without a process, after them."""
    process = Process(SourceSeries("s"))
    polls = [process.poll(10_000, a=10, gone=1)[1], process.poll(20_000, a=4, gone=1, new=7)[1]]
    lost = SourceSeries("s")
    for polled in (one for poll in polls for one in poll.polled):
        lost.replay(replace(polled, blocks=()))
        lost.replay(PollResult("s", bytes(16), 0, polled.poll_ms, Samples.of(()), blocks=polled.blocks))
    assert lost.uuid == UUID
    expected = sample_rows(process.poll(30_000, a=6, new=3)[1])
    assert sample_rows(Process(lost).poll(30_000, a=6, new=3)[1]) == expected
    assert (print_of("gone"), 30_000, 500, None) in expected


def test_the_log_changes_nothing_that_the_state_knows_better() -> None:
    process = Process(SourceSeries("s"))
    _, old = process.poll(10_000, a=10)
    process.poll(20_000, a=20)
    process.series.replay(old.polled[0])
    assert process.series.last_poll_ms == 20_000


@pytest.mark.parametrize("cut", [lambda data: data[:-1], lambda data: b"", lambda data: bytes(len(data))])
def test_damaged_state_is_set_aside(tmp_path: Path, cut: object) -> None:
    async def make() -> None:
        store = SourceStateStore(tmp_path, 100)
        store.load([], 0)
        Process(store.get("s")).poll(10_000, a=1)
        store.touch(store.get("s"))
        await store.flush()

    asyncio.run(make())
    path = tmp_path / (state.key_of("s") + state.SERIES)
    path.write_bytes(cut(path.read_bytes()))  # type: ignore[operator]
    with pytest.raises(SourceStateError):
        state.read_state(path, 100)
    store = SourceStateStore(tmp_path, 100)
    store.load([], 20_000)
    assert (store.damaged, list(store)) == (1, [])
    assert not path.exists()


def test_damaged_values_cost_the_values_only(tmp_path: Path) -> None:
    process = Process(SourceSeries("s"))
    process.poll(10_000, a=1)
    path = tmp_path / ("x" + state.SERIES)
    state.replace_file(path, state.encode_descriptions(process.series))
    state.replace_file(path.with_suffix(state.VALUES), state.encode_values(process.series)[:-3])
    again = state.read_state(path, 100)
    assert (again.live, again.rows.size) == (0, 1)


def test_the_store_forgets_sources_that_ended_long_ago(tmp_path: Path) -> None:
    async def make() -> None:
        store = SourceStateStore(tmp_path, 100)
        store.load([], 0)
        process = Process(store.get("s"))
        process.poll(10_000, a=1)
        process.series.commit(process.series.prepare_end(20_000))
        store.touch(process.series)
        await store.flush()

    asyncio.run(make())
    early, late = SourceStateStore(tmp_path, 100), SourceStateStore(tmp_path, 100)
    early.load([], 30_000)
    assert [series.name for series in early] == ["s"]
    late.load([], 30_000 + 9 * 86_400_000)
    assert not list(late)
    assert not list(tmp_path.iterdir())


def test_who_is_stopped_while_it_writes_forgets_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The writer is cancelled in the middle of a file; the rest is written at the end."""
    began, go = threading.Event(), threading.Event()

    def slow(path: Path, data: bytes, sync: bool = False) -> None:
        began.set()
        go.wait(60)
        write(path, data, sync)

    write = state.replace_file
    monkeypatch.setattr(state, "replace_file", slow)

    async def run() -> None:
        store = SourceStateStore(tmp_path, 100)
        store.load([], 0)
        for name in "ab":
            Process(store.get(name)).poll(10_000, a=1)
            store.touch(store.get(name))
        writer = asyncio.create_task(store.write_forever())
        await until(began.is_set)
        writer.cancel()
        end = asyncio.create_task(store.flush())
        await asyncio.sleep(0)
        assert not writer.done(), "its file has one writer"
        go.set()
        await end

    asyncio.run(run())
    again = SourceStateStore(tmp_path, 100)
    again.load([], 20_000)
    assert sorted((series.name, series.live) for series in again) == [("a", 1), ("b", 1)]
    assert not list(tmp_path.glob("*.new"))


def test_a_source_that_is_touched_again_is_written_after_a_pause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was touched in the pause is written at the end, and durable at once where that is wanted."""
    written: list[str] = []

    def noted(path: Path, data: bytes, sync: bool = False) -> None:
        write(path, data, sync)
        written.append(path.suffix)

    write = state.replace_file
    monkeypatch.setattr(state, "replace_file", noted)
    monkeypatch.setattr(state_store, "WRITE_PAUSE_S", 3_600.0)

    def last_poll_ms() -> int:
        return state.read_state(tmp_path / (state.key_of("s") + state.SERIES), 100).last_poll_ms

    async def run() -> None:
        store = SourceStateStore(tmp_path, 100)
        store.load([], 0)
        process = Process(store.get("s"))
        process.poll(10_000, a=1)
        store.touch(process.series)
        writer = asyncio.create_task(store.write_forever())
        await until(lambda: state.VALUES in written)
        for time_ms in (20_000, 30_000):
            process.poll(time_ms, a=2)
            store.touch(process.series)
            await asyncio.sleep(0.01)
        assert (written.count(state.VALUES), last_poll_ms()) == (1, 10_000)
        assert await store.write_now(process.series)
        assert (written.count(state.VALUES), last_poll_ms()) == (2, 30_000)
        process.poll(40_000, a=3)
        store.touch(process.series)
        writer.cancel()
        await store.flush()
        assert (written.count(state.VALUES), last_poll_ms()) == (3, 40_000)

    asyncio.run(run())


def test_the_log_alone_is_enough_when_the_state_is_lost() -> None:
    """Only announcements and samples of a source remain: start times are kept."""
    samples = Samples.of([(print_of("a"), 10_000, 400, 5)])
    series = SourceSeries("s")
    series.replay(PollResult("s", UUID, 500, 10_000, samples))
    _, prepared = Process(series).poll(20_000, a=4, b=1)
    assert sample_rows(prepared) == [(print_of("a"), 20_000, 10_000, 4), (print_of("b"), 20_000, 10_000, 1)]


def test_strings_keep_their_text() -> None:
    schema = SourceSchema(b"1", ["a", "b"], [{}, {}], np.array([3, 0], np.uint8), np.zeros(2, np.uint8), {}, {})
    series = SourceSeries("s")
    reading = Reading(UUID, 0, 10, schema, np.array([1, 5]), ("no", "ünï"))
    prepared = series.prepare(reading, series.place(bind_schema(schema, {}), 10))
    assert [row[3] for row in sample_rows(prepared)] == ["ünï", 5]
