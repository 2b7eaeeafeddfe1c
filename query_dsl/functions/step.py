"""Entries of functions over whole series, and the call context that the evaluator passes to them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeVar

import numpy as np

from artimon.model.grid import Grid
from query_dsl.functions.registry import Args, Entry
from query_dsl.results.bucket_data import BucketData
from query_dsl.results.matrix import Matrix
from query_dsl.results.raw_series import RawSeries
from query_dsl.results.result_cells import Bools, Ints, SeriesKey
from query_dsl.tree import nodes

S = TypeVar("S", Matrix, RawSeries)
NEVER = -(2**62)
"""Placeholder for an unknown time."""


class Evaluation(Protocol):
    """Interface of a running evaluation for functions."""

    now_ms: int
    approximate: str
    """A function whose values are approximate, "" if there is none."""

    @property
    def partial_windows(self) -> bool:
        """True if windows that the store holds in part are answered."""
        ...

    def check(self) -> None:
        """Raise if the query was cancelled or its time limit is over."""
        ...

    def note(self, *notes: str) -> None:
        """Add notes to the answer; equal notes are kept once."""
        ...

    def numeric_only(self, found: S, function: str) -> S:
        """Drop STRING series. Raises QueryError if none is left."""
        ...

    def accepted_series(self, found: S, function: str, *, numbers: bool, texts: bool) -> S:
        """Keep the series of the accepted types. Raises QueryError if none is left."""
        ...

    def matrix(self, node: nodes.Node, grid: Grid, function: str) -> Matrix:
        """Evaluate a node on a grid; `function` is the calling function's name."""
        ...

    def statistics(self, node: nodes.Node, grid: Grid, names: Sequence[str]) -> BucketData:
        """Return bucket statistics of a fetch (possibly with offset); for other nodes their values, one per bucket."""
        ...

    def window(self, node: nodes.Window, grid: Grid) -> Matrix:
        """Evaluate a window function at each bucket end of the grid."""
        ...

    def newest_times(self, node: nodes.Node, grid: Grid, back_ms: int | None, function: str) -> NewestTimes:
        """Return the times of the newest samples of a fetch (possibly with offset)."""
        ...

    def columns_held_before(self, grid: Grid) -> int | None:
        """Return the number of buckets before the grid that the store can hold; None if unknown (raw samples)."""
        ...


@dataclass(frozen=True, slots=True)
class NewestTimes:
    """`newest`: (series, grid.n) time of the newest sample at or before the end of each bucket, NEVER if unknown.
    Includes matching series without a sample in the range. Canonical order."""

    keys: tuple[SeriesKey, ...]
    newest: Ints

    @property
    def known(self) -> Bools:
        return np.asarray(self.newest > NEVER)


@dataclass(frozen=True, kw_only=True)
class StepCall:
    """One step of a query on one grid. Operands are evaluated on demand, on any grid of the same step: wider for
    look-back, shifted for earlier weeks."""

    node: nodes.Transform
    entry: Step
    grid: Grid
    args: Args
    context: Evaluation

    def child(self, grid: Grid | None = None) -> Matrix:
        """Evaluate the input of the step."""
        return self.context.matrix(self.node.child, grid or self.grid, self.entry.name)

    def data(self, statistics: Sequence[str], grid: Grid | None = None) -> BucketData:
        """Return the input as bucket statistics if the child is a fetch (possibly with offset), else as computed
        values, one per bucket."""
        return self.context.statistics(self.node.child, grid or self.grid, statistics)

    def newest_times(self, back_ms: int | None) -> NewestTimes:
        """Return the times of the newest samples of the child, a fetch, for each bucket of the grid; the look-back is
        at least `back_ms` (None: the retention of the level)."""
        return self.context.newest_times(self.node.child, self.grid, back_ms, self.entry.name)

    def window(self, function: str, window_ms: int, grid: Grid) -> Matrix:
        """Evaluate a window function over the child."""
        return self.context.window(nodes.Window(self.node.child, function, window_ms, span=self.node.span), grid)

    def operand(self, name: str, grid: Grid | None = None) -> Matrix:
        """Evaluate the additional operand `name`."""
        other = self.node.operands[self.entry.operands.index(name)]
        return self.context.matrix(other, grid or self.grid, f"{self.entry.name}: {name}")


@dataclass(frozen=True, kw_only=True)
class Step(Entry):
    """A function of whole series: a filter, a filler, a transform. `run` computes series on a grid and evaluates its
    operands itself, on any grid; `on_samples` works on raw samples. At least one of both is set."""

    family: Literal["map", "filter", "fill", "transform", "presence"]
    run: Callable[[StepCall], Matrix] | None = None
    on_samples: Callable[[RawSeries, Args, Evaluation], RawSeries] | None = None
    operands: tuple[str, ...] = ()
    """Names of additional query operands; they precede the arguments."""
    fetched: bool = False
    """True if its child must be a fetch (possibly with offset)."""
