"""Protocol of a receiver: its paths, the form of a body, and its answers."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from artimon.runtime.http.http_limits import HttpError
from sources.receive.receive_address import SENDER
from sources.receive.received_columns import ReceivedColumns
from sources.receive.received_source import Taken
from sources.state.relabel import RelabelRules

__all__ = ["SENDER", "Answer", "Headers", "Protocol"]
Headers = list[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer of HTTP."""

    status: int
    body: bytes
    headers: Headers


class Protocol(ABC):
    """`name`: first part of the names of its sources; `path`: paths, with the sender as the group `sender`; `schemes`:
    words before the token in the header Authorization."""

    name: str
    path: re.Pattern[str]
    schemes: Collection[bytes] = (b"Bearer",)

    @abstractmethod
    def make_reader(self, rules: RelabelRules | None) -> ReceivedColumns:
        """Return a reader for the bodies of one sender."""

    @abstractmethod
    def form(self, headers: Mapping[bytes, bytes], query: Mapping[str, str]) -> str:
        """Return the form of a body by its headers and the query of its URL, for the reader. Raises HttpError."""

    @abstractmethod
    def answer(self, taken: Taken, form: str) -> Answer:
        """Return the answer to a body that was taken, in part or whole."""

    @abstractmethod
    def error(self, problem: HttpError, form: str) -> Answer:
        """Return the answer to a body of which nothing was taken; `form` "": unknown."""
