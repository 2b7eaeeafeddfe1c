"""Files of the tables by URI, on any file system of `file_systems`: one client per process and file system, and a
timeout for every call."""

from __future__ import annotations

import threading
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

from artimon.runtime.deadline import call_with_timeout
from artimon.runtime.file_systems import FileEntry, FileSystem, HdfsFiles, ObjectFiles

TIMEOUT_S = 60.0
SCHEMES = ("hdfs", "file", "s3", "abfs", "abfss", "gs")


@lru_cache(maxsize=8)
def _file_system(authority: str) -> FileSystem:
    return HdfsFiles(authority) if authority.startswith("hdfs:") else ObjectFiles(authority)


def split_uri(uri: str) -> tuple[str, str]:
    """Split hdfs://host:port/a/b into (hdfs://host:port, /a/b); file:///a/b into (file://, /a/b). Raises ValueError for
    other URIs."""
    parts = urlsplit(uri)
    if parts.scheme not in SCHEMES or bool(parts.netloc) == (parts.scheme == "file"):
        raise ValueError(
            f"{uri!r} is not the address of a file system: write it as hdfs://HOST:PORT/path, s3://BUCKET/path, "
            "abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/path, gs://BUCKET/path or file:///path"
        )
    return f"{parts.scheme}://{parts.netloc}", parts.path or "/"


def write_file(uri: str, data: bytes | memoryview) -> None:
    """Write and close a whole file, with its folders, in place of an existing one. Raises OSError."""
    authority, path = split_uri(uri)
    call_with_timeout(TIMEOUT_S, f"writing {uri}", lambda: _file_system(authority).write(path, data))


def replace_file(uri: str, data: bytes | memoryview) -> None:
    """As `write_file`, so that readers find the whole old or new content even if this process is killed meanwhile.
    Raises OSError."""
    if not uri.startswith("hdfs:"):  # a put of other file systems is whole or nothing
        write_file(uri, data)
        return
    write_file(f"{uri}.new", data)
    rename_file(f"{uri}.new", uri)


def read_file(uri: str) -> bytes:
    """Return the whole file. Raises FileNotFoundError, OSError."""
    authority, path = split_uri(uri)
    return call_with_timeout(TIMEOUT_S, f"reading {uri}", lambda: _file_system(authority).read(path))


def open_reader(uri: str) -> Any:
    """Open a file (RangeFile). Its `size` and `read_range(offset, length)` have no timeout. Raises FileNotFoundError,
    OSError."""
    authority, path = split_uri(uri)
    return call_with_timeout(TIMEOUT_S, f"opening {uri}", lambda: _file_system(authority).open(path))


def open_writer(uri: str) -> Any:
    """Create a file with a name that no other file has (NewFile). Its `write` and `close` have no timeout. Raises
    OSError."""
    authority, path = split_uri(uri)
    return call_with_timeout(TIMEOUT_S, f"creating {uri}", lambda: _file_system(authority).create(path))


def list_files(uri: str) -> list[FileEntry]:
    """List every file below a folder: relative path, bytes, time of the last change in epoch ms. Raises
    FileNotFoundError, OSError."""
    authority, path = split_uri(uri)
    return call_with_timeout(TIMEOUT_S, f"listing {uri}", lambda: _file_system(authority).entries(path))


def delete_file(uri: str) -> None:
    """Delete a file if it exists. Raises OSError."""
    authority, path = split_uri(uri)
    call_with_timeout(TIMEOUT_S, f"deleting {uri}", lambda: _file_system(authority).delete(path))


def rename_file(uri: str, to: str) -> None:
    """Rename a file on the same file system, replacing an existing file. Raises OSError."""
    authority, path = split_uri(uri)
    target = split_uri(to)[1]
    call_with_timeout(TIMEOUT_S, f"renaming {uri}", lambda: _file_system(authority).rename(path, target))


_asking: set[str] = set()
_asking_lock = threading.Lock()


def check_reachable(uri: str, timeout_s: float = 5.0) -> None:
    """Return if the file system answers. One call at a time for each, because one does not end while the servers of a
    name service are down. Raises OSError with the reason."""
    authority, _ = split_uri(uri)
    if not authority.startswith("hdfs:"):
        _file_system(authority).ask(timeout_s)
        return
    if urlsplit(authority).port is not None:
        call_with_timeout(2 * timeout_s, f"asking {authority}", lambda: _file_system(authority).ask(timeout_s))
        return
    with _asking_lock:
        if authority in _asking:
            raise OSError(f"no NameNode of {authority} has answered yet: is HDFS up, does HADOOP_CONF_DIR name it?")
        _asking.add(authority)

    def ask() -> None:
        try:
            _file_system(authority).ask(timeout_s)
        finally:
            with _asking_lock:
                _asking.discard(authority)

    call_with_timeout(timeout_s, f"asking {authority}", ask)
