"""Cache of closed parts: buckets of files of roll-ups, on the local disk, bounded.

A file of roll-ups never changes: late samples add files, and a deletion or new labels replace them. So an entry is of a
file, and valid for every version that names the file. An entry holds the pairs of source and series that were asked of
the file: those that are announced later are read then. docs/engines.md.
"""

from __future__ import annotations

import logging
import os
import shutil
import struct
import threading
import uuid
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic

import numpy as np
import pyarrow as pa
import xxhash

from artimon.compute.bucketizer import distinct
from artimon.compute.statistics import STATISTICS
from artimon.model.select import INCARNATION_DTYPE
from artimon.rawtable.rollups import RollupTable, stem_of
from query_dsl.stores.partial_buckets import PartialBuckets, SparseBuckets
from query_dsl.stores.partial_codec import decode_partial, encode_partial
from query_dsl.stores.sample_rows import Bools, Ints

log = logging.getLogger(__name__)

FORMAT = f"1 {STATISTICS} {INCARNATION_DTYPE.names}"
"""Part of the name of every entry: a program of another format does not find it."""
DEFAULT_BYTES = 256 * 1024 * 1024
EVICTED_TO = 0.9
"""Fraction of the limit to which the least recently used entries are deleted."""
SWEEP_S = 60.0
"""Interval of the search for entries of files that no version names, in seconds."""
MAX_PAIRS = 1 << 24
_HEAD = struct.Struct("<QQQ")
"""Checksum of what follows, number of pairs, bytes of the compressed pairs."""
_CODEC = "zstd"


@dataclass(frozen=True, slots=True)
class CachedPart:
    """Buckets of a file on a grid of its own. Pairs are distinct and sorted by (source, series); a row of `piece` is
    the number of a series among the distinct ones, in order."""

    source: Ints
    series: Ints
    piece: PartialBuckets

    def rows(self) -> Ints:
        """Return the series of each row, ascending."""
        return distinct(self.series)

    def holds(self, source: Ints, series: Ints) -> Bools:
        """Return the mask of the pairs that were asked of the file."""
        if np.array_equal(source, self.source) and np.array_equal(series, self.series):
            return np.ones(len(source), np.bool_)
        own, asked = (_pairs(*pairs) for pairs in ((self.source, self.series), (source, series)))
        return np.isin(asked, own)


def _pairs(source: Ints, series: Ints) -> np.ndarray[tuple[int], np.dtype[np.void]]:
    pairs = np.empty(len(source), [("source", np.int64), ("series", np.int64)])
    pairs["source"], pairs["series"] = source, series
    return pairs


def encode_part(part: CachedPart) -> bytes:
    """Encode with a checksum."""
    flat = np.concatenate([np.diff(column, prepend=np.int64(0)) for column in (part.source, part.series)])
    pairs = bytes(pa.compress(flat.tobytes(), _CODEC, asbytes=True))
    body = struct.pack("<QQ", len(part.source), len(pairs)) + pairs + encode_partial(part.piece)
    return struct.pack("<Q", xxhash.xxh3_64_intdigest(body)) + body


def decode_part(data: bytes) -> CachedPart:
    """Inverse of `encode_part`. Raises ValueError for bytes that are damaged."""
    if len(data) < _HEAD.size:
        raise ValueError(f"{len(data)} bytes are no part")
    checksum, count, size = _HEAD.unpack_from(data)
    if xxhash.xxh3_64_intdigest(data[8:]) != checksum or count > MAX_PAIRS:
        raise ValueError("the checksum differs")
    packed = pa.decompress(data[_HEAD.size : _HEAD.size + size], 16 * count, _CODEC)
    source, series = (np.cumsum(column) for column in np.frombuffer(packed, np.int64).reshape(2, count))
    return CachedPart(source, series, decode_partial(data[_HEAD.size + size :]))


def renumber(piece: PartialBuckets, place: Ints, columns: int, offset: int = 0) -> PartialBuckets:
    """Return the piece on a grid of `columns` buckets, its first one at `offset`, with new numbers of series. `place`:
    new number of each row, ascending; rows with -1 are left out."""

    def kept(rows: Ints) -> Bools:
        return np.asarray(place[rows] >= 0)

    row = piece.buckets.at // piece.columns
    column = piece.buckets.at - row * piece.columns
    buckets = piece.buckets
    if (place < 0).any():
        chosen = kept(row)
        buckets, row, column = buckets.select(chosen), row[chosen], column[chosen]
    lives = piece.incarnations[kept(piece.incarnations["row"].astype(np.int64))].copy()
    lives["row"] = place[lives["row"]]
    own, ended = kept(piece.rows), kept(piece.ended[0])
    return replace(
        piece,
        buckets=SparseBuckets(place[row] * columns + column + offset, buckets.stats),
        rows=place[piece.rows[own]],
        types=piece.types[own],
        newest_ms=piece.newest_ms[own],
        incarnations=lives,
        ended=(place[piece.ended[0][ended]], piece.ended[1][ended]),
        mixed=place[piece.mixed[kept(piece.mixed)]],
        columns=columns,
    )


class ClosedParts:
    """Entries below `folder`, at most `max_bytes`. Threads and processes may share it. A disk that cannot be written
    costs only the cache. `_lock` guards the count of bytes and the time of the last search."""

    def __init__(self, folder: Path, max_bytes: int = DEFAULT_BYTES) -> None:
        self._folder, self._max_bytes = folder, max_bytes
        self._lock = threading.Lock()
        self._bytes: int | None = None
        self._swept_s = -SWEEP_S
        self._has_failed = False

    def sweep_due(self) -> bool:
        """Return True every SWEEP_S: the caller then calls `keep_only`."""
        now = monotonic()
        with self._lock:
            due = now - self._swept_s >= SWEEP_S
            if due:
                self._swept_s = now
        return due

    def load(self, table: str, file: str, shape: str) -> CachedPart | None:
        """Return the entry of a file of the table at the URI `table`; `shape` says what was asked of it."""
        path = self._path(table, file, shape)
        try:
            part = decode_part(path.read_bytes())
            os.utime(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError, KeyError, TypeError, pa.ArrowException) as error:
            log.warning("%s is not read: %s", path, error)
            _discard(path)
            return None
        return part

    def store(self, table: str, file: str, shape: str, part: CachedPart) -> None:
        """Add or replace an entry; delete the least recently used ones beyond the limit."""
        data, path = encode_part(part), self._path(table, file, shape)
        if len(data) > self._max_bytes // 4:
            return
        written = path.with_name(f".{uuid.uuid4().hex}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            written.write_bytes(data)
            written.replace(path)
        except OSError as error:
            level = logging.DEBUG if self._has_failed else logging.WARNING
            log.log(level, "results of closed days are not cached in %s: %s", self._folder, error)
            self._has_failed = True
            _discard(written)
            return
        with self._lock:
            self._bytes = self._size() if self._bytes is None else self._bytes + len(data)
            if self._bytes > self._max_bytes:
                self._evict()

    def keep_only(self, table: str, files: Collection[str]) -> None:
        """Delete the entries of other files than these of a table: their samples were deleted, or merged. Entries of
        other tables go, too: the folder is of one history."""
        live = {stem_of(file) for file in files}
        root = self._root(table)
        with suppress(OSError):
            for found in (*self._folder.glob("*"), *root.glob("*")):
                if found != root and not (found.parent == root and found.name in live):
                    shutil.rmtree(found, ignore_errors=True)

    def sweep(self, hdfs: str) -> None:
        """Delete the entries of files that the newest version of the roll-ups does not name. Questions do so, too, but
        deleted samples must not wait on the disk for the next one. Raises TableError, OSError."""
        if not self._entries():
            return
        table = RollupTable(hdfs, made=False)
        with suppress(FileNotFoundError):
            table.refresh()
            self.keep_only(table.uri, [file.path for file in table.live()])

    def _evict(self) -> None:
        held = sorted(self._entries())
        size = sum(one[1] for one in held)
        for _, length, path in held:
            if size <= self._max_bytes * EVICTED_TO:
                break
            _discard(path)
            size -= length
        self._bytes = size

    def _size(self) -> int:
        return sum(size for _, size, _ in self._entries())

    def _entries(self) -> list[tuple[int, int, Path]]:
        """Return time of the last use, size and path of each entry."""
        found = []
        for path in self._folder.glob("*/*/*"):
            try:
                told = path.stat()
            except OSError:
                continue  # another process has deleted it
            found.append((told.st_mtime_ns, told.st_size, path))
        return found

    def _root(self, table: str) -> Path:
        return self._folder / xxhash.xxh3_64_hexdigest(table.encode())

    def _path(self, table: str, file: str, shape: str) -> Path:
        name = xxhash.xxh3_128_hexdigest(f"{FORMAT} {shape}".encode())
        return self._root(table) / stem_of(file) / f"{name}.part"


def _discard(path: Path) -> None:
    with suppress(OSError):
        path.unlink(missing_ok=True)
