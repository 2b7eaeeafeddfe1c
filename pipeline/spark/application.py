"""The Spark application: one session, two independent queries, the table of series, the publication of acks."""

from __future__ import annotations

import logging
import shutil
import threading

from kazoo.client import KazooClient
from pyspark.sql import SparkSession

from artimon.model.clock import SYSTEM_CLOCK, Clock
from artimon.model.failpoints import Failpoint, no_failpoint
from artimon.runtime.file_access import check_reachable
from artimon.runtime.health import HealthFile, Publish, unpublished
from artimon.runtime.supervision import RetryLoop, SupervisedThread, one_line
from artimon.runtime.topic_check import TopicCheck, required_topics
from artimon.runtime.zookeeper_client import close_client, zookeeper_client
from pipeline.spark.acks_publisher import AcksPublisher
from pipeline.spark.buckets_query import BucketsQuery
from pipeline.spark.raw_query import RawQuery
from pipeline.spark.retention import TopicTrimmer
from pipeline.spark.series_writer import SeriesWriter
from pipeline.spark.spark_session import SessionWatch, close_session, make_session
from pipeline.spark.spark_settings import SparkConfig
from pipeline.spark.suspects import SUSPECTS_FILE, Suspects
from pipeline.spark.topic_client import TopicClient, TopicError

__all__ = ["SessionLostError", "SparkConfig", "run_application"]

log = logging.getLogger(__name__)

HEALTH_INTERVAL_S = 1.0
START_INTERVAL_S = 0.1
"""Interval of health reports until both queries run, and of looks at the servers before."""
SERVERS_TIMEOUT_S = 20.0
"""Limit of the wait for servers that start beside this process; after it the queries retry by themselves."""
FIRST_PAUSE_S = 0.25
"""First pause of a query that failed: at a start, mostly because a server was not ready."""
STOP_TIMEOUT_S = 6.0


class SessionLostError(RuntimeError):
    """The JVM ended, or the cluster ended the application: the process must be restarted."""


def run_application(
    config: SparkConfig,
    stop: threading.Event,
    clock: Clock = SYSTEM_CLOCK,
    probe: Failpoint = no_failpoint,
    publish: Publish = unpublished,
) -> None:
    """Run until `stop`. Missing services (ZooKeeper, Kafka, HDFS, shards) are named in log and health and waited for.

    Raises SessionLostError if the JVM dies, TopicsUnfitError if a topic is set wrongly."""
    for chatty in ("py4j", "kafka", "kazoo"):  # failures are raised, and logged once by us
        logging.getLogger(chatty).setLevel(logging.CRITICAL)
    health = HealthFile(config.health or config.data / "health.json", "spark", clock, publish)
    health.write("starting", "Spark is starting")
    shutil.rmtree(config.data / "checkpoints", ignore_errors=True)  # caches of an earlier run
    session = make_session(config)
    zookeeper = zookeeper_client(config.zookeeper, pause_s=5.0)
    zookeeper.start_async()
    try:
        _run(config, session, zookeeper, health, stop, clock, probe)
    finally:
        _close(session, zookeeper)


def _run(
    config: SparkConfig,
    session: SparkSession,
    zookeeper: KazooClient,
    health: HealthFile,
    stop: threading.Event,
    clock: Clock,
    probe: Failpoint,
) -> None:
    _await_servers(config, health, stop, clock)
    watch = SessionWatch(session, stop, clock)
    acks = AcksPublisher(config, zookeeper, clock)
    raw_life: list[SupervisedThread] = []
    buckets_life: list[SupervisedThread] = []
    suspects = Suspects(config.data / SUSPECTS_FILE)
    raw = RawQuery(config, session, lambda: raw_life[0].healthy(), acks.wake, clock, probe, suspects)
    buckets = BucketsQuery(config, session, zookeeper, lambda: buckets_life[0].healthy(), clock, suspects)
    raw_life.append(SupervisedThread("raw", raw.run, stop, clock, FIRST_PAUSE_S))
    buckets_life.append(SupervisedThread("buckets", buckets.run, stop, clock, FIRST_PAUSE_S))
    publisher = threading.Thread(target=acks.run, args=(stop,), name="acks", daemon=True)
    series = SeriesWriter(config.kafka, config.series_topic, config.hdfs, config.series_interval_s, clock)
    following = threading.Thread(target=series.run, args=(stop,), name="series", daemon=True)
    lives: list[RetryLoop] = [*raw_life, *buckets_life, series.retry]
    threads: list[SupervisedThread | threading.Thread] = [*raw_life, *buckets_life, following]
    for thread in threads:
        thread.start()
    publisher.start()
    topics = TopicCheck(config.kafka, required_topics(config.topic_prefix, ("samples", "series", "deadletters")), clock)
    topics.start(stop)
    retention = TopicTrimmer(config, clock)
    threading.Thread(target=retention.run, args=(stop,), name="retention", daemon=True).start()
    state = "starting"
    while not clock.wait(stop, START_INTERVAL_S if state == "starting" else HEALTH_INTERVAL_S):
        topics.raise_unfit()
        if not watch.is_alive():
            health.write("failing", "Spark's session ended")
            raise SessionLostError("Spark's JVM or its application ended: see the log above and restart the process")
        problems = [f"{life.name}: {life.problem}" for life in lives if life.problem]
        problems += [f"acks: {acks.problem}"] if acks.problem else []
        problems += [topics.problem] if topics.problem else []
        state = "ok" if not problems else "starting" if all(life.restarts == 0 for life in lives) else "failing"
        problem = "; ".join(problems)
        figures = {"raw": raw.figures(), "buckets": buckets.figures(), "series": series.figures()}
        if not health.is_due(state, problem, figures["raw"]["until"], figures["buckets"].get("shards")):
            continue
        restarts = {life.name: life.restarts for life in lives}
        told = {"problems": retention.problems, "warnings": raw.problems()}
        kafka = retention.figures()
        health.write(state, problem, **figures, restarts=restarts, kafka=kafka, **told)
    acks.wake()
    for thread in threads:
        thread.join(STOP_TIMEOUT_S)
    publisher.join(1)


def _await_servers(config: SparkConfig, health: HealthFile, stop: threading.Event, clock: Clock) -> None:
    """Wait until file system and topic are there: they may start at the same time as this process. A JVM takes as long
    to start as they do, so it is started first."""
    until = clock.monotonic() + SERVERS_TIMEOUT_S
    while not stop.is_set() and clock.monotonic() < until:
        problem = _server_problem(config)
        if not problem:
            return
        health.write("starting", problem)
        clock.wait(stop, START_INTERVAL_S)


def _server_problem(config: SparkConfig) -> str:
    """Return the first server that does not answer yet and why; "" if all do."""
    topic = TopicClient(config.kafka, config.samples_topic)
    try:
        check_reachable(config.hdfs)
        topic.describe()
    except (OSError, TopicError) as error:
        return one_line(error)
    finally:
        topic.close()
    return ""


def _close(session: SparkSession, zookeeper: KazooClient) -> None:
    try:
        close_client(zookeeper)
    except Exception as error:  # nothing depends on it
        log.debug("ZooKeeper client: %s", error)
    close_session(session, STOP_TIMEOUT_S)
