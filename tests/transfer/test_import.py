"""Imports: every format, any age, each file once, whatever happens in between."""

from __future__ import annotations

import gzip
import json
import signal
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from artimon.cli.history_import import ImportFailure, read_mapping
from artimon.model.clock import SYSTEM_CLOCK
from artimon.rawtable.commit import CompactionLog
from artimon.rawtable.rollups import RollupTable
from artimon.rawtable.schema import FILE_SCHEMA
from artimon.rawtable.series_delta import SeriesTable
from artimon.rawtable.sources import SourcesTable
from artimon.runtime.config_file import ConfigFileError
from pipeline.compaction.compaction_settings import CompactorConfig, parse_keep
from pipeline.compaction.compactor import Compactor
from pipeline.history import importer
from pipeline.history.found_starts import FoundStarts
from query_dsl import evaluate, parse
from query_dsl.stores.history.engine import History
from query_dsl.stores.history_store import HistoryStore
from sources.history import import_builder, text_formats
from sources.history.import_reader import ImportSettings
from tests.compaction.builder import file_table
from tests.programs import require
from tests.transfer.importing import MINUTE_MS, START_MS, dump_text, job, run, samples

ROOT = Path(__file__).parents[2]
FIRST_DAY_MS = START_MS // 86_400_000 * 86_400_000


def values(found: list[Any]) -> dict[str, list[tuple[int, Any]]]:
    told: dict[str, list[tuple[int, Any]]] = {}
    for one in found:
        told.setdefault(one.series, []).append((one.time_ms - START_MS, one.value))
    return told


def test_a_dump(hdfs: str, tmp_path: Path) -> None:
    file = tmp_path / "a.dump"
    file.write_text(
        f'{{__name__="up", job="a \\"b\\" \\\\ \\u00e9", empty=""}} 1 {START_MS}\n'
        f'{{__name__="up", job="a \\"b\\" \\\\ \\u00e9", empty=""}} NaN {START_MS + 1}\n'
        "\n"
        f'{{__name__="size"}} 1.5e+06 {START_MS}\n'
        f'{{__name__="size"}} -Inf {START_MS + 2}\n'
    )
    result, rejects = run(file, hdfs)
    assert (result.samples, len(result.series), not rejects.counts) == (4, 2, True)
    found = samples(hdfs)
    assert values(found) == {
        'up{job="a \\"b\\" \\\\ é"}': [(0, 1.0), (1, None)],
        "size{}": [(0, 1.5e6), (2, float("-inf"))],
    }
    assert {one.source for one in found} == {"import"}
    assert {one.type for one in found} == {"double", "ended"}


def test_resets_of_counters_begin_a_new_count(hdfs: str, tmp_path: Path) -> None:
    file = tmp_path / "a.dump"
    lines = [(f'{{__name__="c_total", n="{n}"}}', at, value) for n in (1, 2) for at, value in enumerate([5, 7, 1, 2])]
    file.write_text("".join(f"{text} {value} {START_MS + at * 86_400_000}\n" for text, at, value in lines))
    run(file, hdfs)
    births = [(one.birth_ms, one.value) for one in samples(hdfs, 'c_total{n="2"}')]
    second = START_MS + 86_400_000
    assert births == [(1, 5.0), (1, 7.0), (second, 1.0), (second, 2.0)]


def test_openmetrics(hdfs: str, tmp_path: Path) -> None:
    file = tmp_path / "a.om"
    second = START_MS / 1000
    file.write_text(
        "# TYPE shop_requests counter\n# UNIT shop_requests requests\n# HELP shop_requests Requests \\\\ served.\n"
        f'shop_requests_total{{code="200"}} 17 {second:.3f} # {{trace="1"}} 1.0\n'
        f'shop_requests_created{{code="200"}} {second - 100} {second:.3f}\n'
        f'odd{{text="}} , \\n"}} 3.25 {second + 0.001:.3f}\n'
        "# EOF\n"
    )
    result, rejects = run(file, hdfs)
    assert (result.samples, dict(rejects.counts)) == (2, {})
    found = samples(hdfs, "shop_requests_total")
    assert [(one.value, one.birth_ms) for one in found] == [(17.0, START_MS - 100_000)]
    assert values(samples(hdfs, "odd")) == {'odd{text="} , \\n"}': [(1, 3.25)]}
    with History(hdfs) as history:
        described = history.read("shop_requests_total", 0, engine="local").series.to_pylist()
    assert [(row["kind"], row["unit"], row["help"]) for row in described] == [
        ("counter", "requests", "Requests \\ served.")
    ]


def test_victoriametrics(hdfs: str, tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl.gz"
    times = [START_MS + n for n in range(3)]
    lines = [
        {"metric": {"__name__": "m", "x": "é"}, "values": [1, 0.1, None], "timestamps": times},
        {"metric": {"__name__": "m", "x": "é"}, "values": ["Infinity"], "timestamps": [START_MS + 5]},
        {"metric": {"__name__": "m"}, "values": [1, 2], "timestamps": [START_MS]},
        {"metric": {"x": "no name"}, "values": [1, 2], "timestamps": [START_MS, START_MS]},
    ]
    file.write_bytes(gzip.compress("\n".join(map(json.dumps, lines)).encode()))
    _, rejects = run(file, hdfs)
    assert values(samples(hdfs)) == {'m{x="é"}': [(0, 1.0), (1, 0.1), (2, None), (5, float("inf"))]}
    assert rejects.counts == {"bad line": 1, "bad series": 2}
    assert [line for line, _ in rejects.named] == [3, 4]


MAPPING = """\
time: {column: ts, unit: s}
name: room.temp
labels: {room: where, floor: floor}
value: {column: v, type: integer}
kind: gauge
unit: "°C"
"""


def test_csv_with_a_mapping(hdfs: str, tmp_path: Path) -> None:
    file, mapping = tmp_path / "a.csv", tmp_path / "map.yaml"
    mapping.write_text(MAPPING)
    big = 2**53 + 1
    file.write_text(
        f'ts,where,floor,v,other\n{START_MS // 1000},"a, ""b""",1,{big},x\n{START_MS / 1000 + 0.001},c,,-2,x\n'
        f"{START_MS // 1000},c,1,1.5,x\nnever,c,1,3,x\n{START_MS // 1000},c,1\n"
    )
    result, rejects = run(file, hdfs, mapping=read_mapping(mapping))
    found = values(samples(hdfs))
    assert found == {'room.temp{floor="1",room="a, \\"b\\""}': [(0, big)], 'room.temp{room="c"}': [(1, -2)]}
    assert (result.samples, dict(rejects.counts)) == (2, {"bad row": 3})


def test_parquet_with_a_mapping(hdfs: str, tmp_path: Path) -> None:
    file, mapping = tmp_path / "a.parquet", tmp_path / "map.yaml"
    mapping.write_text(
        "time: {column: t}\nname_column: n\nlabels: {}\nvalue: {column: v, type: string}\nsource_column: s\n"
    )
    table = pa.table(
        {
            "t": pa.array([START_MS * 1000 + 1999, START_MS * 1000], pa.timestamp("us")),
            "n": pa.array(["a", "b"]).dictionary_encode(),
            "v": ["", "é"],
            "s": ["one", "two"],
        }
    )
    pq.write_table(table, file)
    run(file, hdfs, mapping=read_mapping(mapping))
    found = [(one.series, one.source, one.time_ms - START_MS, one.value) for one in samples(hdfs)]
    assert found == [("a{}", "one", 1, ""), ("b{}", "two", 0, "é")]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("time: {column: a}\n", "missing: the column of the values"),
        ("time: {column: a}\nvalue: {column: b}\n", "write one of name and name_column"),
        ("time: {column: a, unit: h}\nvalue: {column: b}\nname: x\n", ":1:25: time.unit: write"),
        ("time: {column: a}\nvalue: {column: b}\nname: x\nlabel: {}\n", ":4:1: label: unknown key"),
    ],
)
def test_a_mapping_with_a_fault_names_its_place(tmp_path: Path, text: str, told: str) -> None:
    mapping = tmp_path / "map.yaml"
    mapping.write_text(text)
    with pytest.raises(ConfigFileError) as caught:
        read_mapping(mapping)
    assert told in str(caught.value)


def test_what_is_refused_is_counted_and_named(hdfs: str, tmp_path: Path) -> None:
    file = tmp_path / "a.dump"
    file.write_text(
        f'{{__name__="a"}} 1 {START_MS}\nnothing\n{{__name__="a"}} x {START_MS}\n{{__name__="a"}} 1_0 {START_MS}\n'
        f'{{__name__="a"}} 1 9999999999999\n{{__name__="a"}} 1 -5\n{{x="no name"}} 1 {START_MS}\n'
    )
    result, rejects = run(file, hdfs)
    assert result.samples == 1
    assert rejects.counts == {"bad line": 3, "future": 1, "time": 1, "bad series": 1}
    assert (2, "want {labels} value time: 'nothing'") in rejects.named
    assert sorted(line for line, _ in rejects.named) == [2, 3, 4, 6, 7]


@pytest.mark.parametrize(
    ("name", "data", "told"),
    [
        ("a.parquet", b"PAR1 no", "a.parquet: after row 0"),
        ("a.csv", b"x,y\n1,2\n", "a.csv:1: no column series"),
        ("a.jsonl.gz", b"no gzip", "a.jsonl.gz: BadGzipFile"),
        ("missing.csv", None, "missing.csv: FileNotFoundError"),
    ],
)
def test_a_file_that_cannot_be_read(hdfs: str, tmp_path: Path, name: str, data: bytes | None, told: str) -> None:
    if data is not None:
        (tmp_path / name).write_bytes(data)
    with pytest.raises(ImportFailure) as caught:
        run(tmp_path / name, hdfs)
    assert told in str(caught.value)


def test_twice_is_once(hdfs: str, tmp_path: Path) -> None:
    file, copy = tmp_path / "a.dump", tmp_path / "copy.dump"
    file.write_text(dump_text())
    copy.write_text(file.read_text())
    first, _ = run(file, hdfs)
    once = samples(hdfs)
    assert first.samples == len(once) == 150
    for again in (file, copy):
        result, _ = run(again, hdfs)
        assert (result.samples, result.is_known) == (0, True)
    assert samples(hdfs) == once
    other, _ = run(file, hdfs, source="another")
    assert other.samples == 150


SLOW_POINTS = (("described", 1), ("spilled", 1), ("committed", 1), ("committed", 4))


@pytest.mark.parametrize(
    ("point", "nth"), [("written", 3), *(pytest.param(*one, marks=pytest.mark.slow) for one in SLOW_POINTS)]
)
def test_killed_and_repeated_is_once(hdfs: str, tmp_path: Path, point: str, nth: int) -> None:
    file, plain = tmp_path / "a.dump", f"{hdfs}-plain"
    file.write_text(dump_text())
    words = [str(file), hdfs, str(tmp_path / "data"), point, str(nth)]
    command = [sys.executable, "-m", "tests.transfer.importing", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, timeout=120, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()[-1500:]
    result, _ = run(file, hdfs)
    stored = {"written": nth - 1, "committed": nth}.get(point, 0)
    assert result.days == 5 - stored
    run(file, plain)
    assert samples(hdfs) == samples(plain)
    assert not any((tmp_path / "data" / "import").rglob("*.arrow"))


def test_two_at_the_same_time_are_once(hdfs: str, tmp_path: Path) -> None:
    """The second one begins while the first has stored some days, on another machine."""
    file = tmp_path / "a.dump"
    file.write_text(dump_text())
    met: list[str] = []

    def probe(point: str) -> None:
        if point == "committed" and not met:
            met.append(point)
            run_elsewhere(file, hdfs, tmp_path / "elsewhere")

    result, _ = job(file, hdfs, tmp_path / "here").run(probe=probe)
    assert 0 < result.samples < 150
    assert result.samples + result.known == 150
    assert len(samples(hdfs)) == len(set(samples(hdfs))) == 150


def run_elsewhere(file: Path, hdfs: str, data: Path) -> None:
    job(file, hdfs, data).run()


def test_one_process_at_a_time_has_the_folder(hdfs: str, tmp_path: Path) -> None:
    file = tmp_path / "a.dump"
    file.write_text(dump_text(1, 2))

    def probe(point: str) -> None:
        if point == "spilled":
            with pytest.raises(ImportFailure, match="wait for it, then repeat"):
                run(file, hdfs)

    job(file, hdfs, file.parent / "data").run(probe=probe)
    assert len(samples(hdfs)) == 2
    assert not list((tmp_path / "data" / "import").iterdir())


def test_chunks_do_not_change_what_is_stored(hdfs: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "a.dump"
    file.write_text(dump_text())
    run(file, hdfs)
    monkeypatch.setattr("sources.history.file_lines.BLOCK_BYTES", 700)
    monkeypatch.setattr(text_formats, "CHUNK_ROWS", 20)
    monkeypatch.setattr(import_builder, "MAX_KNOWN", 2)
    run(file, f"{hdfs}-parts")
    assert samples(f"{hdfs}-parts") == samples(hdfs)


@pytest.mark.parametrize(("most", "commits"), [(100_000, 1), (2, 3)])
def test_series_are_added_in_few_commits(
    hdfs: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int, commits: int
) -> None:
    file = tmp_path / "a.dump"
    file.write_text(dump_text())
    monkeypatch.setattr("sources.history.file_lines.BLOCK_BYTES", 700)
    monkeypatch.setattr(text_formats, "CHUNK_ROWS", 20)
    monkeypatch.setattr(importer, "MAX_HELD_SERIES", most)
    run(file, hdfs)
    assert SeriesTable(hdfs).refresh().version() == commits
    assert len(values(samples(hdfs))) == 5


def test_a_day_that_fails_leaves_the_days_before_it_and_no_file(hdfs: str, tmp_path: Path) -> None:
    file = tmp_path / "a.dump"
    file.write_text(dump_text())
    met: list[str] = []

    def probe(point: str) -> None:
        met.append(point)
        if met.count("written") == 3:
            raise OSError("the third day")

    with pytest.raises(ImportFailure, match="the third day"):
        job(file, hdfs, tmp_path / "data").run(probe=probe)
    assert met == ["spilled", "described", "written", "committed", "written", "committed", "written"]
    table = CompactionLog(hdfs)
    table.refresh()
    assert len(table.live()) == len(list((tmp_path / "hdfs" / "artimon" / "raw").rglob("*day-*.parquet"))) == 2
    result, _ = run(file, hdfs)
    assert (result.days, result.samples + result.known) == (3, 150)
    assert len(samples(hdfs)) == len(set(samples(hdfs))) == 150


def test_series_that_cannot_be_described_leave_no_day(hdfs: str, tmp_path: Path) -> None:
    """The first day, which is written at the same time, is not committed."""
    file = tmp_path / "a.dump"
    file.write_text(dump_text())

    def probe(point: str) -> None:
        if point == "described":
            raise OSError("no series")

    with pytest.raises(ImportFailure, match="no series"):
        job(file, hdfs, tmp_path / "data").run(probe=probe)
    assert not list((tmp_path / "hdfs" / "artimon" / "raw").rglob("*.parquet"))
    assert not list((tmp_path / "data" / "import").iterdir())
    assert not [one.name for one in threading.enumerate() if one.name.startswith(("read-ahead", "import-commit"))]
    result, _ = run(file, hdfs)
    assert (result.days, result.samples) == (5, 150)


def test_a_file_that_breaks_off_is_told_and_leaves_nothing(
    hdfs: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread that reads meets the error after chunks that were taken."""
    file = tmp_path / "a.dump.gz"
    whole = gzip.compress("".join(f'{{__name__="a"}} {n} {START_MS + n}\n' for n in range(20_000)).encode())
    file.write_bytes(whole[: len(whole) * 9 // 10])
    monkeypatch.setattr("sources.history.file_lines.BLOCK_BYTES", 7_000)
    monkeypatch.setattr(text_formats, "CHUNK_ROWS", 500)
    with pytest.raises(ImportFailure, match="end-of-stream"):
        run(file, hdfs)
    assert SourcesTable(hdfs).lookup(["import"])[0]
    assert not list((tmp_path / "hdfs" / "artimon" / "raw").rglob("*.parquet"))
    assert not list((tmp_path / "data" / "import").iterdir())


def test_roll_ups_of_old_days_give_the_same_answers(hdfs: str, tmp_path: Path) -> None:
    file = tmp_path / "a.dump"
    file.write_text(dump_text())
    run(file, hdfs)
    text = f"fetch('req_total').increase('1d').sum(by=[]).between({FIRST_DAY_MS}, {FIRST_DAY_MS + 5 * 86_400_000})"
    with History(hdfs) as history:
        before = evaluate(parse(text), HistoryStore(history, engine="local"), SYSTEM_CLOCK.now_ms())
    config = CompactorConfig("", hdfs, tmp_path / "compactor", keeping=parse_keep("*=99999"), sweep_s=0.0)
    Compactor(config, None).run_due(threading.Event())
    rollups = RollupTable(hdfs)
    rollups.refresh()
    assert len(rollups.live()) == 2 * 5  # levels and days
    with History(hdfs) as history:
        after = evaluate(parse(text), HistoryStore(history, engine="local"), SYSTEM_CLOCK.now_ms())
    assert any("buckets of" in note for note in after.notes), (after.notes, before.notes)
    assert [after.tolist(0), len(after.series)] == [before.tolist(0), len(before.series)]
    assert any(before.tolist(0))


def test_files_of_a_day_are_merged_with_later_imports(hdfs: str, tmp_path: Path) -> None:
    for n in range(9):
        file = tmp_path / f"{n}.dump"
        file.write_text(f'{{__name__="a", n="{n}"}} {n} {START_MS + n}\n')
        run(file, hdfs)
    once = samples(hdfs)
    config = CompactorConfig("", hdfs, tmp_path / "compactor", keeping=parse_keep("*=99999"), sweep_s=0.0)
    Compactor(config, None).run_due(threading.Event())
    table = CompactionLog(hdfs)
    table.refresh()
    assert len(table.live()) == 1
    assert samples(hdfs) == once
    assert len(once) == 9


@given(
    st.lists(
        st.lists(st.tuples(st.integers(0, 3), st.one_of(st.integers(0, 5), st.just(None))), min_size=1, max_size=12),
        min_size=1,
        max_size=4,
    )
)
@settings(max_examples=50, deadline=None)
def test_found_starts_are_those_of_a_plain_loop(tables: list[list[tuple[int, int | None]]]) -> None:
    found, known = FoundStarts(), dict[int, tuple[float, int, int]]()
    time = 1_000
    for given_rows in tables:
        rows = []
        expected: dict[tuple[int, int], int] = {}
        for series, value in given_rows:
            time += 1000
            rows.append((1, series, time, None if value is None else float(value)))
            last, last_ms, birth = known.get(series, (float("nan"), 0, 1))
            if value is not None and value < last:
                birth = last_ms
            known[series] = (last if value is None else value, time, birth)
            expected[series, time] = birth
        table = file_table(rows)
        unknown = pa.array(np.zeros(len(rows), np.int64)).view(FILE_SCHEMA.field("birth").type)
        filled = found.fill(table.set_column(3, FILE_SCHEMA.field("birth"), unknown))
        stamps = [filled.column(name).cast(pa.int64()).to_pylist() for name in ("series", "time", "birth")]
        assert {(s, t // 1000): b // 1000 for s, t, b in zip(*stamps, strict=True)} == expected


def test_blocks_of_prometheus(hdfs: str, tmp_path: Path) -> None:
    """What promtool dumps of its own blocks is what went into them."""
    promtool = require("promtool").path
    text = tmp_path / "given.om"
    second = START_MS // 1000
    lines = [f'node_load{{host="h{n}"}} {n + poll / 7} {second + poll * 60}' for n in range(3) for poll in range(200)]
    text.write_text("# TYPE node_load gauge\n" + "\n".join(lines) + "\n# EOF\n")
    blocks, dump = tmp_path / "blocks", tmp_path / "blocks.dump"
    words = [str(promtool), "tsdb", "create-blocks-from", "openmetrics", str(text), str(blocks)]
    subprocess.run(words, check=True, capture_output=True, timeout=120)
    (blocks / "wal").mkdir()
    told = subprocess.run([str(promtool), "tsdb", "dump", str(blocks)], check=True, capture_output=True, timeout=120)
    dump.write_bytes(told.stdout)
    result, rejects = run(dump, hdfs)
    assert (result.samples, rejects.counts) == (600, Counter())
    run(text, f"{hdfs}-text")
    plain = [(one.series, one.time_ms, one.value) for one in samples(f"{hdfs}-text")]
    assert [(one.series, one.time_ms, one.value) for one in samples(hdfs)] == plain
    assert plain[1] == ('node_load{host="h0"}', START_MS + MINUTE_MS, 1 / 7)


def test_the_identity_covers_everything_that_decides_the_rows(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("a")
    mapping = tmp_path / "map.yaml"
    mapping.write_text(MAPPING)
    one = ImportSettings("csv", "s", read_mapping(mapping))
    others = [
        ImportSettings("csv", "t", one.mapping).identity(file, "k"),
        ImportSettings("parquet", "s", one.mapping).identity(file, "k"),
        ImportSettings("csv", "s").identity(file, "k"),
        one.identity(file, "other"),
    ]
    assert len({one.identity(file, "k"), *others}) == 5
    assert one.identity(file, "k") == one.identity(file, "k")
    file.write_text("b")
    assert one.identity(file, "k") not in others
