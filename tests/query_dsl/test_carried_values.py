"""A series with one sample every five minutes joins one of every minute: its last value is carried for five minutes."""

from __future__ import annotations

from typing import Any

import pytest

from artimon.model.values import Kind
from query_dsl import Matrix, evaluate, offline, parse
from tests.query_dsl.reducing import table
from tests.query_dsl.test_missing_partners import STORES
from tests.query_dsl.test_pushdown import MINUTE, NOW, T, Told

NOTE = "have a value every 5m, which is carried until the next"


def gauge(name: str, minutes: list[int], end: int | None = None) -> Told:
    """One sample in each of these minutes before T, whose value is its minute."""
    samples: list[tuple[int, int, Any]] = [(T - i * MINUTE - 10_000, 0, i) for i in sorted(minutes, reverse=True)]
    if end is not None:
        samples.append((T - end * MINUTE - 10_000, 0, None))
    return Told(name, (("host", "a"),), Kind.GAUGE, tuple(samples), "s0", 0)


FAST = gauge("fast", list(range(40)))
SLOW = gauge("slow", [2, 7, 12, 17, 22, 27, 32, 37])


def asked(text: str, store: Any) -> Matrix:
    query = parse(text)
    assert parse(str(query)).equals(query)
    return evaluate(query, store, NOW)


def values(text: str, *told: Told) -> list[Any]:
    (row,) = table(asked(text, STORES["memory"]([FAST, *told]))).values()
    return list(row)


@pytest.mark.parametrize("engine", STORES)
def test_a_slow_series_joins_a_fast_one(engine: str) -> None:
    store = STORES[engine]([FAST, SLOW])
    found = asked("(fetch('slow') - fetch('fast')).range('10m')", store)
    assert table(found) == {'{host="a"}': [float(12 - 9), 12.0 - 8, 0.0, 1.0, 2.0, 3.0, 4.0, 0.0, 1.0, 2.0]}
    assert any(NOTE in note and note.startswith("sub: 1 series of slow") for note in found.notes), found.notes
    found = asked("(fetch('fast') * 0 + (fetch('slow') * 10).abs()).at('now')", store)
    assert table(found) == {'{host="a"}': [20.0]}


def test_no_value_is_older_than_the_period() -> None:
    """One value is missing: the minutes after its time have none."""
    late = gauge("slow", [2, 12, 17, 22, 27, 32])
    assert values("(fetch('slow') + 0 * fetch('fast')).range('15m')", late) == [
        17.0, 17.0, 12.0, 12.0, 12.0, 12.0, 12.0, None, None, None, None, None, 2.0, 2.0, 2.0
    ]  # fmt: skip


def test_nothing_is_carried_over_an_end() -> None:
    ended = gauge("slow", [12, 17, 22, 27], end=10)
    found = values("(fetch('slow') + 0 * fetch('fast')).range('15m')", ended)
    assert found == [17.0, 17.0, 12.0, 12.0, *[None] * 11]


@pytest.mark.parametrize(
    "minutes",
    [[3, 8, 14, 20, 29], [1, 2, 3, 9, 11], [3, 8, 13], [4]],
    ids=["irregular", "a fast one with gaps", "three samples", "one sample"],
)
def test_what_has_no_period_is_not_carried(minutes: list[int]) -> None:
    found = values("(fetch('slow') + 0 * fetch('fast')).range('10m')", gauge("slow", minutes))
    assert [i for i, value in enumerate(reversed(found)) if value is not None] == [i for i in minutes if i < 10]


def test_no_value_is_carried_without_an_operator_of_series() -> None:
    for text in ("fetch('slow')", "fetch('slow') * 2", "fetch('slow').or_(fetch('slow') + 1)"):
        assert sum(value is not None for value in values(f"({text}).range('10m')", SLOW)) == 2


def test_a_window_function_has_its_own_window() -> None:
    found = asked("(fetch('slow').map('max', '1m') + fetch('fast')).range('10m')", STORES["memory"]([FAST, SLOW]))
    assert sum(value is not None for value in found.tolist(0)) == 2
    assert not any(NOTE in note for note in found.notes)


def test_texts_are_carried() -> None:
    samples = {
        "slow": [(i * MINUTE, "new" if i > 10 else "old") for i in (5, 10, 15, 20)],
        "fast": [(i * MINUTE, "old") for i in range(1, 22)],
    }
    found = evaluate(parse("(fetch('slow') == fetch('fast')).range('8m')"), offline(samples), 21 * MINUTE + 15_000)
    assert found.tolist(0) == [True, *[False] * 7]
