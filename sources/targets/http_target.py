"""What the sources of foreign servers have in common: where a server is, and what it is called."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from bookkeeper.process.addresses import bracketed


class Target(Protocol):
    """A server, or a script, that an agent was told to ask. Its text is how messages name it."""

    @property
    def kind(self) -> str:
        """The key under which its source remembers `identity`."""
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
        """Of its own; they take precedence over those of its host."""
        ...

    def source(self, host: str) -> str:
        """The name of its source, `host` being the label of the machine where it is."""
        ...


class HttpTarget:
    """A target that is asked by HTTP."""

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
