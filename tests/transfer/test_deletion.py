"""Deletions: exactly what is selected goes, from samples, roll-ups and series, and its bytes too."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from artimon.cli.history_deletion import DeletionToken, SelectedDeletion, audit, select, verify
from artimon.model.clock import SYSTEM_CLOCK
from artimon.model.fingerprint import fingerprint, signed
from artimon.rawtable.commit import CompactionLog, RawTable
from artimon.rawtable.parquet_reader import GroupReader
from artimon.rawtable.rollups import LEVELS_MS, RollupTable, stem_of
from artimon.rawtable.schema import raw_uri
from artimon.rawtable.series_delta import SeriesTable
from artimon.runtime import file_access as files
from pipeline.compaction.compaction_settings import CompactorConfig, parse_keep
from pipeline.compaction.compactor import Compactor
from pipeline.compaction.rollup_job import RollupRunner
from pipeline.compaction.rollup_plan import RollupJob
from pipeline.history import deletion
from pipeline.history.deletion import Deletion, DeletionError, DeletionPlan, prove_deletion, record_uri
from pipeline.history.importer import Importer
from pipeline.history.row_selection import Bools, Ints, RowSelection, matching_groups
from query_dsl import evaluate, parse
from query_dsl.stores.history.engine import History
from query_dsl.stores.history.result import Sample
from query_dsl.stores.history.sample_query import HistoryError
from query_dsl.stores.history_store import HistoryStore
from query_dsl.tree.query_errors import NothingSelected
from tests.compaction.later import Later
from tests.history.world import START_MS as HOURS_MS
from tests.history.world import Given, HistoryWorld
from tests.series.world import block
from tests.transfer.importing import samples
from tests.transfer.rows import Row, chunk_of
from tests.transfer.test_export import ROWS

ROOT = Path(__file__).parents[2]
DAY_MS = 86_400_000
MIDNIGHT_MS = 19_000 * DAY_MS


def store(hdfs: str, folder: Path, rows: Iterable[Row]) -> None:
    Importer(hdfs, folder / uuid.uuid4().hex, "default").run(uuid.uuid4().hex, [chunk_of(list(rows))])


def compact(hdfs: str, folder: Path, keep: str = "*=99999", clock: Any = SYSTEM_CLOCK) -> None:
    config = CompactorConfig("", hdfs, folder / "compactor", keeping=parse_keep(keep), sweep_s=0.0)
    Compactor(config, None, clock).run_due(threading.Event())


def delete(hdfs: str, selector: str, after: int, until: int, **settings: Any) -> tuple[int, int]:
    """Version and number of samples of a deletion."""
    _, token = SelectedDeletion(hdfs, selector, after, until).plan()
    done = SelectedDeletion(hdfs, selector, token.after_ms, token.until_ms, **settings).confirm(token)
    return done.version, done.samples


def days_of_hosts(days: int = 3, hosts: int = 3, polls: int = 24) -> list[Row]:
    """Values of hosts: the number of the hour."""
    step = DAY_MS // polls
    return [
        ("plc/a", "load", {"host": f"h{host}"}, MIDNIGHT_MS + n * step + 1, 1, n)
        for n in range(days * polls)
        for host in range(hosts)
    ]


def counts(hdfs: str, level: str, days: int = 3) -> dict[str, list[Any]]:
    """Counts of samples of each host by buckets, and that they came from roll-ups."""
    text = f"fetch('load').bucketize('count', '{level}').between({MIDNIGHT_MS}, {MIDNIGHT_MS + days * DAY_MS})"
    with History(hdfs) as history:
        found = evaluate(parse(text), HistoryStore(history, engine="local"), SYSTEM_CLOCK.now_ms())
    return {text.split('"')[1]: found.tolist(row) for row, text in enumerate(found.series)}


@given(rows=ROWS, cut=st.tuples(st.integers(0, 29), st.integers(0, 29)), compacted=st.booleans())
@settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_exactly_the_selected_samples_go(
    hdfs: str, tmp_path: Path, rows: list[Row], cut: tuple[int, int], compacted: bool
) -> None:
    place = f"{hdfs}/{uuid.uuid4().hex}"
    store(place, tmp_path, rows)
    if compacted:
        compact(place, tmp_path)
    times = sorted(rows[at % len(rows)][3] for at in cut)
    after, until = times[0] - 1, times[1]
    name = rows[cut[0] % len(rows)][1]

    def is_selected(one: Sample) -> bool:
        return one.series.startswith(name + "{") and after < one.time_ms <= until

    before = samples(place)
    _, deleted = delete(place, name, after, until)
    kept = [one for one in before if not is_selected(one)]
    assert deleted == len(before) - len(kept) > 0
    try:
        assert list(map(repr, samples(place))) == list(map(repr, kept))
    except NothingSelected:
        assert not kept
    compact(place, tmp_path)
    if kept:
        assert list(map(repr, samples(place))) == list(map(repr, kept))


def test_roll_ups_follow(hdfs: str, tmp_path: Path) -> None:
    store(hdfs, tmp_path, days_of_hosts())
    compact(hdfs, tmp_path)
    assert counts(hdfs, "1d") == {f"h{n}": [24, 24, 24] for n in range(3)}
    delete(hdfs, 'load{host="h1"}', MIDNIGHT_MS + DAY_MS + DAY_MS // 2, MIDNIGHT_MS + 2 * DAY_MS)
    expected = {"h0": [24, 24, 24], "h1": [24, 12, 24], "h2": [24, 24, 24]}
    assert counts(hdfs, "1d") == expected
    compact(hdfs, tmp_path)
    assert counts(hdfs, "1d") == expected
    raw, rollups = CompactionLog(hdfs), RollupTable(hdfs)
    raw.refresh()
    rollups.refresh()
    assert {file.raw_name for file in rollups.live()} == {stem_of(file.path) for file in raw.live()}


def test_a_day_without_samples_stays_so(hdfs: str, tmp_path: Path) -> None:
    """Roll-ups that a compactor has begun before, and commits after the deletion, are never read."""
    store(hdfs, tmp_path, days_of_hosts())
    compact(hdfs, tmp_path)
    raw, rollups, met = CompactionLog(hdfs), RollupTable(hdfs), list[str]()
    raw.refresh()
    old = next(file for file in raw.live() if file.period == "2022-01-08")

    def probe(point: str) -> None:
        met.append(point)
        if point == "recorded":
            job = RollupJob(old.period, old.keep, ((old, LEVELS_MS),), ())
            RollupRunner(rollups, raw.uri).run(job)

    version, deleted = delete(hdfs, "load", MIDNIGHT_MS, MIDNIGHT_MS + DAY_MS, probe=probe)
    assert (deleted, met[-1]) == (72, "recorded")
    for _ in range(2):
        assert counts(hdfs, "1d") == {f"h{n}": [0, 24, 24] for n in range(3)}
        compact(hdfs, tmp_path)
    assert not prove_deletion(hdfs, version, select).remaining


def test_roll_ups_of_expired_samples_go(hdfs: str, tmp_path: Path) -> None:
    """Whole buckets that overlap the time: questions about days lose the day, those about hours two hours."""
    store(hdfs, tmp_path, days_of_hosts())
    compact(hdfs, tmp_path)
    raw = CompactionLog(hdfs)
    raw.refresh()
    raw.expire(raw.live(), {})
    assert counts(hdfs, "1h")["h0"] == [1] * 72
    chosen = SelectedDeletion(hdfs, 'load{host="h0"}', MIDNIGHT_MS + 5 * 3_600_000, MIDNIGHT_MS + 7 * 3_600_000 - 1)
    plan, token = chosen.plan()
    assert (plan.samples, len({file.period for file, _ in plan.rollups})) == (0, 1)
    done = chosen.confirm(token)
    assert counts(hdfs, "1h")["h0"] == [1] * 5 + [0] * 2 + [1] * 65
    assert counts(hdfs, "1h")["h1"] == [1] * 72
    assert counts(hdfs, "1d")["h0"] == [0, 24, 24]
    compact(hdfs, tmp_path, clock=Later())
    assert not prove_deletion(hdfs, done.version, select).remaining


def test_the_series_go_with_their_last_samples(hdfs: str, tmp_path: Path) -> None:
    store(hdfs, tmp_path, days_of_hosts())
    delete(hdfs, 'load{host="h1"}', MIDNIGHT_MS, MIDNIGHT_MS + DAY_MS)
    assert {one.series for one in samples(hdfs)} == {f'load{{host="h{n}"}}' for n in range(3)}
    delete(hdfs, 'load{host="h1"}', 0, MIDNIGHT_MS + 9 * DAY_MS)
    with pytest.raises(NothingSelected):
        SelectedDeletion(hdfs, 'load{host="h1"}', 0, 1)
    assert len(samples(hdfs)) == 2 * 72


def test_the_proof_names_the_files_that_remain(hdfs: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store(hdfs, tmp_path, days_of_hosts())
    compact(hdfs, tmp_path)
    version, deleted = delete(hdfs, 'load{host="h1"}', 0, MIDNIGHT_MS + 9 * DAY_MS)
    assert deleted == 72
    assert not verify(hdfs, version)
    told = capsys.readouterr().out
    kinds = [line.split("/artimon/")[1].split("/")[0] for line in told.splitlines() if line.startswith("remains: ")]
    assert sorted(set(kinds)) == ["raw", "rollups", "series"]
    assert kinds.count("raw") == 3
    compact(hdfs, tmp_path)
    assert {uri.split("/artimon/")[1].split("/")[0] for uri in prove_deletion(hdfs, version, select).remaining} == {
        "series"
    }
    clock = Later()
    series = SeriesTable(hdfs, clock)
    series.delete_orphans()
    clock.seconds += 7 * 3600.0
    series.delete_orphans()
    assert verify(hdfs, version)
    assert "they are gone" in capsys.readouterr().out
    damaged = f"{hdfs}/artimon/raw/period=2022-01-08/keep=default/day-x.parquet"
    files.write_file(damaged, b"half a file")
    assert prove_deletion(hdfs, version, select).remaining == (damaged,)


@pytest.mark.parametrize(
    ("point", "nth"),
    [
        ("replaced", 2),
        *(pytest.param(*one, marks=pytest.mark.slow) for one in (("rewritten", 1), ("replaced", 1), ("recorded", 1))),
    ],
)
def test_killed_and_repeated_is_complete(hdfs: str, tmp_path: Path, point: str, nth: int) -> None:
    store(hdfs, tmp_path, days_of_hosts())
    compact(hdfs, tmp_path)
    end = MIDNIGHT_MS + 9 * DAY_MS
    words = [hdfs, 'load{host="h1"}', "0", str(end), point, str(nth)]
    command = [sys.executable, "-m", "tests.transfer.deleting", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, timeout=120, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()[-3000:]
    assert len([one for one in samples(hdfs) if "h1" not in one.series]) == 2 * 72
    delete(hdfs, 'load{host="h1"}', 0, end)
    assert len(samples(hdfs)) == 2 * 72
    compact(hdfs, tmp_path)
    assert counts(hdfs, "1d") == {"h0": [24, 24, 24], "h2": [24, 24, 24]}


def test_with_compaction_and_imports_at_the_same_time(hdfs: str, tmp_path: Path) -> None:
    """A file that is replaced under the deletion is found again, and so are samples that arrive."""
    rows = days_of_hosts(1)
    for part in range(9):
        store(hdfs, tmp_path, rows[part::9])
    met: list[str] = []

    def probe(point: str) -> None:
        if point == "rewritten" and len(met) < 2:
            met.append(point)
            if len(met) == 1:
                compact(hdfs, tmp_path)
            else:
                store(hdfs, tmp_path, [("plc/a", "load", {"host": "h1"}, MIDNIGHT_MS + 77, 1, 5)])

    _, token = SelectedDeletion(hdfs, 'load{host="h1"}', 0, MIDNIGHT_MS + 9 * DAY_MS).plan()
    SelectedDeletion(hdfs, 'load{host="h1"}', token.after_ms, token.until_ms, probe=probe).confirm(token)
    assert len(met) == 2
    assert len(samples(hdfs)) == 2 * 24
    compact(hdfs, tmp_path)
    assert len(samples(hdfs)) == 2 * 24


def test_beside_appends(hdfs: str, tmp_path: Path) -> None:
    """Files of open hours are rewritten too; appends, an import of the same day and compaction go on."""
    world = HistoryWorld(hdfs)
    texts = [f'load{{host="h{n}"}}' for n in range(3)]
    world.announce([block("plc/a", 0, 1, texts)])
    begin = HOURS_MS

    def append(hour: int) -> None:
        rows: list[Given] = [("plc/a", text, begin + hour * 3_600_000 + 1, hour) for text in texts]
        for _ in range(2):
            world.append(begin + hour * 3_600_000 + 5, rows)

    for hour in range(4):
        append(hour)
    store(hdfs, tmp_path, [("plc/a", "load", {"host": "h1"}, begin + 77 + n, 1, n) for n in range(5)])
    met: list[str] = []

    def probe(point: str) -> None:
        met.append(point)
        if met.count("rewritten") == 2 and point == "rewritten":
            append(4)

    version, deleted = delete(hdfs, texts[1], begin + 1, begin + 3 * 3_600_000, probe=probe)
    assert deleted == 5 + 2 * 2
    for _ in range(2):
        left = samples(hdfs)
        assert len([one for one in left if one.series == texts[1]]) == 10 - 4
        assert len(left) == 3 * 10 - 4
        world.builder.settle(begin + DAY_MS)
        compact(hdfs, tmp_path)
    assert RawTable(hdfs).head()[1].key == world.builder.state.key
    assert not prove_deletion(hdfs, version, select).remaining
    live = CompactionLog(hdfs)
    live.refresh()
    assert {file.period for file in live.live()} == {"2026-11-18"}


def test_the_named_version_has_none_of_the_samples(hdfs: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Samples that arrive after the last look at the table are in later versions only."""
    store(hdfs, tmp_path, days_of_hosts())
    late, plan = list[str](), Deletion.plan

    def planned(one: Deletion) -> DeletionPlan:
        found = plan(one)
        if found.is_empty and not late:
            late.append("late")
            store(hdfs, tmp_path, [("plc/a", "load", {"host": "h1"}, MIDNIGHT_MS + 77, 1, 5)])
        return found

    monkeypatch.setattr(Deletion, "plan", planned)
    version, _ = delete(hdfs, 'load{host="h1"}', 0, MIDNIGHT_MS + 9 * DAY_MS)
    assert late
    gone = signed(fingerprint('load{host="h1"}'))
    found = [DeltaTable(raw_uri(hdfs), version).to_pyarrow_dataset(), DeltaTable(raw_uri(hdfs)).to_pyarrow_dataset()]
    assert [one.to_table(columns=["series"]).column("series").to_pylist().count(gone) for one in found] == [0, 1]


def test_each_deletion_has_a_version_and_a_record_of_its_own(hdfs: str, tmp_path: Path) -> None:
    """Also if it removes nothing from the raw table, but roll-ups of expired samples."""
    store(hdfs, tmp_path, days_of_hosts())
    compact(hdfs, tmp_path)
    raw = CompactionLog(hdfs)
    raw.refresh()
    raw.expire(raw.live(), {})
    made = [delete(hdfs, f'load{{host="h{n}"}}', 0, MIDNIGHT_MS + 9 * DAY_MS)[0] for n in range(2)]
    assert len(set(made)) == 2
    records = [pq.read_table(pa.BufferReader(files.read_file(record_uri(hdfs, version)))) for version in made]
    assert [one.column("series").to_pylist() for one in records] == [
        [signed(fingerprint(f'load{{host="h{n}"}}'))] for n in range(2)
    ]


def test_files_without_selected_samples_are_searched_once(
    hdfs: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many rounds a deletion has: files never change."""
    rows, until = days_of_hosts(1), MIDNIGHT_MS + 9 * DAY_MS
    for part in range(4):
        store(hdfs, tmp_path, rows[part::4])
    searched, arrived = Counter[str](), list[str]()

    def counted(uri: str, selection: RowSelection) -> Iterator[tuple[GroupReader, int, Bools, Ints]]:
        searched[uri] += selection.until_us == until * 1000
        return matching_groups(uri, selection)

    def probe(point: str) -> None:
        if point == "replaced" and len(arrived) < 3:
            arrived.append(point)
            store(hdfs, tmp_path, [("plc/a", "load", {"host": "h1"}, MIDNIGHT_MS + 70 + len(arrived), 1, 5)])

    one = SelectedDeletion(hdfs, 'load{host="h1"}', 0, until, probe=probe)
    token = one.plan()[1]
    monkeypatch.setattr(deletion, "matching_groups", counted)
    assert one.confirm(token).samples == 24 + 3
    assert len(arrived) == 3
    raw = CompactionLog(hdfs)
    raw.refresh()
    assert max(searched[f"{raw.uri}/{file.path}"] for file in raw.live()) == 1


@pytest.mark.parametrize("hours", [2, 4])
def test_hours_without_samples_are_compacted(hdfs: str, tmp_path: Path, hours: int) -> None:
    """Their empty files go; with all of a day's no file remains."""
    world = HistoryWorld(hdfs)
    world.announce([block("plc/a", 0, 1, ["load{}"])])
    for hour in range(4):
        for _ in range(2):
            world.append(HOURS_MS + hour * 3_600_000 + 5, [("plc/a", "load{}", HOURS_MS + hour * 3_600_000 + 1, hour)])
    _, deleted = delete(hdfs, "load", HOURS_MS, HOURS_MS + hours * 3_600_000)
    assert deleted == 2 * hours
    world.builder.settle(HOURS_MS + DAY_MS)
    table = CompactionLog(hdfs)
    for _ in range(2):
        compact(hdfs, tmp_path)
        table.refresh()
        assert [file.rows for file in table.live()] == [8 - 2 * hours][: 4 - hours]


def test_a_token_is_good_for_what_it_showed(hdfs: str, tmp_path: Path) -> None:
    store(hdfs, tmp_path, days_of_hosts())
    end = MIDNIGHT_MS + DAY_MS
    _, token = SelectedDeletion(hdfs, "load", 0, end).plan()
    compact(hdfs, tmp_path)  # other files, the same samples
    assert DeletionToken.parse(str(token)) == token
    assert SelectedDeletion(hdfs, "load", 0, end).plan()[1].code == token.code
    with pytest.raises(HistoryError, match="another one than in the dry run"):
        SelectedDeletion(hdfs, 'load{host="h0"}', 0, end).confirm(token)
    store(hdfs, tmp_path, [("plc/a", "load", {"host": "h1"}, MIDNIGHT_MS + 77, 1, 5)])
    with pytest.raises(HistoryError, match="it has 73 samples now: nothing is deleted"):
        SelectedDeletion(hdfs, "load", 0, end).confirm(token)
    assert len(samples(hdfs)) == 3 * 72 + 1
    for wrong in ("", "1-2-3", "a-1-2-x"):
        with pytest.raises(ValueError, match="is not a token"):
            DeletionToken.parse(wrong)


@pytest.mark.parametrize("data", [b"", b"PAR1junk", None], ids=["empty", "junk", "another table"])
def test_a_record_that_cannot_be_read_is_no_proof(hdfs: str, tmp_path: Path, data: bytes | None) -> None:
    store(hdfs, tmp_path, days_of_hosts(1, 1, 2))
    with pytest.raises(DeletionError, match="no deletion ended at version 7"):
        prove_deletion(hdfs, 7, select)
    if data is None:
        sink = pa.BufferOutputStream()
        pq.write_table(pa.table({"source": [1]}), sink)
        data = sink.getvalue().to_pybytes()
    files.write_file(record_uri(hdfs, 7), data)
    with pytest.raises(DeletionError, match="cannot be read"):
        prove_deletion(hdfs, 7, select)


def test_the_audit_log(tmp_path: Path) -> None:
    audit(tmp_path / "new" / "audit.log", "history.deleted", 'x{a="b"}', samples=5)
    line = json.loads((tmp_path / "new" / "audit.log").read_text())
    assert (line["action"], line["selector"], line["samples"]) == ("history.deleted", 'x{a="b"}', 5)
    assert {"time", "user"} <= line.keys()
