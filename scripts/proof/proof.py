"""The proof at the end of `./scripts/run --for N`: what was accepted is in the raw table and in the buckets, sample for
sample; questions get the answers that the machine itself gives; a killed shop was told by mail; the page is drawn."""

from __future__ import annotations

import sys
import threading
from typing import Any

import numpy as np

from artimon.model.clock import SYSTEM_CLOCK, Clock
from artimon.rawtable.schema import raw_uri, sources_uri
from artimon.rawtable.sources import read_sources
from artimon.rawtable.table_reader import read_raw
from artimon.runtime.health import read_health
from artimon.runtime.settings import load as load_settings
from artimon.stack.stack import Stack
from scripts.proof.answers import QUESTIONS, SHOP_CHART, report_answers
from scripts.proof.counts import (
    MINUTE_MS,
    Row,
    accepted_counts,
    bucket_counts,
    closed_minutes,
    compare,
    raw_counts,
)
from scripts.proof.host import report_host
from scripts.proof.incident import Drill, Incident, report_incident
from scripts.proof.screenshot import NoScreenshot, place_for, take_screenshot
from scripts.proof.witness import Witness
from varstore.cluster.varstore_client import VarstoreClient

MINUTES = 2
"""So many whole minutes at least are proven, however short the run is asked to be."""
STORE_S = 120.0
"""How long after the end everything accepted may take to be in the table."""
DRILL_PARTS = frozenset({"shop", "alerts", "mail", "api"})


def prove_stack(stack: Stack, seconds: float, stop: threading.Event, clock: Clock = SYSTEM_CLOCK) -> int:
    """Let the stack collect this machine, itself and the shop for `seconds`, then compare.

    Returns 0 if all counts agree.

    With the parts `examples` the shop is killed meanwhile and the mails about it are awaited, however short `seconds`
    is; 130 when `stop` was set."""
    whole = DRILL_PARTS.issubset(part.name for part in stack.parts)
    witness = Witness()
    witness.start()
    started_ms, end = clock.now_ms(), clock.monotonic() + seconds
    _say(f"collecting for {seconds:.0f} s")
    incident = Drill(stack, stop, clock, _say).run() if whole else None
    while clock.monotonic() < end or len(closed_minutes(started_ms, clock.now_ms())) < MINUTES:
        if clock.wait(stop, 1.0):  # at least two minutes: an increase needs the minute before
            return 130
    minutes = closed_minutes(started_ms, clock.now_ms())
    rows = _compare_until_equal(stack, minutes, stop, clock)
    witness.stop()
    if stop.is_set():
        return 130
    good = [_report_counts(rows)]
    _report_lags(stack)
    start_ms, end_ms, now_ms = minutes[0] - MINUTE_MS, minutes[-1], clock.now_ms()
    with VarstoreClient(stack.zookeeper) as store:
        good.append(report_host(store, stack.hdfs, start_ms, end_ms, witness, now_ms))
        if incident is not None:
            good.append(report_answers(store, start_ms, end_ms, now_ms, QUESTIONS))
    good.append(_report_drill(stack, incident))
    return 0 if all(good) else 1


def _report_drill(stack: Stack, incident: Incident | None) -> bool:
    """Mails and picture; nothing to report without the examples."""
    if incident is None:
        _say(f"no mails and no picture: they need the parts {', '.join(sorted(DRILL_PARTS))} (--parts all,examples)")
        return True
    good = report_incident(incident)
    try:
        address = stack.addresses()["ARTIMON_API"]
        print(f"picture of the page: {take_screenshot(address, SHOP_CHART, place_for(stack.data), load_settings())}")
    except NoScreenshot as problem:
        print(f"no picture of the page: {problem}")
        return False
    return good


def _compare_until_equal(stack: Stack, minutes: list[int], stop: threading.Event, clock: Clock) -> list[Row]:
    """The rows of the comparison, as soon as they are equal, at the latest STORE_S from now."""
    deadline = clock.monotonic() + STORE_S
    while True:
        rows = _compare_once(stack, minutes)
        if (rows and all(row.equal for row in rows)) or clock.monotonic() > deadline or clock.wait(stop, 2.0):
            return rows


def _compare_once(stack: Stack, minutes: list[int]) -> list[Row]:
    accepted = accepted_counts(stack.data / "agent" / "accepted")
    raw = raw_counts(read_raw(raw_uri(stack.hdfs)), read_sources(sources_uri(stack.hdfs)))
    with VarstoreClient(stack.zookeeper) as store:
        buckets = bucket_counts(store, raw.source_of, minutes)
    return compare(accepted, raw.counts, buckets, minutes)


def _report_counts(rows: list[Row]) -> bool:
    print(f"{'minute':>20}  {'source':<40} {'accepted':>9} {'raw':>9} {'buckets':>9}")
    for row in rows:
        mark = "" if row.equal else "  DIFFERS"
        end = np.datetime64(row.minute_ms, "ms").astype("datetime64[s]")
        print(f"{end!s:>20}  {row.source:<40} {row.accepted:>9} {row.raw:>9} {row.buckets:>9}{mark}")
    sums = [sum(getattr(row, name) for row in rows) for name in ("accepted", "raw", "buckets")]
    equal = bool(rows) and all(row.equal for row in rows)
    print(f"accepted {sums[0]:,} = raw table {sums[1]:,} = buckets {sums[2]:,}: {'equal' if equal else 'NOT EQUAL'}")
    return equal


def _report_lags(stack: Stack) -> None:
    """Lag of each hop, from what the processes say of themselves."""
    figures: dict[str, dict[str, Any]] = {}
    for part in ("agent", "collector-0", "spark"):
        health = read_health(stack.context.health(part))
        figures[part] = health.figures if health else {}
    agent, collector, spark = figures["agent"], figures["collector-0"], figures["spark"]
    print("lag of each hop, ms:")
    print(f"  agent      oldest batch not acked  {agent.get('oldest_unacked_ms', '?')}")
    answered = SYSTEM_CLOCK.now_ms() - int(collector.get("last_answer_ms", 0))
    print(f"  collector  since its last answer   {answered}")
    print(f"  raw table  append to commit        {spark.get('raw', {}).get('lag_ms', '?')}")
    print(f"  buckets    append to applied       {spark.get('buckets', {}).get('lag_ms', '?')}")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
