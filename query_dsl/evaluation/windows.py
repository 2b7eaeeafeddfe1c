"""Window functions: over buckets of a grid, and at each raw sample. Own functions run here too.

A window over buckets evaluates its child on a wider grid than its own; `nulls` and `min_count` mask the result.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import gcd
from typing import Any

import numpy as np

from artimon.compute.arrays import Mapped
from artimon.compute.function import count_wide, has_no_gaps, mask_windows
from artimon.compute.raw_windows import SeriesSamples, WindowsTooWide, run_at_each_sample
from artimon.compute.succession import normalize_start_times
from artimon.compute.window_frames import WindowFrame
from artimon.model.grid import Grid
from artimon.model.values import INT64_MAX, INT64_MIN, Kind
from query_dsl.evaluation.calendar_buckets import place_columns
from query_dsl.evaluation.execution import QueryExecution, grid_required
from query_dsl.evaluation.udf import UdfResult, WindowSpans, result_type_of, run_udf_spans, run_udf_window
from query_dsl.functions.join import series_name
from query_dsl.functions.mappers import Mapper
from query_dsl.functions.registry import with_defaults
from query_dsl.functions.tables import MAPPERS
from query_dsl.results.bucket_data import BucketData, is_numeric, share_equal_texts
from query_dsl.results.matrix import Matrix
from query_dsl.results.raw_series import RawSeries
from query_dsl.results.result_cells import Bools, Example, Ints, SeriesKey
from query_dsl.stores.query_limits import LimitExceeded
from query_dsl.tree import nodes
from query_dsl.tree.calendar_units import CalendarGrid, CalendarUnit
from query_dsl.tree.query_errors import QueryError
from query_dsl.tree.times import format_duration, format_time

MIN_DEFAULT_GAP_MS = 300_000
"""Least default of max_gap_ms, within which the value before a window is searched."""
MAX_WINDOW_COLUMNS = 20_000
"""Maximum number of buckets per series that a window function reads."""
APPROXIMATE = "points are approximate"
"""Words of the notes on such points."""
ROUNDED_UP = "is rounded up"
"""Words of the notes on windows that are longer than asked for."""
Windowed = nodes.Window | nodes.Bucketize


@dataclass(frozen=True, slots=True)
class WindowColumns:
    """Columns that a window function reads for `grid`; `wide` is the grid of its child."""

    mapper: Mapper
    grid: Grid
    wide: Grid
    frame: WindowFrame


def window_columns(
    node: nodes.Window, grid: Grid, execution: QueryExecution, base_step_ms: int | None = None
) -> WindowColumns:
    """Return the columns that `node` reads for `grid`; `base_step_ms`: step of the child (default: the grid's)."""
    mapper = mapper_of(node, execution)
    step = base_step_ms or finer_step_ms(node, grid, execution) or grid.step_ms
    before = _steps(node.before_ms or grid.step_ms, step, mapper, execution)
    after = _steps(node.after_ms, step, mapper, execution)
    gap_ms = node.max_gap_ms if node.max_gap_ms is not None else max(MIN_DEFAULT_GAP_MS, 2 * grid.step_ms)
    # the value before a window may lie in any bucket within the gap
    lead = _lead_columns(gap_ms, step, execution) if mapper.predecessor else 0
    each = grid.step_ms // step
    if node.max_gap_ms is None:  # five minutes may exceed the limit with buckets of a few ms
        lead = min(lead, max(0, MAX_WINDOW_COLUMNS - (grid.n - 1) * each - before - after))
    wide = Grid(grid.end_ms + after * step, step, (grid.n - 1) * each + before + after + lead)
    if wide.n > MAX_WINDOW_COLUMNS:
        raise QueryError(f"{mapper.name} would read {wide.n} buckets a series: use at most {MAX_WINDOW_COLUMNS}")
    first_end = lead + before + after - 1
    ends = first_end + each * np.arange(grid.n, dtype=np.int64)
    width_ms = (before + after) * step
    frame = WindowFrame(ends, before + after, grid.ends() + after * step, width_ms, gap_ms, after * step)
    if mapper.pair and frame.width == 1 and dict(node.args).get("ddof") != 0:
        execution.note(f"{mapper.name}: one value has no result: give a window of several steps, as in '10m'")
    return WindowColumns(mapper, grid, wide, frame)


def finer_step_ms(node: nodes.Window, grid: Grid, execution: QueryExecution) -> int | None:
    """Return the step of the coarsest level that holds, whole, the windows that are no multiple of the step of `grid`.
    None: no level does, or they are multiples."""
    spans = (node.before_ms or grid.step_ms, node.after_ms)
    child, offset_ms = nodes.below_times(node.child)
    if not any(ms % grid.step_ms for ms in spans) or not isinstance(child, nodes.Fetch):
        return None
    first_ms = grid.start_ms + grid.step_ms - offset_ms - spans[0]
    fit = [
        ring.step_ms
        for ring in execution.plan.levels
        if not any(ms % ring.step_ms for ms in (grid.step_ms, offset_ms, *spans)) and ring.holds(first_ms)
    ]
    return max(fit, default=None)


def run_window(node: nodes.Window, grid: Grid, execution: QueryExecution, base_step_ms: int | None = None) -> Matrix:
    """Apply the window function of `node` at every end of `grid`; `base_step_ms`: see `window_columns`."""
    if node.since is not None:
        return _run_since(node, node.since, grid, execution)
    framed = window_columns(node, grid, execution, base_step_ms)
    data = _read(node, framed, execution)
    cut = note_cut(framed, data.first_held, data.grid, execution)
    ahead = note_open(framed, nodes.below_times(node.child)[1], execution)
    return _apply(node, framed, data, cut | ahead if data.stored else cut, execution)


def _read(node: nodes.Window, framed: WindowColumns, execution: QueryExecution) -> BucketData:
    """Return the statistics of the columns, of the series that the function takes."""
    opening = framed.mapper.opening and framed.frame.max_gap_ms >= framed.wide.step_ms
    data = execution.statistics(node.child, framed.wide, framed.mapper.statistics, opening)
    data = _accepted(data, framed.mapper, execution)
    _warn(framed.mapper, data, node, execution)
    return data


def _apply(
    node: nodes.Window, framed: WindowColumns, data: BucketData, cut: Bools, execution: QueryExecution
) -> Matrix:
    """Apply the function to the windows; those of the mask `cut` are not whole."""
    mapper, frame, rules = framed.mapper, framed.frame, node.rules
    found = mapper.of(data, frame, with_defaults(mapper, node.args))
    note_wide(mapper, count_wide(mapper, data.types, found.column.types), execution)
    if rules.nulls == "error":
        _refuse_empty(mapper, data, frame)
    least = None if isinstance(found, UdfResult) else rules.min_count  # user-defined functions have applied min_count
    masked = mask_windows(found, mapper, data, frame, least, rules.nulls == "propagate")
    column, doubt = masked.column, masked.approximate
    if cut.any() and not execution.plan.partial_windows:
        column = column._replace(present=column.present & ~cut)
        doubt = None if doubt is None else doubt & ~cut
    if doubt is not None:
        note_approximate(mapper, int(doubt.sum()), execution)
    strings = found.strings if isinstance(found, UdfResult) else data.strings if mapper.strings else ()
    return Matrix(data.keys, framed.grid, column, strings)


def _run_since(node: nodes.Window, unit: CalendarUnit, grid: Grid, execution: QueryExecution) -> Matrix:
    """Apply the function to windows from the starts of calendar units on: all windows of one length together."""
    ends_ms = grid.ends()
    starts_ms = np.array([unit.start_of(end - 1) for end in ends_ms.tolist()], np.int64)
    step_ms = _since_step_ms(node, unit, starts_ms, grid, execution)
    every = replace(node, since=None, before_ms=int(grid.end_ms - starts_ms[0]))
    whole = window_columns(every, Grid(grid.end_ms, grid.step_ms, 1), execution, step_ms)
    data = _read(node, whole, execution)
    parts = []
    for width_ms in np.unique(ends_ms - starts_ms).tolist():
        at = np.flatnonzero(ends_ms - starts_ms == width_ms)
        ends = (ends_ms[at] - whole.wide.start_ms) // step_ms - 1
        frame = WindowFrame(ends, width_ms // step_ms, ends_ms[at], width_ms, whole.frame.max_gap_ms)
        framed = replace(whole, grid=CalendarGrid((int(starts_ms[at[0]]), *ends_ms[at].tolist())), frame=frame)
        cut = note_cut(framed, data.first_held, data.grid, execution)
        parts.append((at, _apply(node, framed, data, cut, execution)))
    return place_columns(parts, grid)


def _since_step_ms(
    node: nodes.Window, unit: CalendarUnit, starts_ms: Ints, grid: Grid, execution: QueryExecution
) -> int:
    """Return the step of the coarsest level that holds the windows and has buckets which end where they begin."""
    child, offset_ms = nodes.below_times(node.child)
    needed = gcd(grid.step_ms, offset_ms, *starts_ms.tolist())
    if not needed % grid.step_ms:
        return grid.step_ms
    fit = [ring for ring in execution.plan.levels if not needed % ring.step_ms]
    if not fit or not isinstance(child, nodes.Fetch):
        raise QueryError(
            f"{node.function}: no bucket of {format_duration(grid.step_ms)} ends at the start of {unit} in {unit.zone}"
        )
    held = [ring for ring in fit if ring.holds(int(starts_ms[0]) - offset_ms)]
    return max(held or fit, key=lambda ring: ring.step_ms).step_ms


def mapper_of(node: Windowed, execution: QueryExecution) -> Mapper:
    """Return the window function of a node; a user-defined function is wrapped to read `last` and `last_time`."""
    function = node.function
    if isinstance(function, str):
        return MAPPERS[function]
    own = function

    def run(data: Any, frame: WindowFrame, _args: object) -> Mapped:
        return run_udf_window(own.call, data, frame, result_type_of(node.args), execution.budget, _min_count(node))

    return Mapper(
        name=own.name,
        statistics=("last", "last_time"),
        run=run,
        min_count=0,
        strings=True,
        summary="An own function.",
        example="",
        case=Example((), ()),
    )


def _min_count(node: Windowed) -> int:
    return 1 if node.rules.min_count is None else node.rules.min_count


def _lead_columns(gap_ms: int, step: int, execution: QueryExecution) -> int:
    """Number of columns before a window that cover the gap, at most those of a ring without history."""
    ring = execution.plan.level(step)
    wanted = -(-gap_ms // step) + 1
    return min(wanted, MAX_WINDOW_COLUMNS if ring is None or ring.unbounded else ring.count + ring.spare)


def _steps(ms: int, step: int, mapper: Mapper, execution: QueryExecution) -> int:
    """Number of steps that cover a window. A window that is no multiple of the step is rounded up, with a note."""
    count = -(-ms // step)
    if ms % step:
        execution.note(
            f"{mapper.name}: the window {format_duration(ms)} {ROUNDED_UP} to {format_duration(count * step)}, a "
            f"multiple of the step {format_duration(step)}"
        )
    return count


def _accepted(data: BucketData, mapper: Mapper, execution: QueryExecution) -> BucketData:
    """Drop STRING series unless the function accepts them; then give equal texts one cell."""
    rows = np.flatnonzero(is_numeric(data.types))
    if len(rows) == len(data.keys):
        return data
    if mapper.strings:
        return share_equal_texts(data) if "last" in data.stats else data
    if not len(rows):
        names = ", ".join(series_name(key) for key in data.keys[:3])
        raise QueryError(f"{mapper.name} cannot take STRING series, and there are no others: {names}")
    note_left_out(mapper.name, len(data.keys) - len(rows), execution)
    return data.select_rows(rows)


def _warn(mapper: Mapper, data: BucketData, node: nodes.Window, execution: QueryExecution) -> None:
    if not mapper.counter:
        return
    gauges = np.flatnonzero(data.kinds == Kind.GAUGE)
    if len(gauges):
        note_gauges(mapper, len(gauges), data.keys[gauges[0]], execution)
    if any(isinstance(inner, nodes.Reduce | nodes.Binary) for inner in nodes.walk(node.child)):
        execution.note(f"warning: {computed_text(mapper.name)}")
    elif not data.stored:
        execution.note(f"warning: {mapper.name} of computed values: they have no births")


def note_left_out(function: str, series: int, execution: QueryExecution) -> None:
    """Add a note that STRING series are left out."""
    execution.note(f"{function}: {series} STRING series left out")


def note_gauges(mapper: Mapper, series: int, first: SeriesKey, execution: QueryExecution) -> None:
    """Add a warning that a function for counters was applied to gauges."""
    execution.note(f"warning: {gauges_text(mapper.name, series, series_name(first))}")


def gauges_text(function: str, series: int, first: str) -> str:
    """Return the warning about a function for counters that is applied to gauges."""
    return f"{function} of {series} gauges, such as {first}: delta is meant for them"


def computed_text(function: str) -> str:
    """Return the warning about a function for counters that is applied to sums."""
    return f"{function} of what was reduced or computed does not see resets: take the {function} first"


def note_approximate(mapper: Mapper, points: int, execution: QueryExecution) -> None:
    """Add a note on the number of points that are approximate, or missing for the same reason."""
    if points:
        execution.approximate = mapper.name
        gap = ", or of which memory lacks the value before the window" if mapper.predecessor else ""
        execution.note(f"{mapper.name}: {points} {APPROXIMATE}, from buckets that hold more than one sample{gap}")


def note_wide(mapper: Mapper, series: int, execution: QueryExecution) -> None:
    """Add a note on series whose integers do not fit into int64."""
    if series:
        execution.note(f"{mapper.name}: {series} series exceed 64 bits: their values are DOUBLE, rounded beyond 2^53")


def cut_windows(frame: WindowFrame, first_held: int) -> Bools:
    """Return the mask (outputs,) of windows that begin before column `first_held`."""
    return np.asarray(frame.starts + 1 < first_held)


def note_cut(framed: WindowColumns, first_held: int, wide: Grid, execution: QueryExecution) -> Bools:
    """Add notes on points whose window (or the value before it) begins before the data of the store; return the mask of
    these windows. `wide` is the grid of the data; the store holds its columns from `first_held` on."""
    mapper, frame, grid = framed.mapper, framed.frame, framed.grid
    cut, empty = cut_windows(frame, first_held), frame.ends < first_held
    if empty.any():
        covered = grid.n - int(empty.sum())
        execution.note(
            f"memory reaches back to {format_time(int(wide.ends()[first_held]) - wide.step_ms)}: "
            f"{covered} of {grid.n} buckets ({100 * covered // grid.n} %) are covered"
        )
    execution.complete &= not cut.any()
    short = int((cut & ~empty).sum())
    if short:
        execution.note(
            f"{mapper.name}: the window of {short} points begins before what memory holds: {_shown(execution)}"
        )
    alone = int((frame.starts + 1 == first_held).sum()) if mapper.predecessor and first_held else 0
    if alone:
        execution.note(f"{mapper.name}: the value before the window of {alone} points is not in memory")
    return cut


def open_windows(framed: WindowColumns, offset_ms: int, execution: QueryExecution) -> Bools:
    """Return the mask (outputs,) of windows that reach ahead, beyond the newest settled bucket. `offset_ms`: time by
    which the data lies before the windows."""
    ring = execution.plan.level(framed.wide.step_ms)
    if not framed.frame.lookahead_ms or ring is None:
        return np.zeros(framed.grid.n, np.bool_)
    return np.asarray(framed.frame.end_ms - offset_ms > ring.newest_ms)


def note_open(framed: WindowColumns, offset_ms: int, execution: QueryExecution) -> Bools:
    """Add a note on the points of `open_windows`; return their mask."""
    ahead = open_windows(framed, offset_ms, execution)
    if late := int(ahead.sum()):
        execution.complete = False
        shown = _shown(execution)
        execution.note(
            f"{framed.mapper.name}: the window of {late} points ends after the newest settled bucket: {shown}"
        )
    return ahead


def _shown(execution: QueryExecution) -> str:
    return "partial" if execution.plan.partial_windows else "NA; partial_windows=True shows what there is"


def _refuse_empty(mapper: Mapper, data: BucketData, frame: WindowFrame) -> None:
    full = has_no_gaps(data, frame)
    if full.all():
        return
    row, at = (int(i[0]) for i in np.nonzero(~full))
    raise QueryError(
        f"{mapper.name}: {series_name(data.keys[row])} has an empty bucket in the window that ends at "
        f'{format_time(int(frame.end_ms[at]))}, and nulls="error"'
    )


# --- raw samples


def run_at_samples(node: nodes.Window, after_ms: int, until_ms: int, execution: QueryExecution) -> RawSeries:
    """Apply a window function at each raw sample; samples without a result are dropped."""
    mapper = mapper_of(node, execution)
    if node.before_ms is None:
        raise QueryError(f'{mapper.name} of raw samples needs a window, which has no step here: .{mapper.name}("5m")')
    gap_ms = MIN_DEFAULT_GAP_MS if node.max_gap_ms is None else node.max_gap_ms
    back, ahead = node.before_ms + (gap_ms if mapper.predecessor else 0), node.after_ms
    apart = replaces_times(node.child)
    if apart:  # windows cannot extend beyond the samples that are read
        back = ahead = 0
    found = accepted_samples(execution.raw(node.child, after_ms - back, until_ms + ahead), mapper, execution)
    shown = apart | ((found.times > after_ms) & (found.times <= until_ms))
    if isinstance(node.function, nodes.UserFunction):
        owned = run_udf_samples(node, node.function, found, _around(node.before_ms, ahead), None, execution)
        column, strings = owned.column, owned.strings
        types = np.full(len(found), column.types[0], np.uint8)
    else:
        args, least = with_defaults(mapper, node.args), node.rules.min_count
        try:
            column = run_at_each_sample(
                mapper, to_series_samples(found), node.before_ms, node.after_ms, args,
                max_gap_ms=gap_ms, min_count=least, check=execution.check,
            )  # fmt: skip
        except WindowsTooWide as problem:
            raise LimitExceeded(f"{mapper.name}: {problem}") from problem
        note_wide(mapper, count_wide(mapper, found.types, column.types), execution)
        types, strings = column.types, found.strings if mapper.strings else ()
    made = found.as_computed(types=types, cells=column.cells[0], strings=strings)
    return made.keep(column.present[0] & shown)


def run_udf_samples(
    node: Windowed,
    function: nodes.UserFunction,
    found: RawSeries,
    windows: Callable[[Ints], WindowSpans],
    columns: int | None,
    execution: QueryExecution,
) -> UdfResult:
    """Apply a user-defined function to windows of raw samples: see `run_udf_spans`."""
    gives, watch = result_type_of(node.args), execution.budget
    return run_udf_spans(function.call, found, windows, columns, gives, watch, _min_count(node))


def _around(before_ms: int, after_ms: int) -> Callable[[Ints], WindowSpans]:
    """Return a function that makes a window around each of its times."""

    def windows(times: Ints) -> WindowSpans:
        starts = np.maximum(times, INT64_MIN + before_ms) - before_ms
        ends = np.minimum(times, INT64_MAX - after_ms) + after_ms
        return WindowSpans(np.searchsorted(times, starts, "right"), np.searchsorted(times, ends, "right"), ends)

    return windows


def replaces_times(node: nodes.Node) -> bool:
    """True if a step of `node` replaces sample times (`modulo`); the query range then only selects samples to read."""
    return any(isinstance(one, nodes.Transform) and one.function == "modulo" for one in nodes.walk(node))


def accepted_samples(found: RawSeries, mapper: Mapper, execution: QueryExecution) -> RawSeries:
    """Keep the series that the function accepts; warn of gauges under a function for counters."""
    if mapper.grid_only:
        raise grid_required(mapper.name)
    if not mapper.strings:
        found = execution.numeric_only(found, mapper.name)
    gauges = np.flatnonzero(found.kinds == Kind.GAUGE)
    if mapper.counter and len(gauges):
        note_gauges(mapper, len(gauges), found.keys[gauges[0]], execution)
    return found


def to_series_samples(found: RawSeries) -> SeriesSamples:
    """Convert the samples to the form that window functions read."""
    return SeriesSamples(
        starts=found.starts,
        times=found.times,
        cells=found.cells,
        types=found.types,
        births=normalized_start_times(found),
        kinds=found.kinds,
        ended_ms=found.ended_ms,
    )


def normalized_start_times(found: RawSeries) -> Ints | None:
    """Start times normalized so that lives follow one another, as in buckets; None if unknown."""
    return None if found.births is None else normalize_start_times(found.owner, found.times, found.births)
