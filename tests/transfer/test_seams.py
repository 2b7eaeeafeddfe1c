"""Counters of files without start times: several files in the order of time are like one; another order is told."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from artimon.model.clock import SYSTEM_CLOCK
from query_dsl import evaluate, parse
from query_dsl.stores.history.engine import History
from query_dsl.stores.history_store import HistoryStore
from tests.transfer.importing import START_MS, run, samples

HOUR_MS = 3_600_000
SEAM = "counts of unknown start after counts of known start"
Polls = Sequence[tuple[int, int]]
"""(number of the poll, value)."""


def dump(folder: Path, polls: Polls, hours: int = 3) -> Path:
    file = folder / f"{uuid.uuid4().hex}.dump"
    lines = [
        f'{{__name__="req_total", host="h{host}"}} {value + host} {START_MS + poll * hours * HOUR_MS}'
        for host in range(2)
        for poll, value in polls
    ]
    file.write_text("\n".join(lines) + "\n")
    return file


def increase(hdfs: str, hours: int) -> tuple[list[Any], tuple[str, ...]]:
    """Increases of each series, a point every 15 min, and the notes. Two points of each hour have its increase."""
    end = -(-START_MS // HOUR_MS) * HOUR_MS
    text = f"fetch('req_total').increase('1h').between({end - HOUR_MS}, {end + hours * HOUR_MS})"
    with History(hdfs) as history:
        found = evaluate(parse(text), HistoryStore(history, engine="local"), SYSTEM_CLOCK.now_ms())
    return [found.tolist(row) for row in range(len(found.series))], tuple(found.notes)


@given(
    values=st.lists(st.integers(0, 9), min_size=2, max_size=30),
    cuts=st.lists(st.integers(1, 29), max_size=3, unique=True),
)
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_files_in_order_are_like_one(hdfs: str, tmp_path: Path, values: list[int], cuts: list[int]) -> None:
    whole, parts = (f"{hdfs}/{uuid.uuid4().hex}" for _ in range(2))
    polls = list(enumerate(values))
    run(dump(tmp_path, polls), whole)
    bounds = [0, *sorted(cuts), len(polls)]
    for first, last in pairwise(bounds):
        if polls[first:last]:
            run(dump(tmp_path, polls[first:last]), parts)
    assert samples(parts) == samples(whole)


def test_an_increase_over_the_seam_is_exact(hdfs: str, tmp_path: Path) -> None:
    polls = list(enumerate([5, 7, 1, 4, 2, 3]))
    for part in (polls[:4], polls[4:]):
        run(dump(tmp_path, part, hours=1), hdfs)
    found, notes = increase(hdfs, 6)
    assert [sum(value or 0 for value in row[::2]) for row in found] == [2 + 1 + 3 + 2 + 1, 2 + 2 + 3 + 3 + 1]
    assert not any(SEAM in note for note in notes)


@pytest.mark.parametrize("first", ["later", "gap"])
def test_what_cannot_be_known_is_told(hdfs: str, tmp_path: Path, first: str) -> None:
    """The later file first, or more than eight days between both."""
    polls = list(enumerate([5, 7, 1, 4, 2, 3]))
    early, late = polls[:4], [(poll + (0 if first == "later" else 9 * 24), value) for poll, value in polls[4:]]
    for part in (late, early) if first == "later" else (early, late):
        run(dump(tmp_path, part, hours=1), hdfs)
    _, notes = increase(hdfs, 6 if first == "later" else 10 * 24)
    assert any(f"2 series have {SEAM}" in note for note in notes)


def test_without_a_reset_the_order_does_not_matter(hdfs: str, tmp_path: Path) -> None:
    polls = list(enumerate([1, 2, 4, 7, 9, 12]))
    for part in (polls[3:], polls[:3]):
        run(dump(tmp_path, part, hours=1), hdfs)
    found, notes = increase(hdfs, 6)
    assert [sum(value or 0 for value in row[::2]) for row in found] == [11, 11]
    assert not any(SEAM in note for note in notes)
