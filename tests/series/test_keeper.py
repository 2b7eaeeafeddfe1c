"""Announcements on a real broker become rows on a real HDFS exactly once, whatever fails in between."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kafka.admin import KafkaAdminClient

from artimon.model.clock import SYSTEM_CLOCK
from artimon.model.values import Kind, ValueType
from artimon.rawtable import merged_table
from artimon.rawtable.schema import DAY_MS
from artimon.rawtable.series_delta import SeriesTable
from artimon.runtime import file_access as files
from pipeline.spark.series_writer import SeriesWriter
from tests.series.world import World, block, expected, make_topic, make_world, stored_rows
from tests.waiting import eventually

pytestmark = pytest.mark.stack


class Died(RuntimeError):
    """Stands for the end of the process."""


@pytest.fixture
def keeper_world(kafka: str, hdfs: str) -> World:
    return make_world(kafka, hdfs)


def texts(count: int, name: str = "x") -> list[str]:
    return [f'{name}{{n="{n}"}}' for n in range(count)]


def read_all(keeper_world: World, probe: Callable[[str], None] = lambda _: None) -> SeriesWriter:
    """Run turns until nothing is left, as one process does."""
    keeper = SeriesWriter(keeper_world.kafka, keeper_world.topic, keeper_world.hdfs, probe=probe)
    consumer = keeper._consumer()
    try:
        while keeper.copy_once(consumer, threading.Event()):
            pass
    finally:
        consumer.close()
        keeper._topic.close()
    return keeper


def die_at(point: str) -> Callable[[str], None]:
    def probe(at: str) -> None:
        if at == point:
            raise Died(point)

    return probe


def test_announcements_become_rows_and_old_and_repeated_ones_change_nothing(keeper_world: World) -> None:
    metadata = {"type": ValueType.DOUBLE, "kind": Kind.GAUGE, "help": "grüße", "unit": "ms"}
    first = [
        block("a/h/0", 0, 10, texts(3)),
        block("a/h/0", 1, 10, texts(2, "y"), **metadata),
        block("b", 0, 4, texts(3)),
    ]
    keeper_world.send([*first, first[0]])
    read_all(keeper_world)
    assert stored_rows(keeper_world) == expected(first)
    later = [block("a/h/0", 0, 5, texts(4), help="old"), block("a/h/0", 0, 30, texts(2), help="new"), first[1]]
    keeper_world.send(later)
    read_all(keeper_world)
    assert stored_rows(keeper_world) == expected([*first, *later])
    read_all(keeper_world)  # nothing new: no commit
    table = SeriesTable(keeper_world.hdfs)
    assert table.refresh().version() == 2


def test_invalid_announcements_are_counted_and_stop_nothing(keeper_world: World) -> None:
    good = block("a", 0, 1, texts(2))
    keeper_world.send_bytes([(b"k", b"nonsense"), (b"k", None)])
    keeper_world.send([good, block("a", 1, 1, ["not canonical"])])
    keeper = read_all(keeper_world)
    assert stored_rows(keeper_world) == expected([good])
    assert keeper.figures()["refused"] == 2


@pytest.mark.parametrize("point", ["read", "added"])
def test_rows_are_complete_after_a_process_died_between_two_steps(keeper_world: World, point: str) -> None:
    made = [block("a", n, n, texts(5, f"n{n}")) for n in range(4)]
    keeper_world.send(made)
    with pytest.raises(Died):
        read_all(keeper_world, die_at(point))
    read_all(keeper_world)
    assert stored_rows(keeper_world) == expected(made)


def test_a_commit_whose_answer_is_lost_is_recognized(keeper_world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    made = [block("a", 0, 1, texts(3))]
    keeper_world.send(made)
    real = SeriesTable.commit

    def lost(self: SeriesTable, actions: list[Any], ids: list[Any]) -> None:
        real(self, actions, ids)
        raise OSError("the answer is lost")

    monkeypatch.setattr(SeriesTable, "commit", lost)
    read_all(keeper_world)
    assert stored_rows(keeper_world) == expected(made)
    assert SeriesTable(keeper_world.hdfs).refresh().version() == 1


def test_concurrent_keepers_store_every_series_once(keeper_world: World) -> None:
    made = [block(f"s{n % 3}", n, n, texts(20, f"n{n}")) for n in range(30)]
    keeper_world.send(made)
    threads = [threading.Thread(target=read_all, args=(keeper_world,)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert stored_rows(keeper_world) == expected(made)
    table = SeriesTable(keeper_world.hdfs)
    assert sum(file.rows for file in table.live()) == 600
    named = {file.path for file in table.live()}
    assert {path for path, _, _ in files.list_files(table.uri) if not path.startswith("_")} == named


def test_a_recreated_topic_is_read_from_its_beginning(keeper_world: World) -> None:
    first = block("a", 0, 1, texts(3))
    keeper_world.send([first])
    read_all(keeper_world)
    admin = KafkaAdminClient(bootstrap_servers=keeper_world.kafka)
    admin.delete_topics([keeper_world.topic])
    eventually(lambda: keeper_world.topic not in admin.list_topics(), "deletion")
    admin.close()
    make_topic(keeper_world.kafka, keeper_world.topic)
    second = block("a", 0, 9, texts(4))
    keeper_world.send([second])
    read_all(keeper_world)
    assert stored_rows(keeper_world) == expected([first, second])


def test_merging_keeps_all_rows_in_fewer_files(keeper_world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small files are merged into few, then into one sorted file a span; dead files are deleted later."""
    monkeypatch.setattr(SeriesTable, "max_deltas", 3)
    monkeypatch.setattr(merged_table, "MERGE_PASS_ROWS", 40)
    made = []
    for n in range(3):
        made.append(block("a", 0, n, texts(30 + n)))
        keeper_world.send(made[-1:])
        read_all(keeper_world)
    table = SeriesTable(keeper_world.hdfs)
    small = table.maintain()
    assert small is not None
    assert (small.full, small.rows_before, small.rows) == (False, 93, 32)
    assert stored_rows(keeper_world) == expected(made)
    assert table.maintain() is None
    tomorrow = SeriesTable(keeper_world.hdfs, ClockAhead(DAY_MS))
    full = tomorrow.expire(lambda rows: [True] * len(rows))
    assert full is not None
    assert (full.full, full.rows) == (True, 32)
    assert all(file.is_base for file in tomorrow.live())
    assert stored_rows(keeper_world) == expected(made)
    assert tomorrow.delete_orphans() == []  # readers may still use them
    tomorrow._clock = ClockAhead(2 * DAY_MS)
    dead = tomorrow.delete_orphans()
    assert len(dead) >= 4
    assert stored_rows(keeper_world) == expected(made)
    read_all(keeper_world)  # positions survive merges
    assert SeriesTable(keeper_world.hdfs).refresh().version() == tomorrow.refresh().version()


def test_a_stopped_or_conflicting_merge_leaves_no_file(keeper_world: World) -> None:
    made = [block("a", 0, 1, texts(30))]
    keeper_world.send(made)
    read_all(keeper_world)
    table, other = SeriesTable(keeper_world.hdfs), SeriesTable(keeper_world.hdfs)
    assert table.merge(table.live(), True, lambda: False) is None
    old = table.live()
    assert other.merge(other.live(), True) is not None
    assert table.merge(old, True) is None
    assert stored_rows(keeper_world) == expected(made)
    unnamed = {path for path, _, _ in files.list_files(table.uri) if path.startswith("base")}
    assert unnamed == {file.path for file in other.live()}


class ClockAhead:
    """The system's clock, some time ahead."""

    def __init__(self, ahead_ms: int) -> None:
        self._ahead_ms = ahead_ms

    def now_ms(self) -> int:
        return SYSTEM_CLOCK.now_ms() + self._ahead_ms

    def monotonic(self) -> float:
        return SYSTEM_CLOCK.monotonic()

    def wait(self, stop: threading.Event, seconds: float) -> bool:
        return stop.wait(seconds)


@pytest.fixture
def running(keeper_world: World) -> Iterator[tuple[SeriesWriter, threading.Event]]:
    stop = threading.Event()
    keeper = SeriesWriter(keeper_world.kafka, keeper_world.topic, keeper_world.hdfs, every_s=0.2)
    thread = threading.Thread(target=keeper.run, args=(stop,))
    thread.start()
    yield keeper, stop
    stop.set()
    thread.join(30)
    assert not thread.is_alive()


def test_the_keeper_follows_its_topic(keeper_world: World, running: tuple[SeriesWriter, threading.Event]) -> None:
    keeper, _ = running
    made = [block("a", 0, 1, texts(3))]
    keeper_world.send(made)
    eventually(lambda: keeper.figures()["series"] == 3, "the first announcement")
    made.append(block("a", 0, 2, texts(4)))
    keeper_world.send(made[1:])
    eventually(lambda: keeper.figures()["series"] == 7, "the second")
    assert stored_rows(keeper_world) == expected(made)


def test_the_keeper_waits_for_its_topic(kafka: str, hdfs: str, caplog: pytest.LogCaptureFixture) -> None:
    """The process starts before its topic exists, on a broker whose metadata is late."""
    name = f"t{uuid.uuid4().hex[:10]}"
    late = World(kafka, f"{name}.series", f"{hdfs}/{name}")
    stop = threading.Event()
    keeper = SeriesWriter(late.kafka, late.topic, late.hdfs, every_s=0.2)
    thread = threading.Thread(target=keeper.run, args=(stop,))
    thread.start()
    eventually(lambda: "has no topic" in keeper.retry.problem, "the first try")
    make_topic(kafka, late.topic)
    made = [block("a", 0, 1, texts(3))]
    late.send(made)
    eventually(lambda: keeper.figures()["series"] == 3, "the announcement")
    assert keeper.retry.problem == ""
    assert "has no topic" in caplog.text
    stop.set()
    thread.join(30)
    assert stored_rows(late) == expected(made)
