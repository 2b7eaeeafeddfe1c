"""TLS contexts for connections, loaded from certificate files and reloaded when the files change.

Every handshake has one deadline, however slowly its bytes arrive. `ssl` is imported only where it is used, so an
application without certificates does not load it.
"""

from __future__ import annotations

import logging
import os
import selectors
import socket
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from time import monotonic
from typing import Any

from bookkeeper.rpc.thrift_messages import FramedError
from bookkeeper.runtime.wall_clock import now_ms

log = logging.getLogger("bookkeeper.secure")
REFRESH_PERIOD_S = 1.0
"""Minimum time between two checks of the files, in seconds."""


class UnauthorizedError(FramedError, ConnectionError):
    """Authentication of the peer, or by the peer, failed. The text says what to set."""


class SecurityConfigError(ValueError):
    """Unusable certificates, keys or tokens. The text names the file and says what to do."""


@dataclass(frozen=True)
class TlsFiles:
    """PEM files: own certificate (with its chain) and key, certificate authorities of peers, and a revocation list (""
    for none). `name`: name required in the certificate of every server; "": the address that the client connected to.
    `peers`: patterns, one of which must match a name in the certificate of a client; (): any client."""

    certificate: str
    key: str
    authorities: str
    revoked: str = ""
    name: str = ""
    peers: tuple[str, ...] = ()

    def paths(self) -> list[str]:
        return [path for path in (self.certificate, self.key, self.authorities, self.revoked) if path]


FileStamp = tuple[int, int, int]


def file_stamp(path: str) -> FileStamp:
    """Fingerprint of a file: modification time, size, inode. Raises OSError."""
    found = os.stat(path)
    return found.st_mtime_ns, found.st_size, found.st_ino


class Tls:
    """TLS contexts of servers and clients. Thread-safe.

    `trust` grows when the authorities or the revocation list change: then older connections must reconnect. A new own
    certificate does not require that."""

    def __init__(self, files: TlsFiles) -> None:
        """Raises SecurityConfigError."""
        self._files = files
        self._lock = threading.Lock()
        self._refreshed_at = monotonic()
        self._stamps = self._stamp()
        self.version = 0
        self._server, self._client = self._make()

    def server_context(self) -> Any:
        """Context of a server: clients must present a certificate."""
        with self._lock:
            self._refresh()
            return self._server

    def lasting_server_context(self) -> Any:
        """Context of a server that keeps it: each handshake uses the newest files, as with `server_context`.

        Sessions are not resumed by tickets, because a resumed one is not checked against new authorities."""
        import ssl

        context = self._make()[0]
        context.options |= ssl.OP_NO_TICKET
        context.num_tickets = 0
        context.sni_callback = self._renew  # called for clients that send no name, too
        return context

    def _renew(self, sock: Any, *_: Any) -> None:
        sock.context = self.server_context()

    def client_context(self) -> Any:
        """Context of a client: presents its certificate and requires one with the expected name."""
        with self._lock:
            self._refresh()
            return self._client

    def current(self) -> int:
        """Check the files and return `trust`."""
        with self._lock:
            self._refresh()
            return self.version

    def expected(self, host: str) -> str:
        """Name required in the certificate of a server at `host`."""
        return self._files.name or host

    def check_client(self, certificate: Any) -> float:
        """Return the expiry of a client's certificate, in seconds since the epoch. Raises UnauthorizedError if none of
        its names is admitted."""
        import ssl

        self.check_names(names_of(certificate))
        return float(ssl.cert_time_to_seconds(certificate["notAfter"]))

    @property
    def files(self) -> TlsFiles:
        """Files of the certificates."""
        return self._files

    def check_names(self, names: Sequence[str]) -> None:
        """Raise UnauthorizedError if none of the names of a client's certificate is admitted."""
        peers = self._files.peers
        if peers and not any(fnmatchcase(name, pattern) for name in names for pattern in peers):
            raise UnauthorizedError(f"certificate of {', '.join(names) or 'no name'}: no match for {', '.join(peers)}")

    def _stamp(self) -> dict[str, FileStamp | None]:
        stamps: dict[str, FileStamp | None] = {}
        for path in self._files.paths():
            try:
                stamps[path] = file_stamp(path)
            except OSError:
                stamps[path] = None
        return stamps

    def _refresh(self) -> None:
        """Reload changed files; under `_lock`. Files unreadable during a replacement are read at the next check."""
        if monotonic() - self._refreshed_at < REFRESH_PERIOD_S:
            return
        self._refreshed_at = monotonic()
        stamps = self._stamp()
        if stamps == self._stamps:
            return
        try:
            self._server, self._client = self._make()
        except SecurityConfigError as error:
            log.warning("certificates not reloaded, the old ones stay in use: %s", error)
            return
        trusted = (self._files.authorities, self._files.revoked)
        self.version += any(stamps.get(path) != self._stamps.get(path) for path in trusted)
        self._stamps = stamps
        log.info("certificates reloaded")

    def _make(self) -> tuple[Any, Any]:
        import ssl

        files, made = self._files, []
        for side in (ssl.PROTOCOL_TLS_SERVER, ssl.PROTOCOL_TLS_CLIENT):
            try:
                context = ssl.SSLContext(side)
                context.minimum_version = ssl.TLSVersion.TLSv1_2
                context.verify_mode = ssl.CERT_REQUIRED
                context.load_cert_chain(files.certificate, files.key, password=_no_password)
                context.load_verify_locations(files.authorities)
                if files.revoked:
                    context.load_verify_locations(files.revoked)
                    context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
            except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
                raise SecurityConfigError(
                    f"{', '.join(files.paths())}: {error}: give PEM files that belong together"
                ) from None
            made.append(context)
        return made[0], made[1]


def _no_password() -> str:
    raise ValueError("the key has a password: use a key without one")


def names_of(certificate: Any) -> list[str]:
    """Names in a certificate in the form of getpeercert(): DNS, addresses, URIs, common name."""
    if not certificate:
        return []
    names = [value for kind, value in certificate.get("subjectAltName", ()) if kind in ("DNS", "URI", "IP Address")]
    names += [value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"]
    return names


def handshake(sock: Any, deadline: float) -> None:
    """Perform the handshake of a wrapped socket. Raises TimeoutError at the deadline, OSError."""
    import ssl

    sock.settimeout(0)
    with selectors.DefaultSelector() as selector:
        while True:
            try:
                sock.do_handshake()
                return
            except ssl.SSLWantReadError:
                event = selectors.EVENT_READ
            except ssl.SSLWantWriteError:
                event = selectors.EVENT_WRITE
            seconds = deadline - monotonic()
            if seconds <= 0:
                raise TimeoutError("the TLS handshake timed out")
            selector.register(sock, event)
            selector.select(seconds)
            selector.unregister(sock)


def wants_more(error: OSError) -> bool:
    """True if the error of a wrapped socket only means that it would block."""
    return type(error).__name__ in ("SSLWantReadError", "SSLWantWriteError")


def is_wrapped(sock: socket.socket) -> bool:
    """True if the socket is encrypted."""
    return hasattr(sock, "do_handshake")


def has_expired(until: float) -> bool:
    """True if a certificate valid `until` (epoch seconds, 0: forever) has expired."""
    return bool(until) and now_ms() / 1000 >= until
