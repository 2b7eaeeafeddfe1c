"""Functions of single values that are present."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import re2

from tests.query_dsl.plainly.things import INT64, Cell, Refused, Row, Value, exact, is_nan, number

Args = Mapping[str, Any]
NAN, INF = float("nan"), float("inf")


def power(a: float, b: float) -> float:
    """a to the power of b as IEEE has it: no complex numbers, no exceptions."""
    if a == 0 and b < 0:
        odd = b == math.floor(b) and b % 2 == 1
        return math.copysign(INF, a) if odd else INF
    try:
        found = a**b
    except OverflowError:
        return -INF if a < 0 and b % 2 == 1 else INF
    return NAN if isinstance(found, complex) else float(found)


def remainder(a: float, b: float) -> float:
    """The rest of a by b, with the sign of b."""
    if b == 0 or math.isinf(a):
        return NAN
    return a % b


def quotient(a: float, b: float) -> float:
    if b != 0:
        return a / b
    return NAN if a == 0 or a != a else math.copysign(INF, a) * math.copysign(1.0, b)


def exponential(a: float) -> float:
    try:
        return math.exp(a)
    except OverflowError:
        return INF


def logarithm(a: float, base: float) -> float:
    if a == 0:
        found = -INF
    elif a < 0 or a != a:
        return NAN
    else:
        found = math.log(a)
    return found if base == math.e else quotient(found, math.log(base))


def whole(value: float, how: Callable[[float], int]) -> float:
    return float(how(value)) if math.isfinite(value) else value


def rounded(value: float, digits: int) -> float:
    return round(value, digits) if math.isfinite(value) else value


FLOATS: dict[str, Callable[[float, Args], float]] = {
    "sqrt": lambda x, a: math.sqrt(x) if x >= 0 else NAN,
    "exp": lambda x, a: exponential(x),
    "log": lambda x, a: logarithm(x, a["base"]),
    "pow": lambda x, a: power(x, number(a["exponent"])),
    "mod": lambda x, a: remainder(x, number(a["divisor"])),
    "add": lambda x, a: x + a["number"],
    "sub": lambda x, a: x - a["number"],
    "mul": lambda x, a: x * a["number"],
    "div": lambda x, a: quotient(x, number(a["number"])),
}
"""Those whose result is always DOUBLE."""

KEEPING: dict[str, Callable[[float, Args], float]] = {
    "abs": lambda x, a: abs(x),
    "ceil": lambda x, a: whole(x, math.ceil),
    "floor": lambda x, a: whole(x, math.floor),
    "round": lambda x, a: rounded(x, a["digits"]),
}
"""DOUBLE stays DOUBLE; INTEGER and BOOLEAN give INTEGER."""


def clamped(x: Any, a: Args) -> Any:
    return x if is_nan(x) else min(max(x, a["low"]), a["high"])


def integral(kind: str, name: str, x: int, a: Args) -> int | None:
    """Of an INTEGER, exactly."""
    if name == "abs":
        return exact(abs(x))
    return exact(round(x, a["digits"])) if name == "round" else x


def to_integer(value: Value) -> Cell:
    if isinstance(value, str):
        try:
            return exact(int(value)) if "." not in value and "e" not in value.lower() else _towards_zero(float(value))
        except ValueError:
            return None
    return _towards_zero(value) if isinstance(value, float) else int(value)


def _towards_zero(value: float) -> Cell:
    return int(value) if math.isfinite(value) and -INT64 <= value < INT64 else None


def to_double(value: Value) -> Cell:
    try:
        return float(value)
    except ValueError:
        return None


def to_boolean(value: Value) -> Cell:
    return {"true": True, "false": False}.get(value) if isinstance(value, str) else value != 0


def to_string(value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else repr(value)


CASTS: dict[str, tuple[Callable[[Value], Cell], str]] = {
    "to_integer": (to_integer, "INTEGER"),
    "to_double": (to_double, "DOUBLE"),
    "to_boolean": (to_boolean, "BOOLEAN"),
    "to_string": (to_string, "STRING"),
}


def calendar(time: int, args: Args) -> int:
    """A part of the local time."""
    moment = (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=time)).astimezone(ZoneInfo(str(args["zone"])))
    return {
        "year": moment.year,
        "month": moment.month,
        "day": moment.day,
        "weekday": moment.isoweekday(),
        "yearday": moment.timetuple().tm_yday,
        "hour": moment.hour,
        "minute": moment.minute,
    }[args["part"]]


DEFAULTS: dict[str, dict[str, Any]] = {"round": {"digits": 0}, "log": {"base": math.e}, "calendar": {"zone": "UTC"}}


def takes(name: str, kind: str) -> bool:
    """True if the function accepts a series of this type."""
    if name in ("match", "replace"):
        return kind == "STRING"
    return name in CASTS or name == "calendar" or kind != "STRING"


def point(name: str, row: Row, times: list[int], args: Args) -> Row:
    """The row after the function; `times`: of the samples, or the last ones that the buckets cover."""
    kind, one = _function(name, row.type, args)
    values = [None if v is None else one(v, time) for v, time in zip(row.values, times, strict=True)]
    return Row(row.name, row.labels, kind, values, row.newest)


def _function(name: str, kind: str, args: Args) -> tuple[str, Callable[[Any, int], Cell]]:
    """(type of the result, function of (value, time))."""
    if name == "calendar":
        return "INTEGER", lambda v, end: calendar(end, args)
    if name in CASTS:
        cast, gives = CASTS[name]
        return gives, lambda v, end: cast(v)
    if name == "match":
        return "BOOLEAN", lambda v, end: re2.fullmatch(args["pattern"], v) is not None
    if name == "replace":
        return "STRING", lambda v, end: str(re2.sub(args["pattern"], args["replacement"], v))
    if name == "finite":
        return kind, lambda v, end: None if isinstance(v, float) and not math.isfinite(v) else v
    if name == "clamp":
        return _clamp(kind, args)
    if name in FLOATS:
        return "DOUBLE", lambda v, end: FLOATS[name](number(v), args)
    if name not in KEEPING:
        raise NotImplementedError(name)
    if kind == "DOUBLE":
        return "DOUBLE", lambda v, end: KEEPING[name](v, args)
    return "INTEGER", lambda v, end: integral(kind, name, int(v), args)


def _clamp(kind: str, args: Args) -> tuple[str, Callable[[Any, int], Cell]]:
    if args["low"] > args["high"]:
        raise Refused("clamp: low is more than high")
    return "DOUBLE", lambda v, end: number(clamped(number(v), args))
