"""Time intervals of Alertmanager: times of day, weekdays, days of the month, months and years, in a time zone."""

from __future__ import annotations

import calendar
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from zoneinfo import ZoneInfo

WEEKDAYS = ("sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday")
MONTHS = tuple(name.lower() for name in calendar.month_name[1:])
MINUTES_A_DAY = 24 * 60
MIN_YEAR, MAX_YEAR = 1970, 9999

_Value = Callable[[str], int]
Span = tuple[int, int]
"""First and last value, both inclusive; times of day exclude the last minute."""


@dataclass(frozen=True, slots=True)
class TimeInterval:
    """Times that fulfil every given list; an empty list holds at all times."""

    times: tuple[Span, ...] = ()
    """Minutes of the day, the end exclusive."""
    weekdays: tuple[Span, ...] = ()
    """0 is Sunday."""
    days_of_month: tuple[Span, ...] = ()
    """Negative days count from the end of the month: -1 is the last one."""
    months: tuple[Span, ...] = ()
    years: tuple[Span, ...] = ()
    zone: str = "UTC"

    def contains(self, time_ms: int) -> bool:
        """Return True if the epoch time lies within."""
        zone: tzinfo = UTC if self.zone == "UTC" else ZoneInfo(self.zone)
        at = datetime.fromtimestamp(time_ms / 1000, zone)
        minute = at.hour * 60 + at.minute
        return (
            (not self.times or any(first <= minute < last for first, last in self.times))
            and _within(self.weekdays, at.isoweekday() % 7)
            and (not self.days_of_month or _on_day(self.days_of_month, at))
            and _within(self.months, at.month)
            and _within(self.years, at.year)
        )


def _within(spans: Sequence[Span], value: int) -> bool:
    return not spans or any(first <= value <= last for first, last in spans)


def _on_day(spans: Sequence[Span], at: datetime) -> bool:
    days = calendar.monthrange(at.year, at.month)[1]
    for first, last in spans:
        begin, end = (day if day > 0 else days + day + 1 for day in (first, last))
        if begin <= days and max(begin, 1) <= at.day <= min(end, days):
            return True
    return False


def parse_minute(text: str) -> int:
    """Parse a time of day from 00:00 to 24:00; return minutes. Raises ValueError."""
    hours, colon, minutes = text.partition(":")
    if not (colon and len(hours) == 2 and len(minutes) == 2 and (hours + minutes).isdecimal()):
        raise ValueError(f"{text!r:.40} is not a time of day: write 09:30")
    found = int(hours) * 60 + int(minutes)
    if int(minutes) > 59 or found > MINUTES_A_DAY:
        raise ValueError(f"{text!r:.40} is not a time of day: use 00:00 to 24:00")
    return found


def parse_weekdays(text: str) -> Span:
    """Parse a weekday or a range such as `monday:friday`. Raises ValueError."""
    return _span(text, lambda word: _index(word, WEEKDAYS, "weekday", 0), "weekday")


def parse_months(text: str) -> Span:
    """Parse a month, by name or number, or a range such as `may:august`. Raises ValueError."""
    return _span(text, lambda word: _index(word, MONTHS, "month", 1), "month")


def parse_days(text: str) -> Span:
    """Parse a day of the month or a range such as `1:5` or `-3:-1`. Raises ValueError."""
    first, last = _bounds(text, lambda word: _number(word, 1, 31, "day", negative=True))
    if (first < 0) == (last < 0) and first > last:
        raise ValueError(f"{text!r:.40}: the first day is after the last")
    if first < 0 < last:
        raise ValueError(f"{text!r:.40}: a range that begins at the end of the month must end there, too")
    return first, last


def parse_years(text: str) -> Span:
    """Parse a year or a range such as `2026:2028`. Raises ValueError."""
    return _span(text, lambda word: _number(word, MIN_YEAR, MAX_YEAR, "year"), "year")


def _bounds(text: str, value: _Value) -> Span:
    first, colon, last = text.strip().partition(":")
    begin = value(first)
    return (begin, value(last)) if colon else (begin, begin)


def _span(text: str, value: _Value, noun: str) -> Span:
    first, last = _bounds(text, value)
    if first > last:
        raise ValueError(f"{text!r:.40}: the first {noun} is after the last")
    return first, last


def _index(word: str, names: Sequence[str], noun: str, base: int) -> int:
    name = word.strip().lower()
    if name in names:
        return names.index(name) + base
    if base and name.isdecimal() and 1 <= int(name[:3]) <= len(names):
        return int(name)
    raise ValueError(f"{word!r:.40} is no {noun}: write {names[0]} to {names[-1]}")


def _number(word: str, least: int, most: int, noun: str, negative: bool = False) -> int:
    digits = word.strip()
    sign = -1 if negative and digits.startswith("-") else 1
    plain = digits.removeprefix("-") if sign < 0 else digits
    if not (plain.isdecimal() and len(plain) <= 4 and least <= int(plain) <= most):
        hint = f", or -{most} to -{least} from the end" if negative else ""
        raise ValueError(f"{word!r:.40} is no {noun}: from {least} to {most}{hint}")
    return sign * int(plain)
