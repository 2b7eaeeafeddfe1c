"""Kinds of receivers: the protocol of their deliveries, and the registry that finds them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from alerts.state.notification import Message
from artimon.runtime.config_model import Section

Settings = TypeVar("Settings")


@dataclass(frozen=True, slots=True)
class Integration:
    """One way to reach a receiver. `target`: see notification.target_of; `max_alerts` 0: no limit."""

    target: str
    send_resolved: bool = True
    max_alerts: int = 0
    receiver: str = ""
    """Name of the receiver that an escalation adds; "": that of the route."""
    after_ms: int = 0
    """Time for which an alert must fire without an acknowledgement before an escalation adds it."""


class IntegrationSection(Section):
    """Integration as written in a routing file."""

    send_resolved: bool = True

    @abstractmethod
    def build(self) -> list[Integration]:
        """Return the targets."""


class ServerUnreachableError(Exception):
    """Failure of the server, not of the letter: all letters wait."""


class LetterDeferredError(Exception):
    """Temporary refusal of this letter by the server."""


class LetterRefusedError(Exception):
    """Permanent refusal of this letter by the server."""


class LetterDelivery(Protocol):
    """Open connection to a server that accepts letters."""

    def send(self, message: Message, address: str, now_ms: int) -> None:
        """Return once the server has accepted the letter; else raise LetterDeferredError, LetterRefusedError or
        ServerUnreachableError."""


class ReceiverKind(ABC, Generic[Settings]):
    """Kind of receiver. `name` is its key in rule files, `example` an address, `summary` its documentation."""

    name: ClassVar[str]
    noun: ClassVar[str]
    """Name of an address in messages, such as "mail address"."""
    example: ClassVar[str]
    summary: ClassVar[str]
    sections: ClassVar[Mapping[str, type[IntegrationSection]]]
    """Keys in a receiver of a routing file, such as "email_configs", and the form of their entries."""
    max_alerts: ClassVar[int] = 0
    """Maximum number of alerts that one letter lists; 0: all."""
    default: Settings
    """Settings of an engine without own settings."""

    @abstractmethod
    def accepts(self, address: str) -> bool:
        """Return True if `address` has a valid form."""

    def shown(self, address: str) -> str:
        """Return an address as messages and logs show it, without secrets."""
        return address

    @abstractmethod
    def connect(self, settings: Settings, page: str) -> AbstractContextManager[LetterDelivery]:
        """Connect for a batch of letters. `page`: address of the page for links. Raises ServerUnreachableError."""


@cache
def receiver_kinds() -> Mapping[str, ReceiverKind[Any]]:
    """All kinds by name: the constants RECEIVER of the modules of this folder."""
    modules = [import_module(f"{__package__}.{one.name}") for one in iter_modules([str(Path(__file__).parent)])]
    return {module.RECEIVER.name: module.RECEIVER for module in modules if hasattr(module, "RECEIVER")}
