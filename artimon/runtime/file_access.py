"""Files on HDFS without a JVM: one client per process and file system."""

from __future__ import annotations

import socket
import threading
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

from hdfs_native import Client, WriteOptions

from artimon.runtime.deadline import call_with_timeout

TIMEOUT_S = 60.0


@lru_cache(maxsize=8)
def _client(authority: str) -> Client:
    return Client(authority)


def split_uri(uri: str) -> tuple[str, str]:
    """Split hdfs://host:port/a/b into (hdfs://host:port, /a/b). Raises ValueError for other URIs."""
    parts = urlsplit(uri)
    if parts.scheme != "hdfs" or not parts.netloc:
        raise ValueError(f"{uri!r} is not an HDFS address: write it as hdfs://HOST:PORT/path")
    return f"{parts.scheme}://{parts.netloc}", parts.path or "/"


def write_file(uri: str, data: bytes | memoryview) -> None:
    """Write and close a whole file, with its folders, in place of an existing one. Raises OSError."""
    authority, path = split_uri(uri)

    def run() -> None:
        with _client(authority).create(path, WriteOptions(overwrite=True, create_parent=True)) as writer:
            writer.write(data)

    call_with_timeout(TIMEOUT_S, f"writing {uri}", run)


def read_file(uri: str) -> bytes:
    """Return the whole file. Raises FileNotFoundError, OSError."""
    authority, path = split_uri(uri)
    return bytes(call_with_timeout(TIMEOUT_S, f"reading {uri}", lambda: _client(authority).read(path).read()))


def open_reader(uri: str) -> Any:
    """Open a file (hdfs_native.FileReader). Its `size` and `read_range(offset, length)` have no timeout. Raises
    FileNotFoundError, OSError."""
    authority, path = split_uri(uri)
    return call_with_timeout(TIMEOUT_S, f"opening {uri}", lambda: _client(authority).read(path))


def open_writer(uri: str) -> Any:
    """Create a file (hdfs_native.FileWriter). Its `write_file` and `close` have no timeout. Raises OSError, also for an
    existing file."""
    authority, path = split_uri(uri)
    options = WriteOptions(overwrite=False, create_parent=True)
    return call_with_timeout(TIMEOUT_S, f"creating {uri}", lambda: _client(authority).create(path, options))


def list_files(uri: str) -> list[tuple[str, int, int]]:
    """List every file below a folder: relative path, bytes, time of the last change in epoch ms. Raises
    FileNotFoundError, OSError."""
    authority, path = split_uri(uri)
    root = path.rstrip("/") + "/"

    def run() -> list[tuple[str, int, int]]:
        found = _client(authority).list_status(path, recursive=True)
        return [(f.path.removeprefix(root), f.length, f.modification_time) for f in found if not f.isdir]

    return call_with_timeout(TIMEOUT_S, f"listing {uri}", run)


def delete_file(uri: str) -> None:
    """Delete a file if it exists. Raises OSError."""
    authority, path = split_uri(uri)
    call_with_timeout(TIMEOUT_S, f"deleting {uri}", lambda: _client(authority).delete(path))


def check_reachable(uri: str, timeout_s: float = 5.0) -> None:
    """Return if the NameNode answers. Raises OSError with the reason if it does not."""
    authority, _ = split_uri(uri)
    parts = urlsplit(authority)
    if parts.port is None:  # a name service, which HADOOP_CONF_DIR defines
        _probe(authority, timeout_s)
        return
    try:  # the client itself retries for ever if the port is closed
        socket.create_connection((parts.hostname or "", parts.port or 8020), timeout_s).close()
    except OSError as error:
        raise OSError(
            f"the NameNode at {authority} is not reachable ({error}): is HDFS up, is the address right?"
        ) from None
    call_with_timeout(timeout_s, f"asking {authority}", lambda: _client(authority).get_file_info("/"))


_probing: set[str] = set()
_probing_lock = threading.Lock()


def _probe(authority: str, timeout_s: float) -> None:
    """Query a name service through the client, which knows its servers. One call at a time, because it does not end
    while all of them are down. Raises OSError."""
    with _probing_lock:
        if authority in _probing:
            raise OSError(f"no NameNode of {authority} has answered yet: is HDFS up, does HADOOP_CONF_DIR name it?")
        _probing.add(authority)

    def ask() -> None:
        try:
            _client(authority).get_file_info("/")
        finally:
            with _probing_lock:
                _probing.discard(authority)

    call_with_timeout(timeout_s, f"asking {authority}", ask)


def rename_file(uri: str, to: str) -> None:
    """Rename a file on the same file system, replacing an existing file. Raises OSError."""
    authority, path = split_uri(uri)
    target = split_uri(to)[1]
    call_with_timeout(TIMEOUT_S, f"renaming {uri}", lambda: _client(authority).rename(path, target, True))
