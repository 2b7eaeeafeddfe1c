"""Where snapshots lie: a local folder or one on HDFS. A file is there whole or not at all; nothing is written twice."""

from __future__ import annotations

import io
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO, Protocol

from artimon.runtime import files

BUFFER = 4 * 1024 * 1024


class Folder(Protocol):
    """All raise OSError. Names are plain file names."""

    def create(self, name: str, parts: Iterable[bytes]) -> int:
        """Write a new file; it is durable when this returns. Its number of bytes."""
        ...

    def publish(self, name: str, data: bytes) -> None:
        """Write a file that nobody ever sees half: under another name, then renamed, durable when this returns."""
        ...

    def sizes(self) -> dict[str, int]:
        """Bytes of every file, also of such as were left unfinished."""
        ...

    def open(self, name: str) -> BinaryIO:
        """For reading."""
        ...

    def delete(self, name: str) -> None:
        """Remove a file if it is there."""
        ...

    def free_bytes(self) -> int:
        """How much may still be written."""
        ...


class LocalFolder:
    """A folder of this machine, made if it is absent."""

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
        """Names become durable: those of all files made before, too."""
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
    """A folder on HDFS. A file is written and renamed, so that one of a name is whole."""

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
        files.write(f"{self.uri}/{name}.new", data)
        files.rename(f"{self.uri}/{name}.new", f"{self.uri}/{name}")

    def sizes(self) -> dict[str, int]:
        files.check_reachable(self.uri)
        try:
            return {path: size for path, size, _ in files.listing(self.uri) if "/" not in path}
        except FileNotFoundError:
            return {}

    def open(self, name: str) -> BinaryIO:
        return io.BytesIO(files.read(f"{self.uri}/{name}"))

    def delete(self, name: str) -> None:
        files.delete(f"{self.uri}/{name}")

    def free_bytes(self) -> int:
        return 1 << 62  # it is HDFS that refuses
