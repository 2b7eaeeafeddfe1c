"""Rule for every listener of the platform: outside of loopback it must authenticate its clients."""

from __future__ import annotations

import ipaddress
import logging
import socket
from typing import TYPE_CHECKING

from artimon.runtime.settings import SettingsError

if TYPE_CHECKING:
    from bookkeeper.rpc.security import Security

log = logging.getLogger(__name__)

REQUIRE_PROOF = (
    "set certificates (ARTIMON_TLS_CERT, _KEY, _CA) or ARTIMON_TOKENS, with ARTIMON_SECURITY=require (docs/security.md)"
)
KEEP_LOCAL = "it has no login: give --access FILE (docs/access.md), or listen on 127.0.0.1"


ENCRYPT = (
    "passwords and tokens would be sent in clear: write tls into the access file, or url: https://... of the proxy that"
    " ends TLS"
)


class UnprotectedError(SettingsError):
    """Refusal to start a listener that would serve other machines without authentication."""

    def __init__(self, listener: str, host: str, remedy: str) -> None:
        super().__init__(listener, host, remedy)
        self.listener, self.host, self.remedy = listener, host, remedy

    def __str__(self) -> str:
        return (
            f"{self.listener} does not start: {self.host!r} is reachable from other machines, and clients are not "
            f"authenticated: {self.remedy}, or start with --insecure"
        )


def is_loopback(host: str) -> bool:
    """Return True if every address of a host is loopback; False for a name without an address."""
    try:
        found = socket.getaddrinfo(host or "0.0.0.0", None, type=socket.SOCK_STREAM)  # noqa: S104 - "" binds them all
        return all(ipaddress.ip_address(str(one[4][0]).partition("%")[0]).is_loopback for one in found)
    except (OSError, ValueError):
        return False


def family_of(host: str) -> socket.AddressFamily:
    """Return the family of a socket that listens on `host`: IPv6 for an address with colons."""
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def require_protection(
    listener: str, host: str, security: Security | None, *, insecure: bool, remedy: str = REQUIRE_PROOF
) -> list[str]:
    """Check a listener before it binds. `security`: the authentication that it requires, None if it requires none.

    Returns the warnings for `artimon status`, usually none. Raises UnprotectedError."""
    if is_loopback(host) or (security is not None and security.is_required):
        return []
    if not insecure:
        raise UnprotectedError(listener, host, remedy)
    warning = f"{listener} serves every client that reaches {host!r} (--insecure)"
    log.warning("%s: %s", warning, remedy)
    return [warning]
