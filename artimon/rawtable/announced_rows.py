"""Rows of the table of series, made from announcements: one per series of a source. docs/formats/series.md.

Rows of one (source, series) merge to one: the newest announcement gives the description, the earliest the time of
`first_seen`. The result does not depend on the order of announcements or on repeats.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from artimon.model.batch import MAX_TIME_MS, SeriesBlock, SeriesInfo
from artimon.model.fingerprint import fingerprint, signed
from artimon.model.labels import LabelError, parse_canonical
from artimon.rawtable.schema import STAMP

Ints = npt.NDArray[np.int64]

MAX_BLOCK_NUMBER = 2**31 - 1
LABELS = pa.map_(pa.utf8(), pa.utf8())
SERIES_SCHEMA = pa.schema(
    [
        ("source", pa.int32()),
        ("series", pa.int64()),
        ("name", pa.utf8()),
        ("labels", LABELS),
        ("type", pa.utf8()),
        ("kind", pa.utf8()),
        ("unit", pa.utf8()),
        ("help", pa.utf8()),
        ("block", pa.int32()),
        ("first_seen", STAMP),
        ("last_seen", STAMP),
        ("clash", pa.bool_()),
    ]
)
PRUNED = ("source", "series", "name", "last_seen")
"""Columns that readers prune by."""


@dataclass(frozen=True, slots=True)
class RefusedSeries:
    """An invalid series of an announcement."""

    source: str
    text: str
    reason: str


def _check_numbers(block: SeriesBlock, info: SeriesInfo) -> None:
    """Raise LabelError for a number that no column can hold."""
    if block.block > MAX_BLOCK_NUMBER or not all(0 <= at <= MAX_TIME_MS for at in (block.version, info.first_seen_ms)):
        raise LabelError(
            f"block {block.block}, version {block.version}, first seen {info.first_seen_ms}: a block is at most"
            f" {MAX_BLOCK_NUMBER}, times are from 1970 to 9999"
        )


def rows_of(blocks: Iterable[SeriesBlock], sources: Mapping[str, int]) -> tuple[Any, list[RefusedSeries]]:
    """Convert announcements to rows of SERIES_SCHEMA; also return the refused series. `sources` must hold every one."""
    columns: list[list[Any]] = [[] for _ in SERIES_SCHEMA]
    refused: list[RefusedSeries] = []
    for block in blocks:
        number, seen_us = sources[block.source], block.version * 1000
        for info in block.series:
            try:
                _check_numbers(block, info)
                name, labels = parse_canonical(info.text)
            except LabelError as problem:
                refused.append(RefusedSeries(block.source, info.text, str(problem)))
                continue
            first_us = (info.first_seen_ms or block.version) * 1000
            row = (
                number,
                signed(fingerprint(info.text)),
                name,
                list(labels.items()),
                info.type.name.lower(),
                info.kind.name.lower(),
                info.unit,
                info.help,
                block.block,
                min(first_us, seen_us),
                seen_us,
                False,
            )
            for column, value in zip(columns, row, strict=True):
                column.append(value)
    arrays = [pa.array(values, field.type) for values, field in zip(columns, SERIES_SCHEMA, strict=True)]
    return pa.table(arrays, schema=SERIES_SCHEMA), refused


@dataclass(frozen=True, slots=True)
class MergedRows:
    """Rows with one entry per (source, series), and the clashing fingerprints, which two texts share. A clash keeps one
    row per text, marked by `clash`, because the right one is unknown."""

    table: Any
    clashes: tuple[int, ...]


def merge_rows(rows: Any) -> MergedRows:
    """Merge rows to one per (source, series), sorted by (name, series, source)."""
    if not len(rows):
        return MergedRows(rows.select(SERIES_SCHEMA.names), ())
    rows = rows.combine_chunks()
    numbers = _numbers(rows)
    order = np.lexsort((-numbers["block"], -numbers["last_seen"], numbers["source"], numbers["series"]))
    rows = rows.take(pa.array(order))
    series, source = numbers["series"][order], numbers["source"][order]
    begins = np.concatenate([[True], (series[1:] != series[:-1]) | (source[1:] != source[:-1])])
    starts = np.flatnonzero(begins)
    first = np.minimum.reduceat(numbers["first_seen"][order], starts)
    told = series[np.asarray(rows.column("clash"))]
    clashing = np.union1d(told, series[1:][(series[1:] == series[:-1]) & ~_same_as_before(rows)])
    kept = rows.take(pa.array(starts))
    kept = kept.set_column(rows.schema.get_field_index("first_seen"), "first_seen", pa.array(first).view(STAMP))
    if len(clashing):
        apart = pc.is_in(rows.column("series"), pa.array(clashing))
        both = _first_per_text(rows.filter(apart))
        kept = pa.concat_tables([kept.filter(pc.invert(pc.is_in(kept.column("series"), pa.array(clashing)))), both])
    return MergedRows(sort_rows(kept), tuple(clashing.tolist()))


def sort_rows(rows: Any) -> Any:
    """Sort by (name, series, source), so that the statistics of row groups locate a name."""
    order = pc.sort_indices(rows, sort_keys=[(name, "ascending") for name in ("name", "series", "source")])
    return rows.take(order).combine_chunks()


def _numbers(rows: Any) -> dict[str, Ints]:
    return {
        name: rows.column(name).cast(pa.int64()).to_numpy()
        for name in ("source", "series", "block", "first_seen", "last_seen")
    }


def _same_as_before(rows: Any) -> npt.NDArray[np.bool_]:
    """Return the mask (n - 1,) of rows i + 1 with the name and labels of row i. Only valid for pairs with equal
    fingerprints, nearly all of which have equal texts."""
    before, after = rows.slice(0, len(rows) - 1), rows.slice(1)
    same = np.asarray(pc.equal(before.column("name"), after.column("name")))
    series = rows.column("series").to_numpy()
    doubtful = np.flatnonzero(same & (series[1:] == series[:-1]))
    lengths = [_sizes(part.column("labels"))[doubtful] for part in (before, after)]
    unequal = lengths[0] != lengths[1]
    same[doubtful[unequal]] = False
    doubtful, sizes = doubtful[~unequal], lengths[0][~unequal]
    left, right = (_flatten(part.column("labels").take(pa.array(doubtful))) for part in (before, after))
    differs = np.asarray(pc.or_(pc.not_equal(left[0], right[0]), pc.not_equal(left[1], right[1])))
    owner = np.repeat(doubtful, sizes)
    same[owner[differs]] = False
    return same


def _sizes(labels: Any) -> Ints:
    """Return the number of labels of each row."""
    parts = [np.diff(np.asarray(chunk.offsets)) for chunk in labels.chunks]
    return np.concatenate(parts).astype(np.int64) if parts else np.zeros(0, np.int64)


def _flatten(labels: Any) -> tuple[Any, Any]:
    """Return keys and values of all rows, concatenated."""
    # the result of `take` has no offset: keys and items are those of its rows alone
    keys, items = ([getattr(chunk, part) for chunk in labels.chunks] for part in ("keys", "items"))
    return pa.chunked_array(keys, pa.utf8()).combine_chunks(), pa.chunked_array(items, pa.utf8()).combine_chunks()


def _first_per_text(rows: Any) -> Any:
    """Return the first row of each (source, series, text); the rows have clashing fingerprints, newest first."""
    seen: dict[tuple[Any, ...], int] = {}
    firsts: dict[tuple[Any, ...], Any] = {}
    listed = rows.to_pylist()
    for at, row in enumerate(listed):
        key = row["source"], row["series"], row["name"], tuple(row["labels"])
        seen.setdefault(key, at)
        firsts[key] = min(firsts.get(key, row["first_seen"]), row["first_seen"])
    kept = [{**listed[at], "first_seen": firsts[key], "clash": True} for key, at in seen.items()]
    return pa.Table.from_pylist(kept, schema=SERIES_SCHEMA)
