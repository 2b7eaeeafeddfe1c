"""Hashes of passwords by scrypt: `scrypt:LOG2N:R:P:SALT:HASH`, salt and hash in base64."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from dataclasses import dataclass

LOG2_N, R, P = 15, 8, 3
"""Cost: 128 * R * 2^LOG2_N bytes = 32 MiB, and P passes over it, about 0.2 s of one core."""
SALT_BYTES, HASH_BYTES = 16, 32
MAX_MEMORY = 256 << 20
MAX_PASSWORD_BYTES = 1_024
MIN_PASSWORD = 12
"""Characters of a new password."""


class PasswordHashError(ValueError):
    """Text that is not the hash of a password."""


@dataclass(frozen=True, slots=True)
class PasswordHash:
    """Salted hash with its cost."""

    log2_n: int
    r: int
    p: int
    salt: bytes
    digest: bytes

    def matches(self, password: str) -> bool:
        """Return True if it is the hash of the password. Takes about 0.2 s; the comparison takes constant time."""
        found = _scrypt(password, self.salt, self.log2_n, self.r, self.p, len(self.digest))
        return hmac.compare_digest(found, self.digest)

    def __str__(self) -> str:
        salt, digest = (base64.b64encode(one).decode() for one in (self.salt, self.digest))
        return f"scrypt:{self.log2_n}:{self.r}:{self.p}:{salt}:{digest}"


def _scrypt(password: str, salt: bytes, log2_n: int, r: int, p: int, size: int) -> bytes:
    given = password.encode("utf-8", "surrogatepass")[:MAX_PASSWORD_BYTES]
    return hashlib.scrypt(given, salt=salt, n=1 << log2_n, r=r, p=p, maxmem=MAX_MEMORY, dklen=size)


def hash_password(password: str, log2_n: int = LOG2_N) -> PasswordHash:
    """Return the hash of a new password. Raises ValueError for one that is too short or too long."""
    if len(password) < MIN_PASSWORD:
        raise ValueError(f"a password has at least {MIN_PASSWORD} characters")
    if len(password.encode("utf-8", "surrogatepass")) > MAX_PASSWORD_BYTES:
        raise ValueError(f"a password has at most {MAX_PASSWORD_BYTES} bytes")
    salt = secrets.token_bytes(SALT_BYTES)
    return PasswordHash(log2_n, R, P, salt, _scrypt(password, salt, log2_n, R, P, HASH_BYTES))


def parse_password_hash(text: str) -> PasswordHash:
    """Parse a hash. Raises PasswordHashError; the text may be a password, so it is not shown."""
    remedy = "write the line that `artimon tokens password` prints"
    parts = text.split(":")
    if len(parts) != 6 or parts[0] != "scrypt" or not all(part.isascii() and part.isdigit() for part in parts[1:4]):
        raise PasswordHashError(f"not a hash of a password: {remedy}")
    log2_n, r, p = (int(part[:6]) for part in parts[1:4])
    if not (1 <= log2_n <= 20 and 1 <= r <= 32 and 1 <= p <= 16 and 128 * r << log2_n < MAX_MEMORY):
        raise PasswordHashError(f"its cost is outside of the limits: {remedy}")
    try:
        salt, digest = (base64.b64decode(part, validate=True) for part in parts[4:])
    except binascii.Error:
        raise PasswordHashError(f"not a hash of a password: {remedy}") from None
    if len(salt) < 8 or not 16 <= len(digest) <= 64:
        raise PasswordHashError(f"salt or hash is too short: {remedy}")
    return PasswordHash(log2_n, r, p, salt, digest)


DUMMY = PasswordHash(LOG2_N, R, P, bytes(SALT_BYTES), bytes(HASH_BYTES))
"""Hash that no password has, compared for unknown users, so that the duration does not tell who exists."""
