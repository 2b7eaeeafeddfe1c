"""The fluent wrapper: `fetch('x').rate("5m").sum(by=["dc"])`. Immutable; every method returns a new expression.

Each call checks function names, durations and arguments immediately, so an error shows the faulty call. The parser
calls the same methods (those in METHODS and FUNCTIONS), so text and Python mean the same. Methods for one registered
function are generated from its entry: see query_dsl/language/methods.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from query_dsl.functions.registry import bind_arguments
from query_dsl.functions.tables import MAP_STEPS, MAPPERS, OPERATORS, POINTS, REDUCERS, STEPS, entry_of
from query_dsl.functions.transforms_labels import parse_template
from query_dsl.language.arguments import (
    parse_comparison,
    parse_labels,
    parse_matching,
    parse_null_rules,
    parse_number,
    udf_arguments,
)
from query_dsl.language.class_joins import match_classes
from query_dsl.language.expression_runner import ExpressionRunner, common_runner, runner_of
from query_dsl.language.printer import print_node
from query_dsl.results.matrix import Matrix
from query_dsl.tree import nodes
from query_dsl.tree.calendar_units import parse_unit
from query_dsl.tree.entry_table import function_name, look_up
from query_dsl.tree.literals import checked_literal, constant_value, to_python_scalar
from query_dsl.tree.nodes import Node, UserFunction
from query_dsl.tree.query_errors import QueryError, similar_hint
from query_dsl.tree.selector import parse_selector
from query_dsl.tree.syntax_hints import name_hint
from query_dsl.tree.times import parse_duration, parse_instant

if TYPE_CHECKING:
    import pandas as pd

MAX_DEPTH = 100
MAX_PARTS = 10_000
"""Maximum number of nodes in a tree; an expression that is used twice counts twice."""
RESOLUTIONS = ("raw",)
Method = Callable[["Expr", object], "Expr"]


def _operators(name: str) -> tuple[Method, Method]:
    """Return the methods of an operator whose left operand is the expression, and whose right operand is."""
    return lambda left, right: apply(name, left, right), lambda right, left: apply(name, left, right)


def _window_method(function: str, summary: str) -> Callable[..., Expr]:
    """Return the method of a window function whose input includes the last value before the window."""

    def method(
        self: Expr,
        window: str | None = None,
        *,
        max_gap: str | None = None,
        since: str | None = None,
        zone: str | None = None,
    ) -> Expr:
        return self.map(function, window, max_gap=max_gap, since=since, zone=zone)

    method.__name__, method.__qualname__ = function, f"Expr.{function}"
    method.__doc__ = f'{summary} (one step for "auto", or if none is given).'
    return method


class Expr:
    """A query that has not run. The operators (+ - * / % **, comparisons, & | ~) match series by their labels."""

    __slots__ = ("collector", "depth", "node", "parts", "text")
    __array_ufunc__ = None  # numpy arrays delegate operators to Expr
    __hash__ = object.__hash__

    def __getattr__(self, name: str) -> Callable[..., Expr]:
        """Raise AttributeError with a hint; Python calls this only for unknown attributes."""
        known = [method for method in dir(type(self)) if not method.startswith("_")]
        hint = "" if name.startswith("_") else name_hint(name, known)
        raise AttributeError(f"a query has no method {name!r}{hint}", name=name, obj=self)

    def __init__(
        self,
        node: Node,
        depth: int = 1,
        text: str | None = None,
        collector: ExpressionRunner[Any] | None = None,
        parts: int = 1,
    ) -> None:
        if depth > MAX_DEPTH:
            raise QueryError(f"the query is nested more than {MAX_DEPTH} deep")
        if parts > MAX_PARTS:
            raise QueryError(f"the query has more than {MAX_PARTS} parts")
        self.parts = parts
        self.node, self.depth, self.text, self.collector = node, depth, text, collector

    def _wrap(self, node: Node) -> Expr:
        return _above(node, [self])

    # --- answers ---

    def bound(self, collector: ExpressionRunner[Any]) -> Expr:
        """Return the same query bound to `collector`; expressions built from it are bound, too."""
        return Expr(self.node, self.depth, self.text, common_runner(self.collector, collector), self.parts)

    def collect(self, at: object = None, **options: Any) -> Matrix:
        """Run the query as of the instant `at` (None: now) in its session, or else in the one opened last. `options`
        are those of the session's `query`."""
        return runner_of(self.collector).query(self, at, **options)

    def explain(self, at: object = None, **options: Any) -> Any:
        """Return the query plan: grid, level, engine and the reason; see the session's `explain`."""
        return runner_of(self.collector).explain(self, at, **options)

    def cost(self, at: object = None, **options: Any) -> Any:
        """Return the series and buckets that the query would read, without running it; see the session's `cost`."""
        return runner_of(self.collector).cost(self, at, **options)

    def timing(self, at: object = None, **options: Any) -> Any:
        """Run the query and return its plan with the time and the size of each node; `.to_pandas()` makes a frame."""
        return runner_of(self.collector).explain(self, at, run=True, **options)

    def sample(self, count: int = 20, *, label: str = "host", seed: int = 0) -> Expr:
        """Return the query over at most `count` hosts, or values of another label, chosen at random: to try a query on
        some of many series. See the session's `sample`."""
        found: Expr = runner_of(self.collector).sample(self, count, label=label, seed=seed)
        return found

    def to_pandas(self, at: object = None) -> pd.DataFrame:
        """Run `collect` and `Matrix.to_pandas`."""
        return self.collect(at).to_pandas()

    def plot(self, ax: Any = None, at: object = None, **options: Any) -> Any:
        """Run `collect` and `Matrix.plot`."""
        return self.collect(at).plot(ax, **options)

    # --- time ---

    def range(self, duration: str) -> Expr:
        """Set the length of the time range: `.range("10m")`."""
        return self._wrap(nodes.Range(self.node, parse_duration(duration, "range")))

    def between(self, start: object, end: object) -> Expr:
        """Set the time range to (start, end]: ISO 8601, "now-1h", datetime or epoch milliseconds."""
        return self._wrap(nodes.Between(self.node, parse_instant(start, "start"), parse_instant(end, "end")))

    def at(self, instant: object) -> Expr:
        """Evaluate one bucket: the newest that ends at or before the instant."""
        return self._wrap(nodes.At(self.node, parse_instant(instant, "instant")))

    def offset(self, duration: str) -> Expr:
        """Evaluate the query this much earlier: `.offset("1d")`."""
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
        since: str | None = None,
        zone: str | None = None,
        **named: object,
    ) -> Expr:
        """Apply a function to each series: over a window, `.map("mean", "5m")`, or per value, `.map("clamp", 0, 100)`.
        Arguments of a window function follow its window: `.map("quantile", "5m", q=0.9)`. The window "auto" is one
        step of the grid; `since="1d"` is a window from midnight in `zone` on (1w, 1mo, 1y: of the week, month, year).
        """
        name = self._function(function, (MAPPERS, POINTS, MAP_STEPS))
        if isinstance(name, str) and (name in POINTS or name in MAP_STEPS):
            if (after, nulls, min_count, max_gap, since) != (None, "skip", None, None, None):
                raise QueryError(f"{name} takes no after, nulls, min_count, max_gap or since")
            named |= {} if zone is None else {"zone": zone}
            return self._point(name, args, named) if name in POINTS else self._step("map", name, args, named)
        if isinstance(name, str):
            mapper = look_up(MAPPERS, name, "function", (*POINTS, *MAP_STEPS))
            if max_gap is not None and not mapper.predecessor:
                raise QueryError(f"{name} does not look before its window: it takes no max_gap").with_culprit(max_gap)
            said = bind_arguments(mapper, args[1:], named)
        else:
            said = udf_arguments(name, args[1:], named)
        window = args[0] if args else None
        if since is None and zone is not None:
            raise QueryError('zone= needs since=, as in since="1d"').with_culprit(zone)
        if since is not None and (window is not None or after is not None):
            raise QueryError("a window is given by its length, or by since=, not by both").with_culprit(since)
        return self._wrap(
            nodes.Window(
                self.node,
                name,
                parse_duration(window, "window") if window not in (None, "auto") else None,
                parse_duration(after, "after") if after is not None else 0,
                parse_null_rules(nulls, min_count),
                parse_duration(max_gap, "max_gap") if max_gap is not None else None,
                said,
                parse_unit(since, zone or "UTC", "since") if since is not None else None,
            )
        )

    def _function(self, function: object, tables: Sequence[Any]) -> str | UserFunction:
        """Return the name of a registered function; any other callable becomes a user-defined function."""
        name = function_name(function)
        if isinstance(name, str) and callable(function) and not any(name in table for table in tables):
            return UserFunction(name, function)
        return name

    def _point(self, name: str, args: Sequence[object], named: dict[str, object]) -> Expr:
        return self._wrap(nodes.Point(self.node, name, bind_arguments(POINTS[name], args, named)))

    rate = _window_method("rate", "Increase per second over the window")
    increase = _window_method("increase", "Increase of a counter over the window")
    delta = _window_method("delta", "Difference from the value before the window")

    def bucketize(
        self,
        function: object,
        step: str,
        *args: object,
        nulls: str = "skip",
        min_count: int | None = None,
        max_gap: str | None = None,
        zone: str | None = None,
        **named: object,
    ) -> Expr:
        """Compute one value per bucket of `step`; sets the step of the query's grid. With a time zone, or of months and
        years, buckets are those of the calendar: `.bucketize("sum", "1d", zone="Europe/Paris")`, 1w, 1mo, 3mo, 1y."""
        name = self._function(function, (MAPPERS,))
        if isinstance(name, str):
            said = bind_arguments(look_up(MAPPERS, name, "function"), args, named)
        else:
            said = udf_arguments(name, args, named)
        gap_ms = parse_duration(max_gap, "max_gap") if max_gap is not None else None
        rules = parse_null_rules(nulls, min_count)
        unit = parse_unit(step, zone, "step")
        step_ms = parse_duration(step, "step") if unit is None else unit.most_ms
        return self._wrap(nodes.Bucketize(self.node, name, step_ms, rules, gap_ms, said, unit))

    # --- classes ---

    def reduce(
        self,
        function: object,
        *args: object,
        by: Sequence[str] | None = None,
        without: Sequence[str] | None = None,
        nulls: str = "skip",
        min_count: int | None = None,
        **named: object,
    ) -> Expr:
        """Compute one series per class of equal labels: `.reduce("mean", by=["dc"])`; by=[] puts all in one class."""
        name = self._function(function, (REDUCERS,))
        text = name if isinstance(name, str) else name.name
        if isinstance(name, str):
            reducer = look_up(REDUCERS, name, "reducer")
            if args and not reducer.arguments:
                example = f'.map("{name}", "5m")'
                raise QueryError(f'{name} reduces classes: say by=["label"] (over time it is {example})')
            said = bind_arguments(reducer, args, named)
        else:
            said = udf_arguments(name, args, named)
        self._require_grid(text)
        if (by is None) == (without is None):
            raise QueryError(
                f"{text} needs exactly one of by=[..] and without=[..]; by=[] makes one class of all series"
            )
        classes = parse_labels(by, "by"), parse_labels(without, "without")
        return self._wrap(nodes.Reduce(self.node, name, *classes, parse_null_rules(nulls, min_count), said))

    def named(self, name: str) -> Expr:
        """Rename the series. Labels in braces are replaced: `.named("{host} {code}")`; `{{` and `}}` are braces."""
        if not isinstance(name, str) or not name:
            raise QueryError(f"a name must be a non-empty text, not {name!r:.80}").with_culprit(name)
        parse_template(name)
        return self._wrap(nodes.Named(self.node, checked_literal(name, "named")))

    # --- whole series ---

    def filter(self, condition: str, *args: object, **named: object) -> Expr:
        """Keep series that meet a condition: `.filter("last", ">", 5)`, or a selector: `.filter('{rack="r1"}')`."""
        if isinstance(condition, str) and condition not in STEPS["filter"] and not args and not named:
            if parse_comparison(condition) is not None:
                told = 'filter keeps whole series, as in .filter("last", ">", 5); write .where("> 5") to keep values'
                raise QueryError(told).with_culprit(condition)
            if not any(mark in condition for mark in "{.*"):
                entry_of("filter", condition)
            return self._step("filter", "fits", (condition,), {})
        return self._step("filter", condition, args, named)

    def fill(self, method: str, *args: object, **named: object) -> Expr:
        """Fill in missing values: `.fill("linear", max_gap="5m")`."""
        return self._step("fill", method, args, named)

    def transform(self, function: str, *args: object, **named: object) -> Expr:
        """Apply a function to whole series: `.transform("shift", "1d")`."""
        if function == "resample" and nodes.gives_samples(self.node):
            return self.bucketize("last", *args, **named)  # type: ignore[arg-type]
        return self._step("transform", function, args, named)

    def _step(self, family: str, name: object, args: Sequence[object], named: dict[str, object]) -> Expr:
        if not isinstance(name, str):
            example = next(iter(STEPS[family].values())).example
            wanted = f"the name of a function in quotes, as in {example}"
            raise QueryError(f"{family} takes {wanted}, not {name!r:.80}").with_culprit(name)
        entry_of(family, name)
        entry = STEPS[family][name]
        count = len(entry.operands)
        operands = [*args[:count]]
        for operand in entry.operands[len(operands) :]:
            if operand not in named:
                raise QueryError(f"{name} needs {operand}: another query, as in {entry.example}")
            operands.append(named.pop(operand))
        others = [operand_of(value, name) for value in operands]
        if nodes.gives_samples(self.node):
            if entry.on_samples is None:
                self._require_grid(name)
        elif entry.run is None:
            raise QueryError(f"{name} takes raw samples: begin with samples('NAME') in place of fetch('NAME')")
        node = nodes.Transform(
            self.node, family, name, bind_arguments(entry, args[count:], named), tuple(e.node for e in others)
        )
        return _above(node, [self, *others])

    def _require_grid(self, name: str) -> None:
        if nodes.gives_samples(self.node):
            raise QueryError(
                f'{name} takes series on a grid, and samples() gives raw samples: say .bucketize("last", "1m") before'
            )

    def scalar(self) -> Expr:
        """Turn the only series into a scalar that varies over time: it matches every series of the other operand."""
        self._require_grid("scalar")
        return self._wrap(nodes.ToScalar(self.node))

    # --- two operands ---

    def where(self, condition: object, **match: Any) -> Expr:
        """Keep values where the condition is true; others become missing: `q.where(q > 5)`, in short `q.where("> 5")`.
        In text `value` stands for the series itself, `.where((value > 1) & (value < 5))`; in Python a function of it
        does. `match` as in `apply`."""
        return apply("mask", self, self._condition(condition), **match)

    def _condition(self, condition: object) -> object:
        """Return the condition of `where`; a text such as "> 5" is compared with the series."""
        if isinstance(condition, str):
            found = parse_comparison(condition)
            if found is None:
                raise QueryError(f'where takes a condition, as in "> 5", not {condition!r:.80}').with_culprit(condition)
            return apply(found[0], self, found[1])
        return condition(self) if callable(condition) else condition

    def and_(self, other: object, **match: Any) -> Expr:
        """Keep values where a matching series of `other` has a value. `match` as in `apply`."""
        return apply("set_and", self, other, **match)

    def or_(self, other: object, **match: Any) -> Expr:
        """Return these series, and those of `other` where no series here with equal labels has a value. A number stands
        for whatever is missing here: `q.or_(0)`."""
        return apply("set_or", self, other, **match)

    def unless(self, other: object, **match: Any) -> Expr:
        """Keep values where no matching series of `other` has a value."""
        return apply("set_unless", self, other, **match)

    # --- operators ---

    __add__, __radd__ = _operators("add")
    __sub__, __rsub__ = _operators("sub")
    __mul__, __rmul__ = _operators("mul")
    __truediv__, __rtruediv__ = _operators("div")
    __mod__, __rmod__ = _operators("mod")
    __pow__, __rpow__ = _operators("pow")
    __and__, __rand__ = _operators("and")
    __or__, __ror__ = _operators("or")
    __lt__, __gt__ = _operators("lt")[0], _operators("gt")[0]
    __le__, __ge__ = _operators("le")[0], _operators("ge")[0]
    __eq__ = _operators("eq")[0]  # type: ignore[assignment]
    __ne__ = _operators("ne")[0]  # type: ignore[assignment]

    def __invert__(self) -> Expr:
        return self._wrap(nodes.Unary("invert", self.node))

    def __neg__(self) -> Expr:
        return self._wrap(nodes.negate(self.node))

    def __abs__(self) -> Expr:
        return self.map("abs")

    def __round__(self, digits: int = 0) -> Expr:
        return self.map("round", digits)

    def __bool__(self) -> NoReturn:
        raise QueryError(
            "a query is neither true nor false before it runs: combine with & | ~, write (a > 1) & (a < 5) for a "
            "chain of comparisons, and use .equals() to ask whether two queries are the same"
        )

    def __iter__(self) -> NoReturn:
        raise QueryError("a query has no elements before it runs: run it first, with .collect() in a session")

    def equals(self, other: Expr) -> bool:
        """Return True if both have the same tree."""
        return nodes.equal_trees(self.node, other.node)

    def __str__(self) -> str:
        return print_node(self.node)

    def __repr__(self) -> str:
        return f"<query {self}>"


def fetch(selector: str, *, resolution: str | None = None, default: float | bool | None = None) -> Expr:
    """Fetch the series that match the selector: `fetch('memcached.hits{dc="jb"}')`. resolution="raw" reads the history
    and puts its samples into the same buckets. `default` is the value of the operand above for what it lacks."""
    if resolution is not None and resolution not in RESOLUTIONS:
        hint = similar_hint(str(resolution), RESOLUTIONS)
        raise QueryError(f'resolution={resolution!r:.80}: say "raw", or nothing{hint}').with_culprit(resolution)
    if default is not None and not isinstance(default, bool):
        default = parse_number(default, "default")
    return Expr(nodes.Fetch(parse_selector(selector), resolution, default))


def samples(selector: str) -> Expr:
    """Fetch raw samples of the matching series from the history. `bucketize` puts them on a grid."""
    return Expr(nodes.Samples(parse_selector(selector)))


def absent(selector: str, expected: Sequence[str] = ()) -> Expr:
    """Return one BOOLEAN series: true in buckets where no matching series has a sample. With `expected`, a list of
    label sets such as 'host="a"', return one series per label set."""
    found = parse_selector(selector)
    if isinstance(expected, str) or not isinstance(expected, Sequence) or not all(isinstance(e, str) for e in expected):
        wanted = "a list of label sets, as in ['host=\"a\"']"
        raise QueryError(f"expected takes {wanted}, not {expected!r:.80}").with_culprit(expected)
    sets = tuple(str(parse_selector(text if text.lstrip().startswith("{") else f"{{{text}}}")) for text in expected)
    for text in sets:
        if any(matcher.op != "=" for matcher in parse_selector(text).matchers):
            raise QueryError(f"expected takes labels with =, as in 'host=\"a\"', not {text!r:.80}")
    return Expr(nodes.Absent(found, sets))


def now() -> Expr:
    """Return the time of the evaluation, in seconds since 1970: `(fetch('cert.not_after') - now()) / 86400`. It is one
    number, also in windows and offsets."""
    return Expr(nodes.Clock("now"))


def time() -> Expr:
    """Return the time at the end of each bucket, in seconds since 1970: `time() - fetch('job.last_success')`."""
    return Expr(nodes.Clock("time"))


def apply(
    op: object,
    left: object,
    *operands: object,
    on: Sequence[str] | None = None,
    ignoring: Sequence[str] | None = None,
    group_left: Sequence[str] | None = None,
    group_right: Sequence[str] | None = None,
    unmatched: str = "drop",
    fill: float | None = None,
    gives: str | None = None,
) -> Expr:
    """Apply an operator to series with equal labels: all labels, those of `on`, or all except `ignoring`. add, mul,
    min, max, and, or take two or more operands; user-defined functions any number."""
    match = parse_matching(on, ignoring, group_left, group_right, unmatched, fill)
    name = function_name(op)
    if isinstance(name, str) and callable(op) and name not in OPERATORS:
        name = UserFunction(name, op)
    if isinstance(name, UserFunction):
        return _apply_udf(name, [operand_of(each, name.name) for each in (left, *operands)], match, gives)
    if gives is not None:
        raise QueryError(f"gives= is for own functions; the result type of {name} is fixed")
    operator = look_up(OPERATORS, name, "operator")
    if not operands or (len(operands) > 1 and operator.name not in FOLDING_OPERATORS):
        wanted = "two or more operands" if operator.name in FOLDING_OPERATORS else "two operands"
        raise QueryError(f"{operator.name} takes {wanted}; {1 + len(operands)} given")
    made = operand_of(left, operator.name)
    for operand in operands:
        made = _binary(operator.name, made, operand_of(operand, operator.name), match)
    return made


FOLDING_OPERATORS = frozenset({"add", "mul", "min", "max", "and", "or"})
"""Operators that accept more than two operands; they are applied from left to right."""


def _binary(op: str, first: Expr, second: Expr, match: nodes.LabelMatching) -> Expr:
    for side in (first, second):
        side._require_grid(op)
    folded = _fold(op, first.node, second.node)
    if folded is not None:
        return folded
    match = match_classes(op, first.node, second.node, match)
    # a sum of many terms counts as one level, because left operands are evaluated in a loop
    left_depth = first.depth if isinstance(first.node, nodes.Binary) else first.depth + 1
    node = nodes.Binary(op, first.node, second.node, match)
    return _above(node, [first, second], max(left_depth, second.depth + 1))


def _fold(op: str, left: Node, right: Node) -> Expr | None:
    """Return arithmetic of two numbers as a number; None for anything else."""
    if not isinstance(left, nodes.Scalar) or not isinstance(right, nodes.Scalar):
        return None
    value = constant_value(op, left.value, right.value)
    return None if value is None else Expr(nodes.Scalar(value))


def floor_divide(op: str, left: Expr, right: Expr) -> Expr:
    """Return `left // right` of two numbers."""
    folded = _fold(op, left.node, right.node)
    if folded is None:
        raise QueryError("this operator is not available for series: write (a / b).floor()")
    return folded


def _above(node: Node, operands: Sequence[Expr], depth: int | None = None) -> Expr:
    """Return the expression of a node over these operands, which belong to one session."""
    collector = None
    for operand in operands:
        collector = common_runner(collector, operand.collector)
    depth = max(operand.depth for operand in operands) + 1 if depth is None else depth
    return Expr(node, depth, collector=collector, parts=sum(operand.parts for operand in operands) + 1)


def _apply_udf(function: UserFunction, operands: list[Expr], match: nodes.LabelMatching, gives: str | None) -> Expr:
    for operand in operands:
        operand._require_grid(function.name)
    said = udf_arguments(function, (), {} if gives is None else {"gives": gives})
    return _above(nodes.Apply(function, tuple(operand.node for operand in operands), match, said), operands)


def operand_of(value: object, op: str) -> Expr:
    """Return an expression; a number or text becomes a literal. QueryError for anything else."""
    if isinstance(value, Expr):
        return value
    value = to_python_scalar(value)
    if isinstance(value, bool | int | float | str):
        return Expr(nodes.Scalar(checked_literal(value, op)))
    raise QueryError(f"{op} takes a query, a number or a text, not {value!r:.80}").with_culprit(value)
