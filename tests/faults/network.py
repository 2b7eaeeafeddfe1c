"""An agent behind a network of its own: a namespace and a pair of virtual interfaces, which can be cut or made slow.

Only root can make them; tests that need one skip elsewhere."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

_COUNT = itertools.count()

AGENT = """
import json, sys, threading
from pathlib import Path
from pipeline.flows.runtime.agent_transport import Agent, AgentConfig
from tests.pipeline.helpers import MINUTE, polled
prefix, zookeeper, data, pause = sys.argv[1], sys.argv[2], Path(sys.argv[3]), float(sys.argv[4])
agent = Agent(AgentConfig(prefix, data, zookeeper, "kafka", segment_bytes=200_000, topic_prefix=prefix))
agent.start()
ledger, number, wait = open(data / "ledger", "a", buffering=1), 0, threading.Event()
while True:
    if not (data / "quiet").exists():
        number += 1
        agent.wal_sink.accept_now([polled(f"source-{number % 7}", 200, MINUTE + number)])
        ledger.write(f"{number}\\n")
    (data / "figures.new").write_text(json.dumps(agent.figures()))
    (data / "figures.new").rename(data / "figures")
    wait.wait(pause)
"""
"""Accepts batches without end, each named in a ledger once it is accepted, until there is a file `quiet`."""


@dataclass(frozen=True, slots=True)
class Network:
    """`here` and `there`: the addresses of the host and of the agent on their link."""

    name: str
    link: str
    here: str
    there: str

    def cut(self) -> None:
        """Nothing comes through, and nobody is told."""
        _ip("link", "set", self.link, "down")

    def heal(self) -> None:
        """As before."""
        _ip("link", "set", self.link, "up")

    def slow(self, rate: str) -> None:
        """At most `rate` (as tc writes it, such as 1mbit) both ways."""
        shape = ["root", "tbf", "rate", rate, "burst", "16k", "latency", "300ms"]
        _run("tc", "qdisc", "replace", "dev", self.link, *shape)
        _run("ip", "netns", "exec", self.name, "tc", "qdisc", "replace", "dev", f"{self.link}p", *shape)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, timeout=20)


def _ip(*arguments: str) -> None:
    _run("ip", *arguments)


@contextmanager
def network() -> Iterator[Network]:
    """A namespace with a link to here; skips where that cannot be."""
    if os.geteuid() != 0:
        pytest.skip("only root can make network namespaces")
    if shutil.which("ip") is None or shutil.which("tc") is None:
        pytest.skip("the programs ip and tc (iproute2) are not installed")
    number = (os.getpid() * 7 + next(_COUNT)) % 16_000
    name, link, net = f"artimon{number}", f"art{number}", f"10.213.{number // 64}.{number % 64 * 4}"
    base, last = net.rsplit(".", 1)
    found = Network(name, link, f"{base}.{int(last) + 1}", f"{base}.{int(last) + 2}")
    try:
        _ip("netns", "add", name)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"network namespaces do not work here: {error.stderr.decode().strip()}")
    try:
        _ip("link", "add", link, "type", "veth", "peer", "name", f"{link}p")
        _ip("link", "set", f"{link}p", "netns", name)
        _ip("addr", "add", f"{found.here}/30", "dev", link)
        _ip("link", "set", link, "up")
        _ip("-n", name, "addr", "add", f"{found.there}/30", "dev", f"{link}p")
        _ip("-n", name, "link", "set", f"{link}p", "up")
        _ip("-n", name, "link", "set", "lo", "up")
        yield found
    finally:
        subprocess.run(["ip", "link", "del", link], check=False, capture_output=True, timeout=20)
        subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True, timeout=20)


@contextmanager
def forwarder(host: str, target: str) -> Iterator[str]:
    """A port on `host` that leads to `target`; yields its address. For a server that listens on 127.0.0.1 only."""
    to_host, to_port = target.rsplit(":", 1)
    listener = socket.create_server((host, 0))

    def pump(source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(1 << 16):
                sink.sendall(data)
        except OSError:
            pass
        finally:
            for one in (source, sink):
                try:
                    one.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass

    def accept() -> None:
        while True:
            try:
                near, _ = listener.accept()
                far = socket.create_connection((to_host, int(to_port)), 5)
                far.settimeout(None)
            except OSError:
                return
            for ends in ((near, far), (far, near)):
                threading.Thread(target=pump, args=ends, daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield f"{host}:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


class Remote:
    """An agent process, in a network or here, that accepts without end."""

    def __init__(
        self, data: Path, prefix: str, zookeeper: str, net: Network | None = None, pause: float = 0.02
    ) -> None:
        self.data = data
        data.mkdir(parents=True, exist_ok=True)
        inside = ["ip", "netns", "exec", net.name] if net else []
        command = [*inside, sys.executable, "-c", AGENT, prefix, zookeeper, str(data), str(pause)]
        with (data / "log.txt").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)

    def __enter__(self) -> Remote:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()

    def accepted(self) -> list[int]:
        """Return the batches in the ledger."""
        path = self.data / "ledger"
        return [int(line) for line in path.read_text().splitlines()] if path.exists() else []

    def figures(self) -> dict[str, Any]:
        """Return its last report; {} before the first."""
        try:
            found: dict[str, Any] = json.loads((self.data / "figures").read_text())
        except (OSError, ValueError):
            return {}
        return found

    def be_quiet(self) -> None:
        """Accept nothing more."""
        (self.data / "quiet").touch()
