"""A history of known content: series announced, samples appended, and the plain list expected back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from artimon.model.batch import SeriesBlock
from artimon.model.fingerprint import fingerprint, signed
from artimon.model.values import Value
from artimon.rawtable.announced_rows import rows_of
from artimon.rawtable.series_delta import SeriesTable
from artimon.rawtable.sources import SourcesTable
from query_dsl.stores.history.result import Sample
from tests.compaction.builder import Builder

HOUR_MS = 3_600_000
START_MS = 1_794_960_000_000
"""2026-11-18T00:00:00Z."""
TOPIC = "announcements"
Given = tuple[str, str, int, Value | None]
"""(source, text, time in ms, value)."""


class HistoryWorld:
    """One HDFS folder; `samples` are all appended samples."""

    def __init__(self, hdfs: str, copied: HistoryWorld | None = None) -> None:
        """`copied`: the history whose files were copied to `hdfs`."""
        self.hdfs = hdfs
        self.builder: Builder = Builder(hdfs, copied=copied.builder if copied else None)
        self.sources, self.series = SourcesTable(hdfs), SeriesTable(hdfs)
        self.samples: list[Sample] = list(copied.samples) if copied else []
        self._announced: int = copied._announced if copied else 0

    def announce(self, blocks: Sequence[SeriesBlock]) -> None:
        """Write to the table of series, as the product does."""
        rows, refused = rows_of(blocks, self.sources.assign(block.source for block in blocks))
        assert not refused
        before = {0: self._announced}
        self._announced += 1
        assert self.series.add(rows, TOPIC, before, {0: self._announced})

    def append(self, at_ms: int, given: Iterable[Given], keep: str = "default") -> None:
        """One file of one append, made at `at_ms`."""
        given = list(given)
        ids = self.sources.assign(source for source, _, _, _ in given)
        rows = [(ids[source], signed(fingerprint(text)), time, value) for source, text, time, value in given]
        self.builder.append([(at_ms, keep, rows)])
        for source, text, time, value in given:
            self.samples.append(Sample(text, source, time, time - 1000, type_name(value), value))

    def expected(self, texts: Iterable[str], after_ms: int, until_ms: int, sources: Iterable[str] = ()) -> list[str]:
        """Expected rows of a read, as sorted texts."""
        wanted, of = set(texts), set(sources)
        return sorted(
            repr(one)
            for one in self.samples
            if one.series in wanted and after_ms < one.time_ms <= until_ms and (not of or one.source in of)
        )


def type_name(value: Value | None) -> str:
    if value is None:
        return "ended"
    names: dict[type, str] = {bool: "boolean", int: "integer", float: "double", str: "string"}
    return names[type(value)]
