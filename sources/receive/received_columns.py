"""Columns of one sender, shared by the protocols: series with texts and metadata, and the samples of one body."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping
from dataclasses import dataclass

import numpy as np

from artimon.model.values import INT64_MAX, INT64_MIN, STALE_BITS, Kind, ValueType
from sources.base.source_errors import RejectCounts, SourceError
from sources.dropin.file_parser import FileMetadata, LineColumns
from sources.dropin.line_start_times import TIME_BITS
from sources.dropin.series_columns import DROPPED, SeriesColumns
from sources.scrape.prometheus.metric_families import SUFFIXES, MetricFamilies, MetricFamily
from sources.state.relabel import RelabelRules
from sources.state.start_times import Ints

MAX_CACHED = 400_000
MAX_CACHED_BYTES = 128 * 1024 * 1024
"""Limits of the series whose keys are known; beyond them all are forgotten."""
MAX_FAMILIES = 50_000
MAX_HELP = 1_000
"""Characters of a help text that are kept."""
BAD = "bad name or label"


class BodyError(SourceError, ValueError):
    """Error: the body cannot be parsed by its protocol; the text names the fault."""


@dataclass(frozen=True, slots=True)
class ReceivedSamples:
    """Samples of a body, and the ends of series: columns and times of the markers."""

    columns: LineColumns
    ended: Ints
    ended_ms: Ints


class ReceivedColumns(SeriesColumns, ABC):
    """Series of one sender, with keys of its protocol for those that are known."""

    def __init__(self, rules: RelabelRules | None) -> None:
        super().__init__({}, rules or RelabelRules(()))  # which remove the labels for rules if there are none
        self._families = MetricFamilies()
        self._metadata: FileMetadata | None = None

    @abstractmethod
    def read(self, body: bytes, form: str) -> ReceivedSamples:
        """Read a body of this form. Raises BodyError."""

    def forget(self) -> None:
        """Forget all columns, keys and kinds."""
        super().forget()
        self._cached: dict[Hashable, int] = {}
        self._cached_bytes = 0
        self._kinds: dict[str, Kind] = {}

    def trim(self) -> None:
        """Forget all series if too many are known; called before a body."""
        if len(self._cached) > MAX_CACHED or self._cached_bytes > MAX_CACHED_BYTES:
            self.forget()

    def known(self, key: Hashable) -> int | None:
        """Return the column of a key, None if it is new."""
        return self._cached.get(key)

    def add(self, key: Hashable, size: int, name: str, labels: Mapping[str, str]) -> int:
        """Return the column of a series, new or not; `size`: bytes of the key. Labels that begin with `__` are for the
        rules only. Raises LabelError."""
        at = self._cached[key] = self.column(name, labels)
        self._cached_bytes += size
        if at != DROPPED and name not in self._kinds:
            self._describe(name)
        return at

    # --- metadata

    def take_family(self, name: str, kind: str, help_: str, unit: str) -> None:
        """Take the metadata of a family of metrics; `kind` as Prometheus has it, "" if unknown."""
        if not self._families.add(MetricFamily(name, kind, help_[:MAX_HELP], unit[:MAX_HELP]), MAX_FAMILIES):
            return
        for sample in [name + suffix for suffix in SUFFIXES]:
            if sample in self._kinds:
                self._describe(sample)

    def _describe(self, name: str) -> None:
        """Note the kind of a name; its suffix tells the kind where no metadata do."""
        family = self._families.family_of(name)
        guess = Kind.COUNTER if name.endswith(("_total", "_bucket", "_count")) else Kind.UNKNOWN
        self._kinds[name] = family.kind(name) if family.type else guess
        self._metadata = None

    def metadata(self) -> FileMetadata:
        """Return the metadata; another object if they changed, so that series get their new description."""
        if self._metadata is None:
            families = {name: self._families.family_of(name) for name in self._kinds}
            self._metadata = FileMetadata(
                dict(self._kinds),
                {name: one.unit for name, one in families.items() if one.unit},
                {name: one.help for name, one in families.items() if one.help},
            )
        return self._metadata


class SampleColumns:
    """Builder of ReceivedSamples."""

    def __init__(self) -> None:
        self.rejected = RejectCounts()
        self._column: list[int] = []
        self._time_ms: list[int] = []
        self._value: list[float] = []
        self._integers: dict[int, int] = {}
        """Values that are integers, by place; `_value` holds 0 there."""
        self._birth_ms: list[int] = []
        self._delta: list[bool] = []
        self._line: list[int] = []

    def add(self, at: int, time_ms: int, value: float, line: int, birth_ms: int = 0, delta: bool = False) -> None:
        """Add a sample. `line`: number of its series in the body; `birth_ms` 0: unknown; `delta`: the value is an
        increase since the last one."""
        if isinstance(value, int) and INT64_MIN <= value <= INT64_MAX:
            self._integers[len(self._value)], value = value, 0.0
        self._column.append(at)
        self._time_ms.append(time_ms)
        self._value.append(value)
        self._birth_ms.append(birth_ms)
        self._delta.append(delta)
        self._line.append(line)

    def finish(self, metadata: FileMetadata) -> ReceivedSamples:
        """Return the samples; those without a valid time are refused."""
        column, line = np.array(self._column, np.int64), np.array(self._line, np.int64)
        cell = np.array(self._value, np.float64).view(np.int64)
        type_ = np.full(len(cell), ValueType.DOUBLE, np.uint8)
        places = list(self._integers)
        cell[places], type_[places] = list(self._integers.values()), ValueType.INTEGER
        time_ms, birth_ms = np.array(self._time_ms, np.int64), np.array(self._birth_ms, np.int64)
        wrong = (time_ms <= 0) | (time_ms >= 1 << TIME_BITS)
        if wrong.any():
            text = "a time is not between 1970 and 2109"
            self.rejected.add("bad time", text, int(wrong.sum()), int(line[wrong].min()))
        stale = (cell == STALE_BITS) & (type_ == ValueType.DOUBLE) & ~wrong
        kept = ~stale & ~wrong
        columns = LineColumns(
            column[kept],
            time_ms[kept],
            type_[kept],
            cell[kept],
            line[kept],
            (),
            metadata,
            self.rejected,
            complete=False,
            birth_ms=birth_ms[kept],
            delta=np.array(self._delta, np.bool_)[kept],
        )
        return ReceivedSamples(columns, column[stale], time_ms[stale])
