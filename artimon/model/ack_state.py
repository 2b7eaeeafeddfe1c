"""Decisions of an agent to forget a batch or to send it again. Pure: no I/O, no clock.

The raw query publishes an offset for each topic id and partition. Every message below it is in the table, a proven
duplicate or a dead letter. A batch with a lower offset is acked. A batch that has an offset is sent again only on
evidence of loss, never after a timeout: a slow store must not cause a storm of repeats.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

from artimon.model.znode import parse_json_object

Key = TypeVar("Key", bound=Hashable)

FRESH_VERSIONS = 2
"""Versions after the first check of a batch from which `log_end` counts as evidence of loss. The state must have been
begun after the batch had its offset. The first state written after the check may have been read before it; the second
was begun after the first was written, hence after the check."""

END_OF_LOG = 2**63 - 1
"""End of the lost range of a topic that another topic of the same name replaced: every offset after its start."""


class Position(NamedTuple):
    """Position of a batch in Kafka. Topic id and cluster id as Kafka prints them. `leader_epoch` is that of the
    partition when the batch was written; -1 if unknown. An offset alone does not identify a message: a truncated log
    grows again under a greater epoch."""

    cluster: str
    topic_id: str
    partition: int
    offset: int
    leader_epoch: int = -1

    @property
    def is_future(self) -> bool:
        """True if the answer names only the future position of the batch: no level takes it for an ack."""
        return _is_folder(self.cluster)


@dataclass(frozen=True, slots=True)
class PartitionState:
    """State of one partition as the raw query published it; ranges of offsets are half-open."""

    until: int
    log_start: int
    log_end: int
    lost: tuple[tuple[int, int], ...] = ()
    epochs: tuple[tuple[int, int], ...] = ()
    """(leader epoch, first offset written under it), ascending."""

    def end_of(self, epoch: int) -> int | None:
        """Return the end offset of the messages written under `epoch` or before; None if unknown."""
        if epoch < 0:
            return None
        return next((start for later, start in self.epochs if later > epoch), None)

    @property
    def closed(self) -> bool:
        """True if another topic replaced this one: no more of it will be read."""
        return any(end >= END_OF_LOG for _, end in self.lost)


@dataclass(frozen=True, slots=True)
class AckState:
    """Content of the znode /artimon/acks/<topic_id>; `version` is that of the znode."""

    cluster: str
    topic: str
    topic_id: str
    time_ms: int
    partitions: Mapping[int, PartitionState] = field(default_factory=dict)
    version: int = 0

    def to_json(self) -> bytes:
        """Return the data of the znode."""
        partitions = {str(number): asdict(partition) for number, partition in sorted(self.partitions.items())}
        head = {"cluster": self.cluster, "topic": self.topic, "topic_id": self.topic_id, "time_ms": self.time_ms}
        return json.dumps({**head, "partitions": partitions}).encode()

    @classmethod
    def from_json(cls, data: bytes, version: int = 0) -> AckState:
        """Inverse of `to_json`; ignores unknown keys. Raises ValueError for other data."""
        try:
            parsed = parse_json_object(data)
            partitions = {int(n): _partition(p) for n, p in parsed["partitions"].items()}
            return cls(
                str(parsed["cluster"]),
                str(parsed["topic"]),
                str(parsed["topic_id"]),
                int(parsed["time_ms"]),
                partitions,
                version,
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"invalid ack state: {error!r} in {data[:200]!r}") from error


def _partition(data: Mapping[str, Any]) -> PartitionState:
    lost = tuple((int(a), int(b)) for a, b in data.get("lost", ()))
    epochs = tuple((int(a), int(b)) for a, b in data.get("epochs", ()))
    return PartitionState(int(data["until"]), int(data["log_start"]), int(data["log_end"]), lost, epochs)


class SentBatch(NamedTuple, Generic[Key]):
    """A batch that has an offset. `since` is the version of the ack state at the first check of this offset; None
    before that check."""

    key: Key
    position: Position
    checked_version: int | None = None


@dataclass(frozen=True, slots=True)
class AckDecision(Generic[Key]):
    """Outcome of `decide_acks`. A batch in none of the lists keeps waiting."""

    acked: tuple[Key, ...] = ()
    resend: tuple[tuple[Key, str], ...] = ()
    """Keys with the evidence of loss."""
    checked: tuple[tuple[Key, int], ...] = ()
    """Keys with the value of their `since` from now on."""


WAIT, ACKED = "", "acked"


def decide_acks(sent: Iterable[SentBatch[Key]], states: Mapping[str, AckState], topic: str) -> AckDecision[Key]:
    """Compare batches with the published states by topic id; `topic` is the name of the topic of the batches.

    Precondition: `sent` was collected before the states were read."""
    acked, resend, looked = [], [], []
    for key, position, since in sent:
        state = states.get(position.topic_id)
        outcome = (
            _decide_with_state(position, since, state)
            if state
            else _decide_without_state(position, since, states, topic)
        )
        if outcome == ACKED:
            acked.append(key)
        elif outcome != WAIT:
            resend.append((key, outcome))
        else:
            version = _newest_version(position, states, topic)
            if version is not None and (since is None or version < since):  # versions fall if ZooKeeper was wiped
                looked.append((key, version))
    return AckDecision(tuple(acked), tuple(resend), tuple(looked))


def _decide_with_state(position: Position, since: int | None, state: AckState) -> str:
    partition = state.partitions.get(position.partition)
    if partition is None:  # added to the topic after the raw query began it
        lost = bool(state.partitions) and _is_confirmed(since, state)
        return f"partition {position.partition} of topic {state.topic_id} is not read" if lost else WAIT
    offset, end = position.offset, partition.end_of(position.leader_epoch)
    if end is not None and offset >= end:
        return (
            f"log of partition {position.partition} was truncated at {end} after epoch {position.leader_epoch},"
            f" not above offset {offset}"
        )
    if any(start <= offset < end for start, end in partition.lost):
        return f"offset {offset} of partition {position.partition} is lost, says the raw table"
    if partition.epochs and position.leader_epoch > partition.epochs[-1][0]:
        # `until` belongs to a log that was truncated since: its present messages were written after that read
        return f"the log that epoch {position.leader_epoch} wrote was never read" if partition.closed else WAIT
    if offset < partition.until:
        return ACKED
    if partition.log_start > offset:
        return f"log of partition {position.partition} starts at {partition.log_start}, above offset {offset}"
    if partition.log_end <= offset and _is_confirmed(since, state):
        return f"log of partition {position.partition} ends at {partition.log_end}, not above offset {offset}"
    return WAIT


def _decide_without_state(position: Position, since: int | None, states: Mapping[str, AckState], topic: str) -> str:
    """Outcome for a topic id without a state: lost if another id of the same topic is being read, else wait."""
    for state in _states_of_topic(position, states, topic):
        if _is_confirmed(since, state):
            return f"topic {topic} is now {state.topic_id}; {position.topic_id} was never read"
    return WAIT


def _states_of_topic(position: Position, states: Mapping[str, AckState], topic: str) -> list[AckState]:
    """Return the states that are evidence for a position whose own topic id has none.

    Kafka: the states of topics of the same name. Collectors that write files: the states of the open streams of the
    same folder only, because many streams coexist there and each is published before it takes a batch."""
    named = [state for state in states.values() if state.topic == topic]
    if _is_folder(position.cluster):
        return [s for s in named if s.cluster == position.cluster and not any(p.closed for p in s.partitions.values())]
    return [state for state in named if not _is_folder(state.cluster)]


def _is_folder(cluster: str) -> bool:
    """True for a folder of collectors that write files (pipeline/collector/hdfs) in place of a Kafka cluster id."""
    return "://" in cluster


def _newest_version(position: Position, states: Mapping[str, AckState], topic: str) -> int | None:
    state = states.get(position.topic_id)
    if state is not None:
        return state.version
    return max((s.version for s in _states_of_topic(position, states, topic)), default=None)


def _is_confirmed(since: int | None, state: AckState) -> bool:
    return since is not None and state.version >= since + FRESH_VERSIONS
