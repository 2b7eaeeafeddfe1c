"""Helpers of the transport's tests: small batches, waiting on a condition, a file layer that injects faults."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from artimon.model.batch import BatchId, PollResult, Samples, SeriesBlock, SeriesInfo
from artimon.model.batch_codec import encode_samples, parse_header
from artimon.model.values import ValueType
from pipeline.flows.runtime.agent_transport import Agent
from pipeline.wal.file_system import LOCAL_FILE_SYSTEM, FileSystem, LocalFileSystem
from pipeline.wal.log import LogEntry, WriteAheadLog
from pipeline.wal.log_core import LogCore
from pipeline.wal.recovery import records_of, segments_in
from pipeline.wal.segment_format import RecordType
from pipeline.wal.state_records import LogPosition

AGENT = "agent-1"
HOST = "here"
MINUTE = 1_700_000_040_000


def samples(count: int, time_ms: int = MINUTE - 1000, first: int = 0) -> Samples:
    """`count` integers of distinct series."""
    fingerprints = np.arange(first, first + count, dtype=np.uint64)
    times, births = np.full(count, time_ms, np.int64), np.ones(count, np.int64)
    values = np.arange(count, dtype=np.int64) * 3
    return Samples(fingerprints, times, births, np.zeros(count, np.uint8), values)


def polled(source: str, count: int = 3, time_ms: int = MINUTE - 1000, announce: bool = False) -> PollResult:
    """One poll of one source."""
    block = SeriesBlock(source, 0, time_ms, (SeriesInfo("a.b{}", ValueType.INTEGER),))
    return PollResult(source, bytes(16), 1, time_ms, samples(count, time_ms), blocks=(block,) if announce else ())


def entry(wal: WriteAheadLog | LogCore, lane: int, sequence: int, count: int = 3, agent: str = AGENT) -> LogEntry:
    """A batch for the log, encoded as its intake would."""
    id = BatchId(agent, wal.epoch, lane, sequence)
    batch = encode_samples(id, f"source-{lane}", bytes(16), 1, MINUTE - 1000, "default", samples(count))
    return LogEntry(RecordType.BATCH, batch.header, batch.data, ((MINUTE, count),))


@contextmanager
def started(agent: Agent) -> Iterator[Agent]:
    """Run the agent and stop it at the end."""
    agent.start()
    try:
        yield agent
    finally:
        agent.stop()


def figure(agent: Agent, name: str) -> Any:
    """Value of one of the agent's counters."""
    return agent.figures()[name]


class FastFiles(LocalFileSystem):
    """Real disk without fsync, for tests in which only processes crash."""

    def fsync(self, descriptor: int) -> None:
        pass

    def fsync_folder(self, folder: Path) -> None:
        pass


class RecordingListener:
    """Listener of the log that records every call."""

    def __init__(self) -> None:
        self.placed: list[tuple[LogEntry, LogPosition]] = []

    def __call__(self, placed: Sequence[tuple[LogEntry, LogPosition]]) -> None:
        self.placed.extend(placed)

    @property
    def ids(self) -> list[BatchId]:
        return [e.header.id for e, _ in self.placed]


def open_log(
    folder: Path,
    recorded: RecordingListener | None = None,
    files: FileSystem | None = None,
    lanes: int = 2,
    quota: int = 1 << 30,
    segment: int = 1 << 20,
    agent: str = AGENT,
    host: str = HOST,
) -> WriteAheadLog:
    """Open a log for a test. The caller closes it."""
    return WriteAheadLog(
        folder,
        agent,
        lanes,
        recorded or RecordingListener(),
        files=files or FastFiles(),
        host=host,
        quota_bytes=quota,
        segment_bytes=segment,
    )


def ids_in(folder: Path, files: FileSystem = LOCAL_FILE_SYSTEM) -> list[BatchId]:
    """Identities of the batches in all segments, in order."""
    return [
        parse_header(payload).id
        for segment in segments_in(folder, files)
        for record, payload in records_of(folder, segment, files)
        if record.type == RecordType.BATCH
    ]
