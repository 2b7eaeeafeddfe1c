"""Parameters of a query, parsed from a request and checked against the limits."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs

from artimon.api.api_errors import ApiError
from artimon.api.api_limits import ApiLimits

TIME_MAX_MS = 253_402_300_799_999  # the end of the year 9999
NEWEST_MAX = 11_000
NUMBERS = {"time_ms": (0, TIME_MAX_MS), "newest": (1, NEWEST_MAX)}
"""Least and greatest value of the parameters that are whole numbers."""
_DIGITS_MOST = 15
MAX_FIELDS = 16


@dataclass(frozen=True, slots=True)
class QueryParameters:
    """Parameters of a query, not yet validated. `time_ms` None: now; `format` None: by the header Accept; `explain`:
    return the explanation instead of the answer; `partial_windows`: answer windows that are not held whole."""

    text: str | None
    time_ms: int | None = None
    format: str | None = None
    engine: str | None = None
    explain: bool = False
    partial_windows: bool = False
    hard: bool = False
    """Apply the hard limits instead of the soft ones."""
    completeness: bool = False
    """Add the completeness of what the query reads to the answer."""
    newest: int | None = None
    """Only so many newest buckets of the range, if their values do not depend on the others; None: all."""

    def validate(self, limits: ApiLimits) -> str:
        """Return the text. Raises ApiError if it is missing, invalid Unicode, or too long."""
        if self.text is None:
            raise ApiError(400, "the parameter q is missing: give it a query, such as q=fetch('host.cpu.ms').rate()")
        try:
            size = len(self.text.encode())
        except UnicodeEncodeError as problem:
            raise ApiError(400, "q holds half a surrogate pair: send Unicode", problem.start, 1) from problem
        if size > limits.query_bytes:
            raise ApiError(
                413,
                f"the text has {size} bytes, the limit query_bytes is {limits.query_bytes}: write a pattern with =~ in "
                "place of a long list",
            )
        return self.text


def parse_digits(text: Any) -> int | None:
    """Return the number of a few decimal digits; None for anything else."""
    plain = isinstance(text, str) and text.isascii() and text.isdigit() and len(text) <= _DIGITS_MOST
    return int(text) if plain else None


def parse_body(content_type: str, body: bytes) -> QueryParameters:
    """Parse the parameters from a form or a JSON object. Raises ApiError."""
    kind = content_type.partition(";")[0].strip().lower()
    if kind == "application/json":
        return _make_parameters(_object(body))
    if kind == "application/x-www-form-urlencoded":
        return _make_parameters(_form(body))
    raise ApiError(415, "send application/x-www-form-urlencoded or application/json")


def _object(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError) as problem:
        raise ApiError(400, "the body is not valid JSON") from problem
    if not isinstance(found, dict):
        raise ApiError(400, 'the body must be a JSON object, such as {"q": "fetch(\'host.cpu.ms\').rate()"}')
    return found


def _form(body: bytes) -> dict[str, Any]:
    try:
        fields = parse_qs(body.decode(), keep_blank_values=True, errors="strict", max_num_fields=MAX_FIELDS)
    except ValueError as problem:
        raise ApiError(400, f"the body is not a UTF-8 form of at most {MAX_FIELDS} fields") from problem
    found: dict[str, Any] = {name: values[-1] for name, values in fields.items()}
    for name in NUMBERS:
        number = parse_digits(found.get(name))
        if number is not None:
            found[name] = number
    return found


def _make_parameters(found: dict[str, Any]) -> QueryParameters:
    text, named, engine = found.get("q"), found.get("format"), found.get("engine")
    if text is not None and not isinstance(text, str):
        raise ApiError(400, "q must be a string")
    if named is not None and not isinstance(named, str):
        raise ApiError(400, "format must be a string, such as csv")
    if engine is not None and not isinstance(engine, str):
        raise ApiError(400, "engine must be a string, such as history")
    time_ms = _number(found, "time_ms", "whole epoch milliseconds")
    explain, partial, completeness = (_flag(found, name) for name in ("explain", "partial_windows", "completeness"))
    newest = _number(found, "newest", "a number of buckets")
    flags = explain, partial, parse_hard(found.get("limits")), completeness
    return QueryParameters(text, time_ms, named, engine, *flags, newest)


def parse_hard(text: Any) -> bool:
    """Parse the parameter `limits`: True for the hard ones. Raises ApiError."""
    if text not in (None, "", "soft", "hard"):
        raise ApiError(400, "limits must be soft or hard")
    return bool(text == "hard")


def _number(found: dict[str, Any], name: str, meaning: str) -> int | None:
    value: Any = found.get(name)
    least, most = NUMBERS[name]
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and least <= value <= most):
        return value
    raise ApiError(400, f"{name} must be {meaning}, {least} to {most}")


def _flag(found: dict[str, Any], name: str) -> bool:
    value = found.get(name, False)
    if value not in (True, False, "0", "1", "true", "false", ""):
        raise ApiError(400, f"{name} must be 1 or 0")
    return value in (True, "1", "true")
