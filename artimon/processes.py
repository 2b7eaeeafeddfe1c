"""Wires the parts into processes: what each command of `artimon` runs. The only place where siblings meet by name."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Literal

from artimon.model.clock import SYSTEM_CLOCK
from artimon.model.health import HealthFile
from artimon.model.own_process import LEAVE_S, OwnProcess, instance_of, publishing
from artimon.model.protocols import Sink

if TYPE_CHECKING:
    from artimon.api.latest import Latest
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
    for noisy in ("kazoo", "kafka", "py4j", "bookkeeper.zookeeper"):
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
    with publishing("collector", instance_of("collector", identity), zookeeper, stop) as publish:
        config = CollectorConfig(id=identity, zookeeper=zookeeper, kafka=kafka, port=port, health=health)
        run_collector(config, stop, publish=publish)


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
    health: Path | None,
    wrap_sink: Callable[[Sink], Sink] | None = None,
) -> None:
    """Run an agent with the artimon source until SIGTERM. `wrap_sink` lets a test see what passes."""
    from pipeline.agent import Agent, AgentConfig
    from sources.artimon_source import ArtimonSource
    from sources.config import SourceConfig
    from sources.jmx_target import parse_target

    stop = begin()
    config = AgentConfig(name=name, data=data, zookeeper=zookeeper, level=level)
    running = Agent(config, SYSTEM_CLOCK)
    running.start()
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
            ),
            sink,
            SYSTEM_CLOCK,
        )
        asyncio.run(_run_source(running, source, own, stop, HealthFile(health, "agent", publish=own)))
    finally:
        running.stop()
        own.end()


async def _run_source(
    running: Agent, source: ArtimonSource, own: OwnProcess, stop: threading.Event, health: HealthFile
) -> None:
    """Run the source until `stop`, saying every second how the agent is; then until it has polled the agent itself,
    whose last figures are then in the log."""
    ended = asyncio.Event()
    polling = asyncio.create_task(source.run(ended))
    while not stop.is_set() and not polling.done():
        problem = running.failing
        health.write("failing" if problem else "ok", problem, **_joined(running.figures(), source.figures()))
        await asyncio.wait([polling], timeout=HEALTH_S)
    if not polling.done():
        await asyncio.to_thread(own.left.wait, LEAVE_S)
    ended.set()
    await polling


def _joined(log_figures: dict[str, Any], source_figures: dict[str, Any]) -> dict[str, Any]:
    """Figures of the log and of the source as one; what both have is put together."""
    return {
        **log_figures,
        **source_figures,
        "refused": {**log_figures["refused"], **source_figures["refused"]},
        "log_refused": log_figures["refused"],
        "source_refused": source_figures["refused"],
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
    own = OwnProcess("shard", instance_of("shard", identity), zookeeper, stop)
    config = ShardConfig(
        id=identity, members=members, zookeeper=zookeeper, kafka=kafka, port=port, capacity=capacity, health=health
    )
    try:
        run_shard(config, stop, publish=own)
    except NotAMember as problem:
        log.error("%s", problem)
        raise SystemExit(1) from None
    finally:
        own.end()


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
    own = OwnProcess("spark", "spark", zookeeper, stop)
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
    try:
        run_application(config, stop, publish=own)
    finally:
        own.end()


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
) -> None:
    """Run the API, HTTP and Thrift, over the memory shards until SIGTERM; its status is of the stack on `data`, if one
    runs. `limits` are changes of artimon/api/limits.py."""
    from alerts.display import read_alerts
    from artimon.api.app import make_app
    from artimon.api.latest import Latest
    from artimon.api.limits import Limits
    from artimon.api.server import run_server
    from artimon.model.registration import zookeeper_client
    from varstore.client import VarstoreClient

    bounds = Limits().changed(limits)
    stop = begin()
    client = zookeeper_client(zookeeper)
    client.start_async()
    try:
        with publishing("api", "api", zookeeper, stop) as publish, VarstoreClient(zookeeper) as store:
            shards = Latest("the shards", store.statuses, SYSTEM_CLOCK)
            engines = Latest("the alerts", lambda: read_alerts(client), SYSTEM_CLOCK)
            status, alerts = (lambda: _api_status(shards, data)), (lambda: _api_alerts(engines))
            app = make_app(store, status, SYSTEM_CLOCK, bounds, alerts=alerts)
            run_server(app, port, health, stop, publish=publish, thrift_port=thrift_port)
    finally:
        client.stop()
        client.close()


def _api_alerts(engines: Latest[dict[str, Any]]) -> dict[str, Any]:
    """What the engines say, within two seconds; "problem" says why it may be old or nothing."""
    told = engines.get()
    found = told.value or {"engines": [], "rules": [], "alerts": [], "truncated": 0, "problem": ""}
    return {**found, "problem": "; ".join(text for text in (told.problem, found["problem"]) if text)}


def _api_status(shards: Latest[dict[str, dict[str, Any]]], data: Path) -> dict[str, Any]:
    """Parts and hops by the health files of `data`, each shard as it says itself, all within two seconds; "problems"
    says what is not known, "stack" why there are no parts."""
    from artimon.stack.errors import NotRunning
    from artimon.stack.status import read_status

    try:
        found = read_status(data).to_json()
        status = {name: found[name] for name in ("healthy", "parts", "hops", "problems")}
    except NotRunning as problem:
        status = {"healthy": True, "parts": [], "hops": [], "problems": [], "stack": str(problem)}
    told = shards.get()
    if not told.problem:
        return {**status, "shards": told.value or {}}
    return {**status, "healthy": False, "shards": told.value or {}, "problems": [*status["problems"], told.problem]}


def smtp(*, zookeeper: str, port: int, data: Path, health: Path | None) -> None:
    """Run the local SMTP server until SIGTERM; mails stay in `<data>/mail`."""
    from artimon.stack.smtp import run_smtp

    stop = begin()
    with publishing("mail", "mail", zookeeper, stop) as publish:
        run_smtp(port, data, health, stop, publish=publish)


def mail(data: Path, *, count: int, as_json: bool, full: bool) -> int:
    """Print the newest mails of the stack on `data`, newest last."""
    from artimon.stack.mail_view import read_mails, show_mails
    from artimon.stack.mailbox import FOLDER

    mails = read_mails(data / FOLDER, count)
    if as_json:
        print(json.dumps([one.to_json(full=full) for one in mails], indent=1))
    elif mails:
        print(show_mails(mails, full=full))
    else:
        print(f"artimon: no mail is kept in {data / FOLDER}", file=sys.stderr)
    return 0


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
    from alerts.errors import AlertsError
    from alerts.process import AlertsConfig, run_alerts

    stop = begin()
    config = AlertsConfig(
        zookeeper=zookeeper,
        rules=rules,
        data=data,
        smtp=smtp,
        id=identity,
        link=link,
        to=to,
        sender=sender,
        smtp_settings=smtp_settings,
        settle_ms=duration_ms(settle),
        health=health,
    )
    try:
        with publishing("alerts", identity, zookeeper, stop) as publish:
            run_alerts(config, stop, publish=publish)
    except AlertsError as problem:
        log.error("%s", problem)
        raise SystemExit(1) from None


def check_rules(paths: Sequence[Path]) -> int:
    """Print everything that is wrong with rule files, `file:line:column: text`; 1 if anything is."""
    from alerts.rulebook import check_files

    try:
        problems = check_files(paths)
    except OSError as error:
        print(f"artimon: {error.filename}: {error.strerror}", file=sys.stderr)
        return 1
    for problem in problems:
        print(problem, file=sys.stderr)
    if not problems:
        print(f"{len(paths)} file{'s' if len(paths) > 1 else ''}: well")
    return 1 if problems else 0


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


def history(
    selector: str,
    start: str,
    end: str,
    *,
    where: tuple[str, str],
    form: Literal["json", "csv", "text"],
    arrow: Path | None,
    limit: int,
    engine: Literal["auto", "local", "spark"],
) -> int:
    """Print samples of the raw table, notes on standard error; 1 and a message when it is wrong, 130 when interrupted.
    `where` is HDFS and ZooKeeper."""
    from artimon.history_view import Advance, show_history
    from query_dsl import QueryError
    from query_dsl.history import History

    quiet()
    try:
        with History(*where) as opened, Advance(sys.stderr) as advance:
            answer = opened.read(selector, start, end, samples=limit, engine=engine, progress=advance)
    except QueryError as problem:
        print(f"artimon: {problem}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("artimon: interrupted; nothing is printed", file=sys.stderr)
        return 130
    try:
        show_history(answer, form, arrow)
    except OSError as problem:
        print(f"artimon: {arrow or 'standard output'}: {problem.strerror}", file=sys.stderr)
        return 1
    return 0


def prove(stack: Stack, seconds: float, stop: threading.Event) -> int:
    """Run the stack for `seconds`, then prove its figures: see artimon/stack/proof.py."""
    from artimon.stack.proof import prove_stack

    return prove_stack(stack, seconds, stop)
