"""Authentication of connections: certificates, tokens, both or neither, for servers and clients.

`Security` is made once from settings and shared by all servers and clients of a process. Without it (None) access is
limited only by the addresses that servers bind, by default 127.0.0.1.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from bookkeeper.rpc.thrift_messages import HEADER
from bookkeeper.rpc.tls import SecurityConfigError, Tls, TlsFiles, UnauthorizedError, handshake, has_expired
from bookkeeper.rpc.tokens import ServerHello, Tokens, authenticate_client, frame_size

__all__ = ["Peer", "Security", "SecurityConfigError", "UnauthorizedError", "security_from_settings"]
log = logging.getLogger("bookkeeper.secure")

MODES = ("accept", "prefer", "require")
_TLS_HELLO = 0x16
"""First byte of a TLS handshake. The first byte of a frame is 0 or 1."""
ReceiveExactly = Callable[[socket.socket, int, float], bytes]
SendAll = Callable[[socket.socket, bytes, float], None]


@dataclass(frozen=True)
class Peer:
    """Credentials under which a connection was admitted; reconnect once they are no longer valid."""

    trust_versions: tuple[int, int] = (0, 0)
    expires_at: float = 0.0
    """Expiry of its certificate in epoch seconds; 0: never."""


class Security:
    """TLS and tokens of a process. `mode` allows a rolling change to certificates or tokens without a common restart:
    "accept": servers admit peers with and without credentials, clients present none; "prefer": clients present theirs;
    "require": servers refuse peers without."""

    def __init__(self, tls: Tls | None = None, tokens: Tokens | None = None, mode: str = "require") -> None:
        if mode not in MODES:
            raise SecurityConfigError(f"mode {mode!r}: give one of {', '.join(MODES)}")
        self.tls, self.tokens, self.mode = tls, tokens, mode

    def trust_versions(self) -> tuple[int, int]:
        """Counters that change when trusted credentials are revoked; checks the files."""
        return self.tls.current() if self.tls else 0, self.tokens.current() if self.tokens else 0

    def is_valid(self, peer: Peer) -> bool:
        """True while the credentials of a connection are valid."""
        return peer.trust_versions == self.trust_versions() and not has_expired(peer.expires_at)

    @property
    def is_required(self) -> bool:
        """True if peers must authenticate."""
        return self.mode == "require"

    # --- server

    def wrap(self, sock: socket.socket, deadline: float, wait: Callable[[socket.socket, float], bytes]) -> Any:
        """Wrap a socket in TLS, before the handshake; return it as it is if the peer does not use TLS. `wait` peeks at
        the first byte to decide this in the modes before "require". Raises OSError."""
        if self.tls is None or (self.mode != "require" and not self.starts_tls(wait(sock, deadline))):
            return sock
        return self.tls.server_context().wrap_socket(sock, server_side=True, do_handshake_on_connect=False)

    def starts_tls(self, first: bytes) -> bool:
        """Return True if these first bytes of a connection begin a TLS handshake."""
        return first[:1] == bytes([_TLS_HELLO])

    def admit(self, sock: Any, wrapped: bool, deadline: float) -> Peer:
        """Perform the TLS handshake with a client. Raises UnauthorizedError, OSError."""
        trust, until = self.trust_versions(), 0.0
        if wrapped and self.tls is not None:
            handshake(sock, deadline)
            until = self.tls.check_client(sock.getpeercert())
        return Peer(trust, until)

    def admit_certificate(self, certificate: Any) -> Peer:
        """Return the credentials of a client after the TLS handshake; `certificate` in the form of getpeercert().
        Raises UnauthorizedError."""
        return Peer(self.trust_versions(), self.tls.check_client(certificate) if self.tls is not None else 0.0)

    def server_hello(self) -> ServerHello | None:
        """Handler of the first frames of a connection; None if tokens are not used."""
        return ServerHello(self.tokens) if self.tokens is not None else None

    # --- client

    def connect(
        self, sock: socket.socket, host: str, deadline: float, receive: ReceiveExactly, send: SendAll
    ) -> tuple[Any, Peer]:
        """Authenticate to a server; returns the socket to use from now on and its credentials. Raises
        UnauthorizedError, OSError, FramedError."""
        trust = self.trust_versions()
        if self.mode == "accept":
            return sock, Peer(trust)
        if self.tls is not None:
            name, context = self.tls.expected(host), self.tls.client_context()
            sock = context.wrap_socket(sock, server_hostname=name, do_handshake_on_connect=False)
        try:
            self._authenticate(sock, host, deadline, receive, send)
        except BaseException:
            sock.close()
            raise
        return sock, Peer(trust)

    def _authenticate(self, sock: Any, host: str, deadline: float, receive: ReceiveExactly, send: SendAll) -> None:
        if self.tls is not None:
            try:
                handshake(sock, deadline)
            except OSError as error:
                if not type(error).__name__.startswith("SSL"):
                    raise
                raise UnauthorizedError(
                    f"the server is not {self.tls.expected(host)}, or rejects us: {error}"
                ) from None
        if self.tokens is not None:
            authenticate_client(self.tokens, lambda frame: _exchange(sock, frame, deadline, receive, send))


def _exchange(sock: Any, frame: bytes, deadline: float, receive: ReceiveExactly, send: SendAll) -> bytes:
    send(sock, frame, deadline)
    return receive(sock, frame_size(receive(sock, HEADER.size, deadline)), deadline)


def security_from_settings(settings: Mapping[str, str]) -> Security | None:
    """Read environment variables; None if none of them is set. Raises SecurityConfigError.

    ARTIMON_TLS_CERT, _KEY and _CA are files that require each other; _CRL is an optional file; _NAME and _PEERS are
    names (see `TlsFiles`); ARTIMON_TOKENS is a file; ARTIMON_SECURITY is the mode."""
    given = {name: settings.get("ARTIMON_" + name, "") for name in ("TLS_CERT", "TLS_KEY", "TLS_CA")}
    tokens, mode = settings.get("ARTIMON_TOKENS", ""), settings.get("ARTIMON_SECURITY", "")
    if any(given.values()) and not all(given.values()):
        missing = ", ".join("ARTIMON_" + name for name, value in given.items() if not value)
        raise SecurityConfigError(f"certificates are incomplete: set {missing} too")
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
            raise SecurityConfigError(
                f"ARTIMON_SECURITY={mode} has no effect: set ARTIMON_TLS_CERT or ARTIMON_TOKENS too"
            )
        return None
    return Security(tls, Tokens(tokens) if tokens else None, mode or "require")
