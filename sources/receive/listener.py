"""Listener of a receiver: the part that all have, and the check of a token."""

from __future__ import annotations

import asyncio
import hmac
import ssl
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection
from pathlib import Path

from artimon.runtime.settings import SettingsError
from bookkeeper.rpc.security import Peer, Security
from bookkeeper.rpc.tls import UnauthorizedError
from sources.base.source_errors import PollError
from sources.receive.receive_address import ReceiveAddress
from sources.targets.credentials import read_secret

MAX_TOKEN_BYTES = 4_096
RETRY_S = 5
"""Seconds after which a sender may send again what could not be kept now."""


class Listener(ABC):
    """Socket and thread of one address; `start` once, `stop` once.

    `answers`: requests by status; `dropped`: connections, datagrams and lines that were dropped, by reason."""

    def __init__(self, address: ReceiveAddress, security: Security | None = None) -> None:
        """`security`: asks clients for certificates, if it has some of its own."""
        self.address = address
        self.security = security if security is not None and security.tls is not None else None
        self.answers: Counter[str] = Counter()
        self.dropped: Counter[str] = Counter()

    def tls_context(self) -> ssl.SSLContext | None:
        """Return the context of the server, None without certificates."""
        tls = None if self.security is None else self.security.tls
        context: ssl.SSLContext | None = None if tls is None else tls.lasting_server_context()
        return context

    def admit(self, transport: asyncio.BaseTransport) -> Peer | None:
        """Return the credentials of a client after its handshake. None, which is counted: no name in its certificate is
        admitted."""
        if self.security is None:
            return Peer()
        try:
            return self.security.admit_certificate(transport.get_extra_info("peercert"))
        except UnauthorizedError:
            self.dropped["certificate of another name"] += 1
            return None

    def is_valid(self, peer: Peer) -> bool:
        """Return True while the credentials of a connection are valid."""
        return self.security is None or self.security.is_valid(peer)

    @abstractmethod
    def start(self) -> None:
        """Listen. Raises OSError if the address is in use."""

    @abstractmethod
    def stop(self) -> None:
        """Stop listening. Blocks for some seconds at most."""


class SenderToken:
    """Token that senders present."""

    def __init__(self, path: Path, option: str = "--receive-token") -> None:
        """`option`: the option that names the file. Raises SettingsError."""
        try:
            self._token = read_secret(path).encode()
        except PollError as problem:
            raise SettingsError(f"{option}: {problem.text}") from None
        if not 16 <= len(self._token) <= MAX_TOKEN_BYTES:
            raise SettingsError(f"{option} {path}: a token has 16 to {MAX_TOKEN_BYTES} bytes")

    def admits(self, header: bytes, schemes: Collection[bytes] = (b"Bearer",)) -> bool:
        """Return True if a header Authorization presents the token."""
        scheme, _, given = header.partition(b" ")
        return hmac.compare_digest(given, self._token) and scheme in schemes
