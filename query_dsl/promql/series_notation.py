"""Notation of series and their values in tests of Prometheus: `name{label="value"}` and `1+2x3 _ stale`."""

from __future__ import annotations

import json
import re

from artimon.model.values import STALE
from query_dsl.promql.tree import parse_duration

MAXPOINTS = 1_000_000
"""Limit of the values of one series."""
Point = float | str | bool | None
_TEXT = r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'|`[^`]*`'
_SERIES = re.compile(
    rf"(?P<name>[a-zA-Z_:][\w:.]*)?\s*(?P<labels>\{{(?!\{{)(?:[^}}\"'`]|{_TEXT})*\}})?\s*(?P<points>.*)", re.DOTALL
)
_LABEL = re.compile(rf'\s*(?:([\w:.]+)|("(?:[^"\\]|\\.)*"))\s*(?:=\s*({_TEXT}))?\s*(?:,|$)')
_WORD = re.compile(rf"(?:{_TEXT})(?:x\d+)?(?!\S)|\S+")
POINT = re.compile(
    r"(?P<value>_|stale|[+-]?(?:inf|nan|[\d.]+(?:e[+-]?\d+)?))(?:(?P<step>[+-](?:[\d.]+(?:e[+-]?\d+)?|inf))?"
    r"x(?P<times>\d+))?$",
    re.IGNORECASE,
)
_TYPED = re.compile(rf"(?P<value>true|false|{_TEXT})(?:x(?P<times>\d+))?$")


class NotationError(ValueError):
    """Series or values that cannot be read."""


def duration_ms(text: str) -> int:
    """Parse a duration: numbers with units, or plain seconds."""
    if re.fullmatch(r"-?[\d.]+(e[+-]?\d+)?", text):
        return round(float(text) * 1000)
    if re.fullmatch(r"0(ms|[smhdwy])", text):
        return 0
    return parse_duration(text.removeprefix("-")) * (-1 if text.startswith("-") else 1)


def points_of(text: str) -> list[float | None]:
    """Parse the values of a series; None where one is missing, STALE where the series ends. Raises NotationError."""
    return [point for point in typed_points(text) if _is_number(point)]  # type: ignore[misc]


def _is_number(point: Point) -> bool:
    if isinstance(point, bool | str):
        raise NotationError(f"{point!r:.60} is not a number")
    return True


def typed_points(text: str) -> list[Point]:
    """Parse values as `points_of`, and true, false and texts in quotes."""
    out: list[Point] = []
    for word in _WORD.findall(text):
        typed, found = _TYPED.match(word), POINT.match(word)
        given = typed or found
        if given is None:
            raise NotationError(f"{word!r:.60} is not a value")
        times = int(given["times"] or 0)
        if len(out) + times >= MAXPOINTS:
            raise NotationError(f"more than {MAXPOINTS} values")
        out += _typed(typed["value"], times) if typed else _numbers(given, times)
    return out


def _typed(value: str, times: int) -> list[Point]:
    return [value == "true" if value in ("true", "false") else unquoted(value)] * (times + 1)


def _numbers(found: re.Match[str], times: int) -> list[Point]:
    if found["value"] == "_":
        return [None] * max(times, 1)
    if found["value"].lower() == "stale":
        return [STALE] * (times + 1)
    try:
        value, step = float(found["value"]), float(found["step"] or 0)
    except ValueError:
        raise NotationError(f"{found[0]!r:.60} is not a value") from None
    out: list[Point] = []
    for _ in range(times + 1):
        out.append(value)
        value += step
    return out


def series_of(line: str) -> tuple[dict[str, str], str]:
    """Split a line into labels and the text of the values. Raises NotationError."""
    found = _SERIES.fullmatch(line.strip())
    if found is None:
        raise NotationError(f"{line!r:.200} is not a series")
    labels = {"__name__": found["name"]} if found["name"] else {}
    inner, at = (found["labels"] or "{}")[1:-1], 0
    while at < len(inner.rstrip()):
        pair = _LABEL.match(inner, at)
        if pair is None:
            raise NotationError(f"{inner!r:.200} are no labels")
        name = pair[1] or json.loads(pair[2])
        if pair[3] is None:
            labels["__name__"] = name
        else:
            labels[name] = unquoted(pair[3])
        at = pair.end()
    return {name: value for name, value in labels.items() if value}, found["points"].strip()


def unquoted(text: str) -> str:
    """Return the content of a text in quotes."""
    inner = text[1:-1]
    if text[0] == "`":
        return inner
    return re.sub(r"\\(.)", lambda m: {"n": "\n", "t": "\t", "r": "\r"}.get(m[1], m[1]), inner)
