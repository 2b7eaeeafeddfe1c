"""Wires the parts into processes: what each command of `artimon` runs. The only place where siblings meet by name."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Literal

from artimon.model.clock import SYSTEM_CLOCK
from artimon.model.health import HealthFile
from artimon.model.protocols import Sink

if TYPE_CHECKING:
    from artimon.stack.stack import Stack
    from pipeline.agent import Agent
    from sources.artimon_source import ArtimonSource
    from varstore.client import VarstoreClient

log = logging.getLogger("artimon")
HEALTH_S = 1.0
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|min|h)")
_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000}


def begin() -> threading.Event:
    """Set up logging and signals of a process; the event is set by SIGTERM or SIGINT."""
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    quiet()
    stop = threading.Event()

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    signal.signal(signal.SIGTERM, on_signal)
    signal.signal(signal.SIGINT, on_signal)
    return stop


def quiet() -> None:
    """Clients of servers log every attempt; what matters of it our own messages say."""
    for noisy in ("kazoo", "kafka", "py4j"):
        logging.getLogger(noisy).setLevel(logging.CRITICAL)


def duration_ms(text: str) -> int:
    """Milliseconds of "10s", "500ms", "1m". Raises ValueError."""
    found = _DURATION.fullmatch(text.strip())
    if not found:
        raise ValueError(f"{text!r} is no duration: write a number and ms, s, m or h, such as 60s")
    return int(float(found[1]) * _UNITS_MS[found[2]])


def collector(*, identity: str, zookeeper: str, kafka: str, port: int, health: Path | None) -> None:
    """Run a collector until SIGTERM."""
    from pipeline.collector import CollectorConfig, run_collector

    stop = begin()
    run_collector(CollectorConfig(id=identity, zookeeper=zookeeper, kafka=kafka, port=port, health=health), stop)


def agent(
    *,
    name: str,
    zookeeper: str,
    data: Path,
    poll: str,
    level: Literal["kafka", "hdfs"],
    host_metrics: bool,
    labels_rules: Path | None,
    health: Path | None,
    wrap_sink: Callable[[Sink], Sink] | None = None,
) -> None:
    """Run an agent with the artimon source until SIGTERM. `wrap_sink` lets a test see what passes."""
    from pipeline.agent import Agent, AgentConfig
    from sources.artimon_source import ArtimonSource
    from sources.config import SourceConfig

    stop = begin()
    config = AgentConfig(name=name, data=data, zookeeper=zookeeper, level=level)
    running = Agent(config, SYSTEM_CLOCK)
    running.start()
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
            ),
            sink,
            SYSTEM_CLOCK,
        )
        asyncio.run(_run_source(running, source, stop, HealthFile(health, "agent") if health else None))
    finally:
        running.stop()


async def _run_source(running: Agent, source: ArtimonSource, stop: threading.Event, health: HealthFile | None) -> None:
    """Run the source until `stop`, saying every second how the agent is."""
    ended = asyncio.Event()
    polling = asyncio.create_task(source.run(ended))
    while not stop.is_set() and not polling.done():
        if health is not None:
            problem = running.failing
            health.write("failing" if problem else "ok", problem, **_joined(running.figures(), source.figures()))
        await asyncio.wait([polling], timeout=HEALTH_S)
    ended.set()
    await polling


def _joined(log_figures: dict[str, Any], source_figures: dict[str, Any]) -> dict[str, Any]:
    """Figures of the log and of the source as one; what both have is put together."""
    return {
        **log_figures,
        **source_figures,
        "refused": {**log_figures["refused"], **source_figures["refused"]},
        "problems": [*log_figures["problems"], *source_figures["problems"]],
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
) -> None:
    """Run a memory shard until SIGTERM."""
    from varstore.server import NotAMember, ShardConfig, run_shard

    stop = begin()
    config = ShardConfig(
        id=identity, members=members, zookeeper=zookeeper, kafka=kafka, port=port, capacity=capacity, health=health
    )
    try:
        run_shard(config, stop)
    except NotAMember as problem:
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
) -> None:
    """Run the Spark application, raw table and buckets, until SIGTERM."""
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
        raw_interval_s=duration_ms(raw_interval) / 1000,
        health=health,
    )
    run_application(config, stop)


def api(*, zookeeper: str, data: Path, port: int, health: Path | None) -> None:
    """Run the HTTP API over the memory shards until SIGTERM; its status is of the stack on `data`, if one runs."""
    from artimon.api.app import make_app
    from artimon.api.server import run_server
    from varstore.client import VarstoreClient

    stop = begin()
    with VarstoreClient(zookeeper) as store:
        run_server(make_app(store, lambda: _api_status(store, data), SYSTEM_CLOCK), port, health, stop)


def _api_status(store: VarstoreClient, data: Path) -> dict[str, Any]:
    """Parts and hops by the health files of `data`, each shard as it says itself; "stack" says why there are none."""
    from artimon.stack.errors import NotRunning
    from artimon.stack.status import read_status
    from varstore.client import StoreUnavailable

    try:
        found = read_status(data).to_json()
        status = {name: found[name] for name in ("healthy", "parts", "hops", "problems")}
    except NotRunning as problem:
        status = {"healthy": True, "parts": [], "hops": [], "problems": [], "stack": str(problem)}
    try:
        return {**status, "shards": store.statuses()}
    except StoreUnavailable as problem:
        return {**status, "healthy": False, "shards": {}, "problems": [*status["problems"], str(problem)]}


def asking(zookeeper: str) -> VarstoreClient:
    """A client for one question; what fails is said once, by the answer. Raises SelectError for a bad address."""
    from artimon.model.select import SelectError
    from varstore.client import VarstoreClient

    quiet()
    try:
        return VarstoreClient(zookeeper)
    except ValueError as problem:
        raise SelectError(f"{zookeeper} is no address of a ZooKeeper: write host:port ({problem})") from None


def query(text: str, *, zookeeper: str, as_json: bool) -> int:
    """Ask the memory shards and print the matrix; 1 and a message when the question is wrong."""
    from artimon.model.select import SelectError
    from query_dsl import QueryError, evaluate, parse, render_table

    try:
        with asking(zookeeper) as store:
            matrix = evaluate(parse(text), store, SYSTEM_CLOCK.now_ms())
    except (QueryError, SelectError) as problem:
        print(f"artimon: {problem}", file=sys.stderr)
        return 1
    print(matrix.to_json() if as_json else render_table(matrix))
    return 0


def find(selector: str, *, zookeeper: str, limit: int, as_json: bool) -> int:
    """Print the series that a selector matches, one canonical text a line; 1 when it is wrong or nothing matches."""
    from artimon.model.labels import canonical
    from artimon.model.select import SelectError
    from query_dsl import QueryError, parse_selector
    from query_dsl.render import printable

    try:
        with asking(zookeeper) as store:
            found = store.find(parse_selector(selector).matchers, limit)
    except (QueryError, SelectError) as problem:
        print(f"artimon: {problem}", file=sys.stderr)
        return 1
    for series in found:
        text = canonical(series.name, series.labels)
        text = text if as_json else printable(text)
        kind = f"{series.type.name.lower()} {series.kind.name.lower()}"
        print(json.dumps({"series": text, "kind": kind}, ensure_ascii=False) if as_json else f"{text}  {kind}")
    if not found:
        print(f"artimon: no series matches {selector}", file=sys.stderr)
    return 0 if found else 1


def prove(stack: Stack, seconds: float, stop: threading.Event) -> int:
    """Run the stack for `seconds`, then prove its figures: see artimon/stack/proof.py."""
    from artimon.stack.proof import prove_stack

    return prove_stack(stack, seconds, stop)
