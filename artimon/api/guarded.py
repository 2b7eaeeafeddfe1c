"""One query's view of the store: refuses what is too large before it is computed, stops a query nobody waits for."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, wait
from dataclasses import dataclass, field, replace
from typing import TypeVar

from artimon.api.errors import Abandoned, TooLarge
from artimon.api.limits import Limits
from artimon.model.select import Buckets, Matcher, SelectError, SelectRequest, Series, Store
from query_dsl import Expr, Matrix, evaluate
from query_dsl.nodes import Window, walk
from query_dsl.planner import plan
from varstore.client import StoreUnavailable

LOOK_S = 0.1
T = TypeVar("T")


@dataclass(slots=True)
class GuardedStore:
    """Implements Store. `columns` is how many buckets a fetch of the query makes room for.

    With `threads` the store is asked in one of them, so that a query that is given up does not wait for its answer."""

    store: Store
    limits: Limits
    stop: threading.Event = field(default_factory=threading.Event)
    """Set when the query's time is over; its next question to the store then fails."""
    columns: int = 1
    threads: Executor | None = None

    def select(self, request: SelectRequest) -> Buckets:
        """See Store. Raises TooLarge where more series fit than this query may read."""
        allowed, what = self._allowed(max(self.columns, request.grid.n))
        try:
            found = self._ask(lambda: self.store.select(replace(request, limit=min(request.limit, allowed))))
        except StoreUnavailable:
            raise
        except SelectError as problem:
            if len(self.find(request.matchers, allowed + 1)) > allowed:
                raise TooLarge(what) from problem
            raise
        if len(found.series) > allowed:
            raise TooLarge(what)
        return found

    def _allowed(self, columns: int) -> tuple[int, str]:
        by_cells = self.limits.cells_read // columns
        if by_cells < self.limits.series:
            return by_cells, (
                f"too much to read: over {by_cells} series of {columns} buckets, more than the limit of "
                f"{self.limits.cells_read} cells (cells_read): add matchers, or ask for a shorter range or window"
            )
        return self.limits.series, f"more series fit than the limit of {self.limits.series} (series): add matchers"

    def check(self) -> None:
        """Raises Abandoned when the time of the query is over."""
        if self.stop.is_set():
            raise Abandoned("the query took too long")

    def _ask(self, question: Callable[[], T]) -> T:
        self.check()
        if self.threads is None:
            return question()
        try:
            asked = self.threads.submit(question)
        except RuntimeError as ended:
            raise Abandoned("the server ends") from ended
        while not wait([asked], LOOK_S).done:
            if self.stop.is_set():
                asked.cancel()
                raise Abandoned("the query took too long")
        return asked.result()

    def levels(self) -> tuple[tuple[int, int], ...]:
        """See Store."""
        return self._ask(self.store.levels)

    def names(self) -> list[str]:
        """See Store."""
        return self._ask(self.store.names)

    def label_values(self, label: str | None, limit: int = 10_000) -> list[str]:
        """See Store."""
        return self._ask(lambda: self.store.label_values(label, limit))

    def find(self, matchers: tuple[Matcher, ...], limit: int = 1_000) -> list[Series]:
        """See Store."""
        return self._ask(lambda: self.store.find(matchers, limit))


def answer(expr: Expr, store: GuardedStore, now_ms: int) -> Matrix:
    """Evaluate within the limits. Raises QueryError or SelectError, see `refusal`."""
    planned = plan(expr.node, store.levels(), now_ms)
    windows_ms = sum((node.before_ms or 0) + node.after_ms for node in walk(expr.node) if isinstance(node, Window))
    span_ms = planned.grid.n * planned.grid.step_ms + windows_ms
    store.columns = max(1, span_ms // planned.base_step_ms)
    if store.columns > store.limits.cells_read:
        raise TooLarge(
            f"the range and windows span {store.columns} buckets, more than the limit of {store.limits.cells_read} "
            "(cells_read): ask for a shorter range or window"
        )
    matrix = evaluate(expr, store, now_ms, store.check)
    cells = len(matrix) * matrix.grid.n
    if cells > store.limits.cells_answered:
        raise TooLarge(
            f"the answer has {len(matrix)} series of {matrix.grid.n} buckets, {cells} cells, more than the limit of "
            f"{store.limits.cells_answered} (cells_answered): reduce by labels, add matchers, ask for a shorter range"
        )
    return matrix


def checked(pieces: Iterator[bytes], store: GuardedStore) -> Iterator[bytes]:
    """The pieces, for as long as somebody waits for them."""
    for piece in pieces:
        store.check()
        yield piece
