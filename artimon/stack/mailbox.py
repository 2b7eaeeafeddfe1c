"""A folder of mails, one file each: what the local SMTP server accepts stays here, the oldest goes when there are many.

A file `<time_ms>-<number>.eml` is whole: it was written under another name, fsynced and renamed. Numbers rise for ever,
so they, and not the clock, say which mail is newer.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from artimon.model.clock import SYSTEM_CLOCK, Clock

FOLDER = "mail"
KEPT_MAILS = 10_000
KEPT_BYTES = 256 * 1024 * 1024
_SCRATCH = ".part"
_NAME = re.compile(r"(\d{1,16})-(\d{1,12})\.eml", re.ASCII)


@dataclass(frozen=True, slots=True)
class Kept:
    """One file of the folder: its path, number, time of arrival (epoch ms) and size in bytes."""

    path: Path
    number: int
    time_ms: int
    size: int


def kept_mails(folder: Path) -> list[Kept]:
    """The mails in `folder`, oldest first; other files are passed over; [] if there is no such folder."""
    found = []
    with contextlib.suppress(FileNotFoundError, NotADirectoryError), os.scandir(folder) as entries:
        for entry in entries:
            match = _NAME.fullmatch(entry.name)
            with contextlib.suppress(OSError):  # it went meanwhile
                if match and entry.is_file(follow_symlinks=False):
                    size = entry.stat(follow_symlinks=False).st_size
                    found.append(Kept(Path(entry.path), int(match[2]), int(match[1]), size))
    return sorted(found, key=lambda one: one.number)


class Mailbox:
    """Keeps mails in `folder`: at most `mails` of them and `bytes_` in all, the oldest are removed and counted.

    One process writes; any number read. `_lock` guards the list of files and every write, so two mails never share a
    number. Making one removes what a killed writer left half-written."""

    def __init__(
        self, folder: Path, mails: int = KEPT_MAILS, bytes_: int = KEPT_BYTES, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._folder, self._mails, self._bytes, self._clock = folder, mails, bytes_, clock
        self._lock = threading.Lock()
        self._removed = 0
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for scratch in folder.glob(f"*{_SCRATCH}"):
            scratch.unlink(missing_ok=True)
        self._kept = deque(kept_mails(folder))
        self._total = sum(one.size for one in self._kept)
        self._next = self._kept[-1].number + 1 if self._kept else 1
        self._make_room()

    def keep(self, content: bytes, sender: str, receivers: Sequence[str]) -> Path:
        """Write one mail; on return it survives a crash of the machine. Raises OSError, and then nothing is kept."""
        mail = _envelope(sender, receivers) + content
        with self._lock:
            number, time_ms = self._next, self._clock.now_ms()
            path = self._folder / f"{time_ms}-{number:06}.eml"
            self._write(path, mail)
            self._next += 1
            self._kept.append(Kept(path, number, time_ms, len(mail)))
            self._total += len(mail)
            self._make_room()
        return path

    def _write(self, path: Path, mail: bytes) -> None:
        scratch = path.with_suffix(_SCRATCH)
        try:
            with scratch.open("wb") as file:
                file.write(mail)
                file.flush()
                os.fsync(file.fileno())
            scratch.replace(path)
            _sync_folder(self._folder)
        except OSError:
            for rest in (scratch, path):
                with contextlib.suppress(OSError):
                    rest.unlink(missing_ok=True)
            raise

    def _make_room(self) -> None:
        while len(self._kept) > 1 and (len(self._kept) > self._mails or self._total > self._bytes):
            oldest = self._kept.popleft()
            self._total -= oldest.size
            self._removed += 1
            with contextlib.suppress(OSError):
                oldest.path.unlink(missing_ok=True)

    def figures(self) -> dict[str, int]:
        """`kept` mails and their `bytes` now; `removed` since the start."""
        with self._lock:
            return {"kept": len(self._kept), "bytes": self._total, "removed": self._removed}


def _sync_folder(folder: Path) -> None:
    """Make a rename durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _envelope(sender: str, receivers: Sequence[str]) -> bytes:
    """What the sender said to the server, as header lines; a mail's own From and To may say something else."""
    lines = [f"Return-Path: <{_plain(sender)}>", *(f"Delivered-To: {_plain(receiver)}" for receiver in receivers)]
    return "".join(f"{line}\r\n" for line in lines).encode("utf-8", "surrogateescape")


def _plain(address: str) -> str:
    """An address on one line."""
    if sum(c < " " or c == "\x7f" for c in address):
        return "".join("?" if c < " " or c == "\x7f" else c for c in address)
    return "" if address == "<>" else address
