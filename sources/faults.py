"""What was left out of one poll of a foreign server: counted by reason, with an example of each."""

from __future__ import annotations

from collections import Counter

EXAMPLE = 200


class Faults:
    """Counts by reason, and one example of each."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.examples: dict[str, str] = {}

    def add(self, reason: str, text: str, count: int = 1) -> None:
        self.counts[reason] += count
        self.examples.setdefault(reason, text[:EXAMPLE])

    def __len__(self) -> int:
        return len(self.counts)
