"""Context of an evaluation of PromQL: steps, source, limits and remarks."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from artimon.compute.cells import Floats, Ints
from query_dsl.promql.promql_values import charge_cells
from query_dsl.promql.sample_source import SampleSource
from query_dsl.promql.tree import Aggregation, At, Call, argument_position
from query_dsl.stores.query_limits import QueryBudget

LOOK_BACK_MS = 300_000
DEFAULT_STEP_MS = 60_000
"""Step of subqueries without one."""
MAX_STEPS = 11_000
"""Limit of the points of a series, as in Prometheus."""
MAX_SUBQUERY_STEPS = 1_000_000


@dataclass(slots=True)
class Remarks:
    """Warnings and remarks for the reader, each once, with its place in the text or ""."""

    warnings: dict[str, str] = field(default_factory=dict)
    infos: dict[str, str] = field(default_factory=dict)

    def lines(self, infos: bool) -> tuple[str, ...]:
        """Return the warnings or the remarks."""
        return tuple(f"{text} {place}".rstrip() for text, place in (self.infos if infos else self.warnings).items())


@dataclass(frozen=True, slots=True)
class Context:
    """Steps of the evaluation. `start_ms` and `end_ms` are those of the whole query, for `@ start()` and `@ end()`."""

    source: SampleSource
    text: str
    times_ms: Ints
    start_ms: int
    end_ms: int
    instant: bool
    look_back_ms: int = LOOK_BACK_MS
    step_ms: int = 0
    """Step of the whole query; 0 for one at one time."""
    budget: QueryBudget = field(default_factory=QueryBudget)
    remarks: Remarks = field(default_factory=Remarks)

    @property
    def seconds(self) -> Floats:
        return self.times_ms / 1000

    def charge_cells(self, series: int) -> None:
        """Count the cells of a vector before it is made. Raises LimitExceeded."""
        charge_cells(self.budget, series, len(self.times_ms))

    def warn(self, message: str, position: int) -> None:
        """Warn once of what is at a position of the text."""
        self.remarks.warnings.setdefault(f"PromQL warning: {message}", self.place(position))

    def inform(self, message: str, position: int) -> None:
        """Remark once on what is at a position of the text."""
        self.remarks.infos.setdefault(f"PromQL info: {message}", self.place(position))

    def argument(self, node: Call | Aggregation, number: int) -> int:
        """Return the position of an argument."""
        return argument_position(self.text, node.position, number)

    def place(self, position: int) -> str:
        """Return "(line:column)" of a position of the text."""
        before = self.text[:position]
        return f"({before.count(chr(10)) + 1}:{position - before.rfind(chr(10))})"

    def shifted(self, offset_ms: int, at: At | None) -> Ints:
        """Return the time of the data at each step."""
        if at is None:
            return self.times_ms - offset_ms
        fixed = {"start": self.start_ms, "end": self.end_ms}.get(at.edge, at.time_ms)
        return np.full(len(self.times_ms), (fixed or 0) - offset_ms, np.int64)
