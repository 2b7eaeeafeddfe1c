"""The process: says how it is, answers without shards, ends when told."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from artimon.api.api_server import ApiServer, run_server
from artimon.api.matrix_service import idl
from artimon.model.clock import SYSTEM_CLOCK
from artimon.runtime.health import Health, read_health
from bookkeeper.rpc.framed_server import FramedClient
from tests.api.serving import Client, small_app
from tests.waiting import eventually


def until_ok(path: Path) -> Health:
    """The first health that says "ok"."""

    def good() -> Health | None:
        health = read_health(path)
        return health if health is not None and health.state == "ok" else None

    return eventually(good, f"good health in {path}")


def test_it_says_how_it_is_until_it_is_stopped(tmp_path: Path) -> None:
    stop, file = threading.Event(), tmp_path / "api.json"
    thread = threading.Thread(target=run_server, args=(small_app(), 0, file, stop))
    thread.start()
    try:
        port = until_ok(file).figures["port"]
        assert Client(port).get("/api/health").status == 200
    finally:
        stop.set()
        thread.join(20)
    assert not thread.is_alive()
    with pytest.raises(ConnectionRefusedError):
        Client(port).get("/api/health")


def test_a_taken_port_is_told_at_once() -> None:
    first = ApiServer(small_app())
    first.start()
    try:
        with pytest.raises(OSError, match="in use"):
            ApiServer(small_app(), port=first.port).start()
    finally:
        first.stop()


def test_the_command_answers_without_any_server_and_ends_by_sigterm(tmp_path: Path) -> None:
    file = tmp_path / "health" / "api.json"
    words = [
        "api",
        "--zookeeper",
        "127.0.0.1:1",
        "--data",
        str(tmp_path),
        "--port",
        "0",
        "--thrift-port",
        "0",
        "--health",
        str(file),
    ]
    with subprocess.Popen([sys.executable, "-m", "artimon.cli", *words], stderr=subprocess.PIPE, text=True) as process:
        try:
            figures = until_ok(file).figures
            client = Client(figures["port"])
            for _ in range(3):
                began = SYSTEM_CLOCK.monotonic()
                status = client.get("/api/status")
                assert SYSTEM_CLOCK.monotonic() - began < 10
                assert status.status == 200
                assert status.json["healthy"] is False
                assert "the shards" in status.json["problems"][-1]
            began = SYSTEM_CLOCK.monotonic()
            assert "the alerts" in client.get("/api/alerts").json["problem"]
            assert SYSTEM_CLOCK.monotonic() - began < 10
            assert client.get("/").status == 200
            with FramedClient(idl().Matrix, "127.0.0.1", figures["thrift_port"], 20) as matrices:
                with pytest.raises(idl().Refused, match="ZooKeeper") as caught:
                    matrices.call("query", "fetch('a')", 0)
                assert caught.value.reason == "unavailable"
            process.send_signal(signal.SIGTERM)
            _, told = process.communicate(timeout=30)
            assert process.returncode == 0, told
            assert "Traceback" not in told
        finally:
            process.kill()
