"""Samples of one file, collected into chunks. A chunk depends on nothing but the file and the settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from artimon.model.batch import MAX_TIME_MS, Samples, SeriesInfo
from artimon.model.fingerprint import fingerprint
from artimon.model.import_chunk import FIND_START_MS, UNKNOWN_START_MS, ImportChunk
from artimon.model.labels import LabelError, canonical, parse_canonical
from artimon.model.values import Kind, ValueType
from sources.base.source_errors import RejectCounts

CHUNK_ROWS = 500_000
"""Samples of one chunk: about 60 MB while it is converted."""
MAX_KNOWN = 500_000
"""Series that are remembered; beyond it all are forgotten, and described again."""
FUTURE_MS = 60_000
"""Samples are refused from this far ahead of the clock."""
REFUSED = -1
"""Code of a series that is refused."""
COUNTER_SUFFIXES = ("_total", "_bucket", "_count", "_sum")
"""Endings of the names of counters, for formats that do not tell the kind."""
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


def kind_by_name(name: str) -> Kind:
    """Return the kind of a series of Prometheus by its name."""
    return Kind.COUNTER if name.endswith(COUNTER_SUFFIXES) else Kind.UNKNOWN


@dataclass(frozen=True, slots=True)
class ParsedColumns:
    """n samples of known series. `birth_ms`: FIND_START_MS where it is unknown; `line`: of the file, for messages."""

    code: Ints
    time_ms: Ints
    type: npt.NDArray[np.uint8]
    cell: Ints
    line: Ints
    strings: tuple[str, ...] = ()
    birth_ms: Ints | None = None
    future: Bools | None = None

    def filter(self, kept: Bools) -> ParsedColumns:
        """Return the samples where `kept` is True."""
        birth_ms = None if self.birth_ms is None else self.birth_ms[kept]
        future = None if self.future is None else self.future[kept]
        code, time_ms, cell, line = self.code[kept], self.time_ms[kept], self.cell[kept], self.line[kept]
        return ParsedColumns(code, time_ms, self.type[kept], cell, line, self.strings, birth_ms, future)


class ImportBuilder:
    """Series and counts of one file. `rejects` counts what was left out, by reason."""

    def __init__(self, source: str, now_ms: int) -> None:
        self.source = source
        self.rejects = RejectCounts()
        self._latest_ms = min(now_ms + FUTURE_MS, MAX_TIME_MS)
        self.forget()

    def forget(self) -> None:
        """Forget all series; codes of before are invalid."""
        self._codes: dict[tuple[str, str], int] = {}
        self._infos: list[SeriesInfo] = []
        self._prints: list[int] = []
        self._source_of: list[int] = []
        self._sources: dict[str, int] = {}
        self._described = np.zeros(0, np.bool_)

    @property
    def is_full(self) -> bool:
        """True if it is time to forget."""
        return len(self._infos) >= MAX_KNOWN

    def series(
        self,
        name: str,
        labels: Mapping[str, str],
        line: int,
        kind: Kind,
        type_: ValueType = ValueType.DOUBLE,
        unit: str = "",
        help: str = "",
        source: str = "",
    ) -> int:
        """Return the code of a series; REFUSED, counted, if it is not valid."""
        try:
            text = canonical(name, {label: value for label, value in labels.items() if value and label != "__name__"})
        except LabelError as problem:
            return self._refused(problem, line)
        return self._code(text, source or self.source, SeriesInfo(text, type_, kind, help, unit))

    def canonical_series(self, text: str, line: int, source: str, info: SeriesInfo) -> int:
        """As `series`, of a canonical text."""
        try:
            parse_canonical(text)
        except LabelError as problem:
            return self._refused(problem, line)
        return self._code(text, source, info)

    def _refused(self, problem: LabelError, line: int) -> int:
        self.rejects.add("bad series", str(problem), 0, line)
        return REFUSED

    def _code(self, text: str, source: str, info: SeriesInfo) -> int:
        code = self._codes.get((source, text))
        if code is None:
            code = self._codes[source, text] = len(self._infos)
            self._infos.append(info)
            self._prints.append(fingerprint(info.text))
            self._source_of.append(self._sources.setdefault(source, len(self._sources)))
        return code

    def chunk(self, given: ParsedColumns) -> ImportChunk:
        """Return a chunk without the samples at times that cannot be stored. Each is counted."""
        given = self._storable(given)
        code, time_ms = given.code, given.time_ms
        counter = np.array([info.kind == Kind.COUNTER for info in self._infos], np.bool_)
        prints = np.array(self._prints, np.uint64)
        birth_ms = np.where(counter, FIND_START_MS, UNKNOWN_START_MS)[code]
        if given.birth_ms is not None:
            birth_ms = np.where(given.birth_ms == FIND_START_MS, birth_ms, given.birth_ms)
        samples = Samples(prints[code], time_ms, birth_ms, given.type, given.cell, given.strings)
        future = np.zeros(len(code), np.bool_) if given.future is None else given.future
        described = self._describe(code, time_ms)
        return ImportChunk(samples, np.array(self._source_of, np.int64)[code], tuple(self._sources), future, described)

    def _storable(self, given: ParsedColumns) -> ParsedColumns:
        times = given.time_ms
        if not len(times) or (times.min() >= 0 and times.max() <= self._latest_ms):
            return given
        kept = np.ones(len(times), np.bool_)
        for wrong, reason, text in (
            (times < 0, "time", "a time before 1970"),
            (times > self._latest_ms, "future", "a time in the future"),
        ):
            if count := int(wrong.sum()):
                self.rejects.add(reason, text, count, int(given.line[np.argmax(wrong)]))
                kept &= ~wrong
        return given.filter(kept)

    def _describe(self, code: Ints, time_ms: Ints) -> tuple[tuple[str, SeriesInfo], ...]:
        """Return the series whose first samples these are, first seen at their earliest time in this chunk."""
        earliest = np.full(len(self._infos), MAX_TIME_MS + 1, np.int64)
        np.minimum.at(earliest, code, time_ms)
        held = earliest <= MAX_TIME_MS
        known = np.append(self._described, np.zeros(len(held) - len(self._described), np.bool_))
        self._described = known | held
        names = tuple(self._sources)
        return tuple(
            (names[self._source_of[at]], replace(self._infos[at], first_seen_ms=int(earliest[at])))
            for at in np.flatnonzero(held & ~known).tolist()
        )
