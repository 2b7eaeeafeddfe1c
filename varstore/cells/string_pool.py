"""Interned strings that cells of STRING series refer to."""

from __future__ import annotations

from collections.abc import Iterable

NO_STRING = -1
DEFAULT_LIMIT_BYTES = 256 * 1024 * 1024
_ENTRY_BYTES = 150
"""Rough bytes of one entry besides its characters."""


class StringPool:
    """Interned strings with small numbers. Numbers of strings that no cell holds any longer are reused.

    Not locked: the owner's lock guards it."""

    def __init__(self, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._texts: list[str | None] = []
        self._ids: dict[str, int] = {}
        self._free: list[int] = []
        self._bytes = 0
        self._sweep_at = limit_bytes // 16

    def __len__(self) -> int:
        return len(self._ids)

    def __getitem__(self, id: int) -> str:
        return self._texts[id] or ""

    def bytes(self) -> int:
        """Estimate of the bytes used."""
        return self._bytes

    def wants_sweep(self) -> bool:
        """True if enough was added since the last `keep` to make another one worthwhile."""
        return self._bytes > self._sweep_at

    def intern(self, text: str) -> int:
        """Return the number of `text`; NO_TEXT if the limit is reached."""
        id = self._ids.get(text)
        if id is not None:
            return id
        cost = len(text) * 2 + _ENTRY_BYTES
        if self._bytes + cost > self._limit_bytes:
            return NO_STRING
        self._bytes += cost
        if self._free:
            id = self._free.pop()
            self._texts[id] = text
        else:
            id = len(self._texts)
            self._texts.append(text)
        self._ids[text] = id
        return id

    def retain(self, ids: Iterable[int]) -> None:
        """Remove every string whose number is not in `ids`."""
        kept = set(ids)
        for id, text in enumerate(self._texts):
            if text is not None and id not in kept:
                self._texts[id] = None
                del self._ids[text]
                self._free.append(id)
                self._bytes -= len(text) * 2 + _ENTRY_BYTES
        self._sweep_at = max(self._limit_bytes // 16, min(self._bytes * 2, self._limit_bytes * 9 // 10))
