"""Reader of a folder of collectors: returns every batch once, by identity, despite repeats, cut-off files and
damage."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from artimon.model.batch import BatchError, BatchHeader, BatchKind, Samples, SeriesBlock
from artimon.model.batch_codec import decode_samples, decode_series, verify
from artimon.model.ranges import LaneRanges
from pipeline.collector.hdfs.batch_file import BatchFileError, decode, payloads
from pipeline.collector.hdfs.file_names import DATA, OPEN, SERIES, Scheme, parse_finished, parse_unfinished
from pipeline.rolling_files.file_store import FileStore


class StoredBatch(NamedTuple):
    """A batch and its bytes as received."""

    header: BatchHeader
    data: bytes


@dataclass(slots=True)
class ReadReport:
    """Counts of one reading. `lanes`: sequences of all batches that were found."""

    files: int = 0
    batches: int = 0
    samples: int = 0
    bytes: int = 0
    repeats: int = 0
    open_files: int = 0
    lanes: LaneRanges = field(default_factory=LaneRanges)
    damaged: list[str] = field(default_factory=list)
    """Unreadable bytes of files. Acked batches in these places are lost."""


class FolderReader:
    """One reading of a folder; `report` is complete when it has ended. Holds one file at a time, usually 64 MiB."""

    def __init__(self, store: FileStore) -> None:
        self._store = store
        self.report = ReadReport()

    def batches(self) -> Iterator[StoredBatch]:
        """Yield every batch of samples or events once, file by file, in the order of the file. Raises StoreError."""
        seen = self.report.lanes
        for path in self.files():
            for data in self._messages(path):
                try:
                    header = verify(data)
                except BatchError as error:
                    self.report.damaged.append(f"{path}: {error}")
                    continue
                if not seen.add(header.id.lane_id, header.id.sequence):
                    self.report.repeats += 1
                    continue
                self.report.batches += 1
                self.report.samples += header.rows
                self.report.bytes += len(data)
                yield StoredBatch(header, data)

    def samples(self) -> Iterator[tuple[BatchHeader, Samples]]:
        """Yield the rows of every batch of samples, once."""
        for header, data in self.batches():
            if header.kind == BatchKind.SAMPLES:
                try:
                    yield header, decode_samples(header, data)
                except BatchError as error:
                    self.report.damaged.append(str(error))

    def blocks(self) -> dict[tuple[str, int], SeriesBlock]:
        """Return the newest announcement of each (source, block), which names the series of the samples."""
        newest: dict[tuple[str, int], SeriesBlock] = {}
        for file in self._store.list_folder(SERIES):
            for data in self._messages(file.path):
                try:
                    block = decode_series(verify(data), data)
                except BatchError as error:
                    self.report.damaged.append(f"{file.path}: {error}")
                    continue
                key = block.source, block.block
                if key not in newest or newest[key].version < block.version:
                    newest[key] = block
        return newest

    def files(self) -> Iterator[str]:
        """Yield the closed files, oldest hour first, then the unfinished files of scheme `length`."""
        for hour in self._store.list_folder(DATA):
            yield from (file.path for file in self._store.list_folder(hour.path) if parse_finished(file.path))
        for file in self._store.list_folder(OPEN):
            under_way = parse_unfinished(file.path)
            if under_way is not None and under_way.scheme is Scheme.LENGTH:
                self.report.open_files += 1
                yield file.path

    def _messages(self, path: str) -> Iterator[bytes]:
        data = self._store.read(path)
        self.report.files += 1
        try:
            content = decode(data)
        except BatchFileError as error:
            self.report.damaged.append(f"{path} {error}")
            return
        if content is None:
            if parse_unfinished(path) is None:
                self.report.damaged.append(f"{path} is cut off within its header")
            return
        self._note_damage(path, len(data), content.damage, content.torn_bytes)
        for _, payload in payloads(data, content):
            yield payload

    def _note_damage(self, path: str, size: int, damage: list[tuple[int, int]], torn: int) -> None:
        self.report.damaged += [f"{path}: bytes {start} to {end}" for start, end in damage]
        closed = parse_finished(path)
        if closed is None:
            return
        length = closed.end - closed.base
        if size < length:
            self.report.damaged.append(f"{path} has {size} bytes, its name says {length}")
        elif torn and size > length:  # without an index it was recovered from a dead writer: its end was never acked
            self.report.damaged.append(f"{path}: its last {torn} bytes")
