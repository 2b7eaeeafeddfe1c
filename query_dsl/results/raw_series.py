"""Raw samples: series with individual sample times instead of a grid. Immutable.

Samples are stored contiguously, series by series; `starts` has the offset of each series. So a step over a million
samples takes a few array operations, independent of the number of series.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from artimon.model.values import ValueType
from artimon.runtime.text import printable
from query_dsl.results.provenance import Origin
from query_dsl.results.query_result import QueryResult, Scalar, json_value, to_frame, typed_values
from query_dsl.results.render import MAX_SERIES, cell_text, remarks_of
from query_dsl.results.result_cells import (
    Bools,
    Ints,
    Rows,
    SeriesKey,
    Types,
    canonical_order,
    read_only,
)
from query_dsl.tree.times import format_time

if TYPE_CHECKING:
    import pandas as pd


SHOWN_SAMPLES = 3
"""Number of newest samples shown per series in a table."""


class RawSeries(QueryResult):
    """Series in canonical order, each with its samples in time order.

    `keys`, `types`, `kinds`, `ended_ms`: one per series (`ended_ms` is 0 for a series that has not ended). `starts`:
    (series + 1,), series i has samples starts[i] .. starts[i + 1] - 1. `times` (epoch ms), `cells`, `births` (start
    times, ms): one per sample; `births` is None if unknown. A cell is 64 bits of its series' type. Series may share a
    key until `merge`; samples of one series may share a time until `dedup`. Arrays are read-only.
    """

    __slots__ = (
        "births",
        "cells",
        "complete",
        "ended_ms",
        "keys",
        "kinds",
        "notes",
        "origin",
        "partial",
        "query",
        "starts",
        "strings",
        "times",
        "types",
    )

    def __init__(
        self,
        keys: tuple[SeriesKey, ...],
        types: Types,
        starts: Ints,
        times: Ints,
        cells: Ints,
        strings: tuple[str, ...] = (),
        *,
        births: Ints | None = None,
        kinds: Types | None = None,
        ended_ms: Ints | None = None,
        notes: tuple[str, ...] = (),
        complete: bool = True,
        partial: bool = False,
        query: str = "",
        origin: Origin | None = None,
    ) -> None:
        n = len(keys)
        self.origin = origin
        self.keys, self.strings, self.notes = keys, strings, notes
        self.complete, self.partial, self.query = complete, partial, query
        self.types, self.starts = read_only(types), read_only(starts)
        self.times, self.cells = read_only(times), read_only(cells)
        self.births = None if births is None else read_only(births)
        self.kinds = read_only(np.zeros(n, np.uint8) if kinds is None else kinds)
        self.ended_ms = read_only(np.zeros(n, np.int64) if ended_ms is None else ended_ms)

    @classmethod
    def of(
        cls,
        keys: Sequence[SeriesKey],
        types: Sequence[int] | Types,
        times: Sequence[Sequence[int] | Ints],
        cells: Sequence[Sequence[int] | Ints],
        strings: tuple[str, ...] = (),
        births: Sequence[Sequence[int] | Ints] | None = None,
        kinds: Sequence[int] | Types | None = None,
        ended_ms: Sequence[int] | Ints | None = None,
    ) -> RawSeries:
        """Build from one list of times and one of cells per series, in any order; the sort by time is stable."""
        starts = np.concatenate(([0], np.cumsum([len(one) for one in times]))).astype(np.int64)
        made = cls(
            tuple(keys),
            np.asarray(types, np.uint8),
            starts,
            _concatenate(times),
            _concatenate(cells),
            strings,
            births=None if births is None else _concatenate(births),
            kinds=None if kinds is None else np.asarray(kinds, np.uint8),
            ended_ms=None if ended_ms is None else np.asarray(ended_ms, np.int64),
        )
        return made.sorted().take(canonical_order(made.keys))

    # -- reading

    @property
    def counts(self) -> Ints:
        """Number of samples of each series, (series,)."""
        return np.asarray(np.diff(self.starts))

    @property
    def owner(self) -> Ints:
        """Row of the series of each sample, (samples,)."""
        return np.repeat(np.arange(len(self.keys), dtype=np.int64), self.counts)

    @property
    def samples(self) -> int:
        """Total number of samples."""
        return len(self.times)

    def span(self, i: int) -> slice:
        """Return the slice of the samples of series i."""
        return slice(int(self.starts[i]), int(self.starts[i + 1]))

    def times_of(self, i: int) -> list[int]:
        """Return the times of series i, epoch milliseconds, ascending."""
        return [int(time) for time in self.times[self.span(i)]]

    def row(self, i: int) -> npt.NDArray[Any]:
        """Return the values of series i in its type: int64, float64, bool, or objects (str)."""
        return typed_values(int(self.types[i]), self.cells[self.span(i)], self.strings)

    def tolist(self, i: int) -> list[tuple[int, Scalar]]:
        """Return (time in epoch ms, value) of each sample of series i."""
        return list(zip(self.times_of(i), self.row(i).tolist(), strict=True))

    def __eq__(self, other: object) -> bool:
        """Compare series, types, times and values (NaN equals NaN); ignore notes."""
        if not isinstance(other, RawSeries):
            return NotImplemented
        same = self.keys == other.keys and self.types.tolist() == other.types.tolist()
        return same and repr([self.tolist(i) for i in range(len(self))]) == repr(
            [other.tolist(i) for i in range(len(other))]
        )

    __hash__ = None  # type: ignore[assignment]

    # -- derived copies

    def as_computed(self, **parts: Any) -> RawSeries:
        """As `like`, for computed values: without start times, ends and kinds."""
        n = len(self.keys)
        return self.like(births=None, ended_ms=np.zeros(n, np.int64), kinds=np.zeros(n, np.uint8), **parts)

    def take(self, rows: Rows) -> RawSeries:
        """Select series, in the order of `rows`."""
        if len(rows) == len(self.keys) and (rows == np.arange(len(rows))).all():
            return self
        counts = self.counts[rows]
        starts = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
        at = np.repeat(self.starts[:-1][rows] - starts[:-1], counts) + np.arange(starts[-1])
        return self._of_rows(rows, [self.keys[i] for i in rows.tolist()], starts, at)

    def keep(self, mask: Bools) -> RawSeries:
        """Keep the samples where `mask` (samples,) is true; series without samples left stay, empty."""
        if mask.all():
            return self
        before = np.concatenate(([0], np.cumsum(mask))).astype(np.int64)
        return self.like(starts=before[self.starts], **self._reordered(np.flatnonzero(mask)))

    def filled(self) -> RawSeries:
        """Drop the series that have no sample."""
        return self.take(np.flatnonzero(self.counts))

    def sorted(self) -> RawSeries:
        """Sort the samples of each series by time; the sort is stable."""
        if self.samples < 2:
            return self
        later = (self.times[1:] >= self.times[:-1]) | (self.owner[1:] != self.owner[:-1])
        return self if later.all() else self.like(**self._reordered(np.lexsort((self.times, self.owner))))

    def renamed(self, keys: Sequence[SeriesKey]) -> RawSeries:
        """Replace the keys, one per series, and sort canonically; equal keys keep their order."""
        return self.like(keys=tuple(keys)).take(canonical_order(keys))

    def reassigned(self, owner: Ints, rows: Rows, keys: Sequence[SeriesKey]) -> RawSeries:
        """Reassign samples: sample k goes to series owner[k], with key keys[owner[k]] and the type and kind of row
        rows[owner[k]] of this object. The result is in canonical order."""
        order = np.lexsort((self.times, owner))
        starts = np.concatenate(([0], np.cumsum(np.bincount(owner, minlength=len(keys))))).astype(np.int64)
        return self._of_rows(rows, keys, starts, order).renamed(keys)

    def _of_rows(self, rows: Rows, keys: Sequence[SeriesKey], starts: Ints, order: Any) -> RawSeries:
        """Return series with the types, kinds and ends of `rows`, and the samples in this order."""
        types, kinds, ended_ms = self.types[rows], self.kinds[rows], self.ended_ms[rows]
        parts = self._reordered(order)
        return self.like(keys=tuple(keys), types=types, kinds=kinds, ended_ms=ended_ms, starts=starts, **parts)

    def _reordered(self, order: Any) -> dict[str, Any]:
        births = None if self.births is None else self.births[order]
        return {"times": self.times[order], "cells": self.cells[order], "births": births}

    # -- conversions

    def _points_of(self, i: int) -> dict[str, Any]:
        values = [json_value(v) for v in self.row(i).tolist()]
        return {"type": ValueType(int(self.types[i])).name, "times": self.times_of(i), "values": values}

    def to_arrow(self) -> Any:
        """Convert to an Arrow table, one row per sample: series, time (UTC), and a nullable column per type."""
        return _arrow_table(self)

    def to_pandas(self) -> pd.DataFrame:
        """Convert to a frame with the columns of `to_arrow`: integers stay exact, pd.NA is missing, NaN stays NaN."""
        return to_frame(_arrow_table(self))

    def __repr__(self) -> str:
        return _text_table(self)

    def _repr_html_(self) -> str:
        return _html_table(self)


def _concatenate(parts: Sequence[Sequence[int] | Ints]) -> Ints:
    return np.concatenate([np.asarray(part, np.int64) for part in parts]) if parts else np.zeros(0, np.int64)


def _arrow_table(answer: RawSeries) -> Any:
    """Build the columns series (dictionary), time (ms, UTC), integer, double, boolean, string."""
    import pyarrow as pa

    from artimon.model.value_traits import TRAITS

    owner = answer.owner
    series = pa.DictionaryArray.from_arrays(pa.array(owner, pa.int32()), pa.array(answer.series, pa.utf8()))
    columns: dict[str, Any] = {"series": series, "time": pa.array(answer.times, pa.timestamp("ms", tz="UTC"))}
    cells = np.ascontiguousarray(answer.cells)
    for kind, traits in TRAITS.items():
        missing = np.asarray(answer.types[owner] != kind)
        columns[traits.column] = traits.to_column(cells, answer.strings, missing)
    return pa.table(columns)


def _text_table(answer: RawSeries) -> str:
    """Render the title, one line per series with its newest samples (times in UTC), and the notes."""
    title, rows, remarks = _table_parts(answer)
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([title, *(lines if len(rows) > 1 else []), *remarks])


def _html_table(answer: RawSeries) -> str:
    """Render the same as an HTML table, every text escaped."""
    title, rows, remarks = _table_parts(answer)
    lines = [f"<p>{html.escape(title)}</p>"]
    if len(rows) > 1:
        head = "".join(f'<th scope="col">{html.escape(cell)}</th>' for cell in rows[0])
        lines.append(f"<table><thead><tr>{head}</tr></thead><tbody>")
        for name, *cells in rows[1:]:
            shown = "".join(f"<td>{html.escape(cell)}</td>" for cell in cells)
            lines.append(f'<tr><th scope="row" style="text-align: left">{html.escape(name)}</th>{shown}</tr>')
        lines.append("</tbody></table>")
    return "<div>" + "\n".join([*lines, *(f"<p>{html.escape(remark)}</p>" for remark in remarks)]) + "</div>"


def _table_parts(answer: RawSeries) -> tuple[str, list[list[str]], list[str]]:
    flags = ("" if answer.complete else ", incomplete") + (", partial" if answer.partial else "")
    title = f"{len(answer)} series, {answer.samples} samples{flags}"
    rows = [["series", "samples", "newest", *[""] * (SHOWN_SAMPLES - 1)]]
    for i, name in enumerate(answer.series[:MAX_SERIES]):
        newest = _newest(answer, i)
        rows.append([printable(name), str(int(answer.counts[i])), *newest, *[""] * (SHOWN_SAMPLES - len(newest))])
    return title, rows, remarks_of(answer, MAX_SERIES)


def _newest(answer: RawSeries, i: int) -> list[str]:
    """Format the newest samples of one series; creates Python objects only for these."""
    end = int(answer.starts[i + 1])
    few = slice(max(int(answer.starts[i]), end - SHOWN_SAMPLES), end)
    values = typed_values(int(answer.types[i]), answer.cells[few], answer.strings).tolist()
    return [f"{format_time(t)} {cell_text(v)}" for t, v in zip(answer.times[few].tolist(), values, strict=True)]
