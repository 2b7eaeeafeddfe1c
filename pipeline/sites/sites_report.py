"""Check that the stores of several sites together hold each batch once, from the ranges of sequences that each store
reports for its lanes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from artimon.model.ranges import LaneId, LaneRanges, RangeSet
from artimon.rawtable.head import HeadReader
from pipeline.collector.hdfs.folder_reader import FolderReader
from pipeline.rolling_files.file_store import open_store


class SitesUnionError(ValueError):
    """The stores cannot be read together without repeats. The text names the batches that prevent it."""


class Overlap(NamedTuple):
    """Sequences of a lane that two stores hold."""

    lane: LaneId
    first: str
    second: str
    ranges: RangeSet


@dataclass(slots=True)
class SitesReport:
    """Result of `compare_stores`. `missing`: sequences in no store below the greatest of their lane, in flight or
    lost."""

    batches: dict[str, int] = field(default_factory=dict)
    overlaps: list[Overlap] = field(default_factory=list)
    missing: dict[LaneId, RangeSet] = field(default_factory=dict)
    union_count: int = 0
    contained: list[tuple[str, str]] = field(default_factory=list)
    """(a, b): b holds every batch of a, because a was mirrored to b."""

    @property
    def is_exact(self) -> bool:
        """True if reading `stores_to_read` gives each batch once."""
        left_out = {first for first, _ in self.contained}
        return not [o for o in self.overlaps if o.first not in left_out and o.second not in left_out]

    def stores_to_read(self) -> list[str]:
        """Return the stores that together hold each batch once. Raises SitesUnionError."""
        if not self.is_exact:
            worst = [o for o in self.overlaps if (o.first, o.second) not in self.contained][:5]
            texts = "; ".join(f"lane {o.lane} {list(o.ranges)[:3]} in {o.first} and {o.second}" for o in worst)
            raise SitesUnionError(
                f"two stores hold the same batches ({texts}): mirror one site to the other (`artimon handover`)"
            )
        left_out = {first for first, _ in self.contained}
        return [name for name in self.batches if name not in left_out]


def compare_stores(stores: Mapping[str, LaneRanges]) -> SitesReport:
    """Compare the stores and their union."""
    report = SitesReport({name: sum(lanes[one].count() for one in lanes.lanes()) for name, lanes in stores.items()})
    union = LaneRanges()
    names = sorted(stores)
    for name in names:
        union.update(stores[name])
    report.union_count = sum(union[lane].count() for lane in union.lanes())
    for n, first in enumerate(names):
        for second in names[n + 1 :]:
            report.overlaps += _overlaps(first, second, stores[first], stores[second])
            report.contained += _find_contained(first, second, report)
    for lane in union.lanes():
        gaps = _gaps(union[lane])
        if len(gaps):
            report.missing[lane] = gaps
    return report


def lanes_of_table(uri: str) -> LaneRanges:
    """Return the ranges that a raw table records as its content (docs/formats/raw.md). Raises OSError, ValueError."""
    try:
        _, state = HeadReader(uri).head()
    except FileNotFoundError:
        return LaneRanges()
    lanes = LaneRanges()
    for part in state.lanes.values():
        lanes.update(part)
    return lanes


def lanes_of_folder(uri: str) -> LaneRanges:
    """Return the ranges in a folder of collectors without Kafka, by reading all of it."""
    reader = FolderReader(open_store(uri))
    for _ in reader.batches():
        pass
    return reader.report.lanes


def lanes_of_store(text: str) -> LaneRanges:
    """Return the ranges of `batches:URI`, a folder of batches, or else of a raw table on the file system URI."""
    kind, _, rest = text.partition(":")
    return lanes_of_folder(rest) if kind == "batches" else lanes_of_table(text)


def intersection(first: RangeSet, second: RangeSet) -> RangeSet:
    found, ones, twos = RangeSet(), list(first), list(second)
    i = j = 0
    while i < len(ones) and j < len(twos):
        start, end = max(ones[i][0], twos[j][0]), min(ones[i][1], twos[j][1])
        found.add_range(start, end)
        if ones[i][1] < twos[j][1]:
            i += 1
        else:
            j += 1
    return found


def _overlaps(first: str, second: str, ones: LaneRanges, twos: LaneRanges) -> Iterable[Overlap]:
    for lane in sorted(set(ones.lanes()) & set(twos.lanes())):
        both = intersection(ones[lane], twos[lane])
        if len(both):
            yield Overlap(lane, first, second, both)


def _find_contained(first: str, second: str, report: SitesReport) -> list[tuple[str, str]]:
    both = sum(o.ranges.count() for o in report.overlaps if (o.first, o.second) == (first, second))
    pairs: Sequence[tuple[str, str]] = ((first, second), (second, first))
    return [pair for pair in pairs if both and both == report.batches[pair[0]]][:1]


def _gaps(held: RangeSet) -> RangeSet:
    """Return the sequences below the greatest that are not held."""
    gaps, last = RangeSet(), 0
    for start, end in held:
        gaps.add_range(last, start)
        last = end
    return gaps
