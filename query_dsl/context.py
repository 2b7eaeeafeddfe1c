"""What one evaluation carries along: the store, the plan, and what the answer will have to say."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from artimon.model.select import Buckets, SelectError, SelectRequest, Store
from query_dsl.cells import STRING, take
from query_dsl.errors import QueryError
from query_dsl.matrix import Matrix
from query_dsl.planner import Plan

SERIES_LIMIT = 100_000


class Context:
    """Belongs to one evaluation and one thread."""

    def __init__(self, store: Store, plan: Plan, check: Callable[[], None] | None = None) -> None:
        self.store, self.plan = store, plan
        self._check = check
        self.notes: list[str] = []
        self.complete = True
        self.partial = False
        self._answers: dict[SelectRequest, Buckets] = {}

    def check(self) -> None:
        """Go on, or raise what whoever asked wants raised."""
        if self._check is not None:
            self._check()

    def note(self, *notes: str) -> None:
        """Say something once."""
        self.notes += [note for note in notes if note not in self.notes]

    def select(self, request: SelectRequest) -> Buckets:
        """Ask the store, once for equal requests."""
        found = self._answers.get(request)
        if found is None:
            try:
                found = self._answers[request] = self.store.select(request)
            except SelectError as problem:
                error = QueryError(str(problem))
                error.of_query = problem.of_query
                raise error from problem
            self.note(*found.notes)
            self.partial |= found.partial
        return found

    def numeric(self, matrix: Matrix, function: str) -> Matrix:
        """The matrix without STRING series, which numeric functions leave out; QueryError if none is left."""
        texts = matrix.types == STRING
        if not texts.any():
            return matrix
        if texts.all():
            raise QueryError(f"{function} cannot take STRING, and every series is one: {', '.join(matrix.series[:3])}")
        self.note(f"{function}: {int(texts.sum())} STRING series left out")
        rows = np.flatnonzero(~texts)
        return Matrix(tuple(matrix.keys[i] for i in rows), matrix.grid, take(matrix.column, rows), matrix.strings)
