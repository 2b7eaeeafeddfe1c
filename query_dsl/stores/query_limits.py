"""Limits of one query: resources, timeout and cancellation."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import monotonic

from artimon.model.grid import Grid
from artimon.model.select import Buckets, Matcher, SelectRequest, Store, TooManySeries
from artimon.runtime.machine_memory import LEAST_SERIES, USER_SHARE, query_memory, user_series
from query_dsl.tree.query_errors import QueryError

CELL_BYTES = 8
Check = Callable[[], object]


class LimitExceeded(QueryError):
    """The query exceeds a limit. The text names the limit, the figure and the remedy."""


class QueryCancelled(QueryError):
    """The query was cancelled; partial answers are discarded."""

    of_query = False


@dataclass(frozen=True, slots=True)
class Limits:
    """Hard limits: beyond them the query ends with LimitExceeded. Beyond `soft` times a limit the answer has a note."""

    series: int = LEAST_SERIES
    """Series of one fetch, unless the store reduces it itself."""
    samples: int = 5_000_000_000
    """Raw samples that the history reads for a query."""
    memory_bytes: int = 4 * 1024**3
    """Bytes of bucket statistics and raw samples that all fetches of a query hold."""
    text_bytes: int = 64 * 1024**2
    """Bytes of the new texts that functions such as `replace` and `to_string` make."""
    seconds: float | None = None
    """Timeout of the evaluation; None: no timeout."""
    soft: float = 0.5

    def __post_init__(self) -> None:
        for name in ("series", "samples", "memory_bytes", "text_bytes", "seconds", "soft"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise QueryError(f"a limit of {value!r} ({name}) lets nothing through: use more than 0")

    @classmethod
    def of_machine(cls, memory_bytes: int = 0, seconds: float | None = None) -> Limits:
        """Return the limits of a process of one user, such as a notebook. `memory_bytes`: its memory; 0: measured."""
        memory = max(LEAST_MEMORY, query_memory(USER_SHARE, memory_bytes))
        return cls(user_series(memory_bytes), memory_bytes=memory, seconds=seconds)


DEFAULT_LIMITS = Limits()
LEAST_MEMORY = 1024**3
"""Least `memory_bytes` of a machine."""


@dataclass(slots=True)
class QueryBudget:
    """Limits of one evaluation and the usage so far. Any thread may set `stop`; the rest belongs to the evaluation."""

    limits: Limits = DEFAULT_LIMITS
    checks: tuple[Check, ...] = ()
    """Called often; each may raise to end the evaluation."""
    stop: threading.Event = field(default_factory=threading.Event)
    """Once set, the query ends, including its Spark jobs, reads and requests to shards."""
    started: float = field(default_factory=monotonic)
    samples: int = 0
    bytes: int = 0
    texts: int = 0
    """Bytes of new texts."""
    max_series: int = 0
    missing: dict[str, None] = field(default_factory=dict)
    """Reasons why lists of series, names or values are not complete."""

    @property
    def is_unlimited(self) -> bool:
        """True if nothing can end the evaluation from outside."""
        return self.limits.seconds is None and not self.checks and not self.has_external_stop

    has_external_stop: bool = False
    """True if the caller holds `stop`."""

    def seconds_left(self) -> float | None:
        """Seconds until the timeout, at least 0; None without a timeout."""
        if self.limits.seconds is None:
            return None
        return max(0.0, self.started + self.limits.seconds - monotonic())

    def remark(self, notes: Sequence[str]) -> None:
        """Take the reasons why a list is not complete."""
        self.missing.update(dict.fromkeys(notes))

    def check(self) -> None:
        """Raise if the query was cancelled, timed out, or one of the `checks` raises."""
        if self.stop.is_set():
            raise QueryCancelled("the query was cancelled")
        if self.seconds_left() == 0.0:
            raise LimitExceeded(
                f"the query took longer than its limit of {self.limits.seconds:g} s (seconds): ask for a shorter range"
                " or fewer series, or raise the limit"
            )
        for check in self.checks:
            check()

    def series_allowed(self, columns: int, statistics: int) -> tuple[int, str]:
        """Return the number of series allowed in a fetch of `columns` buckets, and the error text for more."""
        each = max(1, columns * statistics * CELL_BYTES)
        by_memory = (self.limits.memory_bytes - self.bytes) // each
        if by_memory >= self.limits.series:
            what = f"more than the limit of {self.limits.series:,} series (series): add matchers, or raise the limit"
            return self.limits.series, what
        used = f", of which {self.bytes:,} are used" if self.bytes else ""
        return max(0, by_memory), (
            f"{columns:,} buckets x {statistics} statistics are {each:,} bytes a series, so that {max(0, by_memory):,}"
            f" fit into the limit of {self.limits.memory_bytes:,} bytes (memory_bytes){used}: add matchers, ask for a"
            " shorter range or a wider step, or raise the limit"
        )

    def charge(self, series: int, bytes_: int, samples: int) -> None:
        """Count the result of a fetch. Raises LimitExceeded beyond the limit of bytes or samples."""
        self.bytes += bytes_
        self.samples += samples
        self.max_series = max(self.max_series, series)
        if self.bytes > self.limits.memory_bytes:
            raise LimitExceeded(
                f"the query holds {self.bytes:,} bytes of buckets, more than its limit of {self.limits.memory_bytes:,}"
                " (memory_bytes): add matchers, ask for a shorter range or a wider step, or raise the limit"
            )
        self.check_samples(0)

    def charge_text(self, bytes_: int) -> None:
        """Count a new text. Raises LimitExceeded beyond the limit of their bytes."""
        self.texts += bytes_
        if self.texts > self.limits.text_bytes:
            raise LimitExceeded(
                f"the query makes texts of more than {self.limits.text_bytes:,} bytes (text_bytes): select fewer"
                " series, ask for a shorter range, or raise the limit"
            )

    def check_samples(self, more: int) -> None:
        """Raise LimitExceeded if `more` samples in addition to those counted exceed the limit."""
        if self.samples + more > self.limits.samples:
            raise LimitExceeded(
                f"the history would read {self.samples + more:,} samples or more, the limit is"
                f" {self.limits.samples:,} (samples): add matchers, ask for a shorter range, or raise the limit"
            )

    def notes(self) -> tuple[str, ...]:
        """Return a note for each limit that is nearly reached."""
        limits = self.limits
        used: list[tuple[str, float, float | None]] = [
            ("series", self.max_series, limits.series),
            ("samples", self.samples, limits.samples),
            ("memory_bytes", self.bytes, limits.memory_bytes),
            ("text_bytes", self.texts, limits.text_bytes),
            ("seconds", monotonic() - self.started, limits.seconds),
        ]
        return tuple(
            f"near a limit: {name} {_shown(figure)} of {_shown(limit)}"
            for name, figure, limit in used
            if limit is not None and figure > limits.soft * limit
        )


def _shown(figure: float) -> str:
    return f"{figure:,.1f}" if isinstance(figure, float) else f"{figure:,}"


def make_budget(limits: Limits | None, check: Check | None, stop: threading.Event | None = None) -> QueryBudget:
    """Make the watch of an evaluation; `check` and `stop` belong to the caller."""
    watch = QueryBudget(limits or DEFAULT_LIMITS, (check,) if check is not None else ())
    if stop is not None:
        watch.stop, watch.has_external_stop = stop, True
    return watch


def limited_select(
    store: Store,
    matchers: tuple[Matcher, ...],
    grid: Grid,
    statistics: tuple[str, ...],
    budget: QueryBudget,
    only: tuple[int, ...] | None = None,
    opening: bool = False,
) -> Buckets:
    """Select as many series as the budget allows. Raises LimitExceeded for more, before they are read if the store can
    tell, and SelectError."""
    allowed, refusal = budget.series_allowed(grid.n, len(statistics))
    limit = min(budget.limits.series, max(1, allowed))
    try:
        return store.select(SelectRequest(matchers, grid, statistics, limit, only=only, opening=opening))
    except TooManySeries as problem:
        raise LimitExceeded(f"{problem}; {refusal}") from problem
