"""Both engines return the appended samples of all types and read only the files they need."""

from __future__ import annotations

import io
import json
import re
import sys
import threading
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from artimon.rawtable import parquet_reader
from artimon.rawtable.schema import raw_uri
from artimon.runtime import file_access as files
from query_dsl import NothingSelected, QueryError
from query_dsl.stores.history.engine import Engine, History
from query_dsl.stores.history.result import RESULT_SCHEMA, HistoryAnswer
from query_dsl.stores.history.sample_query import HistoryError, HistoryInterrupted, TooMuchHistory
from tests.history.conftest import EXTREME, LATE, MANY
from tests.history.world import HOUR_MS, START_MS, HistoryWorld

pytestmark = [pytest.mark.stack, pytest.mark.slow]
END_MS = START_MS + 6 * HOUR_MS
ENGINES: list[Engine] = ["local", "spark"]
QUESTIONS = [
    'rack.temp{host="h1"}',
    'rack.temp{rack=~"r[12]",host!="h1"}',
    'rack.*{rack="r3"}',
    'rack.temp{none!="x"}',
    '{rack="r1"}',
    "odd",
    '{k=~"naïve.*"}',
    "other.thing",
]


def texts_of(history_world: HistoryWorld, fits: Any) -> list[str]:
    return [text for text in {one.series for one in history_world.samples} if fits(text)]


FITS: dict[str, Any] = {
    QUESTIONS[0]: lambda t: t.startswith("rack.temp{") and 'host="h1"' in t,
    QUESTIONS[1]: lambda t: t.startswith("rack.temp{") and re.search('rack="r[12]"', t) and 'host="h1"' not in t,
    QUESTIONS[2]: lambda t: t.startswith("rack.") and 'rack="r3"' in t,
    QUESTIONS[3]: lambda t: t.startswith("rack.temp{"),
    QUESTIONS[4]: lambda t: 'rack="r1"' in t,
    QUESTIONS[5]: lambda t: t == EXTREME,
    QUESTIONS[6]: lambda t: t == EXTREME,
    QUESTIONS[7]: lambda t: t == "other.thing{}",
}


def told(answer: HistoryAnswer) -> list[str]:
    return sorted(map(repr, answer.samples()))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("selector", QUESTIONS)
def test_equals_the_plain_list(history_world: HistoryWorld, history: History, selector: str, engine: Engine) -> None:
    answer = history.read(selector, START_MS - 1, END_MS, engine=engine)
    assert told(answer) == history_world.expected(texts_of(history_world, FITS[selector]), START_MS - 1, END_MS)
    assert answer.table.schema == RESULT_SCHEMA
    keys = [(s.series, s.source, s.time_ms) for s in answer.samples()]
    assert keys == sorted(keys)
    assert answer.touched.engine == engine


@pytest.mark.parametrize("engine", ENGINES)
def test_bounds_of_time_are_open_and_closed(history_world: HistoryWorld, history: History, engine: Engine) -> None:
    """(from, to], to the millisecond."""
    answer = history.read("odd", START_MS, START_MS + 3, engine=engine)
    assert [one.time_ms - START_MS for one in answer.samples()] == [1, 2, 3]


def test_both_engines_give_the_very_same_table(history: History) -> None:
    answers = [history.read("rack.*", START_MS, END_MS, engine=engine) for engine in ENGINES]
    assert len(answers[0]) > 2000
    assert answers[0].table.equals(answers[1].table)
    assert history.read("rack.*", START_MS, END_MS).touched.engine == "local"


@pytest.mark.parametrize("engine", ENGINES)
def test_files_out_of_range_are_not_read(hdfs: str, history: History, engine: Engine) -> None:
    """The read succeeds although all other files are destroyed."""
    history_world = HistoryWorld(f"{hdfs}/p{engine}")
    from tests.series.world import block

    history_world.announce([block(f"s{n}", 0, 1, [f'v{{n="{n}"}}']) for n in range(3)])
    for hour in range(4):
        begin = START_MS + hour * HOUR_MS
        for n in range(3):
            history_world.append(begin, [(f"s{n}", f'v{{n="{n}"}}', begin + k * 1000, k) for k in range(50)])
    with History(history_world.hdfs, spark=history.session()) as engine_of_it:
        question = 'v{n="1"}', START_MS + HOUR_MS - 1, START_MS + 2 * HOUR_MS - 1
        answer = engine_of_it.read(*question, engine=engine)
        touched = answer.touched
        assert (touched.files, touched.of_files, len(touched.paths)) == (1, 12, 1)
        assert 0 < touched.bytes < touched.of_bytes / 4
        assert "1 of 12 files" in answer.notes[0]
        uri = raw_uri(history_world.hdfs)
        for path, _, _ in files.list_files(uri):
            if path.endswith(".parquet") and not path.startswith("_") and path not in touched.paths:
                files.write_file(f"{uri}/{path}", b"destroyed")
        again = engine_of_it.read(*question, engine=engine)
        assert told(again) == told(answer) == history_world.expected(['v{n="1"}'], *question[1:])
        with pytest.raises(HistoryError):
            engine_of_it.read("v", START_MS - 1, END_MS, engine=engine)


def test_row_groups_out_of_range_are_not_fetched(
    history_world: HistoryWorld, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys are read first; values only for row groups with matches."""
    monkeypatch.setattr(parquet_reader, "WHOLE_BYTES", 0)
    little = history.read(f"rack.temp{LATE[9:]}", START_MS, START_MS + 100_000)
    much = history.read("rack.*", START_MS, END_MS)
    assert little.touched.bytes < much.touched.bytes / 2


@pytest.mark.parametrize("engine", ENGINES)
def test_more_samples_than_the_limit_are_refused(history: History, engine: Engine) -> None:
    count = len(history.read("rack.door", START_MS - 1, END_MS, engine="local"))
    assert len(history.read("rack.door", START_MS - 1, END_MS, engine=engine, samples=count)) == count
    with pytest.raises(TooMuchHistory, match=rf"more than {count - 1:,} samples .*the limit: narrow"):
        history.read("rack.door", START_MS - 1, END_MS, engine=engine, samples=count - 1)


def test_batches_hold_one_row_group_and_can_be_stopped(history_world: HistoryWorld, history: History) -> None:
    stop = threading.Event()
    batches = history.batches("rack.*", START_MS - 1, END_MS, stop=stop)
    first = next(batches)
    assert first.schema == RESULT_SCHEMA
    assert 0 < len(first) < len(history.read("rack.*", START_MS - 1, END_MS)) / 4
    stop.set()
    with pytest.raises(HistoryInterrupted):
        next(batches)
    with pytest.raises(NothingSelected):
        next(history.batches("nothing.such", START_MS, END_MS))


def test_more_series_than_the_limit_are_refused(history: History) -> None:
    with pytest.raises(TooMuchHistory, match=rf"rack.temp fits {MANY + 1} series, the limit is 7"):
        history.read("rack.temp", START_MS, END_MS, series=7)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nothing.such", START_MS, END_MS), "no series fits nothing.such"),
        (("never.announced", START_MS, END_MS), "no series fits never.announced"),
        (("rack.temp", END_MS, START_MS), "the start must be before the end"),
        (("rack.temp", "yesterday", END_MS), "from 'yesterday' is not a time"),
        (("rack.temp{", START_MS, END_MS), "not closed"),
    ],
)
def test_misuse_has_one_clear_message(history: History, arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(QueryError, match=message):
        history.read(*arguments)
    assert issubclass(NothingSelected, QueryError)


def test_no_table_and_no_hdfs_are_said(hdfs: str) -> None:
    with pytest.raises(HistoryError, match=r"no history at hdfs://.*/void yet"):
        History(f"{hdfs}/void").read("x", START_MS, END_MS)
    with pytest.raises(HistoryError, match=r"NameNode at hdfs://127.0.0.1:1 is not reachable"):
        History("hdfs://127.0.0.1:1").read("x", START_MS, END_MS)


@pytest.mark.parametrize("engine", ENGINES)
def test_interrupted(history: History, engine: Engine) -> None:
    """A stop event during a read ends it; the next read succeeds."""
    stop = threading.Event()
    seen: list[float] = []

    def progress(done: float, text: str) -> None:
        seen.append(done)
        stop.set()

    with pytest.raises(HistoryInterrupted):
        history.read("rack.*", START_MS, END_MS, engine=engine, stop=_Soon(stop), progress=progress)
    assert len(history.read("odd", START_MS - 1, END_MS, engine=engine)) == 10


class _Soon(threading.Event):
    """Event that is set from the second check on, during the read."""

    def __init__(self, stop: threading.Event) -> None:
        super().__init__()
        self._stop, self._looks = stop, 0

    def is_set(self) -> bool:
        self._looks += 1
        return self._stop.is_set() or self._looks > 1


@pytest.mark.parametrize("engine", ENGINES)
def test_progress_goes_to_the_end(history: History, engine: Engine) -> None:
    seen: list[tuple[float, str]] = []
    history.read("rack.*", START_MS, END_MS, engine=engine, progress=lambda done, text: seen.append((done, text)))
    assert seen
    assert all(0 <= done <= 1 for done, _ in seen)
    assert engine == "spark" or seen[-1][0] == 1


def test_a_file_that_goes_while_it_is_read_begins_the_reading_again(
    history_world: HistoryWorld, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    from query_dsl.stores.history import engine as module

    calls = []

    def once_gone(*given: Any) -> Any:
        calls.append(1)
        if len(calls) == 1:
            raise FileNotFoundError("compaction was faster")
        return real(*given)

    real = module._read_locally
    monkeypatch.setattr(module, "_read_locally", once_gone)
    assert len(history.read("odd", START_MS - 1, END_MS)) == 10
    assert len(calls) == 2


def test_forms(history: History) -> None:
    """pandas keeps integers exact; JSON and CSV mark values that are no number; Arrow is unchanged."""
    answer = history.read("odd", START_MS - 1, END_MS)
    frame = answer.to_pandas()
    assert frame["integer"].dropna().tolist() == [2**63 - 1, -(2**63), 2**53 + 1]
    assert frame["double"].notna().sum() == 3
    out = io.StringIO()
    answer.write_json(out)
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [line["value"] for line in lines] == [
        2**63 - 1,
        -(2**63),
        2**53 + 1,
        "NaN",
        "Infinity",
        -0.0,
        True,
        "",
        "naïve ☃ 𝄞",
        None,
    ]
    assert lines[-1]["type"] == "ended"
    assert lines[0]["series"] == EXTREME
    sheet = io.StringIO()
    answer.write_csv(sheet)
    assert sheet.getvalue().splitlines()[0] == "series,source,time,birth,type,value"
    assert "9223372036854775807" in sheet.getvalue()
    stream = io.BytesIO()
    answer.write_arrow(stream)
    back = HistoryAnswer(pa.ipc.open_stream(stream.getvalue()).read_all(), answer.series, answer.touched, ())
    assert (told(back), back.table.schema) == (told(answer), RESULT_SCHEMA)
    assert ds.dataset(answer.to_arrow()).count_rows() == 10


def test_a_polars_frame_holds_the_same_rows(history: History) -> None:
    answer = history.read("odd", START_MS - 1, END_MS)
    frame = answer.to_polars()
    assert frame.columns == answer.table.column_names
    values = ["integer", "double", "boolean", "string"]
    assert repr(frame.select(values).to_dicts()) == repr(answer.table.select(values).to_pylist())  # NaN is in it


def test_without_polars_an_answer_says_what_to_install(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(QueryError, match="Polars is not installed"):
        history.read("odd", START_MS - 1, END_MS).to_polars()


def test_a_frame_to_compute_on(history_world: HistoryWorld, history: History) -> None:
    frame = history.frame("rack.temp", START_MS - 1, END_MS)
    assert frame.columns[:6] == ["series", "name", "labels", "source", "type", "time"]
    rows = frame.groupBy(frame.labels["rack"].alias("rack")).count().collect()
    plain: dict[str, int] = {}
    for one in history_world.samples:
        if one.series.startswith("rack.temp{") and one.time_ms <= END_MS:
            rack = one.series.split('rack="')[1][:2]
            plain[rack] = plain.get(rack, 0) + 1
    assert {row["rack"]: row["count"] for row in rows} == plain


def test_a_fingerprint_with_two_texts_is_set_aside(hdfs: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from artimon.rawtable import announced_rows as columns
    from tests.series.world import block

    history_world = HistoryWorld(f"{hdfs}/clash")
    monkeypatch.setattr(columns, "fingerprint", lambda text: 7 if text != "good{}" else 8)
    history_world.announce([block("a", 0, 1, ["one{}", "good{}"]), block("b", 0, 1, ["two{}"])])
    history_world.append(START_MS + 10, [("a", "good{}", START_MS + 1, 5)])
    with pytest.raises(NothingSelected, match="1 fingerprints with two texts are left out"):
        History(history_world.hdfs).read("one", START_MS, END_MS)
    answer = History(history_world.hdfs).read('{x!="y",__name__=~"one|good"}', START_MS, END_MS)
    assert "left out" in answer.notes[-1]
