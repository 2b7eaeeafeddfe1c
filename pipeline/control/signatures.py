"""Signatures of pushed configuration and of commands: HMAC-SHA256 with a key that operators and agents hold in a file.

The file has one key a line, `ID SECRET`; the first one signs, all of them verify. The signed content includes its
scope, lineage and number (or its agent, id and deadline), so that it cannot be reused elsewhere or later.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
import secrets
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MIN_SECRET_BYTES = 32
"""Least characters of a secret: `create_key_file` makes 64 hexadecimal digits, 256 bits."""
MAX_BYTES = 64 * 1024
"""Most bytes of a key file."""
_LINE = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]{0,63})\s+(\S+)")


class KeyFileError(ValueError):
    """The key file cannot be used. The text gives the place and the remedy."""


class InvalidSignatureError(ValueError):
    """The signature is missing, of an unknown key, or wrong."""


@dataclass(frozen=True, slots=True)
class SigningKeys:
    """Secrets by key id; the first signs."""

    secrets: Mapping[str, bytes]

    def sign(self, what: str, content: Mapping[str, Any]) -> dict[str, str]:
        """Return the signature of `content`. `what` keeps signatures of different kinds apart."""
        key, secret = next(iter(self.secrets.items()))
        return {"key": key, "mac": _mac(secret, what, content)}

    def verify(self, what: str, content: Mapping[str, Any], signature: Any) -> str:
        """Return the id of the key that signed. Raises InvalidSignatureError."""
        if not isinstance(signature, Mapping):
            raise InvalidSignatureError("it is not signed")
        key, mac = str(signature.get("key")), str(signature.get("mac"))
        secret = self.secrets.get(key)
        if secret is None:
            raise InvalidSignatureError(f"it is signed with key {key[:64]!r}, which this agent does not have")
        if not hmac.compare_digest(_mac(secret, what, content).encode(), mac.encode("utf-8", "surrogatepass")):
            raise InvalidSignatureError(f"its signature with key {key!r} is wrong")
        return key


def read_keys(path: Path | None) -> SigningKeys | None:
    """Read a key file; None without a path. Raises KeyFileError, also for a file that others may read."""
    if path is None:
        return None
    try:
        mode = path.stat().st_mode
        with path.open("rb") as file:
            lines = file.read(MAX_BYTES).decode().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise KeyFileError(f"keys of configuration: {path}: {error}") from None
    if mode & (stat.S_IRWXO | stat.S_IWGRP):
        raise KeyFileError(f"keys of configuration: {path} may be read or written by others: chmod 640")
    found: dict[str, bytes] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        parts = _LINE.fullmatch(line.strip())
        if parts is None or len(parts[2]) < MIN_SECRET_BYTES or parts[1] in found:
            raise KeyFileError(
                f"{path}, line {number}: write ID SECRET, the secret of {MIN_SECRET_BYTES} characters or more"
            )
        found[parts[1]] = parts[2].encode()
    if not found:
        raise KeyFileError(f"{path} holds no key: make one with `artimon config key`")
    return SigningKeys(found)


def create_key_file(path: Path, id: str) -> None:
    """Create a file with one new key, readable by its owner only. Raises OSError, also if the file exists."""
    line = f"{id} {secrets.token_hex(32)}\n"
    if not _LINE.fullmatch(line.strip()):
        raise KeyFileError(f"id {id!r}: use letters, digits, . _ and -, at most 64 of them")
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(line)


def _mac(secret: bytes, what: str, content: Mapping[str, Any]) -> str:
    text = json.dumps(["artimon", what, content], sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hmac.new(secret, text.encode(), hashlib.sha256).hexdigest()
