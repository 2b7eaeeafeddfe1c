"""Parcels that a sink will never take, kept with the reason so that nothing is lost silently."""

from __future__ import annotations

import json
import threading
from pathlib import Path

from pipeline.flows.event import Parcel, events_of
from pipeline.log.files import SYSTEM_FILES, Files, ensure_folder, write_whole

MOST_BYTES = 256 * 1024 * 1024


class Rejected:
    """A folder of one file each: a line of JSON with reason and identity, then the message. Bounded: beyond it `add`
    raises OSError, and the sink's runner tries again."""

    def __init__(self, folder: Path, files: Files = SYSTEM_FILES, most_bytes: int = MOST_BYTES) -> None:
        self._folder, self._files, self._most_bytes = folder, files, most_bytes
        self._lock = threading.Lock()
        self._known: dict[str, int] | None = None
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
                raise OSError(f"{self._folder} holds its {self._most_bytes} bytes: look at it and empty it")
            ensure_folder(self._files, self._folder)
            write_whole(self._files, self._folder / name, data)
            names[name] = len(data)

    def _name(self, parcel: Parcel, names: dict[str, int]) -> str:
        """The same parcel has the same name, so that setting it aside twice leaves it there once."""
        if parcel.id is not None:
            id = parcel.id
            return f"{id.agent.replace('/', '_')}-{id.epoch:016x}-{id.lane}-{id.sequence}.rejected"
        while f"unnamed-{self._unnamed}.rejected" in names:
            self._unnamed += 1
        return f"unnamed-{self._unnamed}.rejected"

    def _names(self) -> dict[str, int]:
        if self._known is None:
            there = self._folder.is_dir()
            found = [p for p in self._folder.iterdir() if p.name.endswith(".rejected")] if there else []
            self._known = {path.name: path.stat().st_size for path in found}
        return self._known


def _body(parcel: Parcel) -> bytes:
    if parcel.data is not None:
        return parcel.data
    lines = ({"headers": dict(e.headers), "body": e.body.hex()} for e in events_of(parcel))
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)
