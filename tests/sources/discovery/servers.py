"""Servers that scrape targets are discovered from: an HTTP list, Consul, the API of Kubernetes. They speak the real
protocols, as far as discovery uses them: blocking queries, list pages, watches."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from tests.waiting import LIMIT_S

Query = dict[str, list[str]]
Change = tuple[int, str, Any, Any, Any]
"""Version, resource, the object before and after (None: absent), and as events show it."""
KINDS = {"pods": "Pod", "services": "Service", "nodes": "Node", "endpoints": "Endpoints",
         "endpointslices": "EndpointSlice"}  # fmt: skip


class DiscoveryServer:
    """State of all three, guarded by `_changed`. Each change has a number, as Consul's index and Kubernetes' version.

    `token`: if set, requests without it get 401. `refusing`: all requests get 500."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._version = 100
        self.lists: dict[str, Any] = {}
        self.kind = "application/json"
        self._services: dict[str, tuple[int, list[Any]]] = {}
        self._catalogue = 100
        self._objects: dict[str, dict[str, Any]] = {resource: {} for resource in KINDS}
        self._events: list[Change] = []
        self._oldest = 0
        self._breaks = 0
        self.token, self.refusing = "", False
        self.address = ""

    # --- changes

    def set_service(self, name: str, entries: list[Any] | None) -> None:
        """Replace the instances of a service of Consul; None removes it."""
        with self._changed:
            self._version += 1
            if (entries is None) != (name not in self._services):
                self._catalogue = self._version
            if entries is None:
                del self._services[name]
            else:
                self._catalogue = self._catalogue if name in self._services else self._version
                self._services[name] = self._version, entries
            self._changed.notify_all()

    def put(self, resource: str, found: Any) -> None:
        """Add or replace an object of Kubernetes."""
        api = "discovery.k8s.io/v1" if resource == "endpointslices" else "v1"
        key = f"{found['metadata'].get('namespace', '')}/{found['metadata']['name']}"
        self._change(resource, key, {"kind": KINDS[resource], "apiVersion": api, **found})

    def delete(self, resource: str, key: str) -> None:
        self._change(resource, key, None)

    def _change(self, resource: str, key: str, found: Any) -> None:
        with self._changed:
            self._version += 1
            known = self._objects[resource].pop(key, None)
            shown = dict(found or known)
            shown["metadata"] = {**shown["metadata"], "resourceVersion": str(self._version)}
            if found is not None:
                self._objects[resource][key] = shown
            self._events.append((self._version, resource, known, shown if found is not None else None, shown))
            self._changed.notify_all()

    def break_watches(self, expire: bool = False) -> None:
        """End all watches; with `expire` no watch may begin at a version of before."""
        with self._changed:
            self._breaks += 1
            if expire:
                self._version += 1
                self._oldest = self._version
            self._changed.notify_all()

    # --- answers

    def answer(self, path: str, query: Query) -> tuple[Any, dict[str, str]]:
        """Return body and headers. Raises KeyError for an unknown path."""
        if path in self.lists:
            return self.lists[path], {}
        if path == "/version":
            return {"major": "1", "minor": "26", "gitVersion": "v1.26.0"}, {}
        if path == "/v1/agent/self":
            return {"Config": {"Datacenter": "jb"}}, {}
        if path == "/v1/catalog/services":
            return self._blocking(query, lambda: self._catalogue, self._names)
        if path.startswith("/v1/health/service/"):
            name = unquote(path.rpartition("/")[2])
            return self._blocking(query, lambda: self._services.get(name, (1, []))[0], lambda: self._of(name, query))
        return self._listed(path, query), {}

    def _blocking(self, query: Query, index: Any, body: Any) -> tuple[Any, dict[str, str]]:
        last = int(query.get("index", ["0"])[0])
        with self._changed:
            breaks = self._breaks
            self._changed.wait_for(lambda: index() != last or self._breaks != breaks, LIMIT_S)
            told = {"X-Consul-Index": str(index()), "X-Consul-LastContact": "0", "X-Consul-KnownLeader": "true"}
            return body(), told

    def _names(self) -> Any:
        return {name: sorted({tag for one in entries for tag in one["Service"]["Tags"] or ()})
                for name, (_, entries) in self._services.items()}  # fmt: skip

    def _of(self, name: str, query: Query) -> Any:
        tags = set(query.get("tag", ()))
        meta = dict(one.split(":", 1) for one in query.get("node-meta", ()))
        return [
            one
            for one in self._services.get(name, (1, []))[1]
            if tags <= set(one["Service"]["Tags"] or ()) and meta.items() <= (one["Node"]["Meta"] or {}).items()
        ]

    def _selected(self, path: str, query: Query) -> tuple[str, Any]:
        *_, resource = path.split("/")
        namespace = path.split("/namespaces/")[1].split("/")[0] if "/namespaces/" in path else ""
        labels = dict(part.split("=", 1) for part in ",".join(query.get("labelSelector", [])).split(",") if part)
        fields = dict(part.split("=", 1) for part in ",".join(query.get("fieldSelector", [])).split(",") if part)

        def fits(found: Any) -> bool:
            meta = found["metadata"]
            return (
                namespace in ("", meta.get("namespace"))
                and labels.items() <= meta.get("labels", {}).items()
                and fields.get("spec.nodeName") in (None, found.get("spec", {}).get("nodeName"))
            )

        return resource, fits

    def _listed(self, path: str, query: Query) -> Any:
        resource, fits = self._selected(path, query)
        with self._changed:
            found = [one for _, one in sorted(self._objects[resource].items()) if fits(one)]
            begin = int(query.get("continue", ["0"])[0] or 0)
            end = begin + 2  # small pages
            meta = {"resourceVersion": str(self._version), **({"continue": str(end)} if end < len(found) else {})}
        api = "discovery.k8s.io/v1" if resource == "endpointslices" else "v1"
        return {"kind": f"{KINDS[resource]}List", "apiVersion": api, "metadata": meta, "items": found[begin:end]}

    def _wait(self, last: int, breaks: int) -> list[Change]:
        """Return the events after `last`, once there are some; none if the watches break."""
        with self._changed:
            self._changed.wait_for(lambda: self._version > last or self._breaks != breaks, LIMIT_S)
            return [] if self._breaks != breaks else [one for one in self._events if one[0] > last]

    def watch(self, path: str, query: Query) -> Iterator[Any]:
        """Yield events until the watch breaks."""
        resource, fits = self._selected(path, query)
        last = int(query["resourceVersion"][0])
        with self._changed:
            breaks = self._breaks
            if last < self._oldest:
                yield {"type": "ERROR", "object": {"kind": "Status", "apiVersion": "v1", "status": "Failure",
                                                   "code": 410, "reason": "Expired", "message": "too old"}}  # fmt: skip
                return
        while new := self._wait(last, breaks):
            last = new[-1][0]
            for _, of, before, after, shown in new:
                word = _event(of == resource and before and fits(before), of == resource and after and fits(after))
                if word:
                    yield {"type": word, "object": shown}


def _event(was: bool, is_now: bool) -> str:
    """Return what a watch is told of an object that was or is among those it selects, "" for nothing."""
    if is_now:
        return "MODIFIED" if was else "ADDED"
    return "DELETED" if was else ""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    state: DiscoveryServer

    def do_GET(self) -> None:
        with contextlib.suppress(OSError):  # the client has gone
            self._answer()

    def _answer(self) -> None:
        parts = urlsplit(self.path)
        query = parse_qs(parts.query)
        given = self.headers.get("Authorization", ""), self.headers.get("X-Consul-Token", "")
        if self.state.refusing or (self.state.token and f"Bearer {self.state.token}" not in given):
            self._send(500 if self.state.refusing else 401, {"message": "no"}, {})
        elif "watch" in query:
            self._stream(self.state.watch(parts.path, query))
        else:
            try:
                self._send(200, *self.state.answer(parts.path, query))
            except KeyError:
                self._send(404, {"message": "not found"}, {})

    def _send(self, code: int, found: Any, headers: dict[str, str]) -> None:
        body = json.dumps(found).encode()
        self.send_response(code)
        for name, value in {"Content-Type": self.state.kind, "Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def _stream(self, events: Iterator[Any]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", self.state.kind)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for one in events:
            line = json.dumps(one).encode() + b"\n"
            self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, format: str, *args: object) -> None:
        """Write no log."""


class _Server(ThreadingHTTPServer):
    request_queue_size = 512
    """Discoveries of many jobs connect at once."""


@contextlib.contextmanager
def discovery_server() -> Iterator[DiscoveryServer]:
    """Run the servers at one address."""
    state = DiscoveryServer()
    handler = type("Handler", (_Handler,), {"state": state})
    with _Server(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        server.block_on_close = False
        state.address = f"127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield state
        finally:
            state.break_watches()
            server.shutdown()


def instance(name: str, node: str, port: int, *tags: str, address: str = "", status: str = "passing") -> Any:
    """Return an instance of a service of Consul."""
    return {
        "Node": {
            "ID": f"id-{node}", "Node": node, "Address": "10.0.0.7", "Datacenter": "jb",
            "TaggedAddresses": {"lan": "10.0.0.7", "wan-v4": "192.0.2.7"}, "Meta": {"rack.no": "r1"},
        },
        "Service": {
            "ID": f"{name}-{port}", "Service": name, "Tags": list(tags), "Address": address, "Port": port,
            "Meta": {"team/x": "infra"},
        },
        "Checks": [
            {"CheckID": "serfHealth", "Status": "passing"},
            {"CheckID": f"service:{name}", "Status": status, "ServiceID": f"{name}-{port}"},
        ],
    }  # fmt: skip


def pod(name: str, ip: str, *ports: tuple[str, int], namespace: str = "shop", node: str = "n1", **meta: Any) -> Any:
    """Return a pod with an init container, a container with these ports and one without."""
    return {
        "metadata": {
            "name": name, "namespace": namespace, "uid": f"uid-{name}", "labels": {"app.kubernetes.io/name": "web"},
            "annotations": {"prometheus.io/scrape": "true", "empty": ""},
            "ownerReferences": [{"apiVersion": "v1", "kind": "ReplicaSet", "name": "web-1", "uid": "u",
                                 "controller": True}],
            **meta,
        },
        "spec": {
            "nodeName": node,
            "containers": [
                {"name": "main", "image": "web:1",
                 "ports": [{"name": word, "containerPort": port, "protocol": "TCP"} for word, port in ports]},
                {"name": "side", "image": "side:2"},
            ],
            "initContainers": [{"name": "setup", "image": "setup:1"}],
        },
        "status": {
            "phase": "Running", "podIP": ip, "hostIP": "192.0.2.9",
            "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [{"name": "main", "containerID": "containerd://1", "ready": True, "restartCount": 0,
                                   "image": "web:1", "imageID": ""}],
        },
    }  # fmt: skip


def service(name: str, *, kind: str = "ClusterIP", namespace: str = "shop", **spec: Any) -> Any:
    return {
        "metadata": {"name": name, "namespace": namespace, "labels": {"tier": "front"}, "annotations": {"a/b": "c"}},
        "spec": {
            "type": kind,
            "clusterIP": "10.1.0.1",
            "ports": [{"name": "http", "port": 80, "protocol": "TCP"}, {"name": "dns", "port": 53, "protocol": "UDP"}],
            **spec,
        },
    }


def node(name: str, *addresses: tuple[str, str]) -> Any:
    return {
        "metadata": {"name": name, "labels": {"zone": "z1"}, "annotations": {"x.y": "z"}},
        "spec": {"providerID": f"cloud://{name}"},
        "status": {
            "addresses": [{"type": kind, "address": address} for kind, address in addresses],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
        },
    }


def endpoints(name: str, namespace: str = "shop") -> Any:
    def ref(pod_name: str) -> Any:
        return {"kind": "Pod", "namespace": namespace, "name": pod_name}

    return {
        "metadata": {"name": name, "namespace": namespace, "labels": {"tier": "front"}},
        "subsets": [
            {
                "addresses": [
                    {"ip": "10.2.0.1", "nodeName": "n1", "targetRef": ref("web-a")},
                    {"ip": "10.9.9.9", "hostname": "outside"},
                ],
                "notReadyAddresses": [{"ip": "10.2.0.2", "nodeName": "n2", "targetRef": ref("web-b")}],
                "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
            }
        ],
    }


def endpoint_slice(name: str, of: str, namespace: str = "shop") -> Any:
    return {
        "metadata": {"name": name, "namespace": namespace, "labels": {"kubernetes.io/service-name": of}},
        "addressType": "IPv4",
        "endpoints": [
            {
                "addresses": ["10.2.0.1"],
                "conditions": {"ready": True, "serving": True, "terminating": False},
                "hostname": "first",
                "nodeName": "n1",
                "targetRef": {"kind": "Pod", "namespace": namespace, "name": "web-a"},
                "deprecatedTopology": {"topology.kubernetes.io/zone": "z1"},
            },
            {"addresses": ["10.9.9.9"], "conditions": {}},
        ],
        "ports": [
            {"name": "http", "port": 8080, "protocol": "TCP", "appProtocol": "http"},
            {"name": "none", "protocol": "TCP"},
        ],
    }
