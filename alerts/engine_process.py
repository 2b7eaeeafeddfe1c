"""Process of the alert engine: its folder, threads, registration in ZooKeeper, and health file."""

from __future__ import annotations

import fcntl
import logging
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any

from kazoo.client import KazooClient

from alerts.api.engine_server import EngineServer
from alerts.api.handlers import AlertHandlers
from alerts.dispatch.routing_file import check_routing
from alerts.evaluation.alert_charts import AlertCharts
from alerts.evaluation.alert_engine import AlertEngine, EngineConfig
from alerts.evaluation.feed_status import FeedStatus
from alerts.pair.engine_lease import EngineAddress, EngineLease
from alerts.pair.pair_member import EnginePair, PairMember
from alerts.pair.rule_shares import RuleShares
from alerts.pair.state_log import StateLog
from alerts.receivers.letter_sender import LetterSenders, always
from alerts.receivers.mail import MailSettings
from alerts.state.alert_database import AlertDatabase, open_database
from alerts.state.notification import MAIL
from alerts.state.publication import ALERTS_PATH
from alerts.state.row_changes import NotLeadingError
from alerts.state.rule import AlertsError
from artimon.access.authenticator import open_access
from artimon.model.clock import SYSTEM_CLOCK, Clock
from artimon.model.labels import validate_labels
from artimon.model.select import Store
from artimon.runtime.health import HealthFile, Publish, unpublished
from artimon.runtime.process_options import (
    AccessFile,
    Health,
    Insecure,
    ListenHost,
    ListenPort,
    Option,
    Zookeeper,
    in_milliseconds,
    process_name,
)
from artimon.runtime.process_setup import gc_tuned
from artimon.runtime.settings import SettingsError
from artimon.runtime.text import parse_process_name
from artimon.runtime.topic_check import TopicCheck, required_topics
from artimon.runtime.zookeeper_client import EphemeralNode, zookeeper_client
from query_dsl.stores.auto_store import AutoStore
from varstore.cluster.varstore_client import VarstoreClient

log = logging.getLogger(__name__)

HEALTH_S = 1.0
PUBLISH_PERIOD_S = 3.0
"""Maximum delay of the published counts of mails, in seconds."""
STUCK_TIMEOUT_S = 300.0
FOLLOW_S = 15.0
"""Time in seconds after which an engine that follows reads its rule files again, so that it can take over at once."""
FAILED_ROLE_S = 0.5
"""Pause in seconds before the role in a pair is tried again."""


@dataclass(frozen=True, slots=True)
class AlertsConfig:
    """Settings of one engine. `to`: targets of rules that name no receiver. `receivers`: settings by kind of receiver,
    see alerts/receivers. `page`: address of the page for links."""

    zookeeper: Zookeeper
    rules: Path
    """Folder of the rule files."""
    data: Annotated[
        Path,
        Option("Folder of the engine's state; one for each engine.", default_of=lambda place: place.data / "alerts"),
    ]
    receivers: Mapping[str, Any] = field(default_factory=dict)
    smtp: Annotated[str, Option("host:port of the mail server (ARTIMON_SMTP).", default_of=attrgetter("smtp"))] = ""
    id: Annotated[str, process_name("Name of this engine.")] = "alerts"
    page: Annotated[
        str, Option("Address of the page, for the links in mails.", "--link", default_of=attrgetter("api"))
    ] = ""
    to: Annotated[tuple[str, ...], Option("Addresses for rules without receivers.")] = ("artimon@localhost",)
    sender: Annotated[str, Option("Sender address of mails.")] = "artimon@localhost"
    smtp_settings: Annotated[Path | None, Option("JSON file, mode 0600: starttls, ca, user, password, sender.")] = None
    settle_ms: Annotated[
        int, in_milliseconds("Time for which late samples of a minute are waited for.", "--settle")
    ] = 15_000
    routing: Annotated[
        Path | None, Option("File of routes, groups, inhibition and time intervals, in the form of Alertmanager's.")
    ] = None
    recordings: Annotated[
        Path | None, Option("Folder of the agent's drop-in files, for the results of recording rules.")
    ] = None
    external_labels: Annotated[
        Mapping[str, str],
        Option(
            "NAME=VALUE for $externalLabels of templates; may be repeated.",
            "--external-label",
            read=lambda texts: parse_external_labels(texts),
            multiple=True,
        ),
    ] = field(default_factory=dict)
    host: ListenHost = "127.0.0.1"
    port: ListenPort = 0
    api_token: Annotated[Path | None, Option("File with the token that clients of the API present.")] = None
    access: AccessFile = None
    insecure: Insecure = False
    health: Health = None
    pair: Annotated[
        str,
        Option(
            "Name of the pair of engines that share state and rules; the API must be reachable by the others. Default: "
            "this engine is alone.",
            check=lambda name: name and parse_process_name(name),
        ),
    ] = ""
    kafka: Annotated[
        str, Option("Kafka for the state of a pair, host:port (ARTIMON_KAFKA).", default_of=attrgetter("kafka"))
    ] = ""
    lease_ms: Annotated[
        int, in_milliseconds("Time after which another engine of the pair replaces one that is gone.", "--lease")
    ] = 10_000
    topic_prefix: str = "artimon"
    hdfs: str | None = None
    """URI of the file system of the raw table, for rules that memory alone cannot answer; None: they fail."""


def run_alerts(
    config: AlertsConfig,
    stop: threading.Event,
    *,
    clock: Clock = SYSTEM_CLOCK,
    publish: Publish = unpublished,
    history: Callable[[Store], Callable[[], Store]] | None = None,
    memory_store: Store | None = None,
) -> None:
    """Run the engine until `stop`. Raises AlertsError if its configuration is unusable, TopicsUnfitError if the topic
    of its pair is.

    `history`: returns a function that opens the history; it gets the memory store. `memory_store`: asked in place of
    the shards."""
    if config.routing is not None:
        check_routing(config.routing)
    with ExitStack() as closing:
        closing.callback(os.close, _lock_folder(config.data))
        database, memory, damage = open_database(config.data, clock.now_ms())
        closing.callback(database.close)
        client = zookeeper_client(config.zookeeper, config.lease_ms / 1000)
        client.start_async()
        closing.callback(client.close)
        closing.callback(client.stop)
        shards = closing.enter_context(VarstoreClient(client, clock=clock))
        store = shards if memory_store is None else memory_store
        engine = AlertEngine(
            EngineConfig(
                config.id,
                config.rules,
                config.to,
                config.page,
                config.settle_ms,
                config.routing,
                config.recordings,
                config.external_labels,
            ),
            store,
            database,
            memory,
            clock,
            feeds=tuple if memory_store is not None else lambda: read_feeds(shards),
            past=None if history is None else AutoStore(store, history(store), clock),
        )
        state_log = _state_log(config, clock)
        if state_log is not None:
            database.replicate(state_log)
        handlers = AlertHandlers(engine, database, clock, config.page)
        server = closing.enter_context(_serving(handlers, config))
        engine.api = server.address
        topics = _topic_check(config, clock)
        if config.pair:
            topics.start(stop)
        pair = None if state_log is None else _pair(config, state_log, client, engine, database, server, clock)
        handlers.pair = pair
        may_send = always if pair is None else pair.member.may_send
        receivers = _with_charts(config.receivers, AlertCharts(store, lambda: engine.active, clock))
        senders = LetterSenders(database, receivers, config.page, clock, may_send)
        running = AlertsProcess(engine, senders, database, clock, damage, server, pair)
        closing.enter_context(gc_tuned())
        running.registration = EphemeralNode(client, f"{ALERTS_PATH}/{config.id}", running.display())
        running.run(HealthFile(config.health, "alerts", clock, publish), stop, topics)


def read_feeds(store: VarstoreClient) -> list[FeedStatus]:
    """Return the states of the shards. Raises SelectError."""
    return [FeedStatus.from_status(one) for one in store.feed_statuses().values()]


def parse_external_labels(texts: Iterable[str]) -> dict[str, str]:
    """Return the labels of texts NAME=VALUE. Raises ValueError."""
    found = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign:
            raise ValueError(f"{text!r:.100}: write NAME=VALUE")
        validate_labels({name: value})
        found[name] = value
    return found


def _with_charts(receivers: Mapping[str, Any], charts: AlertCharts) -> dict[str, Any]:
    """Return the settings of receivers with charts in mails."""
    mail = receivers.get(MAIL)
    return {**receivers, MAIL: replace(mail, charts=charts.chart)} if isinstance(mail, MailSettings) else {**receivers}


def _state_log(config: AlertsConfig, clock: Clock) -> StateLog | None:
    """Return the journal of the pair; None without one. Raises AlertsError."""
    if not config.pair:
        return None
    if not config.kafka:
        raise AlertsError("a pair keeps its state in Kafka: give --kafka host:port")
    return StateLog(config.kafka, f"{config.topic_prefix}.alerts", config.pair, config.id, clock)


def _topic_check(config: AlertsConfig, clock: Clock) -> TopicCheck:
    """Return the check of the topic of a pair; an engine that is alone uses none."""
    names = ("alerts",) if config.pair else ()
    return TopicCheck(config.kafka, required_topics(config.topic_prefix, names), clock)


def _pair(
    config: AlertsConfig,
    state_log: StateLog,
    client: KazooClient,
    engine: AlertEngine,
    database: AlertDatabase,
    server: EngineServer,
    clock: Clock,
) -> EnginePair:
    lease = EngineLease(client, config.pair, EngineAddress(config.id, server.address, clock.now_ms()), clock)
    member = PairMember(state_log, lease, database, engine.load, clock)
    shares = RuleShares(engine, config.id, lambda: lease.engines, member.position, clock, server.token)
    engine.shares = shares.request
    return EnginePair(lease, member, shares, server.token)


@contextmanager
def _serving(handlers: AlertHandlers, config: AlertsConfig) -> Iterator[EngineServer]:
    """Serve the API. Raises AlertsError."""
    try:
        server = EngineServer(
            handlers,
            config.host,
            config.port,
            token=config.api_token,
            insecure=config.insecure,
            access=open_access(config.access),
        )
        server.start()
    except SettingsError as problem:
        raise AlertsError(str(problem)) from problem
    except OSError as error:
        raise AlertsError(f"the API cannot listen on {config.host}:{config.port}: {error.strerror}") from error
    try:
        yield server
    finally:
        server.stop()


def _lock_folder(folder: Path) -> int:
    """Lock the data folder: two engines on one folder would send everything twice."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        held = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise AlertsError(f"{folder} cannot be used: {error.strerror}; give another --data") from error
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(held)
        raise AlertsError(f"another engine runs on {folder}: give each engine its own --data") from error
    return held


class AlertsProcess:
    """Runs the evaluation in a separate thread, so that health is reported while the store is slow."""

    registration: EphemeralNode

    def __init__(
        self,
        engine: AlertEngine,
        senders: LetterSenders,
        database: AlertDatabase,
        clock: Clock,
        damage: str,
        server: EngineServer,
        pair: EnginePair | None = None,
    ) -> None:
        self._engine, self._senders, self._database, self._clock = engine, senders, database, clock
        self._damage, self._server, self._pair = damage, server, pair
        self._followed_at = float("-inf")
        self._failing = ""
        self._evaluated_at = self._published_at = clock.monotonic()
        self._published_mail: dict[str, Any] = {}
        self._publish_lock = threading.Lock()
        """Guards `_shown`, `_shown_mail` and the order of updates; the registration's own lock is taken within."""

    def run(self, health: HealthFile, stop: threading.Event, topics: TopicCheck) -> None:
        """Run until `stop`, plus a few seconds at most; a running evaluation is abandoned. Raises TopicsUnfitError."""
        self.registration.start()
        if self._pair is not None:
            self._pair.start()
        self._senders.start()
        evaluating = threading.Thread(target=self._evaluate, args=(stop,), name="alert rules", daemon=True)
        evaluating.start()
        while not stop.is_set():
            topics.raise_unfit()
            self._report_health(health)
            self._publish_mail()
            self._clock.wait(stop, HEALTH_S)
        self._senders.stop(8.0)
        evaluating.join(3.0)
        if self._pair is not None:
            self._pair.stop()
        self.registration.stop(2.0)

    def _evaluate(self, stop: threading.Event) -> None:
        engine = self._engine
        while not stop.is_set():
            try:
                if self._follows():
                    self._evaluated_at = self._clock.monotonic()
                    continue
                if engine.evaluate_due():
                    self._senders.wake()
                    self._failing = ""
                    self._publish()
            except NotLeadingError as problem:
                log.info("evaluation: %s", problem)
                self._clock.wait(stop, 0.2)
            except Exception as error:  # a full disk, or a defect: report it and retry
                if not stop.is_set():
                    log.exception("evaluation")
                    self._failing = f"evaluation: {type(error).__name__}: {error}"
                    self._clock.wait(stop, 5.0)
            self._evaluated_at = self._clock.monotonic()
            self._clock.wait(stop, engine.wait_s())

    def _follows(self) -> bool:
        """Update the role of this engine in its pair; True if another engine leads."""
        pair = self._pair
        if pair is None:
            return False
        led = pair.member.leads
        pair.member.step()
        if pair.member.leads != led:
            self._publish()
            self._senders.wake()
        if not pair.member.leads and self._clock.monotonic() - self._followed_at >= FOLLOW_S:
            self._followed_at = self._clock.monotonic()
            self._engine.read_rules()
            self._failing = ""
        if not pair.member.leads and pair.member.problem:
            self._clock.wait(threading.Event(), FAILED_ROLE_S)
        return not pair.member.leads

    def _publish(self) -> None:
        with self._publish_lock:
            self._published_at, self._published_mail = self._clock.monotonic(), self.mail()
            self.registration.update(self._engine.display(self._published_mail, self._role()))

    def display(self) -> bytes:
        """JSON for the znode."""
        return self._engine.display(self.mail(), self._role())

    def _publish_mail(self) -> None:
        """Publish again if the counts of mails changed: mails are sent after the evaluation was published."""
        if self._clock.monotonic() - self._published_at >= PUBLISH_PERIOD_S and self.mail() != self._published_mail:
            self._publish()

    def _role(self) -> dict[str, Any]:
        return {} if self._pair is None else self._pair.member.figures()

    def mail(self) -> dict[str, Any]:
        """Counts of mails for the znode."""
        counts, figures = self._database.counts(), self._senders.figures
        problem = figures.problem or "; ".join(self._database.failures(1))
        return {"pending": counts["pending"], "sent": figures.sent, "failed": counts["failed"], "problem": problem}

    def figures(self) -> dict[str, Any]:
        """Counts since the start, and current values."""
        engine, shot, sent = self._engine, self._engine.result, self._senders.figures
        return {
            "rules": dict(shot.rules or {}),
            "alerts": dict(shot.alerts or {}),
            "evaluations": engine.evaluations,
            "last_ms": engine.time_ms,
            "duration_ms": round(shot.duration_ms),
            "delay_ms": shot.delay_ms,
            "late": shot.late,
            "questions": shot.queries,
            "missed": engine.missed,
            "mail": {
                "made": engine.letters_made,
                "sent": sent.sent,
                "failed": sent.failed,
                "pending": self._database.counts()["pending"],
                "dropped": self._database.dropped,
            },
            "pair": self._role(),
            "damaged": int(bool(self._damage)),
            "api": self._server.address,
            "warnings": self._server.warnings,
            "problems": self._problems(),
        }

    def _problems(self) -> list[str]:
        dropped = self._database.dropped
        too_many = f"{dropped} letters dropped: too many were waiting" if dropped else ""
        own = [self._damage, too_many, self._senders.figures.problem, self._engine.result.failing]
        own += [f"letter not sent: {problem}" for problem in self._database.failures(3)]
        own += self._pair.problems() if self._pair else []
        conflict = "another engine has the same id" if self.registration.conflict else ""
        return [*(problem for problem in (*own, conflict) if problem), *self._engine.result.problems]

    def _report_health(self, health: HealthFile) -> None:
        stuck = self._clock.monotonic() - self._evaluated_at > STUCK_TIMEOUT_S
        problem = self._failing or ("the evaluation hangs" if stuck else "")
        problem = problem or (self._pair.member.leaderless() if self._pair else "")
        if stuck and self._pair is not None:
            self._pair.lease.resign()
        state = "failing" if problem else "ok"
        if health.is_due(state, problem):
            health.write(state, problem, **self.figures())
