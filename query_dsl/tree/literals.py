"""Checks of literals in a query: 64-bit integers, texts that UTF-8 can encode."""

from __future__ import annotations

import re
from typing import TypeVar

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
