"""Offsets of batches in a stream, rolling of its files, and the acks that follow. Pure: no I/O, no clock, no threads.

Two schemes share it. *roll*: a file's batches are durable once it is closed and has its final name; they are lost with
a file that fails. *length*: a batch is answered with its future offset, and is durable once the durable length of its
file lies beyond it. Either way agents compare the offset they hold with what is published (model.acks): `until`,
below which everything is durable or named lost, and the ranges that were lost.

A batch never spans two files, so a file that fails loses whole batches.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import Enum
from typing import Annotated

from artimon.model.ack_state import END_OF_LOG, PartitionState
from artimon.runtime.process_options import MiB, Option, in_seconds
from pipeline.collector.hdfs.file_names import Scheme

MAX_LOST_RANGES = 500
"""Most lost ranges of a stream, since they are never forgotten; then it is closed and another one begins."""


class FileState(Enum):
    """State of a file."""

    OPEN = "open"
    CLOSING = "closing"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class RollConfig:
    """Limits of a file, which is rolled at the first of these. `held_bytes`: most bytes in memory for the store."""

    bytes: Annotated[int, Option("A file is closed at this size.", "--roll-mib", 1, 1024, unit=MiB)] = 64 * MiB
    count: int = 200_000
    seconds: Annotated[float, in_seconds("A file is closed after this time.", "--roll")] = 30.0
    held_bytes: int = 64 * 1024 * 1024


@dataclass(slots=True, eq=False)
class StreamFile:
    """Bytes [base, base + length) of the stream. `written` bytes have left memory; `durable` ones are in the store."""

    base: int
    header_bytes: int
    """Bytes of its header, which are included."""
    opened_at: float
    length: int = 0
    count: int = 0
    written: int = 0
    durable: int = 0
    state: FileState = FileState.OPEN
    reason: str = ""

    @property
    def end(self) -> int:
        return self.base + self.length


@dataclass(slots=True)
class StreamState:
    """State of one stream. Invariants: files follow one another without gaps; at most the last one is OPEN; `until`
    never falls; below it every byte is durable or in `lost`; at or above it nothing is acked."""

    scheme: Scheme
    config: RollConfig = field(default_factory=RollConfig)
    files: deque[StreamFile] = field(default_factory=deque)
    """Files that are not settled yet, oldest first."""
    until: int = 0
    end: int = 0
    lost: list[tuple[int, int]] = field(default_factory=list)
    closed: bool = False
    rolls: int = 0
    failed_rolls: int = 0

    @property
    def current(self) -> StreamFile | None:
        """The open file, which takes batches."""
        return self.files[-1] if self.files and self.files[-1].state is FileState.OPEN else None

    @property
    def waiting_bytes(self) -> int:
        """Bytes that wait in memory for the store."""
        return sum(
            file.length - file.written for file in self.files if file.state in (FileState.OPEN, FileState.CLOSING)
        )

    @property
    def is_exhausted(self) -> bool:
        """True if the stream is closed or lost too many ranges: begin another one."""
        return self.closed or len(self.lost) >= MAX_LOST_RANGES

    def refusal(self, size: int) -> str:
        """Return the reason why a record of `size` bytes is refused now; "" if it is not."""
        if self.closed:
            return "closed"
        held = self.waiting_bytes
        if held and held + size > self.config.held_bytes:
            return f"{held} bytes wait for the store, at most {self.config.held_bytes}"
        return ""

    def add_record(self, size: int, head: int, now: float) -> tuple[StreamFile, int]:
        """Return the file that takes a record of `size` bytes, and the offset of its last byte. `head`: header length
        of a new file. Precondition: `refuse` returned ""."""
        file = self.current
        if file is not None and self.is_full(now, size):
            self.roll()
            file = None
        if file is None:
            file = StreamFile(self.end, head, now, head)
            self.files.append(file)
        file.length += size
        file.count += 1
        self.end = file.end
        return file, self.end - 1

    def is_full(self, now: float, size: int = 0) -> bool:
        """True if the current file is full for a record of `size` bytes."""
        file, config = self.current, self.config
        if file is None:
            return False
        return (
            file.length + size > max(config.bytes, file.header_bytes + size)
            or file.count >= config.count
            or now - file.opened_at >= config.seconds
        )

    def roll_due(self) -> float | None:
        """Time at which the current file must be rolled; None without a file."""
        return None if self.current is None else self.current.opened_at + self.config.seconds

    def roll(self) -> StreamFile | None:
        """End the current file; later records go to the next one."""
        file = self.current
        if file is not None:
            file.state = FileState.CLOSING
        return file

    def mark_written(self, file: StreamFile, size: int) -> None:
        """Count `size` more bytes of the file that have left memory."""
        file.written += size

    def mark_durable(self, file: StreamFile, length: int) -> None:
        """Note that the first `length` bytes of the file are durable. Under `roll` that acks nothing."""
        if self.scheme is Scheme.LENGTH and file.state in (FileState.OPEN, FileState.CLOSING):
            file.durable = max(file.durable, min(length, file.length))
            self._advance()

    def mark_closed(self, file: StreamFile) -> None:
        """Mark a file as closed under its final name."""
        if file.state is FileState.CLOSING:
            file.state, file.durable = FileState.DONE, file.length
            self.rolls += 1
            self._advance()

    def mark_failed(self, file: StreamFile, why: str) -> None:
        """Mark a file as failed: its bytes beyond `durable` are lost and never acked."""
        if file.state in (FileState.OPEN, FileState.CLOSING):
            file.state, file.reason = FileState.FAILED, why
            self.failed_rolls += 1
            self._advance()

    def close(self, why: str) -> None:
        """End the stream: all bytes that are not durable now are lost."""
        for file in list(self.files):
            self.mark_failed(file, why)
        self.closed = True
        self.lost.append((self.until, END_OF_LOG))

    def state(self) -> PartitionState:
        """Return the state to publish. Everything placed before this call lies below `log_end`."""
        return PartitionState(self.until, 0, self.end, tuple(self.lost))

    def oldest_opened(self) -> float | None:
        """Return the time at which the oldest unsettled file was begun."""
        return self.files[0].opened_at if self.files else None

    def _advance(self) -> None:
        """Advance `until` over all bytes that are durable or lost."""
        while self.files and self.files[0].state in (FileState.DONE, FileState.FAILED):
            file = self.files.popleft()
            if file.durable < file.length:
                self._lose(file.base + file.durable, file.end)
            self.until = max(self.until, file.end)
        if self.files:
            self.until = max(self.until, self.files[0].base + self.files[0].durable)

    def _lose(self, start: int, end: int) -> None:
        if self.lost and self.lost[-1][1] == start:
            start, _ = self.lost.pop()
        self.lost.append((start, end))


def final_state(state: PartitionState, files: list[tuple[int, int]]) -> PartitionState:
    """Return the final state of a stream whose writer is dead: `state` is its last published one, `files` the [base,
    end) of all its finished files. Bytes from `until` on that no file holds are lost, to the end of all offsets."""
    lost, cursor = list(state.lost), state.until
    for base, end in sorted(files):
        if end <= cursor:
            continue
        if base > cursor:
            lost.append((cursor, base))
        cursor = end
    return PartitionState(cursor, 0, max(cursor, state.log_end), (*lost, (cursor, END_OF_LOG)))
