"""Commands that run one process each; the stack starts them, and so may anything else."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from artimon.commands.common import (
    DataOption,
    HdfsOption,
    HealthOption,
    HostOption,
    KafkaOption,
    QuotaOption,
    ZookeeperOption,
    duration,
    located,
)

app = typer.Typer()


def _bean_servers(texts: list[str] | None) -> list[str]:
    """Refuses at the command line what names no bean server."""
    from sources.errors import TargetError
    from sources.jmx_target import parse_target

    try:
        for text in texts or ():
            parse_target(text)
    except TargetError as problem:
        raise typer.BadParameter(str(problem)) from None
    return texts or []


def _mapping_rules(paths: list[Path] | None) -> list[Path]:
    """Refuses at the command line what is no file of mapping rules, with line and column."""
    from sources.errors import JmxRulesError
    from sources.jmx_rule_file import read_rules

    try:
        for path in paths or ():
            read_rules(path)
    except JmxRulesError as problem:
        raise typer.BadParameter(str(problem)) from None
    return paths or []


@app.command()
def collector(
    identity: Annotated[str, typer.Option("--id")] = "collector-0",
    zookeeper: ZookeeperOption = None,
    kafka: KafkaOption = None,
    host: HostOption = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65_535, help="Port to listen on, 0 for any.")] = 0,
    kafka_quota: QuotaOption = None,
    health: HealthOption = None,
) -> None:
    """Run a collector."""
    from artimon import processes
    from artimon.settings import parse_quota

    place = located()
    processes.collector(
        identity=identity,
        zookeeper=zookeeper or place.zookeeper,
        kafka=kafka or place.kafka,
        host=host,
        port=port,
        kafka_quota_bytes=parse_quota(kafka_quota) if kafka_quota else place.kafka_quota_bytes,
        health=health,
    )


@app.command()
def agent(
    name: Annotated[str, typer.Option(help="Name of the agent, for ever the same.")] = "local",
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
    health: HealthOption = None,
) -> None:
    """Run an agent."""
    from artimon import processes

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
        health=health,
    )


@app.command()
def shard(
    identity: Annotated[str, typer.Option("--id")] = "0",
    members: Annotated[str, typer.Option(help="Ids of all shards, by comma.")] = "0",
    zookeeper: ZookeeperOption = None,
    kafka: KafkaOption = None,
    host: HostOption = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65_535, help="Port to listen on, 0 for any.")] = 0,
    capacity: Annotated[int, typer.Option(min=1, help="Series that there is room for.")] = 1_000_000,
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
        capacity=capacity,
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
    keep: Annotated[
        str, typer.Option(help="CLASS=DAYS, by comma: how long each class is kept; * names all others.")
    ] = "*=400",
    interval: Annotated[str, typer.Option(help="How often to look at the table.", callback=duration)] = "30s",
    health: HealthOption = None,
) -> None:
    """Compact the raw table, remove what has expired, and delete dead files."""
    from artimon import processes
    from pipeline.compaction.config import KeepError, parse_keep

    try:
        parse_keep(keep)
    except KeepError as problem:
        raise typer.BadParameter(str(problem)) from None
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
    health: HealthOption = None,
) -> None:
    """Run the API on 127.0.0.1: HTTP with the page, and the Thrift service Matrix."""
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
    identity: Annotated[str, typer.Option("--id", help="Name of this engine.")] = "alerts",
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
