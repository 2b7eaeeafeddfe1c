"""Conversion of figures into variables: kinds, falling counters, missing figures, bounds, and registration only on
request."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from artimon.model.clock import ManualClock
from artimon.runtime.health import HealthFile, read_health
from artimon.runtime.self_metrics import (
    MAX_SERIES,
    PROCESS,
    FigureConversion,
    MetricsPublisher,
    SelfMetric,
    figure_at,
    metrics_tables,
    process_figures,
)
from artimon.runtime.self_metrics_endpoint import instance_of
from artimon.runtime.version import installed_version
from bookkeeper import Bookkeeper
from bookkeeper.variables.canonical import validate_labels, validate_name
from bookkeeper.variables.cell import COUNTER, GAUGE

TABLE = (
    SelfMetric("t.sent", "mail.sent", "Sent", counter=True),
    SelfMetric("t.lag.ms", "lag_ms", "Lag", "ms"),
    SelfMetric("t.nacks", "nacks", "Nacks", counter=True, labels=("reason",)),
    SelfMetric("t.requests", "requests", "Requests", counter=True, labels=("route", "status")),
    SelfMetric("t.shards.behind", "lagging", "Shards", conversion=FigureConversion.COUNT),
    SelfMetric("t.answer.age.ms", "last_ms", "Age", "ms", conversion=FigureConversion.AGE),
    SelfMetric("t.rules", "rules", "Rules", labels=("state",)),
)


class RecordedMetrics:
    """A publisher over a book without network, and the values of its variables."""

    def __init__(self, now_ms: int = 1_000_000) -> None:
        self.book = Bookkeeper(online=False, strict=True)
        self.clock = ManualClock(now_ms)
        self.publish = MetricsPublisher(TABLE, self.book, self.clock)

    def __call__(self, **figures: Any) -> dict[str, int]:
        self.publish("ok", figures)
        return {name: value for name, value in self.values().items() if name.startswith("t.")}

    def values(self) -> dict[str, int]:
        """Return (name and values of the labels) -> value."""
        _, cells, _ = self.book.list_cells()
        return {
            cell.name + "".join(f",{value}" for _, value in sorted(cell.labels.items())): int(cell.value or 0)
            for cell in cells
        }

    def kinds(self) -> dict[str, int]:
        _, cells, _ = self.book.list_cells()
        return {cell.name: cell.kind for cell in cells}


def test_figures_are_found_by_their_path_and_have_their_kind() -> None:
    metrics = RecordedMetrics()
    assert metrics(mail={"sent": 3}, lag_ms=12.6, lagging=["1", "2"], last_ms=999_000) == {
        "t.sent": 3,
        "t.lag.ms": 13,
        "t.shards.behind": 2,
        "t.answer.age.ms": 1000,
    }
    kinds = metrics.kinds()
    assert (kinds["t.sent"], kinds["t.lag.ms"], kinds["artimon.process.cpu.ms"]) == (COUNTER, GAUGE, COUNTER)


def test_a_counter_at_zero_exists_from_the_start() -> None:
    assert RecordedMetrics()(mail={"sent": 0})["t.sent"] == 0


def test_a_counter_continues_where_its_figure_falls() -> None:
    metrics = RecordedMetrics()
    counts = [metrics(mail={"sent": sent})["t.sent"] for sent in (5, 7, 2, 2, 4, 0, 1)]
    assert counts == [5, 7, 9, 9, 11, 11, 12]


def test_fractions_are_neither_lost_nor_counted_twice() -> None:
    metrics = RecordedMetrics()
    assert [metrics(mail={"sent": sum_})["t.sent"] for sum_ in (0.4, 0.9, 1.2, 2.999, 3.0)] == [0, 0, 1, 2, 3]


def test_each_key_is_a_label_value() -> None:
    metrics = RecordedMetrics()
    seen = metrics(nacks=Counter(full=2, kafka=1), requests={"/a": {"2xx": 3, "5xx": 1}, "/b": {"2xx": 1}})
    assert seen == {
        "t.nacks,full": 2,
        "t.nacks,kafka": 1,
        "t.requests,/a,2xx": 3,
        "t.requests,/a,5xx": 1,
        "t.requests,/b,2xx": 1,
    }


def test_a_gauge_without_a_figure_ends_and_a_counter_stays() -> None:
    metrics = RecordedMetrics()
    metrics(mail={"sent": 1}, lag_ms=5, rules={"firing": 1, "inactive": 2})
    assert metrics(rules={"inactive": 3}) == {"t.sent": 1, "t.rules,inactive": 3}
    assert metrics(lag_ms=None) == {"t.sent": 1}
    assert metrics(lag_ms=7)["t.lag.ms"] == 7


def test_an_age_is_missing_before_the_first_time() -> None:
    assert RecordedMetrics()(last_ms=0) == {}


def test_label_values_are_bounded_and_the_rest_is_counted_as_other() -> None:
    metrics = RecordedMetrics()
    reasons = {f"r{number}": 1 for number in range(MAX_SERIES + 40)}
    seen = metrics(nacks=reasons)
    assert len(seen) == MAX_SERIES + 1
    assert seen["t.nacks,other"] == 40
    assert sum(seen.values()) == len(reasons)
    again = metrics(nacks={**reasons, "r0": 5, "new": 2})
    assert again["t.nacks,r0"] == 5
    assert again["t.nacks,other"] == 42


@pytest.mark.parametrize("wrong", ["text", [1], {"a": 1}, float("nan"), object()])
def test_a_figure_of_another_kind_is_left_out(wrong: object) -> None:
    assert "t.lag.ms" not in RecordedMetrics()(lag_ms=wrong)
    assert RecordedMetrics()(nacks=wrong if not isinstance(wrong, dict) else "text", mail=3) == {}


def test_a_defect_never_reaches_the_process(caplog: pytest.LogCaptureFixture) -> None:
    metrics = RecordedMetrics()
    for _ in range(3):
        metrics.publish("ok", {"lag_ms": float("inf")})
    assert sum("own variables" in record.message for record in caplog.records) == 1


def test_a_process_reports_its_resources() -> None:
    metrics = RecordedMetrics()
    metrics()
    metrics.clock.advance(2500)
    metrics.publish("failing", {})
    values = metrics.values()
    assert {name.partition(",")[0] for name in values} == {own.name for own in PROCESS}
    assert [name for name in values if ",other," in name] == [f"artimon.process.version,other,{installed_version()}"]
    assert values["artimon.process.ok"] == 0
    assert values["artimon.process.uptime.ms"] == 2500
    assert 10 << 20 < values["artimon.process.resident.bytes"] < 10 << 30


def test_without_proc_only_cpu_time_is_reported(tmp_path: Path) -> None:
    assert set(process_figures(tmp_path)) == {"cpu_ms"}


def test_the_health_file_also_publishes_variables(tmp_path: Path) -> None:
    metrics = RecordedMetrics()
    HealthFile(tmp_path / "h.json", "t", publish=metrics.publish).write("ok", lag_ms=4)
    health = read_health(tmp_path / "h.json")
    assert health is not None
    assert health.figures == {"lag_ms": 4}
    HealthFile(None, "t", publish=metrics.publish).write("ok", lag_ms=6)
    assert metrics.book.get_integer_var("t.lag.ms", {}) == 6


def test_an_instance_name_begins_with_the_part() -> None:
    assert instance_of("collector", "collector-0") == "collector-0"
    assert instance_of("shard", "0") == "shard-0"
    assert instance_of("api", "api") == "api"
    assert instance_of("api", "apidoc") == "api-apidoc"


SHARED = {"collector": ("artimon.kafka.",), "spark": ("artimon.raw.",)}
"""Prefixes of variables that a process reports about something else than itself."""


@pytest.mark.parametrize("part", metrics_tables())
def test_self_metrics_are_valid_bookkeeper_variables(part: str) -> None:
    names = [own.name for own in (*PROCESS, *metrics_tables()[part])]
    assert len(set(names)) == len(names)
    for own in metrics_tables()[part]:
        validate_name(own.name)
        validate_labels(dict.fromkeys(own.labels, "x"))
        assert own.name.startswith((f"artimon.{part}.", *SHARED.get(part, ())))
        assert own.help
        assert own.unit in ("", "ms", "bytes")
        assert own.unit == "" or own.unit in own.name.split(".")
        assert not (own.counter and own.conversion is not FigureConversion.NUMBER)


def test_names_of_self_metrics_are_unique() -> None:
    names = [own.name for table in metrics_tables().values() for own in table]
    assert len(set(names)) == len(names)


def test_figures_are_found_by_a_dotted_path() -> None:
    assert figure_at({"a": {"b": 1}}, "a.b") == 1
    assert figure_at({"a": 3}, "a.b") is None


def test_libraries_and_the_modules_of_sparks_workers_register_nothing() -> None:
    """Importing the modules of Spark's Python workers and of component tests registers nothing."""
    parts = "flows.runtime.agent_transport", "collector.collector_process", "spark.raw_task", "spark.feed_task"
    modules = ", ".join([*(f"pipeline.{part}" for part in parts), "varstore.shard_process"])
    script = (
        f"import {modules}, sys, threading, bookkeeper\n"
        "assert 'artimon.cli.process_wiring' not in sys.modules\n"
        "assert 'artimon.runtime.self_metrics' not in sys.modules\n"
        "assert bookkeeper.default().endpoint is None and not bookkeeper.default().in_use\n"
        "assert [t.name for t in threading.enumerate()] == ['MainThread']"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
