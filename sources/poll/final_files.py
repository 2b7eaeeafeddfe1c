"""Files of the folder of final snapshots. Every user may write there, so its content is not trusted. Blocks.

Permissions: docs/formats/final.md. Links are not followed; files that are not regular are not read.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections import Counter
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from bookkeeper.export.final_file import MAX_BYTES, SUFFIX
from bookkeeper.runtime.process_settings import FINAL_FOLDER
from sources.base.source_errors import FileRefusedError
from sources.dropin.folder_files import OpenFile
from sources.state.past_processes import MAX_AGE_MS

MODE = 0o1777
_NAME = re.compile(r"[0-9a-f]{32}" + re.escape(SUFFIX))


@dataclass(frozen=True, slots=True)
class FinalLimits:
    """Limits of one sweep; the rest waits for the next one."""

    entries: int = 10_000
    files: int = 1_000
    file_bytes: int = MAX_BYTES
    scratch_ms: int = 3_600_000
    """Age in ms at which a file with another name is deleted, such as a temporary one that was never renamed."""


def make_folder(dropin: Path) -> Path | None:
    """Create the folder in `dropin` if needed and return it, None without `dropin`. Raises FileRefusedError."""
    folder = dropin / FINAL_FOLDER
    try:
        if not dropin.is_dir():
            return None
        with contextlib.suppress(FileExistsError):
            folder.mkdir()
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid not in (os.geteuid(), 0):
            raise FileRefusedError("foreign folder", f"{folder}: not a folder of this user: delete it")
        if stat.S_IMODE(found.st_mode) != MODE:
            folder.chmod(MODE)
    except OSError as error:
        text = f"{folder}: {error.strerror}: let the agent own it, with mode 1777"
        raise FileRefusedError("unreadable", text) from error
    return folder


def list_finals(folder: Path, limits: FinalLimits, now_ms: int) -> tuple[tuple[str, ...], Counter[str]]:
    """Delete useless files of a folder, unread. Return the names of the final snapshots, oldest first, and the numbers
    of deleted files by reason. Raises FileRefusedError if that fails."""
    found: list[tuple[int, str]] = []
    deleted: Counter[str] = Counter()
    try:
        with os.scandir(folder) as entries:
            for entry in islice(entries, limits.entries):
                with contextlib.suppress(FileNotFoundError):
                    status = entry.stat(follow_symlinks=False)
                    reason = _is_obsolete(entry.name, now_ms - status.st_mtime_ns // 1_000_000, limits)
                    if reason and not stat.S_ISDIR(status.st_mode):
                        os.unlink(entry.path)
                        deleted[reason] += 1
                    elif _NAME.fullmatch(entry.name):
                        found.append((status.st_mtime_ns, entry.name))
    except OSError as error:
        raise FileRefusedError("unreadable", f"{folder}: {error.strerror}: let the agent own it") from error
    return tuple(name for _, name in sorted(found)[: limits.files]), deleted


def _is_obsolete(name: str, age_ms: int, limits: FinalLimits) -> str:
    """Return the reason to delete a file unread, "" if there is none."""
    if age_ms > MAX_AGE_MS:
        return "too old"
    return "wrong name" if not _NAME.fullmatch(name) and age_ms > limits.scratch_ms else ""


def read_final(path: Path, limits: FinalLimits) -> tuple[bytes, int]:
    """Return the bytes of a file and the uid of its owner. Raises FileNotFoundError, FileRefusedError."""
    with contextlib.closing(OpenFile(path)) as file:
        if file.stat.st_size > limits.file_bytes:
            text = f"{path}: {file.stat.st_size:,} bytes, at most {limits.file_bytes:,} are read"
            raise FileRefusedError("too large", text)
        data = b""
        while len(data) <= file.stat.st_size and (piece := file.read()):
            data += piece
        if not file.unchanged():
            raise FileRefusedError("no file", f"{path}: modified while it was read: put a file there by rename")
        return data, file.stat.st_uid


def remove_final(path: Path) -> None:
    """Delete a file, or a link itself rather than its target. Raises FileRefusedError if that is not allowed."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise FileRefusedError("unreadable", f"{path}: {error.strerror}: let the agent delete it") from error
