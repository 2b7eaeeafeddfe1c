"""Arguments of window functions, validated in every process because shards accept requests of any client."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

REQUIRED: Any = object()
"""Marker for parameters without a default."""

Args = Mapping[str, Any]
"""Every argument of a function by name, defaults filled in; durations in milliseconds."""
NO_ARGS: Args = MappingProxyType({})
MAX_INTEGER = 2**53


class ArgumentError(ValueError):
    """An invalid argument of a window function. The text names it and the accepted values."""


@dataclass(frozen=True, slots=True)
class Param:
    """Parameter. `least` and `most` are inclusive bounds, `above` and `below` exclusive; durations are whole ms."""

    name: str
    kind: Literal["number", "integer", "flag", "choice", "duration"]
    default: Any = REQUIRED
    least: float | None = None
    most: float | None = None
    above: float | None = None
    below: float | None = None
    choices: tuple[str, ...] = ()
    summary: str = ""
    unit: str = ""

    def is_valid(self, value: object) -> bool:
        if self.kind == "flag":
            return isinstance(value, bool)
        if self.kind == "choice":
            return isinstance(value, str) and value in self.choices
        number = int if self.kind in ("integer", "duration") else (int, float)
        if isinstance(value, bool) or not isinstance(value, number):
            return False
        return math.isfinite(value) and abs(value) <= MAX_INTEGER and self._within(value)

    def _within(self, value: float) -> bool:
        return (
            (self.least is None or value >= self.least)
            and (self.most is None or value <= self.most)
            and (self.above is None or value > self.above)
            and (self.below is None or value < self.below)
        )

    @property
    def describe(self) -> str:
        """Description of the valid values."""
        if self.kind == "flag":
            return "True or False"
        if self.kind == "choice":
            return f"one of {', '.join(self.choices)}"
        what = {"number": "a number", "integer": "a whole number", "duration": "whole milliseconds"}[self.kind]
        bounds = ((self.least, "at least"), (self.most, "at most"), (self.above, "above"), (self.below, "below"))
        said = " and ".join(f"{word} {bound:g}" for bound, word in bounds if bound is not None)
        return f"{what} {said}".rstrip()


def bind_params(function: str, params: tuple[Param, ...], given: Iterable[tuple[str, Any]]) -> Args:
    """Return every argument of `function` with defaults. Raises ArgumentError for unknown, missing or invalid ones."""
    said = dict(given)
    unknown = [name for name in said if name not in {param.name for param in params}]
    if unknown:
        known = ", ".join(param.name for param in params) or "no argument"
        raise ArgumentError(f"{function} has no argument {unknown[0]!r:.80}; it takes {known}")
    for param in params:
        if param.name not in said and param.default is REQUIRED:
            raise ArgumentError(f"{function} needs {param.name}: {param.describe}")
        if param.name in said and not param.is_valid(said[param.name]):
            raise ArgumentError(f"{function}: {param.name}={said[param.name]!r:.80}: use {param.describe}")
    return {param.name: said.get(param.name, param.default) for param in params}
