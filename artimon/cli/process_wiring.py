"""Processes of `artimon`, one function each. The only module that imports sibling packages and connects them."""

from __future__ import annotations

import logging
import shutil
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from artimon.cli.common import exits_logged
from artimon.model.clock import SYSTEM_CLOCK
from artimon.runtime.health import HealthFile
from artimon.runtime.process_setup import install_signal_handlers
from artimon.runtime.self_metrics_endpoint import instance_of, published_metrics
from artimon.runtime.settings import SettingsError

if TYPE_CHECKING:
    from alerts.engine_process import AlertsConfig
    from artimon.access.authenticator import Authenticator
    from artimon.api.api_limits import ApiConfig
    from artimon.api.fleet_status import ClusterStatus, FleetPage
    from artimon.api.timed_call import TimedCall
    from artimon.model.select import Store
    from artimon.stack.smtp import SmtpConfig
    from pipeline.collector.collector_process import CollectorConfig
    from pipeline.collector.hdfs.hdfs_collector import HdfsCollectorConfig
    from pipeline.compaction.compaction_settings import CompactorConfig
    from pipeline.control.control_tree import ControlTree
    from pipeline.sites.mirror import MirrorConfig
    from pipeline.spark.spark_settings import SparkConfig
    from query_dsl.stores.closed_parts import ClosedParts
    from varstore.shard_process import ShardConfig

log = logging.getLogger("artimon")
HEALTH_S = 1.0
LIVE_AGENTS_S = 1.0
"""Timeout of a read of the nodes of agents, for the answer of a query."""
SWEEP_PARTS_S = 300.0
"""Interval of the search for cached results of deleted samples, in seconds: that of the compactor for dead files."""
_STACK_BYTES = 1024 * 1024
"""Stack size of a collector's threads, one per connection: 1 GiB of addresses for a thousand, not the default 8."""


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
    from pipeline.collector.collector_process import run_collector

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
    with own as publish, exits_logged(ValueError, code=2):
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


def run_shard_process(config: ShardConfig) -> None:
    """Run a memory shard until SIGTERM."""
    from varstore.index.shard_limits import CapacityLimitError
    from varstore.shard_process import LevelsDiffer, run_shard

    stop = install_signal_handlers()
    own = published_metrics("shard", instance_of("shard", config.id), config.zookeeper, stop)
    with check_topics_or_exit(stop), own as publish, exits_logged(LevelsDiffer, CapacityLimitError):
        run_shard(config, stop, publish=publish)


def run_spark_process(config: SparkConfig) -> None:
    """Run the Spark application, raw table and buckets, until SIGTERM."""
    from pipeline.spark.application import run_application

    stop = install_signal_handlers()
    own = published_metrics("spark", instance_of("spark", config.id), config.zookeeper, stop)
    with check_topics_or_exit(stop), own as publish:
        run_application(config, stop, publish=publish)


def run_compactor_process(config: CompactorConfig) -> None:
    """Compact and expire the raw table until SIGTERM."""
    from pipeline.compaction.compactor_process import run_compactor

    stop = install_signal_handlers()
    with published_metrics("compactor", instance_of("compactor", config.id), config.zookeeper, stop) as publish:
        run_compactor(config, stop, publish=publish)


def run_api_process(config: ApiConfig) -> None:
    """Run the HTTP and Thrift API over the memory shards until SIGTERM. This process reads the history itself."""
    from alerts.state.publication import read_alerts
    from artimon.access.authenticator import open_access
    from artimon.api.alert_routes import read_engine_token
    from artimon.api.api_server import run_server
    from artimon.api.app import make_app, served_hosts
    from artimon.api.fleet_status import ClusterReader
    from artimon.api.rollout_status import read_rollout
    from artimon.api.timed_call import TimedCall
    from artimon.dashboards.dashboard_store import DashboardStore
    from artimon.runtime.zookeeper_client import zookeeper_session
    from pipeline.control.control_tree import ControlTree
    from varstore.cluster.varstore_client import VarstoreClient

    stop, place = install_signal_handlers(), config.zookeeper
    with exits_logged(SettingsError, code=2):
        access = open_access(config.access)
    with (
        zookeeper_session(place) as client,
        published_metrics("api", config.instance, place, stop) as publish,
        VarstoreClient(place) as store,
    ):
        cluster = TimedCall("the shards", ClusterReader(store, SYSTEM_CLOCK).read, SYSTEM_CLOCK, fresh_s=2.0)
        engines = TimedCall("the alerts", lambda: read_alerts(client), SYSTEM_CLOCK)
        rollout = TimedCall("the configuration", lambda: read_rollout(ControlTree(client)), SYSTEM_CLOCK, fresh_s=30.0)
        status, alerts = partial(api_status, cluster, config.data), partial(api_alerts, engines)
        history = None
        if config.hdfs is not None:
            parts = open_parts(config.hdfs, config.data / "history-cache", config.history_cache, stop)
            history = opener(config.hdfs, place, store, parts)
        served = served_hosts(config.host, (*config.names, *public_host(access)))
        app = make_app(
            store,
            status,
            SYSTEM_CLOCK,
            config.limits,
            served,
            alerts=alerts,
            history=history,
            hard=config.hard,
            promql=config.promql,
            access=access,
            alerts_token=read_engine_token(config.alerts_token),
            dashboards=DashboardStore(config.dashboards),
            configuration=partial(api_configuration, rollout),
            agents=partial(live_agents, ControlTree(client)),
        )
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


def open_parts(hdfs: str, folder: Path, max_bytes: int, stop: threading.Event) -> ClosedParts | None:
    """Return the cache of closed parts, and sweep it until `stop`. With 0 bytes there is none, and its folder goes."""
    from artimon.runtime.supervision import LoopGuard
    from query_dsl.stores.closed_parts import ClosedParts

    if not max_bytes:
        shutil.rmtree(folder, ignore_errors=True)
        return None
    parts, turns = ClosedParts(folder, max_bytes), LoopGuard("search for cached results of deleted samples")

    def sweep() -> None:
        while not stop.is_set():
            turns.attempt(partial(parts.sweep, hdfs))
            SYSTEM_CLOCK.wait(stop, SWEEP_PARTS_S)

    threading.Thread(target=sweep, name="sweep-parts", daemon=True).start()
    return parts


def public_host(access: Authenticator | None) -> tuple[str, ...]:
    """Return the host name in the address that browsers use, if one is configured."""
    from urllib.parse import urlsplit

    name = urlsplit(access.access.url).hostname if access else None
    return (name,) if name else ()


def opener(hdfs: str, zookeeper: str, memory: Store, parts: ClosedParts | None = None) -> Callable[[], Store]:
    """Return a function that opens the history once, without Spark: the API has no memory for Spark's JVM. `parts`:
    cache of closed days."""

    @lru_cache(maxsize=1)
    def opened() -> Store:
        from query_dsl.stores.history.engine import History
        from query_dsl.stores.history_store import HistoryStore

        return HistoryStore(History(hdfs, zookeeper), memory.levels(), "local", parts=parts)

    return opened


def api_alerts(engines: TimedCall[dict[str, Any]]) -> dict[str, Any]:
    """Return the alerts of all engines within two seconds; "problem" says why they may be stale or missing."""
    told = engines.get()
    lists: dict[str, Any] = {name: [] for name in ("engines", "rules", "recordings", "alerts")}
    found = told.value or {**lists, "truncated": 0, "problem": ""}
    return {**found, "problem": "; ".join(text for text in (told.problem, found["problem"]) if text)}


def api_configuration(rollout: TimedCall[dict[str, Any]]) -> dict[str, Any]:
    """Return the roll-out of the agents' configuration within two seconds; "problem" says why it may be stale."""
    from artimon.api.rollout_status import UNKNOWN

    told = rollout.get()
    return {**(told.value or UNKNOWN), "problem": told.problem}


def live_agents(tree: ControlTree, names: Collection[str]) -> Mapping[str, Mapping[str, Any]] | None:
    """Return the reports of those of some agents that are live; None if ZooKeeper does not answer in time."""
    from artimon.runtime.zookeeper_watcher import ZOOKEEPER_ERRORS

    try:
        return tree.live_reports(names, LIVE_AGENTS_S)
    except ZOOKEEPER_ERRORS:
        return None


def api_status(cluster: TimedCall[ClusterStatus], data: Path, page: FleetPage | None = None) -> dict[str, Any]:
    """Return parts and hops from the health files of `data`, the processes of the cluster and the status of each shard,
    within two seconds. "problems" includes a missing answer of the shards. "stack" is there only if no stack runs, and
    says so: the processes of the cluster then decide on "healthy"."""
    from artimon.api.fleet_status import FleetStatus
    from artimon.stack.stack_errors import NotRunningError
    from artimon.stack.status import read_status

    told = cluster.get()
    fleet = told.value.fleet if told.value else FleetStatus([], problem=told.problem)
    status: dict[str, Any] = {"shards": told.value.shards if told.value else {}, "fleet": fleet.to_json(page=page)}
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
    with published_metrics("mail", instance_of("mail", config.id), config.zookeeper, stop) as publish:
        run_smtp(config.port, config.data, config.health, stop, publish=publish)


def run_alerts_process(config: AlertsConfig) -> None:
    """Run the alert engine until SIGTERM; logs the error and exits with 1 if its configuration is invalid."""
    from alerts.engine_process import run_alerts
    from alerts.receivers import mail
    from alerts.state.rule import AlertsError

    stop = install_signal_handlers()
    with exits_logged(AlertsError):
        mails = mail.load_settings(config.smtp, config.sender, config.smtp_settings)
        config = replace(config, receivers={mail.RECEIVER.name: mails})
        with published_metrics("alerts", instance_of("alerts", config.id), config.zookeeper, stop) as publish:
            hdfs = config.hdfs
            history = None if hdfs is None else lambda memory: opener(hdfs, config.zookeeper, memory)
            with check_topics_or_exit(stop):
                run_alerts(config, stop, publish=publish, history=history)
