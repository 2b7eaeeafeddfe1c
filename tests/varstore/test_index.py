"""Matchers against a plain search through every series."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from artimon.model.batch import SeriesBlock, SeriesInfo
from artimon.model.labels import canonical
from artimon.model.select import NAME, Matcher, SelectError
from artimon.model.values import Kind, ValueType
from varstore.index import Index
from varstore.shard import Shard

names = st.sampled_from(["cpu", "cpu.user", "cpu.idle", "disk"])
values = st.sampled_from(["", "a", "b", "ab", "ü", "a\nb"])
label_sets = st.dictionaries(st.sampled_from(["x", "y"]), values)
patterns = st.sampled_from(["a", "a.*", ".*", "", "a|b", "[^a]*", ".+", "(?s)a.b", "cpu\\..*"])
matchers = st.one_of(
    st.builds(Matcher, st.sampled_from(["x", "y", "z"]), st.sampled_from(["=", "!="]), values),
    st.builds(Matcher, st.sampled_from(["x", "y", NAME]), st.sampled_from(["=~", "!~"]), patterns),
    st.builds(Matcher, st.just(NAME), st.sampled_from(["=", "!=", "prefix"]), st.sampled_from(["cpu", "cpu.", "no"])),
)


def text_of(series: tuple[str, dict[str, str]]) -> str:
    """Canonical text."""
    return canonical(*series)


def fits(name: str, labels: dict[str, str], matcher: Matcher) -> bool:
    """By the book: an absent label has the value ""."""
    value = name if matcher.label == NAME else labels.get(matcher.label, "")
    match matcher.op:
        case "=":
            return value == matcher.value
        case "!=":
            return value != matcher.value
        case "=~":
            return re.fullmatch(matcher.value, value) is not None
        case "!~":
            return re.fullmatch(matcher.value, value) is None
        case _:
            return value.startswith(matcher.value)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.tuples(names, label_sets), max_size=25, unique_by=text_of),
    st.lists(matchers, max_size=4),
)
def test_as_a_plain_search(series: list[tuple[str, dict[str, str]]], asked: list[Matcher]) -> None:
    """Every operator, absent labels included."""
    index = Index()
    for slot, (name, labels) in enumerate(series):
        kept = {k: v for k, v in labels.items() if v}
        assert index.add(2 * slot, name, kept, ValueType.INTEGER, Kind.GAUGE, 1)
    slots, entries = index.find(asked)
    expected = [2 * i for i, (name, labels) in enumerate(series) if all(fits(name, labels, m) for m in asked)]
    assert slots.tolist() == expected
    assert [entry.name for entry in entries] == [series[slot // 2][0] for slot in expected]


@pytest.mark.parametrize(
    ("matcher", "text"),
    [
        (Matcher("x", "=~", "("), "missing"),
        (Matcher("x", "=~", "a" * 5_000), "more than 4096 bytes"),
        (Matcher("x", "=~", "(a{1000}){1000}"), "label 'x'"),
        (Matcher("x", "prefix", "a"), "only names have prefixes"),
        (Matcher("x", "~", "a"), "use one of = != =~ !~"),
    ],
)
def test_matchers_that_cannot_be(matcher: Matcher, text: str) -> None:
    """Named, with the reason."""
    with pytest.raises(SelectError, match=text):
        Index().find([matcher])


def block(version: int, *texts: str, kind: Kind = Kind.UNKNOWN, source: str = "s") -> SeriesBlock:
    """An announcement."""
    return SeriesBlock(source, 0, version, tuple(SeriesInfo(t, ValueType.DOUBLE, kind) for t in texts))


def test_the_greatest_version_holds() -> None:
    """Whatever order they come in; series of older ones stay known."""
    shard = Shard(capacity=1_000)
    assert shard.announce(block(2, 'a{x="1"}', "b{}", kind=Kind.COUNTER))
    assert not shard.announce(block(1, 'a{x="1"}', kind=Kind.GAUGE))
    assert not shard.announce(block(2, "c{}"))
    assert shard.announce(block(3, "b{}", kind=Kind.COUNTER))
    assert [(s.name, s.kind) for s in shard.find(())] == [("a", Kind.COUNTER), ("b", Kind.COUNTER)]
    assert shard.label_values("x") == ["1"]
    assert (shard.label_values(None), shard.names()) == (["x"], ["a", "b"])


def test_found_in_canonical_order_up_to_a_limit() -> None:
    """By name, then label pairs."""
    shard = Shard(capacity=1_000)
    shard.announce(block(1, 'b{x="1"}', 'a{y="0"}', 'a{x="2"}', 'a{x="10"}'))
    found = [canonical(s.name, s.labels) for s in shard.find((), limit=3)]
    assert found == ['a{x="10"}', 'a{x="2"}', 'a{y="0"}']


def test_a_fingerprint_with_two_texts_is_set_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither is shown, both are counted, the rest goes on."""
    monkeypatch.setattr("varstore.shard.fingerprint", len)
    shard = Shard(capacity=1_000)
    shard.announce(block(1, "aa{}", "long{}"))
    shard.announce(block(1, "bb{}", source="t"))
    shard.announce(block(2, "aa{}"))
    assert shard.names() == ["long"]
    assert [s.name for s in shard.find((Matcher(NAME, "!=", "x"),))] == ["long"]
    assert (shard.status()["clashes"], shard.status()["series"]) == (1, 1)


def test_a_bad_text_spoils_only_itself() -> None:
    """Counted; the other series of the block are known."""
    shard = Shard(capacity=1_000)
    shard.announce(block(1, "good{}", "not canonical", 'bad{b="1",a="2"}'))
    assert shard.names() == ["good"]
    assert shard.status()["bad_announcements"] == 2
