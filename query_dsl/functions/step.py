"""Entries of functions over whole series, and the call that the evaluator hands to them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeVar

import numpy as np

from artimon.model.grid import Grid
from query_dsl.functions.registry import Args, Entry
from query_dsl.results.bucket_data import BucketData
from query_dsl.results.cells import Bools, Ints, Key
from query_dsl.results.irregular import Irregular
from query_dsl.results.matrix import Matrix
from query_dsl.tree import nodes

S = TypeVar("S", Matrix, Irregular)
NEVER = -(2**62)
"""Stands for a time where none is known."""


class Evaluation(Protocol):
    """The running evaluation of a query, as far as functions use it."""

    now_ms: int

    def check(self) -> None:
        """Raise if the query was cancelled or its time limit is over."""
        ...

    def note(self, *notes: str) -> None:
        """Add notes to the answer; equal notes are kept once."""
        ...

    def numeric(self, found: S, function: str) -> S:
        """The series without those of STRING. Raises QueryError if none is left."""
        ...

    def suited(self, found: S, function: str, *, numbers: bool, texts: bool) -> S:
        """The series that a function takes. Raises QueryError if none is left."""
        ...

    def matrix(self, node: nodes.Node, grid: Grid, function: str) -> Matrix:
        """Evaluate a node on a grid, for the function of this name."""
        ...

    def statistics(self, node: nodes.Node, grid: Grid, names: Sequence[str]) -> BucketData:
        """Statistics of buckets of a fetch (perhaps shifted in time); of another node its values, one a bucket."""
        ...

    def window(self, node: nodes.Window, grid: Grid) -> Matrix:
        """A window function at every end of the grid."""
        ...

    def last_seen(self, node: nodes.Node, grid: Grid, back_ms: int | None, function: str) -> Seen:
        """Times of the newest samples of a fetch (perhaps shifted in time)."""
        ...

    def columns_held_before(self, grid: Grid) -> int | None:
        """Number of buckets before the grid that the store can hold; None if unknown (raw samples)."""
        ...


@dataclass(frozen=True, slots=True)
class Seen:
    """`newest`: (series, grid.n) time of the newest sample at or before the end of each bucket, NEVER where none is
    known. Series that fit but have no sample in the range are here too. Canonical order."""

    keys: tuple[Key, ...]
    newest: Ints

    @property
    def known(self) -> Bools:
        return np.asarray(self.newest > NEVER)


@dataclass(frozen=True, kw_only=True)
class Asked:
    """One step of a query on one grid. Operands are evaluated when they are asked for, on any grid of the same step:
    wider to look back, shifted for earlier weeks."""

    node: nodes.Step
    entry: Step
    grid: Grid
    args: Args
    context: Evaluation

    def child(self, grid: Grid | None = None) -> Matrix:
        """The series that the step works on."""
        return self.context.matrix(self.node.child, grid or self.grid, self.entry.name)

    def data(self, statistics: Sequence[str], grid: Grid | None = None) -> BucketData:
        """The same as statistics of buckets where the child is a fetch (perhaps shifted in time), else as computed
        values, one a bucket."""
        return self.context.statistics(self.node.child, grid or self.grid, statistics)

    def seen(self, back_ms: int | None) -> Seen:
        """Times of the newest samples of the child, a fetch, as known at each bucket of the grid, looking `back_ms`
        back at least (None: as far as the level holds)."""
        return self.context.last_seen(self.node.child, self.grid, back_ms, self.entry.name)

    def window(self, function: str, window_ms: int, grid: Grid) -> Matrix:
        """A window function over the child."""
        return self.context.window(nodes.Window(self.node.child, function, window_ms, span=self.node.span), grid)

    def operand(self, name: str, grid: Grid | None = None) -> Matrix:
        """A further operand of the entry."""
        other = self.node.others[self.entry.operands.index(name)]
        return self.context.matrix(other, grid or self.grid, f"{self.entry.name}: {name}")


@dataclass(frozen=True, kw_only=True)
class Step(Entry):
    """A function of whole series: a filter, a filler, a transform. `run` answers series on a grid and asks for its
    operands itself, on any grid; `on_samples` answers raw samples. One of both at least."""

    family: Literal["map", "filter", "fill", "transform", "presence"]
    run: Callable[[Asked], Matrix] | None = None
    on_samples: Callable[[Irregular, Args, Evaluation], Irregular] | None = None
    operands: tuple[str, ...] = ()
    """Names of further expressions that it takes, before its arguments."""
    fetched: bool = False
    """Whether its child must be a fetch (perhaps shifted in time)."""
