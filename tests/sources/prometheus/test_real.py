"""A real node_exporter, collected by us and by a real Prometheus: equal series, values and effects of rules."""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, Counter, Enum, Histogram, Info, Summary
from prometheus_client.openmetrics.exposition import CONTENT_TYPE_LATEST, generate_latest

from artimon.model.labels import parse_canonical
from sources.scrape.prometheus.exposition_source import ACCEPT
from tests.sources.helpers import HOST, KeepingSink, running
from tests.sources.prometheus.exporters import Labels, Prometheus, get, node_exporter, page, prometheus
from tests.waiting import eventually, until

NOWHERE = "127.0.0.1:1"
OURS = {"host", "context"}
"""Labels that we add besides those of Prometheus."""
THEIRS = {"up", "scrape_duration_seconds", "scrape_samples_scraped", "scrape_samples_post_metric_relabeling",
          "scrape_series_added"}  # fmt: skip
"""Series that Prometheus makes of its own."""
STILL = re.compile("_info$|_size_bytes$|MemTotal|boot_time|^backup_|scrape_collector_success|start_time")
TEXT = """# TYPE backup_bytes gauge
backup_bytes{volume="/home \\\\ \\"x\\" \\n"} 1.5e+09
# TYPE backup_runs_total counter
backup_runs_total{volume="ü"} 9007199254740993
backup_nothing NaN
backup_much +Inf
"""
RULES: list[dict[str, Any]] = [
    {"source_labels": ["__name__"], "regex": "go_.*|process_.*", "action": "drop"},
    {"source_labels": ["__name__"], "regex": "(node)_(.*)", "target_label": "__name__", "replacement": "${2}_of_${1}"},
    {"source_labels": ["cpu", "mode"], "regex": "0;(.+)", "target_label": "first", "replacement": "$1$$"},
    {"source_labels": ["__name__"], "regex": "cpu_.*", "target_label": "of_$0", "replacement": "x"},
    {"source_labels": ["mode"], "action": "uppercase", "target_label": "upper"},
    {"source_labels": ["device"], "action": "lowercase", "target_label": "device"},
    {"source_labels": ["__name__", "device"], "action": "hashmod", "modulus": 7, "target_label": "part"},
    {"source_labels": ["part"], "regex": "[0-5]", "action": "keep"},
    {"regex": "de(.*)", "action": "labelmap", "replacement": "was_$1"},
    {"regex": "mode|no_such", "action": "labeldrop"},
    {"source_labels": ["fstype"], "regex": "(.+)", "target_label": "fstype", "replacement": ""},
    {"source_labels": ["part"], "action": "dropequal", "target_label": "cpu"},
    {"source_labels": ["nowhere"], "action": "keepequal", "target_label": "nothing"},
    {"source_labels": ["nowhere"], "regex": "", "target_label": "always", "replacement": "yes"},
]


@pytest.fixture(scope="module")
def exporter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("textfiles")
    (folder / "backup.prom").write_text(TEXT)
    with node_exporter(folder) as address:
        yield address


@pytest.fixture(scope="module")
def frozen(exporter: str) -> Iterator[str]:
    """Serve one page of the node_exporter, the same for all requests."""
    body, kind = get(f"http://{exporter}/metrics", ACCEPT)
    with page(body, kind) as address:
        yield address


@pytest.fixture(scope="module")
def client() -> Iterator[str]:
    """Serve an OpenMetrics page, as the client library of Prometheus writes it."""
    registry = CollectorRegistry()
    counter = Counter("requests", "Requests", ["route"], registry=registry)
    counter.labels('/a"\\b\n').inc(7, exemplar={"trace": "x"})
    histogram = Histogram("latency_seconds", "Latency", unit="seconds", registry=registry)
    for value in (0.001, 0.3, 99.0):
        histogram.observe(value, exemplar={"trace": 'a"} b'})
    Summary("size_bytes", "Size", registry=registry).observe(12.5)
    Info("build", "Build", registry=registry).info({"version": "1.2", "job": "mine"})
    Enum("state", "State", states=["on", "off"], registry=registry).state("off")
    body: bytes = generate_latest(registry)  # type: ignore[no-untyped-call]
    with page(body, CONTENT_TYPE_LATEST) as address:
        yield address


@pytest.fixture(scope="module")
def peer(exporter: str, frozen: str, client: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    def job(name: str, address: str, **more: Any) -> dict[str, Any]:
        return {"job_name": name, "static_configs": [{"targets": [address]}], **more}

    jobs = [job("node", exporter), job("page", frozen), job("ruled", frozen, metric_relabel_configs=RULES)]
    jobs += [job("client", client), job("honored", client, honor_labels=True)]
    with prometheus(tmp_path_factory.mktemp("prometheus"), {"scrape_configs": jobs}) as server:
        eventually(lambda: len(server.series("up == 1")) == 5, "five targets that are up")
        yield server


def theirs(peer: Prometheus, job: str) -> dict[tuple[str, Labels], float]:
    return {key: value for key, value in peer.series(f'{{job="{job}"}}').items() if key[0] not in THEIRS}


def ours(tmp_path: Path, jobs: list[dict[str, Any]]) -> dict[str, list[dict[tuple[str, Labels], Any]]]:
    """By job: the first poll that an agent makes, name and labels -> value."""

    async def run() -> KeepingSink:
        sink, file = KeepingSink(), tmp_path / "sources.yaml"
        file.write_text(json.dumps({"prometheus": jobs}))
        async with running(NOWHERE, tmp_path / "agent", sink, sources=file, period_ms=500, deadline_s=20.0) as source:
            names = {f"prometheus/{job['job']}/{job['targets'][0]}" for job in jobs}
            await until(lambda: names <= {p.source for p in sink.accepted}, f"a poll of {names}")
            assert source.figures()["refused"] == {}
            assert source.figures()["poll_errors"] == {}
        return sink

    sink, found = asyncio.run(run()), {}
    texts = sink.texts()
    for job in jobs:
        polls = [p for p in sink.accepted if p.source.startswith(f"prometheus/{job['job']}/")]
        found[job["job"]] = [
            {_key(texts[print_]): value for print_, _, _, value in poll.samples.rows()} for poll in polls[:1]
        ]
    return found


def _key(text: str) -> tuple[str, Labels]:
    name, labels = parse_canonical(text)
    assert labels["host"] == HOST
    return name, frozenset((label, value) for label, value in labels.items() if label not in OURS)


def same(one: float, other: float) -> bool:
    return one == other or (math.isnan(one) and math.isnan(other))


def test_every_value_of_a_real_page_is_that_of_a_real_prometheus(peer: Prometheus, frozen: str, tmp_path: Path) -> None:
    (found,) = ours(tmp_path, [{"job": "page", "targets": [frozen]}])["page"]
    want = theirs(peer, "page")
    assert found.keys() == want.keys()
    assert len(found) > 300
    assert {key: (value, want[key]) for key, value in found.items() if not same(value, want[key])} == {}
    names = {name for name, _ in found}
    assert {"node_cpu_seconds_total", "node_uname_info", "backup_bytes", "backup_runs_total", "backup_much"} <= names


def test_every_value_of_a_page_of_openmetrics_is_that_of_a_real_prometheus(
    peer: Prometheus, client: str, tmp_path: Path
) -> None:
    """Except `…_created`, which is the start time of other series here."""
    jobs: list[dict[str, Any]]
    jobs = [{"job": "client", "targets": [client]}, {"job": "honored", "targets": [client], "honor_labels": True}]
    found = ours(tmp_path, jobs)
    want = {key: value for key, value in theirs(peer, "client").items() if not key[0].endswith("_created")}
    assert found["client"][0] == want
    assert len(want) > 15
    (build,) = [dict(labels) for (name, labels) in want if name == "build_info"]
    assert (build["job"], build["exported_job"]) == ("client", "mine")
    assert {(name, "mine") for name, labels in found["honored"][0] if ("job", "mine") in labels} == {
        ("build_info", "mine")
    }


def test_rules_do_what_they_do_in_a_real_prometheus(peer: Prometheus, frozen: str, tmp_path: Path) -> None:
    (found,) = ours(tmp_path, [{"job": "ruled", "targets": [frozen], "rules": RULES}])["ruled"]
    want = theirs(peer, "ruled")
    assert found.keys() == want.keys()
    assert 50 < len(found) < len(theirs(peer, "page"))
    assert all(same(value, want[key]) for key, value in found.items())


def test_a_living_exporter_gives_both_the_same_series(peer: Prometheus, exporter: str, tmp_path: Path) -> None:
    """Prometheus, we and Prometheus poll in turn: counters lie between, constants are equal."""
    before = theirs(peer, "node")
    (found,) = ours(tmp_path, [{"job": "node", "targets": [exporter]}])["node"]
    clock = next(key for key in found if key[0] == "node_time_seconds")
    eventually(lambda: theirs(peer, "node")[clock] > found[clock], "a later scrape")
    after = theirs(peer, "node")
    assert len(found.keys() ^ before.keys()) <= 5, "a device may have come or gone"
    both = found.keys() & before.keys() & after.keys()
    counters = [key for key in both if key[0].endswith("_total")]
    assert len(counters) > 100
    assert [key for key in counters if not before[key] <= found[key] <= after[key]] == []
    still = [key for key in both if STILL.search(key[0])]
    assert len(still) > 20
    assert [key for key in still if not same(found[key], before[key])] == []


def test_the_page_of_prometheus_itself_is_taken_whole(peer: Prometheus, tmp_path: Path) -> None:
    """Histograms and summaries of another real exporter: nothing is refused, and no series of its page is missing."""
    body, _ = get(f"http://{peer.address}/metrics")  # before: some of it comes with the first scrapes
    (found,) = ours(tmp_path, [{"job": "own", "targets": [peer.address]}])["own"]
    names = {line.split(" ")[0].partition("{")[0] for line in body.decode().splitlines() if not line.startswith("#")}
    assert {name for name, _ in found} >= names - {"net_conntrack_dialer_conn_failed_total"}
    assert any(dict(labels).get("quantile") == "0.99" for _, labels in found)
    assert any(dict(labels).get("le") == "+Inf" for _, labels in found)
