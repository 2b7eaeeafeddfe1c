"""Provenance of a result: engine, level, reads from stores, and elapsed time."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from artimon.model.grid import Grid
from artimon.model.select import EngineShare


@dataclass(frozen=True, slots=True)
class StoreRequest:
    """One request to a store. `bytes` is the size of the returned statistics, or of the partial results if the store
    reduced the series itself."""

    selector: str
    grid: Grid
    statistics: tuple[str, ...]
    series: int
    bytes: int
    ms: float
    reduced: bool = False
    parts: tuple[EngineShare, ...] = ()

    @property
    def cells(self) -> int:
        """Number of series times buckets."""
        return self.series * self.grid.n

    @property
    def samples(self) -> int:
        """Number of raw samples read for the request."""
        return sum(part.samples for part in self.parts)


@dataclass(frozen=True, slots=True)
class Origin:
    """Origin of one result. `engine`: "memory", "history", "memory and history" or "samples"; `step_ms`: the level
    that fetches read; `why`: the reason for this choice."""

    engine: str
    step_ms: int
    why: str
    fetched: tuple[StoreRequest, ...] = ()
    ms: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """Convert to JSON-ready data."""
        return {
            "engine": self.engine,
            "step_ms": self.step_ms,
            "why": self.why,
            "ms": round(self.ms, 3),
            "fetched": [_dict(one) for one in self.fetched],
        }


def _dict(one: StoreRequest) -> dict[str, Any]:
    found = asdict(one)
    found["ms"] = round(one.ms, 3)
    found["cells"], found["samples"] = one.cells, one.samples
    found["statistics"] = list(one.statistics)
    return found
