"""Births and ends of series: design.md "Birth". Pure, one numpy pass over the series of a poll.

The birth of a sample is when its count began. A series that is there at the first poll of a process began with the
process; one that appears later, or a counter that falls, began at the poll before.
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
    """What is known of the n series of a poll from the poll before; `cell` has the type that the series has now."""

    cell: Ints
    birth_ms: Ints
    live: Flags
    """Had a value at the poll before, and has not ended since."""


@dataclass(frozen=True, slots=True)
class PolledSeries:
    """What a poll read: n cells with their types and kinds."""

    cell: Ints
    type: Bytes
    kind: Bytes


def births(
    known: KnownSeries, seen: PolledSeries, process_ms: int, poll_before_ms: int | None, appeared_ms: int | None = None
) -> Ints:
    """Birth of each of n samples.

    `process_ms`: start of the process; `poll_before_ms`: the poll before *of this process*, None at its first;
    `appeared_ms`: birth of what is not live, None for the poll before.
    """
    if poll_before_ms is None:
        return np.full(len(seen.cell), process_ms, np.int64)
    fell = below(known.live & (seen.kind == Kind.COUNTER), seen.type, seen.cell, known.cell)
    born = np.where(fell, np.int64(poll_before_ms), known.birth_ms)
    return np.where(known.live, born, np.int64(poll_before_ms if appeared_ms is None else appeared_ms))


def told(born: Ints, known: KnownSeries, created_ms: Ints, last_ms: Ints, time_ms: int) -> Ints:
    """`born`, or the birth that the process tells of: of what is new any; of what goes on only one that lies between
    its sample before (`last_ms`) and this one, so that a wrong clock begins no new life."""
    sane = (created_ms > 0) & (created_ms <= time_ms)
    return np.where(sane & (~known.live | (created_ms > last_ms)), created_ms, born)


def remembered(known: KnownSeries, seen: PolledSeries) -> Ints:
    """The cells to compare with next time."""
    return numbers(seen.type, seen.cell, known.cell, known.live)


def below(counter: Flags, type_: Bytes, cell: Ints, before: Ints) -> Flags:
    """Where a counter stands below its cell `before`; NaN is neither below nor above anything."""
    fell: Flags = counter & (type_ == ValueType.INTEGER) & (cell < before)
    double = counter & (type_ == ValueType.DOUBLE)
    if bool(double.any()):
        fell |= double & (doubles(cell) < doubles(before))
    return fell


def numbers(type_: Bytes, cell: Ints, before: Ints, known: Flags) -> Ints:
    """What was read, but a NaN leaves the last number in place where one is `known`."""
    double = type_ == ValueType.DOUBLE
    if not bool(double.any()):
        return cell
    return np.where(double & np.isnan(doubles(cell)) & known, before, cell)


def doubles(cells: Ints) -> npt.NDArray[np.float64]:
    """The same bits as numbers."""
    return np.ascontiguousarray(cells).view(np.float64)
