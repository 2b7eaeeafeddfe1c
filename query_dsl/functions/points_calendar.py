"""Calendar parts (year, weekday, hour, …) of the times of values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from zoneinfo import ZoneInfo

import numpy as np

from query_dsl.functions.registry import Args, Argument, PointContext, PointFunction
from query_dsl.results.result_cells import INTEGER, Bools, Cells, Example, Ints, of_type
from query_dsl.tree.entry_table import read_only_table

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# one day of margin on both sides keeps dates in any time zone within datetime's years
MIN_MS = int((datetime(1, 1, 2, tzinfo=UTC) - EPOCH) / timedelta(milliseconds=1))
MAX_MS = int((datetime(9999, 12, 31, tzinfo=UTC) - EPOCH) / timedelta(milliseconds=1))

PARTS: Mapping[str, Callable[[datetime], int]] = MappingProxyType(
    {
        "year": lambda t: t.year,
        "month": lambda t: t.month,
        "day": lambda t: t.day,
        "weekday": lambda t: t.isoweekday(),
        "yearday": lambda t: t.timetuple().tm_yday,
        "hour": lambda t: t.hour,
        "minute": lambda t: t.minute,
    }
)


def part_of(part: str, zone: str, times: Ints) -> tuple[Ints, Bools]:
    """Return the part of each time (n,), and a mask of the supported times: years 1 to 9999."""
    read, place = PARTS[part], ZoneInfo(zone)
    known = (times >= MIN_MS) & (times <= MAX_MS)
    # historical UTC offsets have seconds, so whole minutes are too coarse
    seconds, where = np.unique(np.where(known, times, 0) // 1000, return_inverse=True)
    found = [read((EPOCH + timedelta(seconds=second)).astimezone(place)) for second in seconds.tolist()]
    return np.array(found, np.int64)[where], known


def _calendar(column: Cells, args: Args, points: PointContext) -> Cells:
    found, known = part_of(args["part"], args["zone"], points.times)
    return of_type(INTEGER, np.broadcast_to(found, column.cells.shape), column.present & known)


CALENDAR = read_only_table(
    PointFunction(
        name="calendar",
        summary="A part of the date or time that a bucket covers, its end less 1 ms (INTEGER); Monday is 1, Sunday 7.",
        example="fetch('orders').calendar('hour', zone='Europe/Berlin')",
        case=Example(((-1.5, None, 4.0),), (4.0, None, 4.0)),
        case_args="'weekday'",
        arguments=(
            Argument("part", "choice", "which part", choices=tuple(PARTS)),
            Argument("zone", "zone", "IANA name of the time zone", "UTC"),
        ),
        run=_calendar,
        texts=True,
        unit="that of the part",
    )
)
