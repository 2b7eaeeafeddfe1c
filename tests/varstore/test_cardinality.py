"""Cardinality and values of labels, counted by shards and united."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from artimon.model.cardinality import Cardinality, merge_cardinality
from artimon.model.select import NAME, Matcher
from artimon.model.values import Kind, ValueType
from tests.varstore.test_index import label_sets, names
from varstore.index.index_statistics import matching_values, read_cardinality
from varstore.index.label_index import LabelIndex
from varstore.index.slot_table import SlotTable

series_lists = st.lists(st.tuples(names, label_sets, st.integers(0, 3)), max_size=30)


def indexed(series: list[tuple[str, dict[str, str], int]]) -> tuple[LabelIndex, list[tuple[str, dict[str, str], int]]]:
    """Return an index of distinct series with their virtual shards."""
    distinct = list({(name, tuple(sorted(labels.items()))): (name, labels, v) for name, labels, v in series}.values())
    table = SlotTable(100)
    index = LabelIndex(table)
    made: list[tuple[str, dict[str, str], int]] = []
    for i, (name, labels, vshard) in enumerate(distinct):
        plain = {label: value for label, value in labels.items() if value}
        if (name, plain) in [(a, b) for a, b, _ in made]:
            continue
        slot = int(table.add(np.array([i + 1], np.uint64), vshard)[0])
        index.add(slot, name, plain, ValueType.DOUBLE, Kind.GAUGE, 1)
        made.append((name, plain, vshard))
    return index, made


@given(series_lists, st.integers(0, 15))
def test_counts_are_those_of_the_series(series: list[tuple[str, dict[str, str], int]], vshards: int) -> None:
    index, made = indexed(series)
    chosen = [(name, labels) for name, labels, vshard in made if vshards >> vshard & 1]
    found = read_cardinality(index, 1_000, vshards)
    pairs = Counter((label, value) for _, labels in chosen for label, value in labels.items())
    by_label = Counter(label for label, _ in pairs)
    assert found.series == len(chosen)
    assert found.series_by_name == Counter(name for name, _ in chosen)
    assert found.series_by_pair == {f"{label}={value}": n for (label, value), n in pairs.items()}
    assert found.values_by_label == {NAME: len({name for name, _ in chosen}), **by_label}
    assert found.pairs == sum(found.values_by_label.values())
    assert Cardinality.from_json(json.loads(json.dumps(found.to_json()))) == found


@given(series_lists)
def test_values_are_those_of_matching_series(series: list[tuple[str, dict[str, str], int]]) -> None:
    index, made = indexed(series)
    matchers = (Matcher(NAME, "=", "cpu"), Matcher("x", "!=", "a"))
    chosen = [labels for name, labels, _ in made if name == "cpu" and labels.get("x", "") != "a"]
    assert matching_values(index, "y", matchers, 100) == sorted({one["y"] for one in chosen if "y" in one})
    assert matching_values(index, None, matchers, 100) == sorted({label for one in chosen for label in one})
    assert matching_values(index, NAME, matchers, 100) == (["cpu"] if chosen else [])
    assert matching_values(index, NAME, (), 1) == sorted({name for name, _, _ in made})[:1]


def test_parts_are_united() -> None:
    a = Cardinality(3, 5, {"up": 2, "x": 1}, {"host": 2}, {"host": 4}, {"host=a": 2})
    b = Cardinality(4, 7, {"up": 4}, {"host": 3}, {"host": 6}, {"host=a": 1, "host=b": 3})
    found = merge_cardinality([a, b], 1)
    assert found == Cardinality(7, 7, {"up": 6}, {"host": 3}, {"host": 6}, {"host=a": 3})
    assert merge_cardinality([], 1) == Cardinality()


@pytest.mark.parametrize("top", [1, 2])
def test_lists_are_bounded(top: int) -> None:
    index, _ = indexed([("cpu", {"x": str(i)}, 0) for i in range(5)] + [("disk", {"x": "0"}, 0)])
    found = read_cardinality(index, top, None)
    assert found.series_by_name == dict([("cpu", 5), ("disk", 1)][:top])
    assert found.series_by_pair == dict([("x=0", 2), ("x=1", 1)][:top])
