"""Tree walk: every node evaluates its operands on the grid it needs."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import re2

from query_dsl import Expr, parse
from query_dsl.tree import nodes
from tests.query_dsl.plainly import operators, planning, points, reducers, sampled, steps
from tests.query_dsl.plainly.things import (
    Answer,
    Cell,
    Grid,
    Nothing,
    Plain,
    Raw,
    Refused,
    Row,
    Sample,
    Stream,
    Table,
    World,
    in_order,
    in_succession,
    number,
    order,
    series_text,
)
from tests.query_dsl.plainly.windows import DEFAULTS, LOOKS_BACK, WINDOWS, Span, widened

FIVE_MINUTES = 300_000


def answer(query: str | Expr, world: World, now: int) -> Answer:
    """Answer of the query; raises Refused if it has none."""
    root = (parse(query) if isinstance(query, str) else query).node
    if nodes.gives_samples(root):
        return sampled.answer(root, world, now)
    grid, base = planning.choose(root, world, now)
    walk = Walk(world, now, base)
    try:
        rows = walk.table(root, grid).rows
    except Nothing:
        default = walk.default(root)
        if default is None:
            raise
        rows = [Row("", {}, operators.plain_type(default), [default.value] * grid.n)]
    return Answer([r.text() for r in rows], [r.type for r in rows], [r.values for r in rows], grid.ends())


@dataclass
class Walk:
    """One evaluation over the level of step `base`."""

    world: World
    now: int
    base: int
    held: int = field(init=False)
    settled: int = field(init=False)

    def __post_init__(self) -> None:
        self.settled = (self.now - planning.SETTLE) // self.base * self.base
        spare = self.world.spare[0 if self.base == self.world.levels[0][0] else 1]
        self.held = self.settled - self.base * (dict(self.world.levels).get(self.base, 0) + spare)

    def table(self, node: nodes.Node, grid: Grid) -> Table:
        found = self.value(node, grid)
        if not isinstance(found, Table):
            raise Refused("a plain value where series are needed")
        return found

    def value(self, node: nodes.Node, grid: Grid) -> Table | Plain:
        match node:
            case nodes.Scalar(value=value):
                return Plain(value)
            case nodes.Clock(reading="now"):
                return Plain(self.now / 1000)
            case nodes.Clock():
                return Plain(None, [end / 1000 for end in grid.ends()], "DOUBLE")
            case nodes.Range() | nodes.Between() | nodes.At():
                return self.value(node.child, grid)
            case nodes.Binary():
                return self.binary(node, grid)
            case nodes.Unary(op="neg", child=child):
                return self.point(nodes.Point(child, "mul", (("number", -1),)), grid)
            case nodes.Unary(op="invert"):
                return inverted(self.table(node.child, grid))
            case nodes.ToScalar():
                return single(self.table(node.child, grid))
            case _:
                return self.series(node, grid)

    def series(self, node: nodes.Node, grid: Grid) -> Table:
        match node:
            case nodes.Fetch():
                return self.window(node, "last", {}, grid.step, 0, nodes.NullRules(), None, grid)
            case nodes.Absent():
                return self.absent(node, grid)
            case nodes.Offset(child=child, offset_ms=ms):
                return Table(grid, later(self.table(child, grid.earlier(ms)).rows, ms))
            case nodes.Window():
                width = node.before_ms or grid.step
                args = dict(node.args)
                return self.window(
                    node.child, node.function, args, width, node.after_ms, node.rules, node.max_gap_ms, grid
                )
            case nodes.Bucketize() if nodes.gives_samples(node.child):
                return Table(grid, sampled.bucketized(node, self.world, grid, self.now))
            case nodes.Bucketize():
                return self.window(
                    node.child, node.function, dict(node.args), grid.step, 0, node.rules, node.max_gap_ms, grid
                )
            case nodes.Point():
                return self.point(node, grid)
            case nodes.Reduce():
                return self.reduce(node, grid)
            case nodes.Named(child=child, name=name):
                rows = self.table(child, grid).rows
                for label in re.findall(r"{(\w+)}", name):
                    if rows and label != "__name__" and not any(label in r.labels for r in rows):
                        raise Refused(f"no series has the label {label}")
                return Table(grid, in_order([replace(r, name=named(name, r)) for r in rows]))
            case nodes.Transform():
                return steps.step(self, node, grid)
        raise NotImplementedError(type(node).__name__)

    # --- data ---

    def chosen(self, selector: Any) -> list[Raw]:
        found = [s for s in self.world.series if all(fits(m, s) for m in selector.matchers)]
        if not found:
            raise Nothing("no series fits")
        return sorted(found, key=lambda s: order(Stream(s.name, dict(s.labels), s.type, [])))

    def visible(self, raw: Raw) -> list[Sample]:
        """Samples that the level holds, oldest first."""
        return [s for s in in_succession(list(raw.samples)) if self.held < s.time <= self.settled]

    def absent(self, node: nodes.Absent, grid: Grid) -> Table:
        return steps.absent(self, node, grid)

    # --- windows ---

    def window(
        self,
        child: nodes.Node,
        function: Any,
        args: dict[str, Any],
        before: int,
        after: int,
        rules: Any,
        gap: int | None,
        grid: Grid,
    ) -> Table:
        inner = child
        offset = 0
        while isinstance(inner, nodes.Range | nodes.Between | nodes.At | nodes.Offset):
            offset += inner.offset_ms if isinstance(inner, nodes.Offset) else 0
            inner = inner.child
        step = self.base if grid.step % self.base == 0 and self.step_below(inner, grid) else grid.step
        walk = self.finer(before, after, grid, offset) if isinstance(inner, nodes.Fetch) else None
        step = walk.base if walk else step
        before, after = -(-before // step) * step, -(-after // step) * step  # rounded up
        asked = Asked(str(function), args, before, after, rules, gap or max(FIVE_MINUTES, 2 * grid.step), step)
        moved = grid.earlier(offset)
        if isinstance(inner, nodes.Fetch):
            rows = (walk or self).over_samples(inner, asked, moved)
        else:
            rows = self.over_results(inner, asked, moved)
        if asked.function.startswith("time_of"):  # times under an offset are moved, as the samples are
            rows = [replace(r, values=[None if v is None else int(v) + offset for v in r.values]) for r in rows]
        return Table(grid, later(rows, offset))

    def finer(self, before: int, after: int, grid: Grid, offset: int) -> Walk | None:
        """The coarsest level that holds windows which are no multiples of the step of the grid."""
        if before % grid.step == 0 and after % grid.step == 0:
            return None
        levels = [Walk(self.world, self.now, base) for base, _ in self.world.levels]
        first = grid.ends()[0] - offset - before
        fit = [
            one for one in levels
            if not any(ms % one.base for ms in (grid.step, offset, before, after)) and first >= one.held
        ]  # fmt: skip
        return fit[-1] if fit else None

    def step_below(self, child: nodes.Node, grid: Grid) -> bool:
        """True if the operand is on the grid of the level."""
        return not any(isinstance(n, nodes.Bucketize) for n in nodes.walk(child)) or grid.step == self.base

    def over_samples(self, fetch: nodes.Fetch, asked: Asked, grid: Grid) -> list[Row]:
        kept = []
        series = self.chosen(fetch.selector)
        first, last = grid.ends()[0] - asked.before - asked.back(), grid.end + asked.after
        with_data = [s for s in series if any(first < x.time <= last for x in self.visible(s))]
        able = [s for s in with_data if s.type != "STRING" or WINDOWS[asked.function].texts]
        if with_data and not able:
            raise Refused(f"{asked.function} cannot take STRING")
        for raw in able:
            samples = self.visible(raw)
            values = [self.at(raw.type, raw.kind, samples, raw.ended, False, asked, end) for end in grid.ends()]
            newest = max(s.time for s in samples if first < s.time <= last)
            shown, values = widened(result_type(asked.function, raw.type), values)
            kept.append(Row(raw.name, dict(raw.labels), shown, values, newest))
        return kept

    def over_results(self, child: nodes.Node, asked: Asked, grid: Grid) -> list[Row]:
        """One value a bucket, at its end."""
        back = asked.before + asked.back()
        end = grid.end + asked.after
        wide = Grid(end, asked.step, (end - (grid.ends()[0] - back)) // asked.step)
        rows = self.table(child, wide).rows
        able = [r for r in rows if r.type != "STRING" or WINDOWS[asked.function].texts]
        if rows and not able:
            raise Refused(f"{asked.function} cannot take STRING")
        kept = []
        for row in able:
            samples = [Sample(t, v) for t, v in zip(wide.ends(), row.values, strict=True) if v is not None]
            values = [self.at(row.type, "UNKNOWN", samples, 0, True, asked, e) for e in grid.ends()]
            shown, values = widened(result_type(asked.function, row.type), values)
            kept.append(replace(row, type=shown, values=values))
        return kept

    def at(
        self,
        kind_of_value: str,
        kind: str,
        samples: list[Sample],
        ended: int,
        computed: bool,
        asked: Asked,
        end: int,
    ) -> Cell:
        """The function at one step."""
        start, stop = end - asked.before, end + asked.after
        inside = [s for s in samples if start < s.time <= stop]
        buckets: dict[int, list[Sample]] = {}
        for s in inside:
            buckets.setdefault(-(-(s.time - stop) // asked.step), []).append(s)
        before = [s for s in samples if s.time <= start]
        args = {**DEFAULTS.get(asked.function, {}), **asked.args, "t": end, "step": asked.step}
        span = Span(
            start,
            stop,
            [buckets[k] for k in sorted(buckets)],
            before[-1] if before else None,
            kind_of_value,
            kind,
            asked.gap,
            args,
            ended,
            computed=computed,
            history=[s for s in samples if s.time <= stop],
        )
        return self.by_rules(asked, span)

    def by_rules(self, asked: Asked, span: Span) -> Cell:
        buckets = (asked.before + asked.after) // asked.step
        rules = asked.rules
        if rules.nulls == "error" and len(span.buckets) < buckets:
            raise Refused("a value is missing")
        least = rules.min_count if rules.min_count is not None else 0 if asked.function == "count" else 1
        if rules.nulls == "propagate" and len(span.buckets) < buckets:
            return None
        if len(span.samples()) < least:
            return None
        if not span.computed and (span.start < self.held or (asked.after and span.end > self.settled)):
            return None
        return WINDOWS[asked.function].run(span)

    # --- values and classes ---

    def point(self, node: nodes.Point, grid: Grid) -> Table:
        args = {**points.DEFAULTS.get(node.function, {}), **dict(node.args)}
        rows = self.table(node.child, grid).rows
        able = [r for r in rows if points.takes(node.function, r.type)]
        if rows and not able:
            raise Refused(f"{node.function} cannot take the types")
        return Table(grid, [points.point(node.function, r, [end - 1 for end in grid.ends()], args) for r in able])

    def reduce(self, node: nodes.Reduce, grid: Grid) -> Table:
        name = str(node.function)
        args = {**reducers.DEFAULTS.get(name, {}), **dict(node.args)}
        child = self.table(node.child, grid)
        able = [r for r in child.rows if r.type != "STRING" or name in reducers.TAKES_TEXT]
        if child.rows and not able:
            raise Refused(f"{name} cannot take STRING")
        for label in node.by if node.by is not None else ():
            if label != "__name__" and able and not any(label in r.labels for r in able):
                raise Refused(f"no series has the label {label}")
        wanted = args["label"] if name.startswith("arg") else "__name__"
        if wanted != "__name__" and able and not any(wanted in r.labels for r in able):
            raise Refused(f"no series has the label {wanted}")
        classes: dict[Any, list[Row]] = {}
        for row in sorted(able, key=order):
            classes.setdefault(class_of(row, node), []).append(row)
        rows: list[Row] = []
        for (title, pairs), members in classes.items():
            if name in ("first", "last", "count_distinct") and any(m.type != "STRING" for m in members):
                members = [m for m in members if m.type != "STRING"]
            rows += self.one_class(name, title, dict(pairs), members, grid, args, node.rules)
        return Table(grid, in_order(rows))

    def one_class(
        self, name: str, title: str, labels: dict[str, str], members: list[Row], grid: Grid, args: Any, rules: Any
    ) -> list[Row]:
        if name in MANY:
            allowed = reducers.by_rules(name, members, grid.n, rules)
            found = MANY[name](name, title, labels, members, grid.n, args)
            return [
                replace(r, values=[v if a else None for v, a in zip(r.values, allowed, strict=True)]) for r in found
            ]
        how = reducers.SIMPLE[name][1]
        kind = reducers.result_type(how, {m.type for m in members})
        return [Row(title, labels, kind, reducers.simple(name, members, grid.n, args, rules))]

    # --- two operands ---

    def binary(self, node: nodes.Binary, grid: Grid) -> Table | Plain:
        found = [self.operand(side, grid) for side in (node.left, node.right)]
        series = [value for value, side in zip(found, (node.left, node.right), strict=True) if not literal(side)]
        if series and not any(series):
            raise Nothing("no operand has series")
        left, right = (value or self.instead(side, grid)
                       for value, side in zip(found, (node.left, node.right), strict=True))  # fmt: skip
        if node.op == "set_or" and literal(node.right) and isinstance(left, Table):
            return operators.filled(left, right)  # type: ignore[arg-type]
        if isinstance(left, Table) and isinstance(right, Table) and node.op in SETS:
            return operators.sets(SETS[node.op], left, right, node.match)
        left, right = (self.carried(node.left, left, right, grid), self.carried(node.right, right, left, grid))
        defaults = self.default(node.left), self.default(node.right)
        left = self.whole(operators.able(node.op, left, "left"), defaults[0])
        right = self.whole(operators.able(node.op, right, "right"), defaults[1])
        if isinstance(left, Plain) and isinstance(right, Plain):
            return plain_result(node.op, left, right, grid.n)
        if isinstance(left, Table) and isinstance(right, Table):
            return operators.join(node.op, left, right, node.match, defaults)
        if node.match != nodes.LabelMatching() or node.op in SETS:
            raise Refused("one side is a plain value: nothing to match")
        return operators.with_plain(node.op, left, right)

    def whole(self, side: Table | Plain, default: Plain | None) -> Table | Plain:
        return side if default is None else operators.filled(side, default)

    def carried(self, node: nodes.Node, mine: Table | Plain, other: Table | Plain, grid: Grid) -> Table | Plain:
        """Series with a sample in each n-th bucket keep the last one for n buckets."""
        if isinstance(mine, Plain) or isinstance(other, Plain):
            return mine
        if len(mine.rows) >= len(other.rows) and not any(None in r.values for r in mine.rows):
            return mine
        path = path_to_fetch(node)
        fetch = path[-1] if path else None
        if path is None or not isinstance(fetch, nodes.Fetch):
            return mine
        moved = grid.earlier(sum(n.offset_ms for n in path if isinstance(n, nodes.Offset)))
        lead = min(max(0, (moved.start() - self.held) // grid.step), max(15, 60 - grid.n))
        rows = list(mine.rows)
        periods: dict[Any, int] = {}
        for raw in self.world.series:
            if all(fits(m, raw) for m in fetch.selector.matchers):
                places = sorted({-(-(s.time - moved.end) // grid.step) for s in self.visible(raw)})
                periods[pairs_of(raw.labels)] = regular([p for p in places if -grid.n - lead < p <= 0])
        for period in sorted(set(periods.values()) - {1}):
            wide: nodes.Node = nodes.Window(fetch, "last", period * grid.step)
            for one in reversed(path[:-1]):
                wide = above(one, wide)
            sparse = {labels for labels, found in periods.items() if found == period}
            rows = [r for r in rows if pairs_of(r.labels) not in sparse]
            rows += [r for r in self.table(wide, grid).rows if pairs_of(r.labels) in sparse]
        return Table(mine.grid, in_order(rows))

    def operand(self, node: nodes.Node, grid: Grid) -> Table | Plain | None:
        """The value of an operand, None if it selects nothing."""
        try:
            return self.value(node, grid)
        except Nothing:
            return None

    def instead(self, node: nodes.Node, grid: Grid) -> Table | Plain:
        default = self.default(node) if isinstance(node, nodes.ToScalar) else None
        return default or Table(grid, [])

    def default(self, node: nodes.Node) -> Plain | None:
        """The value of an operand for keys and points that it lacks."""
        match node:
            case nodes.Scalar(value=value):
                return Plain(value)
            case nodes.Clock(reading="now"):
                return Plain(self.now / 1000)
            case nodes.Fetch(default=value):
                return None if value is None else Plain(value)
            case nodes.Binary(op=op, left=left, right=right):
                if op == "set_or":
                    return self.default(right)
                sides = self.default(left), self.default(right)
                if op in (*SETS, *operators.MASKS) or None in sides:
                    return None
                try:
                    return plain_result(op, sides[0], sides[1], 1)  # type: ignore[arg-type]
                except Refused:
                    return None
        child = getattr(node, "child", None)
        found = self.default(child) if child is not None else None
        if found is None or literal(child):
            return None
        match node:
            case nodes.Unary(op="invert"):
                return Plain(not found.value)
            case nodes.Unary():
                return self.of_default(nodes.Point(node.child, "mul", (("number", -1),)), found)
            case nodes.Point():
                return self.of_default(node, found)
        return found

    def of_default(self, node: nodes.Point, found: Plain) -> Plain | None:
        args = {**points.DEFAULTS.get(node.function, {}), **dict(node.args)}
        kind = operators.plain_type(found)
        if not points.takes(node.function, kind):
            return None
        value = points.point(node.function, Row("", {}, kind, [found.value]), [self.settled - 1], args).values[0]
        return None if value is None or isinstance(value, str) else Plain(value)


def pairs_of(labels: Any) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(labels.items()))


def path_to_fetch(node: nodes.Node) -> list[nodes.Node] | None:
    """Nodes down to a fetch, through what neither joins nor reduces."""
    path = [node]
    while not isinstance(path[-1], nodes.Fetch):
        match path[-1]:
            case nodes.Range() | nodes.Between() | nodes.At() | nodes.Offset() | nodes.Point() | nodes.Unary():
                path.append(path[-1].child)
            case nodes.Binary(op=op, left=left, right=right) if op not in (*SETS, *operators.MASKS, "and", "or"):
                if not literal(left) and not literal(right):
                    return None
                path.append(left if literal(right) else right)
            case _:
                return None
    return path


def above(node: nodes.Node, child: nodes.Node) -> nodes.Node:
    """The node over another child."""
    if isinstance(node, nodes.Binary):
        return replace(node, left=child) if literal(node.right) else replace(node, right=child)
    return replace(node, child=child)  # type: ignore[call-arg]


def regular(places: list[int]) -> int:
    """Distance of samples, in buckets: the least one, if all are multiples of it, and three and half are it."""
    apart = [b - a for a, b in itertools.pairwise(places)]
    least = min(apart, default=1)
    same = sum(a == least for a in apart)
    return least if same >= 3 and 2 * same >= len(apart) and all(a % least == 0 for a in apart) else 1


def named(template: str, row: Row) -> str:
    """The name that a row takes: labels in place of braces."""
    return re.sub(r"{(\w+)}", lambda found: {**row.labels, "__name__": row.name}.get(found[1], ""), template)


def literal(node: object) -> bool:
    return isinstance(node, nodes.Scalar | nodes.Clock)


MANY: dict[str, Callable[..., list[Row]]] = {
    "topk": lambda name, title, labels, members, n, args: reducers.chosen_members(name, members, n, args),
    "bottomk": lambda name, title, labels, members, n, args: reducers.chosen_members(name, members, n, args),
    **dict.fromkeys(
        ("share", "standardize", "rank", "running_sum"),
        lambda name, title, labels, members, n, args: reducers.placed_members(name, members, n, args),
    ),
    "count_values": lambda name, *rest: reducers.counted_values(*rest),
    "histogram_quantile": lambda name, title, labels, members, n, args: [
        Row(title, labels, "DOUBLE", reducers.histogram(members, n, args))
    ],
}
"""Reducers that are no function of the values at one step alone, or give several series."""
SETS = {"set_and": "and", "set_or": "or", "set_unless": "unless"}


@dataclass(frozen=True)
class Asked:
    """A window as it was asked for; times in ms."""

    function: str
    args: dict[str, Any]
    before: int
    after: int
    rules: Any
    gap: int
    step: int

    def back(self) -> int:
        """Maximum distance of a predecessor before the windows: whole buckets, and one that ends there."""
        return (-(-self.gap // self.step) + 1) * self.step if self.function in LOOKS_BACK else 0


def later(rows: list[Row], ms: int) -> list[Row]:
    """The same values under later ends."""
    return [replace(r, newest=r.newest + ms) for r in rows]


def fits(matcher: Any, series: Raw) -> bool:
    value = series.name if matcher.label == "__name__" else series.labels.get(matcher.label, "")
    match matcher.op:
        case "=":
            return bool(value == matcher.value)
        case "!=":
            return bool(value != matcher.value)
        case "prefix":
            return bool(value.startswith(matcher.value))
    return bool((re2.fullmatch(matcher.value, value) is not None) == (matcher.op == "=~"))


def result_type(function: str, kind: str) -> str:
    gives = WINDOWS[function].gives
    if gives == "same":
        return kind
    if gives == "exact":
        return "DOUBLE" if kind == "DOUBLE" else "INTEGER"
    return gives


def class_of(row: Row, node: nodes.Reduce) -> tuple[str, tuple[tuple[str, str], ...]]:
    """(name, labels) of the class."""
    if node.without is not None:
        return "", tuple(sorted((k, v) for k, v in row.labels.items() if k not in node.without))
    by = node.by or ()
    labels = tuple(sorted((k, row.labels[k]) for k in by if k in row.labels))
    return row.name if "__name__" in by else "", labels


def inverted(table: Table) -> Table:
    able = [r for r in table.rows if r.type == "BOOLEAN"]
    if table.rows and len(able) < len(table.rows):
        raise Refused("~ needs BOOLEAN")
    rows = [replace(r, values=[None if v is None else not v for v in r.values]) for r in able]
    return Table(table.grid, rows)


def single(table: Table) -> Plain:
    if len(table.rows) != 1:
        raise Refused(f"scalar() needs one series, not {len(table.rows)}")
    row = table.rows[0]
    return Plain(None, row.values, row.type)


def plain_result(op: str, left: Plain, right: Plain, n: int) -> Plain:
    types = operators.plain_type(left), operators.plain_type(right)
    if not operators.takes(op, *types):
        raise Refused(f"{op} cannot take these plain values")
    kind = operators.result_type(op, *types)
    if left.values is None and right.values is None:
        value = operators.one(op, left.value, right.value)
        return Plain(number(value) if kind == "DOUBLE" and value is not None else value)
    return Plain(None, operators.values_of(op, left, right, n), kind)


__all__ = ["Walk", "answer", "fits", "series_text"]
