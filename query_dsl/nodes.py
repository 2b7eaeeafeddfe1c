"""The tree of a query: immutable, without behaviour. Builder and parser make it, printer and evaluator read it.

Times are milliseconds. `span` is where the node stood in the text it was parsed from; it takes no part in equality.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, field

from query_dsl.selector import Selector
from query_dsl.timing import Instant

Span = tuple[int, int]
"""(position of the first character, number of characters)."""

Labels = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """Anything that stands in a query."""

    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Scalar(Node):
    """A number or a text: its own type, never a series."""

    value: int | float | bool | str


@dataclass(frozen=True, slots=True)
class Fetch(Node):
    """Series that fit the selector, on the grid of the query."""

    selector: Selector


@dataclass(frozen=True, slots=True)
class Samples(Node):
    """The raw samples of the series that fit (history engine only)."""

    selector: Selector


@dataclass(frozen=True, slots=True)
class Absent(Node):
    """One BOOLEAN series: true where nothing that fits has a sample."""

    selector: Selector


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
    function: str
    before_ms: int | None = None
    after_ms: int = 0
    rules: Rules = Rules()
    max_gap_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Bucketize(Node):
    """A window function once per bucket of a coarser grid."""

    child: Node
    function: str
    step_ms: int
    rules: Rules = Rules()
    max_gap_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Point(Node):
    """A function of each value alone, with constant arguments."""

    child: Node
    function: str
    args: tuple[int | float, ...] = ()


@dataclass(frozen=True, slots=True)
class Reduce(Node):
    """One series per class: equal `by` labels, or equal labels `without` those named; the other one is None."""

    child: Node
    function: str
    by: Labels | None
    without: Labels | None
    rules: Rules = Rules()


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


def negate(node: Node) -> Node:
    """Minus `node`; a number is negated at once, so that `-1` is one literal."""
    if isinstance(node, Scalar) and not isinstance(node.value, bool | str):
        return Scalar(-node.value, span=node.span)
    return Unary("neg", node)
