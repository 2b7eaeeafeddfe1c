"""Pairs the series of two operands by equivalence class: by hash, and never silently one to many."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from artimon.model.select import NAME
from query_dsl.cells import Key
from query_dsl.errors import QueryError, near
from query_dsl.nodes import Labels, Match
from query_dsl.selector import series_text

Class = tuple[tuple[str, str], ...]
NONE = -1
"""In place of a row: this side has no partner, `fill` stands for it."""


@dataclass(frozen=True, slots=True)
class Pairs:
    """Row `left[i]` goes with row `right[i]` and makes the series `keys[i]`."""

    left: list[int]
    right: list[int]
    keys: list[Key]
    dropped: int = 0
    """Series left out because unmatched="drop" asked for it."""


def text(key: Key) -> str:
    """A series as people write it."""
    return series_text(key.name, dict(key.labels))


def classifier(by: Labels | None, without: Labels | None) -> Callable[[Key], Class]:
    """Key -> its class: the `by` labels that it has, or all its labels but those of `without` (never the name)."""
    if by is not None:
        wanted = sorted(set(by))
        return lambda key: tuple((label, value) for label in wanted if (value := key.get(label)))
    left_out = set(without or ())
    return lambda key: tuple(pair for pair in key.labels if pair[0] not in left_out)


def class_key(labels: Class) -> Key:
    """The series that a class becomes: its labels; the name only if it was listed."""
    name = next((value for label, value in labels if label == NAME), "")
    return Key(name, tuple(pair for pair in labels if pair[0] != NAME))


def check_labels(labels: Labels, keys: Sequence[Key], argument: str) -> None:
    """QueryError with near names if no series carries one of the labels."""
    if not keys:
        return
    carried = {label for key in keys for label, _ in key.labels}
    if any(key.name for key in keys):
        carried.add(NAME)
    for label in labels:
        if label not in carried:
            hint = near(label, carried) or f"; there are: {', '.join(sorted(carried)) or 'no labels'}"
            raise QueryError(f"no selected series has the label {label!r} of {argument}={list(labels)}{hint}")


def pair(left: Sequence[Key], right: Sequence[Key], match: Match, op: str) -> Pairs:
    """Which rows go together; QueryError on none or several partners, unless the query allows it."""
    if match.on is not None:
        check_labels(match.on, [*left, *right], "on")
    classify = classifier(match.on, match.ignoring if match.on is None else None)
    many_left, many_right = match.group_left is not None, match.group_right is not None
    ours = _index(left, classify, "left", many_left, match, op)
    theirs = _index(right, classify, "right", many_right, match, op)
    pairs = Pairs([], [], [])
    missing: list[tuple[str, Class, int]] = []
    for labels, rows in ours.items():
        partners = theirs.get(labels)
        if partners is None:
            missing += [("left", labels, row) for row in rows]
            continue
        for row in rows:
            for partner in partners:
                pairs.left.append(row)
                pairs.right.append(partner)
                pairs.keys.append(_result_key(labels, left[row], right[partner], match))
    missing += [("right", labels, row) for labels, rows in theirs.items() if labels not in ours for row in rows]
    return _unmatched(pairs, missing, (left, right), match, op)


def _index(
    keys: Sequence[Key], classify: Callable[[Key], Class], side: str, many: bool, match: Match, op: str
) -> dict[Class, list[int]]:
    found: dict[Class, list[int]] = {}
    for row, key in enumerate(keys):
        rows = found.setdefault(classify(key), [])
        rows.append(row)
        if len(rows) > 1 and not many:
            raise _clash(keys[rows[0]], key, classify(key), side, match, op)
    return found


def _clash(first: Key, second: Key, labels: Class, side: str, match: Match, op: str) -> QueryError:
    differ = sorted(
        {label for label, _ in {*first.labels} ^ {*second.labels}} | ({NAME} if first.name != second.name else set())
    )
    if match.on is not None:
        remedy = f"add {_or(differ)} to on=, or " if differ else ""
    elif match.ignoring is not None:
        remedy = f"take {_or(differ)} out of ignoring=, or "
    else:
        remedy = f"reduce by a label that tells them apart from others, or add on= with {_or(differ)}, or "
    other = "left" if side == "left" else "right"
    return QueryError(
        f"{op}: on the {side} two series have the same key {series_text('', dict(labels))}: "
        f"{text(first)} and {text(second)}; {remedy}reduce that side, or allow many to one with group_{other}=[]"
    )


def _or(labels: Sequence[str]) -> str:
    return " or ".join(repr(label) for label in labels)


def _result_key(labels: Class, left: Key, right: Key, match: Match) -> Key:
    """The labels of the class; with group_left or group_right those of the many side plus the named ones."""
    if match.group_left is None and match.group_right is None:
        return class_key(labels)
    many, one, extra = (
        (left, right, match.group_left) if match.group_left is not None else (right, left, match.group_right)
    )
    merged = dict(many.labels) | {label: value for label in extra or () if (value := one.get(label))}
    return Key("", tuple(sorted(merged.items())))


def _unmatched(
    pairs: Pairs,
    missing: list[tuple[str, Class, int]],
    sides: tuple[Sequence[Key], Sequence[Key]],
    match: Match,
    op: str,
) -> Pairs:
    if not missing:
        return pairs
    if match.fill is not None:
        for side, labels, row in missing:
            pairs.left.append(row if side == "left" else NONE)
            pairs.right.append(row if side == "right" else NONE)
            key = sides[0][row] if side == "left" else sides[1][row]
            pairs.keys.append(_result_key(labels, key, key, match))
        return pairs
    if match.unmatched == "drop":
        return Pairs(pairs.left, pairs.right, pairs.keys, len(missing))
    side, labels, row = missing[0]
    key = sides[0][row] if side == "left" else sides[1][row]
    other = "right" if side == "left" else "left"
    raise QueryError(
        f"{op}: {len(missing)} series have no partner; the first is {text(key)} on the {side}: nothing on the {other} "
        f"has the key {series_text('', dict(labels))}; match fewer labels with on=[..] or ignoring=[..], "
        'or say unmatched="drop" or fill='
    )


def check_distinct(keys: Sequence[Key], before: Sequence[Key], op: str) -> None:
    """QueryError if two series became the same, naming what they were."""
    seen: dict[Key, int] = {}
    for row, key in enumerate(keys):
        other = seen.setdefault(key, row)
        if other != row:
            raise QueryError(
                f"{op} makes {text(before[other])} and {text(before[row])} the same series {text(key)}: "
                'reduce them first, or keep the name with .map("mul", 2) and its like'
            )
