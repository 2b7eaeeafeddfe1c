"""Transport of the agent: accepts polls, keeps them in the log, and forgets them once they are acked."""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any, Literal, cast

from kazoo.client import KazooClient

from artimon.model.clock import SYSTEM_CLOCK, Clock
from artimon.model.hash_routing import DEFAULT_LANES
from artimon.model.protocols import Sink
from artimon.runtime.process_options import Health, Insecure, MiB, Option, Zookeeper, in_seconds, process_name
from artimon.runtime.settings import security, zookeeper_auth
from artimon.runtime.version import installed_version
from artimon.runtime.zookeeper_client import EphemeralNode, close_client, zookeeper_client
from pipeline.control.ack_watcher import AckWatcher
from pipeline.control.admission import Trust
from pipeline.control.agent_commands import AgentMode, CommandError
from pipeline.control.agent_controls import AgentControls
from pipeline.control.collector_notices import CollectorNotices
from pipeline.control.control_plane import ControlPlane, remembered_document
from pipeline.control.control_tree import commands_scope, scope_of
from pipeline.control.signatures import read_keys
from pipeline.delivery.backlog_limiter import BACKLOG_RATE as BACKLOG_RATE
from pipeline.delivery.backlog_limiter import BacklogLimiter
from pipeline.delivery.delivery_mode import (
    MEMORY_BYTES,
    MEMORY_SEGMENT_BYTES,
    DeliveryMode,
    clear_marker,
    files_of_log,
    log_folder,
    prepare_log,
)
from pipeline.delivery.failover_log import FailoverLog
from pipeline.delivery.sender import CollectorRoute, Sender
from pipeline.delivery.tracker import Tracker
from pipeline.delivery.wal_sink import WalSink
from pipeline.link.collector_choice import DEFAULT_GROUP
from pipeline.link.collector_choice import CollectorMode as CollectorMode
from pipeline.sites.multi_site_sender import MultiSiteSender, Site, parse_sites
from pipeline.wal.accepted_counts import AcceptedCounts
from pipeline.wal.file_system import LogError
from pipeline.wal.log import QUOTA_BYTES, SEGMENT_BYTES, LogEntry, WriteAheadLog
from pipeline.wal.segment_format import RecordType
from pipeline.wal.state_records import LogPosition, encode_acked

log = logging.getLogger(__name__)

_REPLAY_TIMEOUT_S = 120.0
_PLANE_FOLDER = "plane"
"""Sub-folder for the last configuration from the control plane."""
_REPORTED_FIGURES = (
    "accepted_batches",
    "acked_batches",
    "resent_batches",
    "pending_batches",
    "oldest_unacked_ms",
    "oldest_unsent_ms",
    "log_bytes",
    "log_quota_bytes",
    "collectors_up",
    "level",
)
ROOT_WARNING = (
    "the agent runs as root, and so does every program of its sources: run it as its own user (docs/deploy.md)"
)
_NEARLY_FULL = 0.9
"""Fraction of its quota above which the log is a problem."""


AgentName = Annotated[str, process_name("Name of the agent; must never change.", "--name", usual="local")]
AgentData = Annotated[
    Path, Option("Folder of the log and of the state of the sources.", default_of=lambda place: place.data / "agent")
]


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """`name`: part of every identity, unique among agents. `data`: the agent's folder; the log is in `<data>/log`, the
    audit in `<data>/accepted`. `level`: ack level, `kafka` once Kafka has a batch, `hdfs` once the table has it."""

    name: AgentName
    data: AgentData
    zookeeper: Zookeeper
    level: Annotated[Literal["kafka", "hdfs"], Option("Ack level.")] = "hdfs"
    lanes: int = DEFAULT_LANES
    quota_bytes: int = QUOTA_BYTES
    segment_bytes: int = SEGMENT_BYTES
    topic_prefix: str = "artimon"
    groups: Annotated[
        tuple[str, ...],
        Option("Take the configuration of this group; may be repeated (default: default).", "--group"),
    ] = (DEFAULT_GROUP,)
    """Applied besides the agent's own configuration, later groups over earlier ones."""
    sites: Annotated[
        tuple[Site, ...],
        Option(
            "A data centre, NAME=ZOOKEEPER; repeated, in order of preference (docs/sites.md).",
            "--site",
            read=parse_sites,
            multiple=True,
        ),
    ] = ()
    """The first is on `zookeeper`; () if there is only one site (pipeline/sites/)."""
    patience_s: Annotated[
        float,
        in_seconds("Timeout of a site without progress: unsent batches then go to the next site.", "--patience"),
    ] = 60.0
    return_s: float = 60.0
    """Seconds of reachability after which a better site takes its lanes back."""
    configuration: Annotated[
        Path | None, Option("File of configuration, overridden by ZooKeeper (docs/control.md).", "--config")
    ] = None
    shed: Annotated[
        Literal["refuse", "oldest"],
        Option("With a full log, refuse new batches or shed the oldest (docs/formats/wal.md)."),
    ] = "refuse"
    """With a full log either refuse and count new data, or accept it and shed the oldest, with a record of what was
    shed (pipeline/wal/shed_records.py; not with several sites)."""
    live_first: Annotated[bool, Option("After an outage, send new data before data older than a minute.")] = False
    """Old and new data each keep their order."""
    delivery: Annotated[
        Literal["end-to-end", "disk-failover", "best-effort"],
        Option("Delivery guarantee of polled data (docs/direct.md)."),
    ] = "end-to-end"
    backlog_rate: Annotated[
        float, Option("MiB a second for data that has waited for more than a minute; 0: no limit.", min=0, unit=MiB)
    ] = BACKLOG_RATE
    """Bytes a second for data that has waited for more than a minute; at least twice the rate of new data."""
    keys: Annotated[
        Path | None,
        Option(
            "File of the keys that sign configuration and commands (ARTIMON_CONFIG_KEYS).",
            default_of=attrgetter("config_keys"),
        ),
    ] = None
    flows: Annotated[Path | None, Option("File of flows that run beside the polls (docs/flows.md).")] = None
    allow: Annotated[
        Path | None, Option("File of parts and folders that pushed configuration may use (docs/security.md).")
    ] = None
    insecure: Insecure = False
    health: Health = None


def _notices_of(sender: Sender, config: AgentConfig, clock: Clock) -> CollectorNotices:
    """Return the notices that the collectors of a sender send to this agent."""
    scopes = [*(scope_of(group=name) for name in config.groups), scope_of(config.name), commands_scope(config.name)]
    return CollectorNotices(sender.client, scopes, clock)


class Agent:
    """Construct (recovers the log), `start`, hand `sink` to the sources, `stop`. ZooKeeper, collectors and Kafka may be
    down at any time: accepted batches wait in the log."""

    def __init__(self, config: AgentConfig, clock: Clock = SYSTEM_CLOCK, zookeeper: KazooClient | None = None) -> None:
        """`zookeeper`: client of the process, which its owner starts and stops; None for one of its own. Raises
        LogLockedError if another process uses the folder, OSError if the disk refuses, KeyFileError."""
        trust = Trust(read_keys(config.keys), zookeeper_auth())
        self.config, self._clock = config, clock
        self._held_back: list[tuple[LogEntry, LogPosition]] | None = []
        """Batches accepted while an old log is still being read, sent after it; None once that is done."""
        self._held_back_lock = threading.Lock()
        self._recovery_error = ""
        known, self._own_delivery = remembered_document(config.data / _PLANE_FOLDER).metrics, config.delivery
        config = self.config = replace(config, delivery=known.get("delivery", config.delivery))
        self._delivery = DeliveryMode(config.delivery)
        if self._delivery is not DeliveryMode.END_TO_END and config.sites:
            raise ValueError(f"delivery {config.delivery} with several sites: only end-to-end supports them")
        own_level = config.level if self._delivery is DeliveryMode.END_TO_END else "kafka"
        self._level: str = known.get("level", own_level) if self._delivery is DeliveryMode.END_TO_END else own_level
        self._own_level = own_level
        self._tracker = Tracker(ack_on_sent=self._level == "kafka", live_first=config.live_first)
        folder = log_folder(config.data, self._delivery)
        prepare_log(folder, self._delivery)
        memory = self._delivery is DeliveryMode.BEST_EFFORT
        self.log = WriteAheadLog(
            folder,
            config.name,
            config.lanes,
            self._on_durable,
            segment_bytes=min(config.segment_bytes, MEMORY_SEGMENT_BYTES) if memory else config.segment_bytes,
            quota_bytes=min(config.quota_bytes, MEMORY_BYTES) if memory else config.quota_bytes,
            files=files_of_log(folder, self._delivery),
            lazy=not config.sites and self._delivery is DeliveryMode.END_TO_END,
        )
        clear_marker(folder, self._delivery)
        self.log.deletion_paused = not memory
        self._accepted_counts = AcceptedCounts(config.data / "accepted", clock.now_ms())
        self._multi_site = self._make_multi_site_sender() if config.sites else None
        home = self._multi_site.home if self._multi_site else self._make_sender(config)
        self._sender: MultiSiteSender | Sender = self._multi_site or home
        if self.log.is_recovered:
            self._resume()
        shed = (config.shed == "oldest" or memory) and not self._multi_site
        straight = self._delivery is DeliveryMode.DISK_FAILOVER
        self._failover = FailoverLog(self.log, CollectorRoute(home, clock), clock) if straight else None
        wal = cast(WriteAheadLog, self._failover) if self._failover else self.log
        self._wal_sink = WalSink(wal, config.name, folder, home.stop_sending if shed else None)
        self._owns_zookeeper = zookeeper is None
        self._zookeeper: KazooClient = zookeeper or zookeeper_client(config.zookeeper)
        # without authentication of collectors a ZooKeeper user protects more than their word
        asks = not zookeeper_auth() or security() is not None
        topic = f"{config.topic_prefix}.samples"
        self._notices = _notices_of(home, config, clock) if asks else None
        self._ack_watcher = AckWatcher(self._zookeeper, home, topic, self._notices, clock)
        self._groups: tuple[str, ...] = ()
        self._mode = CollectorMode.FAILOVER
        self._limits: tuple[int | None, int | None] = None, None
        self._pending_change = ""
        self._described = _describe(self.log)
        self._registration = EphemeralNode(self._zookeeper, f"/artimon/agents/{config.name}", b"", rewritten=True)
        self.controls = self._make_controls()
        self.plane = ControlPlane(
            self._zookeeper,
            config.name,
            config.groups,
            config.data / _PLANE_FOLDER,
            self.controls,
            clock,
            self._report,
            config.configuration,
            trust,
            self._notices,
        )
        if self._notices is not None:
            self._notices.on_acks, self._notices.on_config = self._ack_watcher.wake, self.plane.read_soon
        self._replay_timer = threading.Timer(_REPLAY_TIMEOUT_S, self._allow_deletion)
        self._replay_timer.daemon = True

    def _make_sender(self, config: AgentConfig) -> Sender:
        pacing = BacklogLimiter(config.backlog_rate)
        return Sender(self.log, self._tracker, config.name, self._clock, pacing)

    @property
    def sink(self) -> Sink:
        """Sink for the polls of the sources."""
        return self._wal_sink

    @property
    def wal_sink(self) -> WalSink:
        """The sink with its blocking variant `accept_now`."""
        return self._wal_sink

    def start(self) -> None:
        """Begin to send; returns at once even if no server can be reached. The last known configuration is applied
        first, as far as its parts exist already."""
        if os.geteuid() == 0:
            log.warning("%s", ROOT_WARNING)
        self.plane.begin()
        if self._held_back is None:
            self._sender.start()
        else:
            threading.Thread(target=self._recover_in_background, name="recovery", daemon=True).start()
        if self._owns_zookeeper:
            self._zookeeper.start_async()
        self._ack_watcher.start()
        if self._notices is not None:
            self._notices.start()
        self._registration.start()
        self.plane.start()
        self._replay_timer.start()

    def stop(self) -> None:
        """Stop within about 8 s, even if calls hang. Batches not acked stay in the log for the next start."""
        self._replay_timer.cancel()
        self._wal_sink.close()
        if self._failover:
            self._failover.stop()
        self.plane.stop(1.0)
        self._registration.stop(1.0)
        if self._notices is not None:
            self._notices.stop(0.0)
        self._ack_watcher.stop(1.0)
        self._sender.stop(2.0)
        if self._delivery is DeliveryMode.BEST_EFFORT and (lost := self._sender.figures()["pending_batches"]):
            log.warning("best effort: %d unsent batches are lost with this process", lost)
        self.log.close(3.0)
        if self._owns_zookeeper:
            close_client(self._zookeeper)

    def figures(self) -> dict[str, Any]:
        """Counts for health; `problems` lists messages for the operator."""
        problems = [p for p in (self.failing, self._ack_watcher.problem) if p]
        if self._registration.conflict:
            problems.append(f"another agent is registered as {self.config.name}")
        if full := self._sender.buffer_full_reason:
            problems.append(full)
        problems += [*self.plane.problems(), *([self._pending_change] if self._pending_change else [])]
        problems += self._multi_site.problems() if self._multi_site else []
        if self.log.used_bytes > _NEARLY_FULL * self.log.quota_bytes:
            problems.append(
                f"the log holds {self.log.used_bytes} of {self.log.quota_bytes} bytes, not acked: once it is full polls"
                " are dropped and counted as refused"
            )
        found, sending = self.log.recovered, self._sender.figures()
        return {
            "accepted_batches": self._wal_sink.batches,
            "accepted_samples": self._wal_sink.samples,
            "accepted_bytes": self._wal_sink.bytes,
            "level": self._level,
            "delivery": self._delivery.value,
            **(self._failover.figures() if self._failover else {}),
            "lost_batches": {"full": self._wal_sink.shed_batches, "damaged": sending["damaged_batches"]},
            "mode": self.plane.mode.value,
            "configuration": self.plane.figures(),
            **sending,
            "log_bytes": self.log.used_bytes,
            "log_quota_bytes": self.log.quota_bytes,
            "epoch": f"{self.log.epoch:016x}",
            "recovering": self._held_back is not None,
            "shed_batches": self._wal_sink.shed_batches,
            "aside": self.log.quarantine_size()._asdict(),
            "recovered": {
                "cut_bytes": found.cut_bytes,
                "set_aside": len(found.quarantined),
                "missing_segments": len(found.missing),
                "new_epoch_because": self.log.new_epoch_because,
            },
            "refused": dict(+self._wal_sink.refused),  # a shed batch takes its refusal back
            "problems": problems,
            "warnings": [*self.plane.warnings(), *([ROOT_WARNING] if os.geteuid() == 0 else [])],
        }

    @property
    def failing(self) -> str:
        """Reason for which the agent accepts nothing more, "" while it does."""
        return self.log.problem or self._recovery_error

    def _make_multi_site_sender(self) -> MultiSiteSender:
        config = self.config
        return MultiSiteSender(
            config.sites,
            self.log,
            config.data,
            config.name,
            f"{config.topic_prefix}.samples",
            self._clock,
            ack_on_sent=self._level == "kafka",
            patience_s=config.patience_s,
            return_s=config.return_s,
        )

    def _recover_in_background(self) -> None:
        """Read a large log in the background while polls are accepted; then send all in order."""
        try:
            if self.log.recover():
                self._resume()
                self._sender.start()
        except (LogError, OSError) as error:
            log.exception("the log cannot be read")
            self._recovery_error = f"the log of this agent cannot be read, nothing is sent: {error}"

    def _resume(self) -> None:
        self._accepted_counts.catch_up(self.log.folder, self.log.first_own_segment, self._clock.now_ms())
        self._restore()
        with self._held_back_lock:
            self._on_logged(self._held_back or [])
            self._held_back = None

    def _restore(self) -> None:
        """Restore the sender from the log."""
        now_ms, on_sent = self._clock.now_ms(), self._level == "kafka"
        acked = self._sender.restore(self.log.recovered, now_ms, on_sent)
        self.log.append_notes(RecordType.ACKED, encode_acked(id for id, _ in acked))
        self.log.release([place for _, place in acked])
        if self._tracker.pending:
            log.info("the log holds %d batches that are not acked", self._tracker.pending)

    def _on_durable(self, placed: Sequence[tuple[LogEntry, LogPosition]]) -> None:
        """Called by the log's flusher."""
        with self._held_back_lock:
            if self._held_back is not None:
                self._held_back.extend((replace(entry, payload=b""), place) for entry, place in placed)
                return
        self._on_logged(placed)

    def _on_logged(self, placed: Sequence[tuple[LogEntry, LogPosition]]) -> None:
        counted = [(e.header.source, e.minutes, p) for e, p in placed if e.type == RecordType.BATCH]
        try:
            self._accepted_counts.add(counted, self._clock.now_ms())
        except OSError as error:
            log.error("audit: %s", error)  # written with the next batches, or counted by the next start
        self._sender.add_logged(placed)

    # --- hooks of the control plane

    def _make_controls(self) -> AgentControls:
        runtime = AgentControls(
            self._set_mode, lambda: int(self._sender.figures()["pending_batches"]), lambda: self.failing
        )
        runtime.on_roll(self._roll)
        if self._multi_site:
            runtime.on_release(self._release)
        runtime.on_setting("level", self._set_level)
        runtime.on_setting("quota", self._set_quota)
        runtime.on_setting("credits", lambda most: self._set_limits(most, self._limits[1]))
        runtime.on_setting("backlog", lambda rate: self._set_limits(self._limits[0], rate))
        runtime.on_setting("delivery", self._set_delivery)
        runtime.on_setting("collectors", lambda groups: self._set_groups(groups=groups or ()))
        runtime.on_setting("collectors_mode", lambda mode: self._set_groups(mode=CollectorMode(mode or "failover")))
        return runtime

    def _set_mode(self, mode: AgentMode) -> None:
        self._wal_sink.closed = "draining" if mode is AgentMode.DRAINING else ""
        self._sender.set_paused(mode is AgentMode.PAUSED)

    def _roll(self) -> str:
        return "segment of the log ended" if self.log.roll() else "the log is closed"

    def _release(self, arguments: Mapping[str, str]) -> str:
        lane = arguments.get("lane", "")
        if not lane.isdecimal() or self._multi_site is None:
            raise CommandError(f"release needs the number of a lane, such as 0, not {lane!r}")
        return self._multi_site.release(int(lane))

    def _set_level(self, level: str | None) -> None:
        if self._delivery is not DeliveryMode.END_TO_END:
            return  # without end-to-end delivery nothing is kept until the table has it
        self._level = level or self._own_level
        self._sender.set_level(self._level == "kafka")

    def _set_quota(self, quota_bytes: int | None) -> None:
        most = quota_bytes or self.config.quota_bytes
        self.log.quota_bytes = min(most, MEMORY_BYTES) if self._delivery is DeliveryMode.BEST_EFFORT else most

    def _set_limits(self, credits: int | None, backlog: int | None) -> None:
        """Limit the bytes in flight to a collector and the backlog's bytes a second; None: as on the command line."""
        self._limits = credits, backlog
        self._sender.set_limits(credits or 1 << 62, backlog or self.config.backlog_rate)

    def _set_delivery(self, delivery: str | None) -> None:
        """Request another delivery, from the next start on: the kind of log is chosen when it is opened."""
        wanted = delivery or self._own_delivery
        self._pending_change = f"delivery {wanted} begins with the next start" if wanted != self._delivery.value else ""

    def _set_groups(self, groups: tuple[str, ...] | None = None, mode: CollectorMode | None = None) -> None:
        self._groups = self._groups if groups is None else groups
        self._mode = mode or self._mode
        self._sender.set_groups(self._groups, self._mode)

    def _report(self, told: dict[str, Any]) -> None:
        """Publish the agent's znode: identity, configuration, and figures of its backlog."""
        figures = self.figures()
        kept = {name: figures[name] for name in _REPORTED_FIGURES}
        texts = {name: [str(text)[:300] for text in figures[name][:10]] for name in ("problems", "warnings")}
        whole = {**self._described, **told, "time_ms": self._clock.now_ms(), "figures": kept, **texts}
        self._registration.update(json.dumps(whole).encode())

    def _allow_deletion(self) -> None:
        self.log.deletion_paused = False


def _describe(wal: WriteAheadLog) -> dict[str, Any]:
    epoch, running = f"{wal.epoch:016x}", installed_version()
    return {"host": socket.gethostname(), "pid": os.getpid(), "epoch": epoch, "version": running}
