"""Addresses of receivers: `HOST:PORT` is HTTP, `PROTOCOL+TRANSPORT://…` a listener of lines, `otlp+grpc://HOST:PORT`
gRPC."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

from artimon.runtime.exposure import is_loopback
from artimon.runtime.settings import SettingsError
from artimon.runtime.text import parse_address

SENDER = r"[A-Za-z0-9_.-]{1,64}"
DEFAULT_SENDER = "default"
TRANSPORTS = {
    "statsd": ("udp", "tcp", "unix"),
    "graphite": ("tcp", "udp", "unix"),
    "influx": ("udp", "tcp", "unix"),
    "otlp": ("grpc",),
}
_FORMS = ", ".join(f"{protocol}+{one}" for protocol, transports in TRANSPORTS.items() for one in transports)
MAX_PATH = 100
"""Bytes of the path of a unix socket, which the kernel limits to 107."""


@dataclass(frozen=True, slots=True)
class ReceiveAddress:
    """Address of one listener. `path`: of a unix socket, else None; `sender`: name of the only sender of lines."""

    text: str
    protocol: str
    transport: str
    host: str = ""
    port: int = 0
    path: Path | None = None
    sender: str = DEFAULT_SENDER

    @property
    def is_local(self) -> bool:
        """True if only this machine reaches it."""
        return self.path is not None or is_loopback(self.host)

    def __str__(self) -> str:
        return self.text


def parse_receive_address(text: str) -> ReceiveAddress:
    """Parse an address of `--receive`. Raises SettingsError."""
    try:
        return _parse_url(text) if "://" in text else ReceiveAddress(text, "http", "tcp", *parse_address(text))
    except ValueError as problem:
        raise SettingsError(f"--receive {text!r:.100}: {problem}") from None


def _parse_url(text: str) -> ReceiveAddress:
    """Parse the address of a listener that is not HTTP. Raises ValueError."""
    url = urlsplit(text)
    protocol, _, transport = url.scheme.partition("+")
    if transport not in TRANSPORTS.get(protocol, ()):
        raise ValueError(f"no receiver {url.scheme}: there are HOST:PORT for HTTP, {_FORMS}")
    options = dict(parse_qsl(url.query, keep_blank_values=True))
    sender = options.pop("sender", DEFAULT_SENDER)
    if options or url.fragment or not re.fullmatch(SENDER, sender):
        raise ValueError("the only option is ?sender=NAME, 1 to 64 of A-Za-z0-9_.-")
    if transport != "unix":
        if url.path:
            raise ValueError("want HOST:PORT without a path")
        return ReceiveAddress(text, protocol, transport, *parse_address(url.netloc), sender=sender)
    if url.netloc or not 1 < len(url.path.encode()) <= MAX_PATH:
        raise ValueError(f"want unix:///PATH with at most {MAX_PATH} bytes")
    return ReceiveAddress(text, protocol, transport, path=Path(url.path), sender=sender)
