"""Raw samples cut into buckets: the same statistics, lives and ends that a shard keeps. docs/history.md.

`Piece` is what some samples amount to; pieces of one selection are joined in any order, so files are cut where they are
read, by threads or by Spark, and only buckets come together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from artimon.model.grid import Grid
from artimon.model.select import BIRTH_TYPE
from query_dsl.stores.rows import DOUBLE, ENDED, STRING, Bools, Ints, Rows, Types, rank

_NONE: Ints = np.zeros(0, np.int64)
_NO_TYPES: Types = np.zeros(0, np.uint8)
_NO_LIVES = np.zeros(0, BIRTH_TYPE)
LIFE = ("row", "birth_ms", "first_ms", "last_ms", "last")


@dataclass(frozen=True, slots=True)
class Cuts:
    """Buckets that hold samples, each once. `at` = row * columns + column, ascending; the rest as STATISTICS."""

    at: Ints = field(default_factory=lambda: _NONE)
    count: Ints = field(default_factory=lambda: _NONE)
    last_time: Ints = field(default_factory=lambda: _NONE)
    last: Ints = field(default_factory=lambda: _NONE)
    min: Ints = field(default_factory=lambda: _NONE)
    max: Ints = field(default_factory=lambda: _NONE)
    sum: Ints = field(default_factory=lambda: _NONE)

    def columns(self) -> tuple[Ints, ...]:
        """All seven."""
        return (self.at, self.count, self.last_time, self.last, self.min, self.max, self.sum)

    def pick(self, keep: Bools) -> Cuts:
        """Some of them."""
        return Cuts(*(column[keep] for column in self.columns()))


@dataclass(frozen=True, slots=True)
class Piece:
    """What samples amount to. `rows` (ascending, each once) are the series that have samples here, with the type and
    the time of the newest of each; `mixed` are series of more than one type, of which nothing else is here."""

    cuts: Cuts = field(default_factory=Cuts)
    rows: Ints = field(default_factory=lambda: _NONE)
    types: Types = field(default_factory=lambda: _NO_TYPES)
    newest_ms: Ints = field(default_factory=lambda: _NONE)
    lives: npt.NDArray[np.void] = field(default_factory=lambda: _NO_LIVES)
    """Sorted by (row, birth), each once."""
    ended: tuple[Ints, Ints] = field(default_factory=lambda: (_NONE, _NONE))
    """Series whose end was said, ascending, and when."""
    mixed: Ints = field(default_factory=lambda: _NONE)
    strings: tuple[str, ...] = ()
    """Sorted; cells of STRING are indices."""
    samples: int = 0
    columns: int = 1
    """Of the grid."""

    def kinds(self) -> Types:
        """The type of each bucket."""
        return self.types[np.searchsorted(self.rows, self.cuts.at // self.columns)]


def cut(rows: Rows, grid: Grid) -> Piece:
    """Buckets on `grid` of these samples; lives, newest samples and ends of all of them, inside the grid or not."""
    over = rows.type == ENDED
    ended = (_NONE, _NONE)
    if over.any():
        ended = _latest(rows.row[over], rows.time_ms[over])
        rows = rows.pick(~over)
    rows = _sorted(rows)
    if not len(rows):
        return Piece(ended=ended, strings=rows.strings, columns=grid.n)
    starts = _starts(rows.row)
    low, high = np.minimum.reduceat(rows.type, starts), np.maximum.reduceat(rows.type, starts)
    mixed = rows.row[starts[low < high]]
    samples = len(rows)
    if len(mixed):
        rows = rows.pick(~np.isin(rows.row, mixed))
        starts = _starts(rows.row)
    ends = np.append(starts[1:], len(rows)) - 1 if len(rows) else starts
    return Piece(
        _cuts(rows, grid),
        rows.row[starts],
        rows.type[starts],
        rows.time_ms[ends],
        _lives_of(rows),
        ended,
        mixed,
        rows.strings,
        samples,
        grid.n,
    )


def join(pieces: Sequence[Piece]) -> Piece:
    """One piece of several, of the same series and grid columns."""
    if len(pieces) == 1:
        return pieces[0]
    strings = tuple(sorted({text for piece in pieces for text in piece.strings}))
    pieces = [_renumbered(piece, strings) for piece in pieces]
    samples, columns = sum(piece.samples for piece in pieces), pieces[0].columns
    ended = _latest(*(np.concatenate([piece.ended[i] for piece in pieces]) for i in (0, 1)))
    rows, types = (np.concatenate([getattr(piece, name) for piece in pieces]) for name in ("rows", "types"))
    order = np.argsort(rows, kind="stable")
    rows, types = rows[order], types[order]
    starts = _starts(rows)
    if not len(rows):
        mixed = np.unique(np.concatenate([piece.mixed for piece in pieces]))
        return Piece(ended=ended, mixed=mixed, strings=strings, samples=samples, columns=columns)
    low, high = np.minimum.reduceat(types, starts), np.maximum.reduceat(types, starts)
    newest = np.maximum.reduceat(np.concatenate([piece.newest_ms for piece in pieces])[order], starts)
    mixed = np.unique(np.concatenate([rows[starts[low < high]], *(piece.mixed for piece in pieces)]))
    good = ~np.isin(rows[starts], mixed)
    kept = starts[good]
    parts = [without(piece, mixed) for piece in pieces]
    double = np.zeros(int(rows[-1]) + 1, np.bool_)
    double[rows[kept]] = types[kept] == DOUBLE
    return Piece(
        _joined([part.cuts for part in parts], [part.kinds() for part in parts]),
        rows[kept],
        types[kept],
        newest[good],
        lives_joined(np.concatenate([part.lives for part in parts]), double),
        ended,
        mixed,
        strings,
        samples,
        columns,
    )


def without(piece: Piece, series: Ints) -> Piece:
    """The piece without the buckets, lives and types of these series."""
    if not len(series) or not len(piece.rows):
        return piece
    kept = ~np.isin(piece.rows, series)
    if kept.all():
        return piece
    return replace(
        piece,
        cuts=piece.cuts.pick(~np.isin(piece.cuts.at // piece.columns, series)),
        rows=piece.rows[kept],
        types=piece.types[kept],
        newest_ms=piece.newest_ms[kept],
        lives=piece.lives[~np.isin(piece.lives["row"], series)],
    )


def lives_joined(lives: npt.NDArray[np.void], double: Bools) -> npt.NDArray[np.void]:
    """Each (row, birth) once: the first of its firsts, the last of its lasts. `double` of each row."""
    if len(lives) < 2:
        return lives
    ranks = rank(lives["last"], double[lives["row"]])
    lives = lives[np.lexsort((ranks, lives["last_ms"], lives["birth_ms"], lives["row"]))]
    new = np.ones(len(lives), np.bool_)
    new[1:] = (lives["row"][1:] != lives["row"][:-1]) | (lives["birth_ms"][1:] != lives["birth_ms"][:-1])
    starts = np.flatnonzero(new)
    made: npt.NDArray[np.void] = lives[np.append(starts[1:], len(lives)) - 1].copy()
    made["first_ms"] = np.minimum.reduceat(lives["first_ms"], starts)
    return made


def _starts(values: Ints) -> npt.NDArray[np.intp]:
    """Where runs of equal values begin."""
    new = np.ones(len(values), np.bool_)
    new[1:] = values[1:] != values[:-1]
    return np.flatnonzero(new)


def _latest(row: Ints, time_ms: Ints) -> tuple[Ints, Ints]:
    order = np.lexsort((time_ms, row))
    row, time_ms = row[order], time_ms[order]
    starts = _starts(row)
    return row[starts], time_ms[np.append(starts[1:], len(row)) - 1] if len(row) else time_ms


def _sorted(rows: Rows) -> Rows:
    """By (row, time, value); files of the raw table nearly always are, but for the order of the series."""
    row, time = rows.row, rows.time_ms
    same = row[1:] == row[:-1]
    rising = (time[1:] > time[:-1]) | ~same
    if not rising.all():
        ranks = rank(rows.cell, rows.type == DOUBLE)
        return rows.pick(np.lexsort((ranks, time, row)))
    if (row[1:] >= row[:-1]).all():
        return rows
    starts = np.flatnonzero(np.append(True, ~same))
    if len(np.unique(row[starts])) < len(starts):  # a series in two runs: its times may interleave
        ranks = rank(rows.cell, rows.type == DOUBLE)
        return rows.pick(np.lexsort((ranks, time, row)))
    lengths = np.diff(starts, append=len(row))
    runs = np.argsort(row[starts], kind="stable")
    moved = lengths[runs]
    return rows.pick(np.repeat(starts[runs] - (np.cumsum(moved) - moved), moved) + np.arange(len(row)))


def _cuts(rows: Rows, grid: Grid) -> Cuts:
    """Of rows in order, each series of one type."""
    column = (rows.time_ms - (grid.start_ms + 1)) // grid.step_ms
    inside = (column >= 0) & (column < grid.n)
    if not inside.all():
        rows, column = rows.pick(inside), column[inside]
    if not len(rows):
        return Cuts()
    at = rows.row * grid.n + column
    starts = _starts(at)
    ends = np.append(starts[1:], len(at))
    cell = rows.cell
    low, high, total = _folded(starts, rows.type, cell, cell, cell)
    return Cuts(at[starts], ends - starts, rows.time_ms[ends - 1], cell[ends - 1], low, high, total)


def _joined(parts: Sequence[Cuts], kinds: Sequence[Types]) -> Cuts:
    """Buckets of several pieces, each once; `kinds` the type of each."""
    at, count, time, last, low, high, total = (
        np.concatenate(columns) for columns in zip(*(part.columns() for part in parts), strict=True)
    )
    kind = np.concatenate(kinds)
    if not len(at):
        return Cuts()
    order = np.lexsort((rank(last, kind == DOUBLE), time, at))
    at, count, time, last, low, high, total = (column[order] for column in (at, count, time, last, low, high, total))
    kind = kind[order]
    starts = _starts(at)
    ends = np.append(starts[1:], len(at)) - 1
    low, high, total = _folded(starts, kind, low, high, total)
    return Cuts(at[starts], np.add.reduceat(count, starts), time[ends], last[ends], low, high, total)


def _folded(starts: npt.NDArray[np.intp], kind: Types, low: Ints, high: Ints, total: Ints) -> tuple[Ints, Ints, Ints]:
    """min, max and sum of each run; strings have none."""
    columns = ((np.minimum, low), (np.maximum, high), (np.add, total))
    of_run = kind[starts]
    double, text = of_run == DOUBLE, of_run == STRING
    with np.errstate(all="ignore"):  # inf - inf in a sum is NaN, not news; integers wrap as they do in shards
        if double.all():
            return tuple(f.reduceat(c.view(np.float64), starts).view(np.int64) for f, c in columns)  # type: ignore[return-value]
        folded = [f.reduceat(c, starts) for f, c in columns]
        if double.any():
            mine = kind == DOUBLE
            own = _starts_of(starts, mine)
            for out, (f, c) in zip(folded, columns, strict=True):
                out[double] = f.reduceat(c[mine].view(np.float64), own).view(np.int64)
    for out in folded if text.any() else ():
        out[text] = 0
    return folded[0], folded[1], folded[2]


def _starts_of(starts: npt.NDArray[np.intp], mine: Bools) -> npt.NDArray[np.intp]:
    """Where those runs begin whose rows are `mine`, among these rows alone."""
    before: Ints = np.cumsum(mine) - mine
    return np.asarray(before[starts[mine[starts]]])


def _lives_of(rows: Rows) -> npt.NDArray[np.void]:
    """Lives of rows in order."""
    row, birth = rows.row, rows.birth_ms
    new = np.ones(len(rows), np.bool_)
    new[1:] = (row[1:] != row[:-1]) | (birth[1:] != birth[:-1])
    starts = np.flatnonzero(new)
    ends = np.append(starts[1:], len(rows)) - 1 if len(rows) else starts
    lives = np.empty(len(starts), BIRTH_TYPE)
    values = (row[starts], birth[starts], rows.time_ms[starts], rows.time_ms[ends], rows.cell[ends])
    for name, column in zip(LIFE, values, strict=True):
        lives[name] = column
    owner, births = lives["row"], lives["birth_ms"]
    rising = (owner[1:] > owner[:-1]) | ((owner[1:] == owner[:-1]) & (births[1:] > births[:-1]))
    if rising.all():
        return lives
    double = np.zeros(int(row[-1]) + 1, np.bool_)
    double[row] = rows.type == DOUBLE
    return lives_joined(lives, double)


def _renumbered(piece: Piece, strings: tuple[str, ...]) -> Piece:
    """The same with cells of STRING as indices into `strings`, which hold all of its own."""
    if piece.strings == strings or not piece.strings:
        return piece
    place = {text: i for i, text in enumerate(strings)}
    return renumbered(piece, np.array([place[text] for text in piece.strings], np.int64))


def renumbered(piece: Piece, numbers: Ints) -> Piece:
    """The same with `numbers[cell]` in place of the cells of STRING."""
    texts = piece.kinds() == STRING
    last = piece.cuts.last.copy()
    last[texts] = numbers[last[texts]]
    lives = piece.lives.copy()
    mine = np.isin(lives["row"], piece.rows[piece.types == STRING])
    lives["last"][mine] = numbers[lives["last"][mine]]
    return replace(piece, cuts=replace(piece.cuts, last=last), lives=lives)
