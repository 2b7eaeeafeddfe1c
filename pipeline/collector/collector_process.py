"""Process of a collector that writes to Kafka: its server with all limits, its registration, its health."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from typing import Annotated

from artimon.model.clock import SYSTEM_CLOCK, Clock
from artimon.runtime.health import Publish, unpublished
from artimon.runtime.partition_counts import confirmed_partitions
from artimon.runtime.process_options import (
    Health,
    Insecure,
    Kafka,
    KafkaQuota,
    ListenHost,
    ListenPort,
    Zookeeper,
    process_name,
)
from artimon.runtime.process_setup import raise_limit
from artimon.runtime.settings import security
from artimon.runtime.topic_check import TopicCheck, required_topics
from artimon.runtime.zookeeper_client import zookeeper_client
from pipeline.collector.collector import FRAME_BYTES, MAX_BYTES_IN_FLIGHT, Collector
from pipeline.collector.collector_handler import CollectorHandler
from pipeline.collector.collector_service import CollectorService, ServiceSettings
from pipeline.collector.kafka_quota import KafkaQuotaGate, measure_until
from pipeline.collector.kafka_writer import KafkaWriteError, KafkaWriter
from pipeline.collector.link_server import LinkServer
from pipeline.collector.notice_board import NoticeBoard
from pipeline.collector.server_connection import ConnectionLimits
from pipeline.link.idl import collector_idl

log = logging.getLogger(__name__)

HEALTH_S = 1.0
"""Interval of the health reports in seconds."""
MAX_CONNECTIONS = 8_192
"""Most connections, one an agent; fewer if the limit of open files is lower."""
SPARE_FILES = 256
"""Descriptors for files and for connections to Kafka, ZooKeeper and pollers."""
_KAFKA_RETRY_S = 2.0
REQUIRED_TOPICS = ("samples", "series")
"""Topics that a collector checks at its start; events are not used everywhere."""


CollectorId = Annotated[str, process_name("Name of this collector.", usual="collector-0")]


@dataclass(frozen=True, slots=True)
class CollectorConfig:
    """`id`: unique name of this collector. `kafka`: host:port, may be a comma list. `port` 0: any free port."""

    id: CollectorId
    zookeeper: Zookeeper
    kafka: Kafka
    host: ListenHost = "127.0.0.1"
    port: ListenPort = 0
    insecure: Insecure = False
    health: Health = None
    topic_prefix: str = "artimon"
    quota_bytes: KafkaQuota = 0
    """Quota of the topic of samples in bytes; 0: none."""


def server_of(
    collector: Collector,
    place: ServiceSettings,
    clock: Clock = SYSTEM_CLOCK,
    board: NoticeBoard | None = None,
) -> LinkServer:
    """Build the server of a collector with all its limits; it is not started. `board`: notices for agents."""
    limits = ConnectionLimits(max_frame=FRAME_BYTES)
    handler = CollectorHandler(collector, limits.calls, board, clock)
    return LinkServer(
        collector_idl().Collector,
        handler,
        place.host,
        place.port,
        max_connections=min(MAX_CONNECTIONS, raise_limit(SPARE_FILES)),
        budget=MAX_BYTES_IN_FLIGHT,
        limits=limits,
        security=security(),
        name=f"collector-{place.id}",
        on_stop=handler.stop,
    )


def run_collector(
    config: CollectorConfig, stop: threading.Event, clock: Clock = SYSTEM_CLOCK, publish: Publish = unpublished
) -> None:
    """Serve until `stop`; raises OSError if the port is taken, TopicsUnfitError if a topic has wrong settings. Kafka
    and ZooKeeper may be unavailable at any time, also at the start."""
    zookeeper, topic = zookeeper_client(config.zookeeper), f"{config.topic_prefix}.samples"
    broker, quota = (
        KafkaWriter(config.kafka, clock, confirmed_partitions(zookeeper)),
        KafkaQuotaGate(config.quota_bytes, clock),
    )
    board = NoticeBoard(zookeeper, clock)
    collector = Collector(broker, config.topic_prefix, clock, quota)
    server = server_of(collector, config, clock, board)
    service = CollectorService(server, config, zookeeper, clock, publish)
    check = TopicCheck(config.kafka, required_topics(config.topic_prefix, REQUIRED_TOPICS), clock)
    try:
        if _wait_for_kafka(broker, quota, topic, stop, service, clock):
            check.start(stop)
            service.registration.start()
            board.start()
            measuring = (quota, lambda: broker.log_sizes(topic), stop, clock)
            threading.Thread(target=measure_until, args=measuring, name="quota", daemon=True).start()
            while not stop.is_set():
                check.raise_unfit()
                board.expire()
                service.report("ok", [quota.problem, broker.problem, check.problem], **collector.figures())
                clock.wait(stop, HEALTH_S)
    finally:
        board.stop()
        service.stop(broker.close)


def _wait_for_kafka(
    broker: KafkaWriter,
    quota: KafkaQuotaGate,
    topic: str,
    stop: threading.Event,
    service: CollectorService,
    clock: Clock,
) -> bool:
    """Wait until Kafka describes the topic and its size; False on `stop`. Until then the collector is not
    registered."""
    while not stop.is_set():
        try:
            broker.describe_topic(topic)
            quota.measure(lambda: broker.log_sizes(topic))
            if quota.is_measured:
                return True
            problem = f"{quota.failure} (it needs Describe on the cluster; ARTIMON_KAFKA_QUOTA=0 means no quota)"
        except KafkaWriteError as error:
            problem = str(error)
        log.warning("collector %s waits: %s", service.id, problem)
        service.health.write("starting", problem)
        clock.wait(stop, _KAFKA_RETRY_S)
    return False
