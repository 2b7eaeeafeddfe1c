"""`artimon history` and `artimon.history`, as a user calls them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import artimon
from artimon.session import Session
from query_dsl import QueryError
from query_dsl.stores.history.engine import Engine, History
from query_dsl.tree.times import format_time
from tests.forked import run_forked
from tests.history.conftest import EXTREME
from tests.history.world import HOUR_MS, START_MS, HistoryWorld

pytestmark = pytest.mark.stack
TIMES = ["--from", format_time(START_MS - 1), "--to", format_time(START_MS + 6 * HOUR_MS)]


def command(history_world: HistoryWorld, *words: str) -> subprocess.CompletedProcess[str]:
    where = ["--hdfs", history_world.hdfs, "--zookeeper", "127.0.0.1:1"]
    return run_forked("artimon.cli", "history", *words, *where, timeout=120)


def test_forms_of_the_command(history_world: HistoryWorld, tmp_path: Path) -> None:
    lines = command(history_world, "odd", *TIMES, "--json")
    assert lines.returncode == 0, lines.stderr
    told = [json.loads(line) for line in lines.stdout.splitlines()]
    assert [one["value"] for one in told][:4] == [2**63 - 1, -(2**63), 2**53 + 1, "NaN"]
    assert "artimon: 10 samples of 1 series" in lines.stderr
    assert "files" in lines.stderr
    plain = command(history_world, "odd", *TIMES)
    assert plain.stdout.splitlines()[0] == f"2026-11-18T00:00:00Z  {EXTREME}  9223372036854775807"
    assert plain.stdout.splitlines()[-1].endswith("(ended)")
    target = tmp_path / "odd.arrow"
    assert command(history_world, "odd", *TIMES, "--arrow", str(target)).returncode == 0
    assert pa.ipc.open_stream(target.read_bytes()).read_all().num_rows == 10


def test_a_stream_has_every_sample_and_no_limit(history_world: HistoryWorld, history: History, tmp_path: Path) -> None:
    target = tmp_path / "all.arrow"
    done = command(history_world, "rack.*", *TIMES, "--arrow", str(target), "--stream", "--limit", "1")
    assert done.returncode == 0, done.stderr
    parts = list(pa.ipc.open_stream(target.read_bytes()))
    whole = history.read("rack.*", START_MS - 1, START_MS + 6 * HOUR_MS, engine="local")
    assert len(parts) > 4
    rows = [row for part in parts for row in part.to_pylist()]
    assert sorted(map(repr, rows)) == sorted(map(repr, whole.to_arrow().to_pylist()))
    assert f"{len(whole):,} samples" in done.stderr
    wrong = command(history_world, "nothing.such", *TIMES, "--arrow", str(target), "--stream")
    assert (wrong.returncode, target.is_file()) == (1, True)
    assert command(history_world, "rack.*", *TIMES, "--stream").returncode == 2


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["odd", *TIMES, "--limit", "9"], 1, "more than 9 samples"),
        (["nothing.such", *TIMES], 1, "no series fits"),
        (["odd", "--from", "noon"], 1, "is not a time"),
        (["odd", *TIMES, "--json", "--csv"], 2, "choose one"),
        (["odd", *TIMES, "--arrow", "/nonexistent/x"], 1, "/nonexistent/x: No such file"),
    ],
    ids=lambda value: " ".join(value[:1] + value[-1:]) if isinstance(value, list) else None,
)
def test_misuse(history_world: HistoryWorld, words: list[str], code: int, told: str) -> None:
    answer = command(history_world, *words)
    assert answer.returncode == code, answer.stderr
    assert told in answer.stderr
    assert "Traceback" not in answer.stderr
    assert not answer.stdout


def test_the_function(history_world: HistoryWorld, tmp_path: Path) -> None:
    answer = artimon.history("odd", START_MS - 1, START_MS + HOUR_MS, hdfs=history_world.hdfs)
    assert len(answer) == 10
    with pytest.raises(QueryError, match="more than 3 samples"):
        artimon.history("odd", START_MS - 1, START_MS + HOUR_MS, hdfs=history_world.hdfs, samples=3)


def test_a_session_reads_history_too(history_world: HistoryWorld) -> None:
    store: Any = object()
    opened: list[History] = []

    def open_history() -> History:
        opened.append(History(history_world.hdfs))
        return opened[-1]

    with Session(store, "here", open_history=open_history) as session:
        assert len(session.history("odd", START_MS - 1, START_MS + HOUR_MS)) == 10
        assert len(session.history("odd", START_MS, START_MS + HOUR_MS)) == 9
    assert len(opened) == 1
    with pytest.raises(QueryError, match="closed"):
        session.history("odd", START_MS)
    with pytest.raises(QueryError, match="has no history"):
        Session(store, "here").history("odd", START_MS)


@pytest.mark.parametrize("engine", ["local", "spark"])
@pytest.mark.slow
def test_ctrl_c_ends_a_reading_and_the_next_one_is_answered(history: History, engine: Engine) -> None:
    def pressed(_done: float, _text: str) -> None:
        raise KeyboardInterrupt

    question: Any = ("rack.*", START_MS, START_MS + 6 * HOUR_MS)
    with pytest.raises(KeyboardInterrupt):
        history.read(*question, engine=engine, progress=pressed)
    assert len(history.read("odd", START_MS - 1, START_MS + HOUR_MS, engine=engine)) == 10
