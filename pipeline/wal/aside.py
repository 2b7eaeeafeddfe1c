"""Quarantine of a log: batches that every receiver refuses (`error/`) and damaged bytes (`damaged/`).

Files here are neither lost nor sent. They are counted, listed by `artimon wal inspect`, and restored by
`artimon wal repair --again`: every whole batch with a correct digest, wherever in the bytes it begins.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from artimon.model.batch import MAX_BYTES, Batch, BatchError, BatchHeader
from artimon.model.codec import MAGIC, size_of, verify
from pipeline.wal.files import SYSTEM_FILES, Files, ensure_folder, read_whole, write_whole
from pipeline.wal.repair import DAMAGE, DAMAGED, TAIL

ERRORS = "error"
"""Folder of batches that were refused permanently several times."""
_BATCH = ".batch"
_AGAIN = ".again"
"""Suffix added to the name of a restored file."""
_SAFE = re.compile(r"[^A-Za-z0-9_.-]")


class Gauge(NamedTuple):
    """Counts and bytes of the quarantined files."""

    errors: int
    error_bytes: int
    damaged: int
    damaged_bytes: int


@dataclass(frozen=True, slots=True)
class Aside:
    """One quarantined file. `why`: the reason given then; "" for damaged bytes."""

    path: Path
    size: int
    why: str
    batches: tuple[BatchHeader, ...]
    """Whole batches in it that can be restored."""


def set_aside(files: Files, folder: Path, header: BatchHeader, payload: bytes, why: str) -> Path:
    """Quarantine a batch; durable when this returns. Idempotent: the same batch gets the same file."""
    place = folder / ERRORS
    ensure_folder(files, place)
    id = header.id
    path = place / f"{_SAFE.sub('_', id.agent)}-{id.epoch:016x}-{id.lane}-{id.sequence:012}{_BATCH}"
    said = json.dumps({"why": why, "source": header.source, "bytes": len(payload)})
    write_whole(files, path, said.encode() + b"\n" + payload)
    return path


def gauge(folder: Path, files: Files = SYSTEM_FILES) -> Gauge:
    """Return counts and bytes of the quarantined files that were not restored."""
    errors, damaged = _sizes(files, folder / ERRORS, (_BATCH,)), _sizes(files, folder / DAMAGED, (DAMAGE,))
    return Gauge(len(errors), sum(errors), len(damaged), sum(damaged))


def everything(folder: Path, files: Files = SYSTEM_FILES) -> Iterator[Aside]:
    """Yield the quarantined files that were not restored, by name."""
    for sub, suffixes in ((ERRORS, (_BATCH,)), (DAMAGED, (DAMAGE, TAIL))):
        for name in _names(files, folder / sub, suffixes):
            path = folder / sub / name
            data = read_whole(files, path)
            found = tuple(batch.header for batch in batches_in(data))
            yield Aside(path, len(data), _why(data) if sub == ERRORS else "", found)


def batches_in(data: bytes) -> Iterator[Batch]:
    """Yield every whole batch in `data` whose digest is right."""
    at = data.find(MAGIC)
    while at >= 0:
        size = size_of(data[at : at + MAX_BYTES])
        try:
            payload = data[at : at + size] if size else b""
            yield Batch(verify(payload), payload)
            at = data.find(MAGIC, at + size)
        except BatchError:
            at = data.find(MAGIC, at + 1)


def brought_back(files: Files, path: Path) -> None:
    """Rename a file whose batches are in the log again. If a power failure undoes the rename, they may be restored once
    more, and the stores drop the repeats."""
    files.replace(path, path.with_name(path.name + _AGAIN))


def _why(data: bytes) -> str:
    try:
        return str(json.loads(data[: data.index(b"\n")])["why"])
    except (ValueError, KeyError, TypeError):
        return "unreadable"


def _names(files: Files, folder: Path, suffixes: tuple[str, ...]) -> list[str]:
    if not files.exists(folder):
        return []
    return sorted(name for name in files.names(folder) if name.endswith(suffixes))


def _sizes(files: Files, folder: Path, suffixes: tuple[str, ...]) -> list[int]:
    return [files.size(folder / name) for name in _names(files, folder, suffixes)]
