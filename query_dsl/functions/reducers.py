"""Table of the reducers, which combine the series of a class bucket by bucket. An entry is the reducer with its
documentation and its test; add it in the file of its function."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from query_dsl.functions import reducers_logic, reducers_members, reducers_rank, reducers_stats, reducers_values
from query_dsl.functions.reducers_base import GIVEN, ClassMembers, Reduced, Reducer
from query_dsl.results.result_cells import Cells, Example
from query_dsl.tree.entry_table import read_only_table


def _ones(counts: Cells) -> Cells:
    return Cells(counts.types, np.ones_like(counts.cells), counts.present)


_MERGED = (
    Reducer(
        name="mean",
        summary="Mean of the members that have a value (DOUBLE); of BOOLEAN series the share of true.",
        example='fetch(\'temperature\').mean(by=["dc", "rack"])',
        case=Example(GIVEN, (2.5, None, 2.0)),
        pushed="mean",
    ),
    Reducer(
        name="sum",
        summary="Sum of the members that have a value (DOUBLE); with min_count=0 the sum of nothing is 0.",
        example='fetch(\'requests\').rate("5m").sum(by=["dc"])',
        case=Example(GIVEN, (5.0, None, 2.0)),
        pushed="sum",
        total=True,
    ),
    Reducer(
        name="min",
        summary="Smallest value; exact INTEGER where every member is INTEGER or BOOLEAN, else DOUBLE.",
        example="fetch('disk.free').min(by=[\"host\"])",
        case=Example(GIVEN, (1.0, None, 2.0)),
        pushed="min",
    ),
    Reducer(
        name="max",
        summary="Greatest value; exact INTEGER where every member is INTEGER or BOOLEAN, else DOUBLE.",
        example="fetch('queue.length').max(by=[])",
        case=Example(GIVEN, (4.0, None, 2.0)),
        pushed="max",
    ),
    Reducer(
        name="count",
        summary="Number of members that have a value (INTEGER), of any type; 0 if none has.",
        example="fetch('build.version').count(by=[\"dc\"])",
        case=Example(GIVEN, (2.0, 0.0, 1.0)),
        pushed="count",
        min_count=0,
        total=True,
        strings=True,
        unit="series",
    ),
    Reducer(
        name="group",
        summary="1 (INTEGER) where a member has a value, of any type.",
        example="fetch('build.version').group(by=[\"version\"])",
        case=Example(GIVEN, (1.0, None, 1.0)),
        pushed="count",
        from_partial=_ones,
        strings=True,
        unit="none",
    ),
)

ENTRIES: Mapping[str, Reducer] = read_only_table(
    *_MERGED,
    *reducers_logic.ENTRIES,
    *reducers_stats.ENTRIES,
    *reducers_rank.ENTRIES,
    *reducers_members.ENTRIES,
    *reducers_values.ENTRIES,
)

__all__ = ["ENTRIES", "ClassMembers", "Reduced", "Reducer"]
