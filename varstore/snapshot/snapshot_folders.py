"""Folders of snapshots: local or on HDFS. A published file is whole or absent; no file is written twice."""

from __future__ import annotations

import io
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO, Protocol

from artimon.runtime import file_access as files

BUFFER = 4 * 1024 * 1024


class SnapshotFolder(Protocol):
    """All methods raise OSError. Names are plain file names."""

    def create(self, name: str, parts: Iterable[bytes]) -> int:
        """Write a new file, durable on return; return its number of bytes."""
        ...

    def publish(self, name: str, data: bytes) -> None:
        """Write a file atomically: under another name, then renamed; durable on return."""
        ...

    def sizes(self) -> dict[str, int]:
        """Return the bytes of every file, unfinished ones included."""
        ...

    def open(self, name: str) -> BinaryIO:
        """Open a file for reading."""
        ...

    def delete(self, name: str) -> None:
        """Remove a file if it is there."""
        ...

    def free_bytes(self) -> int:
        """Return the bytes that may still be written."""
        ...


class LocalFolder:
    """A folder of this machine, created if absent."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __str__(self) -> str:
        return str(self.path)

    def create(self, name: str, parts: Iterable[bytes]) -> int:
        self.path.mkdir(parents=True, exist_ok=True)
        with (self.path / name).open("wb") as file:
            for part in parts:
                file.write(part)
            file.flush()
            os.fsync(file.fileno())
            return file.tell()

    def publish(self, name: str, data: bytes) -> None:
        temporary = f"{name}.new"
        self.create(temporary, [data])
        (self.path / temporary).replace(self.path / name)
        self._sync()

    def _sync(self) -> None:
        """Make the names of all files created so far durable."""
        folder = os.open(self.path, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def sizes(self) -> dict[str, int]:
        if not self.path.is_dir():
            return {}
        return {entry.name: entry.stat().st_size for entry in os.scandir(self.path) if entry.is_file()}

    def open(self, name: str) -> BinaryIO:
        return (self.path / name).open("rb", buffering=BUFFER)

    def delete(self, name: str) -> None:
        (self.path / name).unlink(missing_ok=True)

    def free_bytes(self) -> int:
        self.path.mkdir(parents=True, exist_ok=True)
        return shutil.disk_usage(self.path).free


class HdfsFolder:
    """A folder on HDFS. A file is written and renamed, so that a file with its final name is whole."""

    def __init__(self, uri: str) -> None:
        self.uri = uri.rstrip("/")

    def __str__(self) -> str:
        return self.uri

    def create(self, name: str, parts: Iterable[bytes]) -> int:
        data = b"".join(parts)
        self.publish(name, data)
        return len(data)

    def publish(self, name: str, data: bytes) -> None:
        files.check_reachable(self.uri)
        files.replace_file(f"{self.uri}/{name}", data)

    def sizes(self) -> dict[str, int]:
        files.check_reachable(self.uri)
        try:
            return {path: size for path, size, _ in files.list_files(self.uri) if "/" not in path}
        except FileNotFoundError:
            return {}

    def open(self, name: str) -> BinaryIO:
        return io.BytesIO(files.read_file(f"{self.uri}/{name}"))

    def delete(self, name: str) -> None:
        files.delete_file(f"{self.uri}/{name}")

    def free_bytes(self) -> int:
        return 1 << 62  # HDFS itself refuses when it is full
