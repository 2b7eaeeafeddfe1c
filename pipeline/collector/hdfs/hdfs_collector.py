"""Process of a collector that writes received batches to its own files, on HDFS or on this machine."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated

from artimon.model.clock import SYSTEM_CLOCK, Clock
from artimon.runtime.exposure import UnprotectedError
from artimon.runtime.health import Publish, unpublished
from artimon.runtime.process_options import Health, Insecure, ListenHost, ListenPort, Option, Zookeeper
from artimon.runtime.supervision import LoopGuard
from artimon.runtime.zookeeper_client import zookeeper_client
from pipeline.collector.collector import Collector
from pipeline.collector.collector_process import HEALTH_S, CollectorId, server_of
from pipeline.collector.collector_service import CollectorService
from pipeline.collector.hdfs.file_names import Scheme, stream_name
from pipeline.collector.hdfs.hdfs_writer import HdfsWriter
from pipeline.collector.hdfs.stream import Stream
from pipeline.collector.hdfs.stream_state import RollConfig
from pipeline.collector.hdfs.stream_sweeper import OWNER_GRACE_S, StreamSweeper
from pipeline.collector.notice_board import NoticeBoard
from pipeline.rolling_files.file_store import open_store

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class HdfsCollectorConfig:
    """`folder`: hdfs://HOST:PORT/folder or file:///folder. `scan_s`: interval of the sweeps for dead collectors, 0:
    twice the time of a roll. `stop_s`: time limit to finish the file at a stop."""

    id: CollectorId
    zookeeper: Zookeeper
    folder: Annotated[
        str,
        Option(
            "With --store hdfs: hdfs://HOST:PORT/folder, or file:///folder.",
            default_of=lambda place: f"{place.hdfs}/artimon/batches",
        ),
    ]
    scheme: Annotated[
        Scheme, Option("With --store hdfs: acked when its file is closed, or when its durable length covers it.")
    ] = Scheme.ROLL
    roll: RollConfig = field(default_factory=RollConfig)
    host: ListenHost = "127.0.0.1"
    port: ListenPort = 0
    insecure: Insecure = False
    health: Health = None
    topic_prefix: str = "artimon"
    scan_s: float = 0.0
    grace_s: float = OWNER_GRACE_S
    sync_s: float = 1.0
    stop_s: float = 10.0


def run_hdfs_collector(
    config: HdfsCollectorConfig, stop: threading.Event, clock: Clock = SYSTEM_CLOCK, publish: Publish = unpublished
) -> None:
    """Serve until `stop`; raises OSError if the port is taken, ValueError for an invalid folder. The store and
    ZooKeeper may be unavailable at any time, also at the start."""
    store = open_store(config.folder)
    zookeeper = zookeeper_client(config.zookeeper)

    def begin(changed: Callable[[], None]) -> Stream:
        name = stream_name(config.id, clock.now_ms(), random.getrandbits(32))
        topic = f"{config.topic_prefix}.samples"
        return Stream(store, name, topic, clock, changed, config.scheme, config.roll, config.sync_s)

    broker = HdfsWriter(store, config.topic_prefix, zookeeper, begin, clock)
    collector, board = Collector(broker, config.topic_prefix, clock), NoticeBoard(zookeeper, clock)
    try:
        server = server_of(collector, config, clock, board)
        service = CollectorService(server, config, zookeeper, clock, publish, store=store.uri)
    except (OSError, UnprotectedError):
        broker.close(0.0)
        raise
    log.info("collector %s writes to %s", config.id, store.uri)

    def own() -> dict[str, Collection[str]]:
        return {broker.stream.name: broker.stream.open_names()}

    sweeper = StreamSweeper(store, zookeeper, config.id, own, clock, config.grace_s)
    every_s, turns = config.scan_s or 2 * config.roll.seconds, LoopGuard("sweep")

    def sweep() -> None:
        while not clock.wait(stop, every_s):
            turns.attempt(sweeper.sweep)

    sweeping = threading.Thread(target=sweep, name="sweep", daemon=True)
    try:
        sweeping.start()
        board.start()
        _report_health(collector, broker, service, board, stop, clock)
    finally:
        board.stop()
        service.stop(partial(broker.close, config.stop_s))


def _report_health(
    collector: Collector,
    broker: HdfsWriter,
    service: CollectorService,
    board: NoticeBoard,
    stop: threading.Event,
    clock: Clock,
) -> None:
    """Report health until `stop`; register the collector once positions may be given out."""
    registering = False
    while not stop.is_set():
        broker.replace_exhausted()
        board.expire()
        if not registering and not broker.starting:
            service.registration.start()
            registering = True
        state = "ok" if registering else "starting"
        service.report(state, [broker.problem], **collector.figures(), direct=broker.figures())
        clock.wait(stop, HEALTH_S if registering else 0.1)
