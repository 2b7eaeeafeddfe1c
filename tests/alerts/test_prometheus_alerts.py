"""A real Prometheus sends its alerts to an engine, which dispatches them as its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from artimon.model.clock import SYSTEM_CLOCK
from benchmarks.peers.process import serving
from tests.alerts.api_client import api_of
from tests.alerts.mailboxes import free_port
from tests.alerts.test_silences import routed  # noqa: F401
from tests.alerts.worlds import World
from tests.programs import require
from tests.waiting import eventually

RULES = """
groups:
- name: g
  interval: 1s
  rules:
  - alert: TimeIsEven
    expr: vector(1)
    labels: {host: p1}
    annotations: {summary: "value {{ $value }}"}
"""


@pytest.mark.programs
def test_alerts_of_a_prometheus_are_dispatched(routed: World, tmp_path: Path) -> None:  # noqa: F811
    routed.clock.advance(SYSTEM_CLOCK.now_ms() - routed.clock.now_ms())
    routed.time = (routed.clock.now_ms() - 15_000) // 60_000 * 60_000 - 60_000
    routed.clock.advance(-60_000)
    routed.tick({"a": 1})
    (tmp_path / "rules.yml").write_text(RULES)
    with api_of(routed) as api:
        config = f"alerting: {{alertmanagers: [{{static_configs: [{{targets: ['{api.address}']}}]}}]}}\n"
        (tmp_path / "prometheus.yml").write_text(config + "rule_files: [rules.yml]\n")
        address = f"127.0.0.1:{free_port()}"
        options = [
            f"--config.file={tmp_path / 'prometheus.yml'}", f"--storage.tsdb.path={tmp_path / 'data'}",
            f"--web.listen-address={address}", "--rules.alert.resend-delay=1s",
        ]  # fmt: skip
        with serving(require("prometheus"), options, f"http://{address}/-/ready", tmp_path / "prometheus.log"):
            eventually(routed.engine.flush_due, "an alert came and was told", seconds=60)
        (shown,) = api.ask("/api/v2/alerts")
        assert (shown["labels"], shown["annotations"]) == (
            {"alertname": "TimeIsEven", "host": "p1"},
            {"summary": "value 1"},
        )
        assert "/graph" in shown["generatorURL"]
    (letter,) = routed.letters()
    assert letter.message.group_labels == (("alertname", "TimeIsEven"),)
