"""The folder of drop-in files, seen from outside: which are there, and their bytes in pieces. For a thread of its own.

Anybody may be allowed to write into the folder: links and everything that is no regular file are refused, nothing waits
for a reader or writer at the other end, and everything has a limit.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from bookkeeper.runtime.settings import SettingsError, checked
from sources.base.errors import FileRefused

SUFFIX = ".artimon"
MAX_ENTRIES = 100_000
_PIECE = 1 << 20


@dataclass(frozen=True, slots=True)
class FileLimits:
    """What is read at most; beyond it the rest is left out, and the problem names the limit."""

    files: int = 1_000
    """In the folder."""
    file_bytes: int = 16 << 20
    lines: int = 200_000
    """In a file."""
    line_bytes: int = 64 << 10


@dataclass(frozen=True, slots=True)
class Signature:
    """Of two looks at one name: equal means that nobody has touched the file between them."""

    device: int
    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int

    @classmethod
    def of(cls, found: os.stat_result) -> Signature:
        return cls(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


@dataclass(frozen=True, slots=True)
class Listing:
    """Names of drop-in files, sorted; `problem` says what was left out."""

    names: tuple[str, ...]
    problem: str = ""
    whole: bool = True
    """A known name that is not in `names` does not exist."""


def list_folder(folder: Path, known: frozenset[str], limit: int) -> Listing:
    """The drop-in files of a folder, none if it does not exist; when there are too many, `known` ones go first.

    FileRefused: the folder cannot be read."""
    names: list[str] = []
    try:
        with os.scandir(folder) as entries:
            for count, entry in enumerate(entries):
                if count >= MAX_ENTRIES:
                    text = f"{folder}: more than {MAX_ENTRIES:,} entries: the others are not looked at"
                    return Listing(tuple(sorted(names)[:limit]), text, whole=False)
                if entry.name.endswith(SUFFIX) and not entry.name.startswith("."):
                    names.append(entry.name)
    except FileNotFoundError:
        return Listing(())
    except OSError as error:
        raise FileRefused("unreadable", f"{folder}: {error.strerror}: let the agent read it") from error
    if len(names) <= limit:
        return Listing(tuple(sorted(names)))
    kept = sorted(names, key=lambda name: (name not in known, name))[:limit]
    text = f"{folder}: {len(names):,} drop-in files: at most {limit:,} are read"
    return Listing(tuple(sorted(kept)), text)


def stem_of(name: str) -> str:
    """The name of a file without its suffix: the default of the label `context`. FileRefused if it cannot be one."""
    try:
        return checked("drop-in file", name[: -len(SUFFIX)])
    except SettingsError as error:  # as for a context; a name that is no UTF-8 comes as surrogates
        raise FileRefused("bad file name", str(error)) from None


class Readable(Protocol):
    """Where lines come from."""

    def read(self) -> bytes:
        """The next piece, empty at the end. FileRefused."""
        ...

    def unchanged(self) -> bool:
        """Nobody wrote into it while it was read."""
        ...


class OpenFile:
    """One file, open for reading. Raises FileNotFoundError, or FileRefused with the reason; a context manager."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise _refused(path, error) from error
        self.stat = os.fstat(self._fd)
        if not stat.S_ISREG(self.stat.st_mode):
            self.close()
            raise FileRefused("no file", f"{path}: it is no regular file: put one there by rename")

    def read(self) -> bytes:
        """The next piece, empty at the end."""
        try:
            return os.read(self._fd, _PIECE)
        except OSError as error:
            raise _refused(self.path, error) from error

    def unchanged(self) -> bool:
        """Nobody wrote into it since it was opened."""
        return Signature.of(os.fstat(self._fd)) == Signature.of(self.stat)

    def close(self) -> None:
        os.close(self._fd)

    def __enter__(self) -> OpenFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Written:
    """What a program wrote, as if it were a file."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def read(self) -> bytes:
        data, self._data = self._data, b""
        return data

    def unchanged(self) -> bool:
        return True


def _refused(path: Path, error: OSError) -> FileRefused:
    if error.errno == errno.ELOOP:
        return FileRefused("no file", f"{path}: it is a symbolic link: put a file there by rename")
    return FileRefused("unreadable", f"{path}: {error.strerror}: let the agent read it")


@dataclass(slots=True)
class Pieces:
    """The lines of a file, a piece at a time. Once they have been taken: how many there were, and how it ended."""

    file: Readable
    limits: FileLimits
    count: int = 0
    """Whole lines so far."""
    cut: str = ""
    """The limit that ended it."""
    half: bool = False
    """The last line has no newline, and was not taken."""
    _carry: bytes = field(default=b"", repr=False)

    def __iter__(self) -> Iterator[list[bytes]]:
        """Lists of lines without their newlines; one beyond `line_bytes` is cut to a byte more than that."""
        size = 0
        while not self.cut and (piece := self.file.read()):
            room = self.limits.file_bytes - size
            size += len(piece)
            if len(piece) > room:
                self.cut = f"larger than {self.limits.file_bytes:,} bytes: the rest is not read"
            yield self._lines(piece[:room])
        self.half = bool(self._carry) and not self.cut

    def _lines(self, piece: bytes) -> list[bytes]:
        lines = (self._carry + piece).split(b"\n")
        self._carry = lines.pop()[: self.limits.line_bytes + 1]
        room = self.limits.lines - self.count
        if len(lines) > room:
            self.cut = f"more than {self.limits.lines:,} lines: the rest is not read"
            lines = lines[:room]
        self.count += len(lines)
        return lines
