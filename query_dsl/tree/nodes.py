"""The tree of a query: immutable, without behaviour. Builder and parser make it, printer and evaluator read it.

Times are milliseconds. `span` is where the node stood in the text it was parsed from; it takes no part in equality.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from query_dsl.tree.selector import Selector
from query_dsl.tree.timing import Instant

Span = tuple[int, int]
"""(position of the first character, number of characters)."""

Labels = tuple[str, ...]
Given = tuple[tuple[str, Any], ...]
"""Arguments of a function that differ from their defaults: see query_dsl/functions/registry.py."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """Anything that stands in a query."""

    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Own:
    """A Python function of whoever asks. Text cannot name one."""

    name: str
    call: Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Scalar(Node):
    """A number or a text: its own type, never a series."""

    value: int | float | bool | str


@dataclass(frozen=True, slots=True)
class Fetch(Node):
    """Series that fit the selector, on the grid of the query; `resolution` "raw" reads the history."""

    selector: Selector
    resolution: str | None = None


@dataclass(frozen=True, slots=True)
class Samples(Node):
    """The raw samples of the series that fit (history engine only)."""

    selector: Selector


@dataclass(frozen=True, slots=True)
class Absent(Node):
    """One BOOLEAN series: true where nothing that fits has a sample; one for each of the label sets `expected`, if
    there are any."""

    selector: Selector
    expected: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Range(Node):
    """The grid of the query reaches this far back."""

    child: Node
    range_ms: int


@dataclass(frozen=True, slots=True)
class Between(Node):
    """The grid of the query covers (start, end]."""

    child: Node
    start: Instant
    end: Instant


@dataclass(frozen=True, slots=True)
class At(Node):
    """The grid of the query is the one bucket that ends at (or last before) the instant."""

    child: Node
    instant: Instant


@dataclass(frozen=True, slots=True)
class Offset(Node):
    """The child as it was `offset_ms` before."""

    child: Node
    offset_ms: int


@dataclass(frozen=True, slots=True)
class Rules:
    """How missing values are treated. `min_count` None = 1 (0 for count)."""

    nulls: str = "skip"
    min_count: int | None = None


@dataclass(frozen=True, slots=True)
class Window(Node):
    """A window function over (t - before, t + after] of each series; `before_ms` None = one step."""

    child: Node
    function: str | Own
    before_ms: int | None = None
    after_ms: int = 0
    rules: Rules = Rules()
    max_gap_ms: int | None = None
    args: Given = ()


@dataclass(frozen=True, slots=True)
class Bucketize(Node):
    """A window function once per bucket of a coarser grid."""

    child: Node
    function: str | Own
    step_ms: int
    rules: Rules = Rules()
    max_gap_ms: int | None = None
    args: Given = ()


@dataclass(frozen=True, slots=True)
class Point(Node):
    """A function of each value alone, with constant arguments."""

    child: Node
    function: str
    args: Given = ()


@dataclass(frozen=True, slots=True)
class Reduce(Node):
    """One series per class: equal `by` labels, or equal labels `without` those named; the other one is None."""

    child: Node
    function: str | Own
    by: Labels | None
    without: Labels | None
    rules: Rules = Rules()
    args: Given = ()


@dataclass(frozen=True, slots=True)
class Match:
    """How two operands are paired: by all labels, by those of `on`, or by all but those of `ignoring`."""

    on: Labels | None = None
    ignoring: Labels | None = None
    group_left: Labels | None = None
    group_right: Labels | None = None
    unmatched: str = "error"
    fill: int | float | None = None


@dataclass(frozen=True, slots=True)
class Binary(Node):
    """An operator between two operands."""

    op: str
    left: Node
    right: Node
    match: Match = Match()


@dataclass(frozen=True, slots=True)
class Apply(Node):
    """An own function of the values of series that are paired by label; at least one operand."""

    function: Own
    operands: tuple[Node, ...]
    match: Match = Match()
    args: Given = ()


@dataclass(frozen=True, slots=True)
class Step(Node):
    """A filter, filler or transform of whole series; `others` are its further operands."""

    child: Node
    family: str
    function: str
    args: Given = ()
    others: tuple[Node, ...] = ()


@dataclass(frozen=True, slots=True)
class ToScalar(Node):
    """The one series of the child as a plain value that changes with time."""

    child: Node


@dataclass(frozen=True, slots=True)
class Unary(Node):
    """`neg` or `invert`."""

    op: str
    child: Node


@dataclass(frozen=True, slots=True)
class Named(Node):
    """The child under another name."""

    child: Node
    name: str


def children(node: Node) -> tuple[Node, ...]:
    """The operands of a node, left to right."""
    if isinstance(node, Binary):
        return (node.left, node.right)
    if isinstance(node, Apply):
        return node.operands
    if isinstance(node, Step):
        return (node.child, *node.others)
    child = getattr(node, "child", None)
    return (child,) if child is not None else ()


def walk(node: Node) -> Iterator[Node]:
    """Every node, parents before children; without recursion, so that a long sum is no matter."""
    waiting = [node]
    while waiting:
        current = waiting.pop()
        yield current
        waiting.extend(reversed(children(current)))


def same(left: object, right: object) -> bool:
    """Whether two trees are the same, to the type of each number (1 is not 1.0, nan is nan); without recursion."""
    pairs = [(left, right)]
    while pairs:
        a, b = pairs.pop()
        if type(a) is not type(b):
            return False
        if dataclasses.is_dataclass(a):
            names = [f.name for f in dataclasses.fields(a) if f.name != "span"]
            pairs.extend((getattr(a, name), getattr(b, name)) for name in names)
        elif isinstance(a, tuple) and isinstance(b, tuple):
            if len(a) != len(b):
                return False
            pairs.extend(zip(a, b, strict=True))
        elif repr(a) != repr(b):
            return False
    return True


def on_samples(node: Node) -> bool:
    """Whether the node gives raw samples at times of their own, and not series on a grid."""
    while True:
        match node:
            case Samples():
                return True
            case Window() | Point() | Range() | Between() | At() | Offset() | Named() | Step():
                node = node.child
            case _:
                return False


def negate(node: Node) -> Node:
    """Minus `node`; a number is negated at once, so that `-1` is one literal."""
    if isinstance(node, Scalar) and not isinstance(node.value, bool | str):
        return Scalar(-node.value, span=node.span)
    return Unary("neg", node)
