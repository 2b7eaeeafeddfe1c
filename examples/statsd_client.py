"""A client with the methods of StatsD's, behind which bookkeeper counts: for a program that is to change one line.

StatsD puts everything into the name; here rules take it apart again, so that one can ask by labels.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import bookkeeper
from bookkeeper import Timer

Rule = tuple[str, str, tuple[str, ...]]
"""A pattern of names with * for one part, the name of the variable, and a label for each *."""
RULES: Sequence[Rule] = (("web.*.*", "web.requests", ("method", "status")),)


class StatsClient:
    """Counts at once and exactly: no packets, no flush interval. A given `rate` multiplies, as in StatsD."""

    def __init__(self, prefix: str = "", rules: Sequence[Rule] = RULES) -> None:
        self._prefix = prefix + "." if prefix else ""
        self._rules = [(re.compile(re.escape(glob).replace(r"\*", r"([^.]+)")), name, to) for glob, name, to in rules]

    def incr(self, stat: str, count: int = 1, rate: float = 1.0) -> None:
        """Adds to a counter."""
        name, labels = self._place(stat)
        bookkeeper.add_to_integer_var(name, labels, round(count / rate))

    def decr(self, stat: str, count: int = 1, rate: float = 1.0) -> None:
        """Takes from what then is a gauge."""
        self.incr(stat, -count, rate)

    def gauge(self, stat: str, value: float, delta: bool = False) -> None:
        """Sets a gauge, or moves it."""
        name, labels = self._place(stat)
        if delta:
            bookkeeper.add_to_double_var(name, labels, float(value))
        else:
            bookkeeper.set_double_var(name, labels, value)

    def timing(self, stat: str, milliseconds: float) -> None:
        """Observes a duration: a histogram in seconds, from which any server computes any quantile over all hosts."""
        self.timer(stat).observe(milliseconds / 1000)

    def timer(self, stat: str) -> Timer:
        """A context manager and decorator."""
        name, labels = self._place(stat)
        return bookkeeper.timer(name + ".seconds", labels)

    def _place(self, stat: str) -> tuple[str, dict[str, str]]:
        for pattern, name, labels in self._rules:
            found = pattern.fullmatch(stat)
            if found:
                return self._prefix + name, dict(zip(labels, found.groups(), strict=True))
        return self._prefix + stat, {}
