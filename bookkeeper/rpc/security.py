"""Authentication of connections: certificates, tokens, both or neither, for servers and clients.

`Security` is made once from settings and shared by all servers and clients of a process. Without it (None) everything
is as open as the addresses that servers bind, which is 127.0.0.1 unless told otherwise.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from bookkeeper.rpc.thrift_messages import HEADER
from bookkeeper.rpc.tls import BadSecurity, Tls, TlsFiles, Unauthorized, handshake, has_ended
from bookkeeper.rpc.tokens import Greeting, Tokens, frame_size, say_hello

__all__ = ["BadSecurity", "Peer", "Security", "Unauthorized", "from_settings"]
log = logging.getLogger("bookkeeper.secure")

MODES = ("accept", "prefer", "require")
_TLS_HELLO = 0x16
"""The first byte of a TLS handshake. That of a frame is 0 or 1."""
ReceiveExactly = Callable[[socket.socket, int, float], bytes]
SendAll = Callable[[socket.socket, bytes, float], None]


@dataclass(frozen=True)
class Peer:
    """What a connection was let in with; it must be made again when that is no longer good."""

    trust: tuple[int, int] = (0, 0)
    until: float = 0.0
    """Epoch seconds at which its certificate ends; 0: never."""


class Security:
    """`mode` says how far a change to certificates or tokens has come, so that it needs no moment at which all restart:
    "accept": servers take peers with and without, clients show nothing; "prefer": clients show what they have;
    "require": servers take nobody without."""

    def __init__(self, tls: Tls | None = None, tokens: Tokens | None = None, mode: str = "require") -> None:
        if mode not in MODES:
            raise BadSecurity(f"mode {mode!r}: one of {', '.join(MODES)}")
        self.tls, self.tokens, self.mode = tls, tokens, mode

    def trust(self) -> tuple[int, int]:
        """Changes when what was trusted is no longer; looks at the files."""
        return self.tls.current() if self.tls else 0, self.tokens.current() if self.tokens else 0

    def holds(self, peer: Peer) -> bool:
        """Whether a connection that was let in so is still good."""
        return peer.trust == self.trust() and not has_ended(peer.until)

    @property
    def strict(self) -> bool:
        """Whether nobody is let in without."""
        return self.mode == "require"

    # --- server

    def wrap(self, sock: socket.socket, deadline: float, wait: Callable[[socket.socket, float], bytes]) -> Any:
        """The socket to use from now on, not yet shaken hands. `wait` peeks at the first byte, which says in the modes
        before "require" whether it is encrypted. Raises OSError."""
        if self.tls is None or (self.mode != "require" and wait(sock, deadline)[:1] != bytes([_TLS_HELLO])):
            return sock
        return self.tls.server_context().wrap_socket(sock, server_side=True, do_handshake_on_connect=False)

    def admit(self, sock: Any, wrapped: bool, deadline: float) -> Peer:
        """Shake hands with a client. Raises Unauthorized, OSError."""
        trust, until = self.trust(), 0.0
        if wrapped and self.tls is not None:
            handshake(sock, deadline)
            until = self.tls.check_client(sock.getpeercert())
        return Peer(trust, until)

    def greeting(self) -> Greeting | None:
        """What the first frames of a connection must be answered by; None if no token is wanted."""
        return Greeting(self.tokens) if self.tokens is not None else None

    # --- client

    def connect(
        self, sock: socket.socket, host: str, deadline: float, receive: ReceiveExactly, send: SendAll
    ) -> tuple[Any, Peer]:
        """The socket to use from now on, and what it was made with. Raises Unauthorized, OSError, FramedError."""
        trust = self.trust()
        if self.mode == "accept":
            return sock, Peer(trust)
        if self.tls is not None:
            name, context = self.tls.expected(host), self.tls.client_context()
            sock = context.wrap_socket(sock, server_hostname=name, do_handshake_on_connect=False)
        try:
            self._introduce(sock, host, deadline, receive, send)
        except BaseException:
            sock.close()
            raise
        return sock, Peer(trust)

    def _introduce(self, sock: Any, host: str, deadline: float, receive: ReceiveExactly, send: SendAll) -> None:
        if self.tls is not None:
            try:
                handshake(sock, deadline)
            except OSError as error:
                if not type(error).__name__.startswith("SSL"):
                    raise
                raise Unauthorized(f"the server is not {self.tls.expected(host)}, or refuses us: {error}") from None
        if self.tokens is not None:
            say_hello(self.tokens, lambda frame: _exchange(sock, frame, deadline, receive, send))


def _exchange(sock: Any, frame: bytes, deadline: float, receive: ReceiveExactly, send: SendAll) -> bytes:
    send(sock, frame, deadline)
    return receive(sock, frame_size(receive(sock, HEADER.size, deadline)), deadline)


def from_settings(settings: Mapping[str, str]) -> Security | None:
    """From variables of the environment; None if none of them is set. Raises BadSecurity.

    ARTIMON_TLS_CERT, _KEY and _CA are files and go together; _CRL is one more; _NAME and _PEERS are names (see
    `TlsFiles`); ARTIMON_TOKENS is a file; ARTIMON_SECURITY is the mode."""
    given = {name: settings.get("ARTIMON_" + name, "") for name in ("TLS_CERT", "TLS_KEY", "TLS_CA")}
    tokens, mode = settings.get("ARTIMON_TOKENS", ""), settings.get("ARTIMON_SECURITY", "")
    if any(given.values()) and not all(given.values()):
        missing = ", ".join("ARTIMON_" + name for name, value in given.items() if not value)
        raise BadSecurity(f"certificates need {missing} too")
    tls = None
    if all(given.values()):
        peers = tuple(text.strip() for text in settings.get("ARTIMON_TLS_PEERS", "").split(",") if text.strip())
        files = TlsFiles(
            certificate=given["TLS_CERT"],
            key=given["TLS_KEY"],
            authorities=given["TLS_CA"],
            revoked=settings.get("ARTIMON_TLS_CRL", ""),
            name=settings.get("ARTIMON_TLS_NAME", ""),
            peers=peers,
        )
        tls = Tls(files)
    if tls is None and not tokens:
        if mode:
            raise BadSecurity(f"ARTIMON_SECURITY={mode} says nothing without ARTIMON_TLS_CERT or ARTIMON_TOKENS")
        return None
    return Security(tls, Tokens(tokens) if tokens else None, mode or "require")
