"""Counts and problems of the source for `artimon status`."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import Any

log = logging.getLogger(__name__)
MAX_PROBLEMS = 50


class SourceCounts:
    """Counts since the start, and the present problems by subject."""

    def __init__(self) -> None:
        self.polls = 0
        self.samples = 0
        self.missed_ticks = 0
        self.poll_errors: Counter[str] = Counter()
        self.polled_elsewhere = 0
        """Polls that yielded nothing because another agent polls the process."""
        self.sink_refused = 0
        self.refused: dict[str, Counter[str]] = {}
        """Source or endpoint -> refusals of its last poll by reason."""
        self.problems: dict[str, str] = {}

    def set_refused(self, about: str, reasons: Counter[str], problems: tuple[str, ...] = ()) -> None:
        """Record the refusals of `about` in its last poll; empty `reasons` remove the entry."""
        if reasons:
            self.refused[about] = reasons
        else:
            self.refused.pop(about, None)
        self.set_problem(about, "; ".join(problems))

    def set_problem(self, about: str, text: str) -> None:
        """Record the present problem of `about`; an empty text clears it."""
        if text:
            self.problems[about] = text
        else:
            self.problems.pop(about, None)

    def note_internal_error(self, about: str, who: object, error: Exception) -> None:
        """Record an unexpected error of `who` as the present problem of `about`."""
        self.poll_errors["internal"] += 1
        self.set_problem(about, f"{who}: {type(error).__name__}: {error}")

    def ended(self, task: asyncio.Task[None]) -> None:
        """Record a task that should run on as a present problem if it failed; callback of the task."""
        if not task.cancelled() and task.exception() is not None:
            log.error("%s ended", task.get_name(), exc_info=task.exception())
            self.set_problem(task.get_name(), f"{task.get_name()} ended: {task.exception()!r}")

    def to_json(self) -> dict[str, Any]:
        """Return the counts in the form of the agent's health file."""
        refused: Counter[str] = sum(list(self.refused.values()), Counter())  # a copy: the caller may be a thread
        return {
            "polls": self.polls,
            "polled_samples": self.samples,
            "missed_ticks": self.missed_ticks,
            "gave_way": self.polled_elsewhere,
            "poll_errors": dict(self.poll_errors),
            "sink_refused": self.sink_refused,
            "refused": dict(refused),
            "problems": sorted(self.problems.values())[:MAX_PROBLEMS],
        }
