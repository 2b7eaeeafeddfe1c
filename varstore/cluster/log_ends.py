"""Polls Kafka every few seconds for the log ends and leader epochs of the samples topic: from them a shard derives its
missing range, and detects a log that was truncated."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kafka import TopicPartition
from kafka.admin import KafkaAdminClient
from kafka.errors import KafkaError
from kafka.protocol.consumer import OffsetSpec

from artimon.model.clock import SYSTEM_CLOCK, Clock
from artimon.model.topic_spec import MAX_GENERATIONS, generation_number, generations
from artimon.runtime.kafka_access import open_client
from artimon.runtime.leader_epochs import epoch_end_offsets, printed_id
from artimon.runtime.partition_counts import PartitionCounts
from artimon.runtime.supervision import LoopGuard
from varstore.cluster.freshness import partition_number
from varstore.shard.shard import Shard

log = logging.getLogger(__name__)

POLL_S = 2.0
CALM_POLL_S = 5.0
"""Interval while every virtual shard is whole and none lags: a third of the age at which one lags."""
_REQUEST_TIMEOUT_MS = 5_000
_BOOTSTRAP_TIMEOUT_MS = 4_000

OnLogEnds = Callable[[str, Mapping[int, int], float, float], None]
"""Arguments: id of the newest generation of the topic, end of each partition (`partition_number`), times of request and
answer (seconds of the monotonic clock)."""


def log_span(
    kafka: str, topic: str, counts: PartitionCounts | None = None
) -> tuple[str, dict[int, tuple[int, int]], dict[int, int]]:
    """Return the id of the topic's newest generation, [start, end) of each partition, and their leader epochs. Raises
    KafkaError, OSError, and other errors of the client."""
    client, counts = _admin(kafka), counts or PartitionCounts(None)
    try:
        found = _describe_generations(client, generations(topic), counts)[-1]
        epochs = {p["partition_index"]: int(p["leader_epoch"]) for p in found["partitions"]}
        topic_id, starts = _offsets(client, found, OffsetSpec.EARLIEST)
        _, ends = _offsets(client, found, OffsetSpec.LATEST)
    finally:
        client.close()
    spans = {partition: (start, ends[partition]) for partition, start in starts.items()}
    return topic_id, spans, {partition: epoch for partition, epoch in epochs.items() if epoch >= 0}


def _admin(kafka: str) -> Any:
    timeouts: dict[str, Any] = {
        "request_timeout_ms": _REQUEST_TIMEOUT_MS,
        "bootstrap_timeout_ms": _BOOTSTRAP_TIMEOUT_MS,
    }
    return open_client(KafkaAdminClient, bootstrap_servers=kafka, **timeouts)


def _offsets(client: Any, found: Mapping[str, Any], which: OffsetSpec) -> tuple[str, dict[int, int]]:
    wanted = {TopicPartition(found["name"], p["partition_index"]): which for p in found["partitions"]}
    offsets = client.list_partition_offsets(wanted)
    return printed_id(found["topic_id"]), {tp.partition: int(at.offset) for tp, at in offsets.items()}


def _describe_generations(client: Any, names: Sequence[str], counts: PartitionCounts) -> list[dict[str, Any]]:
    """Return those generations of a topic that exist, oldest first, each with the partitions that lanes are spread
    over."""
    described = {one["name"]: one for one in client.describe_topics(list(names))}
    found = [one for name in names if (one := described.get(name)) and not one["error_code"]]
    if not found:
        raise KafkaError(f"topic {names[0]}: error {described.get(names[0], {}).get('error_code')}")
    return [_limit_partitions(one, counts) for one in found]


def _limit_partitions(found: Mapping[str, Any], counts: PartitionCounts) -> dict[str, Any]:
    parts = found["partitions"]
    count = counts.count(found["name"], printed_id(found["topic_id"]), len(parts))
    return {**found, "partitions": [one for one in parts if one["partition_index"] < count]}


def end_of_epoch(client: Any, topic: str, partition: Mapping[str, Any], epoch: int) -> int:
    """Return the end offset of messages written under `epoch` or before; `partition`: as the client describes it now. A
    future epoch belongs to a log that is gone: 0. Raises KafkaError, also if the leader epoch has changed."""
    if epoch > partition["leader_epoch"]:
        return 0
    number, leader, now = partition["partition_index"], partition["leader_id"], partition["leader_epoch"]
    one = {number: leader}, {number: now}, {number: epoch}
    error, end = epoch_end_offsets(client, topic, *one, _REQUEST_TIMEOUT_MS)[number]
    if error:
        raise KafkaError(f"topic {topic}, {number}: end of epoch {epoch}: {error}")
    return end


class LogEnds:
    """Runs a thread between `start` and `stop`. It reports log ends to `saw`, and cuts of the log to `follower`. Kafka
    may be absent at any time."""

    def __init__(
        self,
        kafka: str,
        topic: str,
        saw: OnLogEnds,
        clock: Clock = SYSTEM_CLOCK,
        follower: Shard | None = None,
        counts: PartitionCounts | None = None,
        is_calm: Callable[[], bool] = lambda: False,
    ) -> None:
        """`is_calm`: returns True if nothing waits for the next answer."""
        self._is_calm = is_calm
        self._kafka, self._topic, self._saw, self._clock = kafka, topic, saw, clock
        self._follower, self._counts = follower, counts or PartitionCounts(None)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="log-ends", daemon=True)
        self._client: Any = None
        self._newest = MAX_GENERATIONS
        """Number of the newest generation seen; only its successor can be new."""
        self.topic_ids: tuple[str, ...] = ()
        """Present generations of the topic, newest first; empty while they are unknown."""
        self._loop = LoopGuard(f"ends of topic {topic} at {kafka}")

    @property
    def problem(self) -> str:
        """Reason why the ends are unknown; "" while they are known."""
        return f"{self._loop.name}: {self._loop.problem}" if self._loop.problem else ""

    def start(self) -> None:
        """Start the thread; returns at once."""
        self._thread.start()

    def stop(self, timeout_s: float = 5.0) -> None:
        """Stop the thread."""
        self._stop.set()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        while not self._stop.is_set():
            if not self._loop.attempt(self._poll):
                self._close()
            self._clock.wait(self._stop, CALM_POLL_S if self._is_calm() else POLL_S)
        self._close()

    def _poll(self) -> None:
        if self._client is None:
            self._client = _admin(self._kafka)
        asked_s = self._clock.monotonic()
        found = self._describe()
        ends: dict[int, int] = {}
        topic_ids = []
        for place, one in enumerate(reversed(found)):
            topic_id, of_one = _offsets(self._client, one, OffsetSpec.LATEST)
            topic_ids.append(topic_id)
            ends |= {partition_number(place, partition): end for partition, end in of_one.items()}
        self.topic_ids = tuple(topic_ids)
        self._saw(self.topic_ids[0], ends, asked_s, self._clock.monotonic())
        if self._follower is not None:
            for one in self._describe():
                self._follow_epochs(self._follower, one)

    def _describe(self) -> list[dict[str, Any]]:
        found = _describe_generations(self._client, generations(self._topic)[: self._newest + 1], self._counts)
        self._newest = generation_number(self._topic, found[-1]["name"])
        return found

    def _follow_epochs(self, follower: Shard, found: Mapping[str, Any]) -> None:
        topic_id = printed_id(found["topic_id"])
        partitions = {p["partition_index"]: p for p in found["partitions"]}
        now = {number: int(p["leader_epoch"]) for number, p in partitions.items() if p["leader_epoch"] >= 0}
        other = follower.other_epochs(topic_id, now)
        ends = {one: end_of_epoch(self._client, found["name"], partitions[one[0]], one[1]) for one in other}
        follower.follow_epochs(topic_id, now, ends)

    def _close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            try:
                client.close()
            except (KafkaError, OSError, RuntimeError):
                pass
