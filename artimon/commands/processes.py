"""Commands that run one process each; the stack starts them, and so may anything else."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from artimon.commands.common import (
    DataOption,
    DaysOption,
    HdfsOption,
    HealthOption,
    HostOption,
    InsecureOption,
    KafkaOption,
    KeepClassOption,
    QuotaOption,
    ZookeeperOption,
    duration,
    located,
    process_name,
    process_names,
)

app = typer.Typer()


def _bean_servers(texts: list[str] | None) -> list[str]:
    """Refuses at the command line what names no bean server."""
    from sources.base.errors import TargetError
    from sources.targets.bean_target import parse_target

    try:
        for text in texts or ():
            parse_target(text)
    except TargetError as problem:
        raise typer.BadParameter(str(problem)) from None
    return texts or []


def _mapping_rules(paths: list[Path] | None) -> list[Path]:
    """Refuses at the command line what is no file of mapping rules, with line and column."""
    from sources.base.errors import JmxRulesError
    from sources.scrape.jmx.mapping_file import read_rules

    try:
        for path in paths or ():
            read_rules(path)
    except JmxRulesError as problem:
        raise typer.BadParameter(str(problem)) from None
    return paths or []


def _sources_file(path: Path | None) -> Path | None:
    """Refuses at the command line a file of sources that cannot be used, with line and column; one that does not exist
    may come."""
    from sources.base.errors import SourcesFileError
    from sources.scrape.sources_file import read_sources

    try:
        if path is not None:
            read_sources(path)
    except FileNotFoundError:
        pass
    except SourcesFileError as problem:
        raise typer.BadParameter(str(problem)) from None
    return path


def _networks(texts: list[str] | None) -> list[str]:
    """Refuses at the command line what is no network."""
    from ipaddress import ip_network

    for text in texts or ():
        try:
            ip_network(text)
        except ValueError as problem:
            raise typer.BadParameter(f"{problem}: write ADDRESS/BITS, as 10.244.3.0/24") from None
    return texts or []


def _sites(texts: list[str] | None) -> list[str]:
    """Refuses at the command line what names no site."""
    from pipeline.sites.links import parse_sites

    try:
        parse_sites(texts or ())
    except ValueError as problem:
        raise typer.BadParameter(str(problem)) from None
    return texts or []


def _levels(text: str | None) -> str | None:
    """Refuses at the command line what are no levels."""
    from artimon.model.grid import GridError, parse_levels

    try:
        if text:
            parse_levels(text)
    except GridError as problem:
        raise typer.BadParameter(str(problem)) from None
    return text


@app.command()
def collector(
    identity: Annotated[
        str, typer.Option("--id", help="Name of this collector.", callback=process_name)
    ] = "collector-0",
    zookeeper: ZookeeperOption = None,
    kafka: KafkaOption = None,
    host: HostOption = "127.0.0.1",
    insecure: InsecureOption = False,
    port: Annotated[int, typer.Option(min=0, max=65_535, help="Port to listen on, 0 for any.")] = 0,
    kafka_quota: QuotaOption = None,
    health: HealthOption = None,
    store: Annotated[
        Literal["kafka", "hdfs"], typer.Option(help="hdfs: write files itself, without Kafka (docs/direct.md).")
    ] = "kafka",
    folder: Annotated[
        str | None, typer.Option(help="With --store hdfs: hdfs://HOST:PORT/folder, or file:///folder.")
    ] = None,
    scheme: Annotated[
        Literal["roll", "length"],
        typer.Option(help="With --store hdfs: acked when its file is closed, or when its durable length covers it."),
    ] = "roll",
    roll: Annotated[str, typer.Option(help="A file is closed after this time.", callback=duration)] = "30s",
    roll_mib: Annotated[int, typer.Option(min=1, max=1024, help="A file is closed at this size.")] = 64,
) -> None:
    """Run a collector."""
    from artimon import processes
    from artimon.settings import parse_quota

    place = located()
    if store == "hdfs":
        processes.direct_collector(
            identity=identity,
            zookeeper=zookeeper or place.zookeeper,
            folder=folder or f"{place.hdfs}/artimon/batches",
            scheme=scheme,
            roll=roll,
            roll_mib=roll_mib,
            host=host,
            port=port,
            insecure=insecure,
            health=health,
        )
        return
    processes.collector(
        identity=identity,
        zookeeper=zookeeper or place.zookeeper,
        kafka=kafka or place.kafka,
        host=host,
        port=port,
        insecure=insecure,
        kafka_quota_bytes=parse_quota(kafka_quota) if kafka_quota else place.kafka_quota_bytes,
        health=health,
    )


@app.command()
def agent(
    name: Annotated[str, typer.Option(help="Name of the agent, for ever the same.", callback=process_name)] = "local",
    zookeeper: ZookeeperOption = None,
    data: Annotated[Path | None, typer.Option(help="Folder of the log and the source's state.")] = None,
    poll: Annotated[str, typer.Option(help="Period of the polls, such as 60s.", callback=duration)] = "60s",
    level: Annotated[Literal["kafka", "hdfs"], typer.Option(help="Ack level.")] = "hdfs",
    host_metrics: Annotated[bool, typer.Option(help="Read this host's own figures too.")] = True,
    labels_rules: Annotated[Path | None, typer.Option(help="Rules that give labels by address.")] = None,
    dropin: Annotated[Path | None, typer.Option(help="Folder of drop-in files (ARTIMON_DROPIN).")] = None,
    jmx: Annotated[
        list[str] | None,
        typer.Option(help="A bean server, CONTEXT=http://HOST:PORT/jmx; may be repeated.", callback=_bean_servers),
    ] = None,
    jmx_rules: Annotated[
        list[Path] | None,
        typer.Option(help="A file of mapping rules besides the shipped ones.", callback=_mapping_rules),
    ] = None,
    sources: Annotated[
        Path | None,
        typer.Option(
            help="File that names Prometheus pages, bean servers, scripts and rules (docs/foreign.md).",
            callback=_sources_file,
        ),
    ] = None,
    own_network: Annotated[
        list[str] | None,
        typer.Option(
            help="A network of this host, whose processes this agent polls: that of its containers, as 10.244.3.0/24.",
            callback=_networks,
        ),
    ] = None,
    keep_class: KeepClassOption = None,
    group: Annotated[
        list[str] | None, typer.Option(help="Take the configuration of this group; may be repeated (default: default).")
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="File of configuration, under what ZooKeeper says (docs/control.md).")
    ] = None,
    live_first: Annotated[
        bool, typer.Option(help="After an outage new data overtakes what has waited for more than a minute.")
    ] = False,
    backlog_rate: Annotated[
        float, typer.Option(min=0, help="MiB a second for what has waited longer; 0: no limit.")
    ] = 32.0,
    shed: Annotated[
        Literal["refuse", "oldest"],
        typer.Option(help="When the log is full: refuse what is new, or give up the oldest (docs/formats/wal.md)."),
    ] = "refuse",
    insecure: InsecureOption = False,
    flows: Annotated[Path | None, typer.Option(help="File of flows that run beside the polls (docs/flows.md).")] = None,
    delivery: Annotated[
        Literal["end-to-end", "disk-failover", "best-effort"],
        typer.Option(help="What is promised for what was polled (docs/direct.md)."),
    ] = "end-to-end",
    site: Annotated[
        list[str] | None,
        typer.Option(
            help="A data centre, NAME=ZOOKEEPER; repeated, in order of preference (docs/sites.md).", callback=_sites
        ),
    ] = None,
    allow: Annotated[
        Path | None,
        typer.Option(help="File of parts and folders that pushed configuration may use (docs/security.md)."),
    ] = None,
    keys: Annotated[
        Path | None,
        typer.Option(help="File of the keys that sign configuration and commands (ARTIMON_CONFIG_KEYS)."),
    ] = None,
    patience: Annotated[
        str,
        typer.Option(
            help="After so long without progress what was never sent goes to the next site.", callback=duration
        ),
    ] = "60s",
    health: HealthOption = None,
) -> None:
    """Run an agent."""
    from artimon import processes

    if site and delivery != "end-to-end":
        raise typer.BadParameter("with several sites delivery is end-to-end: nothing else knows which site has what")
    place = located()
    processes.agent(
        name=name,
        zookeeper=zookeeper or place.zookeeper,
        data=data or place.data / "agent",
        poll=poll,
        level=level,
        host_metrics=host_metrics,
        labels_rules=labels_rules,
        dropin=dropin or place.dropin,
        jmx=jmx or (),
        jmx_rules=jmx_rules or (),
        sources=sources,
        own_networks=own_network or (),
        keep=keep_class or (),
        groups=group or ("default",),
        configuration=config,
        live_first=live_first,
        backlog_mib_s=backlog_rate,
        shed=shed,
        insecure=insecure,
        flows=flows,
        delivery=delivery,
        sites=site or (),
        patience=patience,
        allow=allow,
        keys=keys or place.config_keys,
        health=health,
    )


@app.command()
def shard(
    identity: Annotated[
        str, typer.Option("--id", help="Id of this shard, for ever the same.", callback=process_name)
    ] = "0",
    members: Annotated[
        str,
        typer.Option(
            help="Ids of all shards, by comma, at the very first start; then `artimon shards` says it.",
            callback=process_names,
        ),
    ] = "0",
    zookeeper: ZookeeperOption = None,
    kafka: KafkaOption = None,
    host: HostOption = "127.0.0.1",
    insecure: InsecureOption = False,
    port: Annotated[int, typer.Option(min=0, max=65_535, help="Port to listen on, 0 for any.")] = 0,
    capacity: Annotated[
        int, typer.Option(min=0, help="Series that there is room for (0: what fits into memory, at most a million).")
    ] = 0,
    replicas: Annotated[int, typer.Option(min=1, help="How many shards hold each series; as --members.")] = 1,
    levels: Annotated[
        str | None, typer.Option(help="SECONDSxBUCKETS by comma, finest first (ARTIMON_LEVELS).", callback=_levels)
    ] = None,
    hdfs: Annotated[str | None, typer.Option(help="URI: copies of snapshots go there, and refills come from.")] = None,
    data: Annotated[Path | None, typer.Option(help="Folder of the snapshots; none without it.")] = None,
    name_limit: Annotated[int, typer.Option(min=0, help="Series of one name (0: 200,000).")] = 0,
    memory: Annotated[
        int, typer.Option(min=0, help="MiB beyond which new series are refused (0: 80 %, shared by the shards here).")
    ] = 0,
    sharing: Annotated[
        int, typer.Option(min=1, help="At least so many shards share this machine's memory; more, if more register.")
    ] = 1,
    health: HealthOption = None,
) -> None:
    """Run a memory shard."""
    from artimon import processes

    place = located()
    processes.shard(
        identity=identity,
        members=tuple(members.split(",")),
        zookeeper=zookeeper or place.zookeeper,
        kafka=kafka or place.kafka,
        host=host,
        port=port,
        insecure=insecure,
        capacity=capacity,
        replicas=replicas,
        levels=levels or place.levels,
        hdfs=hdfs,
        data=data,
        name_limit=name_limit,
        memory_mib=memory,
        sharing=sharing,
        health=health,
    )


def _spark_settings(file: Path | None, texts: list[str] | None) -> dict[str, str]:
    """Settings of a file, over them those of the command line. Refuses what Spark could not read."""
    from pipeline.spark.properties import PropertiesError, parse_conf, read_properties

    try:
        return {**(read_properties(file) if file else {}), **parse_conf(texts or ())}
    except PropertiesError as problem:
        raise typer.BadParameter(str(problem)) from None


@app.command()
def spark(
    zookeeper: ZookeeperOption = None,
    kafka: KafkaOption = None,
    hdfs: HdfsOption = None,
    data: Annotated[Path | None, typer.Option(help="Local folder of the checkpoints.")] = None,
    master: Annotated[
        str | None, typer.Option(help="Spark's master, else that of --properties, else local[4,4].")
    ] = None,
    driver_memory: Annotated[str, typer.Option(help="Heap of the driver's JVM.")] = "1g",
    jars: Annotated[str, typer.Option(help="The connector's jars, by comma.")] = "",
    properties: Annotated[Path | None, typer.Option(help="File of Spark's settings, as spark-submit reads it.")] = None,
    conf: Annotated[
        list[str] | None, typer.Option(help="spark.KEY=VALUE, a setting of Spark; may be repeated.")
    ] = None,
    submitted: Annotated[bool, typer.Option("--submitted", help="spark-submit has said where it runs.")] = False,
    topic_prefix: Annotated[str, typer.Option(help="What the names of the topics begin with.")] = "artimon",
    raw_interval: Annotated[
        str, typer.Option(help="How often the raw table gets an append.", callback=duration)
    ] = "30s",
    kafka_quota: QuotaOption = None,
    health: HealthOption = None,
) -> None:
    """Run the Spark application: raw table and buckets."""
    from artimon import processes
    from artimon.settings import parse_quota

    place, settings = located(), _spark_settings(properties, conf)
    named = settings.pop("spark.master", "local[4,4]")
    processes.spark(
        zookeeper=zookeeper or place.zookeeper,
        kafka=kafka or place.kafka,
        hdfs=hdfs or place.hdfs,
        data=data or place.data / "spark",
        master="" if submitted else master or named,
        driver_memory=driver_memory,
        jars=tuple(jar for jar in jars.split(",") if jar),
        conf=settings,
        topic_prefix=topic_prefix,
        raw_interval=raw_interval,
        kafka_quota_bytes=parse_quota(kafka_quota) if kafka_quota else place.kafka_quota_bytes,
        health=health,
    )


@app.command()
def compactor(
    zookeeper: ZookeeperOption = None,
    hdfs: HdfsOption = None,
    data: Annotated[Path | None, typer.Option(help="Local folder for what does not fit into memory.")] = None,
    keep: DaysOption = "*=400",
    interval: Annotated[str, typer.Option(help="How often to look at the table.", callback=duration)] = "30s",
    health: HealthOption = None,
) -> None:
    """Compact the raw table, remove what has expired, and delete dead files."""
    from artimon import processes

    place = located()
    processes.compactor(
        zookeeper=zookeeper or place.zookeeper,
        hdfs=hdfs or place.hdfs,
        data=data or place.data / "compactor",
        keep=keep,
        interval=interval,
        health=health,
    )


@app.command()
def api(
    zookeeper: ZookeeperOption = None,
    data: DataOption = None,
    port: Annotated[int, typer.Option(min=0, max=65_535, help="Port of HTTP, 0 for any.")] = 8780,
    thrift_port: Annotated[int, typer.Option(min=0, max=65_535, help="Port of Thrift, 0 for any.")] = 8781,
    limit: Annotated[list[str] | None, typer.Option(help="NAME=NUMBER: another limit, see docs/api.md.")] = None,
    host: HostOption = "127.0.0.1",
    name: Annotated[
        list[str] | None, typer.Option(help="A name by which people reach the page, besides --host; may be repeated.")
    ] = None,
    insecure: InsecureOption = False,
    health: HealthOption = None,
) -> None:
    """Run the API: HTTP with the page, and the Thrift service Matrix."""
    from artimon import processes
    from artimon.api.limits import BadLimit, Limits

    try:
        Limits().changed(limit or ())
    except BadLimit as problem:
        raise typer.BadParameter(str(problem)) from None
    place = located(data)
    processes.api(
        zookeeper=zookeeper or place.zookeeper,
        data=place.data,
        port=port,
        thrift_port=thrift_port,
        health=health,
        limits=limit or (),
        hdfs=place.hdfs,
        host=host,
        names=name or (),
        insecure=insecure,
    )


@app.command()
def smtp(
    zookeeper: ZookeeperOption = None,
    port: Annotated[int, typer.Option(min=0, max=65_535, help="Port to listen on, 0 for any.")] = 8725,
    data: DataOption = None,
    health: HealthOption = None,
) -> None:
    """Run an SMTP server on 127.0.0.1 that keeps every mail in the folder `mail` of the data folder."""
    from artimon import processes

    place = located(data)
    processes.smtp(zookeeper=zookeeper or place.zookeeper, port=port, data=place.data, health=health)


@app.command()
def alerts(
    zookeeper: ZookeeperOption = None,
    rules: Annotated[Path | None, typer.Option(help="Folder of the rule files.")] = None,
    data: Annotated[Path | None, typer.Option(help="Folder of the engine's state, of one engine only.")] = None,
    smtp: Annotated[str | None, typer.Option(help="host:port of the mail server (ARTIMON_SMTP).")] = None,
    smtp_settings: Annotated[
        Path | None, typer.Option(help="JSON file, mode 0600: starttls, ca, user, password, sender.")
    ] = None,
    link: Annotated[str | None, typer.Option(help="Address of the page, for the links in mails.")] = None,
    to: Annotated[list[str] | None, typer.Option(help="Where mails of rules without receivers go.")] = None,
    sender: Annotated[str, typer.Option(help="From whom mails are.")] = "artimon@localhost",
    settle: Annotated[
        str, typer.Option(help="How long after its end a bucket counts as settled.", callback=duration)
    ] = "15s",
    identity: Annotated[str, typer.Option("--id", help="Name of this engine.", callback=process_name)] = "alerts",
    health: HealthOption = None,
) -> None:
    """Run the alert engine."""
    from artimon import processes

    place = located()
    folder = data or place.data / "alerts"
    processes.alerts(
        zookeeper=zookeeper or place.zookeeper,
        rules=rules or folder / "rules",
        data=folder,
        smtp=smtp or place.smtp,
        link=place.api if link is None else link,
        to=tuple(to or ("artimon@localhost",)),
        sender=sender,
        smtp_settings=smtp_settings,
        settle=settle,
        identity=identity,
        health=health,
    )
