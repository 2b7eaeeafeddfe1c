"""Tables of series: the order of their rows."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from artimon.model.select import Series
from artimon.model.series_table import SeriesTable
from artimon.model.values import Kind, ValueType

TEXTS = st.sampled_from(("", "a", "aa", "b", "Z", "é", "\U0001f600", "\uffff"))
LABELS = st.dictionaries(st.sampled_from(("a", "b", "c", "B")), TEXTS, max_size=4)


def table(rows: list[tuple[str, dict[str, str]]]) -> SeriesTable:
    return SeriesTable.from_series(
        [Series(number, name, labels, ValueType.INTEGER, Kind.COUNTER) for number, (name, labels) in enumerate(rows)]
    )


@given(st.lists(st.tuples(TEXTS.filter(bool), LABELS)), st.booleans())
def test_canonical_order_is_that_of_the_texts(rows: list[tuple[str, dict[str, str]]], same_labels: bool) -> None:
    """With labels that some series lack, and with the same labels in all."""
    if same_labels:
        rows = [(name, {label: labels.get(label) or "x" for label in "ab"}) for name, labels in rows]
    found = table(rows)
    texts = found.texts()
    expected = sorted(range(len(rows)), key=texts.__getitem__)
    assert found.canonical_order().tolist() == expected


def test_the_order_of_nothing_is_empty() -> None:
    assert table([]).canonical_order().tolist() == []
