"""Certificates for connections: contexts made of files, and made anew when the files change.

Every handshake has a deadline for the whole of it, however slowly its bytes come. `ssl` is imported only where it is
used: an application without certificates does not pay for it.
"""

from __future__ import annotations

import logging
import os
import selectors
import socket
import threading
from dataclasses import dataclass
from fnmatch import fnmatchcase
from time import monotonic
from typing import Any

from bookkeeper.rpc.thrift_messages import FramedError
from bookkeeper.runtime.wall_clock import now_ms

log = logging.getLogger("bookkeeper.secure")
LOOK_S = 1.0
"""Files are looked at so often at most."""


class Unauthorized(FramedError, ConnectionError):
    """The peer did not show that it belongs to us, or we could not show it. Says what to set."""


class BadSecurity(ValueError):
    """Certificates, keys or tokens that are set cannot be used. Says which file and what to do."""


@dataclass(frozen=True)
class TlsFiles:
    """PEM files: the own certificate (with its chain) and key, the authorities that peers must be signed by, and a list
    of revoked certificates ("" for none). `name`: what the certificate of every server must name; "": the address that
    the client connected to. `peers`: patterns of which the certificate of a client must name one; (): any."""

    certificate: str
    key: str
    authorities: str
    revoked: str = ""
    name: str = ""
    peers: tuple[str, ...] = ()

    def paths(self) -> list[str]:
        return [path for path in (self.certificate, self.key, self.authorities, self.revoked) if path]


Stamp = tuple[int, int, int]


def stamp_of(path: str) -> Stamp:
    """What changes when a file does. Raises OSError."""
    found = os.stat(path)
    return found.st_mtime_ns, found.st_size, found.st_ino


class Tls:
    """The contexts of both sides. Thread-safe.

    `trust` grows when the authorities or the revoked ones change: connections of before must be made again. A new own
    certificate needs no such thing."""

    def __init__(self, files: TlsFiles) -> None:
        """Raises BadSecurity."""
        self._files = files
        self._lock = threading.Lock()
        self._looked = monotonic()
        self._stamps = self._stamp()
        self.trust = 0
        self._server, self._client = self._make()

    def server_context(self) -> Any:
        """For a server: clients must have a certificate."""
        with self._lock:
            self._refresh()
            return self._server

    def client_context(self) -> Any:
        """For a client: shows its certificate, and wants one with the right name."""
        with self._lock:
            self._refresh()
            return self._client

    def current(self) -> int:
        """`trust`, after a look at the files."""
        with self._lock:
            self._refresh()
            return self.trust

    def expected(self, host: str) -> str:
        """What the certificate of a server at `host` must name."""
        return self._files.name or host

    def check_client(self, certificate: Any) -> float:
        """When the certificate of a client ends, in seconds since the epoch. Raises Unauthorized if its names are not
        among those let in."""
        import ssl

        names = names_of(certificate)
        peers = self._files.peers
        if peers and not any(fnmatchcase(name, pattern) for name in names for pattern in peers):
            raise Unauthorized(f"certificate of {', '.join(names) or 'nobody'}: none of {', '.join(peers)}")
        return float(ssl.cert_time_to_seconds(certificate["notAfter"]))

    def _stamp(self) -> dict[str, Stamp | None]:
        stamps: dict[str, Stamp | None] = {}
        for path in self._files.paths():
            try:
                stamps[path] = stamp_of(path)
            except OSError:
                stamps[path] = None
        return stamps

    def _refresh(self) -> None:
        """Under `_lock`: what cannot be read while it is being replaced is read at the next look."""
        if monotonic() - self._looked < LOOK_S:
            return
        self._looked = monotonic()
        stamps = self._stamp()
        if stamps == self._stamps:
            return
        try:
            self._server, self._client = self._make()
        except BadSecurity as error:
            log.warning("the former certificates go on: %s", error)
            return
        trusted = (self._files.authorities, self._files.revoked)
        self.trust += any(stamps.get(path) != self._stamps.get(path) for path in trusted)
        self._stamps = stamps
        log.info("certificates were read again")

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
                raise BadSecurity(f"{', '.join(files.paths())}: {error}: want PEM files that belong together") from None
            made.append(context)
        return made[0], made[1]


def _no_password() -> str:
    raise ValueError("the key has a password: take one without")


def names_of(certificate: Any) -> list[str]:
    """The names in a certificate as getpeercert() gives it: DNS, addresses, URIs, common name."""
    if not certificate:
        return []
    names = [value for kind, value in certificate.get("subjectAltName", ()) if kind in ("DNS", "URI", "IP Address")]
    names += [value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"]
    return names


def handshake(sock: Any, deadline: float) -> None:
    """Shake hands on a wrapped socket that has not yet. Raises TimeoutError at the deadline, OSError."""
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
                raise TimeoutError("no handshake in time")
            selector.register(sock, event)
            selector.select(seconds)
            selector.unregister(sock)


def wants_more(error: OSError) -> bool:
    """Whether a wrapped socket only says that there is nothing to read now."""
    return type(error).__name__ in ("SSLWantReadError", "SSLWantWriteError")


def is_wrapped(sock: socket.socket) -> bool:
    """Whether bytes on it are encrypted."""
    return hasattr(sock, "do_handshake")


def has_ended(until: float) -> bool:
    """Whether a certificate that is good `until` (epoch seconds, 0: for ever) is no longer."""
    return bool(until) and now_ms() / 1000 >= until
