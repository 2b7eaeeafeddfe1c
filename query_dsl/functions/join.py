"""Hash join of the series of two operands by equivalence class; one-to-many only if the query allows it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from typing import NamedTuple

import numpy as np

from artimon.model.select import NAME
from query_dsl.functions.equivalence_classes import ClassLabels, class_codes, differing, keys_at
from query_dsl.results.label_table import Codes, LabelTable, first_rows, keys_of
from query_dsl.results.result_cells import Rows, SeriesKey
from query_dsl.tree.nodes import LabelMatching, Labels
from query_dsl.tree.query_errors import QueryError, similar_hint
from query_dsl.tree.selector import series_text

NONE = -1
"""Placeholder for a missing partner row; `fill` or a default supplies its value."""
SHOWN_KEYS = 3
"""Number of keys without a partner that a note names."""


@dataclass(frozen=True, slots=True)
class RowPairs:
    """Pairs of rows: `left[i]` and `right[i]` give the series `keys[i]`."""

    left: Rows
    right: Rows
    keys: list[SeriesKey]
    notes: tuple[str, ...] = ()
    """Notes that name the series without a partner that were left out."""


def series_name(key: SeriesKey) -> str:
    """Format a series as `name{label="value"}`."""
    return series_text(key.name, dict(key.labels))


def classifier(by: Labels | None, without: Labels | None) -> Callable[[SeriesKey], ClassLabels]:
    """Return a function from key to class: its `by` labels, or all labels except `without` and the name."""
    if by is not None:
        wanted = sorted(set(by))
        return lambda key: tuple((label, value) for label in wanted if (value := key.get(label)))
    left_out = set(without or ())
    return lambda key: tuple(pair for pair in key.labels if pair[0] not in left_out)


def check_labels(labels: Labels, keys: Sequence[SeriesKey], said: str, table: LabelTable | None = None) -> None:
    """Raise QueryError with similar names if a label occurs in no series. `said` is the query's argument, for the
    message; `table` the label table of the keys, if already built."""
    if not keys or not labels:
        return
    table = table or LabelTable(keys)
    for label in labels:
        if not table.has_label(label):
            carried = table.names
            hint = similar_hint(label, carried) or f"; there are: {', '.join(sorted(carried)) or 'no labels'}"
            raise QueryError(f"no selected series has the label {label!r:.40} of {said:.50}{hint:.1000}")


class ClassifiedOperands(NamedTuple):
    """Two operands by class: `table` has both series, left first; `left` and `right` are class numbers < `classes`."""

    table: LabelTable
    left: Codes
    right: Codes
    classes: int


def classify_operands(
    left: Sequence[SeriesKey], right: Sequence[SeriesKey], match: LabelMatching
) -> ClassifiedOperands:
    """Classify both sides by the labels that `match` compares; QueryError for an `on` label that no series has."""
    both = (*left, *right)
    table = LabelTable(both)
    if match.on is not None:
        check_labels(match.on, both, f"on={list(match.on)!r}", table)
    codes, count = class_codes(table, match.on, match.ignoring)
    return ClassifiedOperands(table, codes[: len(left)], codes[len(left) :], count)


def pair_rows(
    left: Sequence[SeriesKey],
    right: Sequence[SeriesKey],
    match: LabelMatching,
    op: str,
    stands: tuple[bool, bool] = (False, False),
) -> RowPairs:
    """Pair the rows of both sides. Series without a partner are left out, or an error with unmatched="error"; several
    partners are an error unless the query allows them. `stands`: True if a default stands for what the left, or the
    right, lacks."""
    found = classify_operands(left, right, match)
    if match.group_left is None:
        _refuse_duplicates(found.left, left, found.classes, "left", match, op)
    if match.group_right is None:
        _refuse_duplicates(found.right, right, found.classes, "right", match, op)
    rows, partners = _partners(found)
    keys = _result_keys(found.table, rows, len(left) + partners, match)
    pairs = RowPairs(rows, partners, keys)
    lonely_left = np.flatnonzero(first_rows(found.right, found.classes)[found.left] == NONE)
    lonely_right = np.flatnonzero(first_rows(found.left, found.classes)[found.right] == NONE)
    if not len(lonely_left) and not len(lonely_right):
        return pairs
    alone, notes = [lonely_left, lonely_right], []
    no_pair = not len(rows) and bool(left) and bool(right)
    for side, stand in enumerate(reversed(stands)):
        if stand or match.fill is not None or not len(alone[side]):
            continue
        if match.unmatched == "error":
            raise _unmatched_error(lonely_left, lonely_right, (left, right), match, op)
        notes.append(_unmatched_note(op, found.table, side * len(left) + alone[side], match, side, no_pair))
        alone[side] = alone[side][:0]
    return replace(_with_unmatched(pairs, alone[0], alone[1], found.table, len(left), match), notes=tuple(notes))


def _refuse_duplicates(
    codes: Codes, keys: Sequence[SeriesKey], count: int, side: str, match: LabelMatching, op: str
) -> None:
    """Raise QueryError if two series of a side are in one class."""
    first = first_rows(codes, count)[codes]
    again = np.flatnonzero(first != np.arange(len(codes)))
    if len(again):
        row = int(again[0])
        labels = classifier(match.on, match.ignoring)(keys[row])
        raise duplicate_error(keys[int(first[row])], keys[row], labels, side, match, op)


def duplicate_error(
    first: SeriesKey,
    second: SeriesKey,
    labels: ClassLabels,
    side: str,
    match: LabelMatching,
    op: str,
    many: bool = True,
) -> QueryError:
    """Return the error for two series in one class; `many`: True if group_left and group_right are a remedy."""
    differ = differing(first, second)
    if match.on is not None:
        remedy = f"add {_join_words(differ)} to on=, or " if differ else ""
    elif match.ignoring is not None:
        remedy = f"take {_join_words(differ)} out of ignoring=, or "
    else:
        remedy = f"reduce by a label that distinguishes them, or add on= with {_join_words(differ)}, or "
    other = "left" if side == "left" else "right"
    allow = f", or allow many to one with group_{other}=[]" if many else ""
    return QueryError(
        f"{op}: on the {side} two series have the same key {series_text('', dict(labels))}: "
        f"{series_name(first)} and {series_name(second)}; {remedy}reduce that side{allow}"
    )


def _join_words(labels: Sequence[str]) -> str:
    return " or ".join(repr(label) for label in labels)


def _partners(found: ClassifiedOperands) -> tuple[Rows, Rows]:
    """Return all pairs (left row, right row) of equal class, in the order of the left."""
    by_class = np.argsort(found.right, kind="stable")
    counts = np.bincount(found.right, minlength=found.classes)
    starts = np.cumsum(counts) - counts
    each = counts[found.left]
    rows = np.repeat(np.arange(len(found.left)), each)
    within = np.arange(len(rows)) - np.repeat(np.cumsum(each) - each, each)
    return rows, by_class[starts[found.left[rows]] + within]


def _result_keys(table: LabelTable, left: Rows, right: Rows, match: LabelMatching) -> list[SeriesKey]:
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


def _widened(many: SeriesKey, one: SeriesKey | None, extra: Labels) -> SeriesKey:
    """Copy the `extra` labels from `one` to the labels of `many`; a label that `one` lacks becomes absent."""
    merged = dict(many.labels) | {label: one.get(label) if one is not None else "" for label in extra}
    name = merged.pop(NAME, "")
    return SeriesKey(name, tuple(sorted((label, value) for label, value in merged.items() if value)))


def _with_unmatched(
    pairs: RowPairs, left: Rows, right: Rows, table: LabelTable, offset: int, match: LabelMatching
) -> RowPairs:
    """Append the series without a partner; their other row is NONE."""
    keys = _unmatched_keys(table, left, match, match.group_left, match.group_right)
    keys += _unmatched_keys(table, offset + right, match, match.group_right, match.group_left)
    none_left, none_right = np.full(len(right), NONE), np.full(len(left), NONE)
    return RowPairs(
        np.concatenate([pairs.left, left, none_left]),
        np.concatenate([pairs.right, none_right, right]),
        pairs.keys + keys,
    )


def _unmatched_keys(
    table: LabelTable, rows: Rows, match: LabelMatching, many: Labels | None, one: Labels | None
) -> list[SeriesKey]:
    """Return the result keys of series without a partner. `many`: the labels they would take from a partner; `one`: the
    labels a partner would take from them."""
    if many is not None:
        return [_widened(table.keys[row], None, many) for row in rows.tolist()]
    keys = keys_at(table, match.on, match.ignoring, rows)
    if not one:
        return keys
    return [_widened(key, table.keys[row], one) for key, row in zip(keys, rows.tolist(), strict=True)]


def _unmatched_note(op: str, table: LabelTable, rows: Rows, match: LabelMatching, side: int, no_pair: bool) -> str:
    """Name the first keys of series that are left out, `rows` of the table; `side`: 0 for the left, 1 for the right."""
    keys = dict.fromkeys(keys_at(table, match.on, match.ignoring, rows))
    shown = ", ".join(f"{series_name(key):.100}" for key in list(keys)[:SHOWN_KEYS])
    more = f" and {len(keys) - SHOWN_KEYS} more" if len(keys) > SHOWN_KEYS else ""
    remedy = "; no series pair: match fewer labels with on=[..] or ignoring=[..]" if no_pair else ""
    mine, other = ("left", "right") if side == 0 else ("right", "left")
    return f"{op}: left out {len(rows)} series on the {mine} without a partner on the {other}: {shown}{more}{remedy}"


def _unmatched_error(
    left: Rows, right: Rows, sides: tuple[Sequence[SeriesKey], Sequence[SeriesKey]], match: LabelMatching, op: str
) -> QueryError:
    side, other = ("left", "right") if len(left) else ("right", "left")
    key = sides[0][left[0]] if len(left) else sides[1][right[0]]
    labels = classifier(match.on, match.ignoring)(key)
    return QueryError(
        f"{op}: {len(left) + len(right)} series have no partner; the first is {series_name(key)} on the {side}: "
        f"nothing on the {other} has the key {series_text('', dict(labels))}; match fewer labels with on=[..] or "
        'ignoring=[..], or leave unmatched="error" out, or say fill='
    )


_KEEP = 'keep the name with .map("mul", 2) and the like'


def check_distinct(keys: Sequence[SeriesKey], before: Sequence[SeriesKey], op: str, instead: str = _KEEP) -> None:
    """Raise QueryError if two series have become equal; it names both originals and the remedy `instead`."""
    if len(set(keys)) == len(keys):
        return
    seen: dict[SeriesKey, int] = {}
    for row, key in enumerate(keys):
        other = seen.setdefault(key, row)
        if other != row:
            raise QueryError(
                f"{op} makes {series_name(before[other])} and {series_name(before[row])} the same series "
                f"{series_name(key)}: reduce them first, or {instead}"
            )
