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
from artimon.model.batch_codec import MAGIC, size_of, verify
from pipeline.wal.file_system import LOCAL_FILE_SYSTEM, FileSystem, ensure_folder, read_file, replace_file
from pipeline.wal.repair import DAMAGE_SUFFIX, DAMAGED, TAIL_SUFFIX

QUARANTINE_FOLDER = "error"
"""Folder of batches that were refused permanently several times."""
_BATCH_SUFFIX = ".batch"
_RESTORED = ".again"
"""Suffix added to the name of a restored file."""
_SAFE = re.compile(r"[^A-Za-z0-9_.-]")


class QuarantineSize(NamedTuple):
    """Counts and bytes of the quarantined files."""

    errors: int
    error_bytes: int
    damaged: int
    damaged_bytes: int


@dataclass(frozen=True, slots=True)
class QuarantinedFile:
    """One quarantined file. `why`: the reason given then; "" for damaged bytes."""

    path: Path
    size: int
    reason: str
    batches: tuple[BatchHeader, ...]
    """Whole batches in it that can be restored."""


def quarantine_batch(files: FileSystem, folder: Path, header: BatchHeader, payload: bytes, why: str) -> Path:
    """Quarantine a batch; durable when this returns. Idempotent: the same batch gets the same file."""
    place = folder / QUARANTINE_FOLDER
    ensure_folder(files, place)
    id = header.id
    path = place / f"{_SAFE.sub('_', id.agent)}-{id.epoch:016x}-{id.lane}-{id.sequence:012}{_BATCH_SUFFIX}"
    said = json.dumps({"why": why, "source": header.source, "bytes": len(payload)})
    replace_file(files, path, said.encode() + b"\n" + payload)
    return path


def quarantine_size(folder: Path, files: FileSystem = LOCAL_FILE_SYSTEM) -> QuarantineSize:
    """Return counts and bytes of the quarantined files that were not restored."""
    errors, damaged = (
        _sizes(files, folder / QUARANTINE_FOLDER, (_BATCH_SUFFIX,)),
        _sizes(files, folder / DAMAGED, (DAMAGE_SUFFIX,)),
    )
    return QuarantineSize(len(errors), sum(errors), len(damaged), sum(damaged))


def quarantined_files(folder: Path, files: FileSystem = LOCAL_FILE_SYSTEM) -> Iterator[QuarantinedFile]:
    """Yield the quarantined files that were not restored, by name."""
    for sub, suffixes in ((QUARANTINE_FOLDER, (_BATCH_SUFFIX,)), (DAMAGED, (DAMAGE_SUFFIX, TAIL_SUFFIX))):
        for name in _names(files, folder / sub, suffixes):
            path = folder / sub / name
            data = read_file(files, path)
            found = tuple(batch.header for batch in batches_in(data))
            yield QuarantinedFile(path, len(data), _reason_of(data) if sub == QUARANTINE_FOLDER else "", found)


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


def mark_restored(files: FileSystem, path: Path) -> None:
    """Rename a file whose batches are in the log again. If a power failure undoes the rename, they may be restored once
    more, and the stores drop the repeats."""
    files.replace(path, path.with_name(path.name + _RESTORED))


def _reason_of(data: bytes) -> str:
    try:
        return str(json.loads(data[: data.index(b"\n")])["why"])
    except (ValueError, KeyError, TypeError):
        return "unreadable"


def _names(files: FileSystem, folder: Path, suffixes: tuple[str, ...]) -> list[str]:
    if not files.exists(folder):
        return []
    return sorted(name for name in files.list_names(folder) if name.endswith(suffixes))


def _sizes(files: FileSystem, folder: Path, suffixes: tuple[str, ...]) -> list[int]:
    return [files.size(folder / name) for name in _names(files, folder, suffixes)]
