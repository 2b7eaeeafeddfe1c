"""Completion of unfinished queries: variable names, labels, label values, functions.

Scans brackets and quotes of the text before the cursor. It neither parses nor runs the text, which is incomplete, so it
works in notebook cells with arbitrary other Python, too.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from artimon.model.select import NAME, Matcher, Store
from query_dsl.functions.tables import names_of
from query_dsl.language.methods import FUNCTIONS, METHODS
from query_dsl.tree.query_errors import QueryError
from query_dsl.tree.selector import parse_selector

MAX_TEXT, MAX_WORD = 20_000, 100
LIMIT = 1_000
MAX_LOOKUPS = 1_000
"""Limit of the series read to find the labels of a selector; bounds the cost of one completion."""
_SELECTING = frozenset({"fetch", "samples", "absent", "filter"})
_SESSION_CALLS = re.compile(r"(\w+)\s*(?:\.\s*(?:find|history)\s*\(|\[)\s*$")
_LABELS = frozenset({"by", "without", "on", "ignoring", "group_left", "group_right", "labels"})
_FUNCTIONS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "map": ("window", "point", "map"),
        "bucketize": ("window",),
        "reduce": ("reduce",),
        "apply": ("operator",),
        "filter": ("filter",),
        "fill": ("fill",),
        "transform": ("transform",),
    }
)
_WORD = re.compile(r"\w*$")
_PLACE = re.compile(r"(\w+)\s*=\s*\[[^\[\]]*$")
_LABEL_PART = re.compile(r"(?:^|,)\s*(\w*)$")
_VALUE_PART = re.compile(r"(?:^|,)\s*(\w+)\s*(=~|!~|!=|=)\s*(['\"])((?:[^'\"\\]|\\.)*)$")


@dataclass(frozen=True, slots=True)
class Completions:
    """Sorted candidates for text[start:end]; `kind` is name, label, value, function or method."""

    start: int
    end: int
    words: tuple[str, ...] = ()
    kind: str = ""


@dataclass(frozen=True, slots=True)
class _OpenDelimiter:
    """An unclosed bracket or quote: its position, and the word before it (`fetch`, `map`)."""

    mark: str
    at: int
    before: str


def complete(
    text: str, position: int | None, store: Store, *, code: bool = False, sessions: Collection[str] = ()
) -> Completions:
    """Return the completions at `position` (None: the end). Passes on exceptions of the store.

    `code`: the text is Python, and only text in quotes is completed. `sessions`: names of variables whose `find(`,
    `history(` and `[` take selectors."""
    end = len(text) if position is None else max(0, min(position, len(text)))
    written = text[max(0, end - MAX_TEXT) : end]
    shift = end - len(written)
    opened = _open_delimiters(written)
    inner = opened[-1] if opened else None
    if inner is not None and inner.mark in "'\"":
        found = _in_quotes(written, opened, store, sessions)
    else:
        found = _outside(written, opened) if not code else Completions(len(written), len(written))
    return Completions(found.start + shift, found.end + shift, found.words, found.kind)


def _open_delimiters(text: str) -> list[_OpenDelimiter]:
    """Return the brackets and quotes that are open at the end of the text, outermost first."""
    found: list[_OpenDelimiter] = []
    i = 0
    while i < len(text):
        char = text[i]
        if found and found[-1].mark[0] in "'\"":
            quote = found[-1].mark
            if char == "\\":
                i += 2
                continue
            if text.startswith(quote, i):
                found.pop()
                i += len(quote)
                continue
            if char == "\n" and len(quote) == 1:
                found.pop()  # an unclosed quote ends with its line
        elif char in "'\"":
            mark = char * 3 if text.startswith(char * 3, i) else char
            found.append(_OpenDelimiter(mark, i, ""))
            i += len(mark)
            continue
        elif char in "([{":
            found.append(_OpenDelimiter(char, i, _word_before(text, i)))
        elif char in ")]}":
            if found:
                found.pop()
        elif char == "#":
            line_end = text.find("\n", i)
            i = len(text) if line_end < 0 else line_end
            continue
        i += 1
    return [one for one in found if len(one.mark) == 1 or one is found[-1]]


def _word_before(text: str, at: int) -> str:
    word = _WORD.search(text[max(0, at - MAX_WORD) : at].rstrip())
    return word.group() if word else ""


def _in_quotes(text: str, opened: list[_OpenDelimiter], store: Store, sessions: Collection[str]) -> Completions:
    quote = opened[-1]
    start = quote.at + len(quote.mark)
    inside, outer = text[start:], opened[-2] if len(opened) > 1 else None
    nothing = Completions(len(text), len(text))
    if outer is None or len(quote.mark) > 1:
        return nothing
    label = _PLACE.search(text[: quote.at]) if outer.mark == "[" else None
    if label is not None and label.group(1) in _LABELS:
        return _prefix_matches(start, inside, _labels_of(text[: quote.at], store), "label")
    call = outer.before if outer.mark == "(" else ""
    first = not text[outer.at + 1 : quote.at].strip()
    if call in _FUNCTIONS and first and not (call == "filter" and "{" in inside):
        return _prefix_matches(start, inside, names_of(*_FUNCTIONS[call]), "function")
    asked = _SESSION_CALLS.search(text[: quote.at])
    if (call in _SELECTING and first) or (asked is not None and asked.group(1) in sessions):
        return _in_selector(start, inside, quote.mark, store)
    return nothing


def _outside(text: str, opened: list[_OpenDelimiter]) -> Completions:
    """Complete functions, methods after a dot, and function names after apply(, map( and the like."""
    word = _WORD.search(text)
    begun = word.group() if word else ""
    start = len(text) - len(begun)
    before = text[:start].rstrip()
    if before.endswith(".") and not before[:-1].endswith(tuple("0123456789")):
        return _prefix_matches(start, begun, METHODS, "method")
    inner = opened[-1] if opened else None
    if inner is not None and inner.mark == "(" and inner.before in _FUNCTIONS and before.endswith("("):
        return _prefix_matches(start, begun, names_of(*_FUNCTIONS[inner.before]), "function")
    if before and before[-1] not in "(,+-*/%&|~<>=":
        return Completions(len(text), len(text))
    return _prefix_matches(start, begun, FUNCTIONS, "function")


def _in_selector(start: int, inside: str, quote: str, store: Store) -> Completions:
    """Complete the last part of `name{label="value"` inside quotes."""
    name, brace, rest = inside.partition("{")
    if not brace:
        return _prefix_matches(start, name, store.names(), "name")
    end = start + len(inside)
    value = _VALUE_PART.search(rest)
    if value is not None:
        label, begun = value.group(1), value.group(4)
        known = _values(store, label, _matchers(name, rest[: value.start()]))
        return _prefix_matches(
            end - len(begun), begun, (_escaped(_escaped(v, value.group(3)), quote) for v in known), "value"
        )
    part = _LABEL_PART.search(rest)
    if part is None or _quoted(rest):
        return Completions(end, end)
    begun = part.group(1)
    return _prefix_matches(end - len(begun), begun, _labels(store, _matchers(name, rest[: part.start()])), "label")


def _quoted(rest: str) -> bool:
    """Return True if the text ends inside the quotes of a value."""
    opened = _open_delimiters(rest)
    return bool(opened) and opened[-1].mark in "'\""


def _matchers(name: str, rest: str) -> tuple[Matcher, ...]:
    """Parse the matchers written so far; if that fails, only the name; if that fails, none."""
    try:
        return parse_selector(f"{name}{{{rest}}}" if rest else name).matchers
    except QueryError:
        try:
            return parse_selector(name).matchers
        except QueryError:
            return ()


def _labels(store: Store, matchers: tuple[Matcher, ...]) -> Iterable[str]:
    """Return the labels of the matching series, or all labels if none matches."""
    found = store.find(matchers, MAX_LOOKUPS) if matchers else []
    return {label for series in found for label in series.labels} or store.label_values(None)


def _values(store: Store, label: str, matchers: tuple[Matcher, ...]) -> Iterable[str]:
    """Return the label's values in matching series; all its values if no series matches or too many do."""
    if label == NAME:
        return store.names()
    found = store.find(matchers, MAX_LOOKUPS) if matchers else []
    if found and len(found) < MAX_LOOKUPS:
        return {series.labels[label] for series in found if label in series.labels}
    return store.label_values(label)


def _labels_of(text: str, store: Store) -> Iterable[str]:
    """Return the labels of the last 4 selectors in the text, or all labels if they match nothing."""
    selectors = re.findall(r"(?:fetch|samples)\(\s*(?:'([^'\n]*)'|\"([^\"\n]*)\")", text)[-4:]
    found: set[str] = set()
    for single, double in selectors:
        try:
            matchers = parse_selector(single or double).matchers
        except QueryError:
            continue
        found |= {label for series in store.find(matchers, MAX_LOOKUPS) for label in series.labels}
    return found or store.label_values(None)


def _escaped(value: str, quote: str) -> str:
    return value.replace("\\", "\\\\").replace(quote, "\\" + quote).replace("\n", "\\n")


def _prefix_matches(start: int, begun: str, words: Iterable[str], kind: str) -> Completions:
    fit = sorted({word for word in words if word.startswith(begun)})[:LIMIT]
    return Completions(start, start + len(begun), tuple(fit), kind)
