"""Conditions on a value: `< 1`, `>= 0.5`, `== true`, `!= "ok"`. Pure."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

Value = int | float | bool | str

_OPERATORS: MappingProxyType[str, Callable[[Any, Any], Any]] = MappingProxyType(
    {
        "<": operator.lt,
        "<=": operator.le,
        ">": operator.gt,
        ">=": operator.ge,
        "==": operator.eq,
        "!=": operator.ne,
    }
)
_FORM = re.compile(r"\s*(<=|>=|==|!=|<|>)\s*(.+?)\s*", re.DOTALL)
_INTEGER = re.compile(r"[+-]?\d{1,19}")
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,3})?")
_QUOTED = re.compile(r'"([^"]*)"|\'([^\']*)\'')


class ConditionError(ValueError):
    """Condition that cannot be parsed, or value of a type that it does not apply to."""


@dataclass(frozen=True, slots=True)
class Condition:
    """Condition that holds for a value if `value op operand`; `text` is its source.

    Numbers compare exactly (an integer is never rounded to a float). BOOLEAN values compare with numbers as 1 and 0.
    NaN fulfils only `!=`. Texts and booleans support == and != only."""

    text: str
    op: str
    operand: Value

    def holds(self, value: Value) -> bool:
        """True if the value fulfils the condition. ConditionError if the types do not match."""
        if isinstance(self.operand, bool):
            if not isinstance(value, bool):
                raise ConditionError(f"{self.text!r} compares with true or false, but the value is {value!r:.80}")
        elif isinstance(self.operand, str) != isinstance(value, str):
            kind = "a text" if isinstance(self.operand, str) else "a number"
            raise ConditionError(f"{self.text!r} compares with {kind}, the value is {value!r:.80}")
        return bool(_OPERATORS[self.op](value, self.operand))


def parse_condition(text: str) -> Condition:
    """Parse an operator followed by a number, true, false or a quoted text. Raises ConditionError."""
    form = _FORM.fullmatch(text)
    if not form:
        raise ConditionError(
            f'{text!r:.80} is not a condition: write one of < <= > >= == != and a value, such as "> 5" or "== true"'
        )
    op, word = form[1], form[2]
    operand = _operand(word)
    if isinstance(operand, bool | str) and op not in ("==", "!="):
        raise ConditionError(f"{op} needs a number, not {word:.80}: texts and booleans support == and != only")
    return Condition(f"{op} {word}", op, operand)


def _operand(word: str) -> Value:
    if word in ("true", "false"):
        return word == "true"
    if _INTEGER.fullmatch(word):
        return int(word)
    if _NUMBER.fullmatch(word) and math.isfinite(float(word)):
        return float(word)
    quoted = _QUOTED.fullmatch(word)
    if quoted:
        return quoted[1] if quoted[1] is not None else quoted[2]
    raise ConditionError(f"{word!r:.80} is not a number, true, false or a text in quotes")
