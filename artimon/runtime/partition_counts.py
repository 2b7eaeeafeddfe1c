"""Number of partitions for the lanes of a topic: the number at which the raw table began the topic.

Kafka allows partitions to be added to a topic. A lane would then change its partition, and the repeat of a batch would
be in another partition than the first. So the number stays constant; added partitions stay empty.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError

from artimon.model.clock import SYSTEM_CLOCK, Clock

log = logging.getLogger(__name__)

ACKS_PATH = "/artimon/acks"
"""Parent of the ack states that the raw query publishes, by topic id."""
_READ_TIMEOUT_S = 3.0
_RETRY_S = 5.0
"""Pause in seconds between two requests for a topic that the raw table has not begun."""

ConfirmedPartitions = Callable[[str], int | None]
"""Return the partitions of a topic id when the raw table began it; None if not begun or unknown now."""


def confirmed_partitions(zookeeper: KazooClient) -> ConfirmedPartitions:
    """Return confirmed partition counts that read the ack states of the raw query."""

    def pin(topic_id: str) -> int | None:
        try:
            if not zookeeper.connected:
                return None
            data, _ = zookeeper.get_async(f"{ACKS_PATH}/{topic_id}").get(timeout=_READ_TIMEOUT_S)
            return len(json.loads(data)["partitions"]) or None
        except NoNodeError:
            return None
        except (KazooException, KazooTimeoutError, ValueError, KeyError, TypeError) as error:
            log.info("partitions of %s: %r", topic_id, error)
            return None

    return pin


class PartitionCounts:
    """Thread-safe cache of partition counts. Invariant: a count only changes to that of the raw table."""

    def __init__(self, pins: ConfirmedPartitions | None, clock: Clock = SYSTEM_CLOCK) -> None:
        self._confirmed, self._clock = pins, clock
        self._lock = threading.Lock()
        self._counts: dict[str, tuple[int, bool]] = {}
        """Topic id -> partitions, and True if the raw table confirmed them."""
        self._altered: dict[str, str] = {}
        self._asked_at: dict[str, float] = {}

    @property
    def problem(self) -> str:
        """Messages about altered topics; "" if there are none."""
        with self._lock:
            return "; ".join(self._altered.values())

    def count(self, name: str, topic_id: str, described: int) -> int:
        """Return the number of partitions for the lanes of a topic; `described` is the present number in Kafka."""
        with self._lock:
            count, sure = self._counts.get(topic_id, (described, False))
        if not sure and (pinned := self._read_confirmed(topic_id)) is not None:
            count, sure = pinned, True
        count = min(count, described)
        with self._lock:
            self._counts[topic_id] = count, sure
            if count < described and topic_id not in self._altered:
                log.error("%s", altered_message(name, described, count))
                self._altered[topic_id] = altered_message(name, described, count)
        return count

    def _read_confirmed(self, topic_id: str) -> int | None:
        now = self._clock.monotonic()
        if self._confirmed is None or now - self._asked_at.get(topic_id, -_RETRY_S) < _RETRY_S:
            return None
        self._asked_at[topic_id] = now
        return self._confirmed(topic_id)


def altered_message(name: str, described: int, counted: int) -> str:
    """Return the message about an altered topic."""
    return (
        f"{name} was altered to {described} partitions: {counted} are used, because a lane must keep its partition;"
        f" to use more, run `artimon topics grow --partitions N` with N greater than {described}"
    )
