"""Labels of the targets that Kubernetes objects describe: those of Prometheus. Pure.

Objects are JSON as the API server sends it, reduced by the `keep_…` functions to what the labels need.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from sources.scrape.discovery.target_group import ADDRESS, DiscoveredGroup, sanitized
from sources.targets.http_target import join_host_port

META = "__meta_kubernetes_"
Labels = dict[str, str]
Find = Callable[[str], Any]
"""Returns the object namespace/name, None if there is none."""
_NODE_ADDRESSES = ("InternalIP", "InternalDNS", "ExternalIP", "ExternalDNS", "LegacyHostIP", "Hostname")
_SERVICE_NAME = "kubernetes.io/service-name"


# --- reduction


def _keep(found: Any, spec: Iterable[str] = (), status: Iterable[str] = (), more: Iterable[str] = ()) -> Any:
    meta = found["metadata"]
    kept = {name: meta[name] for name in ("name", "namespace", "labels", "annotations") if name in meta}
    parts = {name: {k: v for k, v in found.get(name, {}).items() if k in keys}
             for name, keys in (("spec", tuple(spec)), ("status", tuple(status)))}  # fmt: skip
    return {"metadata": kept, **parts, **{name: found[name] for name in more if found.get(name)}}


def keep_pod(found: Any) -> Any:
    kept = _keep(found, ("nodeName",), ("podIP", "hostIP", "phase"))
    status, spec = found.get("status", {}), found.get("spec", {})
    owners = [one for one in found["metadata"].get("ownerReferences", ()) if one.get("controller")]
    kept["owner"] = {name: one[name] for one in owners[:1] for name in ("kind", "name") if one.get(name)}
    kept["uid"] = found["metadata"].get("uid", "")
    ready = (str(one["status"]) for one in status.get("conditions", ()) if one["type"] == "Ready")
    kept["ready"] = next(ready, "Unknown").lower()
    ids = {
        (is_init, one["name"]): one.get("containerID", "")
        for is_init, name in ((False, "containerStatuses"), (True, "initContainerStatuses"))
        for one in status.get(name, ())
    }
    kept["containers"] = [
        {
            "name": one["name"],
            "image": one.get("image", ""),
            "ports": [
                (int(port["containerPort"]), port.get("name", ""), port.get("protocol", ""))
                for port in one.get("ports", ())
            ],
            "init": is_init,
            "id": ids.get((is_init, one["name"]), ""),
        }
        for is_init, name in ((False, "containers"), (True, "initContainers"))
        for one in spec.get(name, ())
    ]
    return kept


def keep_service(found: Any) -> Any:
    return _keep(found, ("type", "ports", "clusterIP", "externalName", "loadBalancerIP"))


def keep_node(found: Any) -> Any:
    return _keep(found, ("providerID",), ("addresses", "daemonEndpoints"))


def keep_endpoints(found: Any) -> Any:
    return _keep(found, more=("subsets",))


def keep_slice(found: Any) -> Any:
    return _keep(found, more=("addressType", "endpoints", "ports"))


# --- labels of objects


def _described(found: Any, prefix: str, *kinds: str) -> Labels:
    """Return the labels and annotations of an object as labels of its targets."""
    labels: Labels = {}
    for kind in kinds or ("label", "annotation"):
        for name, value in (found["metadata"].get(f"{kind}s") or {}).items():
            plain = sanitized(name)
            labels[f"{META}{prefix}_{kind}_{plain}"] = value
            labels[f"{META}{prefix}_{kind}present_{plain}"] = "true"
    return labels


def _named(prefix: str, values: Mapping[str, Any]) -> Labels:
    return {f"{META}{prefix}{name}": str(value) for name, value in values.items() if value not in (None, "")}


def _pod_labels(pod: Any) -> Labels:
    values = {
        "name": pod["metadata"]["name"],
        "ip": pod["status"].get("podIP"),
        "ready": pod["ready"],
        "phase": pod["status"].get("phase"),
        "node_name": pod["spec"].get("nodeName"),
        "host_ip": pod["status"].get("hostIP"),
        "uid": pod["uid"],
        "controller_kind": pod["owner"].get("kind"),
        "controller_name": pod["owner"].get("name"),
    }
    return {**_named("pod_", values), **_described(pod, "pod")}


def _container_labels(container: Any, port: tuple[int, str, str]) -> Labels:
    number, name, protocol = port
    values = {
        "name": container["name"],
        "image": container["image"],
        "port_name": name,
        "port_number": number,
        "port_protocol": protocol,
    }
    return _named("pod_container_", values)


def _namespace(found: Any) -> Labels:
    return _named("", {"namespace": found["metadata"].get("namespace")})


def _service_labels(service: Any) -> Labels:
    return {
        **_named("", {"service_name": service["metadata"]["name"]}),
        **_namespace(service),
        **_described(service, "service"),
    }


def node_labels(node: Any) -> Labels:
    """Return the labels that a node gives to the targets on it."""
    return {**_named("", {"node_name": node["metadata"]["name"]}), **_described(node, "node", "label")}


# --- groups


def pod_group(pod: Any, node: Any = None) -> DiscoveredGroup:
    """Return a target for each port of each container; one without a port for a container that has none."""
    ip = pod["status"].get("podIP")
    if not ip:
        return DiscoveredGroup()
    targets = []
    for one in pod["containers"]:
        own = _named("pod_container_", {"id": one["id"], "init": str(one["init"]).lower()})
        if not one["ports"]:
            bare = _named("pod_container_", {"name": one["name"], "image": one["image"]})
            targets.append({**own, **bare, ADDRESS: ip})
        targets += [
            {**own, **_container_labels(one, port), ADDRESS: join_host_port(ip, port[0])} for port in one["ports"]
        ]
    labels = {**_pod_labels(pod), **_namespace(pod), **(node_labels(node) if node else {})}
    return DiscoveredGroup(tuple(targets), labels)


def service_group(service: Any) -> DiscoveredGroup:
    """Return a target for each port of a service, at its name in the cluster's DNS."""
    meta, spec = service["metadata"], service["spec"]
    kind, targets = spec.get("type"), []
    if kind == "ExternalName":
        own = {"external_name": spec.get("externalName")}
    else:
        own = {"cluster_ip": spec.get("clusterIP")}
    if kind == "LoadBalancer":
        own["loadbalancer_ip"] = spec.get("loadBalancerIP")
    for port in spec.get("ports", ()):
        values = {
            "port_name": port.get("name"),
            "port_number": port["port"],
            "port_protocol": port.get("protocol"),
            "type": kind,
            **own,
        }
        address = join_host_port(f"{meta['name']}.{meta['namespace']}.svc", port["port"])
        targets.append({**_named("service_", values), ADDRESS: address})
    return DiscoveredGroup(tuple(targets), _service_labels(service))


def node_group(node: Any) -> DiscoveredGroup:
    """Return the kubelet of a node as its target; none without an address."""
    by_type: dict[str, str] = {}
    for one in node["status"].get("addresses", ()):
        by_type.setdefault(one["type"], one["address"])
    address = next((by_type[kind] for kind in _NODE_ADDRESSES if kind in by_type), "")
    if not address:
        return DiscoveredGroup()
    name, port = node["metadata"]["name"], node["status"].get("daemonEndpoints", {}).get("kubeletEndpoint", {})
    own = {f"{META}node_address_{sanitized(kind)}": one for kind, one in by_type.items()}
    target = {**own, ADDRESS: join_host_port(address, port.get("Port", 0)), "instance": name}
    labels = _named("node_", {"name": name, "provider_id": node["spec"].get("providerID")})
    return DiscoveredGroup((target,), {**labels, **_described(node, "node")})


class _PodPorts:
    """Pods behind the targets of one object, and the ports that its targets cover."""

    def __init__(self, find: Find) -> None:
        self._find = find
        self._seen: dict[str, tuple[Any, set[int]]] = {}

    def labels(self, ref: Any, port: int | None, protocol: str | None) -> Labels:
        """Return the labels of the pod that an address refers to, and of its container at `port`.

        `protocol`: that of the labels; None: that of the container's port."""
        if not ref or ref.get("kind") != "Pod":
            return {}
        key = f"{ref.get('namespace', '')}/{ref.get('name', '')}"
        pod = self._find(key)
        if pod is None:
            return {}
        covered = self._seen.setdefault(key, (pod, set()))[1]
        labels = _pod_labels(pod)
        if port is None:
            return labels
        covered.add(port)
        own: Labels = {}  # of the last container with this port
        for container in _running(pod):
            match = next((one for one in container["ports"] if one[0] == port), None)
            if match is not None:
                own = _container_labels(container, (port, match[1], match[2] if protocol is None else protocol))
        return labels | own

    def rest(self) -> Iterator[Labels]:
        """Yield a target for each container port of these pods that no target covers."""
        for pod, covered in self._seen.values():
            for container in _running(pod):
                for port in container["ports"]:
                    if port[0] not in covered:
                        address = join_host_port(pod["status"].get("podIP", ""), port[0])
                        yield {**_container_labels(container, port), **_pod_labels(pod), ADDRESS: address}


def _running(pod: Any) -> list[Any]:
    return [one for one in pod["containers"] if not one["init"]]


def endpoints_group(found: Any, pods: Find, services: Find, nodes: Find) -> DiscoveredGroup:
    """Return a target for each address and port, and for the other ports of the pods behind them."""
    meta, pod_ports = found["metadata"], _PodPorts(pods)
    targets = [
        _endpoint(address, port, ready, pod_ports, nodes)
        for subset in found.get("subsets", ())
        for port in subset.get("ports") or ()
        for ready, name in (("true", "addresses"), ("false", "notReadyAddresses"))
        for address in subset.get(name) or ()
    ]
    service = services(f"{meta['namespace']}/{meta['name']}")
    labels = {
        **_namespace(found),
        **_named("endpoints_", {"name": meta["name"]}),
        **(_service_labels(service) if service else {}),
        **_described(found, "endpoints", "label"),
    }
    return DiscoveredGroup((*targets, *pod_ports.rest()), labels)


def _endpoint(address: Any, port: Any, ready: str, pods: _PodPorts, nodes: Find) -> Labels:
    number, protocol, ref = int(port["port"]), port.get("protocol"), address.get("targetRef")
    values = {
        "port_name": port.get("name"),
        "port_protocol": protocol,
        "ready": ready,
        "address_target_kind": (ref or {}).get("kind"),
        "address_target_name": (ref or {}).get("name"),
        "node_name": address.get("nodeName"),
        "hostname": address.get("hostname"),
    }
    return {
        **_named("endpoint_", values),
        **_on_node(address.get("nodeName"), nodes),
        **pods.labels(ref, number, protocol or ""),
        ADDRESS: join_host_port(address["ip"], number),
    }


def _on_node(name: Any, nodes: Find) -> Labels:
    node = nodes(f"/{name}") if name else None
    return node_labels(node) if node else {}


def slice_group(found: Any, pods: Find, services: Find, nodes: Find) -> DiscoveredGroup:
    """Return a target for each address and port of a slice, and for the other ports of the pods behind them."""
    meta, pod_ports = found["metadata"], _PodPorts(pods)
    targets = [
        _slice_endpoint(address, one, port, pod_ports, nodes)
        for one in found.get("endpoints") or ()
        for port in found.get("ports") or ()
        for address in one.get("addresses") or ()
    ]
    name = (meta.get("labels") or {}).get(_SERVICE_NAME)
    service = services(f"{meta['namespace']}/{name}") if name else None
    labels = {
        **_namespace(found),
        **_named("endpointslice_", {"name": meta["name"], "address_type": found.get("addressType")}),
        **(_service_labels(service) if service else {}),
    }
    return DiscoveredGroup((*targets, *pod_ports.rest()), labels)


def _slice_endpoint(address: str, endpoint: Any, port: Any, pods: _PodPorts, nodes: Find) -> Labels:
    number, ref = port.get("port"), endpoint.get("targetRef")
    conditions = endpoint.get("conditions") or {}
    values = {
        "port_name": port.get("name"),
        "port_protocol": port.get("protocol"),
        "port": number,
        "port_app_protocol": port.get("appProtocol"),
        "endpoint_hostname": endpoint.get("hostname"),
        "address_target_kind": (ref or {}).get("kind"),
        "address_target_name": (ref or {}).get("name"),
        **{
            f"endpoint_conditions_{name}": str(conditions[name]).lower()
            for name in ("ready", "serving", "terminating")
            if conditions.get(name) is not None
        },
    }
    labels = _named("endpointslice_", values)
    for name, value in (endpoint.get("deprecatedTopology") or {}).items():
        labels[f"{META}endpointslice_endpoint_topology_{sanitized(name)}"] = value
        labels[f"{META}endpointslice_endpoint_topology_present_{sanitized(name)}"] = "true"
    return {
        **labels,
        **_on_node(endpoint.get("nodeName"), nodes),
        **pods.labels(ref, number, None),
        ADDRESS: address if number is None else join_host_port(address, number),
    }
