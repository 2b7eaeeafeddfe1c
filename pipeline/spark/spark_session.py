"""The Spark session of the application: a small JVM, fair pools of equal weight, Arrow batches that fit large values.
It runs on one machine, on a cluster with the driver here, or where spark-submit placed it: docs/deploy.md."""

from __future__ import annotations

import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyspark
from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from artimon.model.clock import SYSTEM_CLOCK, Clock
from artimon.runtime.class_archive import archive_flags
from artimon.runtime.kafka_access import REDACTED
from artimon.runtime.settings import load as load_settings
from pipeline.spark.spark_settings import SparkConfig

MAX_SOCKET_FOLDER = 40
"""Maximum length of Spark's temporary folder for Unix sockets, whose paths have at most 107 bytes. Beyond: TCP on
loopback."""

PYTHON = "spark.pyspark.python"
DAEMON = "pipeline.spark.worker_daemon"
ASK_S = 5.0
MAX_SILENT_CHECKS = 120
"""Calls of `alive`, one a second, without an answer of the JVM before it is given up; a long garbage collection is
shorter. Calls are counted, not seconds, so that a process that was itself stopped does not blame the JVM."""

_POOLS = """<?xml version="1.0"?>
<allocations>
  <pool name="raw"><schedulingMode>FIFO</schedulingMode><weight>1</weight><minShare>1</minShare></pool>
  <pool name="buckets"><schedulingMode>FIFO</schedulingMode><weight>1</weight><minShare>1</minShare></pool>
  <pool name="catchup"><schedulingMode>FIFO</schedulingMode><weight>1</weight><minShare>0</minShare></pool>
</allocations>
"""

# The JVM only moves bytes from Kafka to the tasks: the second compiler costs more than it saves. Stacks are large
# because Spark parses the text of a failure, a page or two, with a recursive pattern; 512 kB overflowed.
# Metaspace begins so large that loading Spark's classes collects no garbage.
_JAVA = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xss4m -XX:ReservedCodeCacheSize=96m"
    " -XX:-UsePerfData -XX:+ExitOnOutOfMemoryError -XX:MetaspaceSize=160m"
)


_CHECKPOINTS = "org.apache.spark.sql.execution.streaming.checkpointing"


class NoMasterError(RuntimeError):
    """No master is known: none was configured, and spark-submit did not start this process."""


def make_session(config: SparkConfig) -> SparkSession:
    """Start the JVM (or find that of spark-submit) and the session. Files go to `config.data`, a folder that only the
    driver sees. Raises NoMasterError."""
    config.data.mkdir(parents=True, exist_ok=True)
    pools = config.data.absolute() / "pools.xml"
    pools.write_text(_POOLS)
    builder: Any = SparkSession.builder.appName("artimon")
    settings = session_settings(config, pools, _submitted_settings() if not config.master else {})
    for key, value in settings.items():
        builder = builder.config(key, value)
    session: SparkSession = builder.getOrCreate()
    python = settings.get(PYTHON)
    if python:
        session.sparkContext.pythonExec = python
    session.sparkContext.setLogLevel("WARN")
    return session


def close_session(session: SparkSession, timeout_s: float) -> None:
    """Stop the session within `timeout_s`, without an error; while classes are recorded wait for the end of the JVM."""
    process = getattr(session.sparkContext._gateway, "proc", None)
    closing = threading.Thread(target=session.stop, daemon=True)
    closing.start()
    closing.join(timeout_s)
    if process is not None and load_settings().recording_classes:
        process.stdin.close()  # ends the JVM
        process.wait()


def is_local(master: str) -> bool:
    """Return True if driver and tasks are one JVM."""
    return master.partition("[")[0] == "local"  # local-cluster starts executors


def session_settings(config: SparkConfig, pools: Path, submitted: Mapping[str, str]) -> dict[str, str]:
    """Return all of Spark's settings: ours, overridden by those of the place, then by `config.conf`. Settings of
    spark-submit (`submitted`) are not repeated."""
    ours = {
        **_common_settings(pools),
        **(_local_settings(config) if is_local(config.master) else _cluster_settings(config)),
    }
    ours = {key: value for key, value in ours.items() if key not in submitted}
    if config.master:
        ours["spark.master"] = config.master
    return {**ours, **config.conf}


def _submitted_settings() -> dict[str, str]:
    """Return the settings given to spark-submit. Raises NoMasterError."""
    SparkContext._ensure_initialized()
    told: dict[str, str] = dict(SparkConf().getAll())
    if "spark.master" not in told:
        raise NoMasterError(
            "no Spark master is set: use --master, or start this with spark-submit --master (docs/deploy.md)"
        )
    return told


def _common_settings(pools: Path) -> dict[str, str]:
    return {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.scheduler.mode": "FAIR",
        "spark.scheduler.allocation.file": pools.as_uri(),
        "spark.sql.adaptive.enabled": "false",
        # values have about 15 kB: the default of 10,000 rows an Arrow batch would be 150 MB
        "spark.sql.execution.arrow.maxRecordsPerBatch": "200",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(pools.parent / "tmp" / "warehouse"),
        "spark.sql.streaming.metricsEnabled": "false",
        "spark.sql.streaming.numRecentProgressUpdates": "4",
        "spark.sql.streaming.stopTimeout": "5s",
        # the checkpoint is a local cache: its usual manager runs a dozen shell commands for each micro-batch, to follow
        # links and to set permissions, and half of what is left is for files of checksums
        "spark.sql.streaming.checkpointFileManagerClass": f"{_CHECKPOINTS}.FileSystemBasedCheckpointFileManager",
        "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
        # consumers with their prefetched data take some MB each: drop those of ended queries soon
        "spark.kafka.consumer.cache.timeout": "1m",
        "spark.kafka.consumer.cache.evictorThreadRunInterval": "20s",
        "spark.kafka.consumer.fetchedData.cache.timeout": "1m",
        "spark.kafka.consumer.fetchedData.cache.evictorThreadRunInterval": "20s",
        "spark.python.worker.reuse": "true",
        "spark.python.worker.memory": "128m",
        "spark.python.worker.faulthandler.enabled": "true",
        "spark.executorEnv.OMP_NUM_THREADS": "1",
        "spark.driver.maxResultSize": "256m",
        "spark.redaction.regex": REDACTED,
        "spark.sql.redaction.options.regex": REDACTED,
    }


def _local_settings(config: SparkConfig) -> dict[str, str]:
    """Return the settings for one JVM on this machine only, with Python workers in the driver's environment."""
    temporary = config.data.absolute() / "tmp"
    temporary.mkdir(exist_ok=True)
    settings = {
        "spark.driver.memory": config.driver_memory,
        "spark.driver.extraJavaOptions": " ".join(
            [_JAVA, "-Djava.net.preferIPv4Stack=true", f"-Djava.io.tmpdir={temporary}", *_archive_flags(config.jars)]
        ),
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.local.dir": str(temporary),
        "spark.python.unix.domain.socket.enabled": str(len(str(temporary)) <= MAX_SOCKET_FOLDER).lower(),
        PYTHON: sys.executable,
        "spark.python.daemon.module": DAEMON,
    }
    if config.jars:  # the class path is enough, no copies to executors needed
        settings["spark.driver.extraClassPath"] = ":".join(config.jars)
    return settings


def _archive_flags(connector: Sequence[str]) -> list[str]:
    """Return the flags for the archive of the driver's classes."""
    jars = [*Path(pyspark.__file__).parent.glob("jars/*.jar"), *map(Path, connector)]
    return archive_flags(load_settings(), "spark", jars)


def _cluster_settings(config: SparkConfig) -> dict[str, str]:
    """Return the settings for executors on other machines: they share no disk with the driver, and they die. The
    driver's JVM is not set here if spark-submit started it."""
    settings = {
        "spark.executor.extraJavaOptions": _JAVA,
        "spark.executor.memory": "1g",
        "spark.executor.memoryOverhead": "2g",  # the Python workers, one for each core
        "spark.executor.heartbeatInterval": "5s",
        "spark.network.timeout": "60s",  # longest delay of a micro-batch by a hanging machine
        "spark.log.level": "WARN",  # otherwise executors write a line for each read from Kafka
        "spark.executor.syncLogLevel.enabled": "true",
        "spark.executor.logs.rolling.strategy": "size",
        "spark.executor.logs.rolling.maxSize": str(16 * 1024 * 1024),
        "spark.executor.logs.rolling.maxRetainedFiles": "4",
        "spark.python.unix.domain.socket.enabled": "false",  # an executor's folders have long names
    }
    if config.jars:
        settings["spark.jars"] = ",".join(config.jars)
    if config.master:
        settings |= {
            "spark.driver.memory": config.driver_memory,
            "spark.driver.extraJavaOptions": _JAVA,
            PYTHON: sys.executable,  # the same path on every machine, unless set otherwise
        }
    return settings


class SessionWatch:
    """Asks the JVM in a thread of its own until `stop`, so that a JVM that hangs blocks no other thread."""

    def __init__(self, session: SparkSession, stop: threading.Event, clock: Clock = SYSTEM_CLOCK) -> None:
        self._session, self._stop, self._clock = session, stop, clock
        self._ended = False
        self._unanswered = 0
        threading.Thread(target=self._run, name="session-watch", daemon=True).start()

    def is_alive(self) -> bool:
        """Return False if JVM or application have ended, or the JVM is silent too long. Called once a second."""
        process = getattr(self._session.sparkContext._gateway, "proc", None)
        if process is not None and process.poll() is not None:
            return False
        self._unanswered += 1
        return not self._ended and self._unanswered < MAX_SILENT_CHECKS

    def _run(self) -> None:
        while not self._ended:
            try:
                self._ended = bool(self._session.sparkContext._jsc.sc().isStopped())
            except (Py4JError, OSError, AttributeError):  # no JVM, or the context is gone
                self._ended = True
            self._unanswered = 0
            if self._clock.wait(self._stop, ASK_S):
                return
