"""Asks one process for its variables: one connection that is kept, one question at a time, a deadline for each."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable

from artimon.model.clock import Clock
from sources.base.endpoint_address import EndpointAddress
from sources.base.errors import GaveWay, PollError
from sources.delivery.poll_limits import PollLimits
from sources.delivery.source_config import SourceConfig
from sources.poll.endpoint_connection import open_connection
from sources.poll.poll_codec import PollAnswer, decode_answer, encode_question, number
from sources.state.reading import Reading, Schema

_LENGTH = struct.Struct(">I")
_LARGE = 1 << 18
"""Frames above this many bytes wait for one of few places in memory, and are decoded beside the event loop."""
_DOUBTS = 1.5
"""An agent that is not sure gives way to one that asked within so many periods."""


class Poller:
    """One endpoint. Any error closes the connection, so that a late answer is never taken for the next one's.

    `sure`: whether this agent is the one that polls it, beyond doubt. `inherited`: the memo of another agent's poller,
    from the answer with which this one took its place until it is taken from here."""

    def __init__(
        self,
        endpoint: EndpointAddress,
        config: SourceConfig,
        limits: PollLimits,
        clock: Clock,
        sure: Callable[[], bool] = lambda: True,
    ) -> None:
        self._endpoint, self._config, self._limits, self._clock = endpoint, config, limits, clock
        self._sure = sure
        self._asked: tuple[object, bytearray] = None, bytearray()
        self._memo: bytes | None = None
        self.inherited: bytes | None = None
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._schema: Schema | None = None
        self._seqid = 0
        self._process_ms = 0
        """The process's clock at its last answer."""
        self.failing = False
        self.last_ms = 0.0
        """Milliseconds from question to answer (or error) of the last poll."""

    async def poll(self) -> Reading:
        """What the process says now. PollError with the reason; `self.failing` tells afterwards how it went. GaveWay:
        it is another agent's to poll."""
        try:
            reading = await self._poll()
        except GaveWay:
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

    def leave(self, memo: bytes) -> None:
        """Have the process keep this for the poller that comes after this one."""
        self._memo = memo

    async def confirm(self) -> None:
        """Tell a process that is ending that its last answer is on the disk, so that it ends without a final snapshot.
        It may be gone already."""
        self._seqid = self._seqid % 0x7FFF_FFFF + 1
        known = self._schema.id if self._schema else b""
        question = encode_question(known, self._config.agent, self._patience_ms(), None, self._process_ms)
        try:
            await self._ask(number(question, self._seqid))
        except PollError:
            self.close()

    def slim_schema(self) -> None:
        """The names and labels of the schema are no longer needed."""
        if self._schema is not None:
            self._schema = self._schema.slim()

    def forget_schema(self) -> None:
        """Ask for the whole schema with the next poll."""
        self._schema = None

    def close(self) -> None:
        """Drop the connection; the next poll makes another."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None
            self._limits.kept -= 1

    async def _poll(self) -> Reading:
        self._seqid = self._seqid % 0x7FFF_FFFF + 1
        memo = self._memo
        question = number(self._question(memo), self._seqid)
        async with self._limits.place(self.failing):
            began = self._clock.monotonic()
            try:
                frame = await self._ask(question)
            finally:
                self.last_ms = (self._clock.monotonic() - began) * 1000
            time_ms = self._clock.now_ms()
        try:
            answer = await self._decode(frame)
        except GaveWay as other:
            self._check_uuid(other.uuid)
            raise
        reading = self._reading(answer, time_ms)
        if self._memo is memo:
            self._memo = None  # it has arrived
        return reading

    def _question(self, memo: bytes | None) -> bytearray:
        about = self._schema.id if self._schema else b"", self._config.agent, self._patience_ms(), memo
        if self._asked[0] != about:
            self._asked = about, encode_question(*about)
        return self._asked[1]

    def _patience_ms(self) -> int:
        return 0 if self._sure() else round(_DOUBTS * self._config.period_ms)

    async def _ask(self, question: bytes) -> bytes:
        """One question, one frame, within the deadline."""
        try:
            async with asyncio.timeout(self._config.deadline_s):
                return await self._exchange(question)
        except TimeoutError:
            raise PollError("timeout", f"no whole answer within {self._config.deadline_s:g} s") from None
        except ConnectionRefusedError as error:
            raise PollError("refused", "nothing listens there") from error
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
            # A kept connection that the process closed in the meantime (idle, or it was forked): once more, freshly.
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
        if size <= _LARGE:
            return await reader.readexactly(size)
        async with self._limits.large:
            return await reader.readexactly(size)

    async def _decode(self, frame: bytes) -> PollAnswer:
        arguments = (frame, self._seqid, self._schema, self._config.max_series, self._config.agent)
        if len(frame) > _LARGE // 8:
            return await asyncio.to_thread(decode_answer, *arguments)
        return decode_answer(*arguments)

    def _reading(self, answer: PollAnswer, time_ms: int) -> Reading:
        self._check_uuid(answer.uuid)
        if answer.context != self._endpoint.context:
            raise PollError("wrong context", f"answers as {answer.context!r}")
        if answer.memo is not None:
            self.inherited = answer.memo
        self._process_ms = answer.time_ms
        if answer.schema is not None:
            self._schema = answer.schema
        if self._schema is None:  # decode_answer has made sure of it
            raise PollError("garbage", "no schema")
        return Reading(
            answer.uuid,
            answer.birth_ms,
            time_ms,
            self._schema,
            answer.cells,
            answer.strings,
            answer.context,
            answer.instance,
            uid=answer.uid,
        )

    def _check_uuid(self, uuid: bytes) -> None:
        if uuid != self._endpoint.uuid:
            raise PollError("wrong uuid", f"process {uuid.hex()} answers at {self._endpoint.address}")
