"""Pieces: buckets, incarnations and ends of some raw samples, as a shard keeps them. docs/history.md.

Pieces of one selection are joined in any order, so samples are bucketized where they are read, by threads or by Spark,
and only buckets are combined.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from artimon.compute.bucketizer import bucketize_samples, coarsen_buckets, run_ends, run_starts
from artimon.compute.sample_order import rank
from artimon.compute.statistics import FOLDS, STATISTICS, Stats
from artimon.model.grid import Grid
from artimon.model.select import INCARNATION_DTYPE
from query_dsl.stores.sample_rows import DOUBLE, ENDED, STRING, Bools, Ints, SampleRows, Types

_NONE: Ints = np.zeros(0, np.int64)
_NO_TYPES: Types = np.zeros(0, np.uint8)
_NO_INCARNATIONS = np.zeros(0, INCARNATION_DTYPE)
INCARNATION_FIELDS = ("row", "birth_ms", "first_ms", "last_ms", "last")


@dataclass(frozen=True, slots=True)
class SparseBuckets:
    """Non-empty buckets, each once. `at` = row * columns + column, ascending."""

    at: Ints = field(default_factory=lambda: _NONE)
    stats: Stats = field(default_factory=lambda: dict.fromkeys(STATISTICS, _NONE))
    """All of STATISTICS."""

    def select(self, keep: Bools) -> SparseBuckets:
        """Keep the buckets where `keep` is true."""
        return SparseBuckets(self.at[keep], {name: column[keep] for name, column in self.stats.items()})

    def zero_except(self, wanted: Collection[str]) -> SparseBuckets:
        """Return the same buckets with all statistics but `wanted` set to zero."""
        nothing = np.zeros(len(self.at), np.int64)
        return SparseBuckets(
            self.at, {name: column if name in wanted else nothing for name, column in self.stats.items()}
        )


@dataclass(frozen=True, slots=True)
class PartialBuckets:
    """Buckets, incarnations and ends of some samples. `rows` (ascending, distinct) are the series with samples, `types`
    and `newest_ms` their types and newest times; `mixed` are series of more than one type, which have no buckets
    here."""

    buckets: SparseBuckets = field(default_factory=SparseBuckets)
    rows: Ints = field(default_factory=lambda: _NONE)
    types: Types = field(default_factory=lambda: _NO_TYPES)
    newest_ms: Ints = field(default_factory=lambda: _NONE)
    incarnations: npt.NDArray[np.void] = field(default_factory=lambda: _NO_INCARNATIONS)
    """Sorted by (row, birth), each once."""
    ended: tuple[Ints, Ints] = field(default_factory=lambda: (_NONE, _NONE))
    """Series with an end marker, ascending, and its newest time."""
    mixed: Ints = field(default_factory=lambda: _NONE)
    strings: tuple[str, ...] = ()
    """Sorted; cells of STRING are indices into it."""
    samples: int = 0
    columns: int = 1
    """Number of buckets of the grid."""

    def bucket_types(self) -> Types:
        """The type of each bucket."""
        return self.types[np.searchsorted(self.rows, self.buckets.at // self.columns)]


def bucketize(rows: SampleRows, grid: Grid) -> PartialBuckets:
    """Bucketize samples on `grid`. Lives, newest times and ends cover all samples, inside the grid or not."""
    over = rows.type == ENDED
    ended = (_NONE, _NONE)
    if over.any():
        ended = newest_ends(rows.row[over], rows.time_ms[over])
        rows = rows.select(~over)
    rows = _sorted(rows)
    if not len(rows):
        return PartialBuckets(ended=ended, strings=rows.strings, columns=grid.n)
    starts = run_starts(rows.row)
    mixed = mixed_series(rows.row, rows.type, starts)
    samples = len(rows)
    if len(mixed):
        rows = rows.select(~np.isin(rows.row, mixed))
        starts = run_starts(rows.row)
    ends = run_ends(starts, len(rows))
    return PartialBuckets(
        _bucketize_sorted(rows, grid),
        rows.row[starts],
        rows.type[starts],
        rows.time_ms[ends],
        _incarnations_of(rows),
        ended,
        mixed,
        rows.strings,
        samples,
        grid.n,
    )


def mixed_series(rows: Ints, types: Types, starts: Ints) -> Ints:
    """Return the series with values of several types; `starts`: first place of each series in the sorted `rows`."""
    low, high = np.minimum.reduceat(types, starts), np.maximum.reduceat(types, starts)
    return rows[starts[low < high]]


def merge_partials(pieces: Sequence[PartialBuckets]) -> PartialBuckets:
    """Merge several pieces of the same series and grid columns."""
    if len(pieces) == 1:
        return pieces[0]
    strings = tuple(sorted({text for piece in pieces for text in piece.strings}))
    pieces = [_to_texts(piece, strings) for piece in pieces]
    samples, columns = sum(piece.samples for piece in pieces), pieces[0].columns
    ended = newest_ends(*(np.concatenate([piece.ended[i] for piece in pieces]) for i in (0, 1)))
    rows, types = (np.concatenate([getattr(piece, name) for piece in pieces]) for name in ("rows", "types"))
    order = np.argsort(rows, kind="stable")
    rows, types = rows[order], types[order]
    starts = run_starts(rows)
    if not len(rows):
        mixed = np.unique(np.concatenate([piece.mixed for piece in pieces]))
        return PartialBuckets(ended=ended, mixed=mixed, strings=strings, samples=samples, columns=columns)
    newest = np.maximum.reduceat(np.concatenate([piece.newest_ms for piece in pieces])[order], starts)
    mixed = np.unique(np.concatenate([mixed_series(rows, types, starts), *(piece.mixed for piece in pieces)]))
    good = ~np.isin(rows[starts], mixed)
    kept = starts[good]
    parts = [without_series(piece, mixed) for piece in pieces]
    double = np.zeros(int(rows[-1]) + 1, np.bool_)
    double[rows[kept]] = types[kept] == DOUBLE
    return PartialBuckets(
        _merge_buckets([part.buckets for part in parts], [part.bucket_types() for part in parts]),
        rows[kept],
        types[kept],
        newest[good],
        merge_incarnations(np.concatenate([part.incarnations for part in parts]), double),
        ended,
        mixed,
        strings,
        samples,
        columns,
    )


def without_series(piece: PartialBuckets, series: Ints) -> PartialBuckets:
    """Return the piece without the buckets, incarnations and types of these series."""
    if not len(series) or not len(piece.rows):
        return piece
    kept = ~np.isin(piece.rows, series)
    if kept.all():
        return piece
    return replace(
        piece,
        buckets=piece.buckets.select(~np.isin(piece.buckets.at // piece.columns, series)),
        rows=piece.rows[kept],
        types=piece.types[kept],
        newest_ms=piece.newest_ms[kept],
        incarnations=piece.incarnations[~np.isin(piece.incarnations["row"], series)],
    )


def merge_incarnations(lives: npt.NDArray[np.void], double: Bools) -> npt.NDArray[np.void]:
    """Merge incarnations to one per (row, birth), from the earliest first sample to the latest last one. `double`: per
    row."""
    if len(lives) < 2:
        return lives
    ranks = rank(lives["last"], double[lives["row"]])
    lives = lives[np.lexsort((ranks, lives["last_ms"], lives["birth_ms"], lives["row"]))]
    starts = run_starts(lives["row"], lives["birth_ms"])
    made: npt.NDArray[np.void] = lives[run_ends(starts, len(lives))].copy()
    made["first_ms"] = np.minimum.reduceat(lives["first_ms"], starts)
    return made


def newest_ends(row: Ints, time_ms: Ints) -> tuple[Ints, Ints]:
    """Return the series with an end marker, ascending, and the newest time of each."""
    order = np.lexsort((time_ms, row))
    row, time_ms = row[order], time_ms[order]
    starts = run_starts(row)
    return row[starts], time_ms[run_ends(starts, len(row))]


def _sorted(rows: SampleRows) -> SampleRows:
    """Sort by (row, time, value); files of the raw table mostly have this order, except for the order of the series."""
    row, time = rows.row, rows.time_ms
    same = row[1:] == row[:-1]
    rising = (time[1:] > time[:-1]) | ~same
    if not rising.all():
        ranks = rank(rows.cell, rows.type == DOUBLE)
        return rows.select(np.lexsort((ranks, time, row)))
    if (row[1:] >= row[:-1]).all():
        return rows
    order = group_runs(row)
    if order is None:  # a series in two runs: their times may interleave
        ranks = rank(rows.cell, rows.type == DOUBLE)
        order = np.lexsort((ranks, time, row))
    return rows.select(order)


def group_runs(row: Ints) -> npt.NDArray[np.intp] | None:
    """Return the order that brings the runs of each series to the order of the series; None if it is in two runs."""
    starts = run_starts(row) if len(row) else np.zeros(0, np.intp)
    if len(np.unique(row[starts])) < len(starts):
        return None
    lengths = np.diff(starts, append=len(row))
    runs = np.argsort(row[starts], kind="stable")
    moved = lengths[runs]
    return np.asarray(np.repeat(starts[runs] - (np.cumsum(moved) - moved), moved) + np.arange(len(row)))


def _bucketize_sorted(rows: SampleRows, grid: Grid) -> SparseBuckets:
    """Bucketize sorted rows, each series of one type."""
    column = (rows.time_ms - (grid.start_ms + 1)) // grid.step_ms
    inside = (column >= 0) & (column < grid.n)
    if not inside.all():
        rows, column = rows.select(inside), column[inside]
    if not len(rows):
        return SparseBuckets()
    at = rows.row * grid.n + column
    starts = run_starts(at)
    stats = bucketize_samples(starts, rows.time_ms, rows.cell, rows.type == DOUBLE)
    return SparseBuckets(at[starts], without_folds(stats, rows.type[starts]))


def _merge_buckets(parts: Sequence[SparseBuckets], kinds: Sequence[Types]) -> SparseBuckets:
    """Merge the buckets of several pieces; `kinds` has the types of the buckets of each piece."""
    at, kind = np.concatenate([part.at for part in parts]), np.concatenate(kinds)
    if not len(at):
        return SparseBuckets()
    stats = {name: np.concatenate([part.stats[name] for part in parts]) for name in STATISTICS}
    order = np.lexsort((rank(stats["last"], kind == DOUBLE), stats["last_time"], at))
    at, kind = at[order], kind[order]
    starts = run_starts(at)
    made = coarsen_buckets(starts, {name: column[order] for name, column in stats.items()}, kind == DOUBLE)
    return SparseBuckets(at[starts], without_folds(made, kind[starts]))


def without_folds(stats: dict[str, Ints], kind: Types) -> Stats:
    """Set folded statistics of STRING to zero: it has none."""
    text = kind == STRING
    if text.any():
        stats |= {name: np.where(text, 0, stats[name]) for name in FOLDS}
    return stats


def _incarnations_of(rows: SampleRows) -> npt.NDArray[np.void]:
    """Lives of sorted rows."""
    row, birth = rows.row, rows.birth_ms
    starts = run_starts(row, birth)
    ends = run_ends(starts, len(rows))
    lives = np.empty(len(starts), INCARNATION_DTYPE)
    values = (row[starts], birth[starts], rows.time_ms[starts], rows.time_ms[ends], rows.cell[ends])
    for name, column in zip(INCARNATION_FIELDS, values, strict=True):
        lives[name] = column
    owner, births = lives["row"], lives["birth_ms"]
    rising = (owner[1:] > owner[:-1]) | ((owner[1:] == owner[:-1]) & (births[1:] > births[:-1]))
    if rising.all():
        return lives
    double = np.zeros(int(row[-1]) + 1, np.bool_)
    double[row] = rows.type == DOUBLE
    return merge_incarnations(lives, double)


def _to_texts(piece: PartialBuckets, strings: tuple[str, ...]) -> PartialBuckets:
    """Renumber cells of STRING to indices into `strings`, which contain all strings of the piece."""
    if piece.strings == strings or not piece.strings:
        return piece
    place = {text: i for i, text in enumerate(strings)}
    return renumber_texts(piece, np.array([place[text] for text in piece.strings], np.int64))


def renumber_texts(piece: PartialBuckets, numbers: Ints) -> PartialBuckets:
    """Replace each cell of STRING by `numbers[cell]`."""
    texts = piece.bucket_types() == STRING
    last = piece.buckets.stats["last"].copy()
    last[texts] = numbers[last[texts]]
    lives = piece.incarnations.copy()
    mine = np.isin(lives["row"], piece.rows[piece.types == STRING])
    lives["last"][mine] = numbers[lives["last"][mine]]
    return replace(
        piece, buckets=SparseBuckets(piece.buckets.at, {**piece.buckets.stats, "last": last}), incarnations=lives
    )
