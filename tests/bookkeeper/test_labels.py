"""Canonical text: one text for one set of labels, and the exact way back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.variables.canonical import (
    LABELS,
    NAME_BYTES,
    VALUE_BYTES,
    LabelError,
    canonical,
    parse_canonical,
    validate_labels,
    validate_name,
)

names = st.from_regex(r"[a-zA-Z_][a-zA-Z0-9_.:/\-]{0,40}", fullmatch=True)
label_names = st.from_regex(r"[a-zA-Z_][a-zA-Z0-9_]{0,20}", fullmatch=True).filter(lambda n: not n.startswith("__"))
values = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
labels = st.dictionaries(label_names, values, max_size=8)


@given(names, labels)
def test_parsing_is_the_inverse(name: str, given_labels: dict[str, str]) -> None:
    """Any permitted text survives a round trip, without its empty values."""
    text = canonical(name, given_labels)
    assert parse_canonical(text) == (name, {k: v for k, v in given_labels.items() if v})


@given(names, labels, st.randoms())
def test_order_of_labels_does_not_matter(name: str, given_labels: dict[str, str], random: object) -> None:
    """Two mappings that are equal have one text."""
    items = list(given_labels.items())
    random.shuffle(items)  # type: ignore[attr-defined]
    assert canonical(name, dict(items)) == canonical(name, given_labels)


@given(names, labels, labels)
def test_different_labels_have_different_text(name: str, one: dict[str, str], other: dict[str, str]) -> None:
    """The text is the identity, so it must tell apart whatever differs."""
    same = {k: v for k, v in one.items() if v} == {k: v for k, v in other.items() if v}
    assert (canonical(name, one) == canonical(name, other)) == same


@given(st.text(max_size=80) | st.from_regex(r'[a-z]{1,4}\{[a-z="\\,n ]*\}', fullmatch=True))
def test_only_canonical_text_is_parsed(text: str) -> None:
    """Any text either is what `canonical` writes, or is refused with a LabelError."""
    try:
        name, found = parse_canonical(text)
    except LabelError:
        return
    assert canonical(name, found) == text


@pytest.mark.parametrize(
    ("name", "given_labels", "text"),
    [
        ("a", {}, "a{}"),
        ("http.requests", {"route": "/", "code": "200", "zone": ""}, 'http.requests{code="200",route="/"}'),
        ("a", {"b": "1", "B": "2", "_": "3"}, 'a{B="2",_="3",b="1"}'),
        ("a", {"k": 'x"y\\z\nw'}, 'a{k="x\\"y\\\\z\\nw"}'),
        ("a", {"k": "ü,}\t{"}, 'a{k="ü,}\t{"}'),
    ],
)
def test_known_texts(name: str, given_labels: dict[str, str], text: str) -> None:
    """Golden texts: fingerprints on disk depend on every byte."""
    assert canonical(name, given_labels) == text


@pytest.mark.parametrize("name", ["", "1a", "a b", "a{", 'a"', "a}", "ä", "a\n", "a" * (NAME_BYTES + 1), 7, None, b"a"])
def test_bad_names(name: object) -> None:
    """A bad name is refused in words."""
    with pytest.raises(LabelError, match="variable name"):
        validate_name(name)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "bad",
    [
        {"": "x"},
        {"a-b": "x"},
        {"__a": "x"},
        {"a": 1},
        {"a": None},
        {1: "a"},
        {"a": "\ud800"},
        {"a": "x" * (VALUE_BYTES + 1)},
        {"a": "ü" * (VALUE_BYTES // 2 + 1)},
        {f"l{i}": "x" for i in range(LABELS + 1)},
        ["a"],
        None,
    ],
)
def test_bad_labels(bad: object) -> None:
    """Bad labels are refused in words."""
    with pytest.raises(LabelError, match="label"):
        validate_labels(bad)  # type: ignore[arg-type]


def test_limits_are_inclusive() -> None:
    """Sizes exactly at a limit are permitted; empty values do not count."""
    most = {f"l{i}": "ü" * (VALUE_BYTES // 2) for i in range(LABELS)}
    validate_labels({**most, "empty": ""})
    validate_name("a" * NAME_BYTES)
    assert len(parse_canonical(canonical("a" * NAME_BYTES, most))[1]) == LABELS
