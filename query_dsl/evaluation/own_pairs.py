"""Which rows go together in `apply(f, a, b, …)`, and the operands in that order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from artimon.model.grid import Grid
from query_dsl.evaluation.scalars import TimedScalar, Value
from query_dsl.functions.join import NONE, check_distinct, pair
from query_dsl.results.cells import BOOLEAN, INTEGER, STRING, Cells, Key, doubles, of_type, take
from query_dsl.results.matrix import Matrix
from query_dsl.tree import nodes
from query_dsl.tree.errors import QueryError
from query_dsl.tree.nodes import Match

Texts = tuple[str, ...]


def paired(
    values: Sequence[Value], match: Match, grid: Grid, name: str
) -> tuple[list[Key], list[tuple[Cells, Texts]], int]:
    """Keys of the result, (cells, texts) of every operand with a row for each of them, how many series were dropped.

    Operands are paired with the first that has series; a plain value goes with every series. QueryError as for
    operators."""
    matrices = [i for i, value in enumerate(values) if isinstance(value, Matrix)]
    if not matrices:
        raise QueryError(f"{name} works on series: begin with fetch('NAME')")
    rows, dropped = _together([_keys(values[i]) for i in matrices], match, name)
    keys = list(rows)
    index = {i: np.array([rows[key][place] for key in keys], np.intp) for place, i in enumerate(matrices)}
    operands = [_side(value, index.get(i), len(keys), grid, match.fill) for i, value in enumerate(values)]
    return keys, operands, dropped


def _keys(value: Value) -> tuple[Key, ...]:
    return value.keys if isinstance(value, Matrix) else ()


def _together(sides: Sequence[tuple[Key, ...]], match: Match, name: str) -> tuple[Mapping[Key, list[int]], int]:
    """Key of the result -> its row in each operand; how many series were dropped. QueryError as for operators."""
    if len(sides) == 1:
        if match != Match():
            raise QueryError(f"{name}: on=, ignoring= and their like pair series, and there is one operand")
        keys = [Key("", key.labels) for key in sides[0]]
        check_distinct(keys, sides[0], f"{name} drops the name and")
        return {key: [row] for row, key in enumerate(keys)}, 0
    if match.group_right is not None and len(sides) > 2:
        raise QueryError(f"{name}: group_right goes with two operands; let the first have many and say group_left")
    dropped = 0
    found: dict[tuple[int, Key], list[int]] = {}
    keyed: dict[tuple[int, Key], Key] = {}
    for place, side in enumerate(sides[1:], 1):
        pairs = pair(sides[0], side, match, name)
        dropped += pairs.dropped
        for left, right, key in zip(pairs.left, pairs.right, pairs.keys, strict=True):
            # many on the left may come to one key by labels taken from the right: their row tells them apart
            place_of = (left, Key("", ())) if match.group_left is not None and left != NONE else (NONE, key)
            rows = found.setdefault(place_of, [NONE] * len(sides))
            if left != NONE:
                rows[0] = left
            rows[place] = right
            keyed[place_of] = _merged(keyed.get(place_of), key)
    whole = {at: rows for at, rows in found.items() if match.fill is not None or NONE not in rows}
    keys = [keyed[at] for at in whole]
    check_distinct(keys, keys, name)
    return dict(zip(keys, whole.values(), strict=True)), dropped + len(found) - len(whole)


def _merged(before: Key | None, key: Key) -> Key:
    return key if before is None else Key(key.name, tuple(sorted((dict(before.labels) | dict(key.labels)).items())))


def _side(value: Value, index: Any, rows: int, grid: Grid, fill: float | None) -> tuple[Cells, Texts]:
    """An operand in the order of the pairs, with the texts of its cells."""
    if isinstance(value, TimedScalar):
        return take(value.column, np.zeros(rows, np.intp)), value.strings
    if isinstance(value, nodes.Scalar):
        return _spread(value.value, rows, grid.n)
    if fill is None or not (index == NONE).any():
        return take(value.column, index), value.strings
    filled, _ = _spread(fill, rows, grid.n)
    there = index != NONE
    filled.types[there], filled.cells[there], filled.present[there] = take(value.column, index[there])
    return filled, value.strings


def _spread(value: float | bool | str, rows: int, n: int) -> tuple[Cells, Texts]:
    present = np.ones((rows, n), np.bool_)
    if isinstance(value, str):
        return of_type(STRING, np.zeros((rows, n), np.int64), present), (value,)
    if isinstance(value, float):
        return doubles(np.full((rows, n), value), present), ()
    return of_type(BOOLEAN if isinstance(value, bool) else INTEGER, np.full((rows, n), int(value)), present), ()
