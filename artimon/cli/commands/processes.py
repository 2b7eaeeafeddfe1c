"""Commands that run one process each, started by the stack or by any service manager."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from artimon.cli.common import Panel
from artimon.cli.settings_command import OptionValues, settings_command

PANEL = Panel.PROCESS
app = typer.Typer()


@settings_command(
    app,
    "pipeline.collector.collector_process:CollectorConfig",
    "pipeline.collector.hdfs.hdfs_collector:HdfsCollectorConfig",
)
def collector(
    given: OptionValues,
    store: Annotated[
        Literal["kafka", "hdfs"], typer.Option(help="hdfs: write files itself, without Kafka (docs/direct.md).")
    ] = "kafka",
) -> None:
    """Run a collector."""
    from artimon.cli import process_wiring as processes
    from pipeline.collector.collector_process import CollectorConfig
    from pipeline.collector.hdfs.hdfs_collector import HdfsCollectorConfig

    if store == "hdfs":
        processes.run_direct_process(given.make(HdfsCollectorConfig))
    else:
        processes.run_collector_process(given.make(CollectorConfig))


@settings_command(app, "varstore.shard_process:ShardConfig")
def shard(given: OptionValues) -> None:
    """Run a memory shard."""
    from artimon.cli import process_wiring as processes
    from varstore.shard_process import ShardConfig

    processes.run_shard_process(given.make(ShardConfig))


def _spark_settings(file: Path | None, texts: list[str] | None) -> dict[str, str]:
    """Merge settings of a file with those of the command line, which win. Rejects settings invalid for Spark."""
    from pipeline.spark.spark_settings import PropertiesError, parse_conf, read_properties

    try:
        return {**(read_properties(file) if file else {}), **parse_conf(texts or ())}
    except PropertiesError as problem:
        raise typer.BadParameter(str(problem)) from None


@settings_command(app, "pipeline.spark.spark_settings:SparkConfig")
def spark(
    given: OptionValues,
    master: Annotated[
        str | None, typer.Option(help="Spark's master, else that of --properties, else local[4,4].")
    ] = None,
    properties: Annotated[Path | None, typer.Option(help="File of Spark's settings, as spark-submit reads it.")] = None,
    conf: Annotated[
        list[str] | None, typer.Option(help="spark.KEY=VALUE, a setting of Spark; may be repeated.")
    ] = None,
    submitted: Annotated[bool, typer.Option("--submitted", help="Use the master given to spark-submit.")] = False,
) -> None:
    """Run the Spark application: raw table and buckets."""
    from artimon.cli import process_wiring as processes
    from pipeline.spark.spark_settings import LOCAL_MASTER, SparkConfig

    settings = _spark_settings(properties, conf)
    named = settings.pop("spark.master", LOCAL_MASTER)
    processes.run_spark_process(given.make(SparkConfig, conf=settings, master="" if submitted else master or named))


@settings_command(app, "pipeline.compaction.compaction_settings:CompactorConfig")
def compactor(given: OptionValues) -> None:
    """Compact the raw table, remove what has expired, and delete dead files."""
    from artimon.cli import process_wiring as processes
    from pipeline.compaction.compaction_settings import CompactorConfig

    processes.run_compactor_process(given.make(CompactorConfig))


@settings_command(app, "artimon.api.api_limits:ApiConfig")
def api(given: OptionValues) -> None:
    """Run the API: HTTP with the page, and the Thrift service Matrix."""
    from artimon.api.api_limits import ApiConfig
    from artimon.cli import process_wiring as processes

    processes.run_api_process(given.make(ApiConfig, hdfs=given.defaults.hdfs))


@settings_command(app, "artimon.stack.smtp:SmtpConfig")
def smtp(given: OptionValues) -> None:
    """Run an SMTP server on 127.0.0.1 that keeps every mail in the folder `mail` of the data folder."""
    from artimon.cli import process_wiring as processes
    from artimon.stack.smtp import SmtpConfig

    processes.run_smtp_process(given.make(SmtpConfig))
