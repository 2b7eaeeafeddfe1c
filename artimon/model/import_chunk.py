"""Chunk of samples of a file that is imported into the history: what its reader gives to its writer."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from artimon.model.batch import Samples, SeriesInfo

UNKNOWN_START_MS = 1
"""Birth of a series of unknown age: so early that no query counts its first value as an increase."""
FIND_START_MS = 0
"""Birth of a sample of a counter whose resets the writer finds."""


@dataclass(frozen=True, slots=True)
class ImportChunk:
    """n samples. `samples.birth_ms` is FIND_START_MS where the writer decides it."""

    samples: Samples
    source: npt.NDArray[np.int64]
    """Index of the source of each sample in `sources`."""
    sources: tuple[str, ...]
    future: npt.NDArray[np.bool_]
    """True for a sample that was ahead of its arrival."""
    series: tuple[tuple[str, SeriesInfo], ...]
    """Source and description of each series that no earlier chunk of this reader described."""
