"""Tables of the functions that the language itself has, by family."""

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
"""Functions of whole series: family -> name -> entry. Those of "map" are neither over one window nor of one value."""

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
    """Every name that the language has already: functions, methods and words that begin a query."""
    return WORDS.union(*TABLES.values())
