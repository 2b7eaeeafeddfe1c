"""Asks Kafka what the topics are: for the commands about topics, and for each process before it relies on them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient
from kafka.errors import KafkaError

from artimon.model.clock import SYSTEM_CLOCK, Clock
from artimon.model.topic_spec import (
    Difference,
    Found,
    Topic,
    differences,
    generations,
    missing,
    platform_topics,
    vital,
)
from artimon.runtime.kafka_access import access_text, client_options

log = logging.getLogger(__name__)

ASK_MS = 10_000
BOOTSTRAP_MS = 15_000
"""The first handshake with a broker that has just started may take seconds over TLS."""
RETRY_S = 5.0
UNFIT_EXIT = 3
"""Exit code of a process that found a topic it cannot work with."""


class TopicsUnknown(RuntimeError):
    """Kafka cannot be asked now. The text says where and why."""


class TopicsUnfit(RuntimeError):
    """Topics that the process relies on are missing or set wrongly. The text says which and what mends them."""


def open_admin(bootstrap: str, options: dict[str, Any] | None = None) -> Any:
    """A client for administration; `options`: instead of this process's own access. Raises TopicsUnknown."""
    access = client_options() if options is None else options
    timeouts = {"request_timeout_ms": ASK_MS, "bootstrap_timeout_ms": BOOTSTRAP_MS}
    try:
        return KafkaAdminClient(bootstrap_servers=bootstrap, **timeouts, **access)
    except (KafkaError, OSError, RuntimeError, ValueError) as error:
        why = f"{access_text(access)}: {type(error).__name__}: {error}"
        raise TopicsUnknown(f"Kafka at {bootstrap} {why}") from error


def find_topics(admin: Any, names: Iterable[str]) -> dict[str, Found]:
    """Those of the topics that exist. Raises KafkaError, OSError."""
    described = {one["name"]: one for one in admin.describe_topics(list(names)) if not one["error_code"]}
    if not described:
        return {}
    resources = [ConfigResource(ConfigResourceType.TOPIC, name) for name in described]
    configs = admin.describe_configs(resources, config_filter="all")["topic"]
    found = {}
    for name, topic in described.items():
        parts = topic["partitions"]
        replicas = {p["partition_index"]: tuple(p["replica_nodes"]) for p in parts}
        values = {key: str(one["value"]) for key, one in configs[name].items()}
        found[name] = Found(name, len(parts), replicas, values)
    return found


def newest_generation(admin: Any, base: str) -> Found | None:
    """The generation of a topic that is written to; None if there is none."""
    found = find_topics(admin, generations(base))
    return next((found[name] for name in reversed(generations(base)) if name in found), None)


def brokers_of(admin: Any) -> list[int]:
    """Ids of the brokers that are up."""
    return sorted(int(one["broker_id"]) for one in admin.describe_cluster()["brokers"])


def check_topics(bootstrap: str, wanted: Sequence[Topic], options: dict[str, Any] | None = None) -> list[Difference]:
    """All differences. A topic of samples is checked in its newest generation. Raises TopicsUnknown."""
    admin = open_admin(bootstrap, options)
    try:
        told: list[Difference] = []
        for topic in wanted:
            real = newest_generation(admin, topic.name)
            told += [missing(topic.name)] if real is None else differences(topic, real, bootstrap)
        return told
    except (KafkaError, OSError, RuntimeError, KeyError, IndexError) as error:
        raise TopicsUnknown(f"Kafka at {bootstrap} does not describe topics: {error!r}") from error
    finally:
        admin.close()


def relied_on(prefix: str, names: Iterable[str]) -> tuple[Topic, ...]:
    """Settings of topics that a process relies on, without sizes and copies."""
    kept = []
    for topic in platform_topics(prefix):
        if topic.name.removeprefix(f"{prefix}.") in names:
            needed = {key: value for key, value in topic.config.items() if key in topic.vital}
            kept.append(Topic(topic.name, 0, needed, 0, topic.why, topic.vital))
    return tuple(kept)


def check_relied_on(bootstrap: str, topics: Sequence[Topic]) -> None:
    """Raises TopicsUnfit, TopicsUnknown."""
    found = vital(check_topics(bootstrap, topics))
    if found:
        raise TopicsUnfit(f"Kafka at {bootstrap}: " + "; ".join(map(str, found)))


class TopicCheck:
    """Checks in a thread what a process relies on, again and again until Kafka answers. A missing topic is waited for;
    one that is set wrongly is final.

    Locks: none; each attribute is written by the thread only."""

    def __init__(
        self,
        bootstrap: str,
        topics: Sequence[Topic],
        clock: Clock = SYSTEM_CLOCK,
        check: Callable[[str, Sequence[Topic]], list[Difference]] = check_topics,
    ) -> None:
        self._bootstrap, self._topics, self._clock, self._check = bootstrap, topics, clock, check
        self.problem = ""
        """Reason of the last fruitless attempt."""
        self._unfit: TopicsUnfit | None = None

    def start(self, stop: threading.Event) -> None:
        """Begin; returns at once."""
        threading.Thread(target=self.run, args=(stop,), name="topic-check", daemon=True).start()

    def run(self, stop: threading.Event) -> None:
        """Until the topics are known, or `stop`."""
        while not stop.is_set() and not self._turn():
            self._clock.wait(stop, RETRY_S)

    def raise_unfit(self) -> None:
        """Raises TopicsUnfit once a topic was found to be set wrongly."""
        if self._unfit is not None:
            raise self._unfit

    def _turn(self) -> bool:
        try:
            found = vital(self._check(self._bootstrap, self._topics))
        except TopicsUnknown as error:
            return self._wait_for(str(error))
        absent = [one for one in found if one == missing(one.topic)]
        wrong = [one for one in found if one not in absent]
        if wrong:
            self._unfit = TopicsUnfit(f"Kafka at {self._bootstrap}: " + "; ".join(map(str, wrong)))
        if absent and not wrong:
            return self._wait_for("; ".join(map(str, absent)))
        self.problem = ""
        return True

    def _wait_for(self, problem: str) -> bool:
        if problem != self.problem:
            log.warning("topics are not checked yet: %s", problem)
        self.problem = problem
        return False
