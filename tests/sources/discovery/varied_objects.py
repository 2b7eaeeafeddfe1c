"""Objects of Kubernetes and services of Consul in the forms that clusters have, and jobs over them."""

from __future__ import annotations

from typing import Any

from tests.sources.discovery.servers import DiscoveryServer, endpoint_slice, endpoints, instance, node, pod, service

ANNOTATED: list[dict[str, Any]] = [
    {"source_labels": ["__meta_kubernetes_pod_annotation_prometheus_io_scrape"], "action": "keep", "regex": "true"},
    {"source_labels": ["__meta_kubernetes_pod_annotation_prometheus_io_scheme"], "action": "replace",
     "regex": "(https?)", "target_label": "__scheme__"},
    {"source_labels": ["__meta_kubernetes_pod_annotation_prometheus_io_path"], "action": "replace", "regex": "(.+)",
     "target_label": "__metrics_path__"},
    {"source_labels": ["__address__", "__meta_kubernetes_pod_annotation_prometheus_io_port"], "action": "replace",
     "regex": r"(.+?)(?::\d+)?;(\d+)", "replacement": "$1:$2", "target_label": "__address__"},
    {"action": "labelmap", "regex": "__meta_kubernetes_pod_label_(.+)"},
    {"action": "labelmap", "regex": "__meta_kubernetes_pod_annotation_prometheus_io_param_(.+)",
     "replacement": "__param_$1"},
    {"source_labels": ["__meta_kubernetes_namespace"], "target_label": "namespace"},
    {"source_labels": ["__meta_kubernetes_pod_name"], "target_label": "pod"},
    {"source_labels": ["__meta_kubernetes_pod_phase"], "regex": "Pending|Succeeded|Failed|Completed", "action": "drop"},
]  # fmt: skip
SERVICE_ENDPOINTS: list[dict[str, Any]] = [
    {"source_labels": ["__meta_kubernetes_service_annotation_prometheus_io_scrape"], "action": "keep", "regex": "true"},
    {"source_labels": ["__meta_kubernetes_endpoint_ready"], "action": "keep", "regex": "true"},
    {"source_labels": ["__address__", "__meta_kubernetes_service_annotation_prometheus_io_port"], "action": "replace",
     "regex": r"(.+?)(?::\d+)?;(\d+)", "replacement": "$1:$2", "target_label": "__address__"},
    {"action": "labelmap", "regex": "__meta_kubernetes_service_label_(.+)"},
    {"source_labels": ["__meta_kubernetes_service_name", "__meta_kubernetes_endpoint_port_name"],
     "target_label": "job"},
]  # fmt: skip
NODES: list[dict[str, Any]] = [
    {"action": "labelmap", "regex": "__meta_kubernetes_node_label_(.+)"},
    {"target_label": "__address__", "replacement": "kubernetes.default.svc:443"},
    {"source_labels": ["__meta_kubernetes_node_name"], "target_label": "__metrics_path__",
     "replacement": "/api/v1/nodes/$1/proxy/metrics/cadvisor"},
    {"target_label": "__scheme__", "replacement": "https"},
]  # fmt: skip
CONSUL: list[dict[str, Any]] = [
    {"source_labels": ["__meta_consul_tags"], "regex": ".*,metrics,.*", "action": "keep"},
    {"source_labels": ["__meta_consul_health"], "regex": "passing|warning", "action": "keep"},
    {"source_labels": ["__meta_consul_service"], "target_label": "job"},
    {"source_labels": ["__meta_consul_node", "__meta_consul_service_id"], "separator": "/",
     "target_label": "instance"},
    {"action": "labelmap", "regex": "__meta_consul_service_metadata_(.+)"},
    {"source_labels": ["__meta_consul_service_metadata_path"], "regex": "(.+)", "target_label": "__metrics_path__"},
    {"source_labels": ["__meta_consul_service_id"], "modulus": 4, "target_label": "shard", "action": "hashmod"},
]  # fmt: skip


def varied_jobs(address: str) -> list[dict[str, Any]]:
    """Return jobs: every role, with namespaces, selectors, nodes, and the relabel rules that are usual."""
    api = {"api_server": f"http://{address}"}
    consul = {"server": address, "refresh_interval": "1s"}

    def kubernetes(name: str, role: str, rules: list[dict[str, Any]] | None = None, **more: Any) -> dict[str, Any]:
        return {"job_name": name, "kubernetes_sd_configs": [{**api, "role": role, **more}],
                "relabel_configs": rules or []}  # fmt: skip

    def catalogue(name: str, rules: list[dict[str, Any]] | None = None, **more: Any) -> dict[str, Any]:
        return {"job_name": name, "consul_sd_configs": [{**consul, **more}], "relabel_configs": rules or []}

    shop, both = {"names": ["shop"]}, {"names": ["shop", "other"]}
    attached: dict[str, Any] = {"attach_metadata": {"node": True}}
    return [
        kubernetes("annotated pods", "pod", ANNOTATED),
        kubernetes("annotated endpoints", "endpoints", SERVICE_ENDPOINTS),
        kubernetes("cadvisor", "node", NODES),
        kubernetes("pods of shop", "pod", namespaces=shop),
        kubernetes("pods of both", "pod", namespaces=both, **attached),
        kubernetes("pods of nowhere", "pod", namespaces={"names": ["empty"]}),
        kubernetes("pods by label", "pod", selectors=[{"role": "pod", "label": "tier=db"}]),
        kubernetes("pods by node", "pod", selectors=[{"role": "pod", "field": "spec.nodeName=n2"}]),
        kubernetes("services of other", "service", namespaces={"names": ["other"]}),
        kubernetes("services by label", "service", selectors=[{"role": "service", "label": "tier=front"}]),
        kubernetes("nodes by label", "node", selectors=[{"role": "node", "label": "zone=z2"}]),
        kubernetes("endpoints of both", "endpoints", namespaces=both, **attached),
        kubernetes("endpoints by label", "endpoints", selectors=[
            {"role": "endpoints", "label": "tier=front"}, {"role": "service", "label": "tier=front"},
            {"role": "pod", "label": "tier=db"}]),
        kubernetes("slices of shop", "endpointslice", namespaces=shop, **attached),
        kubernetes("slices by label", "endpointslice", selectors=[
            {"role": "endpointslice", "label": "kubernetes.io/service-name=web"},
            {"role": "pod", "field": "spec.nodeName=n1"}]),
        {"job_name": "two discoveries", "kubernetes_sd_configs": [
            {**api, "role": "pod", "namespaces": shop}, {**api, "role": "pod", "namespaces": both}]},
        catalogue("consul rules", CONSUL),
        catalogue("consul two tags", tags=["metrics", "blue"]),
        catalogue("consul no such tag", tags=["absent"]),
        catalogue("consul named", services=["api", "absent", "bare"]),
        catalogue("consul named and tagged", services=["api", "bare"], tags=["metrics"]),
        catalogue("consul node", node_meta={"rack.no": "r2"}),
        catalogue("consul stale", allow_stale=False, tag_separator="|", namespace="ns", partition="part"),
    ]  # fmt: skip


def put_varied_objects(server: DiscoveryServer) -> None:
    """Add pods, services, endpoints, slices, nodes and services of Consul beside those of `populate`."""
    _put_pods(server)
    _put_services(server)
    _put_slices(server)
    _put_catalogue(server)


def _container(name: str, *ports: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"name": name, "image": f"registry/{name}:1", "ports": list(ports), **more}


def _put_pods(server: DiscoveryServer) -> None:
    db = {"tier": "db", "app.kubernetes.io/part-of": "a b", "x-y": "", "UPPER": "Ü"}
    server.put("nodes", node("n4", ("ExternalDNS", "n4.example.org"), ("LegacyHostIP", "10.3.0.4")))
    server.put("nodes", node("n5", ("InternalIP", "fd00::5"), ("InternalIP", "10.3.0.5"), ("InternalDNS", "n5")))
    no_port = node("n6", ("ExternalIP", "192.0.2.6"))
    del no_port["status"]["daemonEndpoints"], no_port["spec"]["providerID"], no_port["metadata"]["annotations"]
    no_port["metadata"]["labels"] = {"zone": "z2", "kubernetes.io/os": "linux", "node-role.kubernetes.io/master": ""}
    server.put("nodes", no_port)
    server.put("nodes", {"metadata": {"name": "n7"}, "spec": {}, "status": {}})

    asked = {"prometheus.io/scrape": "true", "prometheus.io/port": "9102", "prometheus.io/path": "/own/metrics",
             "prometheus.io/scheme": "https", "prometheus.io/param_module": "x y"}  # fmt: skip
    server.put("pods", pod("asked", "10.2.1.1", ("http", 80), ("grpc", 81), labels=db, annotations=asked))
    refused = pod("refused", "10.2.1.2", ("http", 80), annotations={"prometheus.io/scrape": "false"})
    server.put("pods", refused)
    server.put("pods", pod("bad-port", "10.2.1.3", annotations={**asked, "prometheus.io/port": "web"}))
    for phase, ready in (("Pending", "False"), ("Succeeded", "False"), ("Failed", "Unknown"), ("Running", "False")):
        one = pod(f"phase-{phase.lower()}-{ready.lower()}", "10.2.1.4", ("http", 80), namespace="other", labels=db)
        one["status"] |= {"phase": phase, "conditions": [{"type": "Initialized", "status": "True"},
                                                         {"type": "Ready", "status": ready}]}  # fmt: skip
        server.put("pods", one)
    bare = {"metadata": {"name": "minimal", "namespace": "other"}, "spec": {"containers": [{"name": "only"}]},
            "status": {"podIP": "10.2.1.5"}}  # fmt: skip
    server.put("pods", bare)
    server.put("pods", {"metadata": {"name": "empty", "namespace": "other"}, "spec": {"containers": []},
                        "status": {"podIP": "10.2.1.6"}})  # fmt: skip
    leaving = pod("terminating", "10.2.1.7", ("http", 80), deletionTimestamp="2026-01-01T00:00:00Z",
                  deletionGracePeriodSeconds=30, labels=db, annotations={})  # fmt: skip
    server.put("pods", leaving)
    many = pod("many", "10.2.1.8", node="n2", labels=db)
    http, named = {"containerPort": 8080, "protocol": "TCP"}, {"containerPort": 8080, "name": "web", "protocol": "TCP"}
    many["spec"]["containers"] = [
        _container("a", named, {"containerPort": 53, "name": "dns", "protocol": "UDP"}),
        _container("b", http, {"containerPort": 53, "name": "dns-tcp", "protocol": "TCP"}),
        _container("c", {"containerPort": 9000, "hostPort": 9000}),
    ]
    many["spec"]["initContainers"] = [_container("init-a", {"containerPort": 1}), _container("init-b", image="")]
    state = {"ready": True, "restartCount": 0, "image": "", "imageID": ""}
    many["status"]["initContainerStatuses"] = [
        {"name": "init-a", "containerID": "containerd://i", **state},
        {"name": "a", "containerID": "containerd://x", **state},
    ]
    server.put("pods", many)
    owned = pod("owned", "10.2.1.9", ("http", 80), node="absent", ownerReferences=[
        {"apiVersion": "v1", "kind": "Other", "name": "o", "uid": "u"},
        {"apiVersion": "v1", "kind": "DaemonSet", "name": "d", "uid": "u", "controller": True}])  # fmt: skip
    server.put("pods", owned)
    server.put("pods", pod("unscheduled", "", node=""))


def _put_services(server: DiscoveryServer) -> None:
    wanted = service("wanted")
    wanted["metadata"]["annotations"] = {"prometheus.io/scrape": "true", "prometheus.io/port": "9102"}
    server.put("services", wanted)
    headless = service("headless", namespace="other", clusterIP="None")
    headless["spec"]["ports"] = [{"port": 80}]
    server.put("services", headless)
    server.put("services", service("portless", namespace="other", ports=[]))
    server.put("services", {"metadata": {"name": "typeless", "namespace": "other"},
                            "spec": {"clusterIP": "", "ports": [{"port": 1, "protocol": "SCTP"}]}})  # fmt: skip
    node_port = service("node-port", kind="NodePort", namespace="other")
    node_port["spec"]["ports"][0] |= {"nodePort": 30080, "targetPort": "http", "appProtocol": "http"}
    server.put("services", node_port)

    def ref(name: str, namespace: str = "shop", kind: str = "Pod") -> dict[str, str]:
        return {"kind": kind, "namespace": namespace, "name": name}

    server.put("endpoints", {
        "metadata": {"name": "wanted", "namespace": "shop", "annotations": {"a": "b"}, "labels": {"tier": "front"}},
        "subsets": [
            {"addresses": [{"ip": "10.2.1.1", "nodeName": "n1", "targetRef": ref("asked")},
                           {"ip": "10.2.1.8", "nodeName": "n2", "targetRef": ref("many"), "hostname": "m"}],
             "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}, {"name": "dns", "port": 53,
                                                                          "protocol": "UDP"}]},
            {"addresses": [{"ip": "10.2.1.8", "targetRef": ref("many")}],
             "notReadyAddresses": [{"ip": "10.2.1.7", "nodeName": "absent", "targetRef": ref("terminating")}],
             "ports": [{"port": 9000}]},
            {"addresses": [{"ip": "10.3.0.1", "targetRef": ref("n1", "", "Node")},
                           {"ip": "10.2.9.9", "targetRef": ref("absent")}, {"ip": "fd00::9"}],
             "ports": [{"name": "kubelet", "port": 10250, "protocol": "TCP", "appProtocol": "https"}]},
            {"addresses": [{"ip": "10.2.9.8"}]},
        ],
    })  # fmt: skip
    server.put("endpoints", endpoints("without-a-service", "other"))
    server.put("endpoints", {"metadata": {"name": "headless", "namespace": "other"}, "subsets": [
        {"notReadyAddresses": [{"ip": "10.2.1.5", "targetRef": ref("minimal", "other")}],
         "ports": [{"name": "p", "port": 80, "protocol": "TCP"}]}]})  # fmt: skip


def _put_slices(server: DiscoveryServer) -> None:
    def ref(name: str, namespace: str = "shop", kind: str = "Pod") -> dict[str, str]:
        return {"kind": kind, "namespace": namespace, "name": name}

    varied = endpoint_slice("wanted-1", "wanted")
    varied["metadata"]["annotations"] = {"endpoints.kubernetes.io/last-change-trigger-time": "x"}
    varied["endpoints"] = [
        {
            "addresses": ["10.2.1.8"],
            "conditions": {"ready": True, "serving": True},
            "nodeName": "n2",
            "targetRef": ref("many"),
            "zone": "z1",
        },
        {
            "addresses": ["10.2.1.7"],
            "conditions": {"ready": False, "serving": True, "terminating": True},
            "nodeName": "absent",
            "targetRef": ref("terminating"),
            "hostname": "",
        },
        {"addresses": ["10.3.0.1", "10.3.0.9"], "conditions": {}, "targetRef": ref("n1", "", "Node")},
        {"addresses": ["10.2.9.9"], "targetRef": ref("absent"), "deprecatedTopology": {"a/b": ""}},
    ]
    varied["ports"] = [{"name": "", "port": 8080, "protocol": "TCP"}, {"name": "dns", "port": 53, "protocol": "UDP"}]
    server.put("endpointslices", varied)
    six = endpoint_slice("six-1", "six", "other")
    six |= {"addressType": "IPv6", "endpoints": [{"addresses": ["fd00::7"], "conditions": {"ready": True}}]}
    six["ports"] = [{"name": "p", "port": 80, "protocol": "TCP"}]
    server.put("endpointslices", six)
    portless = endpoint_slice("portless-1", "portless", "other")
    portless["ports"] = []
    server.put("endpointslices", portless)
    orphan = endpoint_slice("orphan", "web")
    orphan["metadata"]["labels"] = {}
    server.put("endpointslices", orphan)
    domain = endpoint_slice("domain-1", "away")
    domain |= {"addressType": "FQDN", "endpoints": [{"addresses": ["one.example.org"], "conditions": {"ready": True}}]}
    server.put("endpointslices", domain)


def _put_catalogue(server: DiscoveryServer) -> None:
    def of(name: str, number: int, *tags: str, **more: Any) -> Any:
        one = instance(name, f"node-{number}", number, *tags)
        one["Service"] |= more
        return one

    checked = of("api", 1, "metrics", "blue", Meta={"path": "/own", "a-b": "c", "empty": ""})
    checked["Checks"] += [{"CheckID": "extra", "Status": "warning"}, {"CheckID": "more", "Status": "passing"}]
    repaired = of("api", 2, "metrics", Namespace="ns", Partition="part", Address="10.0.2.2")
    repaired["Checks"] = [{"CheckID": "_node_maintenance", "Status": "critical"}]
    closed = of("api", 3, "metrics", "blue")
    closed["Checks"] += [{"CheckID": "_service_maintenance:api-3", "Status": "critical"}]
    strange = of("api", 4, "metrics")
    strange["Checks"] += [{"CheckID": "odd", "Status": "odd"}]
    critical = of("api", 5, "green")
    critical["Checks"] += [{"CheckID": "a", "Status": "critical"}, {"CheckID": "b", "Status": "warning"}]
    remote = of("api", 6, "metrics", Address="service.example.org", Port=0)
    six = of("api", 7, "metrics", Address="fd00::7")
    racked = of("api", 8, "metrics", Meta=None)
    racked["Node"]["Meta"] = {"rack.no": "r2", "os": "linux"}
    server.set_service("api", [checked, repaired, closed, strange, critical, remote, six, racked])
    bare = of("bare", 9, Tags=None, Meta=None, Address="")
    bare["Node"] |= {"Meta": None, "TaggedAddresses": None, "Address": "fd00::9"}
    bare["Checks"] = []
    server.set_service("bare", [bare])
    server.set_service("odd name", [of("odd", 10, "metrics", "a,b")])
    server.set_service("consul", [])


def change_varied_objects(server: DiscoveryServer) -> None:
    """Change, remove and add what depends on others: pods behind endpoints, services, nodes; states and tags."""
    server.delete("pods", "shop/many")
    server.put("pods", pod("asked", "10.2.7.1", ("http", 80), labels={"tier": "front"}, annotations={}))
    server.put("pods", pod("absent", "10.2.9.9", ("kubelet", 10250)))
    server.delete("services", "shop/wanted")
    server.put("nodes", node("absent", ("InternalIP", "10.3.0.77")))
    server.delete("nodes", "/n1")
    server.delete("endpoints", "other/headless")
    server.delete("endpointslices", "shop/wanted-1")
    server.delete("services", "shop/away")
    server.set_service("db", [instance("db", "other", 7, "a")])
    server.set_service("web", None)
    server.set_service("new", [instance("new", "n", 10, "metrics")])
    server.set_service("api", [instance("api", "moved", 1, "blue", status="critical")])
    server.set_service("bare", [instance("bare", "moved", 2, "metrics")])
