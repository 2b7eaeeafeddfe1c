"""Samples given in memory, for tests of PromQL and of rules."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from artimon.model.select import Matcher
from query_dsl.promql.label_sets import LabelSets
from query_dsl.promql.samples import SeriesSamples
from query_dsl.promql.tree import NotSupported
from query_dsl.tree.selector import accepts

Labels = tuple[tuple[str, str], ...]


class LiteralSamples:
    """A SampleSource over `series`: values by time of each label set, which includes `__name__`. `native`: label sets
    that have native histograms, which cannot be read."""

    def __init__(self) -> None:
        self.series: dict[Labels, dict[int, float]] = {}
        self.native: set[Labels] = set()

    def add(self, labels: Mapping[str, str], points: Mapping[int, float]) -> None:
        """Add samples to a series."""
        self.series.setdefault(tuple(sorted(labels.items())), {}).update(points)

    def read(self, matchers: tuple[Matcher, ...], after_ms: int, until_ms: int) -> SeriesSamples:
        """See SampleSource. Raises NotSupported for native histograms."""
        found = [
            (key, [(t, v) for t, v in sorted(points.items()) if after_ms < t <= until_ms])
            for key, points in self.series.items()
            if all(accepts(one, dict(key).get(one.label, "")) for one in matchers)
        ]
        if any(key in self.native for key, _ in found):
            raise NotSupported("native histograms are not supported")
        found = [(key, points) for key, points in found if points]
        counts = [len(points) for _, points in found]
        flat = [point for _, points in found for point in points]
        return SeriesSamples(
            np.concatenate(([0], np.cumsum(counts))).astype(np.int64),
            np.array([t for t, _ in flat], np.int64),
            np.array([v for _, v in flat], np.float64),
            LabelSets.from_dicts([dict(key) for key, _ in found]),
            np.zeros(len(found), np.bool_),
        )
