"""Process of one shard: Thrift server, announcements, registration in ZooKeeper, movement of virtual shards, health."""

from __future__ import annotations

import logging
import os
import secrets
import sys
import threading
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any

from artimon.compute.kernels import kernels
from artimon.model.batch import BatchHeader
from artimon.model.clock import SYSTEM_CLOCK, Clock
from artimon.model.grid import DEFAULT_LEVELS, Level, parse_levels
from artimon.model.vshards import union
from artimon.runtime.exposure import require_protection
from artimon.runtime.health import HealthFile, Publish, unpublished
from artimon.runtime.machine_memory import memory_limit
from artimon.runtime.partition_counts import PartitionCounts, confirmed_partitions
from artimon.runtime.process_options import (
    Health,
    Insecure,
    Kafka,
    ListenHost,
    ListenPort,
    Option,
    Zookeeper,
    process_name,
)
from artimon.runtime.process_setup import gc_tuned
from artimon.runtime.settings import security
from artimon.runtime.text import parse_process_names
from artimon.runtime.topic_check import TopicCheck, required_topics
from artimon.runtime.zookeeper_client import EphemeralNode, close_client, zookeeper_client
from bookkeeper.rpc.framed_server import FramedServer
from varstore.cells.cell_file import QUOTA_BYTES, CellFile
from varstore.cluster.cluster_directory import ClusterDirectory, ClusterState, ShardAddress
from varstore.cluster.freshness import Freshness, group_positions
from varstore.cluster.gap_repair import GapRepair
from varstore.cluster.log_ends import LogEnds, log_span
from varstore.cluster.membership import SHARDS_PATH, VARSTORE_PATH, LevelsDiffer, Membership, MembershipWatch
from varstore.cluster.peers import fetch_snapshot
from varstore.cluster.rebalance import Rebalancer
from varstore.index.announcement_consumer import AnnouncementConsumer
from varstore.index.shard_limits import (
    DEFAULT_CAPACITY,
    DEFAULT_LIMITS,
    ShardLimits,
    refusal_warnings,
    settle_capacity,
)
from varstore.query.bucket_reader import ANSWER_BYTES
from varstore.shard.shard import Shard, ShardBroken
from varstore.shard.shard_service import ShardService, idl
from varstore.snapshot.restore import LogSpan, Restore, can_continue
from varstore.snapshot.snapshots import COPY_INTERVAL_S, INTERVAL_S, Snapshots
from varstore.store.feed_groups import FeedGroup

__all__ = ["SHARDS_PATH", "VARSTORE_PATH", "LevelsDiffer", "ShardConfig", "ShardProcess", "run_shard"]

log = logging.getLogger(__name__)

MiB = 1 << 20
FEED_BYTES = 64 * MiB
SNAPSHOTS_PATH = "/artimon/snapshots"
"""Folder on HDFS for copies of the snapshots of all shards."""
HEALTH_INTERVAL_S = 1.0
THREAD_SWITCH_S = 0.001
"""Switch interval of Python's threads in seconds. Feeding, queries and snapshots take many short steps in numpy, and
would wait 5 ms (Python's default) before each."""
MOVE_INTERVAL_S = 1.0
_REQUEST_TIMEOUT_S = 3.0


@dataclass(frozen=True, slots=True)
class ShardConfig:
    """Settings of one shard process."""

    id: Annotated[str, process_name("Id of this shard; it must never change.", usual="0")]
    members: Annotated[
        Sequence[str],
        Option(
            "Ids of all shards, comma-separated, for the very first start; later use `artimon shards`.",
            read=parse_process_names,
            default="0",
        ),
    ]
    zookeeper: Zookeeper
    kafka: Kafka
    replicas: Annotated[int, Option("Number of shards that hold each series; for the first start.", min=1)] = 1
    host: ListenHost = "127.0.0.1"
    port: ListenPort = 0
    insecure: Insecure = False
    capacity: Annotated[
        int,
        Option("Maximum number of series (0: as many as fit into memory, up to 4 million).", min=0, default=0),
    ] = DEFAULT_CAPACITY
    """Memory is reserved for them but used only as they come."""
    health: Health = None
    topic_prefix: str = "artimon"
    levels: Annotated[
        Sequence[Level],
        Option(
            "SECONDSxBUCKETS, comma-separated, finest first (ARTIMON_LEVELS).",
            read=lambda text: parse_levels(text) if text else DEFAULT_LEVELS,
            default_of=attrgetter("levels"),
        ),
    ] = DEFAULT_LEVELS
    data: Annotated[Path | None, Option("Folder of snapshots and cells; no snapshots without it.")] = None
    disk_bytes: Annotated[
        int,
        Option("MiB of packed buckets on disk below --data (0: all stay in memory).", "--disk", min=0, unit=MiB),
    ] = QUOTA_BYTES
    hdfs: Annotated[str | None, Option("HDFS URI for copies of snapshots and for refills.")] = None
    snapshot_s: float = INTERVAL_S
    copy_s: float = COPY_INTERVAL_S
    """Interval of snapshots, and of copies to HDFS."""
    sharing: Annotated[
        int, Option("Minimum number of shards that share this machine's memory; more if more register.", min=1)
    ] = 1
    max_connections: int = 64
    limits: ShardLimits = DEFAULT_LIMITS


class ShardProcess:
    """Everything that runs in one shard process; `start` once, `stop` once.

    Threads: the one that calls `update` and `write_report` every second; the rebalancer; the announcements; the log
    ends; the mover of cells to disk; one for each connection. Locks are those of the parts."""

    def __init__(self, config: ShardConfig, clock: Clock = SYSTEM_CLOCK, publish: Publish = unpublished) -> None:
        self._config, self._clock = config, clock
        self.warnings = require_protection(f"shard {config.id}", config.host, security(), insecure=config.insecure)
        self._client = zookeeper_client(config.zookeeper)
        self._registration: EphemeralNode | None = None
        self._health = HealthFile(config.health, f"shard-{config.id}", clock, publish)
        self._stop = threading.Event()
        self.port = 0
        self._place = ShardAddress(config.id, config.host, 0, secrets.token_hex(8))
        limits = config.limits
        memory = limits.memory_bytes or memory_limit() // config.sharing
        cell_file = None
        if config.data is not None and config.disk_bytes:
            cell_file = CellFile(config.data / "cells", config.disk_bytes)
        capacity = settle_capacity(config.capacity, config.levels, memory, cell_file is not None)
        limits = replace(limits, memory_bytes=memory)
        self.shard = Shard(config.id, config.levels, capacity, frozenset(), limits, cell_file)
        self._shards_here = config.sharing
        """Shards on this machine."""
        self._freshness = Freshness(clock.monotonic())
        self._samples = f"{config.topic_prefix}.samples"
        self._counts = PartitionCounts(confirmed_partitions(self._client), clock)
        self._log_ends = LogEnds(
            config.kafka, self._samples, self._freshness.update_ends, clock, self.shard, self._counts, self._is_calm
        )
        self.topics = TopicCheck(config.kafka, required_topics(config.topic_prefix, ("samples", "series")), clock)
        self._announcements = AnnouncementConsumer(
            config.kafka, f"{config.topic_prefix}.series", self.shard.announce, clock, self._is_wanted
        )
        wanted = Membership(tuple(config.members), config.replicas, tuple(config.levels))
        self._membership = MembershipWatch(self._client, wanted, clock)
        self._directory = ClusterDirectory(self._client, clock=clock)
        self._rebalancer = Rebalancer(config.id, self.shard, self._restore_vshards)
        self._service = ShardService(self.shard, self.notes)
        self._snapshots = self._open_snapshots(config.data) if config.data is not None else None
        self._restore = Restore(
            self.shard,
            self._announcements.reread,
            self._span,
            self._is_usable,
            config.hdfs,
            f"{config.hdfs}{SNAPSHOTS_PATH}" if config.hdfs else None,
            self._client,
            self._stop,
        )
        self._gap_repair = GapRepair(config.id, self.shard, self._restore.table_has)
        self._move_thread = threading.Thread(target=self._run_rebalancer, name="mover", daemon=True)

    def start(self, stop: threading.Event) -> None:
        """Serve, register, begin to take over virtual shards. Waits for ZooKeeper at most 3 s. Raises OSError if the
        port is taken, LevelsDiffer if the store has other levels."""
        config = self._config
        self.report_state("starting", "waiting for ZooKeeper")
        connecting = self._client.start_async()
        waited = 0.0
        while not (connecting.is_set() or stop.is_set() or waited >= _REQUEST_TIMEOUT_S):
            self._clock.wait(stop, 0.05)
            waited += 0.05
        self._members = self._membership.poll()
        self._server = FramedServer(
            idl().Shard,
            self._service,
            config.host,
            config.port,
            max_frame=FEED_BYTES,
            max_reply=ANSWER_BYTES + 16 * MiB,
            max_connections=config.max_connections,
            name=f"shard-{config.id}",
            security=security(),
        )
        self.port = self._server.start()
        self._place = replace(self._place, port=self.port)
        self._announcements.start()
        self._log_ends.start()
        self.topics.start(self._stop)
        if self.shard.spiller is not None:
            self.shard.spiller.start()
        path = f"{SHARDS_PATH}/{config.id}"
        self._registration = EphemeralNode(self._client, path, self._place.to_bytes(os.getpid()))
        self._registration.start()
        self._move_thread.start()
        log.info("shard %s serves on %s:%d; %s", config.id, config.host, self.port, self._members)

    # virtual shards held

    def _is_calm(self) -> bool:
        """Return True if this shard holds what it should, whole and up to date."""
        fresh, wanted = self._freshness, self._members.owned_by(self._config.id)
        return fresh.held == fresh.ready == wanted and not fresh.lagging

    def _is_wanted(self, header: BatchHeader) -> bool:
        return self.shard.is_wanted(header.source, header.block, header.poll_ms)

    def _open_snapshots(self, data: Path) -> Snapshots:
        hdfs = f"{self._config.hdfs}{SNAPSHOTS_PATH}" if self._config.hdfs else None
        every_s = self._config.snapshot_s
        return Snapshots(
            self.shard, data / "snapshots", hdfs, every_s, self._clock, hdfs_interval_s=self._config.copy_s
        )

    def _load_snapshot(self) -> None:
        """Load the last snapshot of this shard, so that only later samples are missing."""
        if self._snapshots is None:
            return
        try:
            with self._announcements.reread():
                loaded = self._snapshots.load(self._is_usable)
            log.info("snapshot: %s", f"{self.shard.vshards.bit_count()} virtual shards" if loaded else "none")
        except Exception:  # without it everything is taken over from other sources
            log.exception("loading a snapshot")
        self._snapshots.start()

    def _is_usable(self, groups: Sequence[FeedGroup]) -> bool:
        """Return True if Kafka still has everything after these groups' positions, or if that is unknown."""
        return can_continue(self._span(), groups)

    def _run_rebalancer(self) -> None:
        """Run the rebalancer's thread: a copy from another shard may take minutes and must not delay anything else."""
        self._load_snapshot()
        while not self._stop.is_set():
            try:
                self._rebalancer.step(self._members, self._shards(), self._clock.monotonic())
                self._gap_repair.step(self._members, self._shards(), self._clock.monotonic())
            except Exception as error:  # this thread must survive any error
                self._rebalancer.problem = f"moving virtual shards: {error!r}"
                log.exception("moving virtual shards")
            self._clock.wait(self._stop, MOVE_INTERVAL_S)

    def _shards(self) -> ClusterState | None:
        shards = self._directory.read()
        if not self._config.limits.memory_bytes:
            self._share_memory(sum(place.host == self._config.host for place in shards.live))
        known = self._members.confirmed and not self._directory.stale and shards.membership == self._members
        return shards if known else None

    def _share_memory(self, here: int) -> None:
        """Share the machine's memory among `here` shards."""
        here = max(here, self._config.sharing)
        if here != self._shards_here:
            self._shards_here = here
            self.shard.set_memory_limit(memory_limit() // here)
            log.info("shard %s: %d shards share the memory of this machine", self._config.id, here)

    def _restore_vshards(self, vshards: int, giver: ShardAddress | None) -> None:
        if giver is None:
            self._restore.restore(vshards)
            return
        with self._announcements.reread(), closing(fetch_snapshot(giver, vshards)) as parts:
            self.shard.adopt(vshards, parts)

    def _span(self) -> LogSpan | None:
        try:
            return LogSpan(*log_span(self._config.kafka, self._samples, self._counts))
        except Exception as error:  # the client raises more than KafkaError
            log.warning("the range of the log cannot be read from Kafka: %r", error)
            return None

    def update(self) -> None:
        """Update membership, groups and freshness, and the registration; called once a second. Raises LevelsDiffer if
        ZooKeeper was absent at the start and names other levels now."""
        self._members = self._membership.poll()
        standings = group_positions(self.shard.groups(), self._log_ends.topic_ids)
        self._freshness.update_groups(
            standings, self._announcements.required_pass, self._announcements.completed_pass, self._clock.monotonic()
        )
        lacking = union(standing.vshards for standing in standings if standing.has_lost and standing.ready)
        ready = (self._freshness.ready | lacking) & ~self._rebalancer.leaving
        lagging = self._freshness.lagging | lacking
        place = replace(
            self._place,
            held_vshards=self._freshness.held,
            ready_vshards=ready,
            lagging_vshards=lagging,
            lacking_vshards=lacking,
        )
        if self._registration is not None and place.to_bytes(0) != self._place.to_bytes(0):
            self._registration.update(place.to_bytes(os.getpid()))
        self._place = place

    # notes and health

    def notes(self, vshards: int | None = None) -> tuple[str, ...]:
        """Return the reasons why answers about these virtual shards (mask; None: all held) are partial, if any."""
        me, now_s = f"shard {self._config.id}", self._clock.monotonic()
        asked = self.shard.vshards if vshards is None else vshards
        found = []
        if not self._announcements.caught_up:
            found.append(f"{me} is still reading announcements")
        if lacks := self._gap_repair.describe_loss(asked):
            found.append(f"{me} {lacks}")
        elif asked & ~self._freshness.ready:
            doing = self._restore.progress or f"{self._freshness.missing(asked)} batches to go"
            found.append(f"{me} is refilling: {doing}")
        if asked & self._freshness.lagging:
            found.append(f"{me} lags: it lacks samples that Kafka has had for {self._freshness.lag_s():.0f} s")
        if self._freshness.is_unknown(now_s):
            found.append(f"{me} was suspended and does not know yet what it lacks")
        return tuple(found)

    def write_report(self) -> None:
        """Write the health file if it is due. Raises ShardBroken if this process must restart empty."""
        status = self.shard.status()
        self.topics.raise_unfit()
        if self.shard.broken:
            self.report_state("failing", self.shard.broken, **status)
            raise ShardBroken(self.shard.broken)
        problems = self._problems(status)
        starting = bool(problems) and not self._announcements.caught_up
        state, problem = "starting" if starting else "ok", "; ".join(problems)
        fresh = self._freshness
        if not self._health.is_due(state, problem, status["applied"], fresh.held, fresh.ready, fresh.missing()):
            return
        held, ready = self._place.held_vshards, self._place.ready_vshards & ~self._place.lacking_vshards
        figures = {
            **status,
            "port": self.port,
            "refilling": fresh.missing(),
            "vshards": held.bit_count(),
            "vshards_ready": ready.bit_count(),
            "vshards_wanted": self._members.owned_by(self._config.id).bit_count(),
            "vshards_lacking": self._place.lacking_vshards.bit_count(),
            **self._gap_repair.figures(),
            "lag_ms": int(fresh.lag_s() * 1000),
            "questions": self._service.query_counts(),
            **(self._snapshots.figures() if self._snapshots is not None else {}),
            "cells_on_disk": self.shard.spiller.file.nbytes if self.shard.spiller is not None else 0,
        }
        self.report_state(state, problem, **figures)

    def _problems(self, status: dict[str, Any]) -> list[str]:
        id_ = self._config.id
        own = (self.topics.problem, self._counts.problem, self._announcements.problem)
        problems = [text for text in (*own, self._log_ends.problem, self._rebalancer.problem) if text]
        problems += self._snapshots.problems if self._snapshots is not None else []
        problems += self._gap_repair.problems
        if self.shard.spiller is not None and self.shard.spiller.problem:
            problems.append(self.shard.spiller.problem)
        if self._registration is not None and self._registration.conflict:
            problems.append(f"another process is registered as shard {id_}")
        elif self._registration is not None and not self._registration.registered:
            problems.append(f"not registered in ZooKeeper at {self._config.zookeeper}")
        if id_ not in self._members.members:
            left = self._place.held_vshards.bit_count()
            doing = f"hands over {left} virtual shards" if left else "holds nothing: it can be stopped"
            problems.append(f"shard {id_} is not among the members {', '.join(self._members.members)}, and {doing}")
        return problems + refusal_warnings(status)

    def report_state(self, state: str, problem: str = "", **figures: Any) -> None:
        """Write one health report."""
        self._health.write(state, problem, warnings=self.warnings, **figures)

    def stop(self) -> None:
        """Leave ZooKeeper first, so that no new requests come; never raises, takes at most some seconds."""
        self._stop.set()
        if self._registration is not None:
            self._registration.stop()
        if self.port:
            self._server.stop()
            self._announcements.stop()
            self._log_ends.stop()
            self._move_thread.join(5)
            if self._snapshots is not None:
                self._snapshots.stop(last=not self.shard.broken)
            if self.shard.spiller is not None:
                self.shard.spiller.stop()
        close_client(self._client)


def run_shard(
    config: ShardConfig, stop: threading.Event, clock: Clock = SYSTEM_CLOCK, publish: Publish = unpublished
) -> None:
    """Run a shard until `stop`. Raises ShardBroken (restart it, empty), LevelsDiffer, CapacityLimitError (no memory for
    the capacity), TopicsUnfitError, OSError (port)."""
    sys.setswitchinterval(THREAD_SWITCH_S)
    if kernels() is None:  # built here if necessary, before any lock is held
        log.warning("no compiled kernels, so feeding takes about 1.6 times as long: see docs/varstore.md#kernels")
    with gc_tuned():
        process = ShardProcess(config, clock, publish)
        try:
            process.start(stop)
            while not stop.is_set():
                process.update()
                process.write_report()
                clock.wait(stop, HEALTH_INTERVAL_S)
        finally:
            process.stop()
