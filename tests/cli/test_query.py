"""`artimon query`: forms of an answer, asking again, and what is said of a question that has no answer."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from select import select
from time import monotonic

import pytest
from typer.testing import CliRunner

from artimon.cli import app
from artimon.cli.query_output import QueryOptions, run_query
from artimon.model.clock import ManualClock
from artimon.session import Session
from query_dsl.stores.levels import SETTLE_MS
from tests.query_dsl.plain_store import MINUTE, PlainStore

ROOT = Path(__file__).parents[2]
QUESTION = "fetch('temperature').range('3m')"


def small_store() -> PlainStore:
    store = PlainStore()
    store.add("temperature", {"rack": "r1"}, [(MINUTE, 20.0), (2 * MINUTE, math.nan), (3 * MINUTE, 21.5)])
    return store.add("temperature", {"rack": "r,2"}, [(MINUTE, 30.0), (3 * MINUTE, 7.0)])


@pytest.fixture
def session() -> Iterator[Session]:
    with Session(small_store(), "nowhere", ManualClock(3 * MINUTE + SETTLE_MS)) as opened:
        yield opened


def asked(session: Session, capsys: pytest.CaptureFixture[str], asking: QueryOptions) -> tuple[int, str, str]:
    code = run_query(session, asking)
    told = capsys.readouterr()
    return code, told.out, told.err


def test_a_table_has_charts_and_tells_na_from_nan(session: Session, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = asked(session, capsys, QueryOptions(QUESTION))
    lines = out.splitlines()
    assert (code, err) == (0, "")
    assert lines[0].startswith("2 series x 3 buckets of 1m")
    assert lines[2].split() == ['temperature{rack="r,2"}', "█", "▁", "30", "NA", "7"]
    assert lines[3].split() == ['temperature{rack="r1"}', "▁×█", "20", "NaN", "21.5"]


def test_ascii_and_few_lines(session: Session, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = asked(session, capsys, QueryOptions(QUESTION, ascii_only=True, series=1))
    assert out.isascii()
    assert "@ _" in out
    assert "... and 1 more series" in out


def test_json_is_one_object_with_all_values(session: Session, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = asked(session, capsys, QueryOptions(QUESTION, format="json"))
    data = json.loads(out)
    assert [one["values"] for one in data["series"]] == [[30.0, None, 7.0], [20.0, "NaN", 21.5]]


def test_csv_has_a_line_a_value(session: Session, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, err = asked(session, capsys, QueryOptions(QUESTION, format="csv"))
    assert err == ""
    rows = list(csv.DictReader(io.StringIO(out, newline="")))
    assert [(row["series"], row["time_ms"], row["value"]) for row in rows] == [
        ('temperature{rack="r,2"}', "60000", "30.0"),
        ('temperature{rack="r,2"}', "180000", "7.0"),
        ('temperature{rack="r1"}', "60000", "20.0"),
        ('temperature{rack="r1"}', "120000", "NaN"),
        ('temperature{rack="r1"}', "180000", "21.5"),
    ]


def test_csv_says_its_notes_elsewhere(session: Session, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, err = asked(session, capsys, QueryOptions("fetch('temperature')", format="csv"))
    assert err == "artimon: no range given: the last 10m\n"
    assert "range" not in out


SAMPLES = "samples('temperature').between(0, 180000)"


def test_raw_samples_as_text(session: Session, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = asked(session, capsys, QueryOptions(SAMPLES))
    assert (code, err) == (0, "")
    assert all(word in out for word in ('temperature{rack="r,2"}', 'temperature{rack="r1"}', "30", "21.5")), out


def test_raw_samples_as_json(session: Session, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = asked(session, capsys, QueryOptions(SAMPLES, format="json"))
    rows = json.loads(out)["series"]
    assert [(row["labels"]["rack"], row["type"], row["times"], row["values"]) for row in rows] == [
        ("r,2", "DOUBLE", [60_000, 180_000], [30.0, 7.0]),
        ("r1", "DOUBLE", [60_000, 120_000, 180_000], [20.0, "NaN", 21.5]),
    ]


def test_raw_samples_as_csv(session: Session, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, err = asked(session, capsys, QueryOptions(SAMPLES, format="csv"))
    assert err == ""
    rows = list(csv.DictReader(io.StringIO(out, newline="")))
    assert [(row["series"], row["time"], row["value"]) for row in rows][:3] == [
        ('temperature{rack="r,2"}', "1970-01-01T00:01:00.000Z", "30.0"),
        ('temperature{rack="r,2"}', "1970-01-01T00:03:00.000Z", "7.0"),
        ('temperature{rack="r1"}', "1970-01-01T00:01:00.000Z", "20.0"),
    ]


def test_raw_samples_explained(session: Session, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = asked(session, capsys, QueryOptions(SAMPLES, explain=True))
    assert "raw samples" in out
    assert "answer  2 series, 5 points" in out


def test_at_sets_the_evaluation_time(session: Session, capsys: pytest.CaptureFixture[str]) -> None:
    asking = QueryOptions("fetch('temperature').sum(by=[]).range('1m')", at="1970-01-01T00:01:15Z", format="json")
    _, out, _ = asked(session, capsys, asking)
    assert json.loads(out)["series"][0]["values"] == [50.0]


def test_explain(session: Session, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = asked(session, capsys, QueryOptions(QUESTION, explain=True))
    assert "3 x 1m" in out
    assert "2 series" in out
    _, out, _ = asked(session, capsys, QueryOptions(QUESTION, explain=True, format="json"))
    assert json.loads(out)["grid"]["n"] == 3


def test_an_engine_that_is_not_there_says_so(session: Session, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = asked(session, capsys, QueryOptions(QUESTION, engine="history"))
    assert (code, out) == (1, "")
    assert "history" in err


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("fetch('temprature')", "no variable is named 'temprature'; near: temperature"),
        ("fetch('temperature').rate(", "is not closed"),
        ("fetch('temperature').men('5m')", "men"),
        ("5", "plain value"),
    ],
)
@pytest.mark.parametrize("every_s", [None, 1.0])
def test_a_wrong_question_is_shown_with_its_place(
    session: Session, capsys: pytest.CaptureFixture[str], text: str, told: str, every_s: float | None
) -> None:
    code, out, err = asked(session, capsys, QueryOptions(text, every_s=every_s))
    assert (code, out) == (1, "")
    assert told in err
    assert text == "5" or f"  {text}\n  " in err
    assert text == "5" or "^" in err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--json", "--csv"), "choose one"),
        (("--explain", "--watch"), "--explain cannot"),
        (("--watch", "0.5"), "at least 1s"),
        (("--watch", "0"), "at least 1s"),
        (("--watch=soon",), "not a duration"),
        (("--engine", "magic"), "history"),
        (("--series", "0"), "--series"),
    ],
)
def test_words_that_do_not_go_together(words: tuple[str, ...], told: str) -> None:
    answer = CliRunner().invoke(app, ["query", "fetch('x')", *words])
    assert answer.exit_code == 2
    assert told in answer.output


UNCLOSED = "fetch('x'"


@pytest.mark.parametrize("words", [("--watch", UNCLOSED), (UNCLOSED, "--watch"), ("--watch", "2", UNCLOSED)])
def test_watch_may_stand_anywhere_and_alone(words: tuple[str, ...]) -> None:
    answer = CliRunner().invoke(app, ["query", "--zookeeper", "127.0.0.1:1", *words])
    assert answer.exit_code == 1
    assert "is not closed" in answer.output


# --- asking again, as a process of its own

PROGRAM = """
import sys
from artimon.cli.query_output import QueryOptions, run_query
from artimon.model.clock import ManualClock
from artimon.session import Session
from query_dsl.stores.levels import SETTLE_MS
from tests.cli.test_query import QUESTION, small_store
from tests.query_dsl.plain_store import MINUTE

class Flaky:
    '''Answers, then fails once, then answers.'''
    def __init__(self): self.store, self.asked = small_store(), 0
    def __getattr__(self, name): return getattr(self.store, name)
    def select(self, request):
        self.asked += 1
        if self.asked == 2:
            from artimon.model.select import SelectError
            raise SelectError("no shard answers")
        return self.store.select(request)

session = Session(Flaky(), "nowhere", ManualClock(3 * MINUTE + SETTLE_MS))
sys.exit(run_query(session, QueryOptions(QUESTION, format=sys.argv[1], every_s=1.0)))
"""


def start(form: str, out: int) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "70", "LINES": "12"}
    command = [sys.executable, "-c", PROGRAM, form]
    return subprocess.Popen(command, stdout=out, stderr=subprocess.PIPE, cwd=ROOT, env=environment)


def read_until(source: int, enough: bytes, times: int, deadline_s: float = 120) -> bytes:
    """Return the output until `enough` has occurred that many times."""
    got, until = b"", monotonic() + deadline_s
    while got.count(enough) < times:
        assert monotonic() < until, got
        if select([source], [], [], 0.2)[0]:
            got += os.read(source, 65536)
    return got


def interrupted(process: subprocess.Popen[bytes]) -> str:
    """Ctrl-C; what it says on standard error."""
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return err.decode()


def test_watching_without_a_terminal_prints_block_after_block() -> None:
    read, write = os.pipe()
    process = start("text", write)
    os.close(write)
    begun = monotonic()
    out = read_until(read, b"temperature').range", 3).decode()
    assert monotonic() - begun > 1.0  # three blocks, a second apart
    assert interrupted(process) == ""
    os.close(read)
    blocks = out.split("\n\n")
    assert "\x1b" not in out
    assert "21.5" in blocks[0]
    assert "artimon: no shard answers" in blocks[1]


def test_watching_prints_a_json_object_a_line() -> None:
    read, write = os.pipe()
    process = start("json", write)
    os.close(write)
    out = read_until(read, b"\n", 2)
    assert interrupted(process) == ""
    os.close(read)
    assert json.loads(out.splitlines()[0])["grid"]["n"] == 3


def test_watching_on_a_terminal_paints_in_place() -> None:
    terminal, inner = pty.openpty()
    process = start("text", inner)
    os.close(inner)
    out = read_until(terminal, b"\x1b[J", 3).decode()
    assert interrupted(process) == ""
    os.close(terminal)
    frames = out.split("\x1b[H")
    assert out.startswith("\x1b[2J")
    assert out.count("\x1b[2J") == 1
    assert "21.5" in frames[1]
    assert "no shard answers" in frames[2]
    rows = frames[1].split("\x1b[J")[0].replace("\x1b[K", "").replace("\r", "").rstrip("\n").split("\n")
    assert all(len(row) <= 70 for row in rows)
    assert len(rows) <= 11


def test_a_reader_that_goes_is_no_error() -> None:
    read, write = os.pipe()
    process = start("csv", write)
    os.close(write)
    read_until(read, b"\n", 1)
    os.close(read)
    _, err = process.communicate(timeout=120)
    assert (process.returncode, err) == (0, b"")


def test_lint_prints_the_findings_with_their_places(session: Session, capsys: pytest.CaptureFixture[str]) -> None:
    text = "fetch('temperature{rock!=\"r1\"}')"
    code, out, err = asked(session, capsys, QueryOptions(text, lint=True))
    assert (code, err) == (1, "")
    assert out.splitlines()[0].endswith("no series has the label 'rock'; near: rack")
    assert out.splitlines()[1:] == [f"  {text}", f"  {' ' * text.index('rock')}{'^' * len('rock!=')}"]
    code, out, _ = asked(session, capsys, QueryOptions("temprature", lint=True, promql=True, format="json"))
    assert (code, [one["code"] for one in json.loads(out)]) == (1, ["no-series"])
    assert asked(session, capsys, QueryOptions(QUESTION, lint=True)) == (0, "", "")
    assert CliRunner().invoke(app, ["query", QUESTION, "--lint", "--explain"]).exit_code == 2
