"""Common part of the targets of foreign servers: address and name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from bookkeeper.process.addresses import bracketed


class Target(Protocol):
    """Server or script that an agent polls. Messages name it by its `str`."""

    @property
    def kind(self) -> str:
        """Key under which its source stores `identity`."""
        ...

    @property
    def identity(self) -> list[str]:
        """Equal for the same target in another run of the agent."""
        ...

    @property
    def host(self) -> str:
        """Name or address, IPv6 without brackets."""
        ...

    @property
    def port(self) -> int: ...

    @property
    def address(self) -> str:
        """`host:port`, IPv6 in brackets."""
        ...

    @property
    def labels(self) -> Mapping[str, str]:
        """Labels of the target; they override those of its host."""
        ...

    def source(self, host: str) -> str:
        """Return the name of its source. `host` is the label of its machine."""
        ...


class HttpTarget:
    """Target that is polled by HTTP."""

    __slots__ = ()
    host: str
    port: int
    scheme: str
    path: str

    @property
    def address(self) -> str:
        return joined(self.host, self.port)

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.address}{self.path}"


def joined(host: str, port: int) -> str:
    """`host:port`, IPv6 in brackets."""
    return f"{bracketed(host)}:{port}"
