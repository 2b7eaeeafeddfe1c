"""Replay of rules over a month of history: ten rules over 1,000 counters polled every minute, 43 million samples.

    alerts.replay           rule-days that are evaluated a second, each of 1,440 evaluations
    alerts.replay@realtime  how many times faster than real time all rules together

A fifth of the rules is PromQL. The process reads HDFS itself; nothing is sent.

artimon bench alerts_replay [--days 30] [--hosts 10]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from alerts.dispatch.routes import Routing
from alerts.evaluation.dispatch_state import routing_of
from alerts.evaluation.rule_replay import replay_rules
from alerts.rules.rule_file import parse_rules
from alerts.rules.rule_folder import ActiveRules
from artimon.model.clock import SYSTEM_CLOCK
from artimon.model.values import Kind
from artimon.stack.stack import Stack
from benchmarks.common import Parts, emit
from benchmarks.storing import years
from query_dsl.stores.history.engine import History
from query_dsl.stores.history_store import HistoryStore
from tests.compaction.builder import DAY_MS

BASE_PORT = 34_700
NAME = "load.requests"
RULES = """
rules:
- {{name: rate, expr: "fetch('{name}').rate('5m')", threshold: "> 0.25", missing: resolve, for: 5m}}
- {{name: host, expr: "fetch('{name}{{host=\\"host-0001\\"}}').rate('5m')", threshold: "> 0.16", missing: resolve}}
- {{name: rack, expr: "fetch('{name}').rate('5m').sum(by=['rack'])", threshold: "> 9", missing: resolve}}
- {{name: mean, expr: "fetch('{name}').rate('10m').mean(by=['host'])", threshold: "> 0.09", missing: resolve}}
- {{name: hour, expr: "fetch('{name}').increase('1h').sum(by=['rack'])", threshold: "> 40000", missing: keep}}
- {{name: level, expr: "fetch('{name}{{n=\\"007\\"}}')", threshold: "> 190000", missing: resolve}}
- {{name: change, expr: "fetch('{name}').increase('5m').max(by=['host'])", threshold: "> 42", missing: resolve}}
- {{name: silent, expr: "absent('{name}{{host=\\"host-0002\\"}}')", threshold: "== true", missing: fire}}
- {{name: promql_rate, promql: "sum by (rack) (rate({{\\"{name}\\"}}[5m])) > 9"}}
- {{name: promql_up, promql: "{{\\"{name}\\",n=\\"001\\"}} > 190000"}}
"""


def run(days: int, hosts: int, folder: Path, hdfs: str) -> None:
    """Store the samples and replay the rules over all days but the first."""
    start_ms = SYSTEM_CLOCK.now_ms() // DAY_MS * DAY_MS - (days + 1) * DAY_MS
    load = years.make_load(folder, NAME, Kind.COUNTER, start_ms, days, hosts)
    years.fill(hdfs, load)
    rules = {rule.name: rule for rule in parse_rules(RULES.format(name=NAME), "bench.yaml").rules}
    routing: Routing = routing_of(ActiveRules(rules, {}))
    with History(hdfs) as history:
        began = time.perf_counter()
        report = replay_rules(rules, HistoryStore(history, engine="local"), start_ms + DAY_MS, load.end_ms, routing)
        took = time.perf_counter() - began
    failed = [line for rule in report.rules for line in rule.error_lines()]
    if failed:
        raise RuntimeError(f"{len(failed)} rules failed: {failed[0]}")
    rule_days = len(rules) * (days - 1)
    unit = f"rule-days/s ({len(rules)} rules, {days - 1} days, {load.samples:,} samples of {len(load.values):,} series)"
    emit("alerts.replay", rule_days / took, unit)
    emit("alerts.replay@realtime", (days - 1) * DAY_MS / 1000 / took, "x real time, all rules together")


def main() -> None:
    """Run the command line."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="artimon bench alerts_replay", description=__doc__, formatter_class=form)
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument("--hosts", type=int, default=10, help="hosts of 100 series each")
    options, parts = parser.parse_args(), Parts()
    with (
        tempfile.TemporaryDirectory() as place,
        Stack(Path(place) / "stack", ["hdfs"], base_port=BASE_PORT) as stack,
    ):
        parts.run("alerts.replay", lambda: run(options.days, options.hosts, Path(place) / "values", stack.hdfs))
    parts.finish()


if __name__ == "__main__":
    main()
