"""Cleanup after dead collectors: their unfinished files and the streams that they did not close. Every collector runs
it; a lock in ZooKeeper gives each stream to one of them at a time.

Under `length` the durable part of an unfinished file is kept and becomes a finished file; under `roll` the file is
moved to `aborted`: none of it was acked, and agents send it again. In both cases the final state of the stream is
published: the offset up to which it is durable, and all the rest as lost.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kazoo.client import KazooClient
from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError

from artimon.model.ack_state import AckState
from artimon.model.clock import Clock
from artimon.model.znode import parse_json_object
from artimon.runtime.partition_counts import ACKS_PATH
from artimon.runtime.zookeeper_client import child_names, read_children
from pipeline.collector.hdfs.ack_publisher import CALL_S, ack_document
from pipeline.collector.hdfs.file_names import (
    ABORTED,
    DATA,
    OPEN,
    SERIES_SUFFIX,
    FinishedName,
    Scheme,
    UnfinishedName,
    hour_of,
    parse_finished,
    parse_unfinished,
    series_stream,
)
from pipeline.collector.hdfs.hdfs_writer import OWNERS_PATH
from pipeline.collector.hdfs.stream_state import final_state
from pipeline.rolling_files.file_store import FileStore
from pipeline.rolling_files.rolling_file import recover_length

log = logging.getLogger(__name__)

LOCKS_PATH = "/artimon/direct-sweeps"
OWNER_GRACE_S = 30.0
"""A stream without an owner for this many seconds is dead: three sessions."""
KEEP_MS = 7 * 24 * 3600 * 1000
"""Retention of the final state of a dead stream in ms (7 days); an agent that is away longer sends again."""
_PUBLISH_MARGIN_MS = 24 * 3600 * 1000


class StreamNode(NamedTuple):
    """Node of a stream."""

    state: AckState
    version: int
    closed: bool


@dataclass(slots=True)
class SweepReport:
    """Results of one turn."""

    finished: list[str] = field(default_factory=list)
    aborted: list[str] = field(default_factory=list)
    closed: list[str] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    waiting: list[str] = field(default_factory=list)


class StreamSweeper:
    """`own` returns the streams of this process, with the names of their files in use. One thread calls `turn`."""

    def __init__(
        self,
        store: FileStore,
        zookeeper: KazooClient,
        writer: str,
        own: Callable[[], dict[str, Collection[str]]],
        clock: Clock,
        grace_s: float = OWNER_GRACE_S,
    ) -> None:
        self._store, self._client, self._writer, self._own_streams = store, zookeeper, writer, own
        self._clock, self._grace_s = clock, grace_s
        self._ownerless_since: dict[str, float] = {}
        """Time at which the owner was first missing, by stream."""

    def sweep(self) -> SweepReport:
        """Sweep once. Raises StoreError and `watcher.LOST`; the rest is done at the next turn."""
        done = SweepReport()
        known = self._read_nodes()
        left: dict[str, list[UnfinishedName]] = {}
        named: dict[str, list[str]] = {}
        for found in self._store.list_folder(OPEN):
            file = parse_unfinished(found.path)
            if file is not None:
                left.setdefault(file.stream, []).append(file)
            elif found.path.endswith(SERIES_SUFFIX):
                named.setdefault(series_stream(found.path), []).append(found.path)
        streams = {name for name, node in known.items() if not node.closed} | set(left) | set(named)
        owners = set(child_names(self._client, OWNERS_PATH, timeout_s=CALL_S))
        own = self._own_streams()
        now = self._clock.monotonic()
        for name in [name for name in self._ownerless_since if name not in streams or name in owners]:
            del self._ownerless_since[name]
        for stream in sorted(streams):
            if stream in own:
                idle = [file for file in left.get(stream, []) if file.name not in own[stream]]
                self._finish_files(idle, done)
            elif stream not in owners and now - self._ownerless_since.setdefault(stream, now) >= self._grace_s:
                for path in named.get(stream, ()):  # no agent was told that these announcements are kept
                    self._store.delete(path)
                self._sweep_stream(stream, left.get(stream, []), known.get(stream), done)
        self._delete_old_nodes(known, done)
        return done

    def _sweep_stream(
        self, stream: str, files: list[UnfinishedName], known: StreamNode | None, done: SweepReport
    ) -> None:
        """Settle the stream under its lock, unless another collector holds that."""
        lock = f"{LOCKS_PATH}/{stream}"
        try:
            self._client.create_async(lock, self._writer.encode(), ephemeral=True, makepath=True).get(timeout=CALL_S)
        except NodeExistsError:
            return
        try:
            if self._finish_files(files, done) and known is not None and not known.closed:
                self._close(stream, known, done)
        finally:
            self._client.delete_async(lock).get(timeout=CALL_S)

    def _finish_files(self, files: list[UnfinishedName], done: SweepReport) -> bool:
        """Settle the files; True once each is closed for good and has its final name."""
        settled = [self._finish_file(file, done) for file in files]
        return all(settled)

    def _finish_file(self, file: UnfinishedName, done: SweepReport) -> bool:
        length = recover_length(self._store, file.path)  # also stops a writer that only seemed dead
        if length is None:
            done.waiting.append(file.name)
            return False
        if file.scheme is Scheme.LENGTH and length:
            final = FinishedName(file.stream, file.base, file.base + length)
            self._store.rename(file.path, f"{DATA}/{hour_of(self._clock.now_ms())}/{final.name}")
            done.finished.append(final.name)
        elif length:
            self._store.rename(file.path, f"{ABORTED}/{hour_of(self._clock.now_ms())}/{file.name}")
            done.aborted.append(file.name)
        else:
            self._store.delete(file.path)
            done.aborted.append(file.name)
        return True

    def _close(self, stream: str, known: StreamNode, done: SweepReport) -> None:
        """Publish the final state. If the node has changed since it was read, its writer is alive."""
        partition = known.state.partitions[0]
        finals = self._finished_files(stream, known.state.time_ms)
        last = final_state(partition, [(file.base, file.end) for file in finals])
        state = AckState(known.state.cluster, known.state.topic, stream, self._clock.now_ms(), {0: last}, known.version)
        try:
            path = f"{ACKS_PATH}/{stream}"
            self._client.set_async(path, ack_document(state, self._writer, True), known.version).get(timeout=CALL_S)
            done.closed.append(stream)
            log.warning("stream %s of a dead collector: durable to %d, the rest is lost", stream, last.until)
        except (BadVersionError, NoNodeError):
            self._ownerless_since.pop(stream, None)

    def _finished_files(self, stream: str, published_ms: int) -> list[FinishedName]:
        """Return finished files of a stream that may hold bytes beyond its last published state."""
        since = hour_of(max(0, published_ms - _PUBLISH_MARGIN_MS))
        files = []
        for hour in self._store.list_folder(DATA):
            if hour.is_folder and hour.path.rsplit("/", 1)[-1] >= since:
                found = (parse_finished(one.path) for one in self._store.list_folder(hour.path))
                files += [file for file in found if file is not None and file.stream == stream]
        return files

    def _delete_old_nodes(self, known: dict[str, StreamNode], done: SweepReport) -> None:
        for stream, node in known.items():
            if node.closed and node.state.time_ms < self._clock.now_ms() - KEEP_MS:
                try:
                    self._client.delete_async(f"{ACKS_PATH}/{stream}", node.version).get(timeout=CALL_S)
                    done.deleted.append(stream)
                except (BadVersionError, NoNodeError):
                    pass

    def _read_nodes(self) -> dict[str, StreamNode]:
        """Return the streams of this folder that ZooKeeper knows."""
        known = {}
        for name, data, stat in read_children(self._client, ACKS_PATH, timeout_s=CALL_S):
            try:
                parsed: dict[str, Any] = parse_json_object(data)
                state = AckState.from_json(data, stat.version)
            except ValueError:
                continue
            if state.cluster == self._store.uri and 0 in state.partitions:
                known[name] = StreamNode(state, stat.version, bool(parsed.get("closed")))
        return known
