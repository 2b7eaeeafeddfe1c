"""Rows of any types as a chunk of an import."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from artimon.model.batch import Samples, SeriesInfo
from artimon.model.fingerprint import fingerprint
from artimon.model.import_chunk import ImportChunk
from artimon.model.labels import canonical
from artimon.model.values import Kind, Value, ValueType, type_of

Row = tuple[str, str, dict[str, str], int, int, Value | None]
"""(source, name, labels, time in ms, birth in ms, value)."""


def chunk_of(rows: Sequence[Row]) -> ImportChunk:
    """One chunk that describes all series."""
    texts = [canonical(name, labels) for _, name, labels, _, _, _ in rows]
    sources = sorted({row[0] for row in rows})
    infos: dict[tuple[str, str], SeriesInfo] = {}
    for text, (source, name, _, time, _, value) in zip(texts, rows, strict=True):
        type_ = ValueType.DOUBLE if value is None else type_of(value)
        kind = Kind.COUNTER if name.endswith("_total") else Kind.UNKNOWN
        infos[source, text] = SeriesInfo(text, type_, kind, f"help of {name}", "s", time)
    given = [(fingerprint(text), row[3], row[4], row[5]) for text, row in zip(texts, rows, strict=True)]
    return ImportChunk(
        Samples.of(given),
        np.array([sources.index(row[0]) for row in rows]),
        tuple(sources),
        np.zeros(len(rows), np.bool_),
        tuple((source, info) for (source, _), info in infos.items()),
    )
