"""The targets of one configuration, discovered by us and by Prometheus 2.42: equal labels and URLs.

Debian's Prometheus is built without discovery by Consul and Kubernetes: `test_against_packages` compares these.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from sources.scrape.discovery.discovered_targets import JobDiscovery
from sources.scrape.discovery.scrape_config import read_prometheus_file
from sources.scrape.discovery.target_group import DiscoveredGroup
from tests.sources.discovery.servers import (
    DiscoveryServer,
    discovery_server,
    endpoint_slice,
    endpoints,
    instance,
    node,
    pod,
    service,
)
from tests.sources.prometheus.exporters import get, prometheus
from tests.waiting import until

Labels = frozenset[tuple[str, str]]
Target = tuple[str, Labels, Labels]
Sets = tuple[set[Target], set[Labels]]
KUBERNETES_RULES: list[dict[str, Any]] = [
    {"source_labels": ["__meta_kubernetes_pod_annotation_prometheus_io_scrape"], "action": "keep", "regex": "true"},
    {"source_labels": ["__address__", "__meta_kubernetes_pod_container_port_number"], "action": "replace",
     "regex": r"([^:]+)(?::\d+)?;(\d+)", "replacement": "$1:$2", "target_label": "__address__"},
    {"action": "labelmap", "regex": "__meta_kubernetes_pod_label_(.+)"},
    {"source_labels": ["__meta_kubernetes_namespace"], "target_label": "namespace"},
    {"source_labels": ["__meta_kubernetes_pod_name"], "target_label": "instance"},
    {"source_labels": ["__meta_kubernetes_pod_container_init"], "regex": "true", "action": "drop"},
]  # fmt: skip
BLACKBOX: list[dict[str, Any]] = [
    {"source_labels": ["__address__"], "target_label": "__param_target"},
    {"source_labels": ["__param_target"], "target_label": "instance"},
    {"target_label": "__address__", "replacement": "127.0.0.1:9"},
    {"target_label": "__scrape_interval__", "replacement": "2m"},
]


def configuration(server: DiscoveryServer) -> list[dict[str, Any]]:
    """Return jobs of all kinds. No target answers: only what was discovered is compared."""
    address, timing = server.address, {"scrape_interval": "1h30m", "scrape_timeout": "10s"}
    api = {"api_server": f"http://{address}"}
    kubernetes = [
        {"job_name": f"k8s-{role}", "kubernetes_sd_configs": [{**api, "role": role}]}
        for role in ("pod", "service", "node", "endpoints", "endpointslice")
    ]
    jobs: list[dict[str, Any]] = [
        *kubernetes,
        {"job_name": "pods of a node", "kubernetes_sd_configs": [
            {**api, "role": "pod", "namespaces": {"names": ["shop"]},
             "selectors": [{"role": "pod", "field": "spec.nodeName=n1", "label": "canary=yes"}]}]},
        {"job_name": "with-nodes", "kubernetes_sd_configs": [
            {**api, "role": role, "attach_metadata": {"node": True}}
            for role in ("pod", "endpoints", "endpointslice")]},
        {"job_name": "annotated", "kubernetes_sd_configs": [{**api, "role": "pod"}],
         "relabel_configs": KUBERNETES_RULES},
        {"job_name": "consul", "consul_sd_configs": [{"server": address, "refresh_interval": "1s"}]},
        {"job_name": "consul-tags", "consul_sd_configs": [
            {"server": address, "tags": ["a"], "tag_separator": ";", "datacenter": "jb", "refresh_interval": "1s"}]},
        {"job_name": "consul-named", "consul_sd_configs": [
            {"server": address, "services": ["db"], "refresh_interval": "1s"}],
         "relabel_configs": [{"source_labels": ["__meta_consul_tags"], "regex": ".*,b,.*", "action": "keep"}]},
        {"job_name": "http", "http_sd_configs": [{"url": f"http://{address}/sd?x=1", "refresh_interval": "1s"}],
         "scheme": "https", "metrics_path": "/a b", "params": {"m": ["x y", "z"], "e": []}},
        {"job_name": "files", "file_sd_configs": [{"files": ["targets/*.yml", "more.json"]}]},
        {"job_name": "probe", "metrics_path": "/probe", "params": {"module": ["http_2xx"]},
         "static_configs": [{"targets": ["example.org", "https.example.org:443"], "labels": {"team": "a"}}],
         "relabel_configs": BLACKBOX},
        {"job_name": "twins", "static_configs": [
            {"targets": ["127.0.0.1:1"], "labels": {"n": "1"}}, {"targets": ["127.0.0.1:1"], "labels": {"n": "2"}},
            {"targets": ["127.0.0.1:1"], "labels": {"n": "1"}}, {"targets": ["[::1]"], "labels": {"instance": "x"}}]},
    ]  # fmt: skip
    return [{**timing, **job} for job in jobs]


def populate(server: DiscoveryServer, folder: Path) -> None:
    server.lists["/sd"] = [
        {"targets": ["h1:1", "h2"], "labels": {"team": "x", "__meta_dc": "jb", "__metrics_path__": "/own"}},
        {"targets": ["h3:3"]},
        {"targets": [], "labels": {}},
    ]
    (folder / "targets").mkdir()
    (folder / "targets" / "a.yml").write_text("- targets: [f1, 'f2:2']\n  labels: {env: prod, empty: ''}\n")
    (folder / "more.json").write_text(json.dumps([{"targets": ["f3:3"]}]))
    for name, number, tags in (("db", 1, "a"), ("db", 2, "b"), ("web", 3, "a")):
        known = [instance(name, "nd", 1, "a", "b")] if number == 2 else []
        server.set_service(name, [*known, instance(name, f"node{number}", number, tags, address="10.0.1.1")])
    server.set_service(
        "sick", [instance("sick", "n", 9, status="critical"), instance("sick", "n", 8, status="warning")]
    )
    server.put("nodes", node("n1", ("InternalIP", "10.3.0.1"), ("Hostname", "n1.local"), ("ExternalIP", "192.0.2.1")))
    server.put("nodes", node("n2", ("Hostname", "n2.local")))
    server.put("nodes", node("n3"))
    server.put("pods", pod("web-a", "10.2.0.1", ("http", 8080), ("admin", 9090)))
    server.put("pods", pod("web-b", "10.2.0.2", ("http", 8080), node="n2", labels={"canary": "yes"}, annotations={}))
    six = pod("six", "fd00::1", ("http", 8080), namespace="other", ownerReferences=[])
    del six["spec"]["containers"][1:], six["spec"]["initContainers"]  # Prometheus gives them an invalid address
    server.put("pods", six)
    server.put("pods", pod("waiting", ""))
    server.put("services", service("web"))
    server.put("services", service("public", kind="LoadBalancer", loadBalancerIP="192.0.2.80"))
    server.put("services", service("away", kind="ExternalName", clusterIP="", externalName="example.org"))
    server.put("endpoints", endpoints("web"))
    server.put("endpoints", {"metadata": {"name": "bare", "namespace": "shop"}})
    server.put("endpointslices", endpoint_slice("web-1", "web"))


def change(server: DiscoveryServer) -> None:
    """Add, change and remove what the watches and blocking queries must notice."""
    server.lists["/sd"] = server.lists["/sd"][:1]
    server.set_service("db", [instance("db", "other", 7, "a")])
    server.set_service("web", None)
    server.set_service("new", [instance("new", "n", 10, "a")])
    server.break_watches()
    server.put("pods", pod("web-c", "10.2.0.3", ("http", 8080), labels={"canary": "yes"}))
    server.delete("pods", "other/six")
    server.put("endpoints", {"metadata": {"name": "bare", "namespace": "shop"}, "subsets": endpoints("x")["subsets"]})
    server.break_watches(expire=True)
    server.put("nodes", node("n2", ("InternalIP", "10.3.0.2")))
    server.delete("services", "shop/away")


def their_sets(found: Any) -> dict[str, Sets]:
    """Return job -> targets, and the labels of dropped ones, of an answer of Prometheus about its targets."""
    sets: dict[str, Sets] = {}
    for one in found["activeTargets"]:
        own = one["scrapeUrl"], frozenset(one["labels"].items()), frozenset(one["discoveredLabels"].items())
        sets.setdefault(one["scrapePool"], (set(), set()))[0].add(own)
    for one in found["droppedTargets"]:
        labels = one["discoveredLabels"]
        sets.setdefault(labels["job"], (set(), set()))[1].add(frozenset(labels.items()))
    return sets


def our_sets(discovery: JobDiscovery) -> Sets:
    active: set[Target] = set()
    dropped: set[Labels] = set()
    for group in discovery.groups():
        for found in group.label_sets():
            discovered = frozenset(discovery.job.discovered_labels(found).items())
            targets, problems = discovery.job.targets(DiscoveredGroup((found,)))
            assert not problems, problems
            for one in targets:
                labels = frozenset(one.labels.items()) - {("context", discovery.job.job.name)}
                active.add((one.url, labels, discovered))
            if not targets:
                dropped.add(discovered)
    return active, dropped


async def with_ours(file: Path, test: Callable[[list[JobDiscovery]], Awaitable[None]]) -> None:
    """Run the discoveries of a file."""
    jobs = [JobDiscovery(job, lambda task: None, lambda: None) for job in read_prometheus_file(file)]
    try:
        await test(jobs)
    finally:
        for task in (task for one in jobs for task in one.tasks):
            task.cancel()
        await asyncio.gather(*(task for one in jobs for task in one.tasks), return_exceptions=True)


def differences(jobs: list[JobDiscovery], theirs: dict[str, Sets]) -> list[str]:
    """Return what differs by job."""
    if not all(one.ready for one in jobs):
        return ["not ready"]
    return [
        f"{one.job.job.name}: only ours {mine[at] - other[at]}, only theirs {other[at] - mine[at]}"
        for one in jobs
        for mine, other in ((our_sets(one), theirs.get(one.job.job.name, (set(), set()))),)
        for at in (0, 1)
        if mine[at] != other[at]
    ]


async def equal(jobs: list[JobDiscovery], theirs: Callable[[], dict[str, Sets]]) -> None:
    """Wait until the targets are equal."""
    try:
        await until(lambda: not differences(jobs, theirs()), "equal targets", seconds=60)
    except AssertionError:
        pytest.fail("\n".join(differences(jobs, theirs())))


def test_a_running_prometheus_has_the_same_targets(tmp_path: Path) -> None:
    with discovery_server() as server:
        populate(server, tmp_path)
        jobs = [one for one in configuration(server) if one["job_name"] in ("http", "files", "probe", "twins")]
        with prometheus(tmp_path, {"scrape_configs": jobs}) as theirs:

            def told() -> dict[str, Sets]:
                return their_sets(json.loads(get(f"http://{theirs.address}/api/v1/targets")[0])["data"])

            asyncio.run(with_ours(tmp_path / "prometheus.yml", lambda ours: equal(ours, told)))
