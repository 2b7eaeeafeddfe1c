"""Flume NG 1.11 in a separate JVM: Thrift source, file channel, rolling file sink; and a client that sends prepared
frames.

An event counts once the sink has written it, as a batch of ours counts once Kafka has it."""

from __future__ import annotations

import io
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import thriftpy2

from artimon.runtime.settings import load as load_settings
from artimon.stack import jars
from artimon.stack.java import find_java
from benchmarks.peers.series import PeerFailed
from bookkeeper.rpc.thrift_messages import HEADER, decode_reply, encode_call

HEAP_MB = 1024
START_S = 60.0
DRAIN_S = 180.0
_OK = 0
_IDL = """
enum Status { OK, FAILED, ERROR, UNKNOWN }
struct ThriftFlumeEvent { 1: required map<string, string> headers, 2: required binary body }
service ThriftSourceProtocol {
  Status append(1: ThriftFlumeEvent event),
  Status appendBatch(1: list<ThriftFlumeEvent> events)
}
"""
_LOG4J = """\
<Configuration status="WARN"><Appenders><Console name="out" target="SYSTEM_ERR"/></Appenders>
<Loggers><Root level="warn"><AppenderRef ref="out"/></Root></Loggers></Configuration>
"""


@dataclass(frozen=True, slots=True)
class Load:
    """Serialised frames of each connection; total number of `events` and total `bytes` of their bodies."""

    frames: tuple[tuple[bytes, ...], ...]
    events: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Result:
    """Seconds until the channel had all events, and until the sink had written them."""

    accepted_s: float
    delivered_s: float


@cache
def idl() -> Any:
    """Load Flume's Thrift service."""
    return thriftpy2.load_fp(io.StringIO(_IDL), "flume_thrift")


def serialise(bodies: Iterable[bytes], batch: int, connections: int) -> Load:
    """Serialise calls of `batch` events each, distributed over the connections."""
    frames, events, size = [], 0, 0
    waiting: list[bytes] = []
    for body in bodies:
        waiting.append(body)
        events, size = events + 1, size + len(body)
        if len(waiting) == batch:
            frames.append(frame(waiting))
            waiting = []
    if waiting:
        frames.append(frame(waiting))
    return Load(tuple(tuple(frames[n::connections]) for n in range(connections)), events, size)


def frame(bodies: Sequence[bytes]) -> bytes:
    """Return the frame of one call with these events."""
    module = idl()
    events = [module.ThriftFlumeEvent(headers={}, body=body) for body in bodies]
    return encode_call(module.ThriftSourceProtocol, "appendBatch", [events], 1)


@contextmanager
def serving(folder: Path, port: int, sinks: int = 1) -> Iterator[Path]:
    """Run the agent; yield the folder of its sinks, which share the channel. Raises PeerFailed."""
    folder.mkdir(parents=True, exist_ok=True)
    sink = folder / "sink"
    sink.mkdir()
    (folder / "flume.properties").write_text(_properties(folder, port, sinks))
    (folder / "log4j2.xml").write_text(_LOG4J)
    place = load_settings()
    java = find_java(place)
    found = jars.ensure_jars(place, java, ["flume", "hdfs"])
    command = [
        str(java.program),
        f"-Xmx{HEAP_MB}m",
        f"-Dlog4j2.configurationFile={folder / 'log4j2.xml'}",
        "-cp",
        f"{found / 'flume'}/*:{found / 'hdfs'}/*",
        "org.apache.flume.node.Application",
        *("--name", "a", "--conf-file", str(folder / "flume.properties"), "--no-reload-conf"),
    ]
    with (folder / "log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as child:
        try:
            _wait(child, port, folder / "log")
            yield sink
        finally:
            child.terminate()
            try:
                child.wait(20)
            except subprocess.TimeoutExpired:
                child.kill()


def send(load: Load, port: int, sink: Path) -> Result:
    """Send the frames of all connections, each after the answer to the one before. Raises PeerFailed."""
    before = written(sink)
    failures: list[BaseException] = []
    threads = [threading.Thread(target=_drive, args=(frames, port, failures)) for frames in load.frames]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise PeerFailed(f"Flume did not take an event: {failures[0]!r}") from failures[0]
    accepted = time.monotonic() - began
    wait_written(sink, before + load.bytes + load.events)
    return Result(accepted, time.monotonic() - began)


def wait_written(sink: Path, wanted: int) -> None:
    """Wait until the sinks have written `wanted` bytes; they end each body with a newline. Raises PeerFailed."""
    until = time.monotonic() + DRAIN_S
    while (size := written(sink)) < wanted:
        if time.monotonic() > until:
            raise PeerFailed(f"Flume's sink wrote {size:,} of {wanted:,} bytes in {DRAIN_S:.0f} s")
        time.sleep(0.02)
    if size != wanted:
        raise PeerFailed(f"Flume's sink wrote {size:,} bytes, {wanted:,} were sent")


def _drive(frames: Sequence[bytes], port: int, failures: list[BaseException]) -> None:
    service = idl().ThriftSourceProtocol
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=60) as sock:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            stream = sock.makefile("rb")
            for frame in frames:
                sock.sendall(frame)
                (size,) = struct.unpack(">I", stream.read(HEADER.size))
                if (status := decode_reply(service, "appendBatch", stream.read(size), 1)) != _OK:
                    raise PeerFailed(f"status {status}")
    except BaseException as error:  # any failure voids the measurement
        failures.append(error)


def written(folder: Path) -> int:
    """Return the bytes in the files of the sinks."""
    return sum(path.stat().st_size for path in folder.iterdir())


def _properties(folder: Path, port: int, sinks: int) -> str:
    settings = {
        "a.sources": "s",
        "a.channels": "c",
        "a.sinks": " ".join(f"k{n}" for n in range(sinks)),
        "a.sources.s.type": "thrift",
        "a.sources.s.bind": "127.0.0.1",
        "a.sources.s.port": str(port),
        "a.sources.s.protocol": "binary",
        "a.sources.s.threads": "16",
        "a.sources.s.channels": "c",
        "a.channels.c.type": "file",
        "a.channels.c.checkpointDir": str(folder / "checkpoint"),
        "a.channels.c.dataDirs": str(folder / "data"),
        "a.channels.c.capacity": "1000000",
        "a.channels.c.transactionCapacity": "10000",
    }
    for number in range(sinks):
        sink = f"a.sinks.k{number}"
        settings |= {
            f"{sink}.type": "file_roll",
            f"{sink}.sink.directory": str(folder / "sink"),
            f"{sink}.sink.pathManager.prefix": f"k{number}-",
            f"{sink}.sink.rollInterval": "0",
            f"{sink}.sink.batchSize": "1000",
            f"{sink}.channel": "c",
        }
    return "".join(f"{key} = {value}\n" for key, value in settings.items())


def _wait(child: subprocess.Popen[bytes], port: int, log: Path) -> None:
    until = time.monotonic() + START_S
    while True:
        if child.poll() is not None:
            raise PeerFailed(f"Flume ended with {child.returncode}, see {log}: {log.read_text()[-500:]}")
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError as error:
            if time.monotonic() > until:
                raise PeerFailed(f"Flume does not listen within {START_S:.0f} s: {error}") from error
        time.sleep(0.2)
