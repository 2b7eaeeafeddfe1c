"""Metadata of a Prometheus page by family: kind, unit and help of each name. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from artimon.model.values import Kind
from sources.scrape.prometheus.exposition_text import TYPES, parse_metadata

_SUFFIXES = {
    "counter": ("_total", "_created"),
    "histogram": ("_bucket", "_count", "_sum", "_created"),
    "gaugehistogram": ("_bucket", "_gcount", "_gsum", "_created"),
    "summary": ("_count", "_sum", "_created"),
    "info": ("_info",),
}
_COUNTING = {"counter": ("", "_total"), "histogram": ("_bucket", "_count", "_sum"), "summary": ("_count", "_sum")}
SUFFIXES = ("", *sorted({suffix for suffixes in _SUFFIXES.values() for suffix in suffixes}))
"""Suffixes that a sample of any family may have."""
CREATED = "_created"


@dataclass(frozen=True, slots=True)
class MetricFamily:
    """Metadata of the samples whose names differ only in the suffix. `type` is "" if the page gives none."""

    name: str
    type: str = ""
    help: str = ""
    unit: str = ""

    def kind(self, sample: str) -> Kind:
        """Return the kind of a sample by name. Buckets, counts and sums of histograms and summaries are counters."""
        if sample[len(self.name) :] in _COUNTING.get(self.type, ()):
            return Kind.COUNTER
        return Kind.UNKNOWN if self.type in ("", "unknown", "untyped") else Kind.GAUGE


def family_name(sample: str, kind: str) -> str:
    """Return the name of the family of a sample, if the type of the family is known."""
    suffixes = _COUNTING.get(kind, ()) if kind in ("histogram", "summary") else ()
    return next((sample.removesuffix(suffix) for suffix in suffixes if sample.endswith(suffix)), sample)


class MetricFamilies:
    """Families of one page, parsed from its metadata lines."""

    def __init__(self, lines: Iterable[bytes] = ()) -> None:
        told: dict[str, dict[str, str]] = {}
        for line in lines:
            one = parse_metadata(line)
            if one is not None and (one.what != "TYPE" or one.value in TYPES):
                told.setdefault(one.name, {}).setdefault(one.what, one.value)
        self._by_name = {
            name: MetricFamily(name, has.get("TYPE", ""), has.get("HELP", ""), has.get("UNIT", ""))
            for name, has in told.items()
        }

    def add(self, family: MetricFamily, most: int) -> bool:
        """Add or replace a family, unless there are `most`. Return True if anything changed."""
        known = self._by_name.get(family.name)
        if known == family or (known is None and len(self._by_name) >= most):
            return False
        self._by_name[family.name] = family
        return True

    def family_of(self, sample: str) -> MetricFamily:
        """Return the family of a sample: by its full name, or without a suffix that the family's type allows."""
        found = self._by_name.get(sample)
        if found is not None:
            return found
        head, underscore, tail = sample.rpartition("_")
        found = self._by_name.get(head)
        if found is not None and underscore + tail in _SUFFIXES.get(found.type, ()):
            return found
        return MetricFamily(sample)

    def created(self, sample: str) -> str:
        """Return the family whose birth a sample such as `x_created` gives, "" for any other sample."""
        if not sample.endswith(CREATED):
            return ""
        family = self.family_of(sample)
        return family.name if family.name != sample else ""
