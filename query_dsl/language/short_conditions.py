"""Short conditions of `where`: texts such as "> 5"."""

from __future__ import annotations

import re
from types import MappingProxyType

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
