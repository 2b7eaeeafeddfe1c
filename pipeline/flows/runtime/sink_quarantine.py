"""Quarantine for event batches that a sink refused permanently, with the reason, so that none is lost silently."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

from pipeline.flows.event import EventBatch, events_of
from pipeline.wal.file_system import LOCAL_FILE_SYSTEM, FileSystem, ensure_folder, replace_file

MAX_BYTES = 256 * 1024 * 1024


class SinkQuarantine:
    """Folder of one file an event batch: a JSON line with reason and identity, then the message. Bounded: beyond the
    limit `add` raises OSError and the sink's runner retries, until an operator empties the folder. Thread-safe.

    Locks: `_lock` guards the known names, also during scans of the folder."""

    def __init__(self, folder: Path, files: FileSystem = LOCAL_FILE_SYSTEM, most_bytes: int = MAX_BYTES) -> None:
        self._folder, self._files, self._most_bytes = folder, files, most_bytes
        self._lock = threading.Lock()
        self._sizes: dict[str, int] = {}
        """Bytes by name, as of the folder's modification time `_looked` in ns."""
        self._listed_at = 0
        self._next_unnamed = 0

    @property
    def count(self) -> int:
        """Event batches in quarantine."""
        with self._lock:
            return len(self._names())

    def add(self, event_batch: EventBatch, reason: str) -> None:
        """Add an event batch durably. Raises OSError."""
        data = (
            json.dumps({"reason": reason, "id": str(event_batch.id) if event_batch.id else ""}).encode()
            + b"\n"
            + _body(event_batch)
        )
        with self._lock:
            names = self._names()
            name = self._name(event_batch, names)
            if sum(names.values()) + len(data) > self._most_bytes:
                self._listed_at = 0
                raise OSError(f"{self._folder} is full ({self._most_bytes} bytes): inspect and empty it")
            ensure_folder(self._files, self._folder)
            replace_file(self._files, self._folder / name, data)
            names[name] = len(data)
            self._sizes, self._listed_at = names, self._changed_ns()

    def _name(self, event_batch: EventBatch, names: dict[str, int]) -> str:
        """Return the file name. The same event batch has the same name, so that adding it twice keeps it once."""
        if event_batch.id is not None:
            id = event_batch.id
            return f"{id.agent.replace('/', '_')}-{id.epoch:016x}-{id.lane}-{id.sequence}.rejected"
        while f"unnamed-{self._next_unnamed}.rejected" in names:
            self._next_unnamed += 1
        return f"unnamed-{self._next_unnamed}.rejected"

    def _names(self) -> dict[str, int]:
        """Return the current names with sizes: an operator may have removed some."""
        changed = self._changed_ns()
        if changed != self._listed_at:
            found = os.scandir(self._folder) if changed else ()
            self._sizes = {one.name: size for one in found if one.name.endswith(".rejected") and (size := _size(one))}
            self._listed_at = changed
        return self._sizes

    def _changed_ns(self) -> int:
        """Return the modification time of the folder in ns, 0 if it does not exist."""
        try:
            return self._folder.stat().st_mtime_ns
        except FileNotFoundError:
            return 0


def _size(entry: os.DirEntry[str]) -> int:
    """Return the size, 0 if the file has gone."""
    try:
        return entry.stat().st_size
    except FileNotFoundError:
        return 0


def _body(event_batch: EventBatch) -> bytes:
    if event_batch.data is not None:
        return event_batch.data
    lines = ({"headers": dict(e.headers), "body": e.body.hex()} for e in events_of(event_batch))
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)
