"""Window functions of adjacent values: changes, resets and irate."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from artimon.compute.arrays import Arrays, Mapped
from artimon.compute.cells import DOUBLE, INTEGER, Bools, Cells, Floats, Ints, doubles, of_type
from artimon.compute.function import ROW, Example, Function
from artimon.compute.incarnation_index import IncarnationIndex
from artimon.compute.panes import has_many_samples
from artimon.compute.window_frames import WindowFrame, integer_totals, newest_present, oldest_present, pick

CHUNK_CELLS = 1 << 19
_HALF_RANGE = 2.0**62


def run_in_chunks(run: Callable[[Arrays, WindowFrame], Cells], data: Arrays, frame: WindowFrame) -> Cells:
    """Call `run` on chunks of series, to bound its temporary arrays."""
    each = max(1, CHUNK_CELLS // max(data.grid.n, len(frame.ends)))
    if each >= data.rows:
        return run(data, frame)
    parts = [run(_chunk(data, start, start + each), frame) for start in range(0, data.rows, each)]
    types, cells, present = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    return Cells(types, cells, present)


def _chunk(data: Arrays, start: int, end: int) -> Arrays:
    first, last = np.searchsorted(data.lives["row"], (start, end))
    lives = data.lives[first:last].copy()
    lives["row"] -= start
    return data.chosen(slice(start, end), lives)


def changes(data: Arrays, frame: WindowFrame) -> Cells:
    """Count the values that differ from their predecessor in the window; NaN equals NaN."""
    present, differs = data.present, differing(data)
    counted = integer_totals(differs.astype(np.int64), frame)
    first, some = first_present(present, frame)
    counted -= some & pick(differs, first)  # its predecessor lies before the window
    return of_type(INTEGER, counted, some)


def differing(data: Arrays) -> Bools:
    """Return the mask (series, columns) of the values that differ from their predecessor; NaN equals NaN."""
    present = data.present
    before = _previous_present(present)
    cells = data.stats["last"]
    earlier = pick(cells, before)
    differs = np.not_equal(cells, earlier)
    double = data.types == DOUBLE
    if double.any():
        a, b = _doubles(cells[double]), _doubles(earlier[double])
        differs[double] = (a != b) & ~(np.isnan(a) & np.isnan(b))
    return np.asarray(differs & present & (before >= 0))


def resets(data: Arrays, frame: WindowFrame) -> Cells:
    """Count the incarnations that begin in the window within `max_gap` of another. Of computed values, count decreases;
    the predecessor may lie before the window, as for `increase`."""
    some = integer_totals(data.present.astype(np.int64), frame) > 0
    counted = IncarnationIndex.of(data).count_restarts(frame) if data.stored else _decreases(data, frame)
    return of_type(INTEGER, counted, some)


def _decreases(data: Arrays, frame: WindowFrame) -> Ints:
    present = data.present
    before = _previous_present(present)
    cells = data.stats["last"]
    earlier = pick(cells, before)
    falls = cells < earlier
    double = data.types == DOUBLE
    if double.any():
        falls[double] = _doubles(cells[double]) < _doubles(earlier[double])
    falls &= present & (before >= 0)
    counted = integer_totals(falls.astype(np.int64), frame)
    first, some = first_present(present, frame)
    stale = pick(data.stats["last_time"], pick(before, first)) < frame.start_ms - frame.max_gap_ms
    counted -= some & stale & pick(falls, first)
    return np.asarray(counted)


def last_rate(data: Arrays, frame: WindowFrame) -> Cells:
    """Growth per second between the two newest non-empty buckets of the window, from 0 if the newer one belongs to
    another incarnation."""
    known = newest_present(data.present)
    last = known[:, frame.ends]
    before = np.where(last > 0, pick(known, last - 1), -1)
    present = (before > frame.starts) & (before >= 0)
    since_ms, until_ms = pick(data.stats["last_time"], before), pick(data.stats["last_time"], last)
    anew = IncarnationIndex.of(data).begins_in(since_ms, until_ms)
    base = np.where(anew, 0, pick(data.stats["last"], before))  # 0 is also the bits of 0.0
    with np.errstate(all="ignore"):
        grown = _subtract(data, pick(data.stats["last"], last), base)
        return doubles(grown / ((until_ms - since_ms) / 1000.0), present)


def _subtract(data: Arrays, cells: Ints, base: Ints) -> Floats:
    """Return cells - base, rounded once if int64 holds the difference."""
    rounded = cells.astype(np.float64) - base.astype(np.float64)
    out = np.where(np.abs(rounded) < _HALF_RANGE, (cells - base).astype(np.float64), rounded)
    double = data.types == DOUBLE
    if double.any():
        out[double] = _doubles(cells[double]) - _doubles(base[double])
    return out


def _previous_present(present: Bools) -> Ints:
    """Return the index of the newest present column before each, -1 if there is none; (series, columns)."""
    out = np.full(present.shape, -1, np.int64)
    out[:, 1:] = newest_present(present)[:, :-1]
    return out


def first_present(present: Bools, frame: WindowFrame) -> tuple[Ints, Bools]:
    """Return the oldest present column of each window and the mask of windows that have one; (series, outputs)."""
    first = oldest_present(present)[:, frame.starts + 1]
    return first, np.asarray(first <= frame.ends)


def _doubles(cells: Ints) -> Floats:
    return np.ascontiguousarray(cells).view(np.float64)


def _function(
    name: str,
    summary: str,
    rows: tuple[float | None, ...],
    unit: str,
    statistics: tuple[str, ...],
    run: Callable[[Arrays, WindowFrame], Cells],
    *,
    strings: bool = False,
    predecessor: bool = False,
    edges: bool = False,
    pair: bool = False,
    exact: bool = False,
) -> Function:
    """Build an entry. `exact`: the result is exact even if buckets hold more than one sample."""
    return Function(
        name=name,
        summary=summary,
        example=f"fetch('{'build.version' if strings else 'http.requests'}').{name}(\"{'5m' if edges else '1h'}\")",
        case=Example(ROW, rows),
        unit=unit,
        statistics=statistics,
        run=lambda data, frame, _: Mapped(
            run_in_chunks(run, data, frame), None if exact else has_many_samples(data, frame)
        ),
        strings=strings,
        predecessor=predecessor,
        births=not strings,
        counter=not strings,
        edges=edges,
        pair=pair,
    )


_TIMED = ("last", "last_time")
FUNCTIONS = (
    _function(
        "irate",
        "Growth per second between the two newest buckets with samples; from 0 after a reset between them (DOUBLE).",
        (None, 600.0, None, None),
        "of the series, per second",
        _TIMED,
        last_rate,
        edges=True,
        pair=True,
    ),
    _function(
        "changes",
        "Number of values that differ from the one before in the window (INTEGER), STRING too; NaN equals NaN.",
        (0.0, 1.0, 0.0, 0.0),
        "changes",
        ("last",),
        changes,
        strings=True,
    ),
    _function(
        "resets",
        "Number of resets in the window, within `max_gap` of the last sample (INTEGER); of computed values: decreases.",
        (0.0, 0.0, 0.0, 0.0),
        "resets",
        _TIMED,
        resets,
        predecessor=True,
        exact=True,
    ),
)
