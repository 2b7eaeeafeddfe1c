"""Recording sink, scripted endpoints, and waiting with a deadline."""

from __future__ import annotations

import asyncio
import contextlib
import os
import struct
import subprocess
import sys
import uuid
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import NotEmptyError

from artimon.model.batch import PollResult
from artimon.model.clock import SYSTEM_CLOCK
from artimon.model.fingerprint import fingerprint
from artimon.model.protocols import NewestPoll, SinkRefusedError
from artimon.model.values import Kind, Value, double_to_cell, type_of
from bookkeeper.rpc.poll_service import idl
from bookkeeper.rpc.thrift_messages import HEADER, encode_message
from sources.artimon_source import ArtimonSource
from sources.delivery.source_config import SourceConfig
from tests.waiting import LIMIT_S

REPLY = 2
HOST = "web1"
Sample = tuple[int, int, int, Value | None]


class KeepingSink:
    """Sink that records what it accepts; refuses while `refusing` is set; replays `log`."""

    def __init__(self, log: Sequence[PollResult] = ()) -> None:
        self.log, self.refusing = log, ""
        self.accepted: list[PollResult] = []

    async def accept(self, polled: Sequence[PollResult]) -> None:
        await asyncio.sleep(0)
        if self.refusing:
            raise SinkRefusedError(self.refusing)
        self.accepted.extend(polled)

    def replay(self, since: NewestPoll | None = None) -> Iterable[PollResult]:
        return self.log

    def texts(self) -> dict[int, str]:
        """Map fingerprint to canonical text, as announced."""
        infos = [(b, s) for p in self.accepted for b in p.blocks for s in b.series]
        return {fingerprint(s.text): s.text for _, s in infos}

    def samples(self, source: str | None = None) -> list[tuple[str, int, int, Value | None]]:
        """Return (text, time, start time, value) in the order of acceptance."""
        texts = self.texts()
        return [
            (texts[print_], time_ms, birth_ms, value)
            for p in self.accepted
            if source is None or p.source == source
            for print_, time_ms, birth_ms, value in p.samples.rows()
        ]

    def last(self, source: str) -> dict[str, Value | None]:
        """Map name to newest value; None where the series ended."""
        return {text.partition("{")[0]: value for text, _, _, value in self.samples(source)}


def columns(
    uuid_: bytes,
    values: Mapping[str, Value],
    context: str = "shop",
    instance: str = "0",
    birth_ms: int = 1_000,
    kinds: Mapping[str, Kind] | None = None,
    schema: bool = True,
) -> Any:
    """Return a complete, valid answer to getColumns, which tests then change."""
    cells: list[int] = []
    strings: list[str] = []
    for value in values.values():
        if isinstance(value, str):
            cells.append(len(strings))
            strings.append(value)
        else:
            cells.append(double_to_cell(value) if isinstance(value, float) else int(value))
    data = struct.pack(f"<{len(cells)}q", *cells)
    types = bytes(type_of(v) for v in values.values())
    kind_bytes = bytes((kinds or {}).get(name, Kind.UNKNOWN) for name in values)
    schema_id = zlib.crc32(repr((list(values), types, kind_bytes)).encode()).to_bytes(16, "big")
    made = idl().Schema(list(values), [{} for _ in values], types, kind_bytes, {}, {})
    endpoint = idl().Endpoint(uuid_, birth_ms, context, instance, SYSTEM_CLOCK.now_ms(), 1)
    crc = struct.pack("<I", zlib.crc32(data))
    return idl().Columns(endpoint, schema_id, made if schema else None, data, strings, crc)


def reply(answer: Any, seqid: int) -> bytes:
    """Return the frame of an answer with its length."""
    return encode_message("getColumns", REPLY, seqid, idl().Bookkeeper.getColumns_result(success=answer))


Behaviour = Callable[[int, asyncio.StreamWriter], Awaitable[None]]


@contextlib.asynccontextmanager
async def endpoint(behaviour: Behaviour) -> AsyncIterator[int]:
    """Listen on 127.0.0.1 and pass requests to `behaviour(seqid, writer)`; yield the port."""

    writers = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            while True:
                (size,) = HEADER.unpack(await reader.readexactly(4))
                frame = await reader.readexactly(size)
                at = 8 + struct.unpack(">I", frame[4:8])[0]
                await behaviour(struct.unpack(">i", frame[at : at + 4])[0], writer)
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for writer in writers:
            writer.close()


def answering(answer: Callable[[], Any]) -> Behaviour:
    """Run a process that answers correctly."""

    async def behave(seqid: int, writer: asyncio.StreamWriter) -> None:
        writer.write(reply(answer(), seqid))

    return behave


def wipe(client: KazooClient, path: str) -> None:
    """Delete a node with its children, also while its owner registers again."""
    for _ in range(50):
        try:
            client.delete(path, recursive=True)
            return
        except NotEmptyError:
            continue
    raise AssertionError(path)


@contextlib.contextmanager
def registry(zookeeper: str) -> Any:
    """Open a session of ZooKeeper."""
    client = KazooClient(zookeeper)
    client.start(15)
    try:
        yield client
    finally:
        client.stop()
        client.close()


def register(client: Any, context: str, port: int, uuid_: bytes, ip: str = "127.0.0.1") -> str:
    """Create the znode of an endpoint; return its path."""
    path = f"/artimon/hosts/127.0.0.1/{context}:{ip}:{port}:{uuid.UUID(bytes=uuid_)}"
    client.create(path, b"{}", ephemeral=True, makepath=True)
    return path


class Application:
    """A real process that uses bookkeeper: tests/sources/application.py."""

    def __init__(self, zookeeper: str, context: str, run: Path, instance: str = "", dropin: Path | None = None) -> None:
        environment = {
            **os.environ,
            "ARTIMON_ZOOKEEPER": zookeeper,
            "ARTIMON_CONTEXT": context,
            "ARTIMON_RUN": str(run),
            **({"ARTIMON_INSTANCE": instance} if instance else {}),
            **({"ARTIMON_DROPIN": str(dropin)} if dropin else {}),
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.sources.application"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
            cwd=Path(__file__).parents[2],
        )

    async def do(self, line: str) -> str:
        """Have one line carried out; return the answer of the application."""
        return await asyncio.to_thread(self._do, line)

    def _do(self, line: str) -> str:
        stdin, stdout = self._process.stdin, self._process.stdout
        if stdin is None or stdout is None:
            raise RuntimeError("the application has no pipes")
        stdin.write(line + "\n")
        stdin.flush()
        return stdout.readline().strip()

    async def leave(self) -> None:
        """End in order, as at the end of a program; return once the process has ended."""
        await asyncio.to_thread(self._process.communicate, None, LIMIT_S)

    def kill(self) -> None:
        """Kill the process."""
        self._process.kill()
        self._process.communicate(timeout=LIMIT_S)


@contextlib.asynccontextmanager
async def running(zookeeper: str, data: Path, sink: KeepingSink, **settings: Any) -> AsyncIterator[ArtimonSource]:
    """Run a source that polls every second; at the end stop it and write its state."""
    defaults: dict[str, Any] = {
        "period_ms": 1_000,
        "deadline_s": 1.0,
        "reconcile_s": 2.0,
        "goodbye_s": 0.5,
        "host_metrics": False,
    }
    config = SourceConfig("agent1", zookeeper, data, **{**defaults, **settings})
    source, stop = ArtimonSource(config, sink, SYSTEM_CLOCK, hostname=HOST), asyncio.Event()
    task = asyncio.create_task(source.run(stop))
    try:
        yield source
    finally:
        stop.set()
        async with asyncio.timeout(LIMIT_S):
            await task
