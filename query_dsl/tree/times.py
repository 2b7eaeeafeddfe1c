"""Durations ("90s", "1h30m") and instants ("now-1h", ISO 8601): conversion between text and milliseconds."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from artimon.runtime.text import format_duration as format_duration
from artimon.runtime.text import parse_duration as duration_ms
from query_dsl.tree.query_errors import QueryError

MAX_MS = 2**53  # far beyond any stored time; sums of a few stay within int64
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def parse_duration(value: object, what: str) -> int:
    """Milliseconds of a timedelta or a text such as "10m", "1h30m", "250ms"; QueryError for anything else."""
    try:
        return _duration(value, what)
    except QueryError as problem:
        raise problem.with_culprit(value) from None


def _duration(value: object, what: str) -> int:
    if isinstance(value, timedelta):
        return _bounded(value // timedelta(milliseconds=1), value, what)
    try:
        total = duration_ms(value if isinstance(value, str) else "")
    except ValueError:
        number = isinstance(value, int) and not isinstance(value, bool) and 0 < value <= MAX_MS
        hint = f', for example "{value}s"' if number else ""
        value = value if not isinstance(value, int) or abs(value) <= MAX_MS else f"of more than {MAX_MS}"
        raise QueryError(
            f'{what} {value!r:.80} is not a duration: write a number and a unit of ms s m h d w, as in "5m"{hint}'
        ) from None
    return _bounded(total, value, what)


def _bounded(total: int, value: object, what: str) -> int:
    if not 0 < total <= MAX_MS:
        raise QueryError(f"{what} {value!r:.80} must be more than 0 and at most {MAX_MS} ms")
    return total


@dataclass(frozen=True, slots=True)
class Instant:
    """A point in time: epoch milliseconds, or milliseconds relative to the evaluation time (never positive)."""

    ms: int
    relative: bool = False

    def resolve(self, now_ms: int) -> int:
        return now_ms + self.ms if self.relative else self.ms

    def __str__(self) -> str:
        if self.relative:
            return "now" if self.ms == 0 else f"now-{format_duration(-self.ms)}"
        return format_time(self.ms)


def format_time(ms: int) -> str:
    """Format ISO 8601 in UTC, with milliseconds if not 0; times that datetime cannot represent as milliseconds."""
    try:
        moment = EPOCH + timedelta(milliseconds=ms)
    except OverflowError:
        return f"{ms}ms"
    text = moment.strftime("%Y-%m-%dT%H:%M:%S").rjust(19, "0")
    return f"{text}.{ms % 1000:03d}Z" if ms % 1000 else f"{text}Z"


def parse_instant(value: object, what: str) -> Instant:
    """Parse "now", "now-1h", ISO 8601 (UTC unless an offset is given), a datetime, or epoch milliseconds."""
    try:
        return _instant(value, what)
    except QueryError as problem:
        raise problem.with_culprit(value) from None


def _instant(value: object, what: str) -> Instant:
    if isinstance(value, Instant):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        if abs(value) > MAX_MS:
            raise QueryError(f"{what} is more than {MAX_MS} ms away from the epoch")
        return Instant(value)
    if isinstance(value, str) and value.startswith("now"):
        return _relative(value, what)
    return Instant(_to_ms(_to_datetime(value, what)))


def _relative(text: str, what: str) -> Instant:
    rest = text[3:].replace(" ", "")
    if not rest:
        return Instant(0, relative=True)
    if rest[0] != "-":
        raise QueryError(f'{what} {text!r:.80}: write "now" or "now-" and a duration, as in "now-1h"')
    return Instant(-parse_duration(rest[1:], what), relative=True)


def _to_datetime(value: object, what: str) -> datetime:
    if isinstance(value, datetime):
        return value
    try:
        return datetime.fromisoformat(str(value)) if isinstance(value, str) else datetime.fromisoformat("")
    except ValueError:
        raise QueryError(
            f'{what} {value!r:.80} is not a time: write "2026-11-21T13:00:00Z", "now", "now-1h" or epoch milliseconds'
        ) from None


def _to_ms(moment: datetime) -> int:
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return (aware - EPOCH) // timedelta(milliseconds=1)
