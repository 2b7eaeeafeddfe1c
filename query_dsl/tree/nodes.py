"""Nodes of the query tree: immutable, without behaviour. Builder and parser make them, printer and evaluator read them.

Times are milliseconds. `span` is the place in the parsed text; equality ignores it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from query_dsl.tree.calendar_units import CalendarUnit
from query_dsl.tree.selector import Selector
from query_dsl.tree.times import Instant

Span = tuple[int, int]
"""(position of the first character, number of characters)."""

Labels = tuple[str, ...]
BoundArguments = tuple[tuple[str, Any], ...]
"""Arguments of a function that differ from their defaults, in the order of its entry: see functions/registry.py."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """Base class of all nodes."""

    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class UserFunction:
    """A user-defined Python function. Query text cannot refer to it."""

    name: str
    call: Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Scalar(Node):
    """A literal: a number, truth value or text. Never a series."""

    value: int | float | bool | str


@dataclass(frozen=True, slots=True)
class Fetch(Node):
    """Series that match the selector, on the grid of the query; `resolution` "raw" reads the history. `default`: value
    of the operand above, for keys and points that it lacks."""

    selector: Selector
    resolution: str | None = None
    default: int | float | bool | None = None


@dataclass(frozen=True, slots=True)
class Samples(Node):
    """Raw samples of the series that match the selector (history engine only)."""

    selector: Selector


@dataclass(frozen=True, slots=True)
class Absent(Node):
    """One BOOLEAN series: true where no matching series has a sample. With `expected`, one series per label set."""

    selector: Selector
    expected: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Clock(Node):
    """Seconds since 1970 (DOUBLE): of the evaluation for "now", of the end of each bucket for "time". No series."""

    reading: Literal["now", "time"]


@dataclass(frozen=True, slots=True)
class Range(Node):
    """Sets the length of the query's time range."""

    child: Node
    range_ms: int


@dataclass(frozen=True, slots=True)
class Between(Node):
    """Sets the query's time range to (start, end]."""

    child: Node
    start: Instant
    end: Instant


@dataclass(frozen=True, slots=True)
class At(Node):
    """Sets the grid to one bucket: the newest that ends at or before the instant."""

    child: Node
    instant: Instant


@dataclass(frozen=True, slots=True)
class Offset(Node):
    """The child evaluated `offset_ms` earlier."""

    child: Node
    offset_ms: int


@dataclass(frozen=True, slots=True)
class NullRules:
    """Treatment of missing values. `min_count` None = 1 (0 for count)."""

    nulls: str = "skip"
    min_count: int | None = None


@dataclass(frozen=True, slots=True)
class Window(Node):
    """A window function over (t - before, t + after] of each series; `before_ms` None = one step. With `since` over
    (start of the calendar unit, t]; the end of a unit belongs to it."""

    child: Node
    function: str | UserFunction
    before_ms: int | None = None
    after_ms: int = 0
    rules: NullRules = NullRules()
    max_gap_ms: int | None = None
    args: BoundArguments = ()
    since: CalendarUnit | None = None


@dataclass(frozen=True, slots=True)
class Bucketize(Node):
    """A window function applied once per bucket of a coarser grid. With `unit`, buckets are calendar units and
    `step_ms` is the greatest length of one."""

    child: Node
    function: str | UserFunction
    step_ms: int
    rules: NullRules = NullRules()
    max_gap_ms: int | None = None
    args: BoundArguments = ()
    unit: CalendarUnit | None = None


@dataclass(frozen=True, slots=True)
class Point(Node):
    """A function applied to each value separately, with constant arguments."""

    child: Node
    function: str
    args: BoundArguments = ()


@dataclass(frozen=True, slots=True)
class Reduce(Node):
    """One series per class of equal `by` labels, or of equal labels except `without`; exactly one of both is None."""

    child: Node
    function: str | UserFunction
    by: Labels | None
    without: Labels | None
    rules: NullRules = NullRules()
    args: BoundArguments = ()


@dataclass(frozen=True, slots=True)
class LabelMatching:
    """Label matching of two operands: all labels, the `on` labels, or all except the `ignoring` labels."""

    on: Labels | None = None
    ignoring: Labels | None = None
    group_left: Labels | None = None
    group_right: Labels | None = None
    unmatched: str = "drop"
    fill: int | float | None = None


@dataclass(frozen=True, slots=True)
class Binary(Node):
    """An operator between two operands."""

    op: str
    left: Node
    right: Node
    match: LabelMatching = LabelMatching()


@dataclass(frozen=True, slots=True)
class Apply(Node):
    """A user-defined function of series that are matched by label; at least one operand."""

    function: UserFunction
    operands: tuple[Node, ...]
    match: LabelMatching = LabelMatching()
    args: BoundArguments = ()


@dataclass(frozen=True, slots=True)
class Transform(Node):
    """A filter, filler or transform of whole series; `others` are additional operands."""

    child: Node
    family: str
    function: str
    args: BoundArguments = ()
    operands: tuple[Node, ...] = ()


@dataclass(frozen=True, slots=True)
class ToScalar(Node):
    """The only series of the child as a scalar that varies over time."""

    child: Node


@dataclass(frozen=True, slots=True)
class Unary(Node):
    """The operator `neg` or `invert`."""

    op: str
    child: Node


@dataclass(frozen=True, slots=True)
class Named(Node):
    """The child under another name."""

    child: Node
    name: str


def children(node: Node) -> tuple[Node, ...]:
    """Return the operands of a node, left to right."""
    if isinstance(node, Binary):
        return (node.left, node.right)
    if isinstance(node, Apply):
        return node.operands
    if isinstance(node, Transform):
        return (node.child, *node.operands)
    child = getattr(node, "child", None)
    return (child,) if child is not None else ()


def walk(node: Node) -> Iterator[Node]:
    """Yield every node, parents before children; iterative, so that a long sum cannot overflow the stack."""
    waiting = [node]
    while waiting:
        current = waiting.pop()
        yield current
        waiting.extend(reversed(children(current)))


def map_leaves(node: Node, change: Callable[[Node], Node]) -> Node:
    """Return the tree with `change` applied to each node without operands."""
    below = children(node)
    if not below:
        return change(node)
    made = tuple(map_leaves(one, change) for one in below)
    if isinstance(node, Binary):
        return replace(node, left=made[0], right=made[1])
    if isinstance(node, Apply):
        return replace(node, operands=made)
    if isinstance(node, Transform):
        return replace(node, child=made[0], operands=made[1:])
    return replace(node, child=made[0])  # type: ignore[call-arg]


def selects_series(node: Node) -> bool:
    """True if a leaf of the tree has a selector; else the tree is numbers, texts and times."""
    return any(isinstance(leaf, Fetch | Samples | Absent) for leaf in walk(node))


def equal_trees(left: object, right: object) -> bool:
    """Return True if two trees are equal, including types of numbers (1 is not 1.0; nan equals nan). Iterative."""
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


def below_times(node: Node) -> tuple[Node, int]:
    """Return the node below times and offsets, and the sum of the offsets in milliseconds."""
    offset_ms = 0
    while isinstance(node, Offset | Range | Between | At):
        offset_ms += node.offset_ms if isinstance(node, Offset) else 0
        node = node.child
    return node, offset_ms


def gives_samples(node: Node) -> bool:
    """Return True if the node gives raw samples rather than series on a grid."""
    while True:
        match node:
            case Samples():
                return True
            case Window() | Point() | Range() | Between() | At() | Offset() | Named() | Transform():
                node = node.child
            case _:
                return False


def negate(node: Node) -> Node:
    """Return minus `node`; a number is negated directly, so that `-1` is one literal."""
    if isinstance(node, Scalar) and not isinstance(node.value, bool | str):
        return Scalar(-node.value, span=node.span)
    return Unary("neg", node)
