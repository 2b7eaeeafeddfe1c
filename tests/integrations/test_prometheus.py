"""A real Prometheus scrapes a process: the target is up, and every value is the process's own."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from artimon.runtime.settings import child_environment
from bookkeeper import Bookkeeper, exposition
from bookkeeper.export.openmetrics import render
from tests.programs import require
from tests.sources.prometheus.exporters import Labels, prometheus
from tests.waiting import eventually

OWN = {"up", "scrape_duration_seconds", "scrape_samples_scraped", "scrape_samples_post_metric_relabeling",
       "scrape_series_added"}  # fmt: skip


@pytest.fixture
def book() -> Bookkeeper:
    """Variables of all types and kinds, with texts that are hard to carry."""
    book = Bookkeeper(online=False, strict=True)
    book.add_to_integer_var("http.requests", {"route": '/a"b\\c\nd', "zone": "Zürich ☃"}, 7)
    book.set_integer_var("queue-depth", {}, -4)
    book.set_double_var("load", {}, 0.1)
    book.set_double_var("endless", {}, float("inf"))
    book.set_boolean_var("open", {}, True)
    book.set_string_var("version", {}, "1.2\n3")
    book.describe("http.request.seconds", "How long", "seconds")
    for i in range(100):
        book.histogram("http.request.seconds", {"route": "/"}, (0.25, 0.5, 1.0)).observe(i / 100)
    return book


@pytest.fixture
def server(book: Bookkeeper) -> Iterator[exposition.MetricsServer]:
    made = exposition.serve(book=book)
    yield made
    made.stop()


def expected(port: int) -> dict[tuple[str, Labels], float]:
    def series(name: str, amount: float, **labels: str) -> tuple[tuple[str, Labels], float]:
        return (name, frozenset({**labels, "job": "ours", "instance": f"127.0.0.1:{port}"}.items())), amount

    buckets = [("0.25", 26), ("0.5", 51), ("1.0", 100), ("+Inf", 100)]
    return dict(
        [
            series("http_requests_total", 7, route='/a"b\\c\nd', zone="Zürich ☃"),
            series("queue_depth", -4),
            series("load", 0.1),
            series("endless", float("inf")),
            series("open", 1),
            series("version_info", 1, value="1.2\n3"),
            *(series("http_request_seconds_bucket", count, route="/", le=bound) for bound, count in buckets),
            series("http_request_seconds_count", 100, route="/"),
            series("http_request_seconds_sum", 49.5, route="/"),
        ]
    )


def test_a_real_prometheus_reads_equal_values(server: exposition.MetricsServer, tmp_path: Path) -> None:
    target = f"127.0.0.1:{server.port}"
    jobs: list[dict[str, Any]] = [{"job_name": "ours", "static_configs": [{"targets": [target]}]}]
    with prometheus(tmp_path, {"scrape_configs": jobs}) as peer:
        eventually(lambda: list(peer.series("up").values()) == [1], "a target that is up")
        found = {key: value for key, value in peer.series('{job!=""}').items() if key[0] not in OWN}
        assert {key: pytest.approx(value) for key, value in expected(server.port).items()} == found
        middle = "histogram_quantile(0.5, http_request_seconds_bucket)"
        assert list(peer.series(middle).values()) == [pytest.approx(0.49)]


def test_promtool_finds_nothing_broken_in_the_older_format(book: Bookkeeper) -> None:
    """Its remarks on style (a counter without help) are no errors: then it would end with 1."""
    program = require("prometheus")
    tool = program.path.with_name("promtool")
    done = subprocess.run(
        [tool, "check", "metrics"],
        input=render(book.collect(), openmetrics=False),
        env=child_environment(program.environment),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode in (0, 3), done.stderr
    assert "error while linting" not in done.stderr
