"""Syntax tree of templates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


class TemplateError(ValueError):
    """Template that cannot be parsed or rendered; `position` counts characters from the start, None if unknown."""

    def __init__(self, message: str, position: int | None = None) -> None:
        super().__init__(message)
        self.message, self.position = message, position


@dataclass(frozen=True, slots=True)
class Const:
    value: Any


@dataclass(frozen=True, slots=True)
class Dot:
    """Current value."""


@dataclass(frozen=True, slots=True)
class Variable:
    name: str


@dataclass(frozen=True, slots=True)
class Field:
    """Entry of a mapping, or field of the data."""

    base: Expr
    name: str
    position: int


@dataclass(frozen=True, slots=True)
class Call:
    function: str
    args: tuple[Expr, ...]
    position: int


Expr = Const | Dot | Variable | Field | Call


@dataclass(frozen=True, slots=True)
class Text:
    text: str


@dataclass(frozen=True, slots=True)
class Print:
    expr: Expr


@dataclass(frozen=True, slots=True)
class Assign:
    """`declare`: a new variable of the block; else one that exists."""

    name: str
    expr: Expr
    declare: bool


@dataclass(frozen=True, slots=True)
class If:
    """`with_`: the value becomes the current one within `then`."""

    condition: Expr
    then: Block
    otherwise: Block
    variable: str = ""
    with_: bool = False


@dataclass(frozen=True, slots=True)
class Range:
    """Loop over a list, a mapping in the order of its keys, or a number of times; `otherwise` if there is nothing."""

    over: Expr
    body: Block
    otherwise: Block
    index: str = ""
    element: str = ""


@dataclass(frozen=True, slots=True)
class Jump:
    """End of a loop, or of one pass of it."""

    ends_loop: bool


Statement = Text | Print | Assign | If | Range | Jump
Block = tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class Template:
    """A parsed template. `text` is its source."""

    text: str
    block: Block

    @property
    def is_constant(self) -> bool:
        """True if its text does not depend on data."""
        return all(isinstance(one, Text) for one in self.block)
