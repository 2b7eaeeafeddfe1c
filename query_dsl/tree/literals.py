"""Checks of literals in a query: 64-bit integers, texts that UTF-8 can encode; arithmetic of numbers."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from math import isfinite
from types import MappingProxyType
from typing import Any, TypeVar

from artimon.model.values import INT64_MAX, INT64_MIN
from query_dsl.tree.query_errors import QueryError

Value = TypeVar("Value")
_BITS = 64
_SURROGATES = re.compile("[\ud800-\udfff]")


def has_lone_surrogates(text: str) -> bool:
    """Return True if UTF-8 cannot encode the text."""
    return not text.isascii() and _SURROGATES.search(text) is not None


def checked_literal(value: Value, what: str) -> Value:
    """Return the value (or list of values). QueryError for lone surrogates and for integers of more than 64 bits, whose
    digits could be megabytes."""
    if isinstance(value, list | tuple):
        for element in value:
            checked_literal(element, what)
    elif isinstance(value, int) and value.bit_length() > _BITS:
        raise QueryError(
            f"{what}: an integer of {value.bit_length()} bits is not a 64-bit integer: write it as a float"
        )
    elif isinstance(value, str) and has_lone_surrogates(value):
        raise QueryError(f"{what}: a text cannot hold lone surrogates: UTF-8 has no form for them")
    return value


def checked_int64(value: object, where: str = "") -> None:
    """Raise QueryError for an integer that does not fit into int64; `where` begins the message."""
    if isinstance(value, int) and not INT64_MIN <= value <= INT64_MAX:
        raise QueryError(f"{where}{value} is not a 64-bit integer: write it as {float(value):g}")


def to_python_scalar(value: object) -> object:
    """Convert a numpy scalar to its Python type; return anything else unchanged."""
    item = getattr(value, "item", None)
    return item() if callable(item) and getattr(value, "shape", None) == () else value


def _power(base: float, exponent: float) -> int | float:
    """Return an integer if both are, and the result is one that a float holds exactly."""
    value = float(base) ** float(exponent)  # huge powers of integers would take long
    whole = isinstance(base, int) and isinstance(exponent, int) and exponent >= 0 and abs(value) <= 2**53
    return int(value) if whole else value


_ARITHMETIC: Mapping[str, Callable[[Any, Any], Any]] = MappingProxyType(
    {
        "add": operator.add,
        "sub": operator.sub,
        "mul": operator.mul,
        "div": operator.truediv,
        "floordiv": operator.floordiv,
        "mod": operator.mod,
        "pow": _power,
    }
)


def constant_value(op: str, left: object, right: object) -> int | float | None:
    """Return the arithmetic of two finite numbers; None for anything else. Raises QueryError for a division by 0, a
    complex result, and one beyond 64-bit integers or finite floats."""
    if op not in _ARITHMETIC or not _is_number(left) or not _is_number(right):
        return None
    try:
        value: int | float = _ARITHMETIC[op](left, right)
        if INT64_MIN <= value <= INT64_MAX if isinstance(value, int) else isfinite(value):
            return value
    except (ArithmeticError, TypeError):  # a complex number is a TypeError
        pass
    raise QueryError("this has no value: a division by 0, or a number too large")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)
