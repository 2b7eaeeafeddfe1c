"""Sources of samples, and of results that a store computes from its buckets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from artimon.compute.cells import Ints
from artimon.model.select import Matcher
from query_dsl.promql.promql_values import VectorValue
from query_dsl.promql.samples import SeriesSamples


class SampleSource(Protocol):
    """Source of raw samples."""

    def read(self, matchers: tuple[Matcher, ...], after_ms: int, until_ms: int) -> SeriesSamples:
        """Return the samples with time in (after_ms, until_ms] of the series that match."""
        ...


@dataclass(frozen=True, slots=True)
class WindowQuery:
    """Windows (end - range_ms, end] of a selector and their function; "": the newest sample of each."""

    function: str
    matchers: tuple[Matcher, ...]
    ends_ms: Ints
    range_ms: int

    @property
    def keeps_name(self) -> bool:
        """True if the results are samples of the series, with its name."""
        return self.function in ("", "last_over_time", "first_over_time")


@dataclass(frozen=True, slots=True)
class Reducer:
    """Aggregation of instant vectors with constant arguments."""

    name: str
    labels: tuple[str, ...]
    without: bool
    args: tuple[tuple[str, Any], ...] = ()


@runtime_checkable
class BucketSource(Protocol):
    """Source that can compute windows itself. Each method returns None if the samples must be read instead."""

    def map(self, asked: WindowQuery) -> VectorValue | None:
        """Return the windows of each series, from statistics of buckets."""
        ...

    def reduce(self, asked: WindowQuery, reducer: Reducer) -> VectorValue | None:
        """Return the aggregated windows."""
        ...

    def narrow(self, asked: WindowQuery, reducer: Reducer) -> SampleSource | None:
        """Return a source of the series alone that topk or bottomk may choose."""
        ...
