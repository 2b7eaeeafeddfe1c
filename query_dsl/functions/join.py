"""Hash join of the series of two operands by equivalence class; one-to-many only if the query allows it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import NamedTuple

import numpy as np

from artimon.model.select import NAME
from query_dsl.functions.grouping import Class, class_codes, differing, keys_at
from query_dsl.results.cells import Key, Rows
from query_dsl.results.label_codes import Codes, LabelTable, first_rows, keys_of
from query_dsl.tree.errors import QueryError, near
from query_dsl.tree.nodes import Labels, Match
from query_dsl.tree.selector import series_text

NONE = -1
"""Placeholder for a missing partner row; `fill` supplies its value."""


@dataclass(frozen=True, slots=True)
class Pairs:
    """Pairs of rows: `left[i]` and `right[i]` give the series `keys[i]`."""

    left: Rows
    right: Rows
    keys: list[Key]
    dropped: int = 0
    """Number of series dropped because of unmatched="drop"."""


def text(key: Key) -> str:
    """Format a series as `name{label="value"}`."""
    return series_text(key.name, dict(key.labels))


def classifier(by: Labels | None, without: Labels | None) -> Callable[[Key], Class]:
    """Return a function from key to class: its `by` labels, or all labels except `without` and the name."""
    if by is not None:
        wanted = sorted(set(by))
        return lambda key: tuple((label, value) for label in wanted if (value := key.get(label)))
    left_out = set(without or ())
    return lambda key: tuple(pair for pair in key.labels if pair[0] not in left_out)


def check_labels(labels: Labels, keys: Sequence[Key], said: str, table: LabelTable | None = None) -> None:
    """Raise QueryError with similar names if a label occurs in no series. `said` is the query's argument, for the
    message; `table` the label table of the keys, if already built."""
    if not keys or not labels:
        return
    table = table or LabelTable(keys)
    for label in labels:
        if not table.carries(label):
            carried = table.names
            hint = near(label, carried) or f"; there are: {', '.join(sorted(carried)) or 'no labels'}"
            raise QueryError(f"no selected series has the label {label!r} of {said:.300}{hint:.1000}")


class Matched(NamedTuple):
    """Two operands by class: `table` has both series, left first; `left` and `right` are class numbers < `classes`."""

    table: LabelTable
    left: Codes
    right: Codes
    classes: int


def matched(left: Sequence[Key], right: Sequence[Key], match: Match) -> Matched:
    """Classify both sides by the labels that `match` compares; QueryError for an `on` label that no series has."""
    both = (*left, *right)
    table = LabelTable(both)
    if match.on is not None:
        check_labels(match.on, both, f"on={list(match.on)!r}", table)
    codes, count = class_codes(table, match.on, match.ignoring)
    return Matched(table, codes[: len(left)], codes[len(left) :], count)


def pair(left: Sequence[Key], right: Sequence[Key], match: Match, op: str) -> Pairs:
    """Pair the rows of both sides; QueryError on no or several partners, unless the query allows it."""
    found = matched(left, right, match)
    if match.group_left is None:
        _refuse_clash(found.left, left, found.classes, "left", match, op)
    if match.group_right is None:
        _refuse_clash(found.right, right, found.classes, "right", match, op)
    rows, partners = _partners(found)
    keys = _result_keys(found.table, rows, len(left) + partners, match)
    pairs = Pairs(rows, partners, keys)
    lonely_left = np.flatnonzero(first_rows(found.right, found.classes)[found.left] == NONE)
    lonely_right = np.flatnonzero(first_rows(found.left, found.classes)[found.right] == NONE)
    if not len(lonely_left) and not len(lonely_right):
        return pairs
    if match.fill is not None:
        return _with_lonely(pairs, lonely_left, lonely_right, found.table, len(left), match)
    if match.unmatched == "drop":
        return Pairs(rows, partners, keys, len(lonely_left) + len(lonely_right))
    raise _lonely(lonely_left, lonely_right, (left, right), match, op)


def _refuse_clash(codes: Codes, keys: Sequence[Key], count: int, side: str, match: Match, op: str) -> None:
    """Raise QueryError if two series of a side are in one class."""
    first = first_rows(codes, count)[codes]
    again = np.flatnonzero(first != np.arange(len(codes)))
    if len(again):
        row = int(again[0])
        labels = classifier(match.on, match.ignoring)(keys[row])
        raise clash(keys[int(first[row])], keys[row], labels, side, match, op)


def clash(first: Key, second: Key, labels: Class, side: str, match: Match, op: str, many: bool = True) -> QueryError:
    """Return the error for two series in one class; `many`: True if group_left and group_right are a remedy."""
    differ = differing(first, second)
    if match.on is not None:
        remedy = f"add {_or(differ)} to on=, or " if differ else ""
    elif match.ignoring is not None:
        remedy = f"take {_or(differ)} out of ignoring=, or "
    else:
        remedy = f"reduce by a label that distinguishes them, or add on= with {_or(differ)}, or "
    other = "left" if side == "left" else "right"
    allow = f", or allow many to one with group_{other}=[]" if many else ""
    return QueryError(
        f"{op}: on the {side} two series have the same key {series_text('', dict(labels))}: "
        f"{text(first)} and {text(second)}; {remedy}reduce that side{allow}"
    )


def _or(labels: Sequence[str]) -> str:
    return " or ".join(repr(label) for label in labels)


def _partners(found: Matched) -> tuple[Rows, Rows]:
    """Return all pairs (left row, right row) of equal class, in the order of the left."""
    by_class = np.argsort(found.right, kind="stable")
    counts = np.bincount(found.right, minlength=found.classes)
    starts = np.cumsum(counts) - counts
    each = counts[found.left]
    rows = np.repeat(np.arange(len(found.left)), each)
    within = np.arange(len(rows)) - np.repeat(np.cumsum(each) - each, each)
    return rows, by_class[starts[found.left[rows]] + within]


def _result_keys(table: LabelTable, left: Rows, right: Rows, match: Match) -> list[Key]:
    """Return the labels of the class, or with group_left or group_right those of the many side plus the listed ones.
    `left` and `right` are rows of the table."""
    if match.group_left is None and match.group_right is None:
        return keys_at(table, match.on, match.ignoring, left)
    many, one, extra = (left, right, match.group_left)
    if match.group_left is None:
        many, one, extra = (right, left, match.group_right)
    keys = table.keys
    if not extra:
        return keys_of(repeat(""), [keys[row].labels for row in many.tolist()])
    return [_widened(keys[i], keys[j], extra) for i, j in zip(many.tolist(), one.tolist(), strict=True)]


def _widened(many: Key, one: Key | None, extra: Labels) -> Key:
    """Copy the `extra` labels from `one` to the labels of `many`; a label that `one` lacks becomes absent."""
    merged = dict(many.labels) | {label: one.get(label) if one is not None else "" for label in extra}
    name = merged.pop(NAME, "")
    return Key(name, tuple(sorted((label, value) for label, value in merged.items() if value)))


def _with_lonely(pairs: Pairs, left: Rows, right: Rows, table: LabelTable, offset: int, match: Match) -> Pairs:
    """Append the series without a partner; their other row is NONE."""
    keys = _lonely_keys(table, left, match, match.group_left, match.group_right)
    keys += _lonely_keys(table, offset + right, match, match.group_right, match.group_left)
    none_left, none_right = np.full(len(right), NONE), np.full(len(left), NONE)
    return Pairs(
        np.concatenate([pairs.left, left, none_left]),
        np.concatenate([pairs.right, none_right, right]),
        pairs.keys + keys,
    )


def _lonely_keys(table: LabelTable, rows: Rows, match: Match, many: Labels | None, one: Labels | None) -> list[Key]:
    """Return the result keys of series without a partner. `many`: the labels they would take from a partner; `one`: the
    labels a partner would take from them."""
    if many is not None:
        return [_widened(table.keys[row], None, many) for row in rows.tolist()]
    keys = keys_at(table, match.on, match.ignoring, rows)
    if not one:
        return keys
    return [_widened(key, table.keys[row], one) for key, row in zip(keys, rows.tolist(), strict=True)]


def _lonely(left: Rows, right: Rows, sides: tuple[Sequence[Key], Sequence[Key]], match: Match, op: str) -> QueryError:
    side, other = ("left", "right") if len(left) else ("right", "left")
    key = sides[0][left[0]] if len(left) else sides[1][right[0]]
    labels = classifier(match.on, match.ignoring)(key)
    return QueryError(
        f"{op}: {len(left) + len(right)} series have no partner; the first is {text(key)} on the {side}: nothing on "
        f"the {other} has the key {series_text('', dict(labels))}; match fewer labels with on=[..] or ignoring=[..], "
        'or say unmatched="drop" or fill='
    )


_KEEP = 'keep the name with .map("mul", 2) and the like'


def check_distinct(keys: Sequence[Key], before: Sequence[Key], op: str, instead: str = _KEEP) -> None:
    """Raise QueryError if two series have become equal; it names both originals and the remedy `instead`."""
    if len(set(keys)) == len(keys):
        return
    seen: dict[Key, int] = {}
    for row, key in enumerate(keys):
        other = seen.setdefault(key, row)
        if other != row:
            raise QueryError(
                f"{op} makes {text(before[other])} and {text(before[row])} the same series {text(key)}: "
                f"reduce them first, or {instead}"
            )
