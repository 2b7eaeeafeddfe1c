"""Recovery of virtual shards without a live holder: from a copied snapshot, else the raw table, else Kafka."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field

from kazoo.client import KazooClient

from artimon.model.vshards import vshards_of
from artimon.rawtable.schema import TableError
from artimon.runtime import file_access as files
from varstore.shard.shard import Shard
from varstore.snapshot.manifest import Manifest
from varstore.snapshot.raw_head import RawHead
from varstore.snapshot.refill import Refill
from varstore.snapshot.snapshot_folders import HdfsFolder
from varstore.snapshot.snapshots import Usable, frames_of, manifests
from varstore.store.feed_groups import FeedGroup, LostRange, Partition
from varstore.store.snapshot_frames import SnapshotFormatError

log = logging.getLogger(__name__)

SHORT_LOG_MESSAGES = 20_000
"""Maximum number of batches of a whole log that is read instead of the raw table."""


@dataclass(frozen=True, slots=True)
class LogSpan:
    """Range of the log in Kafka: [start, end) of each partition."""

    topic_id: str
    spans: Mapping[int, tuple[int, int]]
    epochs: Mapping[int, int] = field(default_factory=dict)
    """Leader epochs of the partitions for which Kafka reports one."""

    @property
    def is_short(self) -> bool:
        """True if the log starts at 0 and is small: unless its end was lost, it has all that was ever sent."""
        return all(start == 0 for start, _ in self.spans.values()) and (
            sum(end for _, end in self.spans.values()) <= SHORT_LOG_MESSAGES
        )

    def leaders(self) -> dict[Partition, int]:
        """Return the leader epochs for a group that begins now: it applies messages of these epochs or later ones, so
        that a cut of the log is detected."""
        return {Partition(self.topic_id, p): epoch for p, epoch in self.epochs.items()}

    def is_known_to(self, head: RawHead) -> bool:
        """Return True if the table has read this log since its last change of leaders. Otherwise the log may have lost
        its end and grown again without notice."""
        keys = {p: Partition(self.topic_id, p) for p in self.spans}
        return all(head.positions.get(keys[p], 0) <= end for p, (_, end) in self.spans.items()) and all(
            head.epochs.get(keys[p], epoch) == epoch for p, epoch in self.epochs.items()
        )

    def continues_from(self, head: RawHead) -> bool:
        """Return True if Kafka has everything after the table's newest append."""
        return all(head.positions.get(Partition(self.topic_id, p), 0) >= start for p, (start, _) in self.spans.items())


def prefers_table(head: RawHead, span: LogSpan | None) -> bool:
    """Return True to read the table, False to read Kafka from its start. A topic that was made again, or lost its end,
    starts at 0 and is short, and yet lacks what the table has read. Raises TableError until both are on one topic, and
    until the table has named what Kafka deleted unread: before that, neither has everything."""
    if span is None:
        return True
    if head.topic_id != span.topic_id:
        raise TableError(f"the raw query has not begun topic {span.topic_id} yet")
    if not span.continues_from(head):
        raise TableError("the log starts above the raw table's offsets, and the table has not named the lost range yet")
    return not (span.is_short and head.is_whole and span.is_known_to(head))


def can_continue(span: LogSpan | None, groups: Sequence[FeedGroup]) -> bool:
    """Return True if Kafka still has everything after the positions of these groups, or if that is unknown."""
    return span is None or all(
        group.next_offset(Partition(span.topic_id, p)) >= start
        for group in groups
        for p, (start, _) in span.spans.items()
    )


def table_has(head: RawHead, span: LogSpan, lost: Mapping[Partition, LostRange]) -> bool:
    """Return True if the table may have some of what a group lost in Kafka; False if the table lost all of it too.
    Raises TableError until the table has come past it, and if nothing could be refilled from the table."""
    for key, one in lost.items():
        at = head.positions.get(key, 0)
        if key.topic_id == head.topic_id and at < one.until:
            raise TableError(f"the raw query has read partition {key.partition} to {at}, and not to {one.until} yet")
    return prefers_table(head, span) and not all(_covers_loss(head.lost.get(key, ()), one) for key, one in lost.items())


def _covers_loss(spans: Sequence[tuple[int, int]], lost: LostRange) -> bool:
    """Return True if one of `spans` covers the whole loss. (A log that was cut below it has other batches there.)"""
    return any(start <= lost.start < lost.until <= end for start, end in spans)


class Restore:
    """For one thread. A source that fails leaves nothing behind, and the next is tried; a failure of the raw table is
    raised, because a later attempt can succeed."""

    def __init__(
        self,
        shard: Shard,
        again: Callable[[], AbstractContextManager[None]],
        span: Callable[[], LogSpan | None],
        usable: Usable,
        hdfs_uri: str | None = None,
        copies: str | None = None,
        zookeeper: KazooClient | None = None,
        stop: threading.Event | None = None,
    ) -> None:
        """`again`: context that makes announcements wanted; `span`: returns None if Kafka does not answer; `usable`:
        True if groups can continue from a snapshot's positions; `copies`: folder with the copies of all shards."""
        self._shard, self._announcements_wanted, self._span, self._usable = shard, again, span, usable
        self._hdfs, self._copies, self._zookeeper, self._stop = hdfs_uri, copies, zookeeper, stop
        self._refill: Refill | None = None

    @property
    def progress(self) -> str:
        """Progress of a refill; empty while there is none."""
        return str(self._refill.progress) if self._refill is not None else ""

    def restore(self, vshards: int) -> None:
        """Recover these virtual shards. Raises TableError, OSError, RefillStopped, ValueError."""
        rest = vshards & ~self._from_copies(vshards)
        if not rest:
            return
        span = self._span()
        if not self._from_table(rest, span):
            log.info("%d virtual shards begin empty, at the start of the log", rest.bit_count())
            with self._announcements_wanted():
                self._shard.adopt(rest, epochs=span.leaders() if span is not None else {})

    def table_has(self, lost: Mapping[Partition, LostRange]) -> bool:
        """Return True if `bring` may restore what was lost in Kafka. Raises TableError, OSError while that is unknown
        or nothing could be restored."""
        if self._hdfs is None:
            if all(one.start == 0 for one in lost.values()):  # without a table a shard begins at the log start
                return False
            raise TableError("no raw table: this shard was started without HDFS")
        span = self._span()
        if span is None:
            raise TableError("the range of the log cannot be read from Kafka")
        head = Refill(self._shard, self._hdfs, self._zookeeper, self._stop).head()
        if head is None:
            raise TableError("the raw table does not exist yet")
        return table_has(head, span, lost)

    # copies of snapshots

    def _from_copies(self, vshards: int) -> int:
        """Take from copies of snapshots; return the mask of the recovered virtual shards."""
        if self._copies is None:
            return 0
        found = 0
        for folder, manifest in self._newest_copies():
            wanted = manifest.vshards & vshards & ~found
            if wanted and self._load_copy(folder, manifest, wanted):
                found |= wanted
        return found

    def _newest_copies(self) -> list[tuple[HdfsFolder, Manifest]]:
        """Return the newest whole copy of each shard, newest first."""
        root = str(self._copies)
        try:
            files.check_reachable(root)
            ids = {path.partition("/")[0] for path, _, _ in files.list_files(root) if path.count("/") == 1}
        except FileNotFoundError:
            return []
        except OSError as error:
            log.warning("copies of snapshots in %s: %s", root, error)
            return []
        folders = [HdfsFolder(f"{root}/{id_}") for id_ in sorted(ids)]
        found = [(folder, manifest) for folder in folders if (manifest := next(manifests(folder), None)) is not None]
        return sorted(found, key=lambda one: one[1].created_ms, reverse=True)

    def _load_copy(self, folder: HdfsFolder, manifest: Manifest, wanted: int) -> bool:
        try:
            with self._announcements_wanted():
                self._shard.ownership.import_snapshot(wanted, frames_of(folder, manifest, self._is_whole), False)
        except (SnapshotFormatError, OSError, ValueError) as error:
            log.warning("copy %s in %s cannot be used: %s", manifest.name, folder, error)
            return False
        log.info("%d virtual shards from copy %s of %s", wanted.bit_count(), manifest.name, folder)
        return True

    def _is_whole(self, groups: Sequence[FeedGroup]) -> bool:
        """Return True if the groups are usable and lack nothing; the raw table may have all that others lack."""
        return self._usable(groups) and not any(group.lost for group in groups)

    # the raw table

    def _from_table(self, vshards: int, span: LogSpan | None) -> bool:
        """Refill from the raw table; return False if it cannot be used."""
        if self._hdfs is None:
            return False
        self._refill = Refill(self._shard, self._hdfs, self._zookeeper, self._stop)
        try:
            with ExitStack() as wanting:
                wanting.enter_context(self._announcements_wanted())
                return self._refill.run(vshards, lambda head: prefers_table(head, span), wanting.close)
        except (TableError, OSError) as error:
            raise TableError(f"virtual shards {vshards_of(vshards)[:8]}: refill from the raw table: {error}") from error
        finally:
            self._refill = None
