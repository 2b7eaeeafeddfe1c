"""What a plain value in a query may be: integers that 64 bits hold, texts that UTF-8 can write."""

from __future__ import annotations

from typing import TypeVar

from query_dsl.tree.errors import QueryError

Value = TypeVar("Value")
_BITS = 64


def checked_literal(value: Value, what: str) -> Value:
    """The value (or list of values) itself; QueryError for an integer of more than 64 bits, whose digits alone could be
    megabytes, and for lone surrogates."""
    if isinstance(value, list | tuple):
        for element in value:
            checked_literal(element, what)
    elif isinstance(value, int) and value.bit_length() > _BITS:
        raise QueryError(f"{what}: an integer of {value.bit_length()} bits is no 64-bit integer: write it with a point")
    elif isinstance(value, str) and any("\ud800" <= char <= "\udfff" for char in value):
        raise QueryError(f"{what}: a text cannot hold lone surrogates: UTF-8 has no form for them")
    return value


def plain(value: object) -> object:
    """A scalar of numpy as Python has it; anything else as it is."""
    item = getattr(value, "item", None)
    return item() if callable(item) and getattr(value, "shape", None) == () else value
