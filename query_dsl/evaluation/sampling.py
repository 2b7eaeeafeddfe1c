"""Raw samples in a query: functions that work on them at times of their own, and the way to a grid.

A node over samples is asked for times in (after, until] and asks its child for what it needs beyond. A bucketize sees
every sample: where the statistics of buckets say all that a function wants, it reads these, else the samples.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from artimon.compute.cells import Cells
from artimon.compute.statistics import STATISTICS
from artimon.compute.succession import births_in_succession
from artimon.compute.ticks import Ticks, TooWide, run_irregular, run_on_grid
from artimon.model.grid import Grid
from artimon.model.select import BIRTH_TYPE
from artimon.model.values import Kind
from query_dsl.evaluation.context import Context
from query_dsl.evaluation.fetching import why_nothing
from query_dsl.evaluation.mapping import LEAST_GAP_MS, say_gauges
from query_dsl.evaluation.own_samples import own_at_samples, own_of_buckets
from query_dsl.evaluation.owned import mapper_of
from query_dsl.evaluation.steps import entry_of
from query_dsl.functions.mappers import Mapper
from query_dsl.functions.registry import Points, arguments_of
from query_dsl.functions.sampled import numeric_samples, shift_samples
from query_dsl.functions.tables import MAPPERS, POINTS
from query_dsl.results.bucket_data import BucketData
from query_dsl.results.cells import STRING, Ints, Key
from query_dsl.results.irregular import Irregular
from query_dsl.results.matrix import Matrix
from query_dsl.stores.cutting import cut
from query_dsl.stores.limits import LimitExceeded
from query_dsl.stores.rows import Rows
from query_dsl.tree import nodes
from query_dsl.tree.errors import NothingSelected, QueryError
from query_dsl.tree.timing import format_duration, format_time

CELL_BYTES = 8
FROM_BUCKETS = ("last", "min", "max", "sum", "mean", "count")
"""Window functions to which the statistics of one bucket say all there is to know."""


def run_samples(node: nodes.Node, after_ms: int, until_ms: int, context: Context) -> Irregular:
    """What `node`, which works on raw samples, gives for times in (after_ms, until_ms], without series that have no
    sample. QueryError has the place of the innermost node."""
    context.check()
    try:
        return _run(node, after_ms, until_ms, context).filled()
    except QueryError as problem:
        if node.span is not None:
            problem.at(node.span[0], None, node.span[1])
        raise


def _run(node: nodes.Node, after_ms: int, until_ms: int, context: Context) -> Irregular:
    match node:
        case nodes.Samples():
            return _samples(node, after_ms, until_ms, context)
        case nodes.Range() | nodes.Between() | nodes.At():
            return run_samples(node.child, after_ms, until_ms, context)
        case nodes.Offset(child=child, offset_ms=ms):
            earlier = 0 if _apart(child) else ms
            return shift_samples(
                run_samples(child, after_ms - earlier, until_ms - earlier, context), {"d": ms}, context
            )
        case nodes.Named(child=child, name=name):
            found = run_samples(child, after_ms, until_ms, context)
            return found.renamed([Key(name, key.labels) for key in found.keys])
        case nodes.Step():
            return _step(node, after_ms, until_ms, context)
        case nodes.Point():
            return _point(node, run_samples(node.child, after_ms, until_ms, context), context)
        case nodes.Window():
            return _window(node, after_ms, until_ms, context)
    raise _needs_grid(type(node).__name__.lower())


def _needs_grid(name: str) -> QueryError:
    return QueryError(
        f'{name} takes series on a grid, and samples() gives raw samples: say .bucketize("last", "1m") before'
    )


def _samples(node: nodes.Samples, after_ms: int, until_ms: int, context: Context) -> Irregular:
    found = context.samples(node.selector, after_ms, until_ms)
    if not len(found):
        if not context.store.find(node.selector.matchers, 1):
            raise NothingSelected(why_nothing(node.selector, context))
        span = f"({format_time(after_ms)} .. {format_time(until_ms)}]"
        context.note(f"{node.selector}: no series that fits has a sample in {span}")
    return found


def _step(node: nodes.Step, after_ms: int, until_ms: int, context: Context) -> Irregular:
    entry = entry_of(node)
    if entry.on_samples is None:
        raise _needs_grid(entry.name)
    args = arguments_of(entry, node.args)
    earlier = args["d"] if entry.name == "shift" and not _apart(node.child) else 0
    return entry.on_samples(run_samples(node.child, after_ms - earlier, until_ms - earlier, context), args, context)


def _apart(node: nodes.Node) -> bool:
    """Whether the times that `node` gives have left the time that is asked for, which then says only what is read."""
    return any(isinstance(one, nodes.Step) and one.function == "modulo" for one in nodes.walk(node))


def _point(node: nodes.Point, found: Irregular, context: Context) -> Irregular:
    """A function of each value; where it gives nothing, the sample goes."""
    point = POINTS[node.function]
    if not point.texts:
        found = numeric_samples(found, point.name, context)
    elif not point.numbers:
        found = _texts(found, point.name, context)
    owner_types = found.types[found.owner]
    types, cells, keep = found.types.copy(), np.array(found.cells), np.ones(found.samples, np.bool_)
    points = Points(found.times, list(found.strings))
    args = arguments_of(point, node.args)
    for kind in np.unique(found.types).tolist():  # all samples of one type in one row
        mine = np.flatnonzero(owner_types == kind)
        points.ends = found.times[mine]
        row = Cells(np.array([kind], np.uint8), found.cells[mine][None, :], np.ones((1, len(mine)), np.bool_))
        column = point.run(row, args, points)
        types[found.types == kind] = column.types[0]
        cells[mine], keep[mine] = column.cells[0], column.present[0]
    return found.computed(types=types, cells=cells, strings=tuple(points.strings)).keep(keep)


def _texts(found: Irregular, function: str, context: Context) -> Irregular:
    rows = np.flatnonzero(found.types == STRING)
    if not len(rows) and len(found):
        raise QueryError(f"{function} takes STRING, and no series is one: {', '.join(found.series[:3])}")
    if len(rows) < len(found):
        context.note(f"{function}: {len(found) - len(rows)} series that are no STRING left out")
    return found.take(rows)


def _window(node: nodes.Window, after_ms: int, until_ms: int, context: Context) -> Irregular:
    """A window at each sample; where it has no value, the sample goes."""
    mapper = mapper_of(node.function) if isinstance(node.function, nodes.Own) else MAPPERS[node.function]
    if node.before_ms is None:
        raise QueryError(f'{mapper.name} of raw samples needs a window, which has no step here: .{mapper.name}("5m")')
    gap_ms = LEAST_GAP_MS if node.max_gap_ms is None else node.max_gap_ms
    back, ahead = node.before_ms + (gap_ms if mapper.predecessor else 0), node.after_ms
    apart = _apart(node.child)
    if apart:  # nothing lies before or behind what is read
        back = ahead = 0
    found = _suited(run_samples(node.child, after_ms - back, until_ms + ahead, context), mapper, context)
    shown = apart | ((found.times > after_ms) & (found.times <= until_ms))
    if isinstance(node.function, nodes.Own):
        made = own_at_samples(node, node.function, node.before_ms, found, context)
        return made.keep(apart | ((made.times > after_ms) & (made.times <= until_ms)))
    try:
        column = run_irregular(
            mapper,
            ticks_of(found),
            node.before_ms,
            node.after_ms,
            arguments_of(mapper, node.args),
            max_gap_ms=gap_ms,
            min_count=node.rules.min_count,
            check=context.check,
        )
    except TooWide as problem:
        raise LimitExceeded(f"{mapper.name}: {problem}") from problem
    strings = found.strings if mapper.strings else ()
    made = found.computed(types=column.types, cells=column.cells[0], strings=strings)
    return made.keep(column.present[0] & shown)


def _suited(found: Irregular, mapper: Mapper, context: Context) -> Irregular:
    """The series that the function takes; warns of gauges under a counter's function."""
    if not mapper.strings:
        found = numeric_samples(found, mapper.name, context)
    gauges = np.flatnonzero(found.kinds == Kind.GAUGE)
    if mapper.counter and len(gauges):
        say_gauges(mapper, len(gauges), found.keys[gauges[0]], context)
    return found


def ticks_of(found: Irregular) -> Ticks:
    """The samples as window functions take them."""
    return Ticks(
        starts=found.starts,
        times=found.times,
        cells=found.cells,
        types=found.types,
        births=_births(found),
        kinds=found.kinds,
        ended_ms=found.ended_ms,
    )


def _births(found: Irregular) -> Ints | None:
    """Births of lives that come one after another, as buckets have them."""
    return None if found.births is None else births_in_succession(found.owner, found.times, found.births)


def bucketize_samples(node: nodes.Bucketize, grid: Grid, context: Context) -> Matrix | None:
    """The window function of `node` over all samples of each bucket of `grid`; None where buckets tell as much."""
    if node.function in FROM_BUCKETS:
        return None
    mapper = mapper_of(node.function) if isinstance(node.function, nodes.Own) else MAPPERS[node.function]
    gap_ms = max(LEAST_GAP_MS, 2 * grid.step_ms) if node.max_gap_ms is None else node.max_gap_ms
    back = gap_ms if mapper.predecessor else 0
    found = _suited(run_samples(node.child, grid.start_ms - back, grid.end_ms, context), mapper, context)
    _refuse_duplicates(found)
    _hold(found, grid, 2, context)
    if node.rules.nulls == "error":
        _refuse_empty(mapper, found, grid)
    if isinstance(node.function, nodes.Own):
        return own_of_buckets(node, node.function, found, grid, context)
    args, least = arguments_of(mapper, node.args), node.rules.min_count
    column = run_on_grid(
        mapper, ticks_of(found), grid, args, max_gap_ms=gap_ms, min_count=least, check=context.check
    )  # fmt: skip
    return Matrix(found.keys, grid, column, found.strings if mapper.strings else ())


def _refuse_empty(mapper: Mapper, found: Irregular, grid: Grid) -> None:
    inside = (found.times > grid.start_ms) & (found.times <= grid.end_ms)
    at = found.owner[inside] * grid.n + (found.times[inside] - grid.start_ms - 1) // grid.step_ms
    empty = np.setdiff1d(np.arange(len(found) * grid.n), at)
    if len(empty):
        row, column = divmod(int(empty[0]), grid.n)
        end = format_time(int(grid.ends()[column]))
        raise QueryError(f'{mapper.name}: {found.series[row]} has no sample in the bucket {end}, and nulls="error"')


def bucketed(found: Irregular, grid: Grid, context: Context) -> BucketData:
    """The samples in buckets of `grid`, with the statistics, lives and ends of a fetch. Series in the order they have;
    QueryError if two have one key, LimitExceeded beyond the memory that a query may hold."""
    _refuse_duplicates(found)
    _hold(found, grid, len(STATISTICS), context)
    strings, cells = _sorted_texts(found)
    owner, births = found.owner, _births(found)
    births = np.zeros(found.samples, np.int64) if births is None else births
    piece = cut(Rows(owner, found.times, births, found.types[owner], cells, strings), grid)
    stats: dict[str, Any] = {}
    for name in STATISTICS:
        dense = np.zeros(len(found) * grid.n, np.int64)
        dense[piece.cuts.at] = piece.cuts.stats[name]
        stats[name] = dense.reshape(len(found), grid.n)
    return BucketData(
        keys=found.keys,
        kinds=found.kinds,
        types=found.types,
        strings=strings,
        grid=grid,
        stats=stats,
        lives=piece.lives if found.births is not None else np.zeros(0, BIRTH_TYPE),
        ended_ms=found.ended_ms,
        stored=found.births is not None,
    )


def _refuse_duplicates(found: Irregular) -> None:
    seen: set[Key] = set()
    for i, key in enumerate(found.keys):
        if key in seen:
            raise QueryError(
                f'bucketize: two series are {found.series[i]}: say .transform("merge") before, or tell them apart'
            )
        seen.add(key)


def _hold(found: Irregular, grid: Grid, statistics: int, context: Context) -> None:
    """Count what the buckets will hold."""
    allowed, refusal = context.watch.series_allowed(grid.n, statistics)
    if len(found) > allowed:
        raise LimitExceeded(f"bucketize by {format_duration(grid.step_ms)} of {len(found):,} series: {refusal}")
    context.watch.took(len(found), len(found) * grid.n * statistics * CELL_BYTES, 0)


def _sorted_texts(found: Irregular) -> tuple[tuple[str, ...], Ints]:
    """Texts in order, each once, and all cells that stand for them: buckets keep the greater of two at one time."""
    if not (found.types == STRING).any():
        return (), found.cells
    strings = tuple(sorted(set(found.strings)))
    place = {text: i for i, text in enumerate(strings)}
    numbers = np.array([place[text] for text in found.strings], np.int64)
    texts = found.types[found.owner] == STRING
    return strings, np.where(texts, numbers[np.where(texts, found.cells, 0)], found.cells)
