"""Table of point functions, which work on each value separately. NA stays NA; the name is kept."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from query_dsl.functions.points_calendar import CALENDAR
from query_dsl.functions.points_casts import CASTS
from query_dsl.functions.points_numbers import NUMBERS, numeric
from query_dsl.functions.points_texts import TEXTS
from query_dsl.functions.registry import PointFunction
from query_dsl.results.cells import BOOLEAN, Cells
from query_dsl.tree.names import read_only_table


def invert(column: Cells) -> Cells:
    """Negate BOOLEAN cells."""
    return Cells(np.full(len(column.types), BOOLEAN, np.uint8), 1 - column.cells, column.present)


_ALL: tuple[PointFunction, ...] = (*NUMBERS.values(), *CALENDAR.values(), *CASTS.values(), *TEXTS.values())
ENTRIES: Mapping[str, PointFunction] = read_only_table(*_ALL)

__all__ = ["ENTRIES", "invert", "numeric"]
