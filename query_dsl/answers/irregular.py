"""Raw samples: series whose points stand at times of their own, not on a grid. Immutable.

All samples lie one after another, series by series; `starts` says where each series begins. So a step over a million
samples is a few array operations, whatever the number of series.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from artimon.model.values import ValueType
from query_dsl.answers.keyed import Keyed, Scalar, json_value, typed
from query_dsl.running.cells import Bools, Cells, Ints, Key, Types

if TYPE_CHECKING:
    import pandas as pd

    from query_dsl.answers.origin import Origin

Rows = npt.NDArray[np.intp]


class Irregular(Keyed):
    """Series in canonical order, each with its samples in the order of time.

    `keys`, `types`, `kinds`, `ended_ms`: one a series (`ended_ms` 0 where it goes on). `starts`: (series + 1,), the
    samples of series i are starts[i] .. starts[i + 1]. `times` (epoch ms), `cells`, `births` (ms): one a sample;
    `births` is None where births are not known. A cell is 64 bits of its series' type. Two series may have one key,
    and two samples one time, until `merge` and `dedup` say what is to become of them. Arrays are read-only.
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
        keys: tuple[Key, ...],
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
        self.types, self.starts = _frozen(types), _frozen(starts)
        self.times, self.cells = _frozen(times), _frozen(cells)
        self.births = None if births is None else _frozen(births)
        self.kinds = _frozen(np.zeros(n, np.uint8) if kinds is None else kinds)
        self.ended_ms = _frozen(np.zeros(n, np.int64) if ended_ms is None else ended_ms)

    @classmethod
    def of(
        cls,
        keys: Sequence[Key],
        types: Sequence[int] | Types,
        times: Sequence[Sequence[int] | Ints],
        cells: Sequence[Sequence[int] | Ints],
        strings: tuple[str, ...] = (),
        births: Sequence[Sequence[int] | Ints] | None = None,
        kinds: Sequence[int] | Types | None = None,
        ended_ms: Sequence[int] | Ints | None = None,
    ) -> Irregular:
        """Of one list of times and one of cells a series, in any order; samples of one time keep theirs."""
        n = len(keys)
        starts = np.concatenate(([0], np.cumsum([len(one) for one in times]))).astype(np.int64)
        made = cls(
            tuple(keys),
            np.asarray(types, np.uint8),
            starts,
            _joined(times),
            _joined(cells),
            strings,
            births=None if births is None else _joined(births),
            kinds=None if kinds is None else np.asarray(kinds, np.uint8),
            ended_ms=None if ended_ms is None else np.asarray(ended_ms, np.int64),
        )
        return made.sorted().take(np.array(sorted(range(n), key=made.keys.__getitem__), np.intp))

    # -- reading

    @property
    def counts(self) -> Ints:
        """(series,) how many samples each has."""
        return np.asarray(np.diff(self.starts))

    @property
    def owner(self) -> Ints:
        """(samples,) the row that each sample belongs to."""
        return np.repeat(np.arange(len(self.keys), dtype=np.int64), self.counts)

    @property
    def samples(self) -> int:
        """How many there are in all."""
        return len(self.times)

    def span(self, i: int) -> slice:
        """Where the samples of series i lie."""
        return slice(int(self.starts[i]), int(self.starts[i + 1]))

    def times_of(self, i: int) -> list[int]:
        """Times of series i, epoch milliseconds, ascending."""
        return [int(time) for time in self.times[self.span(i)]]

    def row(self, i: int) -> npt.NDArray[Any]:
        """Values of series i in its own type: int64, float64, bool, or objects (str)."""
        return typed(int(self.types[i]), self.cells[self.span(i)], self.strings)

    def tolist(self, i: int) -> list[tuple[int, Scalar]]:
        """(time in epoch ms, value) of each sample of series i."""
        return list(zip(self.times_of(i), self.row(i).tolist(), strict=True))

    def column(self, i: int) -> Cells:
        """Series i as cells of one row, every one present."""
        cells = self.cells[self.span(i)][None, :]
        return Cells(self.types[i : i + 1], cells, np.ones(cells.shape, np.bool_))

    def __eq__(self, other: object) -> bool:
        """Equal series, types, times and values (NaN equals NaN); notes do not count."""
        if not isinstance(other, Irregular):
            return NotImplemented
        same = self.keys == other.keys and self.types.tolist() == other.types.tolist()
        return same and repr([self.tolist(i) for i in range(len(self))]) == repr(
            [other.tolist(i) for i in range(len(other))]
        )

    __hash__ = None  # type: ignore[assignment]

    # -- making others of it

    def like(self, **parts: Any) -> Irregular:
        """The same with some of its parts replaced, under the names of the attributes."""
        given = {name: getattr(self, name) for name in self.__slots__} | parts
        return Irregular(**given)

    def computed(self, **parts: Any) -> Irregular:
        """As `like`, of values that no source sent: without births, ends and kinds."""
        n = len(self.keys)
        return self.like(births=None, ended_ms=np.zeros(n, np.int64), kinds=np.zeros(n, np.uint8), **parts)

    def take(self, rows: Rows) -> Irregular:
        """The chosen series, in the order of `rows`."""
        if len(rows) == len(self.keys) and (rows == np.arange(len(rows))).all():
            return self
        counts = self.counts[rows]
        starts = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
        at = np.repeat(self.starts[:-1][rows] - starts[:-1], counts) + np.arange(starts[-1])
        return self.like(
            keys=tuple(self.keys[i] for i in rows.tolist()),
            types=self.types[rows],
            kinds=self.kinds[rows],
            ended_ms=self.ended_ms[rows],
            starts=starts,
            **self._at(at),
        )

    def keep(self, mask: Bools) -> Irregular:
        """Only the samples where `mask` (samples,) is true; series that lose all of them stay, empty."""
        if mask.all():
            return self
        before = np.concatenate(([0], np.cumsum(mask))).astype(np.int64)
        return self.like(starts=before[self.starts], **self._at(np.flatnonzero(mask)))

    def filled(self) -> Irregular:
        """Without the series that have no sample."""
        return self.take(np.flatnonzero(self.counts))

    def sorted(self) -> Irregular:
        """The samples of each series in the order of time; those of one time keep their order."""
        if self.samples < 2:
            return self
        later = (self.times[1:] >= self.times[:-1]) | (self.owner[1:] != self.owner[:-1])
        return self if later.all() else self.like(**self._at(np.lexsort((self.times, self.owner))))

    def renamed(self, keys: Sequence[Key]) -> Irregular:
        """The same samples under other keys, one a series, in canonical order; equal keys keep their order."""
        order = np.array(sorted(range(len(keys)), key=keys.__getitem__), np.intp)
        return self.like(keys=tuple(keys)).take(order)

    def regrouped(self, owner: Ints, rows: Rows, keys: Sequence[Key]) -> Irregular:
        """Samples in other series: sample k goes to series owner[k], which has keys[owner[k]] and the type and kind
        of the row rows[owner[k]] of this one. Result in canonical order."""
        order = np.lexsort((self.times, owner))
        starts = np.concatenate(([0], np.cumsum(np.bincount(owner, minlength=len(keys))))).astype(np.int64)
        made = self.like(
            keys=tuple(keys),
            types=self.types[rows],
            kinds=self.kinds[rows],
            ended_ms=self.ended_ms[rows],
            starts=starts,
            **self._at(order),
        )
        return made.renamed(made.keys)

    def _at(self, order: Any) -> dict[str, Any]:
        births = None if self.births is None else self.births[order]
        return {"times": self.times[order], "cells": self.cells[order], "births": births}

    def with_notes(
        self, notes: tuple[str, ...], complete: bool, partial: bool, origin: Origin | None = None
    ) -> Irregular:
        """The same samples with what must be said about them, and where they came from."""
        return self.like(notes=notes, complete=complete, partial=partial, origin=origin or self.origin)

    def with_query(self, query: str) -> Irregular:
        """The same samples with the text of the query that they answer."""
        return self.like(query=query)

    # -- other forms

    def _points_of(self, i: int) -> dict[str, Any]:
        values = [json_value(v) for v in self.row(i).tolist()]
        return {"type": ValueType(int(self.types[i])).name, "times": self.times_of(i), "values": values}

    def to_arrow(self) -> Any:
        """An Arrow table, a row a sample: series, time (UTC), and a nullable column of each type."""
        from query_dsl.answers.irregular_forms import arrow_table

        return arrow_table(self)

    def to_pandas(self) -> pd.DataFrame:
        """A frame with the columns of `to_arrow`, nullable: integers stay exact, pd.NA is missing, NaN stays NaN."""
        from query_dsl.answers.irregular_forms import pandas_frame

        return pandas_frame(self)

    def __repr__(self) -> str:
        from query_dsl.answers.irregular_forms import text_table

        return text_table(self)

    def _repr_html_(self) -> str:
        from query_dsl.answers.irregular_forms import html_table

        return html_table(self)


def _frozen(array: Any) -> Any:
    view = np.asarray(array).view()
    view.flags.writeable = False
    return view


def _joined(parts: Sequence[Sequence[int] | Ints]) -> Ints:
    return np.concatenate([np.asarray(part, np.int64) for part in parts]) if parts else np.zeros(0, np.int64)
