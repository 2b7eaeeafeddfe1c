"""How tests poll an endpoint and look into ZooKeeper, without the code of the platform's poller."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any, NamedTuple

from kazoo.client import KazooClient

from bookkeeper.rpc.framed_server import FramedClient
from bookkeeper.rpc.poll_service import idl

HOSTS = "/artimon/hosts"
REPOSITORY = Path(__file__).resolve().parents[2]


class Node(NamedTuple):
    """One registered endpoint."""

    path: str
    host: str
    port: int
    uuid: str
    data: dict[str, Any]


def nodes(client: KazooClient, context: str) -> list[Node]:
    """The endpoints of a context on all hosts, oldest first."""
    found = []
    hosts = client.get_children(HOSTS) if client.exists(HOSTS) else []
    for path in [f"{HOSTS}/{host}/{name}" for host in hosts for name in client.get_children(f"{HOSTS}/{host}")]:
        address, port, uuid = path.rsplit(":", 2)
        _, _, address = address.partition(f"/{context}:")
        if not address:
            continue
        try:
            data, stat = client.get(path)
        except Exception:  # went meanwhile
            continue
        found.append((stat.czxid, Node(path, address.strip("[]"), int(port), uuid, json.loads(data))))
    return [node for _, node in sorted(found)]


def connect(port: int, host: str = "127.0.0.1") -> FramedClient:
    """A client for one endpoint."""
    return FramedClient(idl().Bookkeeper, host, port, 5.0)


def rows(port: int) -> tuple[Any, dict[tuple[str, str], Any]]:
    """The endpoint and all values by (name, labels as sorted JSON), by rows."""
    with connect(port) as calls:
        answer = calls.getVars()
    fields = ("integer", "dbl", "truth", "str")
    return answer.endpoint, {
        (one.name, json.dumps(one.labels, sort_keys=True)): getattr(one.value, fields[one.type])
        for one in answer.variables
    }


def columns(port: int) -> tuple[Any, dict[tuple[str, str], Any]]:
    """The same by columns."""
    with connect(port) as calls:
        answer = calls.getColumns(b"", None)
    return answer.endpoint, unpack(answer, answer.schema)


def unpack(answer: Any, schema: Any) -> dict[tuple[str, str], Any]:
    """Values by (name, labels) of a columnar answer whose schema is known."""
    assert zlib.crc32(answer.values).to_bytes(4, "little") == answer.crc
    assert len(answer.values) == 8 * len(schema.names) == 8 * len(schema.types) == 8 * len(schema.kinds)
    found = {}
    for i, name in enumerate(schema.names):
        cell = answer.values[8 * i : 8 * i + 8]
        whole = struct.unpack("<q", cell)[0]
        value = (whole, struct.unpack("<d", cell)[0], bool(whole), None)[schema.types[i]]
        if schema.types[i] == 3:
            value = answer.strings[whole]
        found[name, json.dumps(schema.labels[i], sort_keys=True)] = value
    return found


def application(script: str, folder: Path, **environment: str) -> subprocess.Popen[str]:
    """A program in a folder of its own that prints lines and reads lines."""
    (folder / "app.py").write_text(script)
    return subprocess.Popen(
        [sys.executable, "app.py"],
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={
            "PATH": "/usr/bin:/bin",
            "PYTHONPATH": str(REPOSITORY),
            "ARTIMON_RUN": str(folder / "run"),
            "ARTIMON_DROPIN": str(folder / "dropin"),
            **environment,
        },
    )


def say(process: subprocess.Popen[str], line: str) -> None:
    """One line to the program."""
    assert process.stdin is not None
    process.stdin.write(line + "\n")
    process.stdin.flush()


def hear(process: subprocess.Popen[str]) -> str:
    """One line from the program."""
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, process.stderr.read() if process.stderr else ""
    return line.rstrip("\n")


def end(process: subprocess.Popen[str], seconds: float = 20.0) -> str:
    """Waits for the program's end, checks that it was a good one, returns what it wrote to stderr."""
    _, errors = process.communicate(timeout=seconds)
    assert process.returncode == 0, errors
    return errors
