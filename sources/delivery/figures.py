"""Counts and problems of the source for `artimon status`."""

from __future__ import annotations

from collections import Counter
from typing import Any

MAX_PROBLEMS = 50


class Figures:
    """Counts since the start, and the problems that hold now, by what they are about."""

    def __init__(self) -> None:
        self.polls = 0
        self.samples = 0
        self.missed_ticks = 0
        self.poll_errors: Counter[str] = Counter()
        self.gave_way = 0
        """Polls that yielded nothing because another agent polls the process."""
        self.sink_refused = 0
        self.refused: dict[str, Counter[str]] = {}
        """By source or endpoint: refusals by reason, as of its last poll."""
        self.problems: dict[str, str] = {}

    def refuse(self, about: str, reasons: Counter[str], problems: tuple[str, ...] = ()) -> None:
        """What was refused of `about` with its last poll; nothing takes it off the list."""
        if reasons:
            self.refused[about] = reasons
        else:
            self.refused.pop(about, None)
        self.problem(about, "; ".join(problems))

    def problem(self, about: str, text: str) -> None:
        """A problem that holds from now on; an empty text says that it is over."""
        if text:
            self.problems[about] = text
        else:
            self.problems.pop(about, None)

    def internal(self, about: str, who: object, error: Exception) -> None:
        """`who` met an error that nobody expected: a problem that holds from now on."""
        self.poll_errors["internal"] += 1
        self.problem(about, f"{who}: {type(error).__name__}: {error}")

    def to_json(self) -> dict[str, Any]:
        """Counts as in the health file of the agent."""
        refused: Counter[str] = sum(self.refused.values(), Counter())
        return {
            "polls": self.polls,
            "polled_samples": self.samples,
            "missed_ticks": self.missed_ticks,
            "gave_way": self.gave_way,
            "poll_errors": dict(self.poll_errors),
            "sink_refused": self.sink_refused,
            "refused": dict(refused),
            "problems": sorted(self.problems.values())[:MAX_PROBLEMS],
        }
