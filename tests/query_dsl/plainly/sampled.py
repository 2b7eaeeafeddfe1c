"""Queries of raw samples: irregular series in, irregular series out, or buckets of any step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import groupby
from typing import Any

from query_dsl.tree import nodes
from tests.query_dsl.plainly import points
from tests.query_dsl.plainly.planning import said
from tests.query_dsl.plainly.points import to_string
from tests.query_dsl.plainly.things import (
    Answer,
    Grid,
    Refused,
    Row,
    Sample,
    Stream,
    Value,
    World,
    in_order,
    in_succession,
    is_nan,
    order,
    series_text,
)
from tests.query_dsl.plainly.windows import DEFAULTS, GRID_ONLY, LOOKS_BACK, WINDOWS, Span, widened

Streams = list[Stream]
FIVE_MINUTES = 300_000
ORDERED = ("sort", "limit")


def answer(root: nodes.Node, world: World, now: int) -> Answer:
    """The answer of a query whose result is irregular."""
    time = said(root)
    if time is None or time[0] != "between":
        raise NotImplementedError("samples without between")
    after, until = time[1].resolve(now), time[2].resolve(now)
    found = streams(root, world, after, until, now)
    rows = [s for s in found if s.points]
    return Answer([s.text() for s in rows], [s.type for s in rows], points=[s.points for s in rows])


def streams(node: nodes.Node, world: World, after: int, until: int, now: int) -> Streams:
    """Series with what lies in (after, until], and perhaps more where a child needed it; none without samples."""
    return [s for s in made_of(node, world, after, until, now) if s.points]


def made_of(node: nodes.Node, world: World, after: int, until: int, now: int) -> Streams:
    match node:
        case nodes.Samples(selector=selector):
            return fetched(selector, world, after, until)
        case nodes.Range() | nodes.Between() | nodes.At():
            return streams(node.child, world, after, until, now)
        case nodes.Offset(child=child, offset_ms=ms):
            by = 0 if apart(child) else ms
            return [shifted(s, {"by": ms}) for s in streams(child, world, after - by, until - by, now)]
        case nodes.Named(child=child, name=name):
            return [replace(s, name=name) for s in streams(child, world, after, until, now)]
        case nodes.Window():
            return windows(node, world, after, until, now)
        case nodes.Point(function=name):
            return pointed(streams(node.child, world, after, until, now), name, dict(node.args))
        case nodes.Transform(function="fits"):
            return fitting(streams(node.child, world, after, until, now), dict(node.args)["selector"])
        case nodes.Transform(function=name):
            args = dict(node.args)
            if name == "shift":
                by = 0 if apart(node.child) else next(iter(args.values()))
                return [shifted(s, args) for s in streams(node.child, world, after - by, until - by, now)]
            if name == "clip":
                args = {"start": args["start"].resolve(now), "end": args["end"].resolve(now)}
            below = streams(node.child, world, after, until, now)
            if name == "integrate":
                below = numeric(below)
            made = STEPS[name]([s for s in below if s.points], args)
            return (
                [s for s in made if s.points] if name in ORDERED else sorted([s for s in made if s.points], key=order)
            )
    raise NotImplementedError(type(node).__name__)


def pointed(below: Streams, name: str, args: dict[str, Any]) -> Streams:
    """A point function of each sample."""
    args = {**points.DEFAULTS.get(name, {}), **args}
    able = [s for s in below if points.takes(name, s.type)]
    if below and not able:
        raise Refused(f"{name} cannot take the types")
    out = []
    for series in able:
        times = [t for t, _ in series.points]
        row = points.point(name, Row("", {}, series.type, [v for _, v in series.points]), times, args)
        kept = [(t, v) for t, v in zip(times, row.values, strict=True) if v is not None]
        out.append(replace(series, type=row.type, points=kept))
    return out


def fitting(below: Streams, selector: str) -> Streams:
    from tests.query_dsl.plainly.steps import conditions, fits_row

    found = conditions(selector)
    return [s for s in below if all(fits_row(m, Row(s.name, s.labels, s.type, [])) for m in found)]


def numeric(below: Streams) -> Streams:
    able = [s for s in below if s.type != "STRING"]
    if below and not able:
        raise Refused("cannot take STRING")
    return able


def integrated(series: Stream, args: Mapping[str, Any]) -> Stream:
    """Left rectangle, in seconds."""
    area, before = float(args.get("initial", 0)), (0, 0.0)
    made: list[tuple[int, Value]] = []
    for time, value in series.points:
        area += before[1] * (time - before[0]) / 1000
        before = (time, float(value))
        made.append((time, area))
    return replace(series, type="DOUBLE", points=made)


def windows(node: nodes.Window, world: World, after: int, until: int, now: int) -> Streams:
    """A window function at each tick of the series."""
    from tests.query_dsl.plainly.run import Asked, result_type

    name = str(node.function)
    if node.before_ms is None:
        raise Refused("a window of samples needs a width")
    asked = Asked(name, dict(node.args), node.before_ms, node.after_ms, node.rules, node.max_gap_ms or FIVE_MINUTES, 0)
    reach = node.before_ms + (asked.gap if name in LOOKS_BACK else 0)
    moved = apart(node.child)
    span = (after, until) if moved else (after - reach, until + node.after_ms)
    below = streams(node.child, world, *span, now)
    able = [s for s in below if s.type != "STRING" or WINDOWS[name].texts]
    if (below and not able) or name in GRID_ONLY:
        raise Refused(f"{name} cannot take STRING, or samples")
    out = []
    for series in able:
        computed = not isinstance(bare(node.child), nodes.Samples)
        samples = told(series, world, node, computed)
        found = [
            (t, at(series, samples, asked, t - node.before_ms, t + node.after_ms, t, computed, world))
            for t in dict(series.points)
        ]
        kept = [(t, v) for t, v in found if v is not None and (moved or after < t <= until)]
        shown, values = widened(result_type(name, series.type), [v for _, v in kept])
        points = [(t, v) for (t, _), v in zip(kept, values, strict=True) if v is not None]
        out.append(replace(series, type=shown, points=points))
    return out


def apart(node: nodes.Node) -> bool:
    """True if times are modulo a period, not in the range."""
    return any(isinstance(one, nodes.Transform) and one.function == "modulo" for one in nodes.walk(node))


def bare(node: nodes.Node) -> nodes.Node:
    while isinstance(node, nodes.Range | nodes.Between | nodes.At):
        node = node.child
    return node


def told(series: Stream, world: World, node: nodes.Node, computed: bool) -> list[Sample]:
    """The samples of a stream, with their births where they are raw ones."""
    births = {
        (x.time, repr(x.value)): x.birth
        for r in world.series
        if series_text(r.name, r.labels) == series.text()
        for x in r.samples
    }
    return in_succession([Sample(t, v, 0 if computed else births.get((t, repr(v)), 0)) for t, v in series.points])


def at(
    series: Stream, samples: list[Sample], asked: Any, start: int, stop: int, tick: int, computed: bool, world: World
) -> Any:
    """The function of one window, one sample a bucket."""
    raw = next((r for r in world.series if series_text(r.name, r.labels) == series.text()), None)
    inside = [s for s in samples if start < s.time <= stop]
    before = [s for s in samples if s.time <= start]
    span = Span(
        start,
        stop,
        [[s] for s in inside],
        before[-1] if before else None,
        series.type,
        raw.kind if raw and not computed else "UNKNOWN",
        asked.gap,
        {**DEFAULTS.get(asked.function, {}), **asked.args, "t": tick},
        raw.ended if raw and not computed else 0,
        computed=computed,
        history=[s for s in samples if s.time <= stop],
    )
    least = asked.rules.min_count if asked.rules.min_count is not None else 0 if asked.function == "count" else 1
    return WINDOWS[asked.function].run(span) if len(inside) >= least else None


def bucketized(node: nodes.Bucketize, world: World, grid: Grid, now: int) -> list[Row]:
    """Irregular series on a grid of any step."""
    from tests.query_dsl.plainly.run import Asked, result_type

    name = str(node.function)
    asked = Asked(
        name, dict(node.args), grid.step, 0, node.rules, node.max_gap_ms or max(FIVE_MINUTES, 2 * grid.step), 0
    )
    reach = asked.gap if name in LOOKS_BACK else 0
    below = streams(node.child, world, grid.start() - reach, grid.end, now)
    able = [s for s in below if s.type != "STRING" or WINDOWS[name].texts]
    if (below and not able) or name in GRID_ONLY:
        raise Refused(f"{name} cannot take STRING, or samples")
    rows = []
    for series in able:
        computed = not isinstance(bare(node.child), nodes.Samples)
        samples = told(series, world, node, computed)
        values = [at(series, samples, asked, e - grid.step, e, e, computed, world) for e in grid.ends()]
        rows.append(Row(series.name, series.labels, *widened(result_type(name, series.type), values)))
    return in_order(rows)


def fetched(selector: Any, world: World, after: int, until: int) -> Streams:
    from tests.query_dsl.plainly.run import fits

    chosen = [s for s in world.series if all(fits(m, s) for m in selector.matchers)]
    if not chosen:
        raise Refused("no series fits")
    made = []
    for s in chosen:
        points = sorted([(x.time, x.value) for x in s.samples if after < x.time <= until], key=lambda p: p[0])
        made.append(Stream(s.name, dict(s.labels), s.type, points))
    return sorted([s for s in made if s.points], key=order)


def equal(a: Any, b: Any) -> bool:
    return a == b or (is_nan(a) and is_nan(b))


def dedup(series: Stream) -> Stream:
    """Of equal ticks the last."""
    kept = [list(group)[-1] for _, group in groupby(series.points, key=lambda p: p[0])]
    return replace(series, points=kept)


def compact(series: Stream, ranges: bool) -> Stream:
    """The first of each run of equal values and the last of all; with ranges the last of each run too."""
    kept = []
    for i, (time, value) in enumerate(series.points):
        begins = i == 0 or not equal(series.points[i - 1][1], value)
        final = i == len(series.points) - 1
        ends = final or not equal(series.points[i + 1][1], value)
        if begins or final or (ranges and ends):
            kept.append((time, value))
    return replace(series, points=kept)


def split(series: Stream, args: Mapping[str, Any]) -> Streams:
    parts: list[list[Any]] = []
    for point in series.points:
        if parts and point[0] - parts[-1][-1][0] <= args["gap"]:
            parts[-1].append(point)
        else:
            parts.append([point])
    label = args.get("label", "split")
    return [replace(series, labels={**series.labels, label: str(i)}, points=p) for i, p in enumerate(parts)]


def modulo(series: Stream, args: Mapping[str, Any]) -> Streams:
    parts: dict[int, list[Any]] = {}
    for time, value in series.points:
        parts.setdefault(time // args["period"], []).append((time % args["period"], value))
    label = args.get("label", "quotient")
    return [replace(series, labels={**series.labels, label: str(q)}, points=p) for q, p in sorted(parts.items())]


def merge(below: Streams, args: Mapping[str, Any]) -> Streams:
    """Series that are equal in name and labels become one."""
    out: dict[Any, Stream] = {}
    for series in below:
        key = order(series)
        mine = out.get(repr(key))
        points = sorted([*(mine.points if mine else []), *series.points], key=lambda p: p[0])
        kinds = {series.type, mine.type if mine else series.type}
        if len(kinds) > 1 and kinds != {"INTEGER", "DOUBLE"}:
            raise Refused("types that cannot be one")
        kind = series.type if len(kinds) == 1 else "DOUBLE"
        cells = [(t, float(v) if kind == "DOUBLE" else v) for t, v in points]
        out[repr(key)] = replace(series, type=kind, points=cells)
    return list(out.values())


def each(
    run: Callable[[Stream, Mapping[str, Any]], Stream | Streams],
) -> Callable[[Streams, Mapping[str, Any]], Streams]:
    def all_of(below: Streams, args: Mapping[str, Any]) -> Streams:
        found = [run(s, args) for s in below]
        return [s for f in found for s in (f if isinstance(f, list) else [f])]

    return all_of


def shifted(series: Stream, args: Mapping[str, Any]) -> Stream:
    by = next(iter(args.values()))
    return replace(series, points=[(t + by, v) for t, v in series.points])


def clipped(series: Stream, args: Mapping[str, Any]) -> Stream:
    return replace(series, points=[p for p in series.points if args["start"] < p[0] <= args["end"]])


def value_split(series: Stream, args: Mapping[str, Any]) -> Streams:
    parts: dict[str, list[Any]] = {}
    for time, value in series.points:
        parts.setdefault(to_string(value), []).append((time, value))
    label = args.get("label", "value")
    return [replace(series, labels={**series.labels, label: text}, points=p) for text, p in parts.items()]


def mode(series: Stream, args: Mapping[str, Any]) -> Stream:
    """The most frequent values, each where it came first."""
    found: dict[str, list[Any]] = {}
    for point in series.points:
        found.setdefault(repr(point[1]), []).append(point)
    most = max(map(len, found.values()))
    return replace(series, points=[points[0] for points in found.values() if len(points) == most])


def relabelled(below: Streams, args: Mapping[str, Any]) -> Streams:
    from tests.query_dsl.plainly.steps import set_label

    return [set_label(s, args["label"], args["value"]) for s in below]


def label_replaced(below: Streams, args: Mapping[str, Any]) -> Streams:
    from tests.query_dsl.plainly.steps import replace_one

    return [replace_one(s, args) for s in below]


STEPS: dict[str, Callable[[Streams, Mapping[str, Any]], Streams]] = {
    "shift": each(shifted),
    "dedup": each(lambda s, a: dedup(s)),
    "compact": each(lambda s, a: compact(s, a.get("ranges", False))),
    "split": each(split),
    "modulo": each(modulo),
    "merge": merge,
    "clip": each(clipped),
    "integrate": each(integrated),
    "value_split": each(value_split),
    "mode": each(mode),
    "relabel": relabelled,
    "rename": lambda below, args: [replace(s, name=args["name"]) for s in below],
    "label_replace": label_replaced,
    "limit": lambda below, args: below[: args["n"]],
}
