"""What can go wrong with one endpoint. `reason` is the word under which `figures()` counts it."""

from __future__ import annotations


class SourceError(RuntimeError):
    """Base of this package's errors."""


class PollError(SourceError):
    """One poll of one endpoint failed; the connection has been closed and the next poll starts afresh."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(reason, text)
        self.reason, self.text = reason, text

    def __str__(self) -> str:
        return f"{self.reason}: {self.text}"


class AddressError(SourceError, ValueError):
    """The name of a znode is no `<ip>:<port>:<uuid>`."""


class RulesError(SourceError, ValueError):
    """The file of placement rules cannot be used. The text says which entry and what is wanted."""


class StateError(SourceError):
    """A state file is damaged: the source starts without it (its next poll counts as a first one)."""
