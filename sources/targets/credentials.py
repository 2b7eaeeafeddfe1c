"""Credentials for a server: certificates, a token or a password, all from files."""

from __future__ import annotations

import base64
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from sources.base.source_errors import PollError

_MAX_SECRET = 8_192


@dataclass(frozen=True, slots=True)
class ConnectionCredentials:
    """Credentials of one connection: headers, and TLS or None."""

    tls: ssl.SSLContext | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CredentialFiles:
    """Files of the credentials, checked again for each poll, so that they may be renewed. `ca` None: the system's."""

    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    server_name: str = ""
    """Expected name in the certificate of the server; "" for the configured host."""
    bearer_token_file: Path | None = None
    username: str = ""
    password_file: Path | None = None

    def load(self, scheme: str) -> ConnectionCredentials:
        """Load the credentials for http or https. Blocks. Raises PollError `tls` or `unauthorized` for a bad file."""
        headers = self._headers()
        if scheme != "https":
            return ConnectionCredentials(None, headers)
        files = (self.ca, self.cert, self.key)
        try:
            changed = tuple(path.stat().st_mtime_ns for path in files if path is not None)
            return ConnectionCredentials(_context(*files, changed), headers)
        except (OSError, ssl.SSLError) as error:
            raise PollError("tls", f"{error}: want PEM files at {', '.join(str(f) for f in files if f)}") from error

    def _headers(self) -> dict[str, str]:
        if self.bearer_token_file is not None:
            return {"Authorization": f"Bearer {read_secret(self.bearer_token_file)}"}
        if self.password_file is not None:
            pair = f"{self.username}:{read_secret(self.password_file)}"
            return {"Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}
        return {}


@lru_cache(maxsize=64)
def _context(ca: Path | None, cert: Path | None, key: Path | None, changed: tuple[int, ...]) -> ssl.SSLContext:  # noqa: ARG001
    """Create a TLS context, cached by modification times `changed` of the files: loading the system's CAs is slow."""
    made = ssl.create_default_context(cafile=ca)
    if cert is not None:
        made.load_cert_chain(cert, key)
    return made


def read_secret(path: Path) -> str:
    """Read a secret of one line, which must not appear in messages. Raises PollError."""
    try:
        with path.open("rb") as file:
            text = file.read(_MAX_SECRET).decode("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise PollError("unauthorized", f"{path}: {type(error).__name__}: it cannot be read as ASCII text") from error
    if not text.isprintable():
        raise PollError("unauthorized", f"{path}: want one line")
    return text
