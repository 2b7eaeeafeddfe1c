"""Functions of the single values of instant vectors, and of their labels."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import re2

from artimon.compute.cells import Floats
from query_dsl.promql.label_sets import NAME, LabelColumn, LabelSets
from query_dsl.promql.promql_values import VectorValue, merge_equal
from query_dsl.promql.tree import PromqlError
from query_dsl.results.label_table import combine_codes, first_rows, with_shared_values
from query_dsl.stores.query_limits import QueryBudget
from query_dsl.tree.query_errors import QueryError
from query_dsl.tree.selector import compile_regex


def _sign(values: Floats) -> Floats:
    return np.where(values == 0, values, np.sign(values))


MATH: Mapping[str, Callable[[Floats], Floats]] = MappingProxyType(
    {
        "abs": np.abs,
        "ceil": np.ceil,
        "floor": np.floor,
        "exp": np.exp,
        "ln": np.log,
        "log2": np.log2,
        "log10": np.log10,
        "sqrt": np.sqrt,
        "sgn": _sign,
        "acos": np.arccos,
        "acosh": np.arccosh,
        "asin": np.arcsin,
        "asinh": np.arcsinh,
        "atan": np.arctan,
        "atanh": np.arctanh,
        "cos": np.cos,
        "cosh": np.cosh,
        "sin": np.sin,
        "sinh": np.sinh,
        "tan": np.tan,
        "tanh": np.tanh,
        "deg": lambda values: values * (180 / math.pi),
        "rad": lambda values: values * (math.pi / 180),
    }
)


def _days(seconds: Floats) -> Any:
    with np.errstate(invalid="ignore"):
        whole = np.where(np.isfinite(seconds), np.clip(seconds, -6e10, 2.5e11), 0)
    return np.trunc(whole).astype("datetime64[s]")


def _of_date(unit: str, within: str, first: int) -> Callable[[Floats], Floats]:
    def part(seconds: Floats) -> Floats:
        moments = _days(seconds)
        places = moments.astype(f"datetime64[{unit}]") - moments.astype(f"datetime64[{within}]").astype(
            f"datetime64[{unit}]"
        )
        return np.where(np.isfinite(seconds), places.astype(np.int64) + first, np.nan)

    return part


def _weekday(seconds: Floats) -> Floats:
    days = _days(seconds).astype("datetime64[D]").astype(np.int64)
    return np.where(np.isfinite(seconds), (days + 4) % 7, np.nan)


def _year(seconds: Floats) -> Floats:
    return np.where(np.isfinite(seconds), _days(seconds).astype("datetime64[Y]").astype(np.int64) + 1970, np.nan)


def _days_in_month(seconds: Floats) -> Floats:
    months = _days(seconds).astype("datetime64[M]")
    length = (months + 1).astype("datetime64[D]") - months.astype("datetime64[D]")
    return np.where(np.isfinite(seconds), length.astype(np.int64), np.nan)


DATES: Mapping[str, Callable[[Floats], Floats]] = MappingProxyType(
    {
        "minute": _of_date("m", "h", 0),
        "hour": _of_date("h", "D", 0),
        "day_of_week": _weekday,
        "day_of_month": _of_date("D", "M", 1),
        "day_of_year": _of_date("D", "Y", 1),
        "days_in_month": _days_in_month,
        "month": _of_date("M", "Y", 1),
        "year": _year,
    }
)
"""Parts of the date of Unix seconds, in UTC."""


def round_to(values: Floats, nearest: Floats) -> Floats:
    """Round to multiples of `nearest`, halves up."""
    inverse = 1 / nearest
    found: Floats = np.floor(values * inverse + 0.5) / inverse
    return found


def clamp(vector: VectorValue, low: Floats, high: Floats) -> VectorValue:
    """Limit the values; steps where `low` exceeds `high` have none."""
    values = np.maximum(low, np.minimum(high, vector.values))
    values = np.where(np.isnan(low) | np.isnan(high) | np.isnan(vector.values), np.nan, values)
    return vector.with_values(values, vector.here & ~(low > high))


# --- labels

MAX_TEXT = 65_536
"""Limit of the characters of a label that a function makes."""


def _expand(template: str) -> list[str | int]:
    """Split a replacement into texts, and numbers and names of groups as Go's regexp expands them."""
    parts: list[str | int] = []
    for found in _REFERENCE.finditer(template):
        plain, name = found["plain"], found["braced"] or found["bare"]
        if plain is not None:
            parts.append(plain)
        elif name is None:
            parts.append("$")
        else:
            parts.append(int(name) if name.isdigit() else f"\0{name}")
    return parts


_REFERENCE = re2.compile(r"(?P<plain>[^$]+)|\$(?:\$|\{(?P<braced>\w+)\}|(?P<bare>\w+))|\$")


def label_replace(
    vector: VectorValue, target: str, replacement: str, source: str, pattern: str, budget: QueryBudget
) -> VectorValue:
    """Set a label from a regular expression over another one. Raises PromqlError and LimitExceeded."""
    try:
        regex = compile_regex(f"(?s:{pattern})")
    except QueryError:
        raise PromqlError(f"invalid regular expression in label_replace(): {pattern}") from None
    _check_name(target, "label_replace")
    parts = _expand(replacement)

    def group(found: Any, part: str | int) -> str:
        if isinstance(part, str) and not part.startswith("\0"):
            return part
        key = part[1:] if isinstance(part, str) else part
        try:
            return found[key] or ""
        except (IndexError, KeyError, re2.error):
            return ""

    column = vector.labels.column(source)
    matched, made = np.zeros(len(column.values), np.bool_), [""] * len(column.values)
    for i, value in enumerate(column.values):
        found = regex.fullmatch(value)
        if found is not None:
            texts = [group(found, part) for part in parts]
            matched[i], made[i] = True, _joined("label_replace", "", texts, budget)
    chosen = matched[column.codes]
    old, new = with_shared_values([vector.labels.column(target), LabelColumn(column.codes, made)])
    labels = vector.labels.with_column(target, LabelColumn(np.where(chosen, new.codes, old.codes), new.values))
    dropped = vector.dropped & ~chosen if target == NAME else vector.dropped
    return _relabelled(vector, labels, dropped)


def label_join(
    vector: VectorValue, target: str, separator: str, sources: tuple[str, ...], budget: QueryBudget
) -> VectorValue:
    """Set a label to the joined values of others. Raises PromqlError and LimitExceeded."""
    _check_name(target, "label_join")
    columns = [vector.labels.column(name) for name in sources]
    codes, count = combine_codes(columns, vector.labels.count)
    texts = [
        _joined("label_join", separator, [column.values[column.codes[row]] for column in columns], budget)
        for row in first_rows(codes, count).tolist()
    ]
    labels = vector.labels.with_column(target, with_shared_values([LabelColumn(codes, texts)])[0])
    return _relabelled(vector, labels, np.zeros_like(vector.dropped) if target == NAME else vector.dropped)


def _joined(function: str, separator: str, texts: list[str], budget: QueryBudget) -> str:
    """Join texts to the value of a label. Raises PromqlError beyond MAX_TEXT, and LimitExceeded."""
    budget.check()
    length = sum(map(len, texts)) + len(separator) * max(0, len(texts) - 1)
    if length > MAX_TEXT:
        raise PromqlError(f"{function}() makes a label of {length:,} characters, at most {MAX_TEXT:,} are possible")
    budget.charge_text(length)
    return separator.join(texts)


def _relabelled(vector: VectorValue, labels: LabelSets, dropped: Any) -> VectorValue:
    return merge_equal(VectorValue(labels, vector.values, vector.here, dropped))


def _check_name(name: str, function: str) -> None:
    if not name:
        raise PromqlError(f"invalid destination label name in {function}(): {name}")


def format_value(value: float) -> str:
    """Format a number as Prometheus does in labels: the shortest decimal without an exponent."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return np.format_float_positional(value, trim="-")
