"""Check of the topics in Kafka, for the commands about topics and for each process before it uses them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from typing import Any

from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient
from kafka.errors import KafkaError

from artimon.model.clock import SYSTEM_CLOCK, Clock
from artimon.model.topic_spec import (
    Difference,
    ExistingTopic,
    TopicSpec,
    differences,
    generations,
    missing_topic,
    platform_topics,
    vital,
)
from artimon.runtime.kafka_access import client_options, describe_access, open_client

log = logging.getLogger(__name__)

REQUEST_TIMEOUT_MS = 10_000
BOOTSTRAP_TIMEOUT_MS = 15_000
"""Timeout of the first connection: the TLS handshake with a broker that has just started may take seconds."""
FIRST_RETRY_S = 0.25
RETRY_S = 5.0
"""First and longest pause between two attempts: a process that starts beside Kafka waits only a short time for it."""
UNFIT_EXIT = 3
"""Exit code of a process that found an unusable topic."""


class TopicsUnknownError(RuntimeError):
    """Kafka cannot be queried now. The text gives address and reason."""


class TopicsUnfitError(RuntimeError):
    """Topics that the process needs are missing or misconfigured. The text names them and the remedy."""


def open_admin(bootstrap: str, options: dict[str, Any] | None = None) -> Any:
    """Open an admin client; `options` replace the security options of this process. Raises TopicsUnknownError."""
    access = client_options() if options is None else options
    timeouts = {"request_timeout_ms": REQUEST_TIMEOUT_MS, "bootstrap_timeout_ms": BOOTSTRAP_TIMEOUT_MS}
    try:
        return open_client(KafkaAdminClient, access, bootstrap_servers=bootstrap, **timeouts)
    except (KafkaError, OSError, RuntimeError, ValueError) as error:
        why = f"{describe_access(access)}: {type(error).__name__}: {error}"
        raise TopicsUnknownError(f"Kafka at {bootstrap} {why}") from error


def describe_topics(admin: Any, names: Iterable[str]) -> dict[str, ExistingTopic]:
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
        found[name] = ExistingTopic(name, len(parts), replicas, values)
    return found


def newest_generation(admin: Any, base: str) -> ExistingTopic | None:
    """Return the generation of a topic that is written to; None if the topic does not exist."""
    found = describe_topics(admin, generations(base))
    return next((found[name] for name in reversed(generations(base)) if name in found), None)


def list_brokers(admin: Any) -> list[int]:
    """Return the ids of the live brokers."""
    return sorted(int(one["broker_id"]) for one in admin.describe_cluster()["brokers"])


def check_topics(
    bootstrap: str, wanted: Sequence[TopicSpec], options: dict[str, Any] | None = None
) -> list[Difference]:
    """Return all differences. Only the newest generation of a topic is checked. Raises TopicsUnknownError."""
    told: list[Difference] = []
    with closing(open_admin(bootstrap, options)) as admin:
        try:
            for topic in wanted:
                real = newest_generation(admin, topic.name)
                told += [missing_topic(topic.name)] if real is None else differences(topic, real, bootstrap)
        except (KafkaError, OSError, RuntimeError, KeyError, IndexError) as error:
            raise TopicsUnknownError(f"Kafka at {bootstrap} does not describe topics: {error!r}") from error
    return told


def required_topics(prefix: str, names: Iterable[str]) -> tuple[TopicSpec, ...]:
    """Return the required settings of the topics that a process uses, without partitions and replication."""
    kept = []
    for topic in platform_topics(prefix):
        if topic.name.removeprefix(f"{prefix}.") in names:
            needed = {key: value for key, value in topic.config.items() if key in topic.vital}
            kept.append(TopicSpec(topic.name, 0, needed, 0, topic.reasons, topic.vital))
    return tuple(kept)


def check_required_topics(bootstrap: str, topics: Sequence[TopicSpec]) -> None:
    """Check that a process can use these topics. Raises TopicsUnfitError, TopicsUnknownError."""
    found = vital(check_topics(bootstrap, topics))
    if found:
        raise TopicsUnfitError(f"Kafka at {bootstrap}: " + "; ".join(map(str, found)))


class TopicCheck:
    """Thread that checks the topics of a process and retries until Kafka answers. It waits for missing topics;
    a misconfigured topic is final.

    Locks: none; each attribute is written by the thread only."""

    def __init__(
        self,
        bootstrap: str,
        topics: Sequence[TopicSpec],
        clock: Clock = SYSTEM_CLOCK,
        check: Callable[[str, Sequence[TopicSpec]], list[Difference]] = check_topics,
    ) -> None:
        self._bootstrap, self._topics, self._clock, self._check = bootstrap, topics, clock, check
        self.problem = ""
        """Reason of the last failed attempt."""
        self._unfit: TopicsUnfitError | None = None

    def start(self, stop: threading.Event) -> None:
        threading.Thread(target=self.run, args=(stop,), name="topic-check", daemon=True).start()

    def run(self, stop: threading.Event) -> None:
        """Check until the topics are known or `stop` is set."""
        pause = FIRST_RETRY_S
        while not stop.is_set() and not self._check_once():
            self._clock.wait(stop, pause)
            pause = min(2 * pause, RETRY_S)

    def raise_unfit(self) -> None:
        """Raise TopicsUnfitError if a misconfigured topic was found."""
        if self._unfit is not None:
            raise self._unfit

    def _check_once(self) -> bool:
        try:
            found = vital(self._check(self._bootstrap, self._topics))
        except TopicsUnknownError as error:
            return self._note_problem(str(error))
        absent = [one for one in found if one == missing_topic(one.topic)]
        wrong = [one for one in found if one not in absent]
        if wrong:
            self._unfit = TopicsUnfitError(f"Kafka at {self._bootstrap}: " + "; ".join(map(str, wrong)))
        if absent and not wrong:
            return self._note_problem("; ".join(map(str, absent)))
        self.problem = ""
        return True

    def _note_problem(self, problem: str) -> bool:
        if problem != self.problem:
            log.warning("topics are not checked yet: %s", problem)
        self.problem = problem
        return False
