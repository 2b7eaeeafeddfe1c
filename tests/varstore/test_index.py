"""Matchers of the label index, compared with a plain search through every series."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from artimon.model.batch import SeriesBlock, SeriesInfo
from artimon.model.labels import canonical
from artimon.model.select import NAME, Matcher, SelectError
from artimon.model.values import Kind, ValueType
from varstore.index.label_index import AnnounceOutcome, LabelIndex, SeriesEntry
from varstore.index.slot_table import Slots, SlotTable
from varstore.shard.shard import Shard

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
    """Return the canonical text."""
    return canonical(*series)


def fits(name: str, labels: dict[str, str], matcher: Matcher) -> bool:
    """Apply a matcher by its definition: an absent label has the value ""."""
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


Known = tuple[str, dict[str, str]]
announced = st.lists(st.tuples(names, label_sets), max_size=25, unique_by=text_of)


def fill(index: LabelIndex, slots: Sequence[int], series: Sequence[Known]) -> None:
    """Add series to the index."""
    for slot, (name, labels) in zip(slots, series, strict=True):
        kept = {k: v for k, v in labels.items() if v}
        assert index.add(slot, name, kept, ValueType.INTEGER, Kind.GAUGE, 1, 1_000) is AnnounceOutcome.KNOWN


def select_entries(index: LabelIndex, asked: Sequence[Matcher] = ()) -> tuple[Slots, list[SeriesEntry]]:
    """Return the slots of the series that match and still exist, and their entries."""
    slots = index.select(asked)
    return index._valid_entries(slots, index._table.fingerprint.take(slots))


def check(index: LabelIndex, held: dict[int, Known], asked: Sequence[Matcher]) -> None:
    """Compare every kind of query with a plain search."""
    slots, entries = select_entries(index, asked)
    expected = sorted(slot for slot, (name, labels) in held.items() if all(fits(name, labels, m) for m in asked))
    assert slots.tolist() == index.select(asked).tolist() == expected
    kept = [(held[slot][0], {k: v for k, v in held[slot][1].items() if v}) for slot in expected]
    assert [(entry.name, entry.labels) for entry in entries] == kept
    assert index.labels_of(slots) == sorted({label for _, labels in kept for label in labels})
    for label in ("x", "y", "z", NAME):
        codes, texts = index.codes(label, slots)
        mine = [name if label == NAME else labels.get(label, "") for name, labels in kept]
        assert [texts[code] for code in codes.tolist()] == mine
        every = {name if label == NAME else labels.get(label, "") for name, labels in held.values()}
        assert index.values(label) == sorted(every - {""})
    assert index.values(None) == sorted({k for _, labels in held.values() for k, v in labels.items() if v})
    assert len(index) == len(held)


@settings(max_examples=200, deadline=None)
@given(announced, announced, st.lists(matchers, max_size=4), st.sets(st.integers(0, 24)))
def test_select_agrees_with_a_plain_search(
    first: list[Known], second: list[Known], asked: list[Matcher], gone: set[int]
) -> None:
    """Every operator, absent labels included, also with freed slots reused and with a loaded index."""
    index = LabelIndex()
    slots = [2 * i for i in range(len(first))]
    fill(index, slots, first)
    held = dict(zip(slots, first, strict=True))
    check(index, held, asked)

    index.remove(np.array([slot for slot in slots if slot // 2 in gone], np.int64))
    held = {slot: known for slot, known in held.items() if slot // 2 not in gone}
    check(index, held, asked)
    free = [slot for slot in range(100) if slot not in held][: len(second)]
    fill(index, free, second)
    held.update(zip(free, second, strict=True))
    check(index, held, asked)

    other = LabelIndex()
    other.load(index.export(np.arange(0, 100, 3)))
    other.load(index.export(np.arange(100)))
    check(other, held, asked)
    assert select_entries(other)[1] == select_entries(index)[1]
    other.remove(np.array(sorted(held), np.int64))
    check(other, {}, asked)
    assert not other._labels


def test_many_labels_survive_an_image() -> None:
    """More labels than are processed in one batch."""
    index, other = LabelIndex(), LabelIndex()
    held = {slot: ("cpu", {f"l{n:02}": f"{slot % 2}" for n in range(slot, slot + 35)}) for slot in range(60)}
    fill(index, list(held), list(held.values()))
    other.load(index.export(np.arange(60)))
    assert [entry.labels for entry in select_entries(other)[1]] == [labels for _, labels in held.values()]


def test_select_is_restricted_to_a_mask_of_virtual_shards() -> None:
    """Series are selected by a mask of virtual shards; twins of the result are known."""
    table = SlotTable(100)
    index = LabelIndex(table)
    for vshard in (3, 7):
        slots = table.add(np.array([1, vshard], np.uint64), vshard).tolist()
        fill(index, slots, [("cpu", {}), (f"own{vshard}", {})])
    for mask, found in ((1 << 3, {3}), (1 << 7 | 1 << 200, {7}), (1 << 3 | 1 << 7, {3, 7}), (0, set())):
        slots = index.select((), mask)
        assert set(table.vshard[slots].tolist()) == found
        assert len(table.twins(slots)) == (2 if len(found) == 2 else 0)


def test_series_freed_during_a_long_select_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slots freed between two parts of a long answer, and after it, are left out."""
    monkeypatch.setattr("varstore.index.label_index._LOCKED_BATCH", 2)
    table = SlotTable(100)
    index = LabelIndex(table)
    slots = table.add(np.arange(1, 6, dtype=np.uint64), 0)
    fill(index, slots.tolist(), [("cpu", {"x": str(i)}) for i in range(5)])
    entries_of, calls = index._entries, []

    def meanwhile(some: Slots) -> list[SeriesEntry]:
        calls.append(entries_of(some))
        if len(calls) == 1:  # with the index's lock held
            index._remove(slots[4:])
        return calls[-1]

    monkeypatch.setattr(index, "_entries", meanwhile)
    found, entries = select_entries(index)
    assert found.tolist() == slots[:4].tolist()
    assert [entry.labels["x"] for entry in entries] == ["0", "1", "2", "3"]
    table.free(slots[1:2])
    assert table.add(np.array([9], np.uint64), 0).tolist() == slots[1:2].tolist()
    prints = np.array([entry.fingerprint for entry in entries], np.uint64)
    assert table.holds(found, prints).tolist() == [True, False, True, True]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 9), st.integers(0, 200)), max_size=300))
def test_pattern_results_are_cached_by_value_not_by_number(steps: list[tuple[bool, int, int]]) -> None:
    """A number that is reused for another value is matched anew; postings forget."""
    index, held = LabelIndex(), dict[int, Known]()
    asked = [Matcher("x", "=~", ".*[02468]"), Matcher(NAME, "prefix", "n1")]
    for adding, slot, value in steps:
        if adding and slot not in held:
            held[slot] = (f"n{value % 15}", {"x": str(value)})
            fill(index, [slot], [held[slot]])
        elif not adding and slot in held:
            del held[slot]
            index.remove(np.array([slot]))
        for matcher in asked:
            found = [slot for slot in sorted(held) if fits(*held[slot], matcher)]
            assert index.select([matcher]).tolist() == found


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
def test_invalid_matchers_are_refused(matcher: Matcher, text: str) -> None:
    """The error names the matcher and the reason."""
    with pytest.raises(SelectError, match=text):
        LabelIndex().select([matcher])


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|aa)+$", "(.*)*b", "(a?){500}a{500}$"])
def test_patterns_take_linear_time(pattern: str) -> None:
    """A backtracking engine would not end in practice for these."""
    index = LabelIndex()
    held: dict[int, Known] = {n: ("cpu", {"x": "a" * (200 + n) + "!"}) for n in range(20)}
    fill(index, list(held), list(held.values()))
    assert index.select([Matcher("x", "=~", pattern)]).tolist() == []
    assert index.select([Matcher("x", "!~", pattern)]).tolist() == sorted(held)


def block(version: int, *texts: str, kind: Kind = Kind.UNKNOWN, source: str = "s") -> SeriesBlock:
    """Return an announcement."""
    return SeriesBlock(source, 0, version, tuple(SeriesInfo(t, ValueType.DOUBLE, kind) for t in texts))


def test_the_greatest_announced_version_wins() -> None:
    """The order of arrival does not matter; series of older versions stay known."""
    shard = Shard(capacity=1_000)
    assert shard.announce(block(2, 'a{x="1"}', "b{}", kind=Kind.COUNTER))
    assert not shard.announce(block(1, 'a{x="1"}', kind=Kind.GAUGE))
    assert not shard.announce(block(2, "c{}"))
    assert shard.announce(block(3, "b{}", kind=Kind.COUNTER))
    assert [(s.name, s.kind) for s in shard.find(())] == [("a", Kind.COUNTER), ("b", Kind.COUNTER)]
    assert shard.label_values("x") == ["1"]
    assert (shard.label_values(None), shard.names()) == (["x"], ["a", "b"])


def test_series_are_found_in_canonical_order_up_to_a_limit() -> None:
    """Series are sorted by name, then label pairs."""
    shard = Shard(capacity=1_000)
    shard.announce(block(1, 'b{x="1"}', 'a{y="0"}', 'a{x="2"}', 'a{x="10"}'))
    found = [canonical(s.name, s.labels) for s in shard.find((), limit=3)]
    assert found == ['a{x="10"}', 'a{x="2"}', 'a{y="0"}']
    shard.announce(block(1, 'a{x="2"}', 'b{x="1"}', source="t"))  # twins
    assert [canonical(s.name, s.labels) for s in shard.find(())] == [*found, 'b{x="1"}']


@pytest.mark.parametrize(("source", "slots"), [("t116", 1), ("t", 2)], ids=["one virtual shard", "two"])
def test_a_fingerprint_with_two_texts_is_hidden_and_counted(
    monkeypatch: pytest.MonkeyPatch, source: str, slots: int
) -> None:
    """Neither is shown, both are counted, the others are found."""
    monkeypatch.setattr("varstore.store.series_catalogue.fingerprint", len)
    shard = Shard(capacity=1_000)
    shard.announce(block(1, "aa{}", "long{}"))
    shard.announce(block(1, "bb{}", source=source))
    shard.announce(block(2, "aa{}"))
    assert shard.names() == ["long"]
    assert [s.name for s in shard.find((Matcher(NAME, "!=", "x"),))] == ["long"]
    assert (shard.status()["clashes"], shard.status()["series"]) == (slots, 1)


def test_a_bad_text_spoils_only_itself() -> None:
    """The text is counted as bad; the other series of the block are known."""
    shard = Shard(capacity=1_000)
    shard.announce(block(1, "good{}", "not canonical", 'bad{b="1",a="2"}'))
    assert shard.names() == ["good"]
    assert shard.status()["bad_announcements"] == 2
