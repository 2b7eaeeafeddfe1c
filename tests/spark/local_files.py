"""Tables on a local folder, for tests that make thousands of appends: the calls of artimon.runtime.file_access,
with the times of the test's own clock. Delta itself reads and writes file:// like hdfs://."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import pytest

from artimon.model.clock import Clock
from artimon.runtime import file_access as files


class FileStatus(NamedTuple):
    path: str
    length: int
    modification_time: int
    isdir: bool


class Reader:
    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self.size = self._path.stat().st_size

    def read(self) -> bytes:
        return self._path.read_bytes()

    def read_range(self, offset: int, length: int) -> bytes:
        with self._path.open("rb") as file:
            file.seek(offset)
            return file.read(length)


class Writer:
    def __init__(self, path: str, clock: Clock) -> None:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        self._path, self._clock, self._file = path, clock, io.FileIO(path, "w")

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def write(self, data: Any) -> None:
        self._file.write(data)

    def close(self) -> None:
        self._file.close()
        now = self._clock.now_ms()
        os.utime(self._path, ns=(now * 1_000_000, now * 1_000_000))


class LocalClient:
    """The calls of hdfs_native.Client that are used. The next `failing` files cannot be written."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.failing = 0

    def create(self, path: str, _options: Any) -> Writer:
        if self.failing:
            self.failing -= 1
            raise OSError(f"{path}: refused by the test")
        return Writer(path, self._clock)

    def read(self, path: str) -> Reader:
        return Reader(path)

    def delete(self, path: str) -> None:
        here = Path(path)
        if here.is_dir():
            try:
                here.rmdir()
            except OSError as error:
                raise RuntimeError(str(error)) from error
        else:
            here.unlink(missing_ok=True)

    def rename(self, path: str, to: str, overwrite: bool) -> None:
        if not overwrite and Path(to).exists():
            raise FileExistsError(to)
        Path(path).rename(to)

    def list_status(self, path: str, recursive: bool) -> Iterator[FileStatus]:
        if not Path(path).is_dir():
            raise FileNotFoundError(path)
        for found in sorted(Path(path).rglob("*") if recursive else Path(path).iterdir()):
            stat = found.stat()
            yield FileStatus(str(found), stat.st_size, stat.st_mtime_ns // 1_000_000, found.is_dir())


@contextmanager
def local_files(clock: Clock) -> Iterator[LocalClient]:
    """Make file:///folder usable as a file system in place of hdfs://host:port."""
    client = LocalClient(clock)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "_client", lambda _authority: client)
        patch.setattr(files, "split_uri", lambda uri: ("file://", uri.removeprefix("file://")))
        patch.setattr(files, "check_reachable", lambda _uri, _timeout_s=0.0: None)
        yield client
