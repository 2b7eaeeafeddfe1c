"""Processes of `artimon`, one function each. The only module that imports sibling packages and connects them."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from artimon.model.clock import SYSTEM_CLOCK
from artimon.model.protocols import Sink
from artimon.runtime.health import HealthFile
from artimon.runtime.process_setup import install_signal_handlers
from artimon.runtime.self_metrics_endpoint import EXIT_TIMEOUT_S, SelfMetricsEndpoint, instance_of, published_metrics
from artimon.runtime.settings import secure_polls, security

if TYPE_CHECKING:
    from alerts.engine_process import AlertsConfig
    from artimon.api.api_limits import ApiConfig
    from artimon.api.fleet_status import ClusterStatus
    from artimon.api.timed_call import TimedCall
    from artimon.model.select import Store
    from artimon.stack.smtp import SmtpConfig
    from pipeline.collector.collector import CollectorConfig
    from pipeline.collector.hdfs.hdfs_collector import HdfsCollectorConfig
    from pipeline.compaction.compaction_settings import CompactorConfig
    from pipeline.flows.runtime.agent_transport import Agent, AgentConfig
    from pipeline.flows.runtime.flows import Flows
    from pipeline.sites.mirror import MirrorConfig
    from pipeline.spark.spark_settings import SparkConfig
    from sources.artimon_source import ArtimonSource
    from sources.delivery.source_config import SourceConfig
    from varstore.shard_process import ShardConfig

log = logging.getLogger("artimon")
HEALTH_S = 1.0
_STACK_BYTES = 1024 * 1024
"""Stack size of a collector's threads, one per connection: 1 GiB of addresses for a thousand, not the default 8."""


@contextmanager
def _exits(*errors: type[Exception], code: int = 1) -> Iterator[None]:
    """Log an error of these classes and exit with `code`."""
    try:
        yield
    except errors as problem:
        log.error("%s", problem)
        raise SystemExit(code) from None


@contextmanager
def check_topics_or_exit(stop: threading.Event) -> Iterator[None]:
    """Log the message and exit with UNFIT_EXIT if Kafka's topics are misconfigured."""
    from artimon.runtime.topic_check import UNFIT_EXIT, TopicsUnfitError

    try:
        yield
    except TopicsUnfitError as problem:
        stop.set()
        log.error("%s", problem)
        raise SystemExit(UNFIT_EXIT) from None


def run_collector_process(config: CollectorConfig) -> None:
    """Run a collector until SIGTERM."""
    from pipeline.collector.collector import run_collector

    stop = install_signal_handlers()
    threading.stack_size(_STACK_BYTES)
    own = published_metrics("collector", instance_of("collector", config.id), config.zookeeper, stop)
    with check_topics_or_exit(stop), own as publish:
        run_collector(config, stop, publish=publish)


def run_direct_process(config: HdfsCollectorConfig) -> None:
    """Run a collector that writes files itself until SIGTERM; exits with 2 if its folder is invalid."""
    from pipeline.collector.hdfs.hdfs_collector import run_hdfs_collector

    stop = install_signal_handlers()
    own = published_metrics("collector", instance_of("collector", config.id), config.zookeeper, stop)
    with own as publish, _exits(ValueError, code=2):
        run_hdfs_collector(config, stop, publish=publish)


def run_handover_process(config: MirrorConfig) -> None:
    """Copy one site's topics to another site until SIGTERM."""
    from pipeline.sites.mirror import SiteMirror

    stop = install_signal_handlers()
    running = SiteMirror(config)
    said = HealthFile(config.health, f"handover-{config.name}")
    running.start()
    try:
        while not SYSTEM_CLOCK.wait(stop, HEALTH_S):
            figures = running.figures()
            problem = "; ".join(one["problem"] for one in figures.values() if one["problem"])
            said.write("ok", problem, **figures)
    finally:
        running.stop()


def run_agent_process(
    settings: AgentConfig, polls: SourceConfig, wrap_sink: Callable[[Sink], Sink] | None = None
) -> None:
    """Run an agent with the artimon source until SIGTERM. `wrap_sink` lets tests observe the batches."""
    from artimon.runtime.config_file import ConfigFileError
    from pipeline.control.signatures import KeyFileError
    from pipeline.flows.context import GROUPS, INSECURE
    from pipeline.flows.runtime.agent_transport import Agent
    from pipeline.flows.runtime.flows import open_flows
    from pipeline.flows.spi import FlowError
    from pipeline.wal.file_system import LogError
    from sources.artimon_source import ArtimonSource

    stop = install_signal_handlers()
    home = settings.sites[0].zookeeper if settings.sites else settings.zookeeper
    polls = replace(polls, security=security() if secure_polls() else None)
    with _exits(ConfigFileError, FlowError):
        ours = open_flows(settings.flows, settings.name, settings.data, settings.zookeeper, allow=settings.allow)
    with _exits(LogError, KeyFileError):
        running = Agent(replace(settings, zookeeper=home, return_s=settings.patience_s), SYSTEM_CLOCK)
    running.controls.flows = ours
    ours.share_object(GROUPS, running.plane.directory)
    ours.share_object(INSECURE, settings.insecure)
    own = SelfMetricsEndpoint("agent", instance_of("agent", settings.name), settings.zookeeper, stop)
    try:
        source = ArtimonSource(polls, wrap_sink(running.sink) if wrap_sink else running.sink, SYSTEM_CLOCK)
        period_ms = polls.period_ms
        running.controls.on_setting("poll", lambda other_ms: source.set_period(other_ms or period_ms))
        ours.start()
        running.start()
        health = HealthFile(settings.health, "agent", publish=own)
        asyncio.run(_run_source(running, source, own, stop, health, ours))
    finally:
        for problem in ours.stop():
            log.error("%s", problem)
        running.stop()
        own.close()


async def _run_source(
    running: Agent,
    source: ArtimonSource,
    own: SelfMetricsEndpoint,
    stop: threading.Event,
    health: HealthFile,
    flows: Flows,
) -> None:
    """Run the source until `stop` and write the agent's health every second. Then wait up to LEAVE_S until it has
    polled the agent itself, so that the last figures are in the log."""
    ended = asyncio.Event()
    polling = asyncio.create_task(source.run(ended))
    while not stop.is_set() and not polling.done():
        problem = running.failing
        figures = _merge_figures(running.figures(), source.figures(), flows.figures())
        health.write("failing" if problem else "ok", problem, **figures)
        await asyncio.wait([polling], timeout=HEALTH_S)
    if not polling.done():
        await asyncio.to_thread(own.unregistered.wait, EXIT_TIMEOUT_S)
    ended.set()
    await polling


def _merge_figures(
    log_figures: dict[str, Any], source_figures: dict[str, Any], flow_figures: dict[str, Any]
) -> dict[str, Any]:
    """Merge the figures of the log, the source and the flows; common tables and lists are concatenated."""
    return {
        **flow_figures,
        **log_figures,
        **source_figures,
        "refused": {**log_figures["refused"], **source_figures["refused"]},
        "log_refused": log_figures["refused"],
        "source_refused": source_figures["refused"],
        "problems": [*log_figures["problems"], *source_figures["problems"], *flow_figures["problems"]],
        "warnings": [text for one in (log_figures, source_figures, flow_figures) for text in one.get("warnings", ())],
    }


def run_shard_process(config: ShardConfig) -> None:
    """Run a memory shard until SIGTERM."""
    from varstore.index.shard_limits import CapacityLimitError
    from varstore.shard_process import LevelsDiffer, run_shard

    stop = install_signal_handlers()
    own = published_metrics("shard", instance_of("shard", config.id), config.zookeeper, stop)
    with check_topics_or_exit(stop), own as publish, _exits(LevelsDiffer, CapacityLimitError):
        run_shard(config, stop, publish=publish)


def run_spark_process(config: SparkConfig) -> None:
    """Run the Spark application, raw table and buckets, until SIGTERM."""
    from pipeline.spark.application import run_application

    stop = install_signal_handlers()
    with check_topics_or_exit(stop), published_metrics("spark", "spark", config.zookeeper, stop) as publish:
        run_application(config, stop, publish=publish)


def run_compactor_process(config: CompactorConfig) -> None:
    """Compact and expire the raw table until SIGTERM."""
    from pipeline.compaction.compactor_process import run_compactor

    stop = install_signal_handlers()
    with published_metrics("compactor", "compactor", config.zookeeper, stop) as publish:
        run_compactor(config, stop, publish=publish)


def run_api_process(config: ApiConfig) -> None:
    """Run the HTTP and Thrift API over the memory shards until SIGTERM. This process reads the history itself."""
    from alerts.state.publication import read_alerts
    from artimon.api.api_server import run_server
    from artimon.api.app import make_app, served_hosts
    from artimon.api.fleet_status import read_cluster
    from artimon.api.timed_call import TimedCall
    from artimon.runtime.zookeeper_client import zookeeper_session
    from varstore.cluster.varstore_client import VarstoreClient

    stop, place = install_signal_handlers(), config.zookeeper
    with (
        zookeeper_session(place) as client,
        published_metrics("api", "api", place, stop) as publish,
        VarstoreClient(place) as store,
    ):
        cluster = TimedCall("the shards", lambda: read_cluster(store, SYSTEM_CLOCK.now_ms()), SYSTEM_CLOCK, fresh_s=2.0)
        engines = TimedCall("the alerts", lambda: read_alerts(client), SYSTEM_CLOCK)
        status, alerts = (lambda: api_status(cluster, config.data)), (lambda: api_alerts(engines))
        history = opener(config.hdfs, place, store) if config.hdfs is not None else None
        served = served_hosts(config.host, config.names)
        app = make_app(store, status, SYSTEM_CLOCK, config.limits, served, alerts=alerts, history=history)
        run_server(
            app,
            config.port,
            config.health,
            stop,
            publish=publish,
            thrift_port=config.thrift_port,
            host=config.host,
            insecure=config.insecure,
        )


def opener(hdfs: str, zookeeper: str, memory: Store) -> Callable[[], Store]:
    """Return a function that opens the history once, without Spark: the API has no memory for Spark's JVM."""

    @lru_cache(maxsize=1)
    def opened() -> Store:
        from query_dsl.stores.history.engine import History
        from query_dsl.stores.history_store import HistoryStore

        return HistoryStore(History(hdfs, zookeeper), memory.levels(), "local")

    return opened


def api_alerts(engines: TimedCall[dict[str, Any]]) -> dict[str, Any]:
    """Return the alerts of all engines within two seconds; "problem" says why they may be stale or missing."""
    told = engines.get()
    found = told.value or {"engines": [], "rules": [], "alerts": [], "truncated": 0, "problem": ""}
    return {**found, "problem": "; ".join(text for text in (told.problem, found["problem"]) if text)}


def api_status(cluster: TimedCall[ClusterStatus], data: Path) -> dict[str, Any]:
    """Return parts and hops from the health files of `data`, the processes of the cluster and the status of each shard,
    within two seconds. "problems" includes a missing answer of the shards. "stack" is there only if no stack runs, and
    says so: the processes of the cluster then decide on "healthy"."""
    from artimon.api.fleet_status import FleetStatus
    from artimon.stack.stack_errors import NotRunningError
    from artimon.stack.status import read_status

    told = cluster.get()
    fleet = told.value.fleet if told.value else FleetStatus([], problem=told.problem)
    status: dict[str, Any] = {"shards": told.value.shards if told.value else {}, "fleet": fleet.to_json()}
    try:
        found = read_status(data).to_json()
        status |= {name: found[name] for name in ("healthy", "parts", "hops", "problems", "warnings")}
    except NotRunningError as problem:
        status |= {"parts": [], "hops": [], "stack": str(problem), "healthy": not fleet.problems}
        status |= {"problems": fleet.problems, "warnings": fleet.warnings}
    if told.problem and told.problem not in status["problems"]:
        status |= {"healthy": False, "problems": [*status["problems"], told.problem]}
    return status


def run_smtp_process(config: SmtpConfig) -> None:
    """Run the local SMTP server until SIGTERM."""
    from artimon.stack.smtp import run_smtp

    stop = install_signal_handlers()
    with published_metrics("mail", "mail", config.zookeeper, stop) as publish:
        run_smtp(config.port, config.data, config.health, stop, publish=publish)


def run_alerts_process(config: AlertsConfig) -> None:
    """Run the alert engine until SIGTERM; logs the error and exits with 1 if its configuration is invalid."""
    from alerts.engine_process import run_alerts
    from alerts.receivers import mail
    from alerts.state.rule import AlertsError

    stop = install_signal_handlers()
    with _exits(AlertsError):
        mails = mail.load_settings(config.smtp, config.sender, config.smtp_settings)
        config = replace(config, receivers={mail.RECEIVER.name: mails})
        with published_metrics("alerts", config.id, config.zookeeper, stop) as publish:
            hdfs = config.hdfs
            history = None if hdfs is None else lambda memory: opener(hdfs, config.zookeeper, memory)
            run_alerts(config, stop, publish=publish, history=history)
