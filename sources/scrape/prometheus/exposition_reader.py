"""Reader of the Prometheus pages of one target: bytes to columns. Runs in a thread: nothing here touches the state of a
source.

The text of a series is parsed once while its bytes and the metadata of the page stay the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from artimon.model.values import ValueType
from sources.base.line_text import SPACE
from sources.base.source_errors import LineError, PollError, RejectCounts
from sources.scrape.prometheus.exposition_text import parse_sample, parse_value
from sources.scrape.prometheus.metric_families import MetricFamilies
from sources.state.source_reading import SourceSchema
from sources.state.start_times import Ints

OPENMETRICS = b"application/openmetrics-text"
_BUCKET_LABELS = frozenset({"le", "quantile"})
"""Labels that distinguish the samples within one histogram or summary."""
_CACHE_FACTOR = 4
"""Size limit of the cache, in multiples of the series limit. Beyond it most entries are stale and all are dropped."""


@dataclass(frozen=True, slots=True)
class ExpositionLimits:
    """Limits of one page; the rest is left out and counted."""

    series: int = 50_000
    lines: int = 400_000
    line_bytes: int = 64 << 10


@dataclass(frozen=True, slots=True)
class Exposition:
    """n samples, `values` as float64; `created_ms` as in `Reading`. `ignored`: counts of timestamps and exemplars."""

    schema: SourceSchema
    values: npt.NDArray[np.float64]
    created_ms: Ints | None
    faults: RejectCounts
    ignored: Mapping[str, int]


class _ColumnValues:
    """Builder of a page: column and value of each sample."""

    def __init__(self) -> None:
        self.column: list[int] = []
        self.value: list[float] = []
        self.faults = RejectCounts()
        self.ignored: Counter[str] = Counter()

    def add(self, column: int, value: float) -> None:
        self.column.append(column)
        self.value.append(value)


class ExpositionReader:
    """Reads the pages of one target. `own`: labels of the target. Labels of the page with the same names are renamed to
    `exported_…`, as in Prometheus."""

    def __init__(self, own: frozenset[str] = frozenset(), limits: ExpositionLimits | None = None) -> None:
        self._target_labels, self._limits = own, limits or ExpositionLimits()
        self._meta: list[bytes] | None = None
        self._families = MetricFamilies()
        self._made = 0
        self._forget()

    def _forget(self) -> None:
        self._known: dict[bytes, int] = {}
        self._by_key: dict[tuple[str, frozenset[tuple[str, str]]], int] = {}
        self._names: list[str] = []
        self._labels: list[dict[str, str]] = []
        self._groups: dict[tuple[str, frozenset[tuple[str, str]]], int] = {}
        self._group: list[int] = []
        self._creates: list[bool] = []
        self._schema_columns: Ints = np.zeros(0, np.int64)
        self._schema: SourceSchema | None = None

    def read(self, data: bytes, openmetrics: bool, ended: bool) -> Exposition:
        """Parse a page. `ended`: it is known to be complete. Raises PollError `garbage` if it is invalid."""
        lines = data.split(b"\n")
        made = _ColumnValues()
        self._close(lines, made, openmetrics, ended)
        meta = [line for line in lines if line.startswith(b"#")]
        if meta != self._meta or len(self._known) > _CACHE_FACTOR * self._limits.series:
            self._meta, self._families = meta, MetricFamilies(meta)
            self._forget()
        self._read_lines(lines, made)
        if made.faults.counts and not made.column:
            text = next(iter(made.faults.examples.values()))
            raise PollError("garbage", f"no samples in the answer, which begins {data[:40]!r}: {text}")
        return self._page(made)

    def _close(self, lines: list[bytes], made: _ColumnValues, openmetrics: bool, ended: bool) -> None:
        """Remove an incomplete last line and lines beyond the limit. Raises PollError if `# EOF` is missing."""
        last = lines.pop()
        if last and (ended or openmetrics):
            lines.append(last)
        elif last:
            made.faults.add("half-written", "the answer ends without a newline: not taken", line=len(lines) + 1)
        if openmetrics:
            if not lines or lines[-1].strip(SPACE) != b"# EOF":
                raise PollError("garbage", "the answer does not end with # EOF: it was cut")
            lines.pop()
        if len(lines) > self._limits.lines:
            text = f"more than {self._limits.lines:,} lines: the rest is not read"
            made.faults.add("page limit", text, len(lines) - self._limits.lines)
            del lines[self._limits.lines :]

    def _read_lines(self, lines: Sequence[bytes], made: _ColumnValues) -> None:
        """Parse lines. The fast path serves cached series that are followed by nothing but a number."""
        known = self._known
        for number, line in enumerate(lines, 1):
            text, _, value = line.rpartition(b" ")
            at = known.get(text)
            if at is None or b"_" in value:
                self._parse_uncached(line, number, made)
                continue
            try:
                made.add(at, float(value))
            except ValueError:
                self._parse_uncached(line, number, made)

    def _parse_uncached(self, line: bytes, number: int, made: _ColumnValues) -> None:
        """Parse any other line: metadata, a blank line, one with a timestamp, a new series or a bad line."""
        stripped = line.strip(SPACE)
        if not stripped or stripped.startswith(b"#"):
            return
        if len(line) > self._limits.line_bytes:
            made.faults.add("bad line", f"longer than {self._limits.line_bytes:,} bytes", line=number)
            return
        try:
            if not self._timed(stripped, made):
                self._parsed(stripped, made)
        except LineError as error:
            made.faults.add("bad line", str(error), line=number)

    def _timed(self, line: bytes, made: _ColumnValues) -> bool:
        """Take a known series with a value and a timestamp; return False for any other line."""
        rest, _, time = line.rpartition(b" ")
        text, _, value = rest.rpartition(b" ")
        at = self._known.get(text)
        if at is None or not time.lstrip(b"-").replace(b".", b"", 1).isdigit():
            return False
        made.add(at, parse_value(value))
        made.ignored["timestamp"] += 1
        return True

    def _parsed(self, line: bytes, made: _ColumnValues) -> None:
        sample = parse_sample(line)
        made.ignored["timestamp"] += sample.timed
        made.ignored["exemplar"] += sample.exemplar
        at = self._known.get(sample.text)
        if at is None:
            at = self._known[sample.text] = self._column(sample.name, sample.labels)
        made.add(at, sample.value)

    def _column(self, name: str, labels: Mapping[str, str]) -> int:
        labels = {self._exported(label, labels): value for label, value in labels.items() if value}
        key = (name, frozenset(labels.items()))
        at = self._by_key.get(key)
        if at is not None:
            return at
        at = self._by_key[key] = len(self._names)
        created = self._families.created(name)
        outer = frozenset((label, value) for label, value in labels.items() if label not in _BUCKET_LABELS)
        group = (created or self._families.family_of(name).name, outer)
        self._names.append(name)
        self._labels.append(labels)
        self._creates.append(bool(created))
        self._group.append(self._groups.setdefault(group, len(self._groups)))
        return at

    def _exported(self, label: str, others: Mapping[str, str]) -> str:
        if label not in self._target_labels:
            return label
        while label in self._target_labels or label in others:
            label = "exported_" + label
        return label

    def _page(self, made: _ColumnValues) -> Exposition:
        column, value = np.array(made.column, np.int64), np.array(made.value, np.float64)
        _, first = np.unique(column, return_index=True)
        if len(first) < len(column):
            twice = self._names[int(np.delete(column, first)[0])]
            made.faults.add("same series twice", f"{twice}: the first one counts", len(column) - len(first))
            first.sort()
            column, value = column[first], value[first]
        most = self._limits.series
        if len(column) > most:
            made.faults.add("too many series", f"more than {most:,}: the others are not taken", len(column) - most)
            column, value = column[:most], value[:most]
        creates = np.array(self._creates, np.bool_)[column]
        created_ms = self._created(column, value, creates) if bool(creates.any()) else None
        column, value = column[~creates], value[~creates]
        return Exposition(self._schema_of(column), value, created_ms, made.faults, made.ignored)

    def _created(self, column: Ints, value: npt.NDArray[np.float64], creates: npt.NDArray[np.bool_]) -> Ints:
        """Return for each sample but `…_created` the birth in ms that its `…_created` gives; 0 if missing or absurd."""
        group = np.array(self._group, np.int64)[column]
        born = np.zeros(len(self._groups), np.int64)
        told = value[creates] * 1000
        good = np.isfinite(told) & (told > 0) & (told < 1 << 53)
        born[group[creates][good]] = told[good].astype(np.int64)
        return born[group[~creates]]

    def _schema_of(self, column: Ints) -> SourceSchema:
        if self._schema is not None and np.array_equal(column, self._schema_columns):
            return self._schema
        self._made += 1
        names = [self._names[at] for at in column.tolist()]
        families = {name: self._families.family_of(name) for name in set(names)}
        kinds = {name: int(family.kind(name)) for name, family in families.items()}
        self._schema_columns = column
        self._schema = SourceSchema(
            self._made.to_bytes(16, "big"),
            names,
            [self._labels[at] for at in column.tolist()],
            np.full(len(names), ValueType.DOUBLE, np.uint8),
            np.array([kinds[name] for name in names], np.uint8),
            {name: family.help for name, family in families.items() if family.help},
            {name: family.unit for name, family in families.items() if family.unit},
        )
        return self._schema
