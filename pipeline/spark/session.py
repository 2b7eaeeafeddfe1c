"""The one Spark session of the application: a small JVM, two pools of equal right, Arrow batches that fit large
values."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from pipeline.spark.config import SparkConfig

MAX_SOCKET_FOLDER = 40
"""Spark makes the names of its Unix sockets in its temporary folder; the system allows 107 bytes in all. Beyond: TCP
on loopback."""

_POOLS = """<?xml version="1.0"?>
<allocations>
  <pool name="raw"><schedulingMode>FIFO</schedulingMode><weight>1</weight><minShare>1</minShare></pool>
  <pool name="buckets"><schedulingMode>FIFO</schedulingMode><weight>1</weight><minShare>1</minShare></pool>
  <pool name="catchup"><schedulingMode>FIFO</schedulingMode><weight>1</weight><minShare>0</minShare></pool>
</allocations>
"""


def make_session(config: SparkConfig) -> SparkSession:
    """Start the JVM and the session. Files go to `config.data`."""
    config.data.mkdir(parents=True, exist_ok=True)
    pools = config.data / "pools.xml"
    pools.write_text(_POOLS)
    builder: Any = SparkSession.builder.master(config.master).appName("artimon")
    for key, value in _settings(config, pools).items():
        builder = builder.config(key, value)
    session: SparkSession = builder.getOrCreate()
    session.sparkContext.pythonExec = sys.executable  # the workers run in the very environment of the driver
    session.sparkContext.setLogLevel("WARN")
    return session


def _settings(config: SparkConfig, pools: Path) -> dict[str, str]:
    temporary = config.data / "tmp"
    temporary.mkdir(exist_ok=True)
    settings = {
        "spark.driver.memory": config.driver_memory,
        "spark.driver.extraJavaOptions": (
            # the JVM only moves bytes from Kafka to the tasks: the second compiler costs more than it gives
            "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xss512k -XX:ReservedCodeCacheSize=96m"
            " -XX:-UsePerfData -XX:+ExitOnOutOfMemoryError"
            f" -Djava.net.preferIPv4Stack=true -Djava.io.tmpdir={temporary}"
        ),
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.local.dir": str(temporary),
        "spark.sql.warehouse.dir": str(temporary / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.scheduler.mode": "FAIR",
        "spark.scheduler.allocation.file": pools.as_uri(),
        "spark.sql.adaptive.enabled": "false",
        # values are about 15 kB: the default of 10,000 rows an Arrow batch would be 150 MB
        "spark.sql.execution.arrow.maxRecordsPerBatch": "200",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.streaming.metricsEnabled": "false",
        "spark.sql.streaming.numRecentProgressUpdates": "4",
        "spark.sql.streaming.stopTimeout": "5s",
        "spark.python.worker.reuse": "true",
        "spark.python.worker.memory": "128m",
        "spark.python.worker.faulthandler.enabled": "true",
        "spark.python.unix.domain.socket.enabled": str(len(str(temporary)) <= MAX_SOCKET_FOLDER).lower(),
        "spark.executorEnv.OMP_NUM_THREADS": "1",
        "spark.driver.maxResultSize": "256m",
    }
    if config.jars:
        local = config.master.startswith("local")
        # one machine: the class path is enough, nothing need be copied to executors
        settings["spark.driver.extraClassPath" if local else "spark.jars"] = (":" if local else ",").join(config.jars)
    return settings
