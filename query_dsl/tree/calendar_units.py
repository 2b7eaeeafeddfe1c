"""Calendar units (days, weeks from Monday on, months, years) of a time zone, and grids whose buckets are such units.

Days have 23 to 25 hours where clocks change. A unit begins at midnight of its first day, or at the first time after it
that the zone has. https://peps.python.org/pep-0495/ defines times that a zone skips or has twice.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from itertools import count, islice, pairwise, takewhile
from typing import Any, Literal, cast
from zoneinfo import ZoneInfo, available_timezones

import numpy as np

from artimon.model.grid import Grid, Times
from query_dsl.tree.query_errors import QueryError, similar_hint
from query_dsl.tree.times import EPOCH, format_duration, format_time

_TEXT = re.compile(r"(\d{0,4})(d|w|mo|y)")
_DAYS = {"d": 1, "w": 7, "mo": 31, "y": 366}
_HOUR_MS = 3_600_000
_DAY_MS = 24 * _HOUR_MS
MAX_EDGES = 20_000
"""More than a query has points."""
MARGIN = timedelta(days=800)
"""Distance that times keep from the ends of the years 1 to 9999: two years and a time zone."""


@dataclass(frozen=True, slots=True)
class CalendarUnit:
    """`count` days, weeks, months or years of a zone; a year is a multiple of `count` months."""

    count: int
    unit: Literal["d", "w", "mo", "y"]
    zone: str

    def __str__(self) -> str:
        return f"{self.count}{self.unit}"

    @property
    def most_ms(self) -> int:
        """Greatest length."""
        return self.count * _DAYS[self.unit] * _DAY_MS + 2 * _HOUR_MS

    def start_of(self, time_ms: int) -> int:
        """Return the start of the unit that holds the time, at or before it. Raises QueryError outside the years 3 to
        9997."""
        return self._start(self._number(time_ms))

    def edges(self, before_ms: int, end_ms: int) -> list[int]:
        """Return the starts of units from `start_of(before_ms)` to `start_of(end_ms)`, ascending; at most MAX_EDGES."""
        until = self.start_of(end_ms)
        starts = map(self._start, islice(count(self._number(before_ms)), MAX_EDGES))
        return sorted(set(takewhile(lambda start: start <= until, starts)))

    def _number(self, time_ms: int) -> int:
        """Number of the unit that holds a time, counted from the year 1."""
        try:
            moment = EPOCH + timedelta(milliseconds=time_ms)
            (moment + MARGIN, moment - MARGIN)
        except OverflowError:
            raise QueryError(f"{format_time(time_ms)} is outside of the calendar: years 3 to 9997") from None
        day = moment.astimezone(ZoneInfo(self.zone)).date()
        match self.unit:
            case "d":
                return day.toordinal()
            case "w":
                return (day.toordinal() - 1) // 7
            case "mo":
                return (12 * day.year + day.month - 1) // self.count
            case "y":
                return day.year

    def _start(self, number: int) -> int:
        if self.unit in ("d", "w"):
            day = date.fromordinal(number if self.unit == "d" else 7 * number + 1)
        else:
            year, month = divmod(number * self.count, 12) if self.unit == "mo" else (number, 0)
            day = date(year, month + 1, 1)
        local = datetime(day.year, day.month, day.day, tzinfo=ZoneInfo(self.zone))
        return (local.astimezone(UTC) - EPOCH) // timedelta(milliseconds=1)


def parse_zone(text: str, what: str) -> str:
    """Check the IANA name of a time zone. Raises QueryError."""
    try:
        ZoneInfo(text)
    except (KeyError, ValueError, OSError):
        raise QueryError(f"{what}: unknown time zone {text!r:.80}{similar_hint(text, available_timezones())}") from None
    return text


def parse_unit(value: object, zone: object, what: str) -> CalendarUnit | None:
    """Parse "1d", "1w", "1mo", "3mo" or "1y". Without a zone "1d" and "1w" are plain durations: then only months and
    years are units, and any other text returns None. Raises QueryError for an invalid unit or zone."""
    if zone is not None and not isinstance(zone, str):
        raise QueryError(f'zone takes the name of a time zone, as in "Europe/Paris", not {zone!r:.80}')
    found = _TEXT.fullmatch(value) if isinstance(value, str) else None
    if zone is None and (found is None or found[2] in "dw"):
        return None
    if found is None:
        raise QueryError(
            f"{what} {value!r:.80} is not a unit of the calendar: "
            'write "1d", "1w", "1mo" (or 2, 3, 4, 6 of them) or "1y"'
        ).with_culprit(value)
    each, unit = int(found[1] or 1), found[2]
    if each != 1 and (unit != "mo" or not each or 12 % each):
        raise QueryError(
            f'{what} {value!r:.80}: write one unit, "1{unit}"' + (", or 2, 3, 4 or 6 months" if unit == "mo" else "")
        ).with_culprit(value)
    try:
        return CalendarUnit(each, cast(Any, unit), parse_zone(zone or "UTC", "zone"))
    except QueryError as problem:
        raise problem.with_culprit(zone) from None


class CalendarGrid(Grid):
    """Grid of buckets (edges[i], edges[i + 1]]. It has no step: what needs one raises QueryError."""

    __slots__ = ("edges",)

    def __init__(self, edges: tuple[int, ...]) -> None:
        object.__setattr__(self, "end_ms", edges[-1])
        object.__setattr__(self, "n", len(edges) - 1)
        object.__setattr__(self, "edges", edges)

    edges: tuple[int, ...]

    @property
    def step_ms(self) -> int:
        raise QueryError(
            "calendar buckets are of different lengths: bucketize every operand, and apply windows, offsets and "
            "functions of neighbouring values before"
        )

    @property
    def start_ms(self) -> int:
        return self.edges[0]

    def ends(self) -> Times:
        return np.array(self.edges[1:], np.int64)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CalendarGrid) and self.edges == other.edges

    def __hash__(self) -> int:
        return hash(self.edges)

    def __repr__(self) -> str:
        return f"CalendarGrid({self.edges})"

    def __reduce__(self) -> Any:
        return CalendarGrid, (self.edges,)


def grid_fields(grid: Grid) -> dict[str, Any]:
    """Return the grid for JSON. Calendar buckets have `step_ms` 0 and list their ends."""
    fields: dict[str, Any] = {"start_ms": grid.start_ms, "end_ms": grid.end_ms}
    if isinstance(grid, CalendarGrid):
        return {**fields, "step_ms": 0, "n": grid.n, "ends_ms": list(grid.edges[1:])}
    return {**fields, "step_ms": grid.step_ms, "n": grid.n}


def step_text(grid: Grid) -> str:
    """Format the step of a grid; of calendar buckets, the shortest and the longest one."""
    if not isinstance(grid, CalendarGrid):
        return format_duration(grid.step_ms)
    shortest, longest = format_duration(shortest_ms(grid)), format_duration(max(_lengths_ms(grid)))
    return shortest if shortest == longest else f"{shortest} to {longest}"


def shortest_ms(grid: Grid) -> int:
    """Return the length of the shortest bucket."""
    return min(_lengths_ms(grid)) if isinstance(grid, CalendarGrid) else grid.step_ms


def _lengths_ms(grid: CalendarGrid) -> list[int]:
    return [later - earlier for earlier, later in pairwise(grid.edges)]
