"""Columns of one sender, shared by the protocols: series with texts and metadata, and the samples of one body."""

from __future__ import annotations

import math
import re
import zlib
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import numpy as np
import numpy.typing as npt

from artimon.model.values import INT64_MAX, INT64_MIN, STALE_BITS, Kind, Value, ValueType, type_of
from sources.base.source_errors import RejectCounts, SourceError
from sources.dropin.file_parser import FileMetadata, LineColumns
from sources.dropin.line_start_times import TIME_BITS
from sources.dropin.series_columns import DROPPED, SeriesColumns
from sources.receive.key_table import MAX_CACHED, UNKNOWN, KeyTable
from sources.scrape.prometheus.metric_families import SUFFIXES, MetricFamilies, MetricFamily
from sources.state.relabel import RelabelRules
from sources.state.start_times import Flags, Ints

MAX_CACHED_BYTES = 128 * 1024 * 1024
"""Limit of the bytes of known keys; beyond it all are forgotten."""
MAX_BODY_SAMPLES = 200_000
MAX_FAMILIES = 50_000
MAX_HELP = 1_000
"""Characters of a help text that are kept."""
_LINE_BITS = 32
"""Bits of the number of a line in a body, in a group of bodies."""
BAD = "bad name or label"


class BodyError(SourceError, ValueError):
    """Error: the body cannot be parsed by its protocol; the text names the fault."""


@dataclass(frozen=True, slots=True)
class ReceivedSamples:
    """Samples of a body, and the ends of series: columns and times of the markers."""

    columns: LineColumns
    ended: Ints
    ended_ms: Ints

    @property
    def has_faults(self) -> bool:
        """True if the body has refused samples, ends or texts, so that it is taken alone."""
        return bool(self.columns.rejected.counts or len(self.ended) or self.columns.strings)


def join_samples(bodies: Sequence[ReceivedSamples]) -> ReceivedSamples:
    """Return the samples of bodies without faults as those of one, in their order."""
    parts = [one.columns for one in bodies]
    line = np.concatenate([(at << _LINE_BITS) | part.line for at, part in enumerate(parts)])
    last = parts[-1]
    columns = LineColumns(
        np.concatenate([part.column for part in parts]),
        np.concatenate([part.time_ms for part in parts]),
        np.concatenate([part.type for part in parts]),
        np.concatenate([part.cell for part in parts]),
        line,
        (),
        last.metadata,
        RejectCounts(),
        complete=False,
        birth_ms=np.concatenate([part.birth_ms for part in parts if part.birth_ms is not None]),
        delta=np.concatenate([part.delta for part in parts if part.delta is not None]),
    )
    return ReceivedSamples(columns, bodies[0].ended, bodies[0].ended_ms)


def gunzip(body: bytes, limit: int) -> bytes:
    """Decompress at most `limit` bytes. Raises BodyError."""
    unpack = zlib.decompressobj(wbits=31)
    try:
        data = unpack.decompress(body, limit + 1)
    except zlib.error as problem:
        raise BodyError(f"the body is not compressed by gzip: {problem}") from None
    if len(data) > limit:
        raise BodyError(f"the body has more than {limit:,} bytes: send less at once")
    if not unpack.eof:
        raise BodyError("the compressed body is not whole")
    return data


class ReceivedColumns(SeriesColumns, ABC):
    """Series of one sender, with keys of its protocol for those that are known."""

    def __init__(self, rules: RelabelRules | None) -> None:
        super().__init__({}, rules or RelabelRules(()))  # which remove the labels for rules if there are none
        self._families = MetricFamilies()
        self._metadata: FileMetadata | None = None

    @abstractmethod
    def read(self, body: bytes, form: str) -> ReceivedSamples:
        """Read a body of this form. Raises BodyError."""

    def resume(self, texts: Iterable[str]) -> None:  # noqa: ARG002
        """Take the canonical texts of the series of earlier runs; most protocols need none."""
        return

    def forget(self) -> None:
        """Forget all columns, keys and kinds."""
        super().forget()
        self._cached: dict[Hashable, int] = {}
        self._cached_bytes = 0
        self.tables: list[KeyTable] = []
        """Tables of keys beside that of Python."""
        self._kinds: dict[str, Kind] = {}

    def trim(self) -> None:
        """Forget all series if too many are known; called before a body."""
        size = self._cached_bytes + sum(table.key_bytes for table in self.tables)
        most = max([len(self._cached), *map(len, self.tables)])
        if most >= MAX_CACHED or size > MAX_CACHED_BYTES:
            self.forget()

    @property
    def cached(self) -> int:
        """Number of keys."""
        return len(self._cached) + sum(map(len, self.tables))

    def known(self, key: Hashable) -> int | None:
        """Return the column of a key, None if it is new."""
        return self._cached.get(key)

    def known_of(self, keys: Iterable[Hashable]) -> list[int]:
        """Return the column of each key, UNKNOWN if it is new."""
        found = map(self._cached.get, keys, repeat(UNKNOWN))
        return list(found)

    def add(self, key: Hashable, size: int, name: str, labels: Mapping[str, str]) -> int:
        """Return the column of a series, new or not; `size`: bytes of the key. Labels that begin with `__` are for the
        rules only. Raises LabelError."""
        at = self.column(name, labels)
        self.keep(key, at)
        self._cached_bytes += size
        if at != DROPPED and name not in self._kinds:
            self._describe(name)
        return at

    def keep(self, key: Hashable, column: int) -> None:
        """Remember the column of a key."""
        self._cached[key] = column

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
        self._others: dict[int, tuple[ValueType, int]] = {}
        """Type and cell of values that are no DOUBLE, by place; `_value` holds 0 there."""
        self._strings: dict[str, int] = {}
        self._birth_ms: list[int] = []
        self._delta: list[bool] = []
        self._line: list[int] = []
        self._parts: list[tuple[npt.NDArray[Any], ...]] = []
        self._count = 0
        """Number of samples."""

    def add(self, at: int, time_ms: int, value: Value, line: int, birth_ms: int = 0, delta: bool = False) -> None:
        """Add a sample. `line`: number of its series in the body; `birth_ms` 0: unknown; `delta`: the value is an
        increase since the last one."""
        self._take(1)
        if not isinstance(value, float):
            value = self._take_other(value)
        self._column.append(at)
        self._time_ms.append(time_ms)
        self._value.append(value)
        self._birth_ms.append(birth_ms)
        self._delta.append(delta)
        self._line.append(line)

    def _take_other(self, value: Value) -> float:
        """Return the number to append for a value that is no float."""
        if isinstance(value, int) and not INT64_MIN <= value <= INT64_MAX:
            return float(value)
        cell = self._strings.setdefault(value, len(self._strings)) if isinstance(value, str) else int(value)
        self._others[len(self._value)] = type_of(value), cell
        return 0.0

    def add_doubles(self, column: Ints, time_ms: Ints, cell: Ints, line: Ints, birth_ms: Ints | None = None) -> None:
        """Add samples of type DOUBLE; `birth_ms` None: all are unknown."""
        n = len(column)
        type_, delta = np.full(n, ValueType.DOUBLE, np.uint8), np.zeros(n, np.bool_)
        self.extend(column, time_ms, cell, type_, line, np.zeros(n, np.int64) if birth_ms is None else birth_ms, delta)

    def extend(
        self,
        column: Ints,
        time_ms: Ints,
        cell: Ints,
        type_: npt.NDArray[np.uint8],
        line: Ints,
        birth_ms: Ints,
        delta: Flags,
    ) -> None:
        """Add samples."""
        self._take(len(column))
        self._parts.append((column, time_ms, cell, type_, line, birth_ms, delta))

    def _take(self, count: int) -> None:
        self._count += count
        if self._count > MAX_BODY_SAMPLES:
            raise BodyError(f"the body has more than {MAX_BODY_SAMPLES:,} samples: send less at once")

    def _single(self) -> tuple[npt.NDArray[Any], ...]:
        """Return the samples that were added one by one."""
        cell = np.array(self._value, np.float64).view(np.int64)
        type_ = np.full(len(cell), ValueType.DOUBLE, np.uint8)
        if self._others:
            places = list(self._others)
            type_[places], cell[places] = zip(*self._others.values(), strict=True)
        columns = (self._column, self._time_ms, self._line, self._birth_ms)
        column, time_ms, line, birth_ms = (np.array(one, np.int64) for one in columns)
        return column, time_ms, cell, type_, line, birth_ms, np.array(self._delta, np.bool_)

    def finish(self, metadata: FileMetadata) -> ReceivedSamples:
        """Return the samples; those without a valid time are refused."""
        parts = [*self._parts, self._single()] if self._column or not self._parts else self._parts
        whole = parts[0] if len(parts) == 1 else tuple(map(np.concatenate, zip(*parts, strict=True)))
        column, time_ms, cell, type_, line, birth_ms, delta = whole
        wrong = (time_ms <= 0) | (time_ms >= 1 << TIME_BITS)
        if wrong.any():
            text = "a time is not between 1970 and 2109"
            self.rejected.add("bad time", text, int(wrong.sum()), int(line[wrong].min()))
        stale = (cell == STALE_BITS) & (type_ == ValueType.DOUBLE) & ~wrong
        dropped = stale | wrong
        kept: Flags | slice = ~dropped if dropped.any() else slice(None)
        columns = LineColumns(
            column[kept],
            time_ms[kept],
            type_[kept],
            cell[kept],
            line[kept],
            tuple(self._strings),
            metadata,
            self.rejected,
            complete=False,
            birth_ms=birth_ms[kept],
            delta=delta[kept],
        )
        return ReceivedSamples(columns, column[stale], time_ms[stale])


_NO_NAME = re.compile(r"[^a-zA-Z0-9_.:/\-]")
_NO_LABEL = re.compile(r"[^a-zA-Z0-9_]")


def clean_name(name: str) -> str:
    """Return a name with `_` for each character that a name cannot have."""
    found = _NO_NAME.sub("_", name)
    return f"_{found}" if found[:1].isdigit() or not found[:1].isidentifier() else found


def clean_label(name: str) -> str:
    """Return the name of a label with `_` for each character that it cannot have."""
    label = _NO_LABEL.sub("_", name)
    return f"key_{label}" if not label or label[0].isdigit() or label.startswith("__") else label


def clean_labels(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return labels of ours; values whose names become equal are joined."""
    labels: dict[str, str] = {}
    for name, value in pairs:
        label = clean_label(name)
        labels[label] = f"{labels[label]};{value}" if label in labels else value
    return labels


def rule_label(prefix: str, name: str) -> str:
    """Return a label that only relabel rules see."""
    return f"__{prefix}_{_NO_LABEL.sub('_', name)}"


def bound_text(value: float) -> str:
    """Return the text of a bound for the label `le` or `quantile`."""
    return "+Inf" if value == math.inf else repr(value).removesuffix(".0")
