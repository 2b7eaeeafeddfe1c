"""Common part of the targets of foreign servers: address and name."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

from bookkeeper.process.addresses import bracket_ipv6


class SourceTarget(ABC):
    """Server or script that an agent polls. Messages name it by its `str`."""

    __slots__ = ()
    kind: ClassVar[str]
    """Key under which its source stores `identity`."""
    host: str
    """Name or address, IPv6 without brackets."""
    port: int

    @property
    @abstractmethod
    def identity(self) -> list[str]:
        """Equal for the same target in another run of the agent."""

    @property
    @abstractmethod
    def labels(self) -> Mapping[str, str]:
        """Labels of the target; they override those of its host."""

    @abstractmethod
    def source(self, host: str) -> str:
        """Return the name of its source. `host` is the label of its machine."""

    @property
    def address(self) -> str:
        return join_host_port(self.host, self.port)


class HttpTarget(SourceTarget):
    """Target that is polled by HTTP."""

    __slots__ = ()
    scheme: str
    path: str

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.address}{self.path}"


def join_host_port(host: str, port: int) -> str:
    """`host:port`, IPv6 in brackets."""
    return f"{bracket_ipv6(host)}:{port}"
