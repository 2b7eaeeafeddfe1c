"""Compaction: what it leaves, and what else happens at the same time."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from artimon.rawtable.commit import COMPACTION_KEY, CompactionLog, RawTable
from artimon.rawtable.head import HeadReader
from artimon.rawtable.schema import DataFile, TableError, day_of, is_hour
from artimon.rawtable.table_state import RawState
from artimon.runtime import file_access as files
from pipeline.compaction.compaction_settings import CompactorConfig, parse_keep, parse_rollups
from pipeline.compaction.compactor import Compactor, compact_all
from pipeline.compaction.job import DigestMismatchError
from pipeline.compaction.merge import MergeLimits
from pipeline.compaction.plan import DAY_FILES, HOUR_FILES
from pipeline.compaction.row_order import SortKeys
from pipeline.compaction.sorted_runs import RunError
from tests.compaction.builder import DAY_MS, HOUR_MS, START_MS, Builder, Row, expected, held
from tests.compaction.later import Later

SMALL = MergeLimits(window_rows=16, fan_in=3)


def compactor(
    builder: Builder,
    tmp_path: Path,
    probe: Callable[[str], None] = lambda _: None,
    keep: str = "",
    rollups: str = "5m=365,1h=ever,1d=ever",
) -> Compactor:
    config = CompactorConfig(
        "",
        builder.hdfs,
        tmp_path / "data",
        keeping=parse_keep(keep),
        rollups=parse_rollups(rollups),
        limits=SMALL,
        sweep_s=0.0,
    )
    return Compactor(config, None, probe=probe)


def _config(builder: Builder, folder: Path) -> CompactorConfig:
    return CompactorConfig("", builder.hdfs, folder, keeping=parse_keep("*=99999"), limits=SMALL, sweep_s=0.0)


def turn(builder: Builder, tmp_path: Path, **more: Any) -> Compactor:
    made = compactor(builder, tmp_path, **more)
    made.run_due(threading.Event())
    return made


def polled_rows(poll: int, count: int = 6, source: int = 1) -> list[Row]:
    values: list[Any] = [poll, poll / 3, poll % 2 == 0, f"text {poll}", None, -poll]
    return [(source + n % 2, 1_000 - n, START_MS + poll * 60_000, values[n % 6]) for n in range(count)]


def fill(builder: Builder, hours: int, appends: int = 3, keep: tuple[str, ...] = ("default",), first: int = 0) -> None:
    """`appends` files a class in each of the hours from `first`; one append an hour."""
    for hour in range(first, first + hours):
        ats = [START_MS + hour * HOUR_MS + n * 60_000 for n in range(appends)]
        builder.append([(at, one, polled_rows(hour * 60 + n)) for n, at in enumerate(ats) for one in keep])


def live(builder: Builder) -> dict[str, int]:
    """Live files of each period."""
    log = CompactionLog(builder.hdfs)
    log.refresh()
    found: dict[str, int] = {}
    for file in log.live():
        found[file.period] = found.get(file.period, 0) + 1
    return found


def check(builder: Builder) -> None:
    """The table holds exactly what was appended, and an append can still follow the newest one."""
    assert held(builder.table.uri) == expected(builder.ledger)
    assert RawTable(builder.hdfs).head()[1].key == builder.state.key
    assert HeadReader(builder.hdfs).head()[1].key == builder.state.key


def test_closed_hours_become_one_file_each(builder: Builder, tmp_path: Path) -> None:
    fill(builder, 2, keep=("default", "debug"))
    builder.settle(START_MS + HOUR_MS)
    made = turn(builder, tmp_path)
    assert live(builder) == {"2026-11-18T00": 2, "2026-11-18T01": 6}
    check(builder)
    figures = made.figures()
    assert (figures["jobs"], figures["rows"], figures["waiting"]) == (2, 36, 0)
    assert figures["live"] | {"bytes": 0} == {
        "files": 8, "rows": 72, "bytes": 0, "open_hour": 6, "closed_hour": 2, "day": 0, "open_hours": 1
    }  # fmt: skip
    assert figures["last"]["files_before"] == 3
    turn(builder, tmp_path)  # nothing is due
    check(builder)


def test_days_replace_their_hours(builder: Builder, tmp_path: Path) -> None:
    """Day files are in order, hold statistics that tell their hours apart, and no dead file stays."""
    fill(builder, 2)
    fill(builder, 2, first=23)
    builder.settle(START_MS + DAY_MS + HOUR_MS)
    turn(builder, tmp_path)
    assert live(builder) == {"2026-11-18": 1, "2026-11-19T00": 1}
    check(builder)
    table = DeltaTable(builder.table.uri)
    (uri,) = (uri for uri in table.file_uris() if "/day-" in uri)
    whole = pq.read_table(pa.BufferReader(files.read_file(uri if "://" in uri else f"file://{uri}")))
    assert not len(SortKeys.of(whole).descents())
    statistics = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    (day,) = (one for one in statistics if one["partition.period"] == "2026-11-18")
    assert (day["num_records"], day["min.source"], day["max.source"]) == (3 * 3 * 6, 1, 2)
    assert day["max.time"].timestamp() * 1000 == START_MS + (23 * 60 + 2) * 60_000
    present = [path for path, _, _ in files.list_files(builder.table.uri) if not path.startswith("_delta_log/")]
    assert len(present) == 2
    with pytest.raises(FileNotFoundError):
        files.list_files(f"{builder.table.uri}/period=2026-11-18T00")  # folders of dead files are gone too


def test_hours_that_come_late_join_their_day(builder: Builder, tmp_path: Path) -> None:
    """Each lateness is one more file of the day, up to the limit; then the day is written anew."""
    fill(builder, 1)
    builder.settle(START_MS + DAY_MS)
    turn(builder, tmp_path)
    for n in range(9):
        fill(builder, 1, appends=1, first=n + 1)
        builder.settle(START_MS + DAY_MS)
        turn(builder, tmp_path)
        assert live(builder) == {"2026-11-18": n + 2 if n < 7 else n - 6}
    check(builder)


def test_an_append_that_comes_between_is_kept(builder: Builder, tmp_path: Path) -> None:
    """Compaction commits the same files on the newer version."""
    fill(builder, 1)
    builder.settle(START_MS + HOUR_MS)

    def append(point: str) -> None:
        if point == "verified":
            fill(builder, 1, appends=2, first=1)

    turn(builder, tmp_path, probe=append)
    assert live(builder) == {"2026-11-18T00": 1, "2026-11-18T01": 2}
    check(builder)


@pytest.mark.parametrize("classes", [3, *(pytest.param(n, marks=pytest.mark.slow) for n in (8, 20))])
def test_many_classes(builder: Builder, tmp_path: Path, classes: int) -> None:
    """4 files an hour and 8 a day for all classes together, as far as each has one; hours that come late included."""
    keep = tuple(f"class-{n}" for n in range(classes))
    fill(builder, 2, appends=3, keep=keep)
    builder.settle(START_MS + 2 * HOUR_MS)
    assert turn(builder, tmp_path).figures()["live"]["closed_hour"] <= max(HOUR_FILES, classes)
    fill(builder, 1, appends=2, keep=keep[:1], first=5)
    builder.settle(START_MS + DAY_MS)
    turn(builder, tmp_path)
    for late in range(2):
        fill(builder, 1, appends=1, keep=keep, first=6 + late)
        builder.settle(START_MS + DAY_MS)
        assert turn(builder, tmp_path).figures()["live"]["day"] <= max(DAY_FILES, classes)
        assert set(live(builder)) == {"2026-11-18"}
    check(builder)


class Interrupted(RawTable):
    """Something happens between the look at the head and the commit of an append, once."""

    def __init__(self, hdfs: str, between: Callable[[], object]) -> None:
        super().__init__(hdfs)
        self._between: list[Callable[[], object]] = [between]

    def commit(self, actions: Any, apps: Any = (), metadata: Any = None) -> None:
        while self._between:
            self._between.pop()()
        super().commit(actions, apps, metadata)


def test_an_append_after_a_compaction_commits_its_files(builder: Builder, tmp_path: Path) -> None:
    fill(builder, 1)
    builder.settle(START_MS + HOUR_MS)
    before = DeltaTable(builder.table.uri).version()
    builder.table = Interrupted(builder.hdfs, lambda: turn(builder, tmp_path))
    fill(builder, 1, appends=1, first=1)
    assert DeltaTable(builder.table.uri).version() == before + 2
    assert live(builder) == {"2026-11-18T00": 1, "2026-11-18T01": 1}
    check(builder)


def test_of_two_compactors_one_gives_way(builder: Builder, tmp_path: Path) -> None:
    fill(builder, 1)
    builder.settle(START_MS + HOUR_MS)
    others: list[Compactor] = []

    def compact(point: str) -> None:
        if point == "verified" and not others:
            others.append(turn(builder, tmp_path / "other"))

    made = turn(builder, tmp_path, probe=compact)
    assert made.figures()["jobs"] == 0
    assert others[0].figures()["jobs"] == 1
    assert live(builder) == {"2026-11-18T00": 1}
    check(builder)
    assert len(files.list_files(f"{builder.table.uri}/period=2026-11-18T00")) == 1


def test_one_that_was_stopped_for_two_hours_gives_way(builder: Builder, tmp_path: Path) -> None:
    """SIGSTOP before its commit; another did the work, took the dead files away and went on to the day."""
    fill(builder, 2)
    builder.settle(START_MS + HOUR_MS)
    clock = Later()

    def stopped(point: str) -> None:
        if point == "verified" and not clock.seconds:
            clock.seconds = 2 * 3600.0
            fill(builder, 1, first=5)
            builder.settle(START_MS + DAY_MS)
            Compactor(_config(builder, tmp_path / "other"), None, clock).run_due(threading.Event())

    made = Compactor(_config(builder, tmp_path), None, clock, stopped)
    made.run_due(threading.Event())
    assert (made.figures()["jobs"], made.figures()["alarms"]) == (0, 0)
    assert live(builder) == {"2026-11-18": 1}
    assert len([path for path, _, _ in files.list_files(builder.table.uri) if "_delta_log" not in path]) == 1
    check(builder)


def test_a_file_that_the_table_has_lost_is_an_alarm_and_holds_up_nothing_else(builder: Builder, tmp_path: Path) -> None:
    """The hour and its day wait, and are said; other hours and days are compacted."""
    fill(builder, 1, first=3)
    fill(builder, 1, first=27)
    builder.settle(START_MS + 2 * DAY_MS)
    lost = next(path for path, _, _ in files.list_files(builder.table.uri) if path.startswith("period=2026-11-18T03"))
    kept = files.read_file(f"{builder.table.uri}/{lost}")
    files.delete_file(f"{builder.table.uri}/{lost}")
    made = compactor(builder, tmp_path)
    with pytest.raises(RunError, match="gone from HDFS"):
        made.run_due(threading.Event())
    assert live(builder) == {"2026-11-18T03": 3, "2026-11-19": 1}
    (said,) = made.given_up()
    assert "2026-11-18T03" in said
    assert made.figures()["given_up"] == 1
    made.run_due(threading.Event())  # it is not tried again and again
    assert made.figures()["alarms"] == 1
    files.write_file(f"{builder.table.uri}/{lost}", kept)
    turn(builder, tmp_path)  # as after a restart
    assert live(builder) == {"2026-11-18": 1, "2026-11-19": 1}
    check(builder)


def test_a_job_that_fails_now_is_tried_again_and_holds_up_nothing_else(builder: Builder, tmp_path: Path) -> None:
    fill(builder, 1, first=3)
    fill(builder, 1, first=4)
    builder.settle(START_MS + 5 * HOUR_MS)
    failures = ["once"]

    def fail(point: str) -> None:
        if point == "window" and failures:
            raise OSError(failures.pop())

    made = compactor(builder, tmp_path, fail)
    with pytest.raises(OSError, match="once"):
        made.run_due(threading.Event())
    assert live(builder) == {"2026-11-18T03": 3, "2026-11-18T04": 1}
    assert (made.figures()["alarms"], made.given_up()) == (0, [])
    made.run_due(threading.Event())
    assert live(builder) == {"2026-11-18T03": 1, "2026-11-18T04": 1}
    check(builder)


def test_a_stop_in_the_middle_leaves_no_file_behind(builder: Builder, tmp_path: Path) -> None:
    fill(builder, 1)
    builder.settle(START_MS + HOUR_MS)
    stop = threading.Event()
    made = compactor(builder, tmp_path, lambda point: stop.set() if point == "written" else None)
    made.run_due(stop)
    assert made.figures()["jobs"] == 0
    assert not [path for path, _, _ in files.list_files(builder.table.uri) if "/hour-" in path]
    check(builder)


class Unanswered(CompactionLog):
    """A log whose first commit fails: after it went through, or before."""

    def __init__(self, hdfs: str, lost: bool) -> None:
        super().__init__(hdfs)
        self._failures, self._lost = 1, lost

    def commit(self, actions: Any, apps: Any = (), metadata: Any = None) -> None:
        if self._failures and not self._lost:
            self._failures -= 1
            raise OSError("the NameNode did not answer")
        super().commit(actions, apps, metadata)
        if self._failures:
            self._failures -= 1
            raise OSError("the answer was lost")


@pytest.mark.parametrize("lost", [True, False])
def test_an_unknown_outcome_is_looked_up(builder: Builder, tmp_path: Path, lost: bool) -> None:
    fill(builder, 1)
    builder.settle(START_MS + HOUR_MS)
    before = DeltaTable(builder.table.uri).version()
    config = CompactorConfig("", builder.hdfs, tmp_path, limits=SMALL)
    made = Compactor(config, None, table=Unanswered(builder.hdfs, lost))
    made.run_due(threading.Event())
    assert made.figures()["jobs"] == 1
    assert DeltaTable(builder.table.uri).version() == before + 1
    assert live(builder) == {"2026-11-18T00": 1}
    check(builder)


def test_what_is_not_equal_is_not_committed(builder: Builder, tmp_path: Path) -> None:
    """A bit that changes on its way is found: the job is abandoned with an alarm, and not tried again and again."""
    fill(builder, 1)
    builder.settle(START_MS + HOUR_MS)
    damaged: list[str] = []

    def damage(point: str) -> None:
        if point != "written":
            return
        for path, _, _ in files.list_files(builder.table.uri):
            if "/hour-" in path:
                damaged.append(path)
                _raise_a_value(f"{builder.table.uri}/{path}")

    made = compactor(builder, tmp_path, damage)
    with pytest.raises(DigestMismatchError, match="18 rows"):
        made.run_due(threading.Event())
    assert len(damaged) == 1
    assert made.figures()["alarms"] == 1
    assert live(builder) == {"2026-11-18T00": 3}
    check(builder)
    made.run_due(threading.Event())
    assert len(damaged) == 1
    assert not [path for path, _, _ in files.list_files(builder.table.uri) if "/hour-" in path]


def _raise_a_value(uri: str) -> None:
    table = pq.read_table(pa.BufferReader(files.read_file(uri)))
    values = table.column("integer").to_pylist()
    at = next(n for n, value in enumerate(values) if value is not None)
    values[at] += 1
    sink = pa.BufferOutputStream()
    pq.write_table(table.set_column(5, "integer", pa.array(values, pa.int64())), sink)
    files.write_file(uri, sink.getvalue())


@pytest.mark.parametrize("damage", ["count", "order", "cut"])
def test_a_file_that_is_not_what_the_table_says(builder: Builder, tmp_path: Path, damage: str) -> None:
    fill(builder, 1)
    at = START_MS + HOUR_MS - 60_000
    bad = builder.write(at, "default", _backwards(damage))
    if damage == "cut":
        files.write_file(f"{builder.table.uri}/{bad.path}", files.read_file(f"{builder.table.uri}/{bad.path}")[:-9])
    if damage == "count":
        said = json.dumps({**json.loads(bad.stats), "numRecords": 99})
        bad = DataFile(bad.path, bad.size, 99, bad.partition, said)
    builder.commit([bad], at)
    builder.settle(START_MS + HOUR_MS)
    made = compactor(builder, tmp_path)
    with pytest.raises(RunError):
        made.run_due(threading.Event())
    assert made.figures()["alarms"] == 1
    assert live(builder) == {"2026-11-18T00": 4}


def _backwards(damage: str) -> Any:
    """Many rows, in order unless `damage` is order."""
    from tests.compaction.builder import file_table

    table = file_table([(1, n, START_MS, n) for n in range(400)])
    return table.take(list(range(399, -1, -1))) if damage == "order" else table


def test_expiry_by_class(builder: Builder, tmp_path: Path) -> None:
    """Whole files go with one commit; nothing is written anew. Late partitions go at once."""
    fill(builder, 1, appends=2, keep=("default", "debug"))
    fill(builder, 2, appends=2, keep=("default", "debug"), first=24)
    builder.settle(START_MS + DAY_MS)
    turn(builder, tmp_path)
    builder.settle(START_MS + 9 * DAY_MS)  # newest append: what a clock may say is bounded by it
    made = turn(builder, tmp_path, keep="debug=1,default=999999", rollups="none")
    keeps = {keep for keep, _ in held(builder.table.uri)}
    assert keeps == {"default"}
    assert made.figures()["expired_files"] == 1 + 2 * 2
    builder.ledger = type(builder.ledger)({key: n for key, n in builder.ledger.items() if key[0] != "debug"})
    check(builder)
    fill(builder, 1, appends=1, keep=("debug",))  # it comes late
    turn(builder, tmp_path, keep="debug=1,default=999999", rollups="none")
    assert {keep for keep, _ in held(builder.table.uri)} == {"default"}


def test_the_chain_of_appends_outlives_checkpoints_and_cleanup(builder: Builder, tmp_path: Path) -> None:
    """The newest append is found however old it is, as long as its own commit is there; else it is an error, never an
    empty table."""
    fill(builder, 1)
    builder.settle(START_MS + HOUR_MS)
    newest = DeltaTable(builder.table.uri).version()
    turn(builder, tmp_path)
    DeltaTable(builder.table.uri).create_checkpoint()
    for version in range(newest):
        files.delete_file(f"{builder.table.uri}/_delta_log/{version:020d}.json")
    check(builder)
    files.delete_file(f"{builder.table.uri}/_delta_log/{newest:020d}.json")
    for read in (RawTable(builder.hdfs).head, HeadReader(builder.hdfs).head):
        with pytest.raises(TableError, match="its state is lost"):
            read()


def test_commits_say_what_they_did_and_carry_no_state(builder: Builder, tmp_path: Path) -> None:
    fill(builder, 1)
    builder.settle(START_MS + HOUR_MS)
    turn(builder, tmp_path)
    version = DeltaTable(builder.table.uri).version()
    text = files.read_file(f"{builder.table.uri}/_delta_log/{version:020d}.json").decode()
    actions = [json.loads(line) for line in text.splitlines()]
    (info,) = (action["commitInfo"] for action in actions if "commitInfo" in action)
    assert info[COMPACTION_KEY] | {"digest": ""} == {
        "format": 1, "kind": "hour", "period": "2026-11-18T00", "keep": "default", "files": 3, "rows": 18, "digest": ""
    }  # fmt: skip
    assert not any("txn" in action for action in actions)
    changes = [one["dataChange"] for action in actions for kind, one in action.items() if kind in ("add", "remove")]
    assert changes == [False] * 4


def test_everything_that_a_caller_says_is_closed(builder: Builder, tmp_path: Path) -> None:
    fill(builder, 2)
    figures = compact_all(builder.hdfs, tmp_path, START_MS + HOUR_MS)
    assert (figures["jobs"], live(builder)) == (1, {"2026-11-18T00": 1, "2026-11-18T01": 3})
    compact_all(builder.hdfs, tmp_path, START_MS + DAY_MS)
    assert live(builder) == {"2026-11-18": 1}
    assert len([path for path, _, _ in files.list_files(builder.table.uri) if "_delta_log" not in path]) == 1
    check(builder)


def test_without_a_table_nothing_happens(place: str, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Compactor(CompactorConfig("", place, tmp_path), None).run_due(threading.Event())


def test_periods_have_two_forms() -> None:
    assert is_hour("2026-11-18T00")
    assert day_of("2026-11-18T00") == day_of("2026-11-18") == "2026-11-18"
    assert RawState().append == 0
