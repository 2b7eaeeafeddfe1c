"""Polled samples sent to Flume's Thrift source, encoding included, by one process for each connection, as by our
agents."""

from __future__ import annotations

import multiprocessing
import socket
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from artimon.model.batch import BatchId, Samples
from artimon.model.batch_codec import encode_samples
from benchmarks.carrying.bodies import Bodies, samples_in
from benchmarks.peers.flume import Result, frame, idl, wait_written, written
from benchmarks.peers.series import PeerFailed
from bookkeeper.rpc.thrift_messages import HEADER, decode_reply

GROUP = 32
"""Batches in a call: as many as an agent appends to its log in one call."""
READY_S = 120.0
SENT_S = 300.0


@dataclass(frozen=True, slots=True)
class Sent:
    """Report of one connection: monotonic times of the machine, events, samples, and bytes of the events."""

    began: float
    ended: float
    events: int
    samples: int
    bytes: int


def send_polled(path: Path, connections: int, of: int, port: int, sink: Path) -> tuple[Result, int]:
    """Let `connections` processes encode and send one `of`-th each of the batches at `path`. Return the times and the
    number of samples. Raises PeerFailed."""
    spawn, before = multiprocessing.get_context("spawn"), written(sink)
    started = []
    try:
        for share in range(connections):
            ours, theirs = spawn.Pipe()
            process = spawn.Process(target=_carry, args=(theirs, path, share, of, port), daemon=True)
            process.start()
            started.append((process, ours))
        for _, pipe in started:
            _hear(pipe, READY_S)
        for _, pipe in started:
            pipe.send("go")
        sent = [Sent(*_hear(pipe, SENT_S)) for _, pipe in started]
    finally:
        for process, _ in started:
            process.join(1.0)
            process.kill()
    began = min(one.began for one in sent)
    wait_written(sink, before + sum(one.bytes + one.events for one in sent))
    delivered = time.monotonic() - began
    return Result(max(one.ended for one in sent) - began, delivered), sum(one.samples for one in sent)


def _hear(pipe: Connection, deadline_s: float) -> Any:
    try:
        if pipe.poll(deadline_s) and not isinstance(told := pipe.recv(), str):
            return told
    except EOFError:
        told = "it ended"
    raise PeerFailed(f"a process that sends to Flume did not do so within {deadline_s:.0f} s: {told}")


def _carry(pipe: Connection, path: Path, share: int, of: int, port: int) -> None:
    """Run one connection; report the numbers sent or the error through the pipe."""
    bodies = Bodies(path)
    polls = [samples_in(bodies[index]) for index in range(share, len(bodies), of)]
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=60) as sock:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            pipe.send(())
            pipe.recv()
            began = time.monotonic()
            size = sum(_call(sock, group) for group in _encoded(polls))
            ended = time.monotonic()
    except (OSError, PeerFailed, struct.error) as error:
        pipe.send(repr(error))
        return
    pipe.send((began, ended, len(polls), sum(len(samples) for _, samples in polls), size))


def _encoded(polls: list[tuple[str, Samples]]) -> Iterator[list[bytes]]:
    """Yield groups of batches, encoded as in an agent."""
    for first in range(0, len(polls), GROUP):
        yield [
            encode_samples(
                BatchId("flume", 1, 0, first + i), source, bytes(16), 1, int(samples.time_ms[0]), "default", samples
            ).data
            for i, (source, samples) in enumerate(polls[first : first + GROUP])
        ]


def _call(sock: socket.socket, bodies: list[bytes]) -> int:
    """Make one call; return the bytes of its events once Flume has answered."""
    sock.sendall(frame(bodies))
    (size,) = struct.unpack(">I", _exactly(sock, HEADER.size))
    if (status := decode_reply(idl().ThriftSourceProtocol, "appendBatch", _exactly(sock, size), 1)) != 0:
        raise PeerFailed(f"status {status}")
    return sum(map(len, bodies))


def _exactly(sock: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        part = sock.recv(size - len(found))
        if not part:
            raise PeerFailed("Flume closed the connection")
        found += part
    return found
