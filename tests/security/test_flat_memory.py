"""Hundreds of hostile bodies at the receiver and at remote read: each is refused, and the memory stays flat."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import random
from collections.abc import Awaitable, Callable, Iterator
from functools import cache
from pathlib import Path
from typing import TypeVar

import psutil
import pytest

from tests.api.serving import served
from tests.api.test_remote_read import HEADERS as READ_HEADERS
from tests.api.test_remote_read import matcher, query
from tests.sources.receive.bodies import (
    metadata_1,
    number,
    packed,
    request_1,
    request_2,
    sample,
    series_1,
    varint,
    whole,
)
from tests.sources.receive.sender import T
from tests.sources.receive.test_receiver import HEADERS, VERSION_2, receiving
from tests.sources.receive.test_receiver import body as good_body

ROUNDS, FIRST = 12, 3
MAX_GROWTH = 32 << 20
"""Growth from the first rounds, which fill caches, to the others. Readers that kept each body would keep more than
100 MiB."""
MIB = 1 << 20
B = TypeVar("B")


@cache
def bomb() -> bytes:
    """One MiB that becomes twenty."""
    return packed(bytes(20 * MIB))


def anywhere(random_: random.Random, good: bytes) -> Iterator[bytes]:
    """Bodies that are hostile to any reader of protobuf in snappy; `good` is one without compression."""
    yield varint(2**32 - 1) + packed(good)[1:]  # announces 4 GiB
    yield bomb()
    yield packed(bytes(MIB - 8) + random_.randbytes(8))
    yield packed(random_.randbytes(64 * 1024))
    yield packed(good)[: random_.randrange(1, len(packed(good)))]
    yield packed(good[: random_.randrange(len(good) - 8, len(good) - 1)])
    yield packed(good[:1] + varint(-1) + good[2:])  # a negative length
    yield packed(good[:1] + varint(-random_.getrandbits(31)) + good[2:])


def written(random_: random.Random) -> Iterator[tuple[str, bytes]]:
    """Version and body of remote writes. Their texts differ from round to round, so that each that was kept counts."""
    prefix = f"x{random_.getrandbits(60)}"
    many = {"__name__": prefix, **{f"{prefix}_{at}": prefix for at in range(10_000)}}
    point = [(T, 1.0)]
    good = {"__name__": prefix, "job": "x"}
    symbols = b"".join(whole(4, text.encode()) for text in ("", "__name__", prefix))
    raw_2 = symbols + whole(5, whole(1, b"\x01\x02") + whole(2, sample(T, 1.0)))
    yield from (("1", body) for body in anywhere(random_, series_1(good, point)))
    yield from (("2", body) for body in anywhere(random_, raw_2))
    yield "1", request_1(series_1(many, point))
    yield "2", request_2([(many, point)])
    yield "1", request_1(series_1({"__name__": prefix, "job": prefix * 100_000}, point))
    yield "1", request_1(series_1({f"{prefix} ": "no name"}, point))
    yield "1", packed(whole(1, b"") * MIB)  # as many series without anything
    yield "1", packed(whole(3, b"") * MIB)
    yield "1", packed(whole(1, whole(2, b"") * (MIB // 2 - 8)))  # samples without anything
    yield "2", packed(whole(4, b"") * MIB)
    yield "2", packed(symbols + whole(5, whole(1, varint(-1)) + whole(2, sample(T, 1.0))))
    yield "1", request_1(metadata_1(3, prefix, prefix * 10_000), series_1({**good, f"{prefix}-": "a"}, point))


def read(random_: random.Random) -> Iterator[bytes]:
    """Bodies of remote reads."""
    prefix = f"x{random_.getrandbits(60)}"
    good = query(matcher(0, "__name__", prefix))
    yield from anywhere(random_, good)
    yield packed(query(*(matcher(0, f"{prefix}_{at}", prefix) for at in range(10_000))))
    yield packed(good * 1_000)
    yield packed(whole(1, b"") * (MIB // 2))
    yield packed(query(matcher(2, "__name__", "(" * 10_000 + prefix)))
    yield packed(query(matcher(2, "__name__", f"{prefix}(a{{1000}}){{1000}}")))
    yield packed(query(matcher(0, "__name__", prefix), start=5, end=-random_.getrandbits(62)))
    yield packed(query(whole(3, number(1, -1) + whole(2, prefix.encode()) + whole(3, b"x"))))


async def growth(
    bodies: Callable[[random.Random], Iterator[B]], send: Callable[[B], Awaitable[tuple[int, object]]]
) -> int:
    """Send rounds of bodies, each of which is refused; return the growth of the memory after the first rounds, without
    what the allocator keeps of freed memory."""
    process, random_, kept = psutil.Process(), random.Random(7), list[int]()
    for _ in range(ROUNDS):
        for body in bodies(random_):
            status, told = await send(body)
            assert 400 <= status < 500, (told, body)
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)
        kept.append(process.memory_info().rss)
    return max(kept[FIRST:]) - max(kept[:FIRST])


@pytest.mark.slow
def test_hostile_writes_leave_the_memory_of_the_receiver_flat(tmp_path: Path) -> None:
    async def test() -> None:
        async with receiving(tmp_path) as agent:

            async def send(given: tuple[str, bytes]) -> tuple[int, object]:
                version, body = given
                return (await agent.send(body, headers=HEADERS if version == "1" else VERSION_2))[:2]

            assert (await agent.send(good_body()))[0] == 204
            assert await growth(written, send) < MAX_GROWTH

    asyncio.run(test())


@pytest.mark.slow
def test_hostile_reads_leave_the_memory_of_the_api_flat() -> None:
    with served() as client:

        async def send(body: bytes) -> tuple[int, object]:
            try:
                answer = client.send("POST", "/api/v1/read", body, READ_HEADERS)
            except (BrokenPipeError, ConnectionResetError):  # a large body is refused, and closed, before its end
                return 413, b""
            return answer.status, answer.body[:200]

        assert asyncio.run(growth(read, send)) < MAX_GROWTH
