"""Processes that simulate many applications. Each endpoint sends prepared answers, so that the benchmark measures the
poller; the counts grow from poll to poll."""

from __future__ import annotations

import multiprocessing
import selectors
import socket
import struct
import uuid
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from multiprocessing.connection import Connection
from typing import Any, cast

import numpy as np

from artimon.model.clock import SYSTEM_CLOCK
from bookkeeper.rpc.poll_service import idl
from bookkeeper.rpc.thrift_messages import encode_message
from sources.base.endpoint_address import EndpointAddress

PROCESSES = 4
CONTEXT, AGENT = "bench", "bench"
_SEQID_AT = 4 + 4 + 4 + len("getColumns")
"""Offset of the sequence number in a frame, the length field included."""
_UUID, _INSTANCE = bytes(range(200, 216)), "instance-placeholder"[:8]
_CRC = b"\xf1\xe2\xd3\xc4"


class Answers:
    """Template of the answers of all endpoints of a process."""

    def __init__(self, variables: int, poller: str | None) -> None:
        self._variables, self._poller = variables, poller
        self._random = np.random.default_rng(variables)
        thrift = idl()
        names = [f"bench.variable.{i}" for i in range(variables)]
        labels = [{"route": f"/path/{i % 17}", "code": str(200 + i % 5)} for i in range(variables)]
        schema = thrift.Schema(names, labels, bytes(variables), b"\1" * variables, {}, {})
        self._first, self._later = self._template(thrift, schema), self._template(thrift, None)

    def counts(self) -> Any:
        """Return the counts of an endpoint at its first poll."""
        return self._random.integers(0, 10**9, self._variables)

    def grown(self, counts: Any) -> Any:
        """Return the counts a minute later."""
        return counts + self._random.integers(0, 100, self._variables)

    def first(self, process: bytes, instance: int, counts: Any) -> bytes:
        """Return an answer with the schema, sequence number 0."""
        return self._filled(self._first, process, instance, counts)

    def later(self, process: bytes, instance: int, counts: Any) -> bytes:
        """Return an answer without the schema."""
        return self._filled(self._later, process, instance, counts)

    def _template(self, thrift: Any, schema: Any) -> list[bytes]:
        """Split an answer into the parts between uuid, instance, values and CRC."""
        values = bytes(8 * self._variables)
        endpoint = thrift.Endpoint(_UUID, 1_000, CONTEXT, _INSTANCE, SYSTEM_CLOCK.now_ms(), 1)
        answer = thrift.Columns(endpoint, bytes(range(16)), schema, values, [], _CRC, self._poller, None)
        whole = encode_message("getColumns", 2, 0, thrift.Bookkeeper.getColumns_result(success=answer))
        before, rest = whole.split(_UUID)
        between, rest = rest.split(_INSTANCE.encode())
        rest, end = rest.rsplit(_CRC, 1)
        at = rest.rindex(values)  # the last one: the schema has types that are zero, too
        return [before, between, rest[:at], rest[at + len(values) :], end]

    def _filled(self, parts: list[bytes], process: bytes, instance: int, counts: Any) -> bytes:
        values = counts.astype("<i8").tobytes()
        crc = struct.pack("<I", zlib.crc32(values))
        a, b, c, d, e = parts
        return b"".join([a, process, b, f"{instance:08d}".encode(), c, values, d, crc, e])


def serve(
    pipe: Connection, first: int, count: int, variables: int, rounds: int, hosts: int, poller: str | None
) -> None:
    """Run a process with `count` endpoints: send their addresses through the pipe, and serve until terminated."""
    answers, waiting = Answers(variables, poller), selectors.DefaultSelector()
    found = []
    for number in range(first, first + count):
        process, counts = uuid.uuid4().bytes, answers.counts()
        ip = f"127.0.{number % hosts // 250}.{number % hosts % 250 + 1}"
        listener = socket.create_server((ip, 0), backlog=4)
        listener.setblocking(False)
        ready = []
        for _ in range(rounds):
            counts = answers.grown(counts)
            ready.append(bytearray(answers.later(process, number, counts)))
        begin = partial(answers.first, process, number, counts - 10**6)
        waiting.register(listener, selectors.EVENT_READ, (begin, ready))
        found.append(EndpointAddress(CONTEXT, ip, listener.getsockname()[1], process))
    pipe.send(found)
    while True:
        for key, _ in waiting.select():
            _serve_one(waiting, cast(socket.socket, key.fileobj), key.data)


def _serve_one(waiting: selectors.BaseSelector, sock: socket.socket, data: Any) -> None:
    if isinstance(data, tuple):  # a listener: a new connection starts with the first answer
        connection, _ = sock.accept()
        begin, ready = data
        waiting.register(connection, selectors.EVENT_READ, iter([begin, *ready]))
        return
    try:
        answered = _answer(sock, data)
    except OSError:  # the poller is gone
        answered = False
    if not answered:
        waiting.unregister(sock)
        sock.close()


def _answer(sock: socket.socket, rest: Iterator[Any]) -> bool:
    """Answer one request; return False at the end of the stream or of the answers."""
    question = sock.recv(65_536)
    answer = next(rest, None) if question else None
    if answer is None:
        return False
    message = bytearray(answer()) if callable(answer) else answer
    message[_SEQID_AT : _SEQID_AT + 4] = question[_SEQID_AT : _SEQID_AT + 4]
    sock.sendall(message)
    return True


@contextmanager
def endpoints(
    count: int, variables: int, rounds: int, hosts: int = 1, poller: str | None = AGENT
) -> Iterator[list[EndpointAddress]]:
    """Start `count` endpoints on `hosts` loopback addresses, in processes that end with this context. A connection gets
    one answer with a schema and `rounds` without. `poller`: the agent that the answers name; None: they name none."""
    context = multiprocessing.get_context("spawn")
    share = -(-count // PROCESSES)
    started = []
    try:
        for first in range(0, count, share):
            ours, theirs = context.Pipe()
            arguments = (theirs, first, min(share, count - first), variables, rounds, hosts, poller)
            process = context.Process(target=serve, args=arguments, daemon=True)
            process.start()
            started.append((process, ours))
        yield [one for _, pipe in started for one in pipe.recv()]
    finally:
        for process, _ in started:
            process.terminate()
            process.join(10)
