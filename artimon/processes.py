"""Wires the parts into processes: what each command of `artimon` runs. The only place where siblings meet by name."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from artimon.model.clock import SYSTEM_CLOCK
from artimon.model.health import HealthFile
from artimon.model.own_process import LEAVE_S, OwnProcess, instance_of, publishing
from artimon.model.protocols import Sink
from artimon.running import begin, duration_ms
from artimon.settings import secure_polls, security

if TYPE_CHECKING:
    from pipeline.agent import Agent
    from pipeline.flows.flows import Flows
    from sources.artimon_source import ArtimonSource

log = logging.getLogger("artimon")
HEALTH_S = 1.0
_STACK_BYTES = 1024 * 1024
"""Of each thread of a collector, which has one a connection: a thousand of them are not to take 8 GiB of addresses."""


@contextmanager
def checked_topics(stop: threading.Event) -> Iterator[None]:
    """Exit code UNFIT_EXIT, and the message in the log, for topics of Kafka that are set wrongly."""
    from artimon.model.topic_check import UNFIT_EXIT, TopicsUnfit

    try:
        yield
    except TopicsUnfit as problem:
        stop.set()
        log.error("%s", problem)
        raise SystemExit(UNFIT_EXIT) from None


def collector(
    *,
    identity: str,
    zookeeper: str,
    kafka: str,
    port: int,
    health: Path | None,
    host: str = "127.0.0.1",
    insecure: bool = False,
    kafka_quota_bytes: int = 0,
) -> None:
    """Run a collector until SIGTERM."""
    from pipeline.collector import CollectorConfig, run_collector

    stop = begin()
    threading.stack_size(_STACK_BYTES)
    own = publishing("collector", instance_of("collector", identity), zookeeper, stop)
    with checked_topics(stop), own as publish:
        config = CollectorConfig(
            id=identity,
            zookeeper=zookeeper,
            kafka=kafka,
            host=host,
            port=port,
            insecure=insecure,
            health=health,
            quota_bytes=kafka_quota_bytes,
        )
        run_collector(config, stop, publish=publish)


def direct_collector(
    *,
    identity: str,
    zookeeper: str,
    folder: str,
    scheme: Literal["roll", "length"],
    roll: str,
    roll_mib: int,
    port: int,
    health: Path | None,
    host: str = "127.0.0.1",
    insecure: bool = False,
) -> None:
    """Run a collector that writes files itself until SIGTERM; 2 and a message if `folder` is none."""
    from pipeline.direct.names import Scheme
    from pipeline.direct.roll import RollConfig
    from pipeline.direct.service import DirectConfig, run_direct_collector

    stop = begin()
    config = DirectConfig(
        id=identity,
        zookeeper=zookeeper,
        folder=folder,
        scheme=Scheme(scheme),
        roll=RollConfig(bytes=roll_mib * 2**20, seconds=duration_ms(roll) / 1000),
        host=host,
        port=port,
        insecure=insecure,
        health=health,
    )
    with publishing("collector", instance_of("collector", identity), zookeeper, stop) as publish:
        try:
            run_direct_collector(config, stop, publish=publish)
        except ValueError as problem:
            log.error("%s", problem)
            raise SystemExit(2) from None


def handover(*, name: str, kafka: str, zookeeper: str, level: Literal["kafka", "hdfs"], health: Path | None) -> None:
    """Hand over one site's topics to another site until SIGTERM."""
    from pipeline.sites.handover import Handover, HandoverConfig

    stop = begin()
    running = Handover(HandoverConfig(name, kafka, zookeeper, level))
    said = HealthFile(health, f"handover-{name}")
    running.start()
    try:
        while not SYSTEM_CLOCK.wait(stop, HEALTH_S):
            figures = running.figures()
            problem = "; ".join(one["problem"] for one in figures.values() if one["problem"])
            said.write("ok", problem, **figures)
    finally:
        running.stop()


def agent(
    *,
    name: str,
    zookeeper: str,
    data: Path,
    poll: str,
    level: Literal["kafka", "hdfs"],
    host_metrics: bool,
    labels_rules: Path | None,
    dropin: Path | None = None,
    jmx: Sequence[str] = (),
    jmx_rules: Sequence[Path] = (),
    sources: Path | None = None,
    own_networks: Sequence[str] = (),
    keep: Sequence[str] = (),
    health: Path | None,
    groups: Sequence[str] = ("default",),
    configuration: Path | None = None,
    live_first: bool = False,
    shed: Literal["refuse", "oldest"] = "refuse",
    backlog_mib_s: float = 32.0,
    insecure: bool = False,
    flows: Path | None = None,
    delivery: Literal["end-to-end", "disk-failover", "best-effort"] = "end-to-end",
    sites: Sequence[str] = (),
    patience: str = "60s",
    allow: Path | None = None,
    keys: Path | None = None,
    wrap_sink: Callable[[Sink], Sink] | None = None,
) -> None:
    """Run an agent with the artimon source until SIGTERM. `wrap_sink` lets a test see what passes."""
    from pipeline.agent import Agent, AgentConfig
    from pipeline.flows.context import INSECURE
    from pipeline.sites.links import parse_sites
    from sources.artimon_source import ArtimonSource
    from sources.delivery.source_config import SourceConfig
    from sources.state.keep_rules import parse_keep_rules
    from sources.targets.bean_target import parse_target

    stop = begin()
    places = parse_sites(sites)
    settings = AgentConfig(
        name=name,
        data=data,
        zookeeper=places[0].zookeeper if places else zookeeper,
        level=level,
        groups=tuple(groups),
        configuration=configuration,
        live_first=live_first,
        shed=shed,
        backlog_rate=backlog_mib_s * 1024 * 1024,
        delivery=delivery,
        sites=places,
        patience_s=duration_ms(patience) / 1000,
        return_s=duration_ms(patience) / 1000,
        keys=keys,
    )
    ours = _flows(flows, name, data, zookeeper, allow)
    running = _opened(lambda: Agent(settings, SYSTEM_CLOCK))
    running.runtime.flows = ours
    ours.share("groups", running.plane.directory)
    ours.share(INSECURE, insecure)
    own = OwnProcess("agent", instance_of("agent", name), zookeeper, stop)
    try:
        sink = wrap_sink(running.sink) if wrap_sink else running.sink
        source = ArtimonSource(
            SourceConfig(
                agent=name,
                zookeeper=zookeeper,
                data=data,
                period_ms=duration_ms(poll),
                host_metrics=host_metrics,
                rules=labels_rules,
                dropin=dropin,
                jmx=tuple(parse_target(text) for text in jmx),
                jmx_rules=tuple(jmx_rules),
                sources=sources,
                own_networks=tuple(own_networks),
                keep=parse_keep_rules(keep),
                security=security() if secure_polls() else None,
            ),
            sink,
            SYSTEM_CLOCK,
        )
        running.runtime.on_setting("poll", lambda period_ms: source.set_period(period_ms or duration_ms(poll)))
        ours.start()
        running.start()
        asyncio.run(_run_source(running, source, own, stop, HealthFile(health, "agent", publish=own), ours))
    finally:
        for problem in ours.stop():
            log.error("%s", problem)
        running.stop()
        own.end()


def _flows(file: Path | None, name: str, data: Path, zookeeper: str, allow: Path | None) -> Flows:
    """The agent's flows; 1 and what is wrong with a file if it cannot be used."""
    from pipeline.flows.flows import open_flows
    from pipeline.flows.spi import FlowError

    try:
        return open_flows(file, name, data, zookeeper, allow=allow)
    except FlowError as problem:
        log.error("%s", problem)
        raise SystemExit(1) from None


def _opened(agent: Callable[[], Agent]) -> Agent:
    """An agent with its log; 1 and a message if the log or the keys cannot be used."""
    from pipeline.log.files import LogError
    from pipeline.plane.signatures import KeyFileError

    try:
        return agent()
    except (LogError, KeyFileError) as problem:
        log.error("%s", problem)
        raise SystemExit(1) from None


async def _run_source(
    running: Agent,
    source: ArtimonSource,
    own: OwnProcess,
    stop: threading.Event,
    health: HealthFile,
    flows: Flows,
) -> None:
    """Run the source until `stop`, saying every second how the agent is; then until it has polled the agent itself,
    whose last figures are then in the log."""
    ended = asyncio.Event()
    polling = asyncio.create_task(source.run(ended))
    while not stop.is_set() and not polling.done():
        problem = running.failing
        figures = _joined(running.figures(), source.figures(), flows.figures())
        health.write("failing" if problem else "ok", problem, **figures)
        await asyncio.wait([polling], timeout=HEALTH_S)
    if not polling.done():
        await asyncio.to_thread(own.left.wait, LEAVE_S)
    ended.set()
    await polling


def _joined(
    log_figures: dict[str, Any], source_figures: dict[str, Any], flow_figures: dict[str, Any]
) -> dict[str, Any]:
    """Figures of the log, of the source and of the flows as one; what both have is put together."""
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


def shard(
    *,
    identity: str,
    members: tuple[str, ...],
    zookeeper: str,
    kafka: str,
    port: int,
    capacity: int,
    health: Path | None,
    host: str = "127.0.0.1",
    insecure: bool = False,
    replicas: int = 1,
    levels: str = "",
    hdfs: str | None = None,
    data: Path | None = None,
    name_limit: int = 0,
    memory_mib: int = 0,
    sharing: int = 1,
) -> None:
    """Run a memory shard until SIGTERM. `name_limit`, `memory_mib`: 0 for what `Limits` says."""
    from artimon.model.grid import DEFAULT_LEVELS, GridError, parse_levels
    from varstore.series.limits import SERIES_A_NAME, LimitError, Limits
    from varstore.server import LevelsDiffer, ShardConfig, run_shard

    stop = begin()
    try:
        chosen = parse_levels(levels) if levels else DEFAULT_LEVELS
    except GridError as problem:
        log.error("%s", problem)
        raise SystemExit(2) from None
    config = ShardConfig(
        id=identity,
        members=members,
        zookeeper=zookeeper,
        kafka=kafka,
        host=host,
        port=port,
        insecure=insecure,
        capacity=capacity,
        health=health,
        replicas=replicas,
        levels=chosen,
        hdfs=hdfs,
        data=data,
        sharing=sharing,
        limits=Limits(name_limit or SERIES_A_NAME, memory_bytes=memory_mib * 2**20),
    )
    with checked_topics(stop), publishing("shard", instance_of("shard", identity), zookeeper, stop) as publish:
        try:
            run_shard(config, stop, publish=publish)
        except (LevelsDiffer, LimitError) as problem:
            log.error("%s", problem)
            raise SystemExit(1) from None


def spark(
    *,
    zookeeper: str,
    kafka: str,
    hdfs: str,
    data: Path,
    master: str,
    driver_memory: str,
    jars: tuple[str, ...],
    raw_interval: str,
    health: Path | None,
    conf: Mapping[str, str] | None = None,
    topic_prefix: str = "artimon",
    kafka_quota_bytes: int = 0,
) -> None:
    """Run the Spark application, raw table and buckets, until SIGTERM. `master` "" is for spark-submit to say."""
    from pipeline.spark.application import SparkConfig, run_application

    stop = begin()
    config = SparkConfig(
        zookeeper=zookeeper,
        kafka=kafka,
        hdfs=hdfs,
        data=data,
        master=master,
        driver_memory=driver_memory,
        jars=list(jars),
        conf=dict(conf or {}),
        topic_prefix=topic_prefix,
        raw_interval_s=duration_ms(raw_interval) / 1000,
        kafka_quota_bytes=kafka_quota_bytes,
        health=health,
    )
    with checked_topics(stop), publishing("spark", "spark", zookeeper, stop) as publish:
        run_application(config, stop, publish=publish)


def compactor(*, zookeeper: str, hdfs: str, data: Path, keep: str, interval: str, health: Path | None) -> None:
    """Compact and expire the raw table until SIGTERM. Raises KeepError for a wrong `keep`."""
    from pipeline.compaction.config import CompactorConfig, parse_keep
    from pipeline.compaction.service import run_compactor

    interval_s = duration_ms(interval) / 1000
    config = CompactorConfig(zookeeper, hdfs, data, health, parse_keep(keep), interval_s)
    stop = begin()
    with publishing("compactor", "compactor", zookeeper, stop) as publish:
        run_compactor(config, stop, publish=publish)


def api(
    *,
    zookeeper: str,
    data: Path,
    port: int,
    thrift_port: int,
    health: Path | None,
    limits: Sequence[str] = (),
    hdfs: str | None = None,
    host: str = "127.0.0.1",
    names: Sequence[str] = (),
    insecure: bool = False,
) -> None:
    """Run the API, HTTP and Thrift, over the memory shards until SIGTERM; its status is of the stack on `data`, if one
    runs. `limits` are changes of artimon/api/limits.py; `hdfs` is where the history is, read in this process; `names`:
    by which people reach it besides `host`."""
    from alerts.state.publication import read_alerts
    from artimon.api.app import make_app, served_hosts
    from artimon.api.latest import Latest
    from artimon.api.limits import Limits
    from artimon.api.server import run_server
    from artimon.model.registration import zookeeper_client
    from artimon.overview import api_alerts, api_status, opener
    from varstore.cluster.client import VarstoreClient

    bounds = Limits().changed(limits)
    stop = begin()
    client = zookeeper_client(zookeeper)
    client.start_async()
    try:
        with publishing("api", "api", zookeeper, stop) as publish, VarstoreClient(zookeeper) as store:
            shards = Latest("the shards", store.statuses, SYSTEM_CLOCK)
            engines = Latest("the alerts", lambda: read_alerts(client), SYSTEM_CLOCK)
            status, alerts = (lambda: api_status(shards, data)), (lambda: api_alerts(engines))
            history = opener(hdfs, zookeeper, store) if hdfs is not None else None
            served = served_hosts(host, names)
            app = make_app(store, status, SYSTEM_CLOCK, bounds, served, alerts=alerts, history=history)
            run_server(app, port, health, stop, publish=publish, thrift_port=thrift_port, host=host, insecure=insecure)
    finally:
        client.stop()
        client.close()


def smtp(*, zookeeper: str, port: int, data: Path, health: Path | None) -> None:
    """Run the local SMTP server until SIGTERM; mails stay in `<data>/mail`."""
    from artimon.stack.smtp import run_smtp

    stop = begin()
    with publishing("mail", "mail", zookeeper, stop) as publish:
        run_smtp(port, data, health, stop, publish=publish)


def alerts(
    *,
    zookeeper: str,
    rules: Path,
    data: Path,
    smtp: str,
    link: str,
    to: tuple[str, ...],
    sender: str,
    smtp_settings: Path | None,
    settle: str,
    identity: str,
    health: Path | None,
) -> None:
    """Run the alert engine until SIGTERM; 1 and a message if it cannot run as it is told to."""
    from alerts.engine_process import AlertsConfig, run_alerts
    from alerts.receivers import mail
    from alerts.state.errors import AlertsError

    stop = begin()
    try:
        config = AlertsConfig(
            zookeeper=zookeeper,
            rules=rules,
            data=data,
            receivers={mail.RECEIVER.name: mail.load_settings(smtp, sender, smtp_settings)},
            id=identity,
            page=link,
            to=to,
            settle_ms=duration_ms(settle),
            health=health,
        )
        with publishing("alerts", identity, zookeeper, stop) as publish:
            run_alerts(config, stop, publish=publish)
    except AlertsError as problem:
        log.error("%s", problem)
        raise SystemExit(1) from None
