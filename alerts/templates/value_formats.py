"""Texts of values as Go writes them: plain, by printf, and the humanized forms of Prometheus."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from alerts.templates.template_nodes import TemplateError

MAX_WIDTH = 1_000
_VERB = re.compile(r"%([-+# 0]*)(\d+)?(?:\.(\d*))?(.)?", re.DOTALL)
_LARGE = ("", "k", "M", "G", "T", "P", "E", "Z", "Y")
_BINARY = ("", "ki", "Mi", "Gi", "Ti", "Pi", "Ei", "Zi", "Yi")
_SMALL = ("", "m", "u", "n", "p", "f", "a", "z", "y")


def go_text(value: Any) -> str:
    """Return a value as `{{ value }}` prints it."""
    if value is None:
        return "<no value>"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return go_float(value)
    if isinstance(value, Mapping):
        return f"map[{' '.join(f'{go_text(key)}:{go_text(value[key])}' for key in sorted(value))}]"
    if isinstance(value, list | tuple):
        return f"[{' '.join(map(go_text, value))}]"
    return str(value)


def go_float(value: float, precision: int | None = None, verb: str = "g") -> str:
    """Return a number in the form of Go's verbs e, f and g; precision None: the shortest that is exact."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    if precision is not None:
        return f"{value:.{precision}{verb}}"
    sign, digits, exponent = Decimal(repr(value)).as_tuple()
    assert isinstance(exponent, int)
    shown = "".join(map(str, digits)).rstrip("0") or "0"
    scale = len(digits) + exponent - 1 if any(digits) else 0
    if -4 <= scale < 6 and verb == "g":
        plain = f"{Decimal(repr(value)):f}"
        return plain.rstrip("0").rstrip(".") if "." in plain else plain
    mantissa = shown[0] + (f".{shown[1:]}" if len(shown) > 1 else "")
    return f"{'-' if sign else ''}{mantissa}e{scale:+03d}"


def to_float(value: Any) -> float:
    """Return a number, or a text of one. Raises TemplateError."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise TemplateError(f"{go_text(value)!r:.80} is not a number")
    try:
        return float(value)
    except (ValueError, OverflowError):
        raise TemplateError(f"{value!r:.80} is not a number") from None


def go_printf(form: str, *values: Any) -> str:
    """Format as Go's fmt.Sprintf does for the verbs v s q d f e g t x c. Raises TemplateError for others."""
    given = list(values)
    used = 0

    def one(found: re.Match[str]) -> str:
        nonlocal used
        flags, width, precision, verb = found.groups()
        if verb == "%":
            return "%"
        if verb is None:
            return "%!(NOVERB)"
        if used >= len(given):
            return f"%!{verb}(MISSING)"
        value = given[used]
        used += 1
        if int(width or 0) > MAX_WIDTH or int(precision or 0) > MAX_WIDTH:
            raise TemplateError(f"printf: a width above {MAX_WIDTH}")
        text = _verb_text(verb, value, None if precision is None else int(precision or 0), flags)
        size = int(width or 0)
        if "-" in flags:
            return text.ljust(size)
        if "0" in flags and isinstance(value, int | float):
            return text.zfill(size)
        return text.rjust(size)

    made = _VERB.sub(one, form)
    left = [f"{_type_name(value)}={go_text(value)}" for value in given[used:]]
    return f"{made}%!(EXTRA {', '.join(left)})" if left else made


def _type_name(value: Any) -> str:
    names = {bool: "bool", int: "int", float: "float64", str: "string"}
    return names.get(type(value), "<nil>" if value is None else "map[string]string")


def _verb_text(verb: str, value: Any, precision: int | None, flags: str) -> str:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    plus = "+" if "+" in flags and number and value >= 0 else ""
    if verb == "v":
        return plus + (go_float(value, precision) if isinstance(value, float) else go_text(value))
    if verb in "feEgG" and isinstance(value, float):
        exact = 6 if precision is None and verb in "feE" else precision
        return plus + go_float(value, exact, verb.lower())
    if verb in "dxXc" and isinstance(value, int) and not isinstance(value, bool):
        return plus + (
            chr(value) if verb == "c" and 0 <= value < 0x110000 else f"{value:{'d' if verb == 'c' else verb}}"
        )
    if verb == "t" and isinstance(value, bool):
        return go_text(value)
    if verb in "sqxX" and isinstance(value, str):
        cut = value if precision is None else value[:precision]
        if verb == "q":
            return json.dumps(cut, ensure_ascii=False)
        return cut if verb == "s" else cut.encode().hex()
    if verb not in "vsqdfeEgGtxXc":
        raise TemplateError(f"printf: the verb %{verb} is not supported")
    if verb == "s" and isinstance(value, Mapping | list | tuple):
        return go_text(value)
    return f"%!{verb}({_type_name(value)}={go_text(value)})"


def _scaled(value: float, base: float, prefixes: tuple[str, ...]) -> str:
    at = 0
    while at < len(prefixes) - 1 and abs(value) >= base:
        value, at = value / base, at + 1
    return f"{go_float(value, 4)}{prefixes[at]}"


def _small(value: float) -> str:
    at = 0
    while at < len(_SMALL) - 1 and abs(value) < 1:
        value, at = value * 1000, at + 1
    return f"{go_float(value, 4)}{_SMALL[at]}"


def humanize(given: Any) -> str:
    """Return a number with a metric prefix."""
    value = to_float(given)
    if value == 0 or not math.isfinite(value):
        return go_float(value, 4)
    return _scaled(value, 1000, _LARGE) if abs(value) >= 1 else _small(value)


def humanize_1024(given: Any) -> str:
    """Return a number with a binary prefix."""
    value = to_float(given)
    return go_float(value, 4) if abs(value) <= 1 or not math.isfinite(value) else _scaled(value, 1024, _BINARY)


def humanize_duration(given: Any) -> str:
    """Return seconds as days, hours, minutes and seconds."""
    value = to_float(given)
    if not math.isfinite(value):
        return go_float(value, 4)
    if abs(value) >= 2**63:
        raise TemplateError(f"{value!r} seconds are beyond 64 bits")
    if value == 0:
        return "0s"
    if abs(value) < 1:
        return f"{_small(value)}s"
    sign, value = ("-", -value) if value < 0 else ("", value)
    minutes, seconds = divmod(int(value), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{sign}{days}d {hours}h {minutes}m {seconds}s"
    if hours:
        return f"{sign}{hours}h {minutes}m {seconds}s"
    return f"{sign}{minutes}m {seconds}s" if minutes else f"{sign}{go_float(value, 4)}s"


def humanize_percentage(given: Any) -> str:
    """Return a ratio in percent."""
    return f"{go_float(to_float(given) * 100, 4)}%"


def humanize_timestamp(given: Any) -> str:
    """Return seconds since the epoch as a date."""
    value = to_float(given)
    if not math.isfinite(value):
        return go_float(value, 4)
    try:
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=math.floor(value * 1000))
    except OverflowError:
        raise TemplateError(f"{value!r} is not a time") from None
    fraction = f".{moment.microsecond:06d}".rstrip("0") if moment.microsecond else ""
    return f"{moment:%Y-%m-%d %H:%M:%S}{fraction} +0000 UTC"
