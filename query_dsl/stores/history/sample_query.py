"""Requests to the history, and its errors."""

from __future__ import annotations

from dataclasses import dataclass

from artimon.model.select import Matcher
from artimon.runtime.machine_memory import LEAST_SERIES, ROW_BYTES, USER_SHARE, query_memory, user_series
from query_dsl.tree.query_errors import QueryError
from query_dsl.tree.selector import parse_selector
from query_dsl.tree.times import format_time, parse_instant

LEAST_SAMPLES = 1_000_000
"""Limit of the samples of an answer on a machine with little memory."""
NO_LIMIT = 2**62


class HistoryError(QueryError):
    """The history cannot be read. The text says where and why."""


class TooMuchHistory(HistoryError):
    """The selection exceeds a limit; nothing is truncated silently. The text names the limit."""


class HistoryInterrupted(HistoryError):
    """The read was interrupted; partial answers are discarded."""


@dataclass(frozen=True, slots=True)
class SampleQuery:
    """Request for samples with time in (after_ms, until_ms] of every matching series: at most `samples` samples of at
    most `series` series."""

    text: str
    matchers: tuple[Matcher, ...]
    after_ms: int
    until_ms: int
    samples: int = LEAST_SAMPLES
    series: int = LEAST_SERIES

    def too_many_samples(self) -> TooMuchHistory:
        """Return the error for more samples than the limit."""
        return TooMuchHistory(
            f"{self.text} has more than {self.samples:,} samples from {format_time(self.after_ms)} to"
            f" {format_time(self.until_ms)}, the limit: narrow the selector or the time, raise the limit, or take what"
            " has none: History.batches (--stream), or History.frame in Spark"
        )


def max_samples(memory_bytes: int = 0) -> int:
    """Return the most samples of one answer in the memory of a user's process; 0: measured."""
    return max(LEAST_SAMPLES, query_memory(USER_SHARE, memory_bytes) // ROW_BYTES)


def parse_sample_query(
    selector: str, start: object, end: object, now_ms: int, samples: int | None = None, series: int | None = None
) -> SampleQuery:
    """Make a Question from texts; a limit of None follows from the memory. Raises QueryError for a bad selector, time
    or limit."""
    samples = max_samples() if samples is None else samples
    series = user_series() if series is None else series
    if samples < 1 or series < 1:
        raise QueryError(f"a limit of {min(samples, series)} lets nothing through: use at least 1")
    after = parse_instant(start, "from").resolve(now_ms)
    until = parse_instant(end, "to").resolve(now_ms)
    if after >= until:
        raise QueryError(f"from {format_time(after)} to {format_time(until)}: the start must be before the end")
    return SampleQuery(selector, parse_selector(selector).matchers, after, until, samples, series)
