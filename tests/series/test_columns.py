"""Rows of the table of series: one for each series of a source, whatever the order and number of its announcements."""

from __future__ import annotations

import random
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from artimon.model.batch import SeriesBlock
from artimon.model.values import Kind, ValueType
from artimon.rawtable import announced_rows as columns
from artimon.rawtable.announced_rows import PRUNED, SERIES_SCHEMA, merge_rows, rows_of
from artimon.rawtable.file_statistics import statistics_of
from artimon.rawtable.series_delta import split_fingerprints
from tests.series.world import START_MS, block, expected, plain

SOURCES = {"a": 1, "b": 2}
NAMES = {number: name for name, number in SOURCES.items()}
TEXTS = ["x{}", 'x{h="1"}', 'x{h="2"}', 'y.z{h="naïve ☃",k="\\"{,}="}', 'y.z{h="1",k="2"}']


@st.composite
def announcements(draw: st.DrawFn) -> list[SeriesBlock]:
    made = draw(
        st.lists(
            st.builds(
                block,
                st.sampled_from(list(SOURCES)),
                st.integers(0, 2),
                st.integers(0, 1000),
                st.lists(st.sampled_from(TEXTS), unique=True),
                type=st.sampled_from([ValueType.INTEGER, ValueType.DOUBLE]),
                kind=st.sampled_from(list(Kind)),
                help=st.sampled_from(["", "how many"]),
                first_seen_ms=st.sampled_from([0, START_MS - 5, START_MS + 3]),
            ),
            max_size=8,
        )
    )
    # one version of a block is one announcement; a series is in one block at a time
    return list({(b.source, b.version): b for b in made}.values())


@settings(deadline=None)
@given(announcements(), st.randoms(use_true_random=False))
def test_order_repeats_and_grouping_do_not_matter(made: list[SeriesBlock], chance: random.Random) -> None:
    jumbled = made + [b for b in made if chance.random() < 0.5]
    chance.shuffle(jumbled)
    cut = chance.randint(0, len(jumbled))
    parts = [merge_rows(rows_of(part, SOURCES)[0]).table for part in (jumbled[:cut], jumbled[cut:])]
    merged = merge_rows(pa.concat_tables(parts))
    assert merged.clashes == ()
    assert merged.table.schema == SERIES_SCHEMA
    assert plain(merged.table, NAMES) == expected(made)


def test_a_text_that_is_not_canonical_is_left_out_and_the_rest_stays() -> None:
    rows, refused = rows_of([block("a", 0, 0, ["x{}", 'x{b="1",a="1"}', "y{}"])], SOURCES)
    assert rows.column("name").to_pylist() == ["x", "y"]
    assert [one.text for one in refused] == ['x{b="1",a="1"}']
    assert "canonical" in refused[0].reason


@pytest.mark.parametrize("texts", [("x{}", "y{}"), ('x{a="1"}', 'x{a="2"}'), ('x{a="1"}', 'x{a="1",b="1"}')])
def test_a_fingerprint_with_two_texts_keeps_both_rows_and_is_reported(
    monkeypatch: pytest.MonkeyPatch, texts: tuple[str, str]
) -> None:
    """Texts of one source and of two, beside unrelated series."""
    monkeypatch.setattr(columns, "fingerprint", lambda text: 7 if text in texts else len(text) + 8)
    blocks = [
        block("a", 0, 5, [texts[0], 'z{a="1"}']),
        block("b", 0, 3, [texts[1]]),
        block("a", 1, 9, [texts[1]]),
        block("a", 0, 7, [texts[0]], first_seen_ms=START_MS),
    ]
    for given_ in (blocks, blocks[::-1]):
        merged = merge_rows(rows_of(given_, SOURCES)[0])
        assert merged.clashes == (7,)
        found = plain(merged.table, NAMES)
        assert set(found) == {("a", texts[0]), ("a", texts[1]), ("b", texts[1]), ("a", 'z{a="1"}')}
        assert found["a", texts[0]][-2:] == (START_MS, START_MS + 7)
        assert [r["clash"] for r in merged.table.to_pylist()] == [n != "z" for n in merged.table["name"].to_pylist()]
        again = merge_rows(merged.table)
        assert (again.clashes, again.table) == ((7,), merged.table)


def test_statistics_have_the_minimum_and_the_maximum() -> None:
    import json

    rows, _ = rows_of([block("a", 0, 0, ["b{}", "a{}"]), block("b", 0, 1500, ["c{}"])], SOURCES)
    found = json.loads(statistics_of(rows, PRUNED))
    assert (found["minValues"]["name"], found["maxValues"]["name"]) == ("a", "c")
    assert (found["minValues"]["source"], found["maxValues"]["source"]) == (1, 2)
    assert found["maxValues"]["last_seen"] == "2026-11-18T00:00:01.500Z"


@pytest.mark.parametrize("passes", [0, 1, 2, 3, 7])
def test_spans_cover_every_fingerprint_once(passes: int) -> None:
    found = split_fingerprints(passes)
    assert (found[0][0], found[-1][1]) == (-(2**63), 2**63 - 1)
    assert all(high + 1 == low for (_, high), (low, _) in pairwise(found))
