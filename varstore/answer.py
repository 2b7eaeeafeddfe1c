"""From slots to the `Buckets` that an engine answers with."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from artimon.model.grid import Grid, Level
from artimon.model.select import STATISTICS, Buckets, SelectError, SelectRequest, Series
from artimon.model.values import ValueType
from varstore.buckets import BucketStore
from varstore.slots import Slots
from varstore.sums import may_wrap, true_sum
from varstore.ties import Cells

ANSWER_BYTES = 256 * 1024 * 1024
_INT64 = range(-(2**63), 2**63)


def check_request(request: SelectRequest, levels: Sequence[Level], series: int = 1) -> None:
    """SelectError unless a level has the grid's step and the answer stays inside 256 MiB."""
    grid = request.grid
    if not any(level.step_ms == grid.step_ms for level in levels):
        steps = ", ".join(f"{level.count} x {level.step_s} s" for level in levels)
        raise SelectError(f"no level has buckets of {grid.step_ms} ms: the levels are {steps}")
    if grid.end_ms % grid.step_ms:
        raise SelectError(f"the grid ends at {grid.end_ms} ms, which is no multiple of its step of {grid.step_ms} ms")
    unknown = sorted(set(request.statistics) - set(STATISTICS))
    if unknown:
        raise SelectError(f"unknown statistic {unknown[0]!r}: use some of {', '.join(STATISTICS)}")
    size = series * grid.n * 8 * len(set(request.statistics))
    if size > ANSWER_BYTES:
        raise SelectError(
            f"{series} series x {grid.n} buckets x {len(request.statistics)} statistics are {size} bytes, "
            f"at most {ANSWER_BYTES} are allowed: ask for fewer"
        )


def make_buckets(store: BucketStore, request: SelectRequest, slots: Slots, series: Sequence[Series]) -> Buckets:
    """Copies of everything asked for, rows in the order of `slots`; the caller holds the store's lock."""
    read = store.read(slots, request.grid, {*request.statistics, "count"})
    count = read["count"]
    births = store.births(slots)
    is_text = np.array([s.type == ValueType.STRING for s in series], np.bool_)
    strings: tuple[str, ...] = ()
    if is_text.any():
        strings = _renumber(store, is_text, read, births)
    newest = store.lives.newest_ms(slots)
    return Buckets(
        request.grid,
        tuple(series),
        {name: read[name].T for name in request.statistics},
        strings,
        births,
        store.ended_ms(slots, newest),
        newest,
        _sum_notes(store, slots, request.grid, series, count) if "sum" in request.statistics else (),
    )


def _renumber(
    store: BucketStore, is_text: npt.NDArray[np.bool_], read: dict[str, Cells], births: npt.NDArray[np.void]
) -> tuple[str, ...]:
    """Cells of STRING series made indices into the strings of this answer, which are returned."""
    texts = np.flatnonzero(is_text)
    alive = is_text[births["row"]] if len(births) else np.zeros(0, np.bool_)
    held = read["count"][:, texts] > 0
    found = [births["last"][alive]]
    if "last" in read:
        found.append(read["last"][:, texts][held])
    ids = np.unique(np.concatenate(found))
    births["last"][alive] = np.searchsorted(ids, births["last"][alive])
    if "last" in read:
        cells = read["last"][:, texts]
        read["last"][:, texts] = np.where(held, np.searchsorted(ids, cells), 0)
    for name in ("min", "max", "sum"):
        if name in read:  # strings have none
            read[name][:, texts] = 0
    return tuple(store.texts[id] for id in ids.tolist())


def _sum_notes(store: BucketStore, slots: Slots, grid: Grid, series: Sequence[Series], count: Cells) -> tuple[str, ...]:
    """Names the series whose sum does not fit in the 64 bits of an answer, where it is given modulo 2^64."""
    bounds = store.read(slots, grid, ("min", "max", "sum"))
    whole = np.array([s.type in (ValueType.INTEGER, ValueType.BOOLEAN) for s in series], np.bool_)
    wide = may_wrap(count, bounds["min"], bounds["max"]) & whole & (count > 0)
    wrapped: dict[str, int] = {}
    for i, row in np.argwhere(wide).tolist():
        at = (i, row)
        exact = true_sum(int(count[at]), *(int(bounds[name][at]) for name in ("min", "max", "sum")))
        if exact is None or exact not in _INT64:
            wrapped[series[row].name] = wrapped.get(series[row].name, 0) + 1
    return tuple(
        f"sum of {name} exceeds 64 bits in {buckets} buckets: given modulo 2^64" for name, buckets in wrapped.items()
    )
