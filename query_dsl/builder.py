"""The fluent wrapper: `fetch('x').rate("5m").sum(by=["dc"])`. Immutable; every method returns a new expression.

Checks names of functions, durations and arguments at once, so that the mistake shows where it was made. The parser
calls the very same methods (those in METHODS and FUNCTIONS), so text and Python mean the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn

from query_dsl import nodes
from query_dsl.collecting import Collector, collector_of, shared
from query_dsl.errors import QueryError
from query_dsl.mappers import MAPPERS
from query_dsl.names import function_name, look_up
from query_dsl.nodes import Match, Node, Rules
from query_dsl.operators import OPERATORS
from query_dsl.points import POINTS
from query_dsl.printer import print_node
from query_dsl.reducers import REDUCERS
from query_dsl.selector import parse_selector
from query_dsl.timing import parse_duration, parse_instant

if TYPE_CHECKING:
    import pandas as pd

    from query_dsl.matrix import Matrix

MAX_DEPTH = 100
NULLS = ("skip", "propagate", "error")

Operand = "Expr | int | float | bool | str"


class Expr:
    """A query that has not run. Operators + - * / compare & | ~ pair series by their labels."""

    __slots__ = ("collector", "depth", "node", "text")
    __array_ufunc__ = None  # numpy arrays leave the operators to us
    __hash__ = object.__hash__

    def __init__(self, node: Node, depth: int = 1, text: str | None = None, collector: Collector | None = None) -> None:
        if depth > MAX_DEPTH:
            raise QueryError(f"the query is nested more than {MAX_DEPTH} deep")
        self.node, self.depth, self.text, self.collector = node, depth, text, collector

    def _wrap(self, node: Node) -> Expr:
        return Expr(node, self.depth + 1, collector=self.collector)

    # --- answers ---

    def bound(self, collector: Collector) -> Expr:
        """The same query, to be answered by `collector`; what is built from it is too."""
        return Expr(self.node, self.depth, self.text, shared(self.collector, collector))

    def collect(self, at: object = None) -> Matrix:
        """Run the query as of the instant `at` (None: now): in its session, or in the one opened last."""
        return collector_of(self.collector).query(self, at)

    def to_pandas(self, at: object = None) -> pd.DataFrame:
        """`collect` and `Matrix.to_pandas` in one."""
        return self.collect(at).to_pandas()

    def plot(self, ax: Any = None, at: object = None, **options: Any) -> Any:
        """`collect` and `Matrix.plot` in one."""
        return self.collect(at).plot(ax, **options)

    # --- time ---

    def range(self, duration: str) -> Expr:
        """The grid of the query reaches back this far: `.range("10m")`."""
        return self._wrap(nodes.Range(self.node, parse_duration(duration, "range")))

    def between(self, start: object, end: object) -> Expr:
        """The grid covers (start, end]: ISO 8601, "now-1h", datetime or epoch milliseconds."""
        return self._wrap(nodes.Between(self.node, parse_instant(start, "start"), parse_instant(end, "end")))

    def at(self, instant: object) -> Expr:
        """One bucket: the newest that ends at or before the instant."""
        return self._wrap(nodes.At(self.node, parse_instant(instant, "instant")))

    def offset(self, duration: str) -> Expr:
        """As it was this long before: `.offset("1d")`."""
        return self._wrap(nodes.Offset(self.node, parse_duration(duration, "offset")))

    # --- windows and points ---

    def map(
        self,
        function: object,
        *args: object,
        after: str | None = None,
        nulls: str = "skip",
        min_count: int | None = None,
        max_gap: str | None = None,
    ) -> Expr:
        """A function of each series: over a window, `.map("mean", "5m")`, or of each value, `.map("clamp", 0, 100)`."""
        name = function_name(function)
        if name in POINTS:
            if (after, nulls, min_count, max_gap) != (None, "skip", None, None):
                raise QueryError(f"{name} works on single values: it takes no after, nulls, min_count or max_gap")
            return self._point(name, args)
        mapper = look_up(MAPPERS, name, "function", POINTS)
        if len(args) > 1:
            raise QueryError(f'{mapper.name} takes one window, as in .map("{mapper.name}", "5m")')
        if max_gap is not None and not MAPPERS[name].predecessor:
            raise QueryError(f"{name} does not look before its window: it takes no max_gap")
        return self._wrap(
            nodes.Window(
                self.node,
                name,
                parse_duration(args[0], "window") if args and args[0] is not None else None,
                parse_duration(after, "after") if after is not None else 0,
                _rules(nulls, min_count),
                parse_duration(max_gap, "max_gap") if max_gap is not None else None,
            )
        )

    def _point(self, name: str, args: tuple[object, ...]) -> Expr:
        point = POINTS[name]
        if len(args) != len(point.arguments):
            wanted = ", ".join(point.arguments) or "no argument"
            raise QueryError(f"{name} takes {wanted}; {len(args)} given")
        return self._wrap(nodes.Point(self.node, name, tuple(_number(a, name) for a in args)))

    def rate(self, window: str | None = None, *, max_gap: str | None = None) -> Expr:
        """Increase a second over the window (one step if none is given)."""
        return self.map("rate", window, max_gap=max_gap)

    def increase(self, window: str | None = None, *, max_gap: str | None = None) -> Expr:
        """Growth of a counter over the window (one step if none is given)."""
        return self.map("increase", window, max_gap=max_gap)

    def delta(self, window: str | None = None, *, max_gap: str | None = None) -> Expr:
        """Difference to the value before the window (one step if none is given)."""
        return self.map("delta", window, max_gap=max_gap)

    def bucketize(self, function: object, step: str, *, nulls: str = "skip", min_count: int | None = None) -> Expr:
        """One value per bucket of `step`: sets the step of the query's grid."""
        mapper = look_up(MAPPERS, function_name(function), "function")
        return self._wrap(
            nodes.Bucketize(self.node, mapper.name, parse_duration(step, "step"), _rules(nulls, min_count))
        )

    def abs(self) -> Expr:
        """Absolute value."""
        return self._point("abs", ())

    def ceil(self) -> Expr:
        """Next integer upwards."""
        return self._point("ceil", ())

    def floor(self) -> Expr:
        """Next integer downwards."""
        return self._point("floor", ())

    def round(self) -> Expr:
        """Nearest integer."""
        return self._point("round", ())

    def sqrt(self) -> Expr:
        """Square root."""
        return self._point("sqrt", ())

    def exp(self) -> Expr:
        """e to the power of the value."""
        return self._point("exp", ())

    def log(self) -> Expr:
        """Natural logarithm."""
        return self._point("log", ())

    def clamp(self, low: float, high: float) -> Expr:
        """Not less than low, not more than high."""
        return self._point("clamp", (low, high))

    # --- classes ---

    def reduce(
        self,
        function: object,
        *args: object,
        by: Sequence[str] | None = None,
        without: Sequence[str] | None = None,
        nulls: str = "skip",
        min_count: int | None = None,
    ) -> Expr:
        """One series per class of equal labels: `.reduce("mean", by=["dc"])`; by=[] is one class of all."""
        reducer = look_up(REDUCERS, function_name(function), "reducer")
        if args:
            example = f'.map("{reducer.name}", "5m")'
            raise QueryError(f'{reducer.name} reduces classes: say by=["label"] (over time it is {example})')
        if (by is None) == (without is None):
            raise QueryError(
                f"{reducer.name} needs exactly one of by=[..] and without=[..]; by=[] makes one class of all series"
            )
        classes = _labels(by, "by"), _labels(without, "without")
        return self._wrap(nodes.Reduce(self.node, reducer.name, *classes, _rules(nulls, min_count)))

    def mean(self, *args: object, by: Sequence[str] | None = None, without: Sequence[str] | None = None,
             nulls: str = "skip", min_count: int | None = None) -> Expr:  # fmt: skip
        """Mean of each class."""
        return self.reduce("mean", *args, by=by, without=without, nulls=nulls, min_count=min_count)

    def sum(self, *args: object, by: Sequence[str] | None = None, without: Sequence[str] | None = None,
            nulls: str = "skip", min_count: int | None = None) -> Expr:  # fmt: skip
        """Sum of each class."""
        return self.reduce("sum", *args, by=by, without=without, nulls=nulls, min_count=min_count)

    def min(self, *args: object, by: Sequence[str] | None = None, without: Sequence[str] | None = None,
            nulls: str = "skip", min_count: int | None = None) -> Expr:  # fmt: skip
        """Smallest value of each class."""
        return self.reduce("min", *args, by=by, without=without, nulls=nulls, min_count=min_count)

    def max(self, *args: object, by: Sequence[str] | None = None, without: Sequence[str] | None = None,
            nulls: str = "skip", min_count: int | None = None) -> Expr:  # fmt: skip
        """Greatest value of each class."""
        return self.reduce("max", *args, by=by, without=without, nulls=nulls, min_count=min_count)

    def count(self, *args: object, by: Sequence[str] | None = None, without: Sequence[str] | None = None,
              nulls: str = "skip", min_count: int | None = None) -> Expr:  # fmt: skip
        """How many series of each class have a value."""
        return self.reduce("count", *args, by=by, without=without, nulls=nulls, min_count=min_count)

    def named(self, name: str) -> Expr:
        """The same series under this name."""
        if not isinstance(name, str) or not name:
            raise QueryError(f"a name is a text that is not empty, not {name!r}")
        return self._wrap(nodes.Named(self.node, name))

    # --- operators ---

    def __add__(self, other: object) -> Expr:
        return apply("add", self, other)

    def __radd__(self, other: object) -> Expr:
        return apply("add", other, self)

    def __sub__(self, other: object) -> Expr:
        return apply("sub", self, other)

    def __rsub__(self, other: object) -> Expr:
        return apply("sub", other, self)

    def __mul__(self, other: object) -> Expr:
        return apply("mul", self, other)

    def __rmul__(self, other: object) -> Expr:
        return apply("mul", other, self)

    def __truediv__(self, other: object) -> Expr:
        return apply("div", self, other)

    def __rtruediv__(self, other: object) -> Expr:
        return apply("div", other, self)

    def __eq__(self, other: object) -> Expr:  # type: ignore[override]
        return apply("eq", self, other)

    def __ne__(self, other: object) -> Expr:  # type: ignore[override]
        return apply("ne", self, other)

    def __lt__(self, other: object) -> Expr:
        return apply("lt", self, other)

    def __le__(self, other: object) -> Expr:
        return apply("le", self, other)

    def __gt__(self, other: object) -> Expr:
        return apply("gt", self, other)

    def __ge__(self, other: object) -> Expr:
        return apply("ge", self, other)

    def __and__(self, other: object) -> Expr:
        return apply("and", self, other)

    def __rand__(self, other: object) -> Expr:
        return apply("and", other, self)

    def __or__(self, other: object) -> Expr:
        return apply("or", self, other)

    def __ror__(self, other: object) -> Expr:
        return apply("or", other, self)

    def __invert__(self) -> Expr:
        return self._wrap(nodes.Unary("invert", self.node))

    def __neg__(self) -> Expr:
        return self._wrap(nodes.negate(self.node))

    def __bool__(self) -> NoReturn:
        raise QueryError(
            "a query is neither true nor false before it runs: combine with & | ~, write (a > 1) & (a < 5) for a "
            "chain of comparisons, and use .equals() to ask whether two queries are the same"
        )

    def __iter__(self) -> NoReturn:
        raise QueryError("a query has no elements before it runs: run it first, with .collect() in a session")

    def equals(self, other: Expr) -> bool:
        """Whether both are the same tree."""
        return nodes.same(self.node, other.node)

    def __str__(self) -> str:
        return print_node(self.node)

    def __repr__(self) -> str:
        return f"<query {self}>"


def fetch(selector: str) -> Expr:
    """Series that fit the selector: `fetch('memcached.hits{dc="jb"}')`."""
    return Expr(nodes.Fetch(parse_selector(selector)))


def samples(selector: str) -> Expr:
    """Raw samples of the series that fit: for the history engine."""
    return Expr(nodes.Samples(parse_selector(selector)))


def absent(selector: str) -> Expr:
    """One BOOLEAN series: true in buckets where nothing that fits has a sample."""
    return Expr(nodes.Absent(parse_selector(selector)))


def apply(
    op: object,
    left: object,
    right: object,
    *,
    on: Sequence[str] | None = None,
    ignoring: Sequence[str] | None = None,
    group_left: Sequence[str] | None = None,
    group_right: Sequence[str] | None = None,
    unmatched: str = "error",
    fill: float | None = None,
) -> Expr:
    """An operator between series with equal labels: all of them, those of `on`, or all but those of `ignoring`."""
    operator = look_up(OPERATORS, function_name(op), "operator")
    first, second = _operand(left, operator.name), _operand(right, operator.name)
    if on is not None and ignoring is not None:
        raise QueryError("say on=[..] or ignoring=[..], not both")
    if group_left is not None and group_right is not None:
        raise QueryError("say group_left=[..] or group_right=[..], not both")
    if unmatched not in ("error", "drop"):
        raise QueryError(f'unmatched={unmatched!r}: say "error" or "drop"')
    match = Match(
        on=_labels(on, "on"),
        ignoring=_labels(ignoring, "ignoring"),
        group_left=_labels(group_left, "group_left"),
        group_right=_labels(group_right, "group_right"),
        unmatched=unmatched,
        fill=_number(fill, "fill") if fill is not None else None,
    )
    # a sum of many terms is one level: left operands of operators are evaluated in a loop
    left_depth = first.depth if isinstance(first.node, nodes.Binary) else first.depth + 1
    collector = shared(first.collector, second.collector)
    node = nodes.Binary(operator.name, first.node, second.node, match)
    return Expr(node, max(left_depth, second.depth + 1), collector=collector)


def _operand(value: object, op: str) -> Expr:
    if isinstance(value, Expr):
        return value
    item = getattr(value, "item", None)
    if callable(item) and getattr(value, "shape", None) == ():
        value = item()
    if isinstance(value, bool | int | float | str):
        return Expr(nodes.Scalar(value))
    raise QueryError(f"{op} takes a query, a number or a text, not {value!r:.80}")


def _labels(value: object, argument: str) -> tuple[str, ...] | None:
    if value is None:
        return None
    if isinstance(value, str) or not isinstance(value, Sequence) or not all(isinstance(v, str) for v in value):
        raise QueryError(f'{argument} takes a list of label names, as in {argument}=["host"], not {value!r:.80}')
    if len(set(value)) != len(value):
        raise QueryError(f"{argument}={list(value)} names a label twice")
    return tuple(value)


def _number(value: object, what: str) -> int | float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise QueryError(f"{what} takes a number, not {value!r:.80}")
    return value


def _rules(nulls: str, min_count: int | None) -> Rules:
    if nulls not in NULLS:
        raise QueryError(f"nulls={nulls!r}: say one of {', '.join(map(repr, NULLS))}")
    if min_count is not None and (isinstance(min_count, bool) or not isinstance(min_count, int) or min_count < 0):
        raise QueryError(f"min_count={min_count!r}: say a number that is not negative")
    return Rules(nulls, min_count)


_METHOD_NAMES = [
    "range",
    "between",
    "at",
    "offset",
    "map",
    "rate",
    "increase",
    "delta",
    "bucketize",
    "abs",
    "ceil",
    "floor",
    "round",
    "sqrt",
    "exp",
    "log",
    "clamp",
    "reduce",
    "mean",
    "sum",
    "min",
    "max",
    "count",
    "named",
]
METHODS: Mapping[str, Callable[..., Expr]] = MappingProxyType({name: getattr(Expr, name) for name in _METHOD_NAMES})
"""What text may call on an expression; the parser knows nothing else."""
FUNCTIONS: Mapping[str, Callable[..., Expr]] = MappingProxyType(
    {"fetch": fetch, "samples": samples, "absent": absent, "apply": apply}
)
