"""Reducers that need all members of a class at once: order statistics, and the candidates for the k best."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from artimon.compute.cells import Bools, Cells, Floats, Ints, as_floats, is_whole_number
from artimon.compute.paired_sums import exact_sum
from artimon.compute.params import Args, Param
from artimon.compute.partials import Partial
from artimon.compute.quantiles import METHODS, median_of, place_of, quantile_of
from artimon.model.values import INT64_MIN

RANKS = ("last", "max", "min", "each")
"""Criteria for the k best that stores support; a mean would depend on the order of its terms."""
Ranks = Callable[[], Ints]
"""Return the ranks (members,) of names and labels."""
T = TypeVar("T", np.float64, np.bool_)

ORDERED: Mapping[str, tuple[Param, ...]] = MappingProxyType(
    {
        "quantile": (
            Param("q", "number", least=0, most=1),
            Param("method", "choice", "linear", choices=tuple(METHODS)),
        ),
        "median": (),
        "mad": (),
        "variance": (),
    }
)
"""Order statistics and their parameters. The result does not depend on the order of the members."""
_BEST = (Param("k", "integer", least=1), Param("rank", "choice", "last", choices=RANKS))
BEST: Mapping[str, tuple[Param, ...]] = MappingProxyType({"topk": _BEST, "bottomk": _BEST})
"""Reducers for which a store only answers the candidates, with their parameters."""


@dataclass(frozen=True, slots=True)
class Statistic:
    """Statistic (..,) of ascending values (.., size), missing ones last, and the number of present ones (..,)."""

    of: Callable[[Floats, Ints], Floats]
    place: Callable[[int], int] | None = None
    """Place in so many present values, if only the value there and the next one are read; None: all are."""


def quantile(q: float, method: str) -> Statistic:
    """Return the quantile of values."""
    return Statistic(lambda ordered, counts: quantile_of(ordered, counts, q, method), partial(place_of, q, method))


MEDIAN = Statistic(median_of, lambda count: max(count - 1, 0) // 2)


def statistic_of(reducer: str, args: Args) -> Statistic:
    """Return the implementation of one of ORDERED."""
    if reducer == "quantile":
        return quantile(args["q"], args["method"])
    return {"median": MEDIAN, "mad": DISTANCE, "variance": Statistic(variance_of)}[reducer]


def variance_of(ordered: Floats, counts: Ints) -> Floats:
    """Return the population variance. Values count from the least one, so that equal ones have none."""
    here = np.arange(ordered.shape[-1]) < counts[..., None]
    apart = np.where(here, ordered - ordered[..., :1], 0.0)
    mean = exact_sum(apart) / counts
    return exact_sum(np.where(here, (apart - mean[..., None]) ** 2, 0.0)) / counts


def distance_of(ordered: Floats, counts: Ints) -> Floats:
    """Return the median of the distances to the median, unscaled."""
    distances = np.abs(ordered - median_of(ordered, counts)[..., None])
    strange = np.isnan(distances).sum(axis=-1) > ordered.shape[-1] - counts  # infinity - infinity
    distances.sort(axis=-1)
    return np.where(strange, np.nan, median_of(distances, counts))


DISTANCE = Statistic(distance_of)


def apply_statistic(values: Floats, counts: Ints, statistic: Statistic) -> Floats:
    """Apply `statistic` to the last axis of `values`, which changes. Missing values are NaN; `counts` is the
    number of present ones. The result is NaN if a present one is NaN."""
    if statistic.place is None:
        values.sort(axis=-1)
        last = np.take_along_axis(values, np.maximum(counts - 1, 0)[..., None], axis=-1)[..., 0]
        return np.where(np.isnan(last), np.nan, statistic.of(values, counts))
    out = np.empty(counts.shape)
    for count in np.unique(counts).tolist():
        mine = counts == count
        some = values if mine.all() else values[mine]
        out[mine] = _select(some, count, statistic, statistic.place(count)).ravel()
    return out


def _select(values: Floats, count: int, statistic: Statistic, place: int) -> Floats:
    """Apply a statistic of the values at `place` and after it to rows of `count` present values. numpy selects one
    place ten times faster than two, and three to five times faster than it sorts."""
    values.partition(place, axis=-1)
    strange = np.isnan(values[..., place:]).sum(axis=-1) > values.shape[-1] - count
    rest = values[..., place + 1 :]
    if rest.shape[-1]:
        rest[..., 0] = np.fmin.reduce(rest, axis=-1)
    found = statistic.of(values, np.full(values.shape[:-1], count, np.int64))
    return np.where(strange, np.nan, found)


@dataclass(frozen=True, slots=True)
class MemberBlock:
    """Values (outputs, members) of some members, NaN if absent; `codes` (members,) are the numbers of their classes."""

    codes: Ints
    values: Floats
    present: Bools | None
    """None: all are present."""


def ordered_partial(reducer: str, args: Args, blocks: Sequence[MemberBlock], members: Ints, outputs: int) -> Partial:
    """Return the result of every class as the only partial of its members; `members`: (classes,) their number."""
    statistic, shape = statistic_of(reducer, args), (len(members), outputs)
    codes = np.concatenate([block.codes for block in blocks]) if blocks else np.zeros(0, np.int64)
    sizes = np.bincount(codes, minlength=len(members))
    order = np.lexsort((codes, sizes[codes]))  # classes of equal size side by side
    values = _arrange([block.values for block in blocks], order, outputs, np.float64)
    full = all(block.present is None for block in blocks)
    present = None if full else _arrange([_present_mask(block) for block in blocks], order, outputs, np.bool_)
    out, count = np.zeros(shape), np.zeros(shape, np.int64)
    of_size = sizes[codes[order]]
    bounds = np.flatnonzero(np.diff(of_size, prepend=0, append=0))
    with np.errstate(all="ignore"):
        for start, stop in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
            size = int(of_size[start])
            mine, wide = codes[order[start:stop:size]], (outputs, (stop - start) // size, size)
            some = present if present is None else present[:, start:stop].reshape(wide).sum(axis=-1)
            counts = np.full(wide[:2], size, np.int64) if some is None else some.astype(np.int64)
            out[mine] = apply_statistic(values[:, start:stop].reshape(wide), counts, statistic).T
            count[mine] = counts.T
    return Partial(reducer, members, np.ones(len(members), np.bool_), count, None, out.view(np.int64))


def _present_mask(block: MemberBlock) -> Bools:
    return np.ones(block.values.shape, np.bool_) if block.present is None else block.present


LEAST_RUN = 100
"""Average number of neighbours from which they are copied together, for all windows at once."""


def _arrange(parts: Sequence[npt.NDArray[T]], order: Ints, outputs: int, kind: type[T]) -> npt.NDArray[T]:
    """Concatenate parts to (outputs, members) in this order."""
    out = np.empty((outputs, len(order)), kind)
    begins: Ints = np.cumsum([0, *(part.shape[1] for part in parts)])
    of: Ints = np.searchsorted(begins, order, side="right") - 1
    runs: Ints = np.flatnonzero((np.diff(order, prepend=-2) != 1) | (np.diff(of, prepend=-1) != 0))
    if len(runs) * LEAST_RUN < len(order):  # classes that are side by side in each part
        sources = zip(of[runs].tolist(), (order[runs] - begins[of[runs]]).tolist(), strict=True)
        for start, stop, (part, at) in zip(runs.tolist(), [*runs[1:].tolist(), len(order)], sources, strict=True):
            out[:, start:stop] = parts[part][:, at : at + stop - start]
        return out
    row = np.empty(len(order), kind)  # one row after the other: it fits in the processor's cache
    for output in range(outputs if parts else 0):
        np.concatenate([part[output] for part in parts], out=row)
        row.take(order, mode="clip", out=out[output])
    return out


MAX_SPARE = 500
"""Limit of the candidates beyond k that cost less than the ranks of all members, which a query needs once."""


class BestCandidates:
    """Selects candidates for the k greatest (or smallest) of each class: a superset of them.

    Members are sorted by class, class i begins at starts[i]; either all are DOUBLE or none is. `ranks` returns the
    ranks (members,) of their names and labels, by which equal values go; it is called when many more than k are equal.
    Without it all of them are candidates: all counters of errors where none occurs, for example."""

    def __init__(
        self, reducer: str, args: Args, starts: Ints, members: int, double: bool, ranks: Ranks | None = None
    ) -> None:
        self._ranks, self._orders = ranks, dict[int, Ints]()
        self._greatest, self._k, self._rank = reducer == "topk", int(args["k"]), args["rank"]
        self._double, self._dtype = double, np.float64 if double else np.int64
        self._smallest = -np.inf if double else INT64_MIN
        self.chosen = np.zeros(members, np.bool_)
        sizes = np.diff(np.append(starts, members))
        self._small = np.repeat(sizes <= self._k, sizes)
        self._blocks = [
            starts[sizes == size][:, None] + np.arange(size)
            for size in np.unique(sizes[sizes > self._k]).tolist()
        ]  # fmt: skip
        self._whole = len(starts) == 1 and not self._small.any()
        self._spare = min(MAX_SPARE, members // 20)
        self._scores = np.zeros(members, self._dtype)
        self._has_value = np.zeros(members, np.bool_)

    def add(self, cells: Ints, present: Bools | None) -> None:
        """Add the values of the next window. Does not keep a reference to `cells`."""
        values = cells.view(self._dtype)
        if self._rank == "each":
            self._choose(values, present)
            return
        here = np.ones(len(cells), np.bool_) if present is None else present
        if self._rank != "last":
            further = np.maximum if self._rank == "max" else np.minimum
            with np.errstate(invalid="ignore"):
                values = np.where(self._has_value, further(self._scores, values), values)
        np.copyto(self._scores, values, where=here)
        self._has_value |= here

    def finish(self) -> Bools:
        """Return the mask (members,) of the candidates, after the last window."""
        if self._rank != "each":
            self._choose(self._scores, self._has_value)
        return self.chosen

    def _choose(self, values: npt.NDArray[np.generic], present: Bools | None) -> None:
        here = np.ones(len(values), np.bool_) if present is None else present
        self.chosen |= here & self._small
        nan = np.isnan(values.view(np.float64)) if self._double else None
        if nan is not None and nan.any():
            self.chosen |= here & nan  # NaN ranks after every number, in an order unknown here
            here = here & ~nan
        keys = values if self._greatest else -values.view(np.float64) if self._double else ~values.view(np.int64)
        keys = keys if present is None and here.all() else np.where(here, keys, self._smallest)
        for i, rows in enumerate([slice(None)] if self._whole else self._blocks):
            block = keys[rows]
            place = block.shape[-1] - self._k
            if place > 0:
                least = np.partition(block, place, axis=-1)[..., place, None]
                above, equal = here[rows] & (block > least), here[rows] & (block == least)
                self.chosen[rows] |= above | self._first(i, rows, above, equal)

    def _first(self, i: int, rows: Ints | slice, above: Bools, equal: Bools) -> Bools:
        """Return those of the `equal` members of block `i` that are wanted beside those `above`."""
        room = self._k - above.sum(axis=-1, keepdims=True)
        count = equal.sum(axis=-1, keepdims=True)
        spare = int(np.maximum(count - room, 0).sum())
        if self._ranks is None or spare <= self._spare:
            self._spare -= spare
            return equal
        if i not in self._orders:
            self._orders[i] = np.argsort(self._ranks()[rows], axis=-1)
        order, wanted = self._orders[i], np.zeros_like(equal)
        ordered = np.take_along_axis(equal, order, axis=-1)
        np.put_along_axis(wanted, order, ordered & (np.cumsum(ordered, axis=-1) <= room), axis=-1)
        return wanted


def best_rows(reducer: str, args: Args, column: Cells, codes: Ints, ranks: Ints | None = None) -> Bools:
    """Return the mask (series,) of candidates for the k best of each class; series are sorted by class. `ranks`
    (series,): those of names and labels, by which equal values go."""
    out, integers = np.zeros(len(codes), np.bool_), is_whole_number(column.types)
    for double in (False, True):
        rows = np.flatnonzero(integers != double)
        if not len(rows):
            continue
        starts = np.flatnonzero(np.diff(codes[rows], prepend=-1))
        best = BestCandidates(
            reducer, args, starts, len(rows), double, None if ranks is None else partial(np.take, ranks, rows)
        )
        for output in range(column.cells.shape[1]):
            best.add(np.ascontiguousarray(column.cells[rows, output]), column.present[rows, output])
        out[rows] = best.finish()
    return out


def make_block(column: Cells, codes: Ints) -> MemberBlock:
    """Convert cells to a block for `ordered_partial`."""
    values = np.where(column.present, as_floats(column.types, column.cells), np.nan)
    return MemberBlock(codes, np.ascontiguousarray(values.T), np.ascontiguousarray(column.present.T))
