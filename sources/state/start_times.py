"""Start times and ends of series: design.md "Birth". Pure, one numpy pass over the series of a poll.

The birth of a sample is the start time of its count. A series present at the first poll of a process began with the
process. One that appears later, or a counter that was reset, began at the poll before.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from artimon.model.values import Kind, ValueType

Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class KnownSeries:
    """State of the n series of a poll as of the poll before; `cell` has the present type of the series."""

    cell: Ints
    birth_ms: Ints
    live: Flags
    """True if the series had a value at the poll before and has not ended since."""


@dataclass(frozen=True, slots=True)
class PolledSeries:
    """Content of a poll: n cells with their types and kinds."""

    cell: Ints
    type: Bytes
    kind: Bytes


def start_times(
    known: KnownSeries, seen: PolledSeries, process_ms: int, poll_before_ms: int | None, appeared_ms: int | None = None
) -> Ints:
    """Return the birth of each of n samples.

    `process_ms`: start time of the process; `poll_before_ms`: its previous poll, None at its first;
    `appeared_ms`: birth of series that are not live, None for the poll before.
    """
    if poll_before_ms is None:
        return np.full(len(seen.cell), process_ms, np.int64)
    fell = is_below(known.live & (seen.kind == Kind.COUNTER), seen.type, seen.cell, known.cell)
    born = np.where(fell, np.int64(poll_before_ms), known.birth_ms)
    return np.where(known.live, born, np.int64(poll_before_ms if appeared_ms is None else appeared_ms))


def apply_created(born: Ints, known: KnownSeries, created_ms: Ints, last_ms: Ints, time_ms: int) -> Ints:
    """Return `born`, replaced by the birth that the process reports, if any. For a live series this birth must be later
    than its previous sample (`last_ms`), so that a wrong clock does not look like a reset."""
    sane = (created_ms > 0) & (created_ms <= time_ms)
    return np.where(sane & (~known.live | (created_ms > last_ms)), created_ms, born)


def comparison_cells(known: KnownSeries, seen: PolledSeries) -> Ints:
    """Return the cells to compare with at the next poll."""
    return keep_last_number(seen.type, seen.cell, known.cell, known.live)


def is_below(counter: Flags, type_: Bytes, cell: Ints, before: Ints) -> Flags:
    """Return the mask of counters below their cell `before`. A NaN is not below anything."""
    fell: Flags = counter & (type_ == ValueType.INTEGER) & (cell < before)
    double = counter & (type_ == ValueType.DOUBLE)
    if bool(double.any()):
        fell |= double & (doubles(cell) < doubles(before))
    return fell


def keep_last_number(type_: Bytes, cell: Ints, before: Ints, known: Flags) -> Ints:
    """Return `cell`, but keep the last number `before` in place of a NaN where it is `known`."""
    double = type_ == ValueType.DOUBLE
    if not bool(double.any()):
        return cell
    return np.where(double & np.isnan(doubles(cell)) & known, before, cell)


def doubles(cells: Ints) -> npt.NDArray[np.float64]:
    """Return the bits of the cells as float64."""
    return np.ascontiguousarray(cells).view(np.float64)
