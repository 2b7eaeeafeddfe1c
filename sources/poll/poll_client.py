"""Poller of one process: one kept connection, one request at a time, a timeout for each."""

from __future__ import annotations

import asyncio
import ssl
import struct
from collections.abc import Callable
from dataclasses import replace

from artimon.model.clock import Clock
from bookkeeper.rpc.security import Security, UnauthorizedError
from bookkeeper.rpc.thrift_messages import FramedError
from bookkeeper.rpc.tokens import Tokens, client_hello, frame_size
from sources.base.endpoint_address import EndpointAddress
from sources.base.source_errors import PolledElsewhereError, PollError
from sources.delivery.poll_context import PollLimits
from sources.delivery.source_config import SourceConfig
from sources.poll.poll_codec import PollAnswer, decode_answer, encode_poll_request, set_sequence_id
from sources.state.source_reading import Reading, SourceSchema

_LENGTH = struct.Struct(">I")
_LARGE_BYTES = 1 << 18
"""Size in bytes above which frames wait for a place in memory; above an eighth of it they are decoded in a thread."""
_PATIENCE_PERIODS = 1.5
"""Periods: an agent not sure of its lease gives way to another one that polled within this time."""


class PollClient:
    """Poller of one endpoint. Any error closes the connection, so that a late answer is never taken for the next one.

    `sure` returns True if this agent certainly holds the lease. `inherited`: memo of another agent's poller, set by the
    answer with which this one took over, until the caller clears it."""

    def __init__(
        self,
        endpoint: EndpointAddress,
        config: SourceConfig,
        limits: PollLimits,
        clock: Clock,
        sure: Callable[[], bool] = lambda: True,
    ) -> None:
        self._endpoint, self._config, self._limits, self._clock = endpoint, config, limits, clock
        self._holds_lease = sure
        self._request: tuple[object, bytearray] = None, bytearray()
        self.memo: bytes | None = None
        """Memo for the next poller of the process, to be left with it by the next poll."""
        self.inherited: bytes | None = None
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self.schema: SourceSchema | None = None
        """Schema of the last answer; None to request the whole one with the next poll."""
        self._seqid = 0
        self._process_ms = 0
        """Time of the process's clock at its last answer."""
        self.failing = False
        self.last_ms = 0.0
        """Duration of the last poll in ms, from request to answer or error."""

    async def poll(self) -> Reading:
        """Poll the process and return the reading; sets `self.failing`. Raises PollError with the reason,
        PolledElsewhereError if another agent polls the process."""
        try:
            reading = await self._poll()
        except PolledElsewhereError:
            self.failing = False
            raise
        except BaseException:
            self.failing = True
            self.close()
            raise
        self.failing = False
        if self._limits.kept > self._limits.most_kept:
            self.close()
        return reading

    async def confirm(self) -> None:
        """Tell an ending process that its last answer is durable, so that it needs no final snapshot. The process may
        have ended already."""
        self._seqid = self._seqid % 0x7FFF_FFFF + 1
        known = self.schema.id if self.schema else b""
        question = encode_poll_request(known, self._config.agent, self._patience_ms(), None, self._process_ms)
        try:
            await self._call(set_sequence_id(question, self._seqid))
        except PollError:
            self.close()

    def slim_schema(self) -> None:
        """Free the names and labels of the schema, which are no longer needed."""
        if self.schema is not None:
            self.schema = self.schema.slim()

    def close(self) -> None:
        """Close the connection; the next poll opens a new one."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None
            self._limits.kept -= 1

    async def _poll(self) -> Reading:
        self._seqid = self._seqid % 0x7FFF_FFFF + 1
        memo = self.memo
        question = set_sequence_id(self._encode_request(memo), self._seqid)
        async with self._limits.place(self.failing):
            began = self._clock.monotonic()
            try:
                frame = await self._call(question)
            finally:
                self.last_ms = (self._clock.monotonic() - began) * 1000
            time_ms = self._clock.now_ms()
        try:
            answer = await self._decode(frame)
        except PolledElsewhereError as other:
            self._check_uuid(other.uuid)
            raise
        reading = self._reading(answer, time_ms)
        if self.memo is memo:
            self.memo = None  # delivered
        return reading

    def _encode_request(self, memo: bytes | None) -> bytearray:
        about = self.schema.id if self.schema else b"", self._config.agent, self._patience_ms(), memo
        if self._request[0] != about:
            self._request = about, encode_poll_request(*about)
        return self._request[1]

    def _patience_ms(self) -> int:
        return 0 if self._holds_lease() else round(_PATIENCE_PERIODS * self._config.period_ms)

    async def _call(self, question: bytes) -> bytes:
        """Send one request and return the frame of its answer within the timeout. Raises PollError."""
        try:
            async with asyncio.timeout(self._config.deadline_s):
                return await self._exchange(question)
        except TimeoutError:
            raise PollError("timeout", f"no complete answer within {self._config.deadline_s:g} s") from None
        except ConnectionRefusedError as error:
            raise PollError("refused", "no process listens there") from error
        except asyncio.IncompleteReadError as error:
            text = f"closed after {len(error.partial)} of {error.expected} bytes"
            raise PollError("closed", text) from error
        except OSError as error:
            raise PollError("network", str(error)) from error

    async def _exchange(self, question: bytes) -> bytes:
        reused = self._streams is not None
        try:
            return await self._send(question)
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            # The process closed the kept connection meanwhile (idle timeout or fork): retry on a new one.
            if not reused or (isinstance(error, asyncio.IncompleteReadError) and error.partial):
                raise
        self.close()
        return await self._send(question)

    async def _send(self, question: bytes) -> bytes:
        if self._streams is None:
            self._streams = await open_connection(self._endpoint, self._config.security)
            self._limits.kept += 1
        reader, writer = self._streams
        writer.write(question)
        await writer.drain()
        (size,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
        if size > self._config.max_frame:
            raise PollError("frame too large", f"{size} bytes announced: at most {self._config.max_frame}")
        if size <= _LARGE_BYTES:
            return await reader.readexactly(size)
        async with self._limits.large:
            return await reader.readexactly(size)

    async def _decode(self, frame: bytes) -> PollAnswer:
        arguments = (frame, self._seqid, self.schema, self._config.max_series, self._config.agent)
        if len(frame) > _LARGE_BYTES // 8:
            return await asyncio.to_thread(decode_answer, *arguments)
        return decode_answer(*arguments)

    def _reading(self, answer: PollAnswer, time_ms: int) -> Reading:
        reading = answer.reading
        self._check_uuid(reading.uuid)
        if reading.context != self._endpoint.context:
            raise PollError("wrong context", f"answers as {reading.context!r}")
        if answer.memo is not None:
            self.inherited = answer.memo
        self._process_ms, self.schema = reading.time_ms, reading.schema
        return replace(reading, time_ms=time_ms)

    def _check_uuid(self, uuid: bytes) -> None:
        if uuid != self._endpoint.uuid:
            raise PollError("wrong uuid", f"process {uuid.hex()} answers at {self._endpoint.address}")


Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def open_connection(endpoint: EndpointAddress, security: Security | None) -> Streams:
    """Open a connection, with TLS and tokens if required (docs/security.md). The caller sets the timeout. Raises
    PollError, OSError."""
    if security is None or security.mode == "accept":
        return await asyncio.open_connection(endpoint.ip, endpoint.port)
    tls = security.tls
    try:
        context, name = (None, None) if tls is None else (tls.client_context(), tls.expected(endpoint.ip))
        streams = await asyncio.open_connection(endpoint.ip, endpoint.port, ssl=context, server_hostname=name)
    except ssl.SSLError as error:
        raise PollError("unauthorized", str(error)) from error
    try:
        if security.tokens is not None:
            await _authenticate(streams, security.tokens)
    except (UnauthorizedError, FramedError) as error:
        streams[1].close()
        raise PollError("unauthorized", str(error)) from error
    except BaseException:
        streams[1].close()
        raise
    return streams


async def _authenticate(streams: Streams, tokens: Tokens) -> None:
    reader, writer = streams
    steps = client_hello(tokens)
    frame = next(steps)
    try:
        while True:
            writer.write(frame)
            await writer.drain()
            size = frame_size(await reader.readexactly(_LENGTH.size))
            frame = steps.send(await reader.readexactly(size))
    except StopIteration:
        pass
