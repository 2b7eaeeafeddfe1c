"""Answers of several shards merged into one, where two of them know the same series."""

from __future__ import annotations

import numpy as np
import pytest

from artimon.compute.statistics import STATISTICS
from artimon.model.grid import Grid
from artimon.model.select import INCARNATION_DTYPE, Buckets, Matcher, SelectRequest
from artimon.model.series_table import NAME, Series
from artimon.model.values import Kind, ValueType
from varstore.query.answer_merge import merge_answers

GRID = Grid(120_000, 60_000, 2)
REQUEST = SelectRequest((Matcher(NAME, "=", "x"),), GRID, STATISTICS)


def answer(type_: ValueType, *values: int) -> Buckets:
    """Return a series with these values, one a bucket; without values it was only announced."""
    n = len(values)
    cells = np.zeros((1, 2), np.int64)
    cells[0, :n] = values
    stats = dict.fromkeys(("last", "min", "max", "sum"), cells)
    stats["count"] = (np.arange(2) < n).astype(np.int64)[None, :]
    stats["last_time"] = np.where(stats["count"] > 0, [[30_000, 90_000]], 0)
    births = np.zeros(int(n > 0), INCARNATION_DTYPE)
    if n:
        births[0] = (0, 5, 30_000, stats["last_time"][0, n - 1], values[-1])
    series = (Series(7, "x", {}, type_, Kind.GAUGE),)
    return Buckets(GRID, series, {name: stats[name] for name in STATISTICS}, (), births, np.zeros(1, np.int64),
                   births["last_ms"] if n else np.zeros(1, np.int64))  # fmt: skip


@pytest.mark.parametrize("announced_type", [ValueType.STRING, ValueType.BOOLEAN, ValueType.DOUBLE])
def test_a_twin_that_was_only_announced_hides_nothing(announced_type: ValueType) -> None:
    """The order of the answers does not matter."""
    silent, spoken = answer(announced_type), answer(ValueType.INTEGER, 3, 4)
    for parts in ([silent, spoken], [spoken, silent]):
        found = merge_answers(parts, REQUEST)
        assert [(one.type, found.statistics["last"].tolist()) for one in found.series] == [
            (ValueType.INTEGER, [[3, 4]])
        ]
        assert found.statistics["count"].tolist() == [[1, 1]]
        assert found.births["last"].tolist() == [4]
        assert found.notes == ()


def test_twins_of_two_types_with_samples_are_reported() -> None:
    """Only one of them is shown, with a note."""
    found = merge_answers([answer(ValueType.INTEGER, 3), answer(ValueType.BOOLEAN, 1, 1)], REQUEST)
    assert found.statistics["last"].tolist() == [[3, 0]]
    assert found.notes == ("a series of x has two types on two shards: only one is shown",)
