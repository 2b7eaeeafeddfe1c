"""Stores of rolling files: HDFS, or a local folder. Every call has a deadline, and the number of hung calls is
bounded."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar
from urllib.parse import urlsplit

from hdfs_native import Client, WriteOptions

from artimon.runtime import file_access as files
from artimon.runtime.deadline import DeadlineExceededError, call_with_timeout
from pipeline.wal.file_system import LOCAL_FILE_SYSTEM, ensure_folder

T = TypeVar("T")
MAX_HUNG_CALLS = 8
CALL_TIMEOUT_S = 10.0
_PANICS = "pyo3_runtime"
"""Module of the exception that hdfs-native raises for its own defects; it does not inherit from Exception."""


class StoreError(OSError):
    """The store failed, or the outcome of a call is unknown. The text names the call and the cause."""


class StoreEntry(NamedTuple):
    """A file: its path below the folder, its durable length, and True for a folder."""

    path: str
    length: int
    is_folder: bool = False


class FileWriter(Protocol):
    """File that is being written; rolling_file.RollingFile describes the methods. `sync` also counts the written bytes
    in the file's length."""

    def write(self, data: bytes) -> None: ...

    def sync(self) -> None: ...

    def close(self) -> None: ...

    def abandon(self) -> None: ...


class FileStore(Protocol):
    """A folder of files. Paths are relative to it. Every method raises StoreError."""

    @property
    def uri(self) -> str: ...

    def create(self, path: str) -> FileWriter:
        """Create a file and its folders; refused if the file exists."""
        ...

    def rename(self, path: str, to: str) -> None:
        """Rename a file and create the folders; refused if the new name exists."""
        ...

    def delete(self, path: str) -> None: ...

    def length(self, path: str) -> int:
        """Return the durable bytes of the file. Raises StoreError if the file does not exist."""
        ...

    def read(self, path: str) -> bytes: ...

    def list_folder(self, path: str) -> list[StoreEntry]:
        """Return the entries of a folder; [] if the folder does not exist."""
        ...

    def recover_lease(self, path: str) -> bool:
        """Take an unfinished file over from its writer; True once it is closed for good, else try again."""
        ...


def open_store(uri: str) -> FileStore:
    """Open hdfs://HOST:PORT/folder or file:///folder. Raises ValueError."""
    parts = urlsplit(uri)
    if parts.scheme == "hdfs":
        return HdfsStore(uri)
    if parts.scheme == "file" and not parts.netloc and parts.path.startswith("/"):
        return LocalStore(Path(parts.path))
    raise ValueError(f"{uri!r} is not a folder for batches: write hdfs://HOST:PORT/folder or file:///folder")


class _BoundedCalls:
    """Calls with a deadline. A hung call is abandoned; with MAX_HUNG of them every new call is refused."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._lock = threading.Lock()
        self.in_flight = 0

    def run(self, what: str, call: Callable[[], T], seconds: float = CALL_TIMEOUT_S) -> T:
        with self._lock:
            if self.in_flight >= MAX_HUNG_CALLS:
                raise StoreError(f"{self._where}: {self.in_flight} calls hang: {what} is not tried")
            self.in_flight += 1

        def counted() -> T:
            try:
                return call()
            finally:
                with self._lock:
                    self.in_flight -= 1

        try:
            return call_with_timeout(seconds, f"{what} in {self._where}", counted)
        except DeadlineExceededError as error:
            raise StoreError(str(error)) from error
        except (OSError, RuntimeError) as error:  # hdfs-native raises both
            raise StoreError(f"{what} in {self._where}: {type(error).__name__} {error}") from error
        except BaseException as error:
            if type(error).__module__ != _PANICS:
                raise
            raise StoreError(f"{what} in {self._where}: a defect of the HDFS client: {error}") from error


class HdfsStore:
    """A folder on HDFS, without a JVM."""

    def __init__(self, uri: str, call_s: float = CALL_TIMEOUT_S) -> None:
        self.uri = uri.rstrip("/")
        self._authority, self._root = files.split_uri(self.uri)
        self._call_s = call_s
        self._calls = _BoundedCalls(self.uri)
        self._created_folders: Client | None = None

    def create(self, path: str) -> FileWriter:
        options = WriteOptions(overwrite=False, create_parent=True)
        self._check_reachable()
        inner = self._run(f"creating {path}", lambda: self._client().create(self._full_path(path), options))
        return _HdfsWriter(inner, path, self._calls, self._call_s)

    def rename(self, path: str, to: str) -> None:
        def run() -> None:
            client = self._client()
            client.mkdirs(self._full_path(to).rsplit("/", 1)[0], 0o755, True)
            client.rename(self._full_path(path), self._full_path(to), False)

        self._run(f"renaming {path} to {to}", run)

    def delete(self, path: str) -> None:
        self._run(f"deleting {path}", lambda: self._client().delete(self._full_path(path)))

    def length(self, path: str) -> int:
        found = self._run(f"reading the length of {path}", lambda: self._client().get_file_info(self._full_path(path)))
        return int(found.length)

    def read(self, path: str) -> bytes:
        self._check_reachable()
        return bytes(
            self._run(f"reading {path}", lambda: self._client().read(self._full_path(path)).read(), 6 * self._call_s)
        )

    def list_folder(self, path: str) -> list[StoreEntry]:
        def run() -> list[StoreEntry]:
            try:
                found = self._client().list_status(self._full_path(path), recursive=False)
                return [StoreEntry(f"{path}/{f.path.rsplit('/', 1)[-1]}".strip("/"), f.length, f.isdir) for f in found]
            except FileNotFoundError:
                return []

        self._check_reachable()
        return sorted(self._run(f"listing {path or '/'}", run, 6 * self._call_s))

    def recover_lease(self, path: str) -> bool:
        return bool(self._run(f"settling {path}", lambda: self._client().recover_lease(self._full_path(path))))

    def _check_reachable(self) -> None:
        try:
            files.check_reachable(self.uri, min(5.0, self._call_s))
        except OSError as error:
            raise StoreError(str(error)) from error

    def _client(self) -> Client:
        if self._created_folders is None:
            self._created_folders = Client(self._authority)
        return self._created_folders

    def _full_path(self, path: str) -> str:
        return f"{self._root.rstrip('/')}/{path}".rstrip("/") or "/"

    def _run(self, what: str, call: Callable[[], T], seconds: float | None = None) -> T:
        return self._calls.run(what, call, self._call_s if seconds is None else seconds)


class _HdfsWriter:
    def __init__(self, inner: Any, path: str, calls: _BoundedCalls, call_s: float) -> None:
        self._inner, self._path, self._calls, self._call_s = inner, path, calls, call_s

    def write(self, data: bytes) -> None:
        self._calls.run(f"writing {self._path}", lambda: self._inner.write(data), self._call_s)

    def sync(self) -> None:
        self._calls.run(f"syncing {self._path}", self._inner.hsync, self._call_s)

    def close(self) -> None:
        self._calls.run(f"closing {self._path}", self._inner.close, 3 * self._call_s)

    def abandon(self) -> None:
        self._inner = None


class LocalStore:
    """A local folder, fsynced: for rolling files without HDFS, and for tests."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.uri = f"file://{root}"

    def create(self, path: str) -> FileWriter:
        with self._failing(f"creating {path}"):
            ensure_folder(LOCAL_FILE_SYSTEM, (self.root / path).parent)
            writing = _LocalWriter(self.root / path)
            LOCAL_FILE_SYSTEM.fsync_folder((self.root / path).parent)
            return writing

    def rename(self, path: str, to: str) -> None:
        target = self.root / to
        with self._failing(f"renaming {path} to {to}"):
            ensure_folder(LOCAL_FILE_SYSTEM, target.parent)
            if target.exists():
                raise StoreError(f"{target} exists already")
            (self.root / path).rename(target)
            for folder in (target.parent, (self.root / path).parent):
                LOCAL_FILE_SYSTEM.fsync_folder(folder)

    def delete(self, path: str) -> None:
        with self._failing(f"deleting {path}"):
            (self.root / path).unlink(missing_ok=True)

    def length(self, path: str) -> int:
        with self._failing(f"reading the length of {path}"):
            return (self.root / path).stat().st_size

    def read(self, path: str) -> bytes:
        with self._failing(f"reading {path}"):
            return (self.root / path).read_bytes()

    def list_folder(self, path: str) -> list[StoreEntry]:
        here = self.root / path
        with self._failing(f"listing {path}"):
            found = sorted(here.iterdir()) if here.is_dir() else []
            return [StoreEntry(str(f.relative_to(self.root)), f.stat().st_size, f.is_dir()) for f in found]

    def recover_lease(self, path: str) -> bool:  # noqa: ARG002
        return True

    def _failing(self, what: str) -> AbstractContextManager[None]:
        return _as_store_error(f"{what} in {self.uri}")


@contextmanager
def _as_store_error(what: str) -> Iterator[None]:
    """Raise StoreError for an error of the system in the context."""
    try:
        yield
    except StoreError:
        raise
    except (OSError, ValueError) as error:
        raise StoreError(f"{what}: {error}") from error


class _LocalWriter:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = path.open("xb", buffering=0)

    def write(self, data: bytes) -> None:
        view = memoryview(data)
        with _as_store_error(f"writing {self._path}"):
            while view:
                view = view[self._file.write(view) or 0 :]

    def sync(self) -> None:
        with _as_store_error(f"syncing {self._path}"):
            os.fsync(self._file.fileno())

    def close(self) -> None:
        self.sync()
        with _as_store_error(f"closing {self._path}"):
            self._file.close()

    def abandon(self) -> None:
        with suppress(OSError):
            self._file.close()
