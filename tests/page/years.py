"""An API over three days in memory and 400 days of a real history in a local folder, with its roll-ups."""

from __future__ import annotations

import math
import multiprocessing
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from artimon.api.routes import NO_ENGINE
from artimon.dashboards.dashboard_store import DashboardStore
from artimon.model.batch import SeriesBlock, SeriesInfo
from artimon.model.clock import SYSTEM_CLOCK, ManualClock
from artimon.model.labels import canonical
from artimon.model.values import Kind, ValueType
from pipeline.compaction.compaction_settings import CompactorConfig, parse_keep, parse_rollups
from pipeline.compaction.compactor import Compactor
from query_dsl.stores.history.engine import History
from query_dsl.stores.history_store import HistoryStore
from tests.api.serving import served
from tests.history.world import HistoryWorld
from tests.query_dsl.plain_store import PlainStore, Sample
from tests.spark.local_files import local_files

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
MARK = "<img src=x onerror=alert(1)>"
HOSTS = ("a", "b", MARK)
BOARD = """\
title: Years
range: 90d
panels:
- {kind: chart, title: Load, queries: [{q: "fetch('host.load')"}, {q: 'max({"host.load"})', lang: promql}]}
- {kind: value, title: Range, queries: [{q: "fetch('host.load').map('max', '$__interval').max(by=[])"}]}
"""
DAYS = 400
FINE_DAYS = 33
"""Days up to now with a sample an hour; earlier ones have one a day."""


def load(host: str, at_ms: int) -> float:
    """Load of a host: the hour of the day, each host 10 above the one before."""
    return 5 + 4 * math.sin(at_ms / DAY_MS * 2 * math.pi) + 10.0 * HOSTS.index(host)


@contextmanager
def years(
    folder: Path, boards: Path | None = None, alerts: Callable[[], Mapping[str, Any]] = lambda: NO_ENGINE
) -> Iterator[str]:
    """Serve; yields the address."""
    now_ms = int(time.time() * 1000)
    clock = ManualClock(now_ms)
    with local_files(clock):
        world = HistoryWorld(f"file://{folder}/files")
        _append(world, now_ms)
        _roll_up(world, clock, folder)
        memory = PlainStore()
        for host in HOSTS:
            times = range(now_ms - 3 * DAY_MS, now_ms, 60_000)
            memory.add("host.load", {"host": host}, [Sample(at, load(host, at), 1) for at in times], Kind.GAUGE)
        begun, changed = now_ms - 5 * HOUR_MS, now_ms - 30 * 60_000
        ups = [(at, at - (begun if at < changed else changed)) for at in range(changed - HOUR_MS, now_ms, 60_000)]
        memory.add("artimon.process.uptime.ms", {"instance": MARK}, ups, Kind.GAUGE)
        versions = [(at, f"1.{int(at >= changed)}{MARK}") for at in range(changed - HOUR_MS, now_ms, 60_000)]
        memory.add("shop.version", {}, versions)
        with History(world.hdfs) as history:
            past = HistoryStore(history, engine="local")
            store = DashboardStore(boards) if boards else None
            with served(memory, clock=SYSTEM_CLOCK, history=lambda: past, dashboards=store, alerts=alerts) as client:
                yield f"http://127.0.0.1:{client.port}"


def _append(world: HistoryWorld, now_ms: int) -> None:
    infos = [SeriesInfo(canonical("host.load", {"host": host}), ValueType.DOUBLE, Kind.GAUGE) for host in HOSTS]
    world.announce([SeriesBlock("s0", 0, 1, tuple(infos))])
    start_ms = (now_ms - DAYS * DAY_MS) // DAY_MS * DAY_MS
    fine_ms = (now_ms - FINE_DAYS * DAY_MS) // DAY_MS * DAY_MS
    for begin, end, step in ((start_ms, fine_ms, DAY_MS), (fine_ms, now_ms, HOUR_MS)):
        rows = [
            ("s0", canonical("host.load", {"host": host}), at - 1, load(host, at))
            for at in range(begin, end, step)
            for host in HOSTS
        ]
        world.append(end, rows)


def _roll_up(world: HistoryWorld, clock: ManualClock, folder: Path) -> None:
    """Compact twice, so that the files of old days have roll-ups."""
    world.builder.settle(clock.now_ms() // DAY_MS * DAY_MS)
    made = Compactor(
        CompactorConfig(
            "", world.hdfs, folder / "compactor", keeping=parse_keep("*=99999"),
            rollups=parse_rollups("5m=9999,1h=ever,1d=ever"), sweep_s=0.0,
        ),
        None,
        clock,
    )  # fmt: skip
    for _ in range(3):
        made.run_due(threading.Event())
        clock.advance(HOUR_MS)


@contextmanager
def years_beside(folder: Path, boards: Path) -> Iterator[str]:
    """Serve in a process of its own, as the files of the history are replaced for the whole process; yields the
    address."""
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe()
    process = spawn.Process(target=_serve, args=(theirs, folder, boards), daemon=True)
    process.start()
    try:
        if not ours.poll(120):
            raise TimeoutError("the API over years does not start")
        yield ours.recv()
        ours.send("end")
        process.join(20)
    finally:
        process.kill()
        process.join()


def _serve(pipe: Connection, folder: Path, boards: Path) -> None:
    with years(folder, boards) as address:
        pipe.send(address)
        pipe.recv()
