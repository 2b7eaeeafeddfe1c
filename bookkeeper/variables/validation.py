"""Validation of written values: each function returns a plain value of Python, or raises VariableRefused.

Other numeric types (NumPy's, bool, Decimal) are converted; exceptions of their methods become VariableRefused.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Protocol

from bookkeeper.variables.canonical import LabelError, short_repr, validate_labels, validate_name

STRING_BYTES = 32 * 1024


class VariableRefused(ValueError):
    """Refused call: counted as `bookkeeper.refused{reason=…}`, raised only in strict mode.

    `reason` is one of name, labels, type, value, saturated, limit, describe, settings, bounds, callback, internal."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(reason, text)
        self.reason, self.text = reason, text

    def __str__(self) -> str:
        return self.text


class NamedVariable(Protocol):
    """Variable or histogram, named in a refusal."""

    @property
    def name(self) -> str: ...

    @property
    def labels(self) -> Mapping[str, str]: ...


def with_variable(named: NamedVariable, error: VariableRefused) -> VariableRefused:
    """Add the variable's name and labels to the message of a refused value."""
    if error.reason != "value":
        return error
    return VariableRefused(error.reason, f"{named.name} {short_repr(named.labels)}: {error.text}")


def validate_key(name: str, labels: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """Validate name and labels; returns plain texts in a copy, because the caller may change its mapping later."""
    try:
        plain = str.__str__(validate_name(name))
    except LabelError as error:
        raise VariableRefused("name", str(error)) from None
    try:
        copied = dict(validate_labels(_copied(labels)))
    except Exception as error:  # a mapping of the application may raise anything
        raise VariableRefused("labels", f"{plain}: {error}") from None
    return plain, {str.__str__(label): str.__str__(value) for label, value in copied.items()}


def _copied(labels: Mapping[str, str]) -> dict[str, str]:
    try:
        return dict(labels)
    except (TypeError, ValueError):
        raise LabelError(f'labels {short_repr(labels)}: give a dict of texts, as in {{"host": "a"}}') from None


def to_int(value: object) -> int:
    """Convert an integer of any type (bool, NumPy's integers) to int; floats are refused."""
    try:
        return int(operator.index(value))  # type: ignore[arg-type]
    except Exception:
        raise VariableRefused("value", f"{short_repr(value)} is not an integer: round it or use a double") from None


def to_float(value: object) -> float:
    """Convert a number of any type to float; texts are refused."""
    try:
        if issubclass(type(value), (str, bytes, bytearray)):
            raise TypeError(value)
        return float(value)  # type: ignore[arg-type]
    except Exception:
        raise VariableRefused("value", f"{short_repr(value)} is not a number: give a float") from None


def to_finite_float(value: object) -> float:
    """Like `to_float`, but refuses NaN and infinities."""
    number = to_float(value)
    if number - number != 0.0:
        raise VariableRefused("value", f"adding {number} would spoil the sum permanently: set it, or leave it out")
    return number


def to_bool(value: object) -> bool:
    """Convert Python's or NumPy's bool to bool; other types are refused."""
    # NumPy's bool_ is accepted by its name: this package does not import NumPy.
    if type(value) is bool or type(value).__name__ in ("bool_", "bool"):
        return bool(value)
    raise VariableRefused("value", f"{short_repr(value)} is not a boolean: give True or False")


def to_str(value: object, limit: int, what: str) -> str:
    """Convert to a plain str of at most `limit` bytes of UTF-8; `what` names it in the refusal."""
    if not issubclass(type(value), str):  # unlike isinstance this calls nothing of the object
        raise VariableRefused("value", f"{what} {short_repr(value)} is of type {type(value).__name__}: give a str")
    try:
        plain = str.__str__(value)
        size = len(plain.encode("utf-8"))
    except UnicodeEncodeError:
        raise VariableRefused(
            "value", f"{what} {short_repr(value)} does not fit UTF-8: remove lone surrogates"
        ) from None
    if size > limit:
        raise VariableRefused("value", f"{what} {short_repr(value)} has {size} bytes: use at most {limit}")
    return plain


def to_word(value: object) -> str:
    """Convert a str to a plain str; anything else to "?", which matches no word."""
    return str.__str__(value) if issubclass(type(value), str) else "?"
