"""Outline of a query: the parts of a tree that the lint checks, equal for both languages.

`span` is the place of a part in the text, None if it is unknown.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from artimon.model.select import Matcher
from query_dsl.tree.nodes import LabelMatching, Labels, Span


@dataclass(frozen=True, slots=True)
class Selection:
    """Series that match. `as_written`: the matchers of the text, if names are looked up in another spelling."""

    matchers: tuple[Matcher, ...]
    span: Span | None = None
    as_written: tuple[Matcher, ...] = ()


@dataclass(frozen=True, slots=True)
class Windowed:
    """Window function. `width_ms` None: as long as the step. `samples`: number that a window needs for a result."""

    child: Part
    function: str
    width_ms: int | None
    is_for_counters: bool
    samples: int = 1
    span: Span | None = None


@dataclass(frozen=True, slots=True)
class Grouped:
    """Reduction by labels, or without them. `keeps_members`: it returns series of the child, as topk."""

    child: Part
    function: str
    by: Labels | None
    without: Labels | None
    keeps_members: bool = False
    span: Span | None = None


@dataclass(frozen=True, slots=True)
class Joined:
    """Operator between two operands with series. `is_filter`: the right only tells which series of the left stay."""

    op: str
    left: Part
    right: Part
    match: LabelMatching
    is_filter: bool = False
    keeps_all: bool = False
    """True if every pair gives a series, as of an arithmetic operator."""
    span: Span | None = None


@dataclass(frozen=True, slots=True)
class Other:
    """Any other node. `keeps_labels`: its series are those of the child. `reads_raw`: it is meant for the values of
    counters themselves, such as a difference from an earlier time, or does not use values."""

    children: tuple[Part, ...] = ()
    keeps_labels: bool = False
    reads_raw: bool = False


Part = Selection | Windowed | Grouped | Joined | Other


def children(part: Part) -> tuple[Part, ...]:
    """Return the parts directly below."""
    match part:
        case Selection():
            return ()
        case Joined(left=left, right=right):
            return left, right
        case Other(children=below):
            return below
        case Windowed(child=child) | Grouped(child=child):
            return (child,)


def walk(part: Part) -> Iterator[Part]:
    """Yield every part, parents before children, in the order of the text."""
    waiting = [part]
    while waiting:
        current = waiting.pop()
        yield current
        waiting.extend(reversed(children(current)))


def selections(part: Part) -> Iterator[Selection]:
    return (one for one in walk(part) if isinstance(one, Selection))


def combined(left: Part, right: Part) -> Part:
    """Return an operator that does not pair series: if one side has series, with their labels."""
    sides = tuple(side for side in (left, right) if any(True for _ in selections(side)))
    return Other(sides, keeps_labels=len(sides) == 1)


def below_labels(part: Part) -> Part:
    """Return the part below nodes that keep the labels of their series."""
    while isinstance(part, Other) and part.keeps_labels and len(part.children) == 1:
        part = part.children[0]
    return part
