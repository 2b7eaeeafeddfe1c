"""Errors of one endpoint. `reason` is the key under which `figures()` counts the error."""

from __future__ import annotations

from collections import Counter

EXAMPLE = 200
"""Length of an example of a fault, in characters."""


class SourceError(RuntimeError):
    """Base of this package's errors."""


class PollError(SourceError):
    """One poll of one endpoint failed; the connection is closed and the next poll opens a new one."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(reason, text)
        self.reason, self.text = reason, text

    def __str__(self) -> str:
        return f"{self.reason}: {self.text}"


class GaveWay(SourceError):
    """Another agent polls the process `uuid` and this agent is not sure of its lease: no values were read."""

    def __init__(self, uuid: bytes, poller: str) -> None:
        super().__init__(uuid, poller)
        self.uuid, self.poller = uuid, poller

    def __str__(self) -> str:
        return f"the agent {self.poller!r:.200} polls it"


class AddressError(SourceError, ValueError):
    """The name of a znode is not `<ip>:<port>:<uuid>`."""


class TargetError(SourceError, ValueError):
    """The configuration of a target is invalid; the text gives the expected form."""


class StateError(SourceError):
    """A state file is damaged: the source starts without it and treats its next poll as the first one."""


class LineError(SourceError, ValueError):
    """A line of a drop-in file is invalid. The text gives the reason; the reader of the file adds file and line."""


class FileRefused(SourceError):
    """A drop-in file or the folder of drop-in files cannot be read. The text gives the path and the reason."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(reason, text)
        self.reason, self.text = reason, text

    def __str__(self) -> str:
        return self.text


class Faults:
    """Values left out of one poll: counts by reason and one example of each."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.examples: dict[str, str] = {}

    def add(self, reason: str, text: str, count: int = 1) -> None:
        self.counts[reason] += count
        self.examples.setdefault(reason, text[:EXAMPLE])

    def __len__(self) -> int:
        return len(self.counts)
