"""Generations of the topic of samples (artimon/model/topic_spec.py): the table reads them in turn, each to its
end."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from artimon.model.clock import Clock
from artimon.model.topic_spec import SEALED_BYTES
from artimon.rawtable.table_state import RawState, TopicState, begins_topic
from artimon.runtime.partition_counts import altered_message
from pipeline.spark.topic_client import TopicClient, TopicInfo

log = logging.getLogger(__name__)

SEAL_DELAY_S = 10.0
"""Seconds after which a seal is known to all leaders: the topic takes no more writes."""


class SealTracker:
    """Remembers since when topics refuse every write. Not thread-safe."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since: dict[str, float] = {}
        """Topic id -> first sight of its seal (monotonic clock)."""

    def is_set(self, topic: TopicClient) -> bool:
        """Return True if Kafka says that the topic is sealed. Raises TopicError."""
        return topic.settings().get("max.message.bytes") == str(SEALED_BYTES)

    def is_effective(self, topic: TopicClient, info: TopicInfo) -> bool:
        """Return True if all leaders know the seal, so that no more messages come. Raises TopicError."""
        if not self.is_set(topic):
            self._since.pop(info.topic_id, None)
            return False
        now = self._clock.monotonic()
        return now - self._since.setdefault(info.topic_id, now) >= SEAL_DELAY_S


class Succession:
    """Decides when the table switches from one generation to the next. For one thread; `problem` may be read from
    any."""

    def __init__(self, clock: Clock) -> None:
        self._seals = SealTracker(clock)
        self._altered = self._unsealed = ""

    @property
    def problem(self) -> str:
        """Message for operators about the topic that is read; "" if there is none."""
        return self._altered or self._unsealed

    def limited_to_begun(self, state: RawState, info: TopicInfo) -> TopicInfo:
        """Return the topic with the partitions that the table began it with: no lane goes to partitions added later."""
        partitions = len(state.until())
        if begins_topic(state, info.topic_id) or info.partitions <= partitions:
            self._altered = ""
            return info
        self._altered = altered_message(info.topic, info.partitions, partitions)
        log.error("raw: %s", self._altered)
        return info.limited(partitions)

    def successor(
        self, topic: TopicClient, info: TopicInfo, state: RawState, ends: Mapping[int, int]
    ) -> TopicInfo | None:
        """Return the generation to switch to. None if this one is the newest, takes writes, or was not read to `ends`,
        the ends of its log. Raises TopicError."""
        after = _after(topic.generations(), info.topic_id)
        self._unsealed = ""
        if not after:
            return None
        if not self._seals.is_set(topic):
            self._unsealed = f"{info.topic} has a newer generation and is not sealed: run `artimon topics grow` again"
        if not self._seals.is_effective(topic, info):
            return None
        until = state.until()
        if not ends or any(until.get(p, 0) < end for p, end in ends.items()):
            return None
        self._altered = ""
        return after[0]


def generation_to_read(state: RawState, found: Sequence[TopicInfo]) -> TopicInfo:
    """Return the generation that the table reads, if it exists, else the oldest that the table has not closed."""
    closed = {topic.topic_id for topic in state.topics[:-1]}
    current = state.current.topic_id if state.current is not None else ""
    open_ = [one for one in found if one.topic_id not in closed]
    return next((one for one in open_ if one.topic_id == current), (open_ or found)[0])


def later_generations(state: RawState, found: Sequence[TopicInfo]) -> list[TopicInfo]:
    """Return the generations that the table reads later."""
    known = {topic.topic_id for topic in state.topics}
    current = state.current.topic_id if state.current is not None else ""
    return [one for one in _after(found, current) if one.topic_id not in known]


def empty_state(info: TopicInfo) -> TopicState:
    """Return the state of a topic of which the table has nothing yet and nothing is lost."""
    return TopicState(info.topic_id, dict.fromkeys(range(info.partitions), 0))


def _after(found: Sequence[TopicInfo], topic_id: str) -> Sequence[TopicInfo]:
    places = [place for place, one in enumerate(found) if one.topic_id == topic_id]
    return found[places[0] + 1 :] if places else []
