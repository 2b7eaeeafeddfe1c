"""State of the raw table after an append: offsets read from the log, and received batches. Pure: no I/O, no clock.

Appends form a chain: each carries the whole state after it, and is accepted only on top of the append that it was
computed from. The JSON form is a contract: docs/formats/raw.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, astuple, dataclass, field, replace
from typing import Any

from artimon.model.hash_routing import partition_of
from artimon.model.ranges import LaneId, LaneRanges, RangeSet
from artimon.rawtable.lane_columns import decode_lanes, encode_lanes
from artimon.rawtable.schema import TableError

FORMAT = 2
"""Format written; 1, which holds the lanes as JSON, is read as well."""
FORGET_MS = 90 * 24 * 3600 * 1000
"""Batches polled at least this long before their append become dead letters."""
FORGET_LANE_MS = FORGET_MS + 7 * 24 * 3600 * 1000
"""Lanes without a batch for this long leave the state, after all of their batches are refused as too old. The margin
covers agents' clocks that are ahead and partitions that are read at different speeds."""
MAX_LOST = 1_000
"""Lost ranges kept per partition, newest kept."""
MAX_EPOCHS = 64
"""Leader epochs kept per partition, newest kept."""
MAX_RECENT = 64
"""Gaps kept in the state, newest kept."""
END_OF_LOG = 2**63 - 1

Span = tuple[int, int]
Epochs = tuple[tuple[int, int], ...]
"""(leader epoch, first offset written under it), both ascending; the last is the newest."""


class TableStateError(TableError, ValueError):
    """The state in a commit cannot be read, or a step does not continue it. The text names the place."""


@dataclass(frozen=True, slots=True)
class TopicState:
    """Progress of the table in one topic. The id distinguishes a recreated topic from its predecessor."""

    topic_id: str
    until: Mapping[int, int]
    """Per partition: messages below this offset are in the table, proven duplicates, dead-lettered, or in `lost`."""
    lost: Mapping[int, tuple[Span, ...]] = field(default_factory=dict)
    closed: bool = False
    """True if another topic replaced it: its rest is lost."""
    epochs: Mapping[int, Epochs] = field(default_factory=dict)
    """Per partition: leader epochs of the log that was read up to `until`. Absent in old states."""


@dataclass(frozen=True, slots=True)
class TableTotals:
    """Counts since the creation of the table."""

    rows: int = 0
    batches: int = 0
    duplicates: int = 0
    dead_letters: int = 0

    def add(self, more: TableTotals) -> TableTotals:
        """Return the sum of both."""
        return TableTotals(*(mine + theirs for mine, theirs in zip(astuple(self), astuple(more), strict=True)))


@dataclass(frozen=True, slots=True)
class RawState:
    """The state after append number `append` of `writer`; the default is that of an empty table."""

    append: int = 0
    writer: str = ""
    cluster: str = ""
    topic: str = ""
    table: str = ""
    """Writer of the first append: distinguishes this table from another at the same location."""
    topics: tuple[TopicState, ...] = ()
    """Topics in the order of their begin; the last is the one being read."""
    lanes: Mapping[int, LaneRanges] = field(default_factory=dict)
    """Per partition."""
    last_ms: Mapping[LaneId, int] = field(default_factory=dict)
    """Append time of the newest batch of each lane."""
    totals: TableTotals = TableTotals()
    newest_append_ms: int = 0
    gaps: tuple[LogGap, ...] = ()
    """Lost or truncated ranges named by this append; empty in an ordinary one."""
    recent_gaps: tuple[RecordedGap, ...] = ()
    """Newest gaps named by any append, oldest first."""

    @property
    def key(self) -> tuple[int, str]:
        """Identity of this append."""
        return self.append, self.writer

    @property
    def current(self) -> TopicState | None:
        return self.topics[-1] if self.topics else None

    def until(self) -> Mapping[int, int]:
        """Return the offsets at which the next append begins."""
        return self.topics[-1].until if self.topics else {}


@dataclass(frozen=True, slots=True)
class LogGap:
    """Range in which log and table do not agree. `kind`: "lost" (the log begins above the table's position), "cut" (it
    ends below), "topic" (another topic has the name)."""

    kind: str
    partition: int
    start: int
    end: int

    def __str__(self) -> str:
        what = {
            "lost": "the log no longer holds offsets",
            "cut": "the log was truncated, messages written there since are new: offsets",
            "topic": "the topic was recreated; unread rest of the old one: offsets",
        }[self.kind]
        end = "its end" if self.end == END_OF_LOG else str(self.end)
        return f"partition {self.partition}: {what} {self.start} to {end}"


@dataclass(frozen=True, slots=True)
class RecordedGap:
    """A gap with its topic, and time and number of the append that named it."""

    gap: LogGap
    topic_id: str
    time_ms: int
    append: int


@dataclass(frozen=True, slots=True)
class Increment:
    """Increment of one append: `until` and received numbers per partition, newest append time per lane, and counts."""

    until: Mapping[int, int]
    received: Mapping[int, LaneRanges]
    last_ms: Mapping[LaneId, int]
    counts: TableTotals
    newest_append_ms: int
    lost: tuple[LogGap, ...] = ()
    """Offsets below `until` that two reads of the log did not return."""
    now_ms: int = 0
    """Time of the append, at which `lost` was named."""


def advance(state: RawState, writer: str, step: Increment) -> RawState:
    """Return the state after `step`. Raises TableStateError if an offset goes backwards."""
    current = state.current
    if current is None:
        raise TableStateError("the table has no current topic: an append that closes the gap must come first")
    until = dict(current.until)
    for partition, end in step.until.items():
        if partition not in until or end < until[partition]:
            raise TableStateError(f"partition {partition}: {end} does not continue {until.get(partition)}")
        until[partition] = end
    lost = dict(current.lost)
    for gap in step.lost:
        lost[gap.partition] = _add_span(lost.get(gap.partition, ()), (gap.start, gap.end))
    newest = max(state.newest_append_ms, step.newest_append_ms)
    last_ms = {**state.last_ms, **step.last_ms}
    forgotten = {lane for lane, at in last_ms.items() if at < newest - FORGET_LANE_MS}
    return replace(
        state,
        append=state.append + 1,
        writer=writer,
        topics=(*state.topics[:-1], replace(current, until=until, lost=lost)),
        lanes=_merge(state.lanes, step.received, forgotten),
        last_ms={lane: at for lane, at in last_ms.items() if lane not in forgotten},
        totals=state.totals.add(step.counts),
        newest_append_ms=newest,
        gaps=step.lost,
        recent_gaps=_keep_recent(state, step.lost, current.topic_id, step.now_ms),
    )


def _keep_recent(state: RawState, gaps: tuple[LogGap, ...], topic_id: str, now_ms: int) -> tuple[RecordedGap, ...]:
    named = (RecordedGap(gap, topic_id, now_ms, state.append + 1) for gap in gaps)
    return (*state.recent_gaps, *named)[-MAX_RECENT:]


def _merge(
    old: Mapping[int, LaneRanges], new: Mapping[int, LaneRanges], forgotten: set[LaneId]
) -> dict[int, LaneRanges]:
    """Merge both and drop the forgotten lanes; unchanged partitions are shared with `old`."""
    merged = dict(old)
    for partition in {*new, *(p for p, lanes in old.items() if forgotten.intersection(lanes.lanes()))}:
        lanes = old[partition].copy() if partition in old else LaneRanges()
        if partition in new:
            lanes.update(new[partition])
        for lane in forgotten.intersection(lanes.lanes()):
            lanes.forget(lane)
        merged[partition] = lanes
    return merged


def end_of_epoch(epochs: Epochs, epoch: int) -> int:
    """Return the end offset of the messages written under `epoch` or before; END_OF_LOG if unknown."""
    return next((start for later, start in epochs if later > epoch), END_OF_LOG)


def append_epoch(epochs: Epochs, epoch: int, start: int) -> Epochs:
    """Append an epoch to `epochs`; entries for offsets from `start` on were truncated and are removed."""
    kept = tuple(one for one in epochs if one[1] < start and one[0] < epoch)
    return (*kept, (epoch, start))[-MAX_EPOCHS:]


def _common_end(known: Epochs, now: Epochs, end: int) -> int:
    """Return the offset up to which the log still equals the one that the table read: a truncated log may have grown
    again."""
    if not known or not now:
        return end
    if known[-1][0] > now[-1][0]:
        return 0  # the cluster was reset to an older state: the log is unknown, and reading it again is harmless
    return min(end, end_of_epoch(now, known[-1][0]))


def find_gaps(
    state: RawState,
    topic_id: str,
    bounds: Mapping[int, Span],
    epochs: Mapping[int, Epochs] | None = None,
    seen: Mapping[int, int] | None = None,
) -> list[LogGap]:
    """Return the gaps between the state and the log (`bounds`, [start, end) per partition, and `epochs`); [] if reads
    can continue. `seen`: earlier observed ends of this topic's log, whose loss is reported, too."""
    current = state.current
    if current is None:
        return [LogGap("lost", p, 0, start) for p, (start, _) in sorted(bounds.items()) if start > 0]
    if current.topic_id != topic_id:
        rest = [LogGap("topic", p, at, END_OF_LOG) for p, at in sorted(current.until.items())]
        return rest + [LogGap("lost", p, 0, start) for p, (start, _) in sorted(bounds.items()) if start > 0]
    gaps = []
    for partition, (start, end) in sorted(bounds.items()):
        at, known, now = (
            current.until.get(partition, 0),
            current.epochs.get(partition, ()),
            (epochs or {}).get(partition, ()),
        )
        reach, before = _common_end(known, now, end), (seen or {}).get(partition, 0)
        if at > reach:
            gaps.append(LogGap("cut", partition, reach, max(at, before)))
            at = reach
        elif before > (whole := _common_end(known, now, END_OF_LOG)):
            gaps.append(LogGap("cut", partition, whole, before))
        if at < start:
            gaps.append(LogGap("lost", partition, at, start))
    return gaps


def begins_topic(state: RawState, topic_id: str) -> bool:
    """True if this topic is not the table's current one."""
    return state.current is None or state.current.topic_id != topic_id


def close_gaps(
    state: RawState,
    writer: str,
    cluster: str,
    topic: str,
    topic_id: str,
    partitions: int,
    gaps: Iterable[LogGap],
    epochs: Mapping[int, Epochs] | None = None,
    now_ms: int = 0,
) -> RawState:
    """Return the state after a commit without rows that names `gaps`, so that reads begin at a readable offset.
    `epochs` describe the log from now on."""
    listed = tuple(gaps)
    gone = state.current.topic_id if state.current is not None else topic_id
    if begins_topic(state, topic_id):
        topics = (
            *(_close(t, listed) for t in state.topics[-1:]),
            TopicState(topic_id, dict.fromkeys(range(partitions), 0)),
        )
        topics = (*state.topics[:-1], *topics)
        lanes: Mapping[int, LaneRanges] = _redistribute(state.lanes, partitions)
    else:
        topics, lanes = state.topics, state.lanes
    current = topics[-1]
    until, lost = dict(current.until), dict(current.lost)
    for gap in listed:
        if gap.kind == "lost":
            until[gap.partition] = gap.end
            lost[gap.partition] = _add_span(lost.get(gap.partition, ()), (gap.start, gap.end))
        elif gap.kind == "cut":
            until[gap.partition] = min(gap.start, until[gap.partition])
    return replace(
        state,
        append=state.append + 1,
        writer=writer,
        cluster=cluster,
        topic=topic,
        table=state.table or writer,
        topics=(*topics[:-1], replace(current, until=until, lost=lost, epochs=epochs or current.epochs)),
        lanes=lanes,
        gaps=listed,
        recent_gaps=(
            *_keep_recent(state, tuple(g for g in listed if g.kind == "topic"), gone, now_ms),
            *_keep_recent(
                replace(state, recent_gaps=()), tuple(g for g in listed if g.kind != "topic"), topic_id, now_ms
            ),
        )[-MAX_RECENT:],
    )


def begin_next_topic(
    state: RawState, writer: str, topic_id: str, partitions: int, epochs: Mapping[int, Epochs] | None = None
) -> RawState:
    """Return the state after a commit without rows that moves to the next generation of the topic. The present one was
    read to its end; later writes to it count as lost, so that agents send them again. Raises TableStateError."""
    current = state.current
    if current is None:
        raise TableStateError("the table has read no topic yet, so there is no next generation of its topic")
    rest = tuple(LogGap("topic", p, at, END_OF_LOG) for p, at in sorted(current.until.items()))
    fresh = TopicState(topic_id, dict.fromkeys(range(partitions), 0), epochs=epochs or {})
    return replace(
        state,
        append=state.append + 1,
        writer=writer,
        topics=(*state.topics[:-1], _close(current, rest), fresh),
        lanes=_redistribute(state.lanes, partitions),
        gaps=(),
    )


def _close(topic: TopicState, gaps: tuple[LogGap, ...]) -> TopicState:
    lost = dict(topic.lost)
    for gap in gaps:
        if gap.kind == "topic":
            lost[gap.partition] = _add_span(lost.get(gap.partition, ()), (gap.start, gap.end))
    return replace(topic, lost=lost, closed=True)


def _add_span(spans: tuple[Span, ...], span: Span) -> tuple[Span, ...]:
    ranges = RangeSet(spans)
    ranges.add_range(*span)
    return tuple(ranges)[-MAX_LOST:]


def _redistribute(lanes: Mapping[int, LaneRanges], partitions: int) -> dict[int, LaneRanges]:
    """Reassign lanes to the partitions that carry them in a topic of `partitions` partitions."""
    fresh: dict[int, LaneRanges] = {}
    for held in lanes.values():
        for lane in held.lanes():
            target = fresh.setdefault(partition_of(lane.agent, lane.epoch, lane.lane, partitions), LaneRanges())
            for start, end in held[lane]:
                one = LaneRanges.from_json({str(lane): [[start, end]]})
                target.update(one)
    return fresh


def to_json(state: RawState, before: RawState) -> dict[str, Any]:
    """Return the JSON form in a commit; `before` is the state that this append continues (its `until` is `from`)."""
    return {
        "format": FORMAT,
        "append": state.append,
        "writer": state.writer,
        "cluster": state.cluster,
        "topic": state.topic,
        "table": state.table,
        "topics": [
            {
                "topic_id": t.topic_id,
                "closed": t.closed,
                "from": _keys(_position(before, t.topic_id)),
                "until": _keys(t.until),
                "lost": {str(p): [list(s) for s in spans] for p, spans in t.lost.items()},
                "epochs": {str(p): [list(e) for e in epochs] for p, epochs in sorted(t.epochs.items())},
            }
            for t in state.topics
        ],
        "lanes": encode_lanes(state.lanes, state.last_ms),
        "totals": asdict(state.totals),
        "newest_append_ms": state.newest_append_ms,
        "gaps": [[g.kind, g.partition, g.start, g.end] for g in state.gaps],
        "recent_gaps": [
            [n.gap.kind, n.gap.partition, n.gap.start, n.gap.end, n.topic_id, n.time_ms, n.append]
            for n in state.recent_gaps
        ],
    }


def from_json(data: Mapping[str, Any]) -> RawState:
    """Inverse of `to_json`. Raises TableStateError."""
    if data.get("format") not in (1, FORMAT):
        raise TableStateError(
            f"state of format {data.get('format')}: this program reads formats 1 to {FORMAT} and writes nothing; run"
            " the version that wrote it, or a newer one (docs/upgrade.md)"
        )
    try:
        lanes, last_ms = _lanes_of(data)
        return RawState(
            data["append"],
            data["writer"],
            data["cluster"],
            data["topic"],
            data["table"],
            tuple(
                TopicState(
                    t["topic_id"],
                    _ints(t["until"]),
                    {int(p): tuple((a, b) for a, b in spans) for p, spans in t["lost"].items()},
                    t["closed"],
                    {int(p): tuple((e, at) for e, at in epochs) for p, epochs in t.get("epochs", {}).items()},
                )
                for t in data["topics"]
            ),
            lanes,
            last_ms,
            TableTotals(**data["totals"]),
            data["newest_append_ms"],
            tuple(LogGap(*gap) for gap in data["gaps"]),
            tuple(RecordedGap(LogGap(*one[:4]), *one[4:]) for one in data.get("recent_gaps", ())),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise TableStateError(f"unreadable state of append {data.get('append')}: {error!r}") from error


def _lanes_of(data: Mapping[str, Any]) -> tuple[dict[int, LaneRanges], dict[LaneId, int]]:
    if data["format"] == FORMAT:
        return decode_lanes(data["lanes"])
    lanes = {int(p): LaneRanges.from_json(held) for p, held in data["lanes"].items()}
    return lanes, {LaneId.parse(lane): at for lane, at in data["lanes_last_ms"].items()}


def _position(state: RawState, topic_id: str) -> Mapping[int, int]:
    return next((t.until for t in state.topics if t.topic_id == topic_id), {})


def _keys(offsets: Mapping[int, int]) -> dict[str, int]:
    return {str(p): at for p, at in sorted(offsets.items())}


def _ints(offsets: Mapping[str, int]) -> dict[int, int]:
    return {int(p): at for p, at in offsets.items()}
