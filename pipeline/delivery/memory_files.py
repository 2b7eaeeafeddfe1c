"""Files in memory, for the log of best-effort delivery: lost when the process ends."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pipeline.wal.file_system import FileBytes, Lock


class _NoLock:
    def release(self) -> None:
        """Do nothing: no other process can see these files."""


class MemoryFileSystem:
    """Implements pipeline.wal.file_system.FileSystem; bounded by the quota of the log. Thread-safe: the log's
    writer and the senders use it at once."""

    def __init__(self, folder: Path) -> None:
        """`folder`: the only one that exists at the start, empty."""
        self._lock = threading.Lock()
        self._files: dict[Path, tuple[int, bytearray]] = {}
        self._folders = {folder, *folder.parents}
        self._open: dict[int, bytearray] = {}
        self._next = 0

    def create(self, path: Path) -> int:
        with self._lock:
            if path in self._files:
                raise FileExistsError(17, "File exists", str(path))
            self._next += 1
            self._files[path] = self._next, bytearray()
            return self._open_file(path)

    def open(self, path: Path) -> int:
        with self._lock:
            return self._open_file(path)

    def write(self, descriptor: int, offset: int, data: bytes) -> None:
        with self._lock:
            file = self._open[descriptor]
            if len(file) < offset:
                file.extend(bytes(offset - len(file)))
            file[offset : offset + len(data)] = data

    def read(self, descriptor: int, offset: int, length: int) -> bytes:
        with self._lock:
            return bytes(self._open[descriptor][offset : offset + length])

    def truncate(self, descriptor: int, length: int) -> None:
        with self._lock:
            file = self._open[descriptor]
            del file[length:]
            file.extend(bytes(length - len(file)))

    def fsync(self, descriptor: int) -> None:
        """Do nothing: the files are not durable."""

    def fsync_folder(self, folder: Path) -> None:
        """Do nothing: the files are not durable."""

    def unlink(self, path: Path) -> None:
        with self._lock:
            self._file(path)
            del self._files[path]

    def replace(self, source: Path, target: Path) -> None:
        with self._lock:
            self._file(source)
            self._files[target] = self._files.pop(source)

    def close(self, descriptor: int) -> None:
        with self._lock:
            self._open.pop(descriptor, None)

    def make_folder(self, path: Path) -> None:
        with self._lock:
            self._folders.add(path)

    def list_names(self, folder: Path) -> list[str]:
        with self._lock:
            return [path.name for path in self._files if path.parent == folder]

    def exists(self, path: Path) -> bool:
        with self._lock:
            return path in self._files or path in self._folders

    def size(self, path: Path) -> int:
        with self._lock:
            return len(self._file(path))

    def inode(self, path: Path) -> int:
        with self._lock:
            self._file(path)
            return self._files[path][0]

    @contextmanager
    def load(self, path: Path) -> Iterator[FileBytes]:
        with self._lock:
            data = bytes(self._file(path))
        yield data

    def lock(self, folder: Path) -> Lock:  # noqa: ARG002
        return _NoLock()

    def _open_file(self, path: Path) -> int:
        self._next += 1
        self._open[self._next] = self._file(path)
        return self._next

    def _file(self, path: Path) -> bytearray:
        if path not in self._files:
            raise FileNotFoundError(2, "No such file", str(path))
        return self._files[path][1]
