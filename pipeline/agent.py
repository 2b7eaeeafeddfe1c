"""The agent's transport: accepts what sources poll, keeps it in the log, and forgets it once it is acked."""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from kazoo.client import KazooClient

from artimon.model.batch import BatchId
from artimon.model.clock import SYSTEM_CLOCK, Clock
from artimon.model.codec import decode_samples, parse_header
from artimon.model.protocols import Sink
from artimon.model.registration import Registration, zookeeper_client
from artimon.model.routing import DEFAULT_LANES
from pipeline.audit import Audit, minutes_of
from pipeline.control import Control
from pipeline.framing import RecordType
from pipeline.intake import Intake
from pipeline.records import Place, encode_acked
from pipeline.recovery import records_of, segments_in
from pipeline.sender import Sender
from pipeline.tracker import Tracker
from pipeline.wal import QUOTA_BYTES, SEGMENT_BYTES, Entry, Log

log = logging.getLogger(__name__)

_REPLAY_S = 120.0
_NEARLY = 0.9
"""Above this part of its quota the log is a problem."""


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """`name`: part of every identity, unique among agents. `data`: this agent's folder; the log lies in `<data>/log`,
    the audit in `<data>/accepted`. `level`: when a batch is acked, once Kafka has it or once the table on HDFS has."""

    name: str
    data: Path
    zookeeper: str
    level: Literal["kafka", "hdfs"] = "hdfs"
    lanes: int = DEFAULT_LANES
    quota_bytes: int = QUOTA_BYTES
    segment_bytes: int = SEGMENT_BYTES
    topic_prefix: str = "artimon"


class Agent:
    """Construct (recovers the log), `start`, hand `sink` to the sources, `stop`. ZooKeeper, collectors and Kafka may be
    absent at any time: what is accepted waits in the log."""

    def __init__(self, config: AgentConfig, clock: Clock = SYSTEM_CLOCK) -> None:
        """Raises LogLocked if another process uses the folder, OSError if the disk refuses."""
        self.config, self._clock = config, clock
        self._tracker = Tracker(ack_on_sent=config.level == "kafka")
        folder = config.data / "log"
        self.log = Log(
            folder,
            config.name,
            config.lanes,
            self._on_durable,
            segment_bytes=config.segment_bytes,
            quota_bytes=config.quota_bytes,
        )
        self.log.keep_segments = True
        self._audit = Audit(config.data / "accepted", clock.now_ms())
        self._count_rest(folder)
        self._restore()
        self._sender = Sender(self.log, self._tracker, config.name, config.lanes, clock)
        self._intake = Intake(self.log, config.name, folder)
        self._zookeeper: KazooClient = zookeeper_client(config.zookeeper)
        self._control = Control(self._zookeeper, self._sender, f"{config.topic_prefix}.samples")
        self._registration = Registration(self._zookeeper, f"/artimon/agents/{config.name}", _describe(self.log))
        self._replay_timer = threading.Timer(_REPLAY_S, self._stop_keeping)
        self._replay_timer.daemon = True

    @property
    def sink(self) -> Sink:
        """Where sources hand over what they poll."""
        return self._intake

    @property
    def intake(self) -> Intake:
        """The sink with its blocking variant `accept_now`."""
        return self._intake

    def start(self) -> None:
        """Begin to send; returns at once whether or not anybody can be reached."""
        self._sender.start()
        self._zookeeper.start_async()
        self._control.start()
        self._registration.start()
        self._replay_timer.start()

    def stop(self) -> None:
        """Stop within about 8 s, whatever hangs. What is not acked stays in the log for the next start."""
        self._replay_timer.cancel()
        self._intake.close()
        self._registration.stop(1.0)
        self._control.stop(1.0)
        self._sender.stop(2.0)
        self.log.close(3.0)
        self._zookeeper.stop()
        self._zookeeper.close()

    def figures(self) -> dict[str, Any]:
        """Counts for health; `problems` lists what a person should know."""
        problems = [p for p in (self.log.problem, self._control.problem) if p]
        if self._registration.conflict:
            problems.append(f"another agent is registered as {self.config.name}")
        if full := self._sender.buffer_full:
            problems.append(full)
        if self.log.used_bytes > _NEARLY * self.log.quota_bytes:
            problems.append(
                f"the log holds {self.log.used_bytes} of {self.log.quota_bytes} bytes, not acked: once it is full polls"
                " are dropped and counted as refused"
            )
        found = self.log.recovered
        return {
            "accepted_batches": self._intake.batches,
            "accepted_samples": self._intake.samples,
            "accepted_bytes": self._intake.bytes,
            "level": self.config.level,
            **self._sender.figures(),
            "log_bytes": self.log.used_bytes,
            "log_quota_bytes": self.log.quota_bytes,
            "epoch": f"{self.log.epoch:016x}",
            "recovered": {
                "cut_bytes": found.cut_bytes,
                "set_aside": len(found.set_aside),
                "missing_segments": len(found.missing),
                "new_epoch_because": self.log.new_epoch_because,
            },
            "refused": dict(self._intake.refused),
            "problems": problems,
        }

    @property
    def failing(self) -> str:
        """Why the agent takes nothing more, "" while it does."""
        return self.log.problem

    def _restore(self) -> None:
        """Go on with what the log holds."""
        now = self._clock.now_ms()
        found = self.log.recovered
        acked: list[tuple[BatchId, Place]] = []
        for header, place in (*found.batches, *found.series):
            position = found.sent.get(header.id)
            logged = min(now, header.poll_ms)
            if position is None:
                self._tracker.add(header, place, logged)
            elif self.config.level == "hdfs":
                self._tracker.restore_sent(header, place, position, logged)
            else:
                acked.append((header.id, place))
        self.log.note(RecordType.ACKED, encode_acked(id for id, _ in acked))
        self.log.release([place for _, place in acked])
        if self._tracker.pending:
            log.info("the log holds %d batches that are not acked", self._tracker.pending)

    def _count_rest(self, folder: Path) -> None:
        """Audit what became durable and was not counted before the process ended."""
        if self._audit.position[0] >= self.log.own_segment:
            self._audit.restart()
        now = self._clock.now_ms()
        for segment in segments_in(folder):
            if not self._audit.position[0] <= segment < self.log.own_segment:
                continue
            for record, payload in records_of(folder, segment):
                place = Place(segment, record.payload_at, record.length)
                if record.type == RecordType.BATCH and (segment, record.payload_at) > self._audit.position:
                    header = parse_header(payload)
                    minutes = minutes_of(decode_samples(header, payload))
                    self._audit.add([(header.source, minutes, place)], now)

    def _on_durable(self, placed: Sequence[tuple[Entry, Place]]) -> None:
        """Called by the log's flusher."""
        counted = [(e.header.source, e.minutes, p) for e, p in placed if e.type == RecordType.BATCH]
        try:
            self._audit.add(counted, self._clock.now_ms())
        except OSError as error:
            log.error("audit: %s", error)  # the next start counts from the log
        self._sender.logged(placed)

    def _stop_keeping(self) -> None:
        self.log.keep_segments = False


def _describe(wal: Log) -> bytes:
    data = {"host": socket.gethostname(), "pid": os.getpid(), "epoch": f"{wal.epoch:016x}"}
    return json.dumps(data).encode()
