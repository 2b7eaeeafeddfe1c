"""Filters, fillers, transforms and presence, each of whole series."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import re2

from query_dsl import parse_selector
from query_dsl.tree import nodes
from tests.query_dsl.plainly import operators, reducers
from tests.query_dsl.plainly.things import (
    Cell,
    Grid,
    Raw,
    Refused,
    Row,
    Table,
    in_order,
    is_nan,
    number,
    order,
    type_of,
)
from tests.query_dsl.plainly.windows import adding

if TYPE_CHECKING:
    from tests.query_dsl.plainly.run import Walk

WEEK = 604_800_000
Rows = list[Row]
COMPARE = {"==": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}


def step(walk: Walk, node: nodes.Transform, grid: Grid) -> Table:
    args = dict(node.args)
    if node.family in ("fill", "presence") or node.function in ("shift", "deviation", "integrate"):
        return WIDER[node.family if node.family == "fill" else node.function](walk, node, args, grid)
    if node.function == "join_labels":
        return join_labels(walk, node, args, grid)
    if node.function == "clip":
        args = {"start": args["start"].resolve(walk.now), "end": args["end"].resolve(walk.now)}
    if node.function == "resample":
        raise Refused("resample is for samples")
    table = walk.table(node.child, grid)
    if node.family == "filter":
        rows = table.rows if fetched(node.child) else [replace(r, newest=last_present(r, grid)) for r in table.rows]
        return Table(grid, filtered(node.function, args, rows, grid))
    return Table(grid, TRANSFORMS[node.function](table.rows, args, grid))


# --- filters ---


def fetched(node: nodes.Node) -> bool:
    """True if the series are as fetched, except for a time shift."""
    while isinstance(node, nodes.Range | nodes.Between | nodes.At | nodes.Offset):
        node = node.child
    return isinstance(node, nodes.Fetch)


def last_present(row: Row, grid: Grid) -> int:
    """The newest sample of a computed series is its newest value."""
    return max((t for t, v in zip(grid.ends(), row.values, strict=True) if v is not None), default=-(2**62))


def filtered(name: str, args: Mapping[str, Any], rows: Rows, grid: Grid) -> Rows:
    if name == "fits":
        matchers = conditions(args["selector"])
        return [r for r in rows if all(fits_row(m, r) for m in matchers)]
    if name == "size":
        return [r for r in rows if threshold(sum(v is not None for v in r.values), args["op"], args["n"])]
    if name in ("stale", "fresh"):
        return [r for r in rows if (r.newest < grid.end - args["age"]) == (name == "stale")]
    if name in ("top", "bottom"):
        rows, top = numeric(rows), name == "top"
        if args.get("rank", "last") == "each":
            return reducers.best_each(rows, args["k"], grid.n, top)
        return reducers.best(reducers.ranked(rows, args.get("rank", "last")), args["k"], top)
    if any(r.type == "STRING" for r in rows) or isinstance(args["value"], str):
        rows = comparable(rows, args["value"])
    texts_too = name in ("last", "first", "any", "all") and args["op"] in ("==", "!=")
    return [r for r in (rows if texts_too else numeric(rows)) if keeps(name, r, args)]


def comparable(rows: Rows, value: Any) -> Rows:
    """The series that the value can be compared with; refused if there is none."""
    kept = [r for r in rows if (r.type == "STRING") == isinstance(value, str)]
    if rows and not kept:
        raise Refused("a text and a number do not compare")
    return kept


def numeric(rows: Rows) -> Rows:
    """Without STRING; refused if nothing is left."""
    kept = [r for r in rows if r.type != "STRING"]
    if rows and not kept:
        raise Refused("every series is STRING")
    return kept


def conditions(selector: str) -> Any:
    """Matchers of a selector that may fit everything."""
    head, brace, rest = selector.partition("{")
    with_one = f'{head}{{never="",{rest}' if brace else head
    return [m for m in parse_selector(with_one.replace('never=""', 'never="x"')).matchers if m.label != "never"]


def fits_row(matcher: Any, row: Row) -> bool:
    from tests.query_dsl.plainly.run import fits

    return fits(matcher, Raw(row.name, row.labels, row.type, ()))


def threshold(value: Any, op: str, bound: Any) -> bool:
    if isinstance(value, str) != isinstance(bound, str) and op not in ("==", "!="):
        raise Refused("a text and a number have no order")
    return operators.compared(COMPARE[op], value, bound)


def keeps(name: str, row: Row, args: Mapping[str, Any]) -> bool:
    values = [v for v in row.values if v is not None]
    if not values:
        return False
    if name in ("all", "any"):
        found = [threshold(v, args["op"], args["value"]) for v in values]
        return all(found) if name == "all" else any(found)
    return threshold(summary(name, values), args["op"], args["value"])


def summary(name: str, values: list[Any]) -> Any:
    if name in ("last", "first"):
        return values[-1] if name == "last" else values[0]
    if name == "mean":
        return adding([number(v) for v in values]) / len(values)
    if any(map(is_nan, values)):
        return float("nan")
    return min(values) if name == "min" else max(values)


# --- fillers ---


def fill(walk: Walk, node: nodes.Transform, args: Mapping[str, Any], grid: Grid) -> Table:
    gap = args.get("max_gap")
    looks_back = node.function in ("previous", "linear") and gap is not None
    extra = int(gap) // grid.step if looks_back and gap is not None else 0
    wide = replace(grid, n=grid.n + extra)
    table = walk.table(node.child, wide)
    able = table.rows
    if node.function == "linear":
        able = numeric(able)
    elif node.function == "value":
        able = [r for r in able if (r.type == "STRING") == isinstance(args["value"], str)]
        if table.rows and not able:
            raise Refused("every series is of another type")
    rows = [one_filled(node.function, r, args, gap, grid.step) for r in able]
    return Table(grid, [replace(r, values=r.values[extra:]) for r in rows])


def one_filled(name: str, row: Row, args: Mapping[str, Any], gap: int | None, width: int) -> Row:
    if name == "value":
        return value_filled(row, args["value"], gap, width)
    known = [i for i, v in enumerate(row.values) if v is not None]
    values = [v if v is not None else between(name, i, known, row.values, gap, width) for i, v in enumerate(row.values)]
    if name == "linear":
        return replace(row, type="DOUBLE", values=[None if v is None else number(v) for v in values])
    return replace(row, values=values)


def between(name: str, i: int, known: list[int], values: list[Cell], gap: int | None, width: int) -> Cell:
    before = max((k for k in known if k < i), default=None)
    after = min((k for k in known if k > i), default=None)

    def near(steps: int) -> bool:
        return gap is None or steps * width <= gap

    if name == "previous":
        return values[before] if before is not None and near(i - before) else None
    if name == "next":
        return values[after] if after is not None and near(after - i) else None
    if before is None or after is None or not near(after - before):
        return None
    low, high = number(values[before]), number(values[after])  # type: ignore[arg-type]
    return low + (high - low) * (i - before) / (after - before)


def value_filled(row: Row, value: Any, gap: int | None, width: int) -> Row:
    values = list(row.values)
    for start, stop in holes(row.values):
        if gap is None or (stop - start) * width <= gap:
            values[start:stop] = [value] * (stop - start)
    kinds = {row.type, type_of(value)}
    kind = next(iter(kinds)) if len(kinds) == 1 else "DOUBLE" if "DOUBLE" in kinds else "INTEGER"
    return replace(row, type=kind, values=[reducers.cast(v, kind) for v in values])


def holes(values: list[Cell]) -> list[tuple[int, int]]:
    """Runs of missing values as [start, stop)."""
    out: list[tuple[int, int]] = []
    for i, v in enumerate(values):
        if v is None:
            out[-1:] = [(out[-1][0], i + 1)] if out and out[-1][1] == i else [*out[-1:], (i, i + 1)]
    return out


# --- those that ask for other grids ---


def shift(walk: Walk, node: nodes.Transform, args: Mapping[str, Any], grid: Grid) -> Table:
    if next(iter(args.values())) % grid.step:
        raise Refused("shift by no multiple of the step")
    return Table(grid, walk.table(node.child, grid.earlier(next(iter(args.values())))).rows)


def deviation(walk: Walk, node: nodes.Transform, args: Mapping[str, Any], grid: Grid) -> Table:
    """Distance of the window's mean from those of earlier weeks, in their standard deviations."""
    window, weeks, robust = args.get("window", 3_600_000), args.get("weeks", 4), args.get("robust", False)
    found: list[dict[Any, Row]] = []
    for k in range(weeks + 1):
        child = nodes.Window(node.child, "mean", window)
        rows = walk.table(child, grid.earlier(k * WEEK)).rows
        found.append({(r.name, tuple(sorted(r.labels.items()))): r for r in rows})
    out = []
    for key, row in found[0].items():
        past = [f[key].values if key in f else [None] * grid.n for f in found[1:]]
        values = [far(row.values[i], [p[i] for p in past], robust) for i in range(grid.n)]
        out.append(replace(row, type="DOUBLE", values=values))
    return Table(grid, out)


def far(now: Cell, past: list[Cell], robust: bool) -> Cell:
    from tests.query_dsl.plainly.windows import deviation_of, ieee, middle, spread

    values = [number(v) for v in past if v is not None]
    if now is None or len(values) < 2:
        return None
    if robust:
        return ieee(0.6745 * (number(now) - float(middle(values))), deviation_of(values))
    return ieee(number(now) - adding(values) / len(values), (spread(values, 1) or 0.0) ** 0.5)


def integrate(walk: Walk, node: nodes.Transform, args: Mapping[str, Any], grid: Grid) -> Table:
    """Left rectangle over the values that are present, in seconds."""
    rows = []
    if grid.n == 1:
        raise Refused("integrate needs a range")
    for row in numeric(walk.table(node.child, grid).rows):
        values: list[Cell] = []
        area, before = number(args.get("initial", 0)), (0, 0.0)
        for end, v in zip(grid.ends(), row.values, strict=True):
            if v is not None:
                area += before[1] * (end - before[0]) / 1000
                before = (end, number(v))
            values.append(None if v is None else area)
        rows.append(replace(row, type="DOUBLE", values=values))
    return Table(grid, rows)


def absent(walk: Walk, node: nodes.Absent, grid: Grid) -> Table:
    """True where no series that fits has a value."""
    found = [
        s
        for s in walk.world.series
        if all(fits_row(m, Row(s.name, dict(s.labels), s.type, [])) for m in node.selector.matchers)
    ]
    fetched = walk.table(nodes.Fetch(node.selector), grid).rows if found else []
    if not node.expected:
        given = {m.label: m.value for m in node.selector.matchers if m.op == "=" and m.value}
        name = given.pop("__name__", "")
        if not name:
            name = next((m.value for m in node.selector.matchers if m.label == "__name__" and m.op == "="), "")
        return Table(grid, [Row(name, given, "BOOLEAN", gone(fetched, grid.n))])
    rows = []
    for text in node.expected:
        wanted = parse_selector("{" + text.strip("{}") + "}").matchers
        labels = {m.label: m.value for m in node.selector.matchers if m.op == "=" and m.value}
        name = labels.pop("__name__", "")
        if any(labels.get(m.label, m.value) != m.value for m in wanted):
            raise Refused("what is expected can never be")
        labels |= {m.label: m.value for m in wanted}
        mine = [r for r in fetched if all(fits_row(m, r) for m in wanted)]
        rows.append(Row(name, labels, "BOOLEAN", gone(mine, grid.n)))
    return Table(grid, in_order(rows))


def gone(rows: Rows, n: int) -> list[Cell]:
    return [all(r.values[i] is None for r in rows) for i in range(n)]


def presence(walk: Walk, node: nodes.Transform, args: Mapping[str, Any], grid: Grid) -> Table:
    """stale and last_seen: from the newest sample at or before the end of each bucket."""
    child: nodes.Node = node.child
    moved = 0
    while not isinstance(child, nodes.Fetch):
        if not isinstance(child, nodes.Range | nodes.Between | nodes.At | nodes.Offset):
            raise Refused(f"{node.function} needs a fetch")
        moved += child.offset_ms if isinstance(child, nodes.Offset) else 0
        child = child.child
    rows = []
    for raw in walk.chosen(child.selector):
        times = sorted(s.time for s in raw.samples)
        newest: list[Cell] = [max((t for t in times if t <= end - moved), default=None) for end in grid.ends()]
        if node.function == "last_seen":
            shown: list[Cell] = [None if t is None else t + moved for t in newest]  # type: ignore[operator]
            rows.append(Row(raw.name, dict(raw.labels), "INTEGER", shown))
        else:
            late = [t is None or end - moved - t > args["age"] for t, end in zip(newest, grid.ends(), strict=True)]  # type: ignore[operator]
            rows.append(Row(raw.name, dict(raw.labels), "BOOLEAN", list(late)))
    return Table(grid, rows)


WIDER: dict[str, Callable[[Any, nodes.Transform, Mapping[str, Any], Grid], Table]] = {
    "fill": fill,
    "shift": shift,
    "deviation": deviation,
    "integrate": integrate,
    "stale": presence,
    "last_seen": presence,
}


# --- transforms of labels and order ---


def relabelled(rows: Rows, args: Mapping[str, Any], grid: Grid) -> Rows:
    label, value = args["label"], args["value"]
    return in_order([set_label(r, label, value) for r in rows])


def set_label(series: Any, label: str, value: str) -> Any:
    """A row or stream with another value of one label ("" removes it), or under another name."""
    if label == "__name__":
        return replace(series, name=value)
    return replace(series, labels={k: v for k, v in {**series.labels, label: value}.items() if v})


def label_replaced(rows: Rows, args: Mapping[str, Any], grid: Grid) -> Rows:
    return in_order([replace_one(r, args) for r in rows])


def replace_one(row: Any, args: Mapping[str, Any]) -> Any:
    check_groups(args["pattern"], args["replacement"])
    source = row.name if args["source"] == "__name__" else row.labels.get(args["source"], "")
    found = re2.fullmatch(args["pattern"], source)
    if not found:
        return row
    value = re.sub(r"\$(?:\$|(\w+)|\{(\w+)\})|\\(\d)", lambda m: expand(m, found), args["replacement"])
    return set_label(row, args["target"], value)


def expand(reference: re.Match[str], found: Any) -> str:
    name = reference[1] or reference[2] or reference[3]
    return "$" if name is None else found.group(int(name) if name.isdigit() else name) or ""


def check_groups(pattern: str, replacement: str) -> None:
    """Refuse a replacement that refers to a group that the pattern does not have."""
    regex = re2.compile(pattern)
    known = {str(i) for i in range(regex.groups + 1)} | set(regex.groupindex)
    for found in re.finditer(r"\$(?:\$|(\w+)|\{(\w+)\})|\\(\d)", replacement):
        name = found[1] or found[2] or found[3]
        if name is not None and name not in known:
            raise Refused(f"the pattern has no group {name}")


def join_labels(walk: Walk, node: nodes.Transform, args: Mapping[str, Any], grid: Grid) -> Table:
    mine, other = walk.table(node.child, grid), walk.table(node.operands[0], grid)
    out = []
    for row in mine.rows:
        key = [row.labels.get(label, "") for label in args["on"]]
        partners = [o for o in other.rows if [o.labels.get(label, "") for label in args["on"]] == key]
        found = {tuple(p.labels.get(label, "") for label in args["labels"]) for p in partners}
        if len(found) > 1:
            raise Refused("two partners say different things")
        new = dict(zip(args["labels"], next(iter(found)), strict=True)) if found else {}
        out.append(replace(row, labels={k: v for k, v in {**row.labels, **new}.items() if v}))
    return Table(grid, in_order(out))


def clip(rows: Rows, args: Mapping[str, Any], grid: Grid) -> Rows:
    start, end = args["start"], args["end"]
    return [
        replace(r, values=[v if start < t <= end else None for t, v in zip(grid.ends(), r.values, strict=True)])
        for r in rows
    ]


def ordered(rows: Rows, args: Mapping[str, Any], grid: Grid) -> Rows:
    """By rank; series without a rank last, ties in canonical order."""
    rank, descending = args.get("rank", "last"), args.get("descending", False)
    rows = sorted(rows, key=order)
    if rank == "name":
        return list(reversed(rows)) if descending else rows
    texts = [(r, None) for r in rows if r.type == "STRING"]
    scored = sorted(
        [*texts, *reducers.ranked([r for r in rows if r.type != "STRING"], rank)], key=lambda p: order(p[0])
    )
    numbers = sorted(
        [(r, v) for r, v in scored if v is not None and not is_nan(v)], key=lambda p: p[1], reverse=descending
    )
    nans = [p for p in scored if is_nan(p[1])]
    return [r for r, _ in [*numbers, *nans, *(p for p in scored if p[1] is None)]]


def shortened(keep: Callable[[list[tuple[int, float]], int, Grid], set[int]]) -> Callable[..., Rows]:
    """Rows of which only the points at chosen times stay."""

    def shorten(rows: Rows, args: Mapping[str, Any], grid: Grid) -> Rows:
        out = []
        for row in numeric(rows):
            points = [(t, number(v)) for t, v in zip(grid.ends(), row.values, strict=True) if v is not None]
            kept = keep(points, args["n"], grid)
            values = [v if t in kept else None for t, v in zip(grid.ends(), row.values, strict=True)]
            out.append(replace(row, values=values))
        return out

    return shorten


def extremes(points: list[tuple[int, float]], n: int, grid: Grid) -> set[int]:
    """The first least and the first greatest of each of n // 2 stretches of the range."""
    if len(points) <= n:
        return {t for t, _ in points}
    parts: dict[int, list[tuple[int, float]]] = {}
    for t, v in points:
        parts.setdefault((grid.ends().index(t)) * (n // 2) // grid.n, []).append((t, v))
    kept = set()
    for part in parts.values():
        values = [p for p in part if not is_nan(p[1])] or part
        kept |= {min(values, key=lambda p: p[1])[0], max(values, key=lambda p: p[1])[0]}
    return kept


def triangles(points: list[tuple[int, float]], n: int, grid: Grid) -> set[int]:
    """First, last, and of each of n - 2 stretches the point of the largest triangle with its neighbours."""
    if len(points) <= n or n < 3:
        return {t for t, _ in (points if len(points) <= n else [points[0], points[-1]][:n])}
    width, kept = (len(points) - 2) / (n - 2), [points[0]]
    for i in range(n - 2):
        begin, end = math.floor(i * width) + 1, math.floor((i + 1) * width) + 1
        after = points[end : math.floor((i + 2) * width) + 1] or points[-1:]
        x = math.fsum(t for t, _ in after) / len(after)
        y = adding([v for _, v in after]) / len(after)
        kept.append(max(points[begin:end], key=lambda p: area(kept[-1], p, (x, y))))
    return {t for t, _ in [*kept, points[-1]]}


def area(a: tuple[float, float], b: tuple[float, float], c: tuple[float, float]) -> float:
    return abs((a[0] - c[0]) * (b[1] - a[1]) - (a[0] - b[0]) * (c[1] - a[1]))


TRANSFORMS: dict[str, Callable[[Rows, Mapping[str, Any], Grid], Rows]] = {
    "relabel": relabelled,
    "label_replace": label_replaced,
    "rename": lambda rows, args, grid: in_order([replace(r, name=args["name"]) for r in rows]),
    "limit": lambda rows, args, grid: rows[: args["n"]],
    "sort": ordered,
    "clip": clip,
    "minmax": shortened(extremes),
    "lttb": shortened(triangles),
}
