"""Small HTTP client for polled servers: one request per connection, a limit on the answer, whole or line by line.
Redirects are not followed and bodies not decompressed: either is an error.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field

from sources.base.source_errors import PollError

MAX_HEAD_BYTES = 32_768
_CHUNK = 1 << 16
_MAX_SIZE_LINE = 1_024
_STATUS = re.compile(rb"HTTP/1\.[01] (\d{3})(?: |$)")
_HEX = re.compile(rb"[0-9A-Fa-f]{1,15}")


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """Request. `address` is the Host header, `headers` are added; with a `body` it is a POST."""

    address: str
    path: str
    accept: str
    body: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    def encoded(self) -> bytes:
        lines = [
            f"{'GET' if self.body is None else 'POST'} {self.path} HTTP/1.1",
            f"Host: {self.address}",
            f"Accept: {self.accept}",
            "Accept-Encoding: identity",
            "User-Agent: artimon",
            "Connection: close",
            *(f"{name}: {value}" for name, value in self.headers.items()),
        ]
        if self.body is not None:
            lines += ["Content-Type: application/json", f"Content-Length: {len(self.body)}"]
        return "\r\n".join([*lines, "", ""]).encode("ascii") + (self.body or b"")


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """Answer with status 200; names of `headers` in lower case. `ended`: the server announced the end of the body, so
    that it is known to be complete."""

    headers: Mapping[bytes, bytes]
    body: bytes
    ended: bool


async def send_request(
    question: HttpRequest, ip: str, port: int, limit: int, tls: ssl.SSLContext | None = None, server_name: str = ""
) -> HttpResponse:
    """Send a request; return the answer, at most `limit` bytes. Raises PollError with the reason, also for a status
    other than 200. The caller sets the timeout."""
    async with _answering(question, ip, port, tls, server_name) as reader:
        return await _read(reader, limit)


@asynccontextmanager
async def open_lines(
    question: HttpRequest, ip: str, port: int, limit: int, tls: ssl.SSLContext | None = None, server_name: str = ""
) -> AsyncIterator[AsyncIterator[bytes]]:
    """Send a request and yield the lines of its answer as they arrive, each of at most `limit` bytes. Raises PollError
    as `send_request`; the iterator as well. The caller sets the timeouts."""
    async with _answering(question, ip, port, tls, server_name) as reader:
        headers = await _head(reader)
        if headers.get(b"transfer-encoding", b"").lower() != b"chunked":
            raise PollError("garbage", "the body is not chunked, so it is not a stream")
        async with aclosing(_chunks(reader, limit)) as chunks:
            yield _lines(chunks, limit)


@asynccontextmanager
async def _answering(
    question: HttpRequest, ip: str, port: int, tls: ssl.SSLContext | None, server_name: str
) -> AsyncIterator[asyncio.StreamReader]:
    """Connect and send a request; yield the reader of its answer."""
    try:
        reader, writer = await asyncio.open_connection(
            ip, port, limit=MAX_HEAD_BYTES, ssl=tls, server_hostname=server_name if tls is not None else None
        )
    except ConnectionRefusedError as error:
        raise PollError("refused", "no process listens there") from error
    except ssl.SSLError as error:
        raise PollError("tls", f"{error}: check the certificates, and whether the server speaks TLS") from error
    except OSError as error:
        raise PollError("network", str(error)) from error
    except ValueError as error:  # a server name that is invalid in a certificate
        raise PollError("tls", f"{server_name!r:.80}: {error}") from error
    try:
        writer.write(question.encoded())
        yield reader
    except asyncio.IncompleteReadError as error:
        raise PollError("closed", f"closed within its body, after {len(error.partial)} bytes of a chunk") from error
    except OSError as error:
        raise PollError("network", str(error)) from error
    finally:
        writer.close()


async def _lines(chunks: AsyncIterator[bytes], limit: int) -> AsyncIterator[bytes]:
    rest = b""
    async for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield line
        if len(rest) > limit:
            raise PollError("answer too large", f"a line of more than {limit} bytes")
    if rest:
        yield rest


async def _read(reader: asyncio.StreamReader, limit: int) -> HttpResponse:
    headers = await _head(reader)
    if headers.get(b"content-encoding", b"identity").lower() != b"identity":
        raise PollError(
            "garbage", f"the body is compressed ({headers[b'content-encoding'][:20]!r}), which was not requested"
        )
    coding = headers.get(b"transfer-encoding", b"identity").lower()
    if coding == b"chunked":
        return HttpResponse(headers, await _whole(_chunks(reader, limit), limit), True)
    if coding != b"identity":
        raise PollError("garbage", f"Transfer-Encoding {coding[:40]!r}")
    announced = _length(headers)
    if announced is not None and announced > limit:
        raise PollError("answer too large", f"{announced} bytes announced: at most {limit}")
    body = await _body(reader, announced, limit)
    if announced is not None and len(body) < announced:
        raise PollError("closed", f"closed after {len(body)} of {announced} bytes")
    return HttpResponse(headers, body, announced is not None)


async def _body(reader: asyncio.StreamReader, announced: int | None, limit: int) -> bytes:
    body = bytearray()
    while announced is None or len(body) < announced:
        more = await reader.read(_CHUNK if announced is None else min(_CHUNK, announced - len(body)))
        if not more:
            break
        body += more
        if len(body) > limit:
            raise PollError("answer too large", f"more than {limit} bytes")
    return bytes(body)


async def _whole(chunks: AsyncIterator[bytes], limit: int) -> bytes:
    body = bytearray()
    async for chunk in chunks:
        body += chunk
        if len(body) > limit:
            raise PollError("answer too large", f"more than {limit} bytes")
    return bytes(body)


async def _chunks(reader: asyncio.StreamReader, limit: int) -> AsyncGenerator[bytes, None]:
    """Yield the chunks of a body, each of at most `limit` bytes; trailers are not read."""
    while True:
        try:
            line = await reader.readuntil(b"\r\n")
        except asyncio.LimitOverrunError as error:
            raise PollError("garbage", "the size of a chunk is missing") from error
        size = line[:_MAX_SIZE_LINE].partition(b";")[0].strip()
        if not _HEX.fullmatch(size):
            raise PollError("garbage", f"size of a chunk: {size[:20]!r}")
        length = int(size, 16)
        if length == 0:
            return
        if length > limit:
            raise PollError("answer too large", f"more than {limit} bytes")
        chunk = await reader.readexactly(length)
        if await reader.readexactly(2) != b"\r\n":
            raise PollError("garbage", "a chunk is longer than announced")
        yield chunk


async def _head(reader: asyncio.StreamReader) -> dict[bytes, bytes]:
    """Return the headers of an answer with status 200, names in lower case. Raises PollError."""
    try:
        text = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as error:
        if not error.partial:
            raise PollError("closed", "closed without an answer") from error
        raise PollError("garbage", f"not HTTP: it begins {error.partial[:40]!r}") from error
    except asyncio.LimitOverrunError as error:
        raise PollError("garbage", f"no end of the headers within {MAX_HEAD_BYTES} bytes") from error
    first, *lines = text.split(b"\r\n")
    found = _STATUS.match(first)
    if not found:
        raise PollError("garbage", f"not HTTP: it begins {first[:40]!r}")
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(b":") for line in lines)}
    if found[1] != b"200":
        raise PollError("http status", _response_error(first, found[1], headers))
    return headers


def _response_error(first: bytes, status: bytes, headers: dict[bytes, bytes]) -> str:
    text = first.decode("latin-1").partition(" ")[2][:80]
    if status[:1] == b"3":
        to = headers.get(b"location", b"").decode("latin-1")[:100]
        return f"{text}: redirects are not followed (to {to!r}); configure their target"
    return text


def _length(headers: dict[bytes, bytes]) -> int | None:
    text = headers.get(b"content-length")
    if text is None:
        return None
    if not text.isdigit() or len(text) > 18:
        raise PollError("garbage", f"Content-Length {text[:40]!r}")
    return int(text)
