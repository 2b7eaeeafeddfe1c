"""Polls of one process that answers correctly, and every kind of wrong answer."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from artimon.model.clock import SYSTEM_CLOCK
from artimon.model.values import Value
from sources.base.endpoint_address import EndpointAddress
from sources.base.source_errors import PollError
from sources.delivery.poll_context import PollLimits
from sources.delivery.source_config import SourceConfig
from sources.poll.poll_client import PollClient
from tests.sources.helpers import Behaviour, answering, columns, endpoint, reply
from tests.waiting import LIMIT_S

UUID = bytes(range(16))
VALUES: dict[str, Value] = {"a": 2**62, "b": float("nan"), "c": True, "d": "ünï"}


def poller(port: int, deadline_s: float = 5.0, max_frame: int = 1 << 20) -> PollClient:
    config = SourceConfig("a", "", Path("/nonexistent"), deadline_s=deadline_s, max_frame=max_frame, max_series=100)
    return PollClient(EndpointAddress("shop", "127.0.0.1", port, UUID), config, PollLimits(4), SYSTEM_CLOCK)


async def failure(behaviour: Behaviour, **limits: Any) -> str:
    """Return the reason of the failed poll; the connection must be closed and the next valid answer accepted."""
    behaviours = [behaviour, answering(lambda: columns(UUID, VALUES))]

    async def first_badly(seqid: int, writer: asyncio.StreamWriter) -> None:
        await (behaviours.pop(0) if len(behaviours) > 1 else behaviours[0])(seqid, writer)

    async with endpoint(first_badly) as port:
        asked = poller(port, **limits)
        with pytest.raises(PollError) as caught:
            await asked.poll()
        assert asked.failing
        reading = await asked.poll()
        assert reading.cells[0] == 2**62
        assert not asked.failing
        asked.close()
    return caught.value.reason


def test_the_schema_travels_once() -> None:
    async def run() -> None:
        sent: list[Any] = []

        def answer() -> Any:
            sent.append(columns(UUID, VALUES, schema=not sent))
            return sent[-1]

        async with endpoint(answering(answer)) as port:
            asked = poller(port)
            first = await asked.poll()
            asked.slim_schema()
            second = await asked.poll()
            asked.close()
        assert first.schema.is_whole
        assert list(first.schema.names) == list(VALUES)
        assert not second.schema.is_whole
        assert second.schema.id == first.schema.id
        assert second.cells.tolist() == first.cells.tolist()
        assert second.strings == ("ünï",)

    asyncio.run(run())


def raw(make: Callable[[int], bytes]) -> Behaviour:
    async def behave(seqid: int, writer: asyncio.StreamWriter) -> None:
        writer.write(make(seqid))

    return behave


def changed(**fields: object) -> Behaviour:
    def answer() -> Any:
        made = columns(UUID, VALUES)
        for name, value in fields.items():
            setattr(made, name, value)
        return made

    return answering(answer)


def bad_schema(**fields: object) -> Behaviour:
    def answer() -> Any:
        made = columns(UUID, VALUES)
        for name, value in fields.items():
            setattr(made.schema, name, value)
        return made

    return answering(answer)


def framed(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data


def cut_inside(seqid: int) -> bytes:
    """Return a whole frame with a truncated message."""
    return framed(reply(columns(UUID, VALUES), seqid)[4:-20])


def bent_string_cell() -> Any:
    made = columns(UUID, {"d": "x"})
    made.strings = []
    return made


def bent_boolean_cell() -> Any:
    made = columns(UUID, {"c": 7})
    made.schema.types = b"\2"
    return made


@pytest.mark.parametrize(
    ("behaviour", "reason"),
    [
        pytest.param(raw(lambda _: framed(b"HTTP/1.1 400 Bad Request")), "garbage", id="another protocol"),
        pytest.param(raw(lambda _: framed(bytes(range(256)) * 8)), "garbage", id="noise"),
        pytest.param(raw(lambda _: framed(b"")), "garbage", id="empty frame"),
        pytest.param(raw(cut_inside), "garbage", id="cut inside the frame"),
        pytest.param(raw(lambda seqid: reply(columns(UUID, VALUES), seqid + 1)), "garbage", id="late answer"),
        pytest.param(raw(lambda _: struct.pack(">I", 1 << 30)), "frame too large", id="giant frame"),
        pytest.param(raw(lambda _: b"\xff\xff\xff\xff"), "frame too large", id="negative length"),
        pytest.param(changed(values=b"", crc=b"\0\0\0\0"), "garbage", id="no values"),
        pytest.param(changed(values=bytes(8)), "crc", id="damaged values"),
        pytest.param(changed(crc=b""), "crc", id="no checksum"),
        pytest.param(changed(schema=None), "garbage", id="no schema"),
        pytest.param(changed(endpoint=None), "garbage", id="nobody"),
        pytest.param(bad_schema(types=b"\x09\x09\x09\x09"), "garbage", id="no such type"),
        pytest.param(bad_schema(labels=[]), "garbage", id="labels missing"),
        pytest.param(bad_schema(names=None), "garbage", id="names missing"),
        pytest.param(answering(bent_string_cell), "garbage", id="string cell points nowhere"),
        pytest.param(answering(bent_boolean_cell), "garbage", id="boolean seven"),
        pytest.param(answering(lambda: columns(bytes(16), VALUES)), "wrong uuid", id="another process"),
        pytest.param(answering(lambda: columns(UUID, VALUES, "other")), "wrong context", id="another context"),
        pytest.param(
            answering(lambda: columns(UUID, {f"v{i}": 1 for i in range(101)})),
            "too many series",
            id="too many variables",
        ),
    ],
)
def test_a_bad_answer_is_counted_by_its_reason(behaviour: Behaviour, reason: str) -> None:
    assert asyncio.run(failure(behaviour)) == reason


def test_a_process_that_hangs_costs_its_deadline() -> None:
    async def hang(seqid: int, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(600)

    began = SYSTEM_CLOCK.monotonic()
    assert asyncio.run(failure(hang, deadline_s=0.2)) == "timeout"
    assert SYSTEM_CLOCK.monotonic() - began < 20


def test_half_a_frame_and_silence_is_a_timeout() -> None:
    async def half(seqid: int, writer: asyncio.StreamWriter) -> None:
        whole = reply(columns(UUID, VALUES), seqid)
        writer.write(whole[: len(whole) // 2])
        await writer.drain()
        await asyncio.sleep(600)

    assert asyncio.run(failure(half, deadline_s=0.2)) == "timeout"


def test_half_a_frame_and_goodbye_is_told_apart() -> None:
    async def half(seqid: int, writer: asyncio.StreamWriter) -> None:
        whole = reply(columns(UUID, VALUES), seqid)
        writer.write(whole[: len(whole) // 2])
        writer.close()

    assert asyncio.run(failure(half)) == "closed"


def test_a_kept_connection_that_was_closed_meanwhile_is_made_anew() -> None:
    """The process closed the idle connection between two polls: no poll is lost by it."""

    async def run() -> None:
        async def once(seqid: int, writer: asyncio.StreamWriter) -> None:
            writer.write(reply(columns(UUID, VALUES), seqid))
            await writer.drain()
            writer.close()

        async with endpoint(once) as port:
            asked = poller(port)
            for _ in range(3):
                assert len((await asked.poll()).cells) == 4
            asked.close()

    asyncio.run(run())


def test_nobody_there() -> None:
    async def run() -> str:
        async with endpoint(changed()) as port:
            pass
        with pytest.raises(PollError) as caught:
            await poller(port).poll()
        return caught.value.reason

    assert asyncio.run(run()) == "refused"


def test_those_that_hang_take_no_place_from_the_healthy() -> None:
    """Four places; eight endpoints that hang have failed before, and one healthy endpoint is polled all the while."""

    async def hang(seqid: int, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(600)

    async def run() -> None:
        async with endpoint(hang) as dead, endpoint(answering(lambda: columns(UUID, VALUES))) as alive:
            limits = PollLimits(4)
            config = SourceConfig("a", "", Path("/nonexistent"), deadline_s=600)
            bad = [
                PollClient(EndpointAddress("shop", "127.0.0.1", dead, UUID), config, limits, SYSTEM_CLOCK)
                for _ in range(8)
            ]
            good = PollClient(EndpointAddress("shop", "127.0.0.1", alive, UUID), config, limits, SYSTEM_CLOCK)
            for one in bad:
                one.failing = True
            hanging = [asyncio.create_task(one.poll()) for one in bad]
            for _ in range(5):
                async with asyncio.timeout(LIMIT_S):
                    await good.poll()
            for task in hanging:
                assert not task.done()
                task.cancel()
            await asyncio.wait(hanging)
            good.close()

    asyncio.run(run())
