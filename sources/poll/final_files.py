"""Files of the folder of final snapshots, and their decoder. Every user may write there, so their content is not
trusted. Blocks.

Permissions: docs/formats/final.md. Links are not followed; files that are not regular are not read.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import re
import stat
from collections import Counter
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from artimon.model.clock import Clock
from bookkeeper.export.final_file import MAX_BYTES, SUFFIX, decode_payload
from bookkeeper.rpc.poll_service import idl
from bookkeeper.rpc.thrift_messages import FrameError, MessageHead, decode_struct
from bookkeeper.runtime.process_settings import FINAL_FOLDER, SettingsError, validate_name
from sources.base.source_errors import FileRefusedError, PollError
from sources.dropin.folder_files import OpenFile
from sources.dropin.line_start_times import MAX_AHEAD_MS
from sources.poll.poll_codec import check_columns
from sources.state.past_processes import MAX_AGE_MS
from sources.state.source_reading import Reading

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


@dataclass(frozen=True, slots=True)
class FinalSnapshot:
    """Last values of a process. `memo`: left with it by its last poller, None if it was never polled."""

    reading: Reading
    address: str
    memo: bytes | None


def decode_final(data: bytes, owner: int, max_series: int, clock: Clock) -> FinalSnapshot:
    """Decode the bytes of a file of the user `owner`. Raises FileRefusedError with the reason."""
    try:
        final = decode_struct(MessageHead(decode_payload(data), "final", 0, 0, 0), idl().Final())
        answer = check_columns(final.columns, None, max_series)
        reading = answer.reading
        for name in ("context", "instance"):
            validate_name(name, getattr(reading, name))
        address = str(ipaddress.ip_address(final.address))
        if not 0 < reading.birth_ms <= reading.time_ms:
            raise ValueError(f"born at {reading.birth_ms} ms, ended at {reading.time_ms} ms")
    except (FrameError, PollError, SettingsError, TypeError, ValueError, AttributeError) as error:
        raise FileRefusedError("malformed", f"{type(error).__name__}: {error}") from error
    if owner not in (0, reading.uid):
        raise FileRefusedError("foreign owner", f"written by user {owner}, names user {reading.uid}")
    age_ms = clock.now_ms() - reading.time_ms
    if age_ms > MAX_AGE_MS:
        raise FileRefusedError(
            "too old", f"{age_ms // 86_400_000} days old: at most {MAX_AGE_MS // 86_400_000} days are accepted"
        )
    if -age_ms > MAX_AHEAD_MS:
        raise FileRefusedError("future", f"{-age_ms // 1000} s ahead of this host's clock")
    return FinalSnapshot(reading, address, (answer.memo or b"") if final.columns.poller else None)
