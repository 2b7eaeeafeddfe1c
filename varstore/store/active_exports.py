"""Exports that other processes fetch part by part; an export without requests is closed after a timeout."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterator
from time import monotonic

from varstore.store.snapshot_transfer import SnapshotExport

MAX_EXPORTS = 4
IDLE_TIMEOUT_S = 60.0


class ExportNotFoundError(LookupError):
    """The export timed out, ended or was never begun; or parts were requested out of order."""


class TooManyExportsError(RuntimeError):
    """The limit of concurrent exports is reached."""


class _ActiveExport:
    """Export in progress. `_lock` is held while a part is made."""

    def __init__(self, export: SnapshotExport) -> None:
        self.export = export
        self._parts: Iterator[bytes] = iter(export)
        self._lock = threading.Lock()
        self._number, self._last = -1, b""
        self.requested_at = monotonic()

    def part(self, number: int) -> bytes:
        """Return the part `number`: the next one, or the last one again; empty after the end."""
        with self._lock:
            self.requested_at = monotonic()
            if number == self._number + 1:
                self._last = next(self._parts, b"")
                self._number = number
            elif number != self._number or number < 0:
                raise ExportNotFoundError(
                    f"part {number} of a snapshot was requested, the next one is {self._number + 1}"
                )
            self.requested_at = monotonic()
            return self._last


class ActiveExports:
    """Exports in progress, by id. Thread-safe: `_lock` guards the dict and is not held while parts are made."""

    def __init__(self, begin: Callable[[int], SnapshotExport]) -> None:
        self._begin = begin
        self._lock = threading.Lock()
        self._active: dict[str, _ActiveExport] = {}

    def begin(self, vshards: int) -> tuple[str, SnapshotExport]:
        """Begin an export; return (id, export). TooManyExportsError; ValueError if a virtual shard is not held or
        ready."""
        self.close_idle()
        with self._lock:
            if len(self._active) >= MAX_EXPORTS:
                raise TooManyExportsError(f"{MAX_EXPORTS} exports run already: try again later")
        export = self._begin(vshards)
        id_ = secrets.token_hex(8)
        with self._lock:
            self._active[id_] = _ActiveExport(export)
        return id_, export

    def part(self, id_: str, number: int) -> bytes:
        """Return a part of an export, see `_ActiveExport.part`. Raises ExportNotFoundError."""
        with self._lock:
            under = self._active.get(id_)
        if under is None:
            raise ExportNotFoundError(f"image {id_!r} timed out or was never begun: begin again")
        return under.part(number)

    def end(self, id_: str) -> None:
        """Close an export; no-op if it does not exist."""
        with self._lock:
            under = self._active.pop(id_, None)
        if under is not None:
            under.export.close()

    def close_idle(self) -> None:
        """Close exports without a request for SILENCE_S seconds; called every few seconds."""
        now = monotonic()
        with self._lock:
            silent = [id_ for id_, under in self._active.items() if now - under.requested_at > IDLE_TIMEOUT_S]
        for id_ in silent:
            self.end(id_)

    def __len__(self) -> int:
        return len(self._active)
