"""Arguments shared by many functions: labels, rules for missing values, label matching; short conditions of
`where`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from query_dsl.functions.registry import Argument
from query_dsl.tree.literals import checked_literal
from query_dsl.tree.nodes import BoundArguments, LabelMatching, NullRules, UserFunction
from query_dsl.tree.query_errors import QueryError

NULLS = ("skip", "propagate", "error")
GIVES = Argument("gives", "choice", "type of the result", "DOUBLE", choices=("DOUBLE", "INTEGER", "BOOLEAN", "STRING"))


def parse_labels(value: object, argument: str) -> tuple[str, ...] | None:
    """Check a list of label names and return it as a tuple; None for None."""
    if value is None:
        return None
    if isinstance(value, str) or not isinstance(value, Sequence) or not all(isinstance(v, str) for v in value):
        wanted = f'a list of label names, as in {argument}=["host"]'
        raise QueryError(f"{argument} takes {wanted}, not {value!r:.80}").with_culprit(value)
    if len(set(value)) != len(value):
        raise QueryError(f"{argument}={list(value)!r:.80} names a label twice").with_culprit(value)
    return tuple(checked_literal(value, argument))


def parse_number(value: object, what: str) -> int | float:
    """Check a number; truth values are rejected."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise QueryError(f"{what} takes a number, not {value!r:.80}").with_culprit(value)
    return checked_literal(value, what)


def parse_null_rules(nulls: object, min_count: object) -> NullRules:
    """Check the rules for missing values."""
    if not isinstance(nulls, str) or nulls not in NULLS:
        raise QueryError(f"nulls={nulls!r:.80}: use one of {', '.join(map(repr, NULLS))}").with_culprit(nulls)
    if min_count is None:
        return NullRules(nulls)
    if isinstance(min_count, bool) or not isinstance(min_count, int) or min_count < 0:
        raise QueryError(f"min_count={min_count!r:.80}: use a number that is not negative").with_culprit(min_count)
    return NullRules(nulls, checked_literal(min_count, "min_count"))


def parse_matching(
    on: object, ignoring: object, group_left: object, group_right: object, unmatched: object, fill: object
) -> LabelMatching:
    """Check the options of label matching; short conditions of
    `where`."""
    if on is not None and ignoring is not None:
        raise QueryError("say on=[..] or ignoring=[..], not both")
    if group_left is not None and group_right is not None:
        raise QueryError("say group_left=[..] or group_right=[..], not both")
    if unmatched not in ("drop", "error"):
        raise QueryError(f'unmatched={unmatched!r:.80}: say "drop" or "error"').with_culprit(unmatched)
    return LabelMatching(
        on=parse_labels(on, "on"),
        ignoring=parse_labels(ignoring, "ignoring"),
        group_left=parse_labels(group_left, "group_left"),
        group_right=parse_labels(group_right, "group_right"),
        unmatched=str(unmatched),
        fill=parse_number(fill, "fill") if fill is not None else None,
    )


def udf_arguments(function: UserFunction, args: Sequence[object], named: Mapping[str, object]) -> BoundArguments:
    """Check the arguments of a user-defined function; the only one is `gives`, its result type."""
    unknown = [*map(repr, args), *(name for name in named if name != "gives")]
    if unknown:
        raise QueryError(f"own function {function.name} takes no {', '.join(unknown)!s:.80}: close over it")
    if "gives" not in named:
        return ()
    gives = GIVES.read(named["gives"], function.name)
    return () if gives == GIVES.default else (("gives", gives),)


_COMPARISON = re.compile(
    r"""\s*(==|!=|<=?|>=?)\s*(?:(-?\d{1,30})|(-?\d{0,30}\.?\d{1,30}(?:e[+-]?\d{1,3})?)|(True|False)"""
    r"""|'([^'\\]*)'|"([^"\\]*)")\s*"""
)
_OPERATORS = MappingProxyType({"==": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"})


def parse_comparison(text: str) -> tuple[str, int | float | bool | str] | None:
    """Return (operator, right side) of a comparison without its left side; None for other texts."""
    found = _COMPARISON.fullmatch(text)
    if found is None:
        return None
    sign, integer, real, truth, single, double = found.groups()
    if integer or real:
        return _OPERATORS[sign], int(integer) if integer else float(real)
    return _OPERATORS[sign], truth == "True" if truth else single or double or ""
