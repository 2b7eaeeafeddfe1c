"""Conversions between value types. A value that cannot be converted becomes missing."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Sequence

import numpy as np

from artimon.compute.checkpoint import charge_text, checkpoint
from artimon.model.values import INT64_MAX, INT64_MIN, double_to_cell
from query_dsl.functions.registry import Args, PointContext, PointFunction
from query_dsl.results.query_result import texts_of
from query_dsl.results.result_cells import (
    BOOLEAN,
    DOUBLE,
    INTEGER,
    STRING,
    Bools,
    Cells,
    Example,
    Ints,
    as_floats,
    doubles,
    of_type,
)
from query_dsl.tree.entry_table import read_only_table
from query_dsl.tree.query_errors import QueryError

MAX_TEXTS = 1_000_000
"""Maximum number of new texts per function call."""
ENTRY_BYTES = 120
"""Memory of a new text besides its characters: its places in the string table and in the index of texts, in bytes."""
MAX_NUMBER = 1_000
"""Maximum length of a text that is parsed as a number, in characters."""
_INTEGER = re.compile(r"[+-]?[0-9]+")
_DOUBLE = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[+-]?(?:inf|infinity|nan)", re.IGNORECASE)
_TRUTH = {"true": 1, "false": 0}


def read_integer(text: str) -> int | None:
    """Parse an integer, truncating decimals; None if the text is not a number or exceeds 64 bits."""
    if len(text) <= MAX_NUMBER and _INTEGER.fullmatch(text):
        number = int(text)
        return number if INT64_MIN <= number <= INT64_MAX else None
    value = read_double(text)
    return int(value) if value is not None and -(2.0**63) <= value < 2.0**63 else None


def read_double(text: str) -> float | None:
    """Parse a number, NaN and infinities included; None for other texts."""
    return float(text) if len(text) <= MAX_NUMBER and _DOUBLE.fullmatch(text) else None


def map_texts(
    strings: Sequence[str], cells: Ints, present: Bools, read: Callable[[str], int | None]
) -> tuple[Ints, Bools]:
    """Apply `read` to each distinct text of STRING cells; return the results and a mask, False where it gives None."""
    out, known = np.zeros(cells.shape, np.int64), np.zeros(cells.shape, np.bool_)
    used, place = np.unique(cells[present], return_inverse=True)
    found = [_read_text(read, strings[i]) for i in used.tolist()]
    out[present] = np.array([0 if v is None else v for v in found], np.int64)[place]
    known[present] = np.array([v is not None for v in found], np.bool_)[place]
    return out, known


def _read_text(read: Callable[[str], int | None], text: str) -> int | None:
    checkpoint()
    return read(text)


class TextInterner:
    """Interns texts as cells, one per distinct text. Raises QueryError beyond MAX_TEXTS new texts."""

    def __init__(self, function: str, points: PointContext) -> None:
        self._function, self._points = function, points
        self._cells = {text: i for i, text in enumerate(points.strings)}
        self._made = 0

    def cell(self, text: str) -> int:
        found = self._cells.get(text)
        if found is None:
            if self._made >= MAX_TEXTS:
                raise QueryError(
                    f"{self._function} would make more than {MAX_TEXTS} texts: select fewer series or a shorter range"
                )
            self._made += 1
            charge_text(sys.getsizeof(text) + ENTRY_BYTES)
            found = self._cells[text] = self._points.add_text(text)
        return found


def _numbers_and_texts(
    column: Cells, points: PointContext, kind: int, numbers: Callable[[Cells], Cells], read: Callable[[str], int | None]
) -> Cells:
    """Convert to type `kind`: series of numbers by `numbers`, STRING series by `read` of each text."""
    types, cells, present = column
    texts = types == STRING
    out, there = np.zeros(cells.shape, np.int64), present.copy()
    if not texts.all():
        made = numbers(Cells(types[~texts], np.ascontiguousarray(cells[~texts]), present[~texts]))
        out[~texts], there[~texts] = made.cells, made.present
    if texts.any():
        out[texts], there[texts] = map_texts(points.strings, cells[texts], present[texts], read)
    return of_type(kind, out, there)


def _to_integer(column: Cells, _args: Args, points: PointContext) -> Cells:
    return _numbers_and_texts(column, points, INTEGER, _whole, read_integer)


def _whole(column: Cells) -> Cells:
    types, cells, present = column
    values = as_floats(types, cells)
    double = (types == DOUBLE)[:, None]
    fits = (values >= -(2.0**63)) & (values < 2.0**63)
    cut = np.where(fits & double, values, 0.0).astype(np.int64)  # astype truncates towards 0
    return of_type(INTEGER, np.where(double, cut, cells), present & (fits | ~double))


def _to_double(column: Cells, _args: Args, points: PointContext) -> Cells:
    def read(text: str) -> int | None:
        value = read_double(text)
        return None if value is None else double_to_cell(value)

    return _numbers_and_texts(column, points, DOUBLE, lambda c: doubles(as_floats(c.types, c.cells), c.present), read)


def _to_boolean(column: Cells, _args: Args, points: PointContext) -> Cells:
    def truth(c: Cells) -> Cells:
        return of_type(BOOLEAN, (as_floats(c.types, c.cells) != 0).astype(np.int64), c.present)

    return _numbers_and_texts(column, points, BOOLEAN, truth, _TRUTH.get)


def _to_string(column: Cells, _args: Args, points: PointContext) -> Cells:
    types, cells, present = column
    texts, out = TextInterner("to_string", points), cells.copy()
    for kind in (INTEGER, BOOLEAN, DOUBLE):
        rows = types == kind
        here = present & rows[:, None]
        used, place = np.unique(cells[here], return_inverse=True)
        made = np.array([texts.cell(text) for text in texts_of(kind, used, ())], np.int64)
        out[here] = made[place] if len(made) else 0
    return of_type(STRING, out, present)


_GIVEN = ((-1.5, None, 4.0),)

CASTS = read_only_table(
    PointFunction(
        name="to_integer",
        summary="INTEGER, decimals truncated; missing for NaN, numbers beyond 64 bits, and non-numeric texts.",
        example="fetch('version').to_integer()",
        case=Example(_GIVEN, (-1.0, None, 4.0)),
        run=_to_integer,
        texts=True,
    ),
    PointFunction(
        name="to_double",
        summary="DOUBLE; BOOLEAN is 1 or 0, and a non-numeric text becomes missing.",
        example="fetch('version').to_double()",
        case=Example((("-1.5", None, "four"),), (-1.5, None, None)),
        run=_to_double,
        texts=True,
    ),
    PointFunction(
        name="to_boolean",
        summary='BOOLEAN: 0 is false, any other number true; the texts "true" and "false", any other is missing.',
        example="fetch('endpoint.up').to_boolean()",
        case=Example(((0.0, None, math.nan),), (0.0, None, 1.0)),
        run=_to_boolean,
        texts=True,
        unit="true or false",
    ),
    PointFunction(
        name="to_string",
        summary="STRING: INTEGER in decimal digits, DOUBLE in the fewest digits that identify it, true or false.",
        example="fetch('build.number').to_string()",
        case=Example(_GIVEN, (-1.5, None, 4.0)),
        run=_to_string,
        texts=True,
    ),
)
