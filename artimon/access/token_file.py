"""Tokens of programs: a file with names, roles, expiries and hashes, which commands change while servers read it.

The text of a token is `artimon_ID_SECRET`; the file has only its SHA-256. JSON, mode 0600, replaced atomically."""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import os
import re
import secrets
import stat
import threading
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from artimon.access.principal import Area
from artimon.runtime.file_lock import exclusive_lock
from bookkeeper.rpc.tls import FileStamp, file_stamp

log = logging.getLogger(__name__)
PREFIX = "artimon"
MAX_TOKENS = 10_000
MAX_BYTES = 8 << 20
MAX_NAME = 100
_TOKEN = re.compile(rf"{PREFIX}_([0-9a-f]{{12}})_[A-Za-z0-9_-]{{43}}")


class TokenFileError(ValueError):
    """File of tokens that cannot be used. The text names it and says what to do."""


@dataclass(frozen=True, slots=True)
class TokenRecord:
    """Token without its secret. `scopes` (): every area; `expires_ms` 0: never; `digest`: SHA-256 of its text, hex."""

    id: str
    name: str
    role: str
    scopes: tuple[Area, ...]
    digest: str
    created_ms: int
    expires_ms: int = 0
    author: str = ""

    def is_valid(self, now_ms: int) -> bool:
        """Return True before the expiry."""
        return not self.expires_ms or now_ms < self.expires_ms

    @classmethod
    def from_json(cls, given: Any) -> TokenRecord:
        """Raises ValueError, KeyError, TypeError."""
        made = cls(**{**given, "scopes": tuple(map(Area, given["scopes"]))})
        texts, times = (made.id, made.name, made.role, made.digest, made.author), (made.created_ms, made.expires_ms)
        if not all(isinstance(one, str) for one in texts) or not all(isinstance(one, int) for one in times):
            raise TypeError("a field has another type")
        return made


class TokenFile:
    """File of tokens. Thread-safe; the file is checked at every use, so that a revocation works at once."""

    def __init__(self, path: Path) -> None:
        """Raises TokenFileError. A missing file has no tokens."""
        self.path = path
        self._lock = threading.Lock()
        self._stamp: FileStamp | None = None
        self._records: dict[str, TokenRecord] = {}
        self.problem = ""
        """Reason why no token is accepted; "" if the file can be read."""
        self._records, self._stamp = self._read()

    def verify(self, text: str, now_ms: int) -> TokenRecord | None:
        """Return the record of a token; None if it is unknown, revoked, expired or forged."""
        found = _TOKEN.fullmatch(text)
        record = None if found is None else self._current().get(found[1])
        digest = _digest(text)
        good = hmac.compare_digest(digest, record.digest if record else _digest(""))
        return record if record and good and record.is_valid(now_ms) else None

    def records(self) -> list[TokenRecord]:
        """Return all tokens, oldest first."""
        return sorted(self._current().values(), key=lambda one: (one.created_ms, one.id))

    def create(
        self, name: str, role: str, now_ms: int, *, scopes: Iterable[Area] = (), expires_ms: int = 0, author: str = ""
    ) -> tuple[TokenRecord, str]:
        """Add a token; return its record and its text, which is stored nowhere. Raises TokenFileError, OSError."""
        if not 0 < len(name) <= MAX_NAME or not name.isprintable():
            raise TokenFileError(f"name of the token: write 1 to {MAX_NAME} printable characters")
        id = secrets.token_hex(6)
        text = f"{PREFIX}_{id}_{secrets.token_urlsafe(32)}"
        made = TokenRecord(id, name, role, tuple(scopes), _digest(text), now_ms, expires_ms, author)

        def add(records: dict[str, TokenRecord]) -> None:
            if len(records) >= MAX_TOKENS:
                raise TokenFileError(f"{self.path} has {MAX_TOKENS} tokens: revoke some")
            records[id] = made

        self._change(add)
        return made, text

    def revoke(self, id: str) -> TokenRecord:
        """Remove a token and return its record. Raises TokenFileError if there is none, OSError."""
        found: list[TokenRecord] = []

        def remove(records: dict[str, TokenRecord]) -> None:
            if id not in records:
                raise TokenFileError(f"no token {id!r:.40} in {self.path}: `artimon tokens list` shows them")
            found.append(records.pop(id))

        self._change(remove)
        return found[0]

    def _current(self) -> dict[str, TokenRecord]:
        """Return the tokens of the file as it is now; none, with a problem, while it cannot be read."""
        with self._lock:
            try:
                stamp = self._file_stamp()
                if stamp != self._stamp or self.problem:
                    self._records, self._stamp = self._read()
                    self.problem = ""
            except (OSError, TokenFileError) as error:
                if not self.problem:
                    log.error("no token is accepted: %s", error)
                self._records, self._stamp, self.problem = {}, None, str(error)
            return self._records  # replaced as a whole, never changed

    def _file_stamp(self) -> FileStamp | None:
        try:
            return file_stamp(str(self.path))
        except FileNotFoundError:
            return None

    def _read(self) -> tuple[dict[str, TokenRecord], FileStamp | None]:
        try:
            with self.path.open("rb") as opened:
                found = os.fstat(opened.fileno())
                text = opened.read(MAX_BYTES + 1)
        except FileNotFoundError:
            return {}, None
        except OSError as error:
            raise TokenFileError(f"{self.path}: {error.strerror}") from None
        if stat.S_IMODE(found.st_mode) & 0o077:
            raise TokenFileError(f"{self.path}: others may read or write it: chmod 600 {self.path}")
        try:
            if len(text) > MAX_BYTES:
                raise ValueError(f"more than {MAX_BYTES} bytes")
            records = [TokenRecord.from_json(one) for one in json.loads(text)["tokens"]]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise TokenFileError(
                f"{self.path}: not a file of tokens ({type(error).__name__}: {error}): restore it, or delete it and "
                "create the tokens anew"
            ) from None
        return {one.id: one for one in records}, (found.st_mtime_ns, found.st_size, found.st_ino)

    def _change(self, change: Callable[[dict[str, TokenRecord]], None]) -> None:
        """Read, change and replace the file while no other process does."""
        with self._lock, exclusive_lock(self.path.with_name(f"{self.path.name}.lock")):
            records, _ = self._read()
            change(records)
            fresh = self.path.with_name(f"{self.path.name}.new")
            told = {"tokens": [asdict(one) for one in records.values()]}
            with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="ascii") as opened:
                json.dump(told, opened, indent=1)
                opened.flush()
                os.fsync(opened.fileno())
            fresh.replace(self.path)
            self._records, self._stamp = records, file_stamp(str(self.path))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
