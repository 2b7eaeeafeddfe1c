"""Filters, fillers and transforms: what a step may ask for, and running it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from artimon.model.grid import Grid
from query_dsl.errors import QueryError
from query_dsl.functions.registry import Args, arguments_of
from query_dsl.functions.registry import Step as Entry
from query_dsl.functions.tables import STEPS
from query_dsl.running.seen import Seen, seen
from query_dsl.tree import nodes

if TYPE_CHECKING:
    from query_dsl.answers.matrix import Matrix
    from query_dsl.running.context import Context
    from query_dsl.running.data import BucketData

Run = Callable[[nodes.Node, Grid, "Context", str], "Matrix"]
Data = Callable[[nodes.Node, Grid, Sequence[str], "Context"], "BucketData"]


@dataclass(frozen=True, slots=True)
class Asked:
    """One step of a query on one grid. Operands are evaluated when they are asked for, on any grid of the same step:
    wider to look back, shifted for earlier weeks."""

    node: nodes.Step
    entry: Entry
    grid: Grid
    args: Args
    context: Context
    _run: Run
    _data: Data

    def child(self, grid: Grid | None = None) -> Matrix:
        """The series that the step works on."""
        return self._run(self.node.child, grid or self.grid, self.context, self.entry.name)

    def data(self, statistics: Sequence[str], grid: Grid | None = None) -> BucketData:
        """The same as statistics of buckets where the child is a fetch (perhaps shifted in time), else as computed
        values, one a bucket."""
        return self._data(self.node.child, grid or self.grid, statistics, self.context)

    def seen(self, back_ms: int | None) -> Seen:
        """When samples of the child, a fetch, came, as known at each bucket of the grid, looking `back_ms` back
        at least (None: as far as the level holds)."""
        return seen(self.node.child, self.grid, back_ms, self.entry.name, self.context)

    def operand(self, name: str, grid: Grid | None = None) -> Matrix:
        """A further operand of the entry."""
        other = self.node.others[self.entry.operands.index(name)]
        return self._run(other, grid or self.grid, self.context, f"{self.entry.name}: {name}")


def entry_of(node: nodes.Step) -> Entry:
    """The registered function of a node."""
    return STEPS[node.family][node.function]


def run_step(node: nodes.Step, grid: Grid, context: Context, run: Run, data: Data) -> Matrix:
    """The step on `grid`. QueryError where it takes raw samples only."""
    entry = entry_of(node)
    if entry.run is None:
        raise QueryError(f"{entry.name} takes raw samples: begin with samples('NAME')")
    return entry.run(Asked(node, entry, grid, arguments_of(entry, node.args), context, run, data))
