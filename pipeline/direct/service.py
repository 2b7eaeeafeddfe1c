"""The process: a collector that keeps what it is sent in files of its own, on HDFS or on this machine."""

from __future__ import annotations

import json
import logging
import os
import random
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path

from artimon.model.clock import SYSTEM_CLOCK, Clock
from artimon.model.health import HealthFile, Publish, unpublished
from artimon.model.registration import Registration, zookeeper_client
from artimon.settings import security
from bookkeeper.framed import FramedServer
from pipeline.collector import FRAME_BYTES, HELD_BYTES, MAX_CONNECTIONS, Collector
from pipeline.collectors import COLLECTORS_PATH
from pipeline.direct.broker import DirectBroker
from pipeline.direct.names import Scheme, stream_name
from pipeline.direct.roll import RollConfig
from pipeline.direct.store import open_store
from pipeline.direct.stream import Stream
from pipeline.direct.sweep import GRACE_S, SWEEP_FAILURES, Sweeper
from pipeline.idl import collector_idl

log = logging.getLogger(__name__)

_HEALTH_S = 1.0


@dataclass(frozen=True, slots=True)
class DirectConfig:
    """`folder`: hdfs://HOST:PORT/folder or file:///folder. `scan_s`: how often to look for what dead collectors left,
    0: for twice the time of a roll. `stop_s`: how long a stop may take to finish the file."""

    id: str
    zookeeper: str
    folder: str
    scheme: Scheme = Scheme.ROLL
    roll: RollConfig = field(default_factory=RollConfig)
    host: str = "127.0.0.1"
    port: int = 0
    health: Path | None = None
    topic_prefix: str = "artimon"
    scan_s: float = 0.0
    grace_s: float = GRACE_S
    sync_s: float = 1.0
    stop_s: float = 10.0


def run_direct_collector(
    config: DirectConfig, stop: threading.Event, clock: Clock = SYSTEM_CLOCK, publish: Publish = unpublished
) -> None:
    """Serve until `stop`; raises OSError if the port is taken, ValueError for a folder that is none. The store and
    ZooKeeper may come, go and come back."""
    store = open_store(config.folder)
    zookeeper = zookeeper_client(config.zookeeper)

    def begin(changed: Callable[[], None]) -> Stream:
        name = stream_name(config.id, clock.now_ms(), random.getrandbits(32))
        topic = f"{config.topic_prefix}.samples"
        return Stream(store, name, topic, clock, changed, config.scheme, config.roll, config.sync_s)

    broker = DirectBroker(store, config.topic_prefix, zookeeper, begin, clock)
    collector = Collector(broker, config.topic_prefix, clock)
    server = FramedServer(
        collector_idl().Collector,
        collector,
        config.host,
        config.port,
        max_frame=FRAME_BYTES,
        max_connections=MAX_CONNECTIONS,
        budget=HELD_BYTES,
        name=f"collector-{config.id}",
        security=security(),
    )
    try:
        port = server.start()
    except OSError as error:
        broker.close(0.0)
        where = f"{config.host}:{config.port}"
        raise OSError(error.errno, f"collector {config.id} cannot listen on {where}: {error.strerror}") from error
    data = json.dumps({"host": config.host, "port": port, "pid": os.getpid(), "store": store.uri}).encode()
    registration = Registration(zookeeper, f"{COLLECTORS_PATH}/{config.id}", data)
    log.info("collector %s serves on %s:%d and writes to %s", config.id, config.host, port, store.uri)

    def own() -> dict[str, Collection[str]]:
        return {broker.stream.name: broker.stream.in_use()}

    sweeper = Sweeper(store, zookeeper, config.id, own, clock, config.grace_s)
    sweeping = threading.Thread(
        target=_sweep, args=(sweeper, config.scan_s or 2 * config.roll.seconds, stop, clock), name="sweep", daemon=True
    )
    try:
        zookeeper.start_async()
        sweeping.start()
        _watch(
            collector,
            broker,
            registration,
            port,
            stop,
            HealthFile(config.health, f"collector-{config.id}", clock, publish),
            clock,
        )
    finally:
        registration.stop(2.0)
        server.stop(2.0)
        broker.close(config.stop_s)
        zookeeper.stop()
        zookeeper.close()


def _watch(
    collector: Collector,
    broker: DirectBroker,
    registration: Registration,
    port: int,
    stop: threading.Event,
    health: HealthFile,
    clock: Clock,
) -> None:
    """Agents are told of this collector once positions may be given out."""
    registering = False
    while not stop.is_set():
        broker.renew()
        if not registering and not broker.starting:
            registration.start()
            registering = True
        problems = [broker.problem] if broker.problem else []
        problem = "" if registration.registered else "not registered in ZooKeeper: agents that start now do not find us"
        if registration.conflict:
            problem = "another collector is registered under this id"
        health.write(
            "ok" if registering else "starting",
            problem,
            port=port,
            problems=problems,
            **collector.figures(),
            direct=broker.figures(),
        )
        clock.wait(stop, _HEALTH_S if registering else 0.1)


def _sweep(sweeper: Sweeper, every_s: float, stop: threading.Event, clock: Clock) -> None:
    """Until `stop`."""
    while not clock.wait(stop, every_s):
        try:
            sweeper.turn()
        except SWEEP_FAILURES as error:
            log.warning("sweep: %s: %s", type(error).__name__, error)
        except Exception:  # what is left behind would stay for ever
            log.exception("sweep")
