"""The process of one shard: Thrift server, announcements, place in ZooKeeper, health."""

from __future__ import annotations

import json
import logging
import os
import secrets
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NodeExistsError, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError

from artimon.model.clock import SYSTEM_CLOCK, Clock
from artimon.model.grid import DEFAULT_LEVELS, Level
from artimon.model.health import HealthFile, Publish, unpublished
from artimon.model.registration import Registration, zookeeper_client
from artimon.model.routing import ownership
from bookkeeper.framed import FramedServer
from varstore.announcements import Announcements
from varstore.answer import ANSWER_BYTES
from varstore.buckets import DEFAULT_CAPACITY
from varstore.service import ShardService, idl
from varstore.shard import Shard, ShardBroken

log = logging.getLogger(__name__)

MiB = 1 << 20
FEED_BYTES = 64 * MiB
SHARDS_PATH = "/artimon/shards"
VARSTORE_PATH = "/artimon/varstore"
HEALTH_S = 1.0
_ASK_S = 3.0


@dataclass(frozen=True, slots=True)
class ShardConfig:
    """How one shard process runs."""

    id: str
    members: Sequence[str]
    """The shards there are to be; what ZooKeeper says goes before it."""
    zookeeper: str
    kafka: str
    replicas: int = 1
    host: str = "127.0.0.1"
    port: int = 0
    capacity: int = DEFAULT_CAPACITY
    """Series; memory is reserved for them but only used as they come."""
    health: Path | None = None
    topic_prefix: str = "artimon"
    levels: Sequence[Level] = DEFAULT_LEVELS
    max_connections: int = 64


@dataclass(frozen=True, slots=True)
class Membership:
    """Who the shards are to be; `confirmed` by ZooKeeper, or what the command line says."""

    members: tuple[str, ...]
    replicas: int
    confirmed: bool


class NotAMember(RuntimeError):
    """This shard's id is not among the members, or they are others than it started with: start it again."""


def agree_membership(client: KazooClient, config: ShardConfig) -> Membership:
    """What /artimon/varstore says; made from `config` if it is absent; `config` itself if ZooKeeper does not answer."""
    if not client.connected:
        log.warning("ZooKeeper is not there: going by the members of the command line, %s", config.members)
        return Membership(tuple(config.members), config.replicas, False)
    wanted = {"members": list(config.members), "replicas": config.replicas}
    try:
        try:
            client.create_async(VARSTORE_PATH, json.dumps(wanted).encode(), makepath=True).get(timeout=_ASK_S)
        except NodeExistsError:
            pass
        data, _ = client.get_async(VARSTORE_PATH).get(timeout=_ASK_S)
        held = json.loads(data)
        found = Membership(tuple(str(m) for m in held["members"]), int(held.get("replicas", 1)), True)
    except (KazooException, KazooTimeoutError, NoNodeError, ValueError, KeyError, TypeError) as error:
        log.warning("%s: %r; going by the command line", VARSTORE_PATH, error)
        return Membership(tuple(config.members), config.replicas, False)
    if found.members != tuple(config.members):
        log.warning("%s says members %s, the command line %s: ZooKeeper holds", VARSTORE_PATH, found, config.members)
    return found


class ShardProcess:
    """Everything that runs in one shard process; `start` once, `stop` once."""

    def __init__(self, config: ShardConfig, clock: Clock = SYSTEM_CLOCK, publish: Publish = unpublished) -> None:
        self._config, self._clock = config, clock
        self._client = zookeeper_client(config.zookeeper)
        self._registration: Registration | None = None
        self._health = HealthFile(config.health, f"shard-{config.id}", clock, publish)
        self.port = 0

    def start(self, stop: threading.Event) -> None:
        """Serve, read announcements, register. Waits for ZooKeeper no longer than 3 s; OSError if the port is taken."""
        config = self._config
        self.say("starting", "looking for ZooKeeper")
        connecting = self._client.start_async()
        waited = 0.0
        while not (connecting.is_set() or stop.is_set() or waited >= _ASK_S):
            self._clock.wait(stop, 0.05)
            waited += 0.05
        self._membership = membership = agree_membership(self._client, config)
        owned = ownership(membership.members, membership.replicas).get(config.id)
        if owned is None:
            raise NotAMember(f"shard {config.id!r} is not among the members {membership.members} of {VARSTORE_PATH}")
        self.shard = Shard(config.id, config.levels, config.capacity, owned)
        self._announcements = Announcements(
            config.kafka,
            f"{config.topic_prefix}.series",
            f"{config.topic_prefix}.samples",
            self.shard.announce,
            self._clock,
        )
        self._service = ShardService(self.shard, self.notes)
        self._server = FramedServer(
            idl().Shard,
            self._service,
            config.host,
            config.port,
            max_frame=FEED_BYTES,
            max_reply=ANSWER_BYTES + 16 * MiB,
            max_connections=config.max_connections,
            name=f"shard-{config.id}",
        )
        self.port = self._server.start()
        self._announcements.start()
        self._register()
        log.info("shard %s of %s serves on %s:%d", config.id, membership.members, config.host, self.port)

    def _register(self) -> None:
        config = self._config
        node = {
            "host": config.host,
            "port": self.port,
            "pid": os.getpid(),
            "incarnation": secrets.token_hex(8),
        }
        path = f"{SHARDS_PATH}/{config.id}"
        self._registration = Registration(self._client, path, json.dumps(node).encode())
        self._registration.start()

    def notes(self) -> tuple[str, ...]:
        """Why answers of this shard are not whole yet; empty once they are."""
        found = []
        if not self._announcements.caught_up:
            found.append(f"shard {self._config.id} is still reading announcements")
        missing = self.missing()
        if missing:
            found.append(f"shard {self._config.id} is refilling: {missing} batches to go")
        return tuple(found)

    def missing(self) -> int:
        """Batches that stood in Kafka when this process started and that it has not been fed yet."""
        until = self._announcements.refill_until
        if until is None:
            return 0
        at: dict[int, int] = {}
        for key, offset in self.shard.positions().items():
            at[key.partition] = max(offset, at.get(key.partition, 0))
        return sum(max(0, end - at.get(partition, 0)) for partition, end in until.items())

    def report(self) -> None:
        """Write the health file. Raises ShardBroken when this process must begin again empty."""
        status = self.shard.status()
        if self.shard.broken:
            self.say("failing", self.shard.broken, **status)
            raise ShardBroken(self.shard.broken)
        problems = [self._announcements.problem] if self._announcements.problem else []
        if self._registration is not None and self._registration.conflict:
            problems.append(f"another process is registered as shard {self._config.id}")
        elif self._registration is not None and not self._registration.registered:
            problems.append(f"not registered in ZooKeeper at {self._config.zookeeper}")
        if status["refused"]:
            problems.append(f"capacity of {status['capacity']} series reached: samples of new series are refused")
        starting = bool(problems) and not self._announcements.caught_up
        figures = {
            **status,
            "port": self.port,
            "refilling": self.missing(),
            "questions": self._service.figures(),
        }
        self.say("starting" if starting else "ok", "; ".join(problems), **figures)

    def confirm(self) -> None:
        """Ask ZooKeeper who the members are if it was not there at the start. NotAMember if they are others."""
        if self._membership.confirmed or not self._client.connected:
            return
        found = agree_membership(self._client, self._config)
        if (found.members, found.replicas) != (self._membership.members, self._membership.replicas):
            raise NotAMember(f"started as one of {self._membership.members}, {VARSTORE_PATH} says {found.members}")
        self._membership = found

    def say(self, state: str, problem: str = "", **figures: Any) -> None:
        """One health report."""
        self._health.write(state, problem, **figures)

    def stop(self) -> None:
        """Leave ZooKeeper first, so that nobody asks us any more; never raises, at most some seconds."""
        if self._registration is not None:
            self._registration.stop()
        if self.port:
            self._server.stop()
            self._announcements.stop()
        self._client.stop()
        self._client.close()


def run_shard(
    config: ShardConfig, stop: threading.Event, clock: Clock = SYSTEM_CLOCK, publish: Publish = unpublished
) -> None:
    """Run a shard until `stop`. Raises ShardBroken, NotAMember, OSError (port): start the process again, empty."""
    process = ShardProcess(config, clock, publish)
    try:
        process.start(stop)
        while not stop.is_set():
            process.confirm()
            process.report()
            clock.wait(stop, HEALTH_S)
    finally:
        process.stop()
