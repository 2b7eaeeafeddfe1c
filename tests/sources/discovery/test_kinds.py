"""Targets of Consul and Kubernetes: labels as Prometheus documents them, and changes that watches must notice."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from sources.scrape.discovery import kubernetes_labels as kubernetes
from sources.scrape.discovery.consul_discovery import aggregated_status
from sources.scrape.discovery.discovered_targets import JobDiscovery
from sources.scrape.discovery.scrape_job import DiscoveryJob, distinct
from sources.scrape.discovery.target_group import ADDRESS, DiscoveredGroup
from sources.targets.prometheus_target import ScrapeJob, parse_address
from tests.sources.discovery.servers import discovery_server, endpoint_slice, endpoints, node, pod, service
from tests.sources.discovery.test_against_prometheus import change, configuration, our_sets, populate, with_ours
from tests.waiting import until

META = "__meta_kubernetes_"
POD = {
    "namespace": "shop", "pod_name": "web-a", "pod_ip": "10.2.0.1", "pod_ready": "true", "pod_phase": "Running",
    "pod_node_name": "n1", "pod_host_ip": "192.0.2.9", "pod_uid": "uid-web-a", "pod_controller_kind": "ReplicaSet",
    "pod_controller_name": "web-1", "pod_label_app_kubernetes_io_name": "web",
    "pod_labelpresent_app_kubernetes_io_name": "true", "pod_annotation_prometheus_io_scrape": "true",
    "pod_annotationpresent_prometheus_io_scrape": "true", "pod_annotationpresent_empty": "true",
}  # fmt: skip
MAIN = {"pod_container_name": "main", "pod_container_image": "web:1", "pod_container_port_name": "http",
        "pod_container_port_number": "8080", "pod_container_port_protocol": "TCP"}  # fmt: skip
SERVICE = {"namespace": "shop", "service_name": "web", "service_label_tier": "front",
           "service_labelpresent_tier": "true", "service_annotation_a_b": "c",
           "service_annotationpresent_a_b": "true"}  # fmt: skip


def sets(group: DiscoveredGroup) -> list[dict[str, str]]:
    """Return the labels of the targets without the common prefix."""
    return [{name.removeprefix(META): value for name, value in one.items()} for one in group.label_sets()]


def web() -> object:
    return kubernetes.keep_pod(pod("web-a", "10.2.0.1", ("http", 8080), ("admin", 9090)))


def test_pods() -> None:
    main, admin, side, setup = sets(kubernetes.pod_group(web()))
    own = {"pod_container_id": "containerd://1", "pod_container_init": "false"}
    assert main == {**POD, **MAIN, **own, ADDRESS: "10.2.0.1:8080"}
    assert admin[ADDRESS] == "10.2.0.1:9090"
    assert (side[ADDRESS], side["pod_container_name"]) == ("10.2.0.1", "side")
    assert (setup["pod_container_init"], setup["pod_container_image"]) == ("true", "setup:1")
    assert sets(kubernetes.pod_group(kubernetes.keep_pod(pod("x", "")))) == []


def test_services() -> None:
    first, second = sets(kubernetes.service_group(kubernetes.keep_service(service("web"))))
    ports = {"service_port_name": "http", "service_port_number": "80", "service_port_protocol": "TCP"}
    own = {"service_type": "ClusterIP", "service_cluster_ip": "10.1.0.1"}
    assert first == {**SERVICE, **ports, **own, ADDRESS: "web.shop.svc:80"}
    assert second[ADDRESS] == "web.shop.svc:53"
    away = kubernetes.keep_service(service("away", kind="ExternalName", externalName="example.org"))
    assert sets(kubernetes.service_group(away))[0]["service_external_name"] == "example.org"
    public = kubernetes.keep_service(service("p", kind="LoadBalancer", loadBalancerIP="192.0.2.80"))
    assert sets(kubernetes.service_group(public))[0]["service_loadbalancer_ip"] == "192.0.2.80"


def test_nodes() -> None:
    kept = kubernetes.keep_node(node("n1", ("Hostname", "n1.local"), ("InternalIP", "10.3.0.1")))
    assert sets(kubernetes.node_group(kept)) == [
        {
            "node_name": "n1", "node_provider_id": "cloud://n1", "node_label_zone": "z1",
            "node_labelpresent_zone": "true", "node_annotation_x_y": "z", "node_annotationpresent_x_y": "true",
            "node_address_Hostname": "n1.local", "node_address_InternalIP": "10.3.0.1", "instance": "n1",
            ADDRESS: "10.3.0.1:10250",
        }
    ]  # fmt: skip


def test_endpoints() -> None:
    """The pod's other port is a target, too."""
    found = kubernetes.endpoints_group(
        kubernetes.keep_endpoints(endpoints("web")),
        {"shop/web-a": web()}.get,
        {"shop/web": kubernetes.keep_service(service("web"))}.get,
        dict[str, object]().get,
    )
    first, outside, not_ready, rest = sets(found)
    common = {**SERVICE, "endpoints_name": "web", "endpoints_label_tier": "front",
              "endpoints_labelpresent_tier": "true"}  # fmt: skip
    port = {"endpoint_port_name": "http", "endpoint_port_protocol": "TCP"}
    assert first == {
        **POD, **MAIN, **common, **port, "endpoint_ready": "true", "endpoint_node_name": "n1",
        "endpoint_address_target_kind": "Pod", "endpoint_address_target_name": "web-a", ADDRESS: "10.2.0.1:8080",
    }  # fmt: skip
    hostname = {"endpoint_ready": "true", "endpoint_hostname": "outside"}
    assert outside == {**common, **port, **hostname, ADDRESS: "10.9.9.9:8080"}
    assert (not_ready["endpoint_ready"], "pod_name" in not_ready) == ("false", False)
    assert (rest[ADDRESS], rest["pod_container_port_name"]) == ("10.2.0.1:9090", "admin")


def test_endpoint_slices() -> None:
    found = kubernetes.slice_group(
        kubernetes.keep_slice(endpoint_slice("web-1", "web")),
        {"shop/web-a": web()}.get,
        {"shop/web": kubernetes.keep_service(service("web"))}.get,
        {"/n1": kubernetes.keep_node(node("n1"))}.get,
    )
    first, without_port, *others = sets(found)
    own = {
        "port": "8080", "port_name": "http", "port_protocol": "TCP", "port_app_protocol": "http", "name": "web-1",
        "address_type": "IPv4", "endpoint_conditions_ready": "true", "endpoint_conditions_serving": "true",
        "endpoint_conditions_terminating": "false", "endpoint_hostname": "first", "address_target_kind": "Pod",
        "address_target_name": "web-a", "endpoint_topology_topology_kubernetes_io_zone": "z1",
        "endpoint_topology_present_topology_kubernetes_io_zone": "true",
    }  # fmt: skip
    at_node = {"node_name": "n1", "node_label_zone": "z1", "node_labelpresent_zone": "true"}
    slices = {f"endpointslice_{name}": value for name, value in own.items()}
    assert first == {**POD, **MAIN, **SERVICE, **at_node, **slices, ADDRESS: "10.2.0.1:8080"}
    assert without_port[ADDRESS] == "10.2.0.1"
    assert [one[ADDRESS] for one in others] == ["10.9.9.9:8080", "10.9.9.9", "10.2.0.1:9090"]


def consul_labels(discovery: JobDiscovery) -> list[dict[str, str]]:
    return [one for group in discovery.groups() for one in group.label_sets()]


def test_changes_are_noticed(tmp_path: Path) -> None:
    """Targets and dropped ones by job, before and after changes, with broken and expired watches between."""
    before = {"k8s-pod": (8, 0), "k8s-service": (6, 0), "k8s-node": (2, 0), "k8s-endpoints": (4, 0),
              "k8s-endpointslice": (5, 0), "pods of a node": (0, 0), "with-nodes": (17, 0), "annotated": (4, 4),
              "consul": (5, 0), "consul-tags": (2, 0), "consul-named": (2, 0)}  # fmt: skip
    after = {"k8s-pod": (10, 0), "k8s-service": (4, 0), "k8s-node": (2, 0), "k8s-endpoints": (8, 0),
             "k8s-endpointslice": (5, 0), "pods of a node": (3, 0), "with-nodes": (23, 0), "annotated": (5, 5),
             "consul": (4, 0), "consul-tags": (2, 0), "consul-named": (0, 1)}  # fmt: skip
    with discovery_server() as server:
        populate(server, tmp_path)
        file = tmp_path / "prometheus.yml"
        jobs = [one for one in configuration(server) if one["job_name"] in before]
        file.write_text(json.dumps({"scrape_configs": jobs}))

        async def test(ours: list[JobDiscovery]) -> None:
            def counts() -> dict[str, tuple[int, int]]:
                return {one.job.job.name: (len(our_sets(one)[0]), len(our_sets(one)[1])) for one in ours}

            await until(lambda: counts() == before, "the first targets")
            (db,) = [one for one in consul_labels(ours[-1]) if one[ADDRESS] == "10.0.0.7:1"]
            assert db == {
                ADDRESS: "10.0.0.7:1", "__meta_consul_address": "10.0.0.7", "__meta_consul_node": "nd",
                "__meta_consul_dc": "jb", "__meta_consul_service": "db", "__meta_consul_service_id": "db-1",
                "__meta_consul_service_port": "1", "__meta_consul_tags": ",a,b,", "__meta_consul_health": "passing",
                "__meta_consul_metadata_rack_no": "r1", "__meta_consul_service_metadata_team_x": "infra",
                "__meta_consul_tagged_address_lan": "10.0.0.7", "__meta_consul_tagged_address_wan_v4": "192.0.2.7",
            }  # fmt: skip
            change(server)
            await until(lambda: counts() == after, "the changes")

        asyncio.run(with_ours(file, test))


def test_equal_instances_are_told_apart() -> None:
    """Each has a source of its own, the same in every run; equal targets are one."""
    job = DiscoveryJob(ScrapeJob("j"))
    labels = ({ADDRESS: "a:1", "instance": "x"}, {ADDRESS: "b:1", "instance": "x"}, {ADDRESS: "c:1"})
    found = [one for _ in range(2) for one in job.targets(DiscoveredGroup(labels))[0]]
    names = [one.source("") for one in distinct(found)]
    assert len(set(names)) == 3
    assert names[0] == "prometheus/j/c:1"
    assert all(name.startswith("prometheus/j/x@") for name in names[1:])
    assert names == [one.source("") for one in distinct(reversed(found))]


def test_nothing_is_made_up_where_a_server_names_nothing() -> None:
    """No protocol, type, name of another container's port, health or port; found by comparison with Prometheus."""
    two = pod("two", "10.2.0.9")
    two["spec"]["containers"] = [
        {"name": "a", "ports": [{"containerPort": 80, "name": "web", "protocol": "TCP"}]},
        {"name": "b", "ports": [{"containerPort": 80}]},
    ]
    kept = kubernetes.keep_pod(two)
    ref = {"kind": "Pod", "namespace": "shop", "name": "two"}
    subset = {"addresses": [{"ip": "10.2.0.9", "targetRef": ref}], "ports": [{"port": 80}]}
    found = {"metadata": {"name": "two", "namespace": "shop"}, "subsets": [subset]}
    group = kubernetes.endpoints_group(found, {"shop/two": kept}.get, lambda _: None, lambda _: None)
    (target,) = group.label_sets()
    assert target["__meta_kubernetes_pod_container_name"] == "b"
    assert not [name for name in target if name.endswith(("_port_name", "_protocol"))]
    bare = kubernetes.keep_service({"metadata": {"name": "s", "namespace": "n"}, "spec": {"ports": [{"port": 1}]}})
    (service_labels,) = kubernetes.service_group(bare).label_sets()
    assert not [name for name in service_labels if name.endswith(("_protocol", "_type"))]
    assert aggregated_status([{"CheckID": "x", "Status": "odd"}, {"CheckID": "_node_maintenance"}]) == ""
    assert (
        aggregated_status([{"CheckID": "_node_maintenance"}, {"CheckID": "x", "Status": "critical"}]) == "maintenance"
    )
    assert parse_address(ScrapeJob("j"), "http://a:0/metrics", {}).url == "http://a:0/metrics"
