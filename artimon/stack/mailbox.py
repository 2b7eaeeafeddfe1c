"""Maildir of the local SMTP server, bounded in mails and bytes: the oldest mails are removed.

A mail is never partial: the standard library writes it in `tmp`, fsyncs it and moves it to `new`. The file's
modification time is the mail's arrival. It increases even if the clock goes back, so it gives the order.
"""

from __future__ import annotations

import contextlib
import mailbox
import os
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from artimon.model.clock import SYSTEM_CLOCK, Clock
from pipeline.wal.file_system import LOCAL_FILE_SYSTEM

FOLDER = "mail"
MAX_MAILS = 10_000
MAX_BYTES = 256 * 1024 * 1024
_NS = 1_000_000
"""Nanoseconds per millisecond."""


@dataclass(frozen=True, slots=True)
class StoredMail:
    """One mail of the folder: path, arrival time (epoch ms) and size in bytes."""

    path: Path
    time_ms: int
    size: int


def list_mails(folder: Path) -> list[StoredMail]:
    """List the mails in `folder`, oldest first, including those already seen (`cur`); [] if the folder is missing."""
    found = []
    for part in ("new", "cur"):
        with contextlib.suppress(FileNotFoundError, NotADirectoryError), os.scandir(folder / part) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):  # it was removed meanwhile
                    if entry.is_file(follow_symlinks=False):
                        about = entry.stat(follow_symlinks=False)
                        found.append(StoredMail(Path(entry.path), about.st_mtime_ns // _NS, about.st_size))
    return sorted(found, key=lambda one: (one.time_ms, one.path.name))


class Mailbox:
    """Keeps mails in `folder`, at most `mails` of them and `bytes_` in total; removes and counts the oldest.

    One process writes; any number read. `_lock` guards the list of files and every write, so that no two mails have
    the same time. The constructor removes partial files of a killed writer."""

    def __init__(
        self, folder: Path, mails: int = MAX_MAILS, bytes_: int = MAX_BYTES, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._folder, self._mails, self._bytes, self._clock = folder, mails, bytes_, clock
        self._lock = threading.Lock()
        self._removed = 0
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for part in ("tmp", "new", "cur"):
            (folder / part).mkdir(mode=0o700, exist_ok=True)
        self._maildir = mailbox.Maildir(folder, create=False)
        self._remove_scratch()
        self._stored = deque(list_mails(folder))
        self._total = sum(one.size for one in self._stored)
        self._make_room()

    def store(self, content: bytes, sender: str, receivers: Sequence[str]) -> Path:
        """Write one mail; on return it survives a crash of the machine. Raises OSError and then keeps nothing."""
        mail = _envelope(sender, receivers) + content
        with self._lock:
            time_ms = max(self._clock.now_ms(), self._stored[-1].time_ms + 1 if self._stored else 0)
            path = self._write(mail, time_ms)
            self._stored.append(StoredMail(path, time_ms, len(mail)))
            self._total += len(mail)
            self._make_room()
        return path

    def _write(self, mail: bytes, time_ms: int) -> Path:
        path = None
        try:
            path = self._folder / "new" / self._maildir.add(mail)
            os.utime(path, ns=(time_ms * _NS, time_ms * _NS))
            LOCAL_FILE_SYSTEM.fsync_folder(path.parent)
        except OSError:
            with contextlib.suppress(OSError):
                self._remove_scratch()
                if path is not None:
                    path.unlink(missing_ok=True)
            raise
        return path

    def _remove_scratch(self) -> None:
        for scratch in (self._folder / "tmp").glob("*"):
            scratch.unlink(missing_ok=True)

    def _make_room(self) -> None:
        while len(self._stored) > 1 and (len(self._stored) > self._mails or self._total > self._bytes):
            oldest = self._stored.popleft()
            self._total -= oldest.size
            self._removed += 1
            with contextlib.suppress(OSError):
                oldest.path.unlink(missing_ok=True)

    def figures(self) -> dict[str, int]:
        """Return the current number of `kept` mails and their `bytes`, and the mails `removed` since the start."""
        with self._lock:
            return {"kept": len(self._stored), "bytes": self._total, "removed": self._removed}


def _envelope(sender: str, receivers: Sequence[str]) -> bytes:
    """Return the SMTP envelope as header lines; the mail's own From and To may differ."""
    lines = [f"Return-Path: <{_plain(sender)}>", *(f"Delivered-To: {_plain(receiver)}" for receiver in receivers)]
    return "".join(f"{line}\r\n" for line in lines).encode("utf-8", "surrogateescape")


def _plain(address: str) -> str:
    """Return an address with control characters replaced, "" for the null sender `<>`."""
    if address == "<>":
        return ""
    return "".join("?" if c < " " or c == "\x7f" else c for c in address)
