"""Fresh batches of known content: what the load of the fault tests is made of, and what each of them is worth."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from artimon.model.batch import PollResult, Samples, SeriesBlock, SeriesInfo
from artimon.model.fingerprint import fingerprint
from artimon.model.labels import canonical
from artimon.model.values import ValueType
from artimon.rawtable.schema import FILE_SCHEMA
from pipeline.compaction.row_digest import RowDigest, digest_of

NAME = "load.value"
BLOCK = 1_000
LATE_MS = 3 * 3_600_000
"""Every eighth batch of a source speaks of a time so long ago."""
_MIXED = 6
"""Every sixth source has all four types and ends; the others are integers and doubles."""
_TEXTS = ("", "ok", "größer", "a longer state of a machine, with 'quotes' and \n a line", "\U0001f600", "null", "NaN")
_ODDITIES = np.array([np.nan, -0.0, np.inf, -np.inf, 5e-324, 1.7976931348623157e308])


class Source:
    """One source: the same series in every batch, values that walk, a time of its own for each batch. The first batch
    announces the series: `NAME{i="…",source="…"}`."""

    def __init__(self, name: str, series: int, mixed: bool) -> None:
        self.name = name
        self._random = np.random.default_rng(xxhash.xxh3_64_intdigest(name.encode()))
        self._texts = [canonical(NAME, {"i": str(i), "source": name}) for i in range(series)]
        self._fingerprints = np.array([fingerprint(text) for text in self._texts], np.uint64)
        self._types = _types(series, mixed)
        self._values = self._random.integers(-1_000_000, 1_000_000, series)
        self._last_ms, self._polls = 0, 0
        self._birth_ms = 0

    def poll(self, now_ms: int) -> PollResult:
        """The next batch: never the time of an earlier one, and never later than `now_ms` but by the milliseconds that
        this needs."""
        self._last_ms = max(now_ms, self._last_ms + 1)
        self._birth_ms = self._birth_ms or self._last_ms
        self._polls += 1
        at = self._last_ms - (LATE_MS if self._polls % 8 == 0 else 0)
        samples = self._samples(at)
        blocks = self._blocks() if self._polls == 1 else ()
        return PollResult(self.name, bytes(16), self._birth_ms, self._last_ms, samples, blocks=blocks)

    def _blocks(self) -> tuple[SeriesBlock, ...]:
        infos = [SeriesInfo(text, ValueType(type_)) for text, type_ in zip(self._texts, self._types, strict=True)]
        return tuple(
            SeriesBlock(self.name, n, self._last_ms, tuple(infos[at : at + BLOCK]))
            for n, at in enumerate(range(0, len(infos), BLOCK))
        )

    def _samples(self, at: int) -> Samples:
        count = len(self._types)
        self._values = self._values + self._random.integers(-50, 200, count)
        cells = self._values.copy()
        doubles = np.flatnonzero(self._types == ValueType.DOUBLE)
        values = self._values[doubles] / 128.0
        values[: len(_ODDITIES)] = _ODDITIES[: len(values)]
        cells[doubles] = values.view(np.int64)
        cells[self._types == ValueType.BOOLEAN] &= 1
        texts = self._types == ValueType.STRING
        cells[texts] %= len(_TEXTS)
        types = self._types
        if texts.any():
            types = types.copy()
            ended = (np.arange(8) * 131 + self._polls) % count
            types[ended], cells[ended] = ValueType.ENDED, 0
        times, births = np.full(count, at, np.int64), np.full(count, min(at, self._birth_ms), np.int64)
        return Samples(self._fingerprints, times, births, types, cells, _TEXTS if texts.any() else ())


def make_sources(prefix: str, count: int, series: int) -> list[Source]:
    """`count` sources of `series` series each."""
    return [Source(f"{prefix}/host-{n:03d}.example/0", series, n % _MIXED == 0) for n in range(count)]


def worth(samples: Samples) -> RowDigest:
    """The digest that the rows of these samples have in the table, where the number of their source is taken as 0."""
    columns = [
        pa.array(np.zeros(len(samples), np.int32)),
        pa.array(samples.fingerprint.view(np.int64)),
        _stamps(samples.time_ms),
        _stamps(samples.birth_ms),
        pa.array(np.zeros(len(samples), np.bool_)),
        _column(samples, ValueType.INTEGER, samples.cell, pa.int64()),
        _column(samples, ValueType.DOUBLE, samples.cell.view(np.float64), pa.float64()),
        _column(samples, ValueType.BOOLEAN, samples.cell == 1, pa.bool_()),
        _strings(samples),
    ]
    return digest_of(pa.record_batch(columns, schema=FILE_SCHEMA))


def _types(series: int, mixed: bool) -> npt.NDArray[np.uint8]:
    types = np.where(np.arange(series) % 5 == 0, ValueType.DOUBLE, ValueType.INTEGER).astype(np.uint8)
    if mixed:
        types[np.arange(series) % 10 == 3] = ValueType.BOOLEAN
        types[np.arange(series) % 10 == 7] = ValueType.STRING
    return types


def _column(samples: Samples, type_: ValueType, values: Any, arrow: Any) -> Any:
    return pa.array(values, arrow, mask=samples.type != type_, from_pandas=False)


def _strings(samples: Samples) -> Any:
    here = samples.type == ValueType.STRING
    if not here.any():
        return pa.nulls(len(samples), pa.utf8())
    return pa.array(samples.strings, pa.utf8()).take(pa.array(samples.cell, mask=~here))


def _stamps(milliseconds: npt.NDArray[np.int64]) -> Any:
    return pa.array(milliseconds * 1000).view(FILE_SCHEMA.field("time").type)
