"""Files of the drop-in folder: their listing, and their bytes in pieces. Blocks: runs in a separate thread.

The folder may be writable for all users. So links and other non-regular files are refused, opening a FIFO does not
block, and everything has a limit.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from bookkeeper.runtime.process_settings import SettingsError, validate_name
from sources.base.source_errors import FileRefusedError

SUFFIX = ".artimon"
MAX_ENTRIES = 100_000
_PIECE = 1 << 20


@dataclass(frozen=True, slots=True)
class FileLimits:
    """Limits of reading; the rest is left out and the problem text gives the limit."""

    files: int = 1_000
    """Files in the folder."""
    file_bytes: int = 16 << 20
    lines: int = 200_000
    """Lines in a file."""
    line_bytes: int = 64 << 10


Signature = tuple[int, ...]
"""Identity and times of a file: an equal signature means that the file was not modified."""


def signature_of(found: os.stat_result) -> Signature:
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


@dataclass(frozen=True, slots=True)
class FolderListing:
    """Names of drop-in files, sorted; `problem` describes omitted entries."""

    names: tuple[str, ...]
    problem: str = ""
    whole: bool = True
    """True if the listing is complete enough that a known name outside `names` does not exist."""


def list_folder(folder: Path, known: frozenset[str], limit: int) -> FolderListing:
    """List the drop-in files of a folder, none if it does not exist. Beyond `limit`, `known` files take precedence.

    Raises FileRefusedError if the folder cannot be read."""
    names: list[str] = []
    try:
        with os.scandir(folder) as entries:
            for count, entry in enumerate(entries):
                if count >= MAX_ENTRIES:
                    text = f"{folder}: more than {MAX_ENTRIES:,} entries: the others are ignored"
                    return FolderListing(tuple(sorted(names)[:limit]), text, whole=False)
                if entry.name.endswith(SUFFIX) and not entry.name.startswith("."):
                    names.append(entry.name)
    except FileNotFoundError:
        return FolderListing(())
    except OSError as error:
        raise FileRefusedError("unreadable", f"{folder}: {error.strerror}: let the agent read it") from error
    if len(names) <= limit:
        return FolderListing(tuple(sorted(names)))
    kept = sorted(names, key=lambda name: (name not in known, name))[:limit]
    text = f"{folder}: {len(names):,} drop-in files: at most {limit:,} are read"
    return FolderListing(tuple(sorted(kept)), text)


def stem_of(name: str) -> str:
    """Return a file name without its suffix: the default of the label `context`. Raises FileRefusedError if invalid."""
    try:
        return validate_name("drop-in file", name[: -len(SUFFIX)])
    except SettingsError as error:  # the rules of a context; a name that is not UTF-8 arrives as surrogates
        raise FileRefusedError("bad file name", str(error)) from None


class OpenFile:
    """File open for reading until `close`. Raises FileNotFoundError, or FileRefusedError with the reason."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise _refuse_file(path, error) from error
        self.stat = os.fstat(self._fd)
        if not stat.S_ISREG(self.stat.st_mode):
            self.close()
            raise FileRefusedError("no file", f"{path}: not a regular file: put one there by rename")

    def read(self) -> bytes:
        """Return the next piece, empty at the end. Raises FileRefusedError."""
        try:
            return os.read(self._fd, _PIECE)
        except OSError as error:
            raise _refuse_file(self.path, error) from error

    def unchanged(self) -> bool:
        """Return True if it was not modified since it was opened."""
        return signature_of(os.fstat(self._fd)) == signature_of(self.stat)

    def close(self) -> None:
        os.close(self._fd)


class BytesReader:
    """Output of a program, read like a file."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def read(self) -> bytes:
        data, self._data = self._data, b""
        return data

    def unchanged(self) -> bool:
        return True


def _refuse_file(path: Path, error: OSError) -> FileRefusedError:
    if error.errno == errno.ELOOP:
        return FileRefusedError("no file", f"{path}: a symbolic link: put a regular file there by rename")
    return FileRefusedError("unreadable", f"{path}: {error.strerror}: let the agent read it")


@dataclass(slots=True)
class LineChunks:
    """Iterator over the lines of a file, piece by piece. The fields describe the read once it has ended."""

    file: OpenFile | BytesReader
    limits: FileLimits
    count: int = 0
    """Whole lines so far."""
    cut: str = ""
    """Text on the limit that ended the read, "" if none did."""
    ends_in_partial_line: bool = False
    """True if the last line has no newline and was left out."""
    _carry: bytes = field(default=b"", repr=False)

    def __iter__(self) -> Iterator[list[bytes]]:
        """Yield lists of lines without newlines. A line carried over from a piece is cut to `line_bytes` + 1 bytes."""
        size = 0
        while not self.cut and (piece := self.file.read()):
            room = self.limits.file_bytes - size
            size += len(piece)
            if len(piece) > room:
                self.cut = f"larger than {self.limits.file_bytes:,} bytes: the rest is not read"
            yield self._lines(piece[:room])
        self.ends_in_partial_line = bool(self._carry) and not self.cut

    def _lines(self, piece: bytes) -> list[bytes]:
        lines = (self._carry + piece).split(b"\n")
        self._carry = lines.pop()[: self.limits.line_bytes + 1]
        room = self.limits.lines - self.count
        if len(lines) > room:
            self.cut = f"more than {self.limits.lines:,} lines: the rest is not read"
            lines = lines[:room]
        self.count += len(lines)
        return lines
