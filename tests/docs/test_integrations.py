"""The examples in the pages about migration to bookkeeper and its integrations run as described."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from bookkeeper.testing import isolated, snapshot
from tests.bookkeeper.polling import REPOSITORY
from tests.docs.test_architecture import ROOT
from tests.integrations.reading import read_openmetrics
from tests.sockets import free_port
from tests.waiting import eventually

BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
MIGRATING, INTEGRATIONS = ROOT / "docs" / "migrating.md", ROOT / "docs" / "integrations.md"
COMPARED = """
import json, sys
before, after = json.load(sys.stdin)
exec(before, {})
from prometheus_client import REGISTRY
from prometheus_client.openmetrics.exposition import generate_latest
import bookkeeper
from bookkeeper.export.openmetrics import render
exec(after, {})
print(json.dumps([generate_latest(REGISTRY).decode(), render(bookkeeper.collect())]))
"""


def blocks(page: Path) -> list[str]:
    return BLOCK.findall(page.read_text())


def samples(text: str) -> dict[str, tuple[str, float]]:
    """Series -> type and value; without those that the library adds of its own."""
    return {
        f"{sample.name}{sorted(sample.labels.items())}": (family.type, sample.value)
        for family in read_openmetrics(text)
        for sample in family.samples
        if not family.name.startswith(("python_", "process_")) and not sample.name.endswith("_created")
    }


def test_before_and_after_show_the_same_to_prometheus() -> None:
    done = subprocess.run(
        [sys.executable, "-c", COMPARED],
        input=json.dumps(blocks(MIGRATING)[:2]),
        cwd=REPOSITORY,
        env={**os.environ, "ARTIMON_DISABLED": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    before, after = map(samples, json.loads(done.stdout))
    assert before == after
    assert len(before) == 9


def test_the_client_with_statsds_methods() -> None:
    with isolated():
        exec(blocks(MIGRATING)[2], {})
        found = snapshot()
    assert found.value("shop.web.requests", {"method": "GET", "status": "200"}) == 1
    assert found.value("shop.queue") == 3
    assert found.value("shop.query.seconds.sum") == 0.0125
    assert found.value("shop.render.seconds.count") == 1


def test_the_other_methods_of_that_client() -> None:
    from examples.statsd_client import StatsClient

    with isolated():
        stats = StatsClient()
        stats.incr("hits", 3, rate=0.5)
        stats.decr("seats")
        stats.gauge("queue", 3)
        stats.gauge("queue", -1, delta=True)
        assert dict(snapshot()) == {"hits{}": 6, "seats{}": -1, "queue{}": 2.0}


@pytest.mark.parametrize("block", blocks(INTEGRATIONS))
def test_what_the_page_of_integrations_shows_runs(block: str) -> None:
    import logging

    handlers = list(logging.getLogger().handlers)
    try:
        with isolated():
            exec(block, {})
    finally:
        logging.getLogger().handlers[:] = handlers


def test_every_variable_of_the_integrations_is_on_the_page() -> None:
    """And none that they do not have."""
    page = INTEGRATIONS.read_text()
    listed = set(re.findall(r"`((?:http|celery|process|python|log)\.[a-z.]+)`", page))
    code = "".join(path.read_text() for path in (ROOT / "bookkeeper" / "integrations").glob("*.py"))
    made = set(re.findall(r'f?"((?:http|celery|process|python|log)\.[a-z.]+)"', code)) - {"http.request"}
    made |= {f"python.gc.{what}" for what in ("collections", "collected", "uncollectable")}
    assert {name for name in listed if not name.startswith("log.")} == made - {"log.records"}
    assert "log.records" in made


def test_the_example_under_a_real_server(tmp_path: Path) -> None:
    """uvicorn serves it; Prometheus's port shows requests by route, log records and the process."""
    port, shown = free_port(), free_port()
    command = [sys.executable, "-m", "uvicorn", "--app-dir", "examples", "web:app", "--port", str(port)]
    environment = {
        **os.environ,
        "ARTIMON_ZOOKEEPER": "127.0.0.1:1",
        "ARTIMON_RUN": str(tmp_path),
        "ARTIMON_OPENMETRICS": str(shown),
    }
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log)

    def get(port: int, path: str) -> str:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
                return str(answer.read().decode())
        except OSError as error:
            return str(error)

    labels = 'method="GET",route="/items/{number}"'
    awaited = (
        f'http_requests_total{{{labels},status="200"}} 1\n',
        f'http_requests_total{{{labels},status="404"}} 1\n',
        'http_requests_total{method="GET",route="unmatched",status="404"} 1\n',
        'log_records_total{level="WARNING",logger="web.shop"} 1\n',
        'web_items_seen_total{shelf="7"} 1\n',
    )

    def counted() -> str:
        """The page once every line awaited is on it; "" before."""
        text = get(shown, "/metrics")
        return text if all(line in text for line in awaited) else ""

    try:
        eventually(lambda: get(port, "/items/7") == '{"item":7}')
        assert "404" in get(port, "/items/1001")
        assert "404" in get(port, "/nothing")
        text = eventually(counted, "every line awaited")  # a request is counted after its answer is on its way
    finally:
        process.terminate()
        process.wait(30)
    assert "process_cpu_seconds_total{" in text
