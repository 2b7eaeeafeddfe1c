"""Parcels that a sink will never take, kept with the reason so that nothing is lost silently."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

from pipeline.flows.event import Parcel, events_of
from pipeline.wal.files import SYSTEM_FILES, Files, ensure_folder, write_whole

MOST_BYTES = 256 * 1024 * 1024


class Rejected:
    """A folder of one file each: a line of JSON with reason and identity, then the message. Bounded: beyond it `add`
    raises OSError, and the sink's runner tries again: whoever empties the folder lets it go on. Thread-safe.

    Locks: `_lock` guards what is known of the folder, and is held while it is looked at."""

    def __init__(self, folder: Path, files: Files = SYSTEM_FILES, most_bytes: int = MOST_BYTES) -> None:
        self._folder, self._files, self._most_bytes = folder, files, most_bytes
        self._lock = threading.Lock()
        self._known: dict[str, int] = {}
        """Bytes by name, of the folder as it was when its time of change was `_looked`, in ns."""
        self._looked = 0
        self._unnamed = 0

    @property
    def count(self) -> int:
        """Parcels set aside and still there."""
        with self._lock:
            return len(self._names())

    def add(self, parcel: Parcel, reason: str) -> None:
        """Durable when this returns. Raises OSError."""
        data = (
            json.dumps({"reason": reason, "id": str(parcel.id) if parcel.id else ""}).encode() + b"\n" + _body(parcel)
        )
        with self._lock:
            names = self._names()
            name = self._name(parcel, names)
            if sum(names.values()) + len(data) > self._most_bytes:
                self._looked = 0
                raise OSError(f"{self._folder} holds its {self._most_bytes} bytes: look at it and empty it")
            ensure_folder(self._files, self._folder)
            write_whole(self._files, self._folder / name, data)
            names[name] = len(data)
            self._known, self._looked = names, self._changed()

    def _name(self, parcel: Parcel, names: dict[str, int]) -> str:
        """The same parcel has the same name, so that setting it aside twice leaves it there once."""
        if parcel.id is not None:
            id = parcel.id
            return f"{id.agent.replace('/', '_')}-{id.epoch:016x}-{id.lane}-{id.sequence}.rejected"
        while f"unnamed-{self._unnamed}.rejected" in names:
            self._unnamed += 1
        return f"unnamed-{self._unnamed}.rejected"

    def _names(self) -> dict[str, int]:
        """As they are now: a person may have taken some away."""
        changed = self._changed()
        if changed != self._looked:
            found = os.scandir(self._folder) if changed else ()
            self._known = {one.name: size for one in found if one.name.endswith(".rejected") and (size := _size(one))}
            self._looked = changed
        return self._known

    def _changed(self) -> int:
        """When anything was last put into the folder or taken away, 0 if it is not there."""
        try:
            return self._folder.stat().st_mtime_ns
        except FileNotFoundError:
            return 0


def _size(entry: os.DirEntry[str]) -> int:
    """0 if it has gone."""
    try:
        return entry.stat().st_size
    except FileNotFoundError:
        return 0


def _body(parcel: Parcel) -> bytes:
    if parcel.data is not None:
        return parcel.data
    lines = ({"headers": dict(e.headers), "body": e.body.hex()} for e in events_of(parcel))
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)
