"""Raw samples of labelled series."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from artimon.compute.cells import Bools
from artimon.compute.packed_samples import PackedSamples
from query_dsl.promql.label_sets import LabelSets, concatenate


@dataclass(frozen=True, slots=True)
class SeriesSamples(PackedSamples):
    """Samples of the series `labels`. `dropped`: series whose name is to be removed from the result."""

    labels: LabelSets
    dropped: Bools


def no_samples() -> SeriesSamples:
    """Return no series."""
    return SeriesSamples(
        np.zeros(1, np.int64), np.zeros(0, np.int64), np.zeros(0), LabelSets(0, {}), np.zeros(0, np.bool_)
    )


def unite_samples(parts: Sequence[SeriesSamples]) -> SeriesSamples:
    """Unite parts that hold the same series at different times."""
    labels = concatenate([part.labels for part in parts])
    codes, first = labels.classes()
    starts = np.cumsum([0, *(part.labels.count for part in parts)])
    rows = [
        codes[start + np.repeat(np.arange(part.labels.count), np.diff(part.offsets))]
        for start, part in zip(starts.tolist(), parts, strict=False)
    ]
    row = np.concatenate(rows)
    times_ms = np.concatenate([part.times_ms for part in parts])
    order = np.lexsort((times_ms, row))
    offsets = np.concatenate(([0], np.cumsum(np.bincount(row, minlength=len(first))))).astype(np.int64)
    values = np.concatenate([part.values for part in parts])
    return SeriesSamples(offsets, times_ms[order], values[order], labels.take(first), np.zeros(len(first), np.bool_))
