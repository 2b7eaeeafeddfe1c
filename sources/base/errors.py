"""What can go wrong with one endpoint. `reason` is the word under which `figures()` counts it."""

from __future__ import annotations

from collections import Counter

EXAMPLE = 200
"""Characters of what was wrong that are shown."""


class SourceError(RuntimeError):
    """Base of this package's errors."""


class PollError(SourceError):
    """One poll of one endpoint failed; the connection has been closed and the next poll starts afresh."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(reason, text)
        self.reason, self.text = reason, text

    def __str__(self) -> str:
        return f"{self.reason}: {self.text}"


class GaveWay(SourceError):
    """Another agent polls the process `uuid`, and this one does not know better: no values were read."""

    def __init__(self, uuid: bytes, poller: str) -> None:
        super().__init__(uuid, poller)
        self.uuid, self.poller = uuid, poller

    def __str__(self) -> str:
        return f"the agent {self.poller!r:.200} polls it"


class AddressError(SourceError, ValueError):
    """The name of a znode is no `<ip>:<port>:<uuid>`."""


class TargetError(SourceError, ValueError):
    """What names a bean server cannot be used: the text says what is wanted."""


class StateError(SourceError):
    """A state file is damaged: the source starts without it (its next poll counts as a first one)."""


class LineError(SourceError, ValueError):
    """A line of a drop-in file that says nothing. The text says what is wrong with it; who reads adds file and line."""


class FileRefused(SourceError):
    """A drop-in file, or the folder of them, that is not read. The text names it and says why."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(reason, text)
        self.reason, self.text = reason, text

    def __str__(self) -> str:
        return self.text


class Faults:
    """What was left out of one poll: counts by reason, and one example of each."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.examples: dict[str, str] = {}

    def add(self, reason: str, text: str, count: int = 1) -> None:
        self.counts[reason] += count
        self.examples.setdefault(reason, text[:EXAMPLE])

    def __len__(self) -> int:
        return len(self.counts)
