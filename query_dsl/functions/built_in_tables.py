"""Tables of the built-in functions, by family."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

from query_dsl.functions import deviation, fills, filters, mappers, operators, points, presence, reducers, transforms
from query_dsl.functions.registry import Entry
from query_dsl.functions.step import Step
from query_dsl.tree.names import WORDS, read_only_table

STEPS: Mapping[str, Mapping[str, Step]] = MappingProxyType(
    {
        "map": read_only_table(deviation.DEVIATION),
        "filter": filters.FILTERS,
        "fill": fills.FILLS,
        "transform": transforms.TRANSFORMS,
        "presence": presence.PRESENCE,
    }
)
"""Functions of whole series: family -> name -> entry. "map" has those that are neither window nor point functions."""

TABLES: Mapping[str, Mapping[str, Entry]] = MappingProxyType(
    {
        "window": mappers.ENTRIES,
        "point": points.ENTRIES,
        "reduce": reducers.ENTRIES,
        "operator": operators.ENTRIES,
        **STEPS,
    }
)


@cache
def built_in_names() -> frozenset[str]:
    """Return all names that the language reserves: functions, methods and words that begin a query."""
    return WORDS.union(*TABLES.values())
