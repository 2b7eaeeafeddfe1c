"""Defects that are planted into the shipped classes, one at a time; the simulation must find each. None of them is in
the program; each is the effect of a plausible mistake in one place."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import artimon.model.ack_state
import artimon.rawtable.table_state as states
import pipeline.collector.collector
import pipeline.control.ack_watcher
import pipeline.spark.acks_publisher
import varstore.store.feed_groups
from artimon.model import batch_codec as codec
from artimon.model.feed_codec import FeedAnswer
from artimon.model.ranges import LaneRanges
from pipeline.delivery.batch_numbers import BatchNumberer
from pipeline.delivery.send_planner import SendPlanner
from pipeline.delivery.slow_start import SlowStart
from pipeline.delivery.tracker import Tracker
from pipeline.spark import raw_query as raw
from pipeline.spark import raw_task as tasks
from pipeline.spark.acks_publisher import AcksPublisher
from pipeline.wal.log_core import LogCore, LogWriteError
from pipeline.wal.recovery import Recovery
from pipeline.wal.segments import Segments
from tests.simulation import kafka as sim_kafka
from tests.simulation import shards as sim_shards
from tests.simulation.disk import SimDisk
from tests.simulation.planting import Fault, around, on
from tests.simulation.spark import RawDriver
from tests.simulation.table import SimHead, SimTable
from varstore.snapshot import restore as recovery
from varstore.snapshot.raw_head import RawHead
from varstore.store.feed_groups import FeedGroup, FeedGroups, Partition
from varstore.store.range_admission import AdmittedRange, check_owned

# -- the log


def accept_before_fsync() -> list[Any]:
    def sync(self: Segments) -> None:
        self.synced = self.size

    return [on(Segments, "sync", sync)]


def folder_not_fsynced() -> list[Any]:
    return [on(SimDisk, "fsync_folder", lambda self, folder: None)]


def failed_fsync_retried() -> list[Any]:
    def sync(self: LogCore) -> None:
        for _ in range(3):
            try:
                self._segments.sync()
                return
            except OSError:
                continue
        raise LogWriteError("the disk failed three times")

    return [on(LogCore, "_sync", sync)]


def live_segment_deleted() -> list[Any]:
    def delete_done(self: Segments, *_: Any) -> list[int]:
        done = [number for number in sorted(self._sizes) if number != self.active]
        for number in done:
            self._drop(number)
        return done

    return [on(Segments, "delete_done", delete_done)]


def newest_segment_deleted() -> list[Any]:
    """Found by the simulation in the program: the next segment could not be opened, and the last one is deleted."""

    def delete_done(self: Segments, *_: Any) -> list[int]:
        done = []
        for number in sorted(self._sizes):
            if number == self.active or self._live.get(number):
                break
            done.append(number)
        for number in done:
            self._drop(number)
        if done:
            self._files.fsync_folder(self._folder)
        return done

    def choose(real: Any, self: LogCore, found: Any, failed: bool, new: bool) -> None:
        real(self, found, failed, new and not self._files.exists(self.folder / "epoch"))

    return [on(Segments, "delete_done", delete_done), around(LogCore, "_choose_epoch", choose)]


def epoch_kept_after_damage() -> list[Any]:
    return [on(Recovery, "damage_summary", lambda self: "")]


def sent_taken_for_acked() -> list[Any]:
    def drop_done(real: Any, self: Recovery) -> None:
        real(self)
        self.batches = [(header, place) for header, place in self.batches if header.id not in self.sent]

    return [around(Recovery, "drop_acked", drop_done)]


def numbers_from_zero() -> list[Any]:
    def sequences(self: Recovery, epoch: int, lanes: int) -> list[int]:
        return [0] * lanes

    return [on(Recovery, "next_sequences_of", sequences)]


def numbers_of_refused_and_sent() -> list[Any]:
    def begin(real: Any, self: BatchNumberer[Any], polled: Any) -> Any:
        before = self.numbers.copy()
        found = real(self, polled)
        if before.next[0] % 5 == 4:
            self.numbers = before
        return found

    return [around(BatchNumberer, "begin", begin)]


# -- sending


def identity_changes() -> list[Any]:
    def read(real: Any, self: LogCore, place: Any) -> bytes:
        data: bytes = real(self, place)
        seen = self.__dict__.setdefault("_read_before", set())
        if place not in seen:
            seen.add(place)
            return data
        h = codec.parse_header(data)
        id = h.id._replace(sequence=h.id.sequence + 1_000)
        body = data[h.body_at :]
        return codec.assemble(
            h.kind, id, h.source, h.endpoint, h.birth_ms, h.poll_ms, h.rows, h.block, h.keep, body
        ).data

    return [around(LogCore, "read", read)]


def forgotten_when_sent() -> list[Any]:
    def place(real: Any, self: Tracker, item: Any, position: Any, *rest: Any) -> None:
        before, self._ack_on_sent = self._ack_on_sent, True
        real(self, item, position, *rest)
        self._ack_on_sent = before

    return [around(Tracker, "_apply_position", place)]


def refused_not_sent_again() -> list[Any]:
    def answered(real: Any, self: Tracker, group: Any, answers: Any, now: float) -> Any:
        self_return, self._return = self._return, lambda *_: None  # type: ignore[method-assign]
        try:
            return real(self, group, answers, now)
        finally:
            self._return = self_return  # type: ignore[method-assign]

    return [around(Tracker, "apply_answers", answered)]


def lane_stays_busy() -> list[Any]:
    def failed(real: Any, self: Tracker, group: Any, *rest: Any) -> None:
        real(self, group, *rest)
        self._lanes[group.lane].busy = True

    return [around(Tracker, "call_failed", failed)]


def sent_again_on_a_timer() -> list[Any]:
    def next_(real: Any, self: SendPlanner, now: float, *rest: Any) -> Any:
        for key, item in list(self.tracker._sent.items()):
            if item.sent_at is not None and now - item.sent_at > 1.0:
                del self.tracker._sent[key]
                item.state, item.position = type(item.state).LOGGED, None
                self.tracker._lane(item.id.lane_id).backlog.add(item)
        return real(self, now, *rest)

    return [around(SendPlanner, "next_call", next_)]


def never_probes_again() -> list[Any]:
    return [on(SlowStart, "window_now", lambda self, now, flying: None if self.window is None else 0)]


def dead_collector_for_ever() -> list[Any]:
    """Found by the simulation in the program: the pause of a lane equals that of a dead collector."""

    def failed(real: Any, self: SendPlanner, group: Any, now: float, elsewhere: bool = False) -> None:
        real(self, group, now, False)
        if elsewhere:
            self.tracker._lanes[group.lane].not_before = now + 10.0
            for standing in self.collectors._health.values():
                if standing.not_before > now:
                    standing.not_before = now + 10.0

    return [around(SendPlanner, "call_failed", failed)]


# -- acks


def ack_across_topic_ids() -> list[Any]:
    def judge(real: Any, sent: Any, waiting_states: Any, topic: str) -> Any:
        newest = max(waiting_states.values(), key=lambda state: state.topic_id)
        moved = [
            one._replace(position=one.position._replace(topic_id=newest.topic_id, leader_epoch=-1)) for one in sent
        ]
        return real(moved, waiting_states, topic)

    return [around(pipeline.control.ack_watcher, "decide_acks", judge)]


def lost_ranges_acked() -> list[Any]:
    def against(real: Any, position: Any, since: Any, state: Any) -> str:
        part = state.partitions.get(position.partition)
        if part is not None and position.offset < part.until and any(a <= position.offset < b for a, b in part.lost):
            return artimon.model.ack_state.ACKED
        return str(real(position, since, state))

    return [around(artimon.model.ack_state, "_decide_with_state", against)]


def agents_ignore_epochs() -> list[Any]:
    def position_of(real: Any, info: Any, partition: int, offset: int) -> Any:
        return real(info, partition, offset)._replace(leader_epoch=-1)

    return [around(sim_kafka, "position_of", position_of)]


def end_of_log_published() -> list[Any]:
    def document(real: Any, *arguments: Any) -> Any:
        made = real(*arguments)
        for one in made["partitions"].values():
            one["until"] = max(one["until"], one["log_end"])
        return made

    return [around(pipeline.spark.acks_publisher, "acks_document", document)]


def published_before_commit() -> list[Any]:
    def append(real: Any, self: SimTable, new: Any, before: Any, after: Any, *rest: Any) -> Any:
        store = self._store
        store.early = store.version + 1, after  # type: ignore[attr-defined]
        owner: Any = self._owner
        if isinstance(owner, RawDriver):
            owner.publish()
        try:
            return real(self, new, before, after, *rest)
        finally:
            store.early = None  # type: ignore[attr-defined]

    def head(real: Any, self: SimHead) -> Any:
        return getattr(self._store, "early", None) or real(self)

    return [around(SimTable, "append", append), around(SimHead, "head", head)]


def acks_go_back() -> list[Any]:
    def write(self: AcksPublisher, topic_id: str, node: Any, fresh: Any) -> None:
        path, data = f"/artimon/acks/{topic_id}", json.dumps(fresh).encode()
        if node[0] < 0:
            self._zookeeper.create_async(path, data).get(1)
        else:
            self._zookeeper.set_async(path, data, -1).get(1)

    return [on(AcksPublisher, "_write", write)]


# -- the raw query


def greatest_number_instead_of_ranges() -> list[Any]:
    def seen(self: LaneRanges, lane: Any, sequence: int) -> bool:
        ranges = self._lanes.get(lane)
        return ranges is not None and bool(ranges._ends) and sequence < ranges._ends[-1]

    return [on(LaneRanges, "contains", seen)]


def greatest_number_in_shards() -> list[Any]:
    def add(real: Any, self: LaneRanges, lane: Any, sequence: int) -> bool:
        ranges = self._lanes.get(lane)
        old = ranges is not None and bool(ranges._ends) and sequence < ranges._ends[-1]
        return bool(real(self, lane, sequence)) and not old

    return [around(LaneRanges, "add", add)]


def repeats_by_time_window() -> list[Any]:
    return [on(states, "FORGET_LANE_MS", 15_000)]


def repeats_by_time_window_in_shards() -> list[Any]:
    return [
        on(varstore.store.feed_groups, "FORGET_LANE_MS", 15_000),
        on(varstore.store.feed_groups, "_FORGET_INTERVAL_MS", 1_000),
    ]


def earlier_appends_not_asked() -> list[Any]:
    def init(real: Any, self: Any, *arguments: Any) -> None:
        real(self, *arguments)
        self._accepted = LaneRanges()

    return [around(tasks.PartitionReader, "__init__", init)]


def numbers_lost_with_a_new_topic() -> list[Any]:
    return [on(states, "_redistribute", lambda lanes, partitions: {})]


def checkpoint_believed() -> list[Any]:
    def open_(real: Any, self: raw.RawQuery, stop: Any) -> Any:
        return real(self, stop)._replace(checkpoint=Path("/checkpoints/raw"))

    return [around(raw.RawQuery, "open", open_), on(raw, "remove_checkpoint", lambda folder: None)]


def two_drivers_commit() -> list[Any]:
    def append(self: SimTable, new: Any, before: Any, after: Any, began: Any = None) -> int:
        del began
        version, head = self.head()
        after = replace(after, append=head.append + 1) if head.append else after
        self.commit([file.action() for file in new], (), {"artimon": states.to_json(after, before)})
        return version + 1

    return [on(SimTable, "append", append)]


def commit_without_an_answer_made_again() -> list[Any]:
    def append(self: SimTable, new: Any, before: Any, after: Any, began: Any = None) -> int:
        del began
        for _ in range(5):
            version, head = self.head()
            if head.key not in (before.key, after.key):
                raise OSError("another append")
            try:
                self.commit([file.action() for file in new], (), {"artimon": states.to_json(after, before)})
                return version + 1
            except Exception:
                continue
        raise OSError("no commit went through")

    return [on(SimTable, "append", append)]


def lost_range_not_skipped() -> list[Any]:
    def close_gaps(real: Any, state: Any, *arguments: Any) -> Any:
        after = real(state, *arguments)
        if states.begins_topic(state, after.topics[-1].topic_id):
            return after
        return replace(after, topics=(*after.topics[:-1], replace(after.topics[-1], until=state.topics[-1].until)))

    return [around(states, "close_gaps", close_gaps)]


def holes_not_named() -> list[Any]:
    return [on(raw.RawRun, "_lost_ranges", lambda self, result: [])]


def leader_epochs_ignored_by_the_table() -> list[Any]:
    def find_gaps(real: Any, state: Any, topic_id: str, bounds: Any, epochs: Any = None, seen: Any = None) -> Any:
        del epochs
        return real(state, topic_id, bounds, None, seen)

    return [around(states, "find_gaps", find_gaps)]


def old_offsets_in_a_new_topic() -> list[Any]:
    def close_gaps(real: Any, state: Any, *arguments: Any) -> Any:
        after = real(state, *arguments)
        if state.current is None or not states.begins_topic(state, after.topics[-1].topic_id):
            return after
        return replace(after, topics=(*after.topics[:-1], replace(after.topics[-1], until=state.topics[-1].until)))

    return [around(states, "close_gaps", close_gaps)]


# -- shards


def applied_above_a_gap() -> list[Any]:
    def admit(groups: FeedGroups, range_: Any, shard: str) -> Any:
        group = groups.get(range_.vshards)
        check_owned(group.vshards, range_, shard)
        key = Partition(range_.topic_id, range_.partition)
        if range_.until <= group.next_offset(key):
            return FeedAnswer(group.next_offset(key))
        return AdmittedRange(key, group)

    return [on(sim_shards, "admit", admit)]


def snapshot_without_ranges() -> list[Any]:
    def to_json(real: Any, self: FeedGroup) -> Any:
        return {**real(self), "lanes": {}}

    return [around(FeedGroup, "to_json", to_json)]


def refill_without_ranges() -> list[Any]:
    def group(real: Any, self: RawHead, vshards: int) -> FeedGroup:
        found: FeedGroup = real(self, vshards)
        found.lanes = LaneRanges()
        return found

    return [around(RawHead, "make_group", group)]


def rewind_forgets_numbers() -> list[Any]:
    def rewind(real: Any, self: FeedGroups, key: Any, offset: int) -> None:
        real(self, key, offset)
        for group in self:
            group.lanes = LaneRanges()

    def follow(real: Any, self: FeedGroups, *arguments: Any) -> Any:
        back = real(self, *arguments)
        for group in self if back else ():
            group.lanes = LaneRanges()
        return back

    return [around(FeedGroups, "rewind", rewind), around(FeedGroups, "follow_epochs", follow)]


def range_not_trimmed() -> list[Any]:
    def sift(real: Any, group: FeedGroup, range_: Any) -> Any:
        before = group.lanes
        group.lanes = LaneRanges()
        try:
            below, key = group.positions, Partition(range_.topic_id, range_.partition)
            group.positions = {**below, key: 0}
            return real(group, range_)
        finally:
            before.update(group.lanes)
            group.lanes, group.positions = before, below

    return [around(sim_shards, "drop_repeats", sift)]


def short_log_taken_for_whole() -> list[Any]:
    """Found by the simulation in the program: a recreated topic is short, but not complete."""

    def is_from_table(real: Any, head: Any, span: Any) -> bool:
        return not span.is_short and bool(real(head, span))

    return [around(sim_shards, "prefers_table", is_from_table)]


def lost_not_noted() -> list[Any]:
    """Former behaviour of the program: a log line, and nothing else."""
    return [on(FeedGroup, "mark_lost", lambda self, key, until: None)]


def lost_never_looked_for() -> list[Any]:
    return [on(sim_shards, "table_has", lambda head, span, lost: False)]


def lost_forgotten_by_a_snapshot() -> list[Any]:
    def to_json(real: Any, self: FeedGroup) -> Any:
        return {name: value for name, value in real(self).items() if name != "lost"}

    return [around(FeedGroup, "to_json", to_json)]


def a_part_named_taken_for_all() -> list[Any]:
    def is_named(spans: Any, lost: Any) -> bool:
        return any(start < lost.until and lost.start < end for start, end in spans)

    return [on(recovery, "_covers_loss", is_named)]


FAULTS = [
    Fault("accept before fsync", "a batch is accepted once it is written, not once it is synced", accept_before_fsync),
    Fault("folder not fsynced", "the entry of a new segment is not made durable", folder_not_fsynced),
    Fault("failed fsync retried", "an fsync that failed is tried again and believed", failed_fsync_retried),
    Fault("live segment deleted", "a segment goes though a batch in it is not acked", live_segment_deleted),
    Fault(
        "newest segment deleted", "an acked segment goes though no newer one could be opened", newest_segment_deleted
    ),
    Fault("epoch kept after damage", "no new epoch after a part of the log was lost", epoch_kept_after_damage),
    Fault("sent taken for acked", "a restart drops what Kafka had", sent_taken_for_acked),
    Fault("numbers from zero", "a restart gives numbers again", numbers_from_zero),
    Fault("number given twice", "now and then a number is given to two batches", numbers_of_refused_and_sent),
    Fault("identity changes", "what is sent again has another number", identity_changes),
    Fault("forgotten when sent", "level hdfs forgets once Kafka has it", forgotten_when_sent),
    Fault("refused not sent again", "a batch that a collector refused is dropped", refused_not_sent_again),
    Fault("lane stays busy", "a call without an answer blocks its lane", lane_stays_busy),
    Fault("sent again on a timer", "what waits for its ack goes again every second", sent_again_on_a_timer),
    Fault("never probes again", "after 'buffer full' nothing is tried any more", never_probes_again),
    Fault("dead collector for ever", "a lane tries a dead collector in step with its pause", dead_collector_for_ever),
    Fault("ack across topic ids", "an offset is compared with the state of another topic", ack_across_topic_ids),
    Fault("lost ranges acked", "below `until` all counts as stored, lost ranges too", lost_ranges_acked),
    Fault("agents ignore leader epochs", "an offset of a log that was cut is believed", agents_ignore_epochs),
    Fault("end of log published", "acks say what Kafka has, not what the table has", end_of_log_published),
    Fault("published before commit", "acks of an append before its commit", published_before_commit),
    Fault("acks go back", "an older state is written over a newer one", acks_go_back),
    Fault("greatest number, table", "the table keeps one number a lane, not ranges", greatest_number_instead_of_ranges),
    Fault("greatest number, shards", "shards keep one number a lane, not ranges", greatest_number_in_shards),
    Fault("time window, table", "numbers are forgotten after 15 s", repeats_by_time_window),
    Fault("time window, shards", "shards forget numbers after 15 s", repeats_by_time_window_in_shards),
    Fault("earlier appends not asked", "repeats are found within one append only", earlier_appends_not_asked),
    Fault("numbers lost with a new topic", "a new topic id begins without numbers", numbers_lost_with_a_new_topic),
    Fault("checkpoint believed", "Spark's checkpoint says where to read on, not the table", checkpoint_believed),
    Fault("two drivers commit", "an append does not look at what it stands on", two_drivers_commit),
    Fault("commit made again", "a commit without an answer is made once more", commit_without_an_answer_made_again),
    Fault("lost range not skipped", "a lost range is named, and `until` stays", lost_range_not_skipped),
    Fault("holes not named", "offsets that did not come are passed over", holes_not_named),
    Fault("table ignores leader epochs", "a log that was cut and grew is read on", leader_epochs_ignored_by_the_table),
    Fault(
        "old offsets in a new topic",
        "a new topic is read from where the old one was",
        old_offsets_in_a_new_topic,
    ),
    Fault("applied above a gap", "a shard takes a range that begins above its position", applied_above_a_gap),
    Fault("snapshot without ranges", "a shard saves offsets, and no numbers", snapshot_without_ranges),
    Fault("refill without ranges", "a shard refilled from the table has no numbers", refill_without_ranges),
    Fault("rewind forgets numbers", "a shard that goes back forgets what it has seen", rewind_forgets_numbers),
    Fault("range not trimmed", "a shard applies what lies below its position", range_not_trimmed),
    Fault("short log taken for whole", "a shard begins empty though Kafka lost a part", short_log_taken_for_whole),
    Fault("lost not noted", "a shard goes on above what Kafka deleted unread, as if it had that", lost_not_noted),
    Fault("lost never looked for", "what Kafka deleted unread is lost, though the table has it", lost_never_looked_for),
    Fault("lost forgotten by a snapshot", "a restart does not know what is lacking", lost_forgotten_by_a_snapshot),
    Fault("a part named taken for all", "the table lacks some of it, so it is not asked", a_part_named_taken_for_all),
]
