"""File systems that hold the tables: HDFS without a JVM, object stores, and local folders for trials.

Every store has the same contract (tests/storage/test_conformance.py): a closed file is whole, a list has every closed
file, and a missing one raises FileNotFoundError. Commits of tables need a write that fails if the file exists. The
Delta client makes it: by rename on HDFS, by hard links in folders, by conditional writes on object stores.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Protocol
from urllib.parse import urlsplit

from hdfs_native import Client, WriteOptions

from artimon.runtime.settings import s3_endpoint

FileEntry = tuple[str, int, int]
"""Path below the listed folder, bytes, time of the last change in epoch ms."""
CONNECT_S, REQUEST_S, RETRY_S = 5, 30, 20
"""Timeouts of an object store's client, seconds: of a connection, of one request, and of all attempts of one."""
PART_BYTES = 8 << 20
"""Bytes of a part of a file that is written to an object store in pieces."""


class RangeFile(Protocol):
    """Open file."""

    size: int

    def read_range(self, offset: int, length: int) -> Any: ...


class NewFile(Protocol):
    """File that is being written; it exists once it is closed."""

    def write(self, data: Any) -> Any: ...

    def close(self) -> Any: ...


class FileSystem(Protocol):
    """Paths are absolute within the file system. Methods block without a limit of their own. Raises OSError."""

    def write(self, path: str, data: bytes | memoryview) -> None:
        """Write a whole file in place of an existing one."""
        ...

    def read(self, path: str) -> bytes: ...

    def open(self, path: str) -> Any:
        """Return a RangeFile."""
        ...

    def create(self, path: str) -> Any:
        """Return a NewFile."""
        ...

    def entries(self, path: str) -> list[FileEntry]:
        """List every file below a folder. Raises FileNotFoundError if there is none."""
        ...

    def delete(self, path: str) -> None:
        """Delete a file, or an empty folder where folders exist; nothing if it is missing."""
        ...

    def rename(self, path: str, to: str) -> None:
        """Rename a file, replacing an existing one."""
        ...

    def ask(self, timeout_s: float) -> None:
        """Return if the server answers. Raises OSError."""
        ...


class HdfsFiles:
    """HDFS."""

    def __init__(self, authority: str) -> None:
        self._authority, self._client = authority, Client(authority)

    def write(self, path: str, data: bytes | memoryview) -> None:
        with self._client.create(path, WriteOptions(overwrite=True, create_parent=True)) as writer:
            writer.write(data)

    def read(self, path: str) -> bytes:
        return bytes(self._client.read(path).read())

    def open(self, path: str) -> Any:
        return self._client.read(path)

    def create(self, path: str) -> Any:
        return self._client.create(path, WriteOptions(overwrite=False, create_parent=True))

    def entries(self, path: str) -> list[FileEntry]:
        root = path.rstrip("/") + "/"
        found = self._client.list_status(path, recursive=True)
        return [(f.path.removeprefix(root), f.length, f.modification_time) for f in found if not f.isdir]

    def delete(self, path: str) -> None:
        self._client.delete(path)

    def rename(self, path: str, to: str) -> None:
        self._client.rename(path, to, True)

    def ask(self, timeout_s: float) -> None:
        parts = urlsplit(self._authority)
        if parts.port is not None:  # the client itself retries for ever if the port is closed
            _connect(f"the NameNode at {self._authority}", parts.hostname or "", parts.port, timeout_s)
        self._client.get_file_info("/")


class ObjectFiles:
    """Object store or local folder, by `obstore`, whose settings are those of the providers' own tools, read from the
    environment: AWS_ACCESS_KEY_ID, AZURE_STORAGE_ACCOUNT_NAME, GOOGLE_APPLICATION_CREDENTIALS …"""

    def __init__(self, authority: str) -> None:
        import obstore
        from obstore.store import from_url

        self._authority, self._obstore = authority, obstore
        if authority == "file://":
            self._store: Any = from_url("file:///", mkdir=True)
            return
        options: Any = {"connect_timeout": f"{CONNECT_S}s", "timeout": f"{REQUEST_S}s"}
        if (endpoint := _endpoint(authority)) and endpoint.startswith("http://"):
            options["allow_http"] = True
        retries: Any = {"max_retries": 5, "retry_timeout": timedelta(seconds=RETRY_S)}
        self._store = from_url(authority, client_options=options, retry_config=retries)

    def write(self, path: str, data: bytes | memoryview) -> None:
        with self._as_os_error():
            self._obstore.put(self._store, _key(path), bytes(data), use_multipart=False)

    def read(self, path: str) -> bytes:
        with self._as_os_error():
            return bytes(self._obstore.get(self._store, _key(path)).bytes())

    def open(self, path: str) -> Any:
        with self._as_os_error():
            size = int(self._obstore.head(self._store, _key(path))["size"])
        return _ObjectReader(size, lambda start, length: self._range(path, start, length))

    def _range(self, path: str, start: int, length: int) -> bytes:
        with self._as_os_error():
            return bytes(self._obstore.get_range(self._store, _key(path), start=start, length=length))

    def create(self, path: str) -> Any:
        with self._as_os_error():
            return self._obstore.open_writer(self._store, _key(path), buffer_size=PART_BYTES)

    def entries(self, path: str) -> list[FileEntry]:
        root, found = f"{_key(path).rstrip('/')}/", list[FileEntry]()
        with self._as_os_error():
            for part in self._obstore.list(self._store, prefix=root):
                found += [
                    (one["path"].removeprefix(root), one["size"], int(one["last_modified"].timestamp() * 1000))
                    for one in part
                ]
        if not found:
            raise FileNotFoundError(f"{self._authority}{path}: no file is below it")
        return found

    def delete(self, path: str) -> None:
        if self._authority == "file://" and os.path.isdir(path):
            os.rmdir(path)
            return
        try:
            with self._as_os_error():
                self._obstore.delete(self._store, _key(path))
        except FileNotFoundError:
            pass

    def rename(self, path: str, to: str) -> None:
        with self._as_os_error():
            self._obstore.rename(self._store, _key(path), _key(to), overwrite=True)

    def ask(self, timeout_s: float) -> None:
        if endpoint := _endpoint(self._authority):
            parts = urlsplit(endpoint)
            port = parts.port or (443 if parts.scheme == "https" else 80)
            _connect(f"the object store at {endpoint}", parts.hostname or "", port, timeout_s)

    @contextmanager
    def _as_os_error(self) -> Iterator[None]:
        """Convert errors of the client. Raises OSError, FileNotFoundError."""
        try:
            yield
        except OSError:
            raise
        except (self._obstore.exceptions.BaseError, ValueError) as error:
            lines = " ".join(str(error).split())
            raise OSError(f"{self._authority}: {type(error).__name__}: {lines[:500]}") from error


class _ObjectReader:
    def __init__(self, size: int, read: Callable[[int, int], bytes]) -> None:
        self.size, self.read_range = size, read


def _key(path: str) -> str:
    return path.lstrip("/")


def _endpoint(authority: str) -> str:
    """Return the address of the server that the environment names, "" for that of the provider."""
    return s3_endpoint() if authority.startswith("s3:") else ""


def _connect(what: str, host: str, port: int, timeout_s: float) -> None:
    try:
        socket.create_connection((host, port), timeout_s).close()
    except OSError as error:
        raise OSError(f"{what} is not reachable ({error}): is it up, is the address right?") from None
