"""The views of DuckDB, Polars and Spark SQL over a real table give what was stored, and what our own engine answers."""

from __future__ import annotations

import math
import re
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
import sqlglot
from sqlglot import expressions
from typer.testing import CliRunner

from artimon import analysis
from artimon.cli import app
from artimon.model.clock import ManualClock
from artimon.model.labels import canonical
from artimon.model.values import Kind, ValueType
from artimon.rawtable.schema import DAY_MS
from artimon.rawtable.sql_views import DIALECTS, TABLES, VIEWS, view_statements, views_script
from pipeline.compaction.compaction_settings import CompactorConfig, parse_keep, parse_rollups
from pipeline.compaction.compactor import Compactor
from query_dsl import QueryError, evaluate, parse
from query_dsl.stores.history.engine import History
from query_dsl.stores.history.sample_query import HistoryError
from query_dsl.stores.history_store import HistoryStore
from tests.docs.test_architecture import ROOT
from tests.history.engine_world import put, some_series, text_of
from tests.history.world import HistoryWorld
from tests.query_dsl.test_pushdown import HOUR, MINUTE, NOW, T, Told
from tests.series.world import block
from tests.spark.local_files import local_files

Ask = Callable[[str, Sequence[str]], list[tuple[Any, ...]]]
"""Rows of a view: its name, its columns."""
LEVELS_MS = (5 * MINUTE, HOUR, DAY_MS)
EXTREMES = [2**63 - 1, -(2**63), 2**63 - 1]
ENGINES = ["duckdb", "polars", pytest.param("spark", marks=[pytest.mark.stack, pytest.mark.slow])]
TOLD = some_series(11, 30, 120)
FENCE = re.compile(r"^```(sql|python)\n(.*?)^```", re.MULTILINE | re.DOTALL)
QUESTIONS = [found for found in FENCE.findall((ROOT / "docs/analysts.md").read_text()) if "db.history" not in found[1]]


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Two hours of series of all types and kinds, compacted, with roll-ups."""
    folder, clock = tmp_path_factory.mktemp("views"), ManualClock(NOW + 2 * DAY_MS)
    with local_files(clock):
        world = HistoryWorld(f"file://{folder}/files")
        put(world, TOLD, files=3)
        world.announce([block("x", 0, 1, ["extreme{}"], type=ValueType.INTEGER, kind=Kind.GAUGE)])
        world.append(T - 1, [("x", "extreme{}", T - 90_000 + n, value) for n, value in enumerate(EXTREMES)])
        world.builder.settle(clock.now_ms() // DAY_MS * DAY_MS)
        keeping, rollups = parse_keep("*=99999"), parse_rollups("5m=365,1h=ever,1d=ever")
        config = CompactorConfig("", world.hdfs, folder / "compactor", keeping=keeping, rollups=rollups, sweep_s=0.0)
        Compactor(config, None, clock).run_due(threading.Event())
    return world.hdfs


@pytest.fixture(params=ENGINES)
def ask(request: pytest.FixtureRequest, tables: str) -> Ask:
    return asking(request.param, request, tables)


def asking(engine: str, request: pytest.FixtureRequest, hdfs: str, *chosen: Any) -> Ask:
    """Rows of the views in an engine, as Python values."""
    match engine:
        case "duckdb":
            connection = analysis.duckdb(*chosen, hdfs=hdfs)

            def read(view: str, names: Sequence[str]) -> Any:
                return connection.sql(f"SELECT {', '.join(names)} FROM {view}").to_arrow_table()
        case "polars":
            views = analysis.polars(*chosen, hdfs=hdfs)

            def read(view: str, names: Sequence[str]) -> Any:
                return getattr(views, view).select(names).collect().to_arrow()
        case _:
            session = request.getfixturevalue("session")
            analysis.spark(session, hdfs=hdfs)

            def read(view: str, names: Sequence[str]) -> Any:
                return session.sql(f"SELECT {', '.join(names)} FROM {view}").toArrow()

    return lambda view, names: rows_of(read(view, names))


def rows_of(table: Any) -> list[tuple[Any, ...]]:
    columns = []
    for column in table.columns:
        if pa.types.is_timestamp(column.type):
            columns.append(column.cast(pa.timestamp("ms", tz="UTC"), safe=False).cast(pa.int64()).to_pylist())
        elif pa.types.is_map(column.type):
            columns.append([dict(pairs) for pairs in column.to_pylist()])
        else:
            columns.append(column.to_pylist())
    return list(zip(*columns, strict=True))


def shown(value: Any) -> str:
    return repr(float(value)) if isinstance(value, bool | int | float) else repr(value)


def test_samples_are_those_that_were_stored(ask: Ask) -> None:
    names = {int: "integer", float: "double", bool: "boolean", str: "string", type(None): "ended"}
    given: Counter[Any] = Counter()
    for one in TOLD:
        for time, birth, value in one.samples:
            given[text_of(one), one.source, time, birth, names[type(value)], shown(value)] += 1
    columns = ["name", "labels", "source", "time", "birth", "type", "value", "text", "whole", "kind"]
    found: Counter[Any] = Counter()
    kinds = {text_of(one): one.kind.name.lower() for one in TOLD}
    for name, labels, source, time, birth, kind, value, text, whole, counts in ask("samples", columns):
        if name != "extreme":
            series = canonical(name, labels)
            told = text if kind == "string" else value
            assert kinds[series] == counts
            assert whole is None or float(whole) == value
            found[series, source, time, birth, kind, shown(told)] += 1
    assert found == given
    assert given.total() > 1_000


def buckets_of(told: Sequence[Told], level_ms: int) -> dict[Any, list[tuple[int, Any]]]:
    """Times and values by series, source and end of the bucket."""
    found = defaultdict(list)
    for one in told:
        for time, _, value in one.samples:
            if value is not None:
                found[text_of(one), one.source, -(-time // level_ms) * level_ms].append((time, value))
    return found


def test_buckets_are_those_of_their_samples(ask: Ask) -> None:
    columns = ["level", "name", "labels", "source", "time", "count", "last", "text", "last_time", "min", "max", "sum"]
    rows = ask("buckets", columns)
    for level_ms in LEVELS_MS:
        given = buckets_of(TOLD, level_ms)
        found = {
            (canonical(name, labels), source, time): stats
            for level, name, labels, source, time, *stats in rows
            if level * 1000 == level_ms and name != "extreme"
        }
        assert found.keys() == given.keys()
        for key, (count, last, text, last_time, least, most, total) in found.items():
            samples = given[key]
            time, value = samples[-1]
            assert (count, last_time) == (len(samples), time)
            assert shown(text if isinstance(value, str) else last) == shown(value)
            values = [float(value) for _, value in samples if not isinstance(value, str)]
            if values and not any(map(math.isnan, values)):
                assert (least, most) == (min(values), max(values))
                assert total == pytest.approx(sum(values), rel=1e-12)


def test_the_greatest_and_least_integers_are_told(ask: Ask) -> None:
    """Their distance is stored modulo 2^64."""
    rows = ask("buckets", ["name", "level", "count", "last", "min", "max", "sum"])
    (found,) = {row[2:] for row in rows if row[0] == "extreme" and row[1] == 300}
    assert found == (3, float(2**63 - 1), -(2.0**63), float(2**63 - 1), float(sum(EXTREMES)))


def test_increases_are_those_of_the_query_language(ask: Ask, tables: str) -> None:
    """Of counters that one source reports: the views do not join the incarnations of two."""
    sources = Counter(text_of(one) for one in TOLD)
    numbers = {text_of(one) for one in TOLD if one.kind == Kind.COUNTER and sources[text_of(one)] == 1}
    numbers -= {text_of(one) for one in TOLD if any(isinstance(value, str | bool) for *_, value in one.samples)}
    rows = ask("increases", ["level", "name", "labels", "time", "increase"])
    for level, text in ((300, "increase('5m').range('2h')"), (3600, "bucketize('increase', '1h').range('3h')")):
        names = {one.name for one in TOLD if text_of(one) in numbers}
        answer = {
            key: value for name in sorted(names) for key, value in points_of(tables, name, text) if key[0] in numbers
        }
        found = {
            (series, time): value
            for told, name, labels, time, value in rows
            if told == level and (series := canonical(name, labels)) in numbers
        }
        assert found.keys() == answer.keys()
        assert len(found) > 10
        for key, value in found.items():
            assert value == pytest.approx(answer[key], rel=1e-12, nan_ok=True), key


def points_of(hdfs: str, name: str, query: str) -> Iterator[tuple[tuple[str, int], float]]:
    """Points of the answer of our own engine, by series and time."""
    with History(hdfs) as history:
        answer: Any = evaluate(parse(f"fetch('{name}').{query}"), HistoryStore(history, engine="local"), NOW)
    for labels, time, value in answer.points():
        if value is not None:
            yield (canonical(name, labels), time), float(value)


@pytest.mark.parametrize("engine", ["duckdb", "polars"])
def test_a_selection_holds_its_series_and_times_only(engine: str, tables: str, request: pytest.FixtureRequest) -> None:
    chosen = ("v0", T - HOUR, T - 30 * MINUTE)
    rows = asking(engine, request, tables, *chosen)("samples", ["name", "time"])
    times = [time for one in TOLD if one.name == "v0" for time, *_ in one.samples if T - HOUR < time <= T - 30 * MINUTE]
    assert sorted(rows) == sorted(("v0", time) for time in times)
    assert times


def test_a_label_is_a_column_of_polars(tables: str) -> None:
    announced = analysis.polars(hdfs=tables).announced
    rows = announced.select("name", pl.col("labels").map.get("rack")).collect().rows()
    assert set(rows) == {(one.name, dict(one.labels)["rack"]) for one in TOLD} | {("extreme", None)}


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_statements_are_of_their_dialect(dialect: str) -> None:
    """A parser of the dialect reads them; for Trino it is all that we run."""
    made = [sqlglot.parse_one(statement, dialect=dialect) for statement in view_statements(dialect)]
    assert [type(one) for one in made] == [expressions.Create] * len(VIEWS)
    assert [one.this.name for one in made] == list(VIEWS)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_script_names_every_table_before_its_views(dialect: str) -> None:
    script = views_script(dialect, "hdfs://n:8020/")
    places = [script.index(f"hdfs://n:8020/artimon/{table}") for table in TABLES]
    places += [script.index(f"{statement};") for statement in view_statements(dialect)]
    assert all(a < b for a, b in pairwise(places))


@pytest.mark.parametrize("number", range(len(QUESTIONS)), ids=[f"{language}" for language, _ in QUESTIONS])
def test_the_questions_of_the_document_can_be_asked(
    number: int, tables: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    language, text = QUESTIONS[number]
    monkeypatch.setenv("ARTIMON_HDFS", tables)
    names: dict[str, Any] = {"analysis": analysis, "pl": pl}
    if "session" in text:
        names["session"] = request.getfixturevalue("session")
    if "element_at" in text:
        assert all(type(one) is expressions.Select for one in sqlglot.parse(text, dialect="trino") if one)
    elif language == "sql":
        analysis.duckdb().sql(text).fetchall()
    else:
        exec(text.replace('"rack.*", ', "'{rack!=\"\"}', "), names)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_command_prints_the_script(dialect: str) -> None:
    done = CliRunner().invoke(app, ["history", "views", dialect, "--hdfs", "file:///a"])
    assert (done.exit_code, done.output) == (0, views_script(dialect, "file:///a"))


def test_before_the_first_compaction_there_are_no_buckets(tmp_path: Path) -> None:
    world = HistoryWorld(f"file://{tmp_path}")
    put(world, TOLD[:4], files=1)
    connection = analysis.duckdb(hdfs=world.hdfs)
    (counts,) = connection.sql("SELECT (SELECT count(*) FROM samples), (SELECT count(*) FROM buckets)").fetchall()
    assert counts == (sum(len(one.samples) for one in TOLD[:4]), 0)


def test_errors_say_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(HistoryError, match="no history at"):
        analysis.polars(hdfs=f"file://{tmp_path}")
    monkeypatch.setattr(analysis, "import_module", missing)
    with pytest.raises(QueryError, match="pip install duckdb"):
        analysis.duckdb(hdfs=f"file://{tmp_path}")


def missing(name: str) -> Iterator[None]:
    raise ImportError(name)
