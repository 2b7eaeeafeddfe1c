"""Errors of one endpoint. `reason` is the key under which `figures()` counts the error."""

from __future__ import annotations

from collections import Counter

MAX_EXAMPLE_CHARACTERS = 200
"""Length of an example of a fault, in characters."""
MAX_NAMED = 5
"""Bad lines of a file that are reported one by one; all are counted."""


class SourceError(RuntimeError):
    """Base of this package's errors."""


class ReasonedError(SourceError):
    """Error that is counted under its `reason`."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(reason, text)
        self.reason, self.text = reason, text

    def __str__(self) -> str:
        return self.text


class PollError(ReasonedError):
    """One poll of one endpoint failed; the connection is closed and the next poll opens a new one."""

    def __str__(self) -> str:
        return f"{self.reason}: {self.text}"


class PolledElsewhereError(SourceError):
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


class SourceStateError(SourceError):
    """A state file is damaged: the source starts without it and treats its next poll as the first one."""


class LineError(SourceError, ValueError):
    """A line of a drop-in file is invalid. The text gives the reason; the reader of the file adds file and line."""


class FileRefusedError(ReasonedError):
    """A drop-in file or the folder of drop-in files cannot be read. The text gives the path and the reason."""


class RejectCounts:
    """Parts left out of one poll: counts by reason and one example of each; for files, also the first few in detail."""

    def __init__(self, reason: str = "", text: str = "") -> None:
        self.counts: Counter[str] = Counter()
        self.examples: dict[str, str] = {}
        self.named: list[tuple[int, str]] = []
        """Line, or 0 for the file as a whole, and text."""
        if reason:
            self.add(reason, text)

    def add(self, reason: str, text: str, count: int = 1, line: int = 0) -> None:
        """Add `count` parts, the first of which is in `line`."""
        self.counts[reason] += count
        if reason not in self.examples:
            self.examples[reason] = (f"line {line}: {text}" if line else text)[:MAX_EXAMPLE_CHARACTERS]
        if len(self.named) < MAX_NAMED:
            self.named.append((line, text))
