"""Clients of Prometheus as they are: promtool, the library for Python, and a Prometheus that reads from us."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest
from prometheus_api_client import MetricRangeDataFrame, PrometheusConnect

from artimon.runtime.settings import child_environment
from benchmarks.peers.process import serving
from tests.api.serving import EDGE, Client, minutes, served
from tests.programs import require
from tests.query_dsl.plain_store import MINUTE, PlainStore
from tests.sockets import free_port

pytestmark = [pytest.mark.programs, pytest.mark.timeout(300)]
END_S = EDGE // 1000
LAST_S = (EDGE - 1) / 1000


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    store = PlainStore()
    for host in ("h1", "h2"):
        store.add("load", {"host": host, "job": "node"}, minutes([int(host[1]) + i for i in range(40)]))
        store.add("requests_total", {"host": host}, minutes([60 * i for i in range(40)]))
    store.add("http.requests", {"route": "/"}, minutes([1.5]))
    with served(store) as found:
        yield found


def address(client: Client) -> str:
    return f"http://127.0.0.1:{client.port}"


# --- promtool


def promtool(*arguments: str, given: bytes = b"", codes: tuple[int, ...] = (0,)) -> str:
    program = require("promtool")
    environment = child_environment(program.environment)
    done = subprocess.run(
        [program.path, *arguments], input=given, env=environment, capture_output=True, timeout=120, check=False
    )
    assert done.returncode in codes, done.stderr
    return done.stdout.decode()


def test_promtool_asks_for_one_time(client: Client) -> None:
    told = promtool("query", "instant", f"--time={END_S}", address(client), "sum by (job) (load)")
    assert told == f'{{job="node"}} => 81 @[{END_S}]\n'
    told = promtool("query", "instant", "-o", "json", f"--time={END_S}", address(client), "vector(1) + 1")
    assert json.loads(told) == [{"metric": {}, "value": [END_S, "2"]}]


def test_promtool_asks_for_a_range(client: Client) -> None:
    times = (f"--start={END_S - 120}", f"--end={END_S}", "--step=60s")
    told = promtool("query", "range", "-o", "json", *times, address(client), 'rate(requests_total{host="h1"}[5m])')
    (one,) = json.loads(told)
    assert one["metric"] == {"host": "h1"}
    assert one["values"] == [[END_S - 120, "1"], [END_S - 60, "1"], [END_S, "1"]]


def test_promtool_lists_series_and_labels(client: Client) -> None:
    times = (f"--start={END_S - 3600}", f"--end={END_S}")
    told = promtool("query", "series", *times, '--match=load{host="h1"}', "--match=requests_total", address(client))
    assert told.splitlines() == [
        '{__name__="load", host="h1", job="node"}',
        '{__name__="requests_total", host="h1"}',
        '{__name__="requests_total", host="h2"}',
    ]
    assert promtool("query", "labels", *times, address(client), "host").split() == ["h1", "h2"]


def test_promtool_takes_the_text_of_federation(client: Client) -> None:
    asked = urlencode({"match[]": '{__name__=~".+"}'})
    text = client.get(f"/federate?{asked}").body
    promtool("check", "metrics", given=text, codes=(3,))  # 3: read, with remarks on style, such as a missing help text


# --- prometheus-api-client


def test_the_library_for_python_asks(client: Client) -> None:
    library = PrometheusConnect(url=address(client))
    assert library.check_prometheus_connection()
    assert library.all_metrics() == ["http.requests", "load", "requests_total"]
    assert library.get_label_names() == ["__name__", "host", "job", "route"]
    assert library.get_label_values("host") == ["h1", "h2"]
    (one,) = library.get_current_metric_value("load", {"host": "h2"}, params={"time": END_S})
    assert one == {"metric": {"__name__": "load", "host": "h2", "job": "node"}, "value": [END_S, "41"]}
    told = library.custom_query("topk(1, load)", params={"time": str(END_S)})
    assert [row["metric"]["host"] for row in told] == ["h2"]


def test_the_library_for_python_reads_ranges(client: Client) -> None:
    library = PrometheusConnect(url=address(client))
    start, end = (datetime.fromtimestamp(at, UTC) for at in (END_S - 300, END_S))
    told = library.custom_query_range("load", start, end, "60")
    frame = MetricRangeDataFrame(told)
    assert sorted(frame["value"].astype(float)) == sorted(h + i for h in (1, 2) for i in range(34, 40))
    raw = library.get_metric_range_data("load", {"host": "h1"}, start, end)
    assert [[time, value] for time, value in raw[0]["values"]] == [
        [LAST_S - 60 * (4 - i), str(36 + i)] for i in range(5)
    ]
    aggregated = library.get_metric_aggregation("load", ["max", "min"], start, end, "60")
    assert (aggregated["max"], aggregated["min"]) == (41.0, 35.0)


# --- a Prometheus that reads from us


CONFIG = """
remote_read:
  - url: {url}/api/v1/read
    read_recent: true
"""


@contextmanager
def prometheus(client: Client, folder: Path) -> Iterator[str]:
    """Run a Prometheus without data of its own; yields its address."""
    program, port = require("prometheus"), free_port()
    (folder / "prometheus.yml").write_text(CONFIG.format(url=address(client)))
    options = [
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    url = f"http://127.0.0.1:{port}"
    with serving(program, options, f"{url}/-/ready", folder / "log"):
        yield url


def asked(base: str, path: str, **parameters: object) -> list[dict[str, object]]:
    with urlopen(f"{base}/api/v1/{path}?{urlencode(parameters)}", timeout=60) as answer:
        found: list[dict[str, object]] = json.load(answer)["data"]["result"]
        return found


def test_a_prometheus_reads_from_us(client: Client, tmp_path: Path) -> None:
    """It evaluates over samples that it reads as chunks, and gives our own answers."""
    with prometheus(client, tmp_path) as base:
        times = {"start": END_S - 20 * 60, "end": END_S, "step": 60}
        for query in ("load", "sum by (host) (rate(requests_total[5m]))", 'max_over_time(load{host!="h1"}[10m])'):
            found = asked(base, "query_range", query=query, **times)
            assert len(found) in (1, 2)
            assert found == asked(address(client), "query_range", query=query, **times)
        (one,) = asked(base, "query", query='load{host="h1"}[2m]', time=END_S)
        assert one["values"] == [[LAST_S - MINUTE / 1000, "39"], [LAST_S, "40"]]
