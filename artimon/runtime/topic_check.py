"""Check of the topics in Kafka, for the commands about topics and for each process before it uses them."""

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
from artimon.runtime.kafka_access import access_text, client_options, open_client

log = logging.getLogger(__name__)

ASK_MS = 10_000
BOOTSTRAP_MS = 15_000
"""Timeout of the first connection: the TLS handshake with a broker that has just started may take seconds."""
RETRY_S = 5.0
UNFIT_EXIT = 3
"""Exit code of a process that found an unusable topic."""


class TopicsUnknown(RuntimeError):
    """Kafka cannot be queried now. The text gives address and reason."""


class TopicsUnfit(RuntimeError):
    """Topics that the process needs are missing or misconfigured. The text names them and the remedy."""


def open_admin(bootstrap: str, options: dict[str, Any] | None = None) -> Any:
    """Open an admin client; `options` replace the security options of this process. Raises TopicsUnknown."""
    access = client_options() if options is None else options
    timeouts = {"request_timeout_ms": ASK_MS, "bootstrap_timeout_ms": BOOTSTRAP_MS}
    try:
        return open_client(KafkaAdminClient, access, bootstrap_servers=bootstrap, **timeouts)
    except (KafkaError, OSError, RuntimeError, ValueError) as error:
        why = f"{access_text(access)}: {type(error).__name__}: {error}"
        raise TopicsUnknown(f"Kafka at {bootstrap} {why}") from error


def find_topics(admin: Any, names: Iterable[str]) -> dict[str, Found]:
    """Describe the topics that exist. Raises KafkaError, OSError."""
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
    """Return the generation of a topic that is written to; None if the topic does not exist."""
    found = find_topics(admin, generations(base))
    return next((found[name] for name in reversed(generations(base)) if name in found), None)


def brokers_of(admin: Any) -> list[int]:
    """Return the ids of the live brokers."""
    return sorted(int(one["broker_id"]) for one in admin.describe_cluster()["brokers"])


def check_topics(bootstrap: str, wanted: Sequence[Topic], options: dict[str, Any] | None = None) -> list[Difference]:
    """Return all differences. Only the newest generation of a topic is checked. Raises TopicsUnknown."""
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
    """Return the required settings of the topics that a process uses, without partitions and replication."""
    kept = []
    for topic in platform_topics(prefix):
        if topic.name.removeprefix(f"{prefix}.") in names:
            needed = {key: value for key, value in topic.config.items() if key in topic.vital}
            kept.append(Topic(topic.name, 0, needed, 0, topic.why, topic.vital))
    return tuple(kept)


def check_relied_on(bootstrap: str, topics: Sequence[Topic]) -> None:
    """Check that a process can use these topics. Raises TopicsUnfit, TopicsUnknown."""
    found = vital(check_topics(bootstrap, topics))
    if found:
        raise TopicsUnfit(f"Kafka at {bootstrap}: " + "; ".join(map(str, found)))


class TopicCheck:
    """Thread that checks the topics of a process and retries until Kafka answers. It waits for missing topics;
    a misconfigured topic is final.

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
        """Reason of the last failed attempt."""
        self._unfit: TopicsUnfit | None = None

    def start(self, stop: threading.Event) -> None:
        """Start the thread."""
        threading.Thread(target=self.run, args=(stop,), name="topic-check", daemon=True).start()

    def run(self, stop: threading.Event) -> None:
        """Check until the topics are known or `stop` is set."""
        while not stop.is_set() and not self._turn():
            self._clock.wait(stop, RETRY_S)

    def raise_unfit(self) -> None:
        """Raise TopicsUnfit if a misconfigured topic was found."""
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
