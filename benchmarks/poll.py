"""Polls many endpoints at once: seconds from the first question until the sink has every sample.

Endpoints are ports of other processes that send answers encoded beforehand, so that what is measured is the poller. The
sink only counts: the log has figures of its own.
"""

import asyncio
import multiprocessing
import random
import struct
import sys
import tempfile
import uuid
import zlib
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from artimon.model.clock import SYSTEM_CLOCK
from benchmarks.common import CountingSink, emit
from bookkeeper.service import idl
from bookkeeper.wire import encode_message
from sources.address import Endpoint
from sources.config import SourceConfig
from sources.delivery import Delivery
from sources.figures import Figures
from sources.follower import Follower, Shared
from sources.names import Placement
from sources.owners import Owners
from sources.poller import Limits
from sources.status import Statuses
from sources.store import SeriesStore

PROCESSES = 4
ROUNDS = 5


def answers(process: bytes, instance: str, variables: int) -> list[bytes]:
    """Messages: the first answer, with a schema, and a few without it, whose counters grow; sequence number 0."""
    thrift = idl()
    names = [f"bench.variable.{i}" for i in range(variables)]
    labels = [{"route": f"/path/{i % 17}", "code": str(200 + i % 5)} for i in range(variables)]
    schema = thrift.Schema(names, labels, bytes(variables), b"\1" * variables, {}, {})
    counts = [random.randrange(10**9) for _ in names]
    made = []
    for poll in range(ROUNDS + 1):
        counts = [count + random.randrange(100) for count in counts]
        values = struct.pack(f"<{variables}q", *counts)
        endpoint = thrift.Endpoint(process, 1_000, "bench", instance, SYSTEM_CLOCK.now_ms(), 1)
        crc = struct.pack("<I", zlib.crc32(values))
        answer = thrift.Columns(endpoint, bytes(16), None if poll else schema, values, [], crc)
        made.append(encode_message("getColumns", 2, 0, thrift.Bookkeeper.getColumns_result(success=answer)))
    return made


def serve(pipe: Connection, first: int, count: int, variables: int) -> None:
    """A process with `count` endpoints; tells their ports and uuids, and serves until it is ended."""
    asyncio.run(_serve(pipe, first, count, variables))


async def _serve(pipe: Connection, first: int, count: int, variables: int) -> None:
    found = []
    servers = []
    for n in range(first, first + count):
        process = uuid.uuid4().bytes
        server = await asyncio.start_server(_handler(answers(process, str(n), variables)), "127.0.0.1", 0)
        servers.append(server)
        found.append((server.sockets[0].getsockname()[1], process))
    pipe.send(found)
    await asyncio.Event().wait()


def _handler(messages: list[bytes]) -> Any:
    at = 4 + 8 + len("getColumns")

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            for message in messages:
                (size,) = struct.unpack(">I", await reader.readexactly(4))
                question = await reader.readexactly(size)
                writer.writelines([message[:at], question[at - 4 : at], message[at + 4 :]])
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        writer.close()

    return handle


async def measure(endpoints: list[tuple[int, bytes]], variables: int, data: Path) -> tuple[float, float]:
    """Seconds of the first poll of all, with schemas, and of the best of the later ones."""
    shared, sink = _shared(data)
    shared.delivery.store.load([], 0)
    followers = [Follower(Endpoint("bench", "127.0.0.1", *one), shared) for one in endpoints]
    writer = asyncio.create_task(shared.delivery.store.write_forever())
    seconds = []
    for _ in range(ROUNDS + 1):
        began, before = SYSTEM_CLOCK.monotonic(), sink.samples
        await asyncio.gather(*(follower.answers(sure=True) for follower in followers))
        seconds.append(SYSTEM_CLOCK.monotonic() - began)
        if sink.samples - before != len(endpoints) * variables:
            raise RuntimeError(f"{sink.samples - before} samples: {shared.figures.to_json()}")
        await shared.delivery.store.flush()
    writer.cancel()
    return seconds[0], min(seconds[1:])


def _shared(data: Path) -> tuple[Shared, CountingSink]:
    clock, sink, figures = SYSTEM_CLOCK, CountingSink(), Figures()
    config = SourceConfig("bench", "", data, deadline_s=60)
    store = SeriesStore(data, config.max_series)
    delivery = Delivery(sink, store, figures, clock)
    placement = Placement(data / "names.json", (), clock)
    statuses = Statuses(data / "vanished.json", config.vanished_ms)
    limits = Limits(config.concurrency)
    return Shared(config, clock, limits, delivery, placement, Owners(), statuses, figures), sink


def run(endpoints: int, variables: int) -> None:
    """Measure and print."""
    context = multiprocessing.get_context("spawn")
    found: list[tuple[int, bytes]] = []
    started = []
    share = -(-endpoints // PROCESSES)
    for first in range(0, endpoints, share):
        ours, theirs = context.Pipe()
        count = min(share, endpoints - first)
        process = context.Process(target=serve, args=(theirs, first, count, variables), daemon=True)
        process.start()
        started.append((process, ours))
    for _, pipe in started:
        found.extend(pipe.recv())
    try:
        with tempfile.TemporaryDirectory() as folder:
            first_s, steady_s = asyncio.run(measure(found, variables, Path(folder)))
    finally:
        for process, _ in started:
            process.terminate()
            process.join(10)
    emit(f"poll.first.{endpoints}x{variables}", first_s, "s")
    emit(f"poll.{endpoints}x{variables}", steady_s, "s")


if __name__ == "__main__":
    run(*(int(argument) for argument in sys.argv[1:3] or ("200", "1500")))
