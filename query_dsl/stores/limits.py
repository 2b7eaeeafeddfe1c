"""What one query may cost, and ending it: limits, the time it has, and whoever calls it off."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic

from query_dsl.tree.errors import QueryError

CELL_BYTES = 8
Check = Callable[[], object]


class LimitExceeded(QueryError):
    """A query that would cost more than it may. The text names the limit, the figure, and what to do."""


class QueryCancelled(QueryError):
    """The query was called off; there is no partial answer."""

    of_query = False


@dataclass(frozen=True, slots=True)
class Limits:
    """Hard limits: beyond them the query ends with LimitExceeded. Beyond `soft` times a limit the answer says so."""

    series: int = 100_000
    """Series of one fetch, and those of one that a store does not reduce itself."""
    samples: int = 5_000_000_000
    """Raw samples that the history reads for a query."""
    memory_bytes: int = 4 * 1024**3
    """Statistics of buckets, and raw samples, that all fetches of a query hold."""
    seconds: float | None = None
    """From the start of the evaluation to its end; None: as long as it takes."""
    soft: float = 0.5

    def __post_init__(self) -> None:
        for name in ("series", "samples", "memory_bytes", "seconds", "soft"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise QueryError(f"a limit of {value!r} ({name}) lets nothing through: use more than 0")


DEFAULT = Limits()


@dataclass(slots=True)
class Watch:
    """What one evaluation has used of its limits. Any thread may `cancel`; the rest belongs to the evaluation."""

    limits: Limits = DEFAULT
    checks: tuple[Check, ...] = ()
    """Called often; each may raise to end the evaluation."""
    stop: threading.Event = field(default_factory=threading.Event)
    """Once set, the query ends: Spark's jobs, readings and questions to shards as well."""
    started: float = field(default_factory=monotonic)
    samples: int = 0
    bytes: int = 0
    most_series: int = 0

    @property
    def idle(self) -> bool:
        """Whether nothing can end the evaluation from outside."""
        return self.limits.seconds is None and not self.checks and not self.watched

    watched: bool = False
    """Whether somebody else holds `stop`."""

    def seconds_left(self) -> float | None:
        """Never below 0; None without a limit."""
        if self.limits.seconds is None:
            return None
        return max(0.0, self.started + self.limits.seconds - monotonic())

    def check(self) -> None:
        """Go on, or raise what ends the query."""
        if self.stop.is_set():
            raise QueryCancelled("the query was called off")
        if self.seconds_left() == 0.0:
            raise LimitExceeded(
                f"the query took longer than its limit of {self.limits.seconds:g} s (seconds): ask for a shorter range"
                " or fewer series, or raise the limit"
            )
        for check in self.checks:
            check()

    def series_allowed(self, columns: int, statistics: int) -> tuple[int, str]:
        """How many series a fetch of so many buckets may have, and what to say of more."""
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

    def took(self, series: int, bytes_: int, samples: int) -> None:
        """Count what a fetch brought. LimitExceeded beyond the limit of bytes or samples."""
        self.bytes += bytes_
        self.samples += samples
        self.most_series = max(self.most_series, series)
        if self.bytes > self.limits.memory_bytes:
            raise LimitExceeded(
                f"the query holds {self.bytes:,} bytes of buckets, more than its limit of {self.limits.memory_bytes:,}"
                " (memory_bytes): add matchers, ask for a shorter range or a wider step, or raise the limit"
            )
        self.took_samples(0)

    def took_samples(self, more: int) -> None:
        """LimitExceeded if `more` samples than those that are counted would be too many."""
        if self.samples + more > self.limits.samples:
            raise LimitExceeded(
                f"the history would read {self.samples + more:,} samples or more, the limit is"
                f" {self.limits.samples:,} (samples): add matchers, ask for a shorter range, or raise the limit"
            )

    def notes(self) -> tuple[str, ...]:
        """What came near a limit."""
        limits = self.limits
        used: list[tuple[str, float, float | None]] = [
            ("series", self.most_series, limits.series),
            ("samples", self.samples, limits.samples),
            ("memory_bytes", self.bytes, limits.memory_bytes),
            ("seconds", monotonic() - self.started, limits.seconds),
        ]
        return tuple(
            f"near a limit: {name} {_shown(figure)} of {_shown(limit)}"
            for name, figure, limit in used
            if limit is not None and figure > limits.soft * limit
        )


def _shown(figure: float) -> str:
    return f"{figure:,.1f}" if isinstance(figure, float) else f"{figure:,}"


def watch_of(limits: Limits | None, check: Check | None, stop: threading.Event | None = None) -> Watch:
    """The watch of an evaluation; `check` and `stop` are of whoever asks."""
    watch = Watch(limits or DEFAULT, (check,) if check is not None else ())
    if stop is not None:
        watch.stop, watch.watched = stop, True
    return watch
