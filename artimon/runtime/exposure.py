"""Rule for every listener of the platform: beyond loopback it authenticates its clients."""

from __future__ import annotations

import ipaddress
import logging
import socket
from typing import TYPE_CHECKING

from artimon.runtime.settings import SettingsError

if TYPE_CHECKING:
    from bookkeeper.rpc.security import Security

log = logging.getLogger(__name__)

PROVE = (
    "set certificates (ARTIMON_TLS_CERT, _KEY, _CA) or ARTIMON_TOKENS, with ARTIMON_SECURITY=require (docs/security.md)"
)
KEEP_LOCAL = "it has no login: listen on 127.0.0.1, behind a proxy that has one"


class Unprotected(SettingsError):
    """A listener would serve other machines without authentication."""

    def __init__(self, listener: str, host: str, remedy: str) -> None:
        super().__init__(listener, host, remedy)
        self.listener, self.host, self.remedy = listener, host, remedy

    def __str__(self) -> str:
        return (
            f"{self.listener} does not start: {self.host!r} is reached from other machines, and clients are not "
            f"authenticated: {self.remedy}, or start with --insecure"
        )


def is_loopback(host: str) -> bool:
    """Return whether an address or a name leads to this machine alone. A name without an address does not."""
    try:
        found = socket.getaddrinfo(host or "0.0.0.0", None, type=socket.SOCK_STREAM)  # noqa: S104 - "" binds them all
        return all(ipaddress.ip_address(str(one[4][0]).partition("%")[0]).is_loopback for one in found)
    except (OSError, ValueError):
        return False


def family_of(host: str) -> socket.AddressFamily:
    """Family of a socket that listens on `host`: IPv6 for an address with colons."""
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def require_protection(
    listener: str, host: str, security: Security | None, *, insecure: bool, remedy: str = PROVE
) -> list[str]:
    """Check a listener before it binds. `security`: the authentication that it asks for, None if it asks for none.

    Returns the warnings for `artimon status`, none in most cases. Raises Unprotected."""
    if is_loopback(host) or (security is not None and security.strict):
        return []
    if not insecure:
        raise Unprotected(listener, host, remedy)
    warning = f"{listener} serves every client that reaches {host!r} (--insecure)"
    log.warning("%s: %s", warning, remedy)
    return [warning]
