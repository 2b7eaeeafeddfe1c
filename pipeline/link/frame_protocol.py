"""Framed messages on an asyncio transport: splits the stream into frames, with limits, for both ends of a link."""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from time import monotonic
from typing import Any

from bookkeeper.rpc.thrift_messages import HEADER, FrameError

SMALL_BYTES = 1 << 14
"""Frames up to this size wait for no memory. Also the bytes of one read into the buffer of an event loop."""


class _ReadBuffer(threading.local):
    """Buffer of all connections of an event loop, hence of a thread: the bytes are copied before the loop reads the
    next connection."""

    def __init__(self) -> None:
        self.view = memoryview(bytearray(SMALL_BYTES))


_READ_BUFFER = _ReadBuffer()


class FrameProtocol(asyncio.BufferedProtocol, ABC):
    """One connection. A connection without a frame in progress holds no buffer.

    Subclasses get whole frames. A large frame begins only once `begin_frame` grants its memory; until then the
    connection is not read, and `grant` goes on. Invariant: at most `max_frame` bytes and SMALL_BYTES are held."""

    def __init__(self, max_frame: int) -> None:
        self.max_frame = max_frame
        self.transport: Any = None
        self.received_at = monotonic()
        """Monotonic time of the last byte received."""
        self.receiving_since = 0.0
        """Monotonic time of the first byte of an incomplete frame, or of its grant; 0.0 without one."""
        self._scratch = memoryview(b"")
        self._head = bytearray()
        """Bytes of frames that have no buffer."""
        self._frame: bytearray | None = None
        self._filled = 0
        self._pauses: set[str] = set()
        """Reasons for which the connection is not read."""

    @abstractmethod
    def on_frame(self, frame: memoryview) -> None:
        """Take a whole frame, without its length. Raises FrameError to end the connection."""

    @abstractmethod
    def on_broken(self, error: FrameError) -> None:
        """Take note of malformed bytes; the connection is closed."""

    def begin_frame(self, size: int) -> bool:
        """Return True if memory for a large frame is granted; if False, `grant` must follow."""
        del size
        return True

    def grant(self) -> None:
        """Receive the large frame that waited for memory."""
        self.receiving_since = monotonic()
        self._pauses.discard("memory")
        self._guard(self._begin_large)
        if not self._pauses:
            self.transport.resume_reading()

    def pause(self, reason: str) -> None:
        """Stop reading until `resume` was called for every reason."""
        if not self._pauses and self.transport is not None:
            self.transport.pause_reading()
        self._pauses.add(reason)

    def resume(self, reason: str) -> None:
        """End one reason for not reading."""
        if reason not in self._pauses:
            return
        self._pauses.discard(reason)
        if not self._pauses and not self.transport.is_closing():
            self._guard(self._split)
            if not self._pauses:
                self.transport.resume_reading()

    @property
    def is_open(self) -> bool:
        """True while frames may be written."""
        return self.transport is not None and not self.transport.is_closing()

    # --- asyncio

    def connection_made(self, transport: Any) -> None:
        self.transport, self._scratch = transport, _READ_BUFFER.view

    def get_buffer(self, sizehint: int) -> memoryview:
        del sizehint
        return self._scratch if self._frame is None else memoryview(self._frame)[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        self.received_at = monotonic()
        if self._frame is None:
            self._head += self._scratch[:nbytes]
            self._guard(self._split)
            return
        self._filled += nbytes
        if self._filled == len(self._frame):
            frame, self._frame, self.receiving_since = self._frame, None, 0.0
            self._guard(lambda: self.on_frame(memoryview(frame)))

    def eof_received(self) -> bool:
        return False

    # --- frames

    def _split(self) -> None:
        """Take the frames that are complete in `_head`."""
        while not self._pauses and self._frame is None and len(self._head) >= HEADER.size:
            size = self._size()
            if size > self.max_frame:
                raise FrameError(f"a frame of {size} bytes, at most {self.max_frame} are allowed")
            end = HEADER.size + size
            if len(self._head) < end:
                if size <= SMALL_BYTES - HEADER.size:
                    break
                if not self.begin_frame(size):
                    self.pause("memory")
                    return
                self._begin_large()
                return
            frame = bytes(self._head[HEADER.size : end])
            del self._head[:end]
            self.receiving_since = 0.0
            self.on_frame(memoryview(frame))
        if self._head and not self.receiving_since:
            self.receiving_since = monotonic()

    def _size(self) -> int:
        return int(HEADER.unpack_from(self._head)[0])

    def _begin_large(self) -> None:
        frame, have = bytearray(self._size()), len(self._head) - HEADER.size
        frame[:have] = memoryview(self._head)[HEADER.size :]
        self._head = bytearray()
        self._frame, self._filled = frame, have
        self.receiving_since = self.receiving_since or monotonic()

    def _guard(self, act: Any) -> None:
        try:
            act()
        except FrameError as error:
            self.on_broken(error)
            self.transport.abort()
