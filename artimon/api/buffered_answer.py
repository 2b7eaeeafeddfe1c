"""Buffered answers: written in pieces, counted in a byte budget, released as clients read them."""

from __future__ import annotations

import threading
import zlib
from collections import deque
from collections.abc import Iterable, Mapping

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from artimon.api.api_errors import ApiError, QueryTooLargeError

PIECE_BYTES = 64 * 1024
MIN_GZIP_BYTES = 1024
GZIP_LEVEL = 1
"""gzip level: three times faster than the default 6, and a few percent larger."""
_GZIP = 31


class ByteBudget:
    """Byte budget of all answers of this process. `_lock` guards `held`."""

    def __init__(self, most: int) -> None:
        self._limit, self._lock = most, threading.Lock()
        self.used = 0

    def reserve(self, size: int) -> None:
        """Reserve bytes. Raises ApiError 503 if the budget is exhausted."""
        with self._lock:
            if self.used + size > self._limit:
                raise ApiError(
                    503,
                    f"answers that are not read yet hold {self.used} bytes, the limit unsent_bytes is {self._limit}: "
                    "try again later, or ask for less",
                )
            self.used += size

    def release(self, size: int) -> None:
        with self._lock:
            self.used -= size


class BufferedAnswer:
    """One answer. Its bytes count in the budget until they are sent or it is closed."""

    def __init__(self, purse: ByteBudget) -> None:
        self._budget, self._pieces = purse, deque[bytes]()
        self.size = 0
        """Bytes on the wire."""
        self.gzipped = False

    def add(self, piece: bytes) -> None:
        """Append bytes, split into pieces of PIECE bytes. Raises ApiError 503."""
        self._budget.reserve(len(piece))
        self.size += len(piece)
        self._pieces.extend(piece[at : at + PIECE_BYTES] for at in range(0, len(piece), PIECE_BYTES))

    def pop(self) -> bytes | None:
        """Remove and return the next piece, which no longer counts; None at the end."""
        if not self._pieces:
            return None
        piece = self._pieces.popleft()
        self._budget.release(len(piece))
        return piece

    def close(self) -> None:
        """Release the remaining pieces."""
        while self.pop() is not None:
            continue

    def __del__(self) -> None:
        """Release an answer that was completed after its client had gone."""
        self.close()


def buffer_answer(
    pieces: Iterable[bytes], purse: ByteBudget, *, most: int, gzip: bool, smaller: str = ""
) -> BufferedAnswer:
    """Collect pieces in a buffered answer, compressed if `gzip` and they are more than some bytes.

    Raises QueryTooLargeError above `most` uncompressed bytes, ApiError 503 if the budget is exhausted."""
    parcel, total, packer, small = BufferedAnswer(purse), 0, None, b""
    try:
        for piece in pieces:
            total += len(piece)
            if total > most:
                raise QueryTooLargeError(_too_large(total, most, smaller))
            if gzip and packer is None:
                small += piece
                if total <= MIN_GZIP_BYTES:
                    continue
                packer, piece = zlib.compressobj(GZIP_LEVEL, zlib.DEFLATED, _GZIP), small
            parcel.add(piece if packer is None else packer.compress(piece))
        if gzip and packer is None:
            parcel.add(small)
        if packer is not None:
            parcel.add(packer.flush())
            parcel.gzipped = True
    except BaseException:
        parcel.close()
        raise
    return parcel


def _too_large(total: int, most: int, smaller: str) -> str:
    hint = f" ({smaller})" if smaller else ""
    return (
        f"the answer has {total} bytes or more, more than the limit of {most} (answer_bytes): reduce by labels, add "
        f"matchers, or ask for a shorter range{hint}"
    )


class BufferedResponse(Response):
    """Sends a buffered answer piece by piece, no faster than the client reads it."""

    def __init__(self, parcel: BufferedAnswer, headers: Mapping[str, str]) -> None:
        super().__init__(status_code=200)
        self._answer = parcel
        told = {**headers, "content-length": str(parcel.size), "vary": "accept, accept-encoding"}
        if parcel.gzipped:
            told["content-encoding"] = "gzip"
        self.init_headers(told)

    async def __call__(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            piece = self._answer.pop() or b""
            while (following := self._answer.pop()) is not None:
                await send({"type": "http.response.body", "body": piece, "more_body": True})
                piece = following
            await send({"type": "http.response.body", "body": piece, "more_body": False})
        finally:
            self._answer.close()
