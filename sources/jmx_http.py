"""Asks a bean server over HTTP: GET, one connection a question, a limit on the answer. Redirects are not followed."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from urllib.parse import quote

from sources.errors import PollError
from sources.jmx_target import JmxTarget

MAX_HEAD = 32_768
_CHUNK = 1 << 16
_STATUS = re.compile(rb"HTTP/1\.[01] (\d{3})(?: |$)")


async def ask_beans(target: JmxTarget, ip: str, queries: Sequence[str], limit: int) -> list[bytes]:
    """The body of each answer, `limit` bytes at most. PollError with the reason; the caller has the deadline."""
    paths = [target.path] if "?" in target.path else [f"{target.path}?qry={quote(q, safe='*:,=')}" for q in queries]
    return [await _get(target, ip, path, limit) for path in paths]


async def _get(target: JmxTarget, ip: str, path: str, limit: int) -> bytes:
    """HTTP/1.0, so that the body is what comes until the end: no chunks, no kept connection."""
    try:
        reader, writer = await asyncio.open_connection(ip, target.port, limit=MAX_HEAD)
    except ConnectionRefusedError as error:
        raise PollError("refused", "nothing listens there") from error
    except OSError as error:
        raise PollError("network", str(error)) from error
    try:
        head = f"GET {path} HTTP/1.0\r\nHost: {target.address}\r\nAccept: application/json\r\nConnection: close\r\n\r\n"
        writer.write(head.encode("ascii"))
        return await _read(reader, limit)
    except OSError as error:
        raise PollError("network", str(error)) from error
    finally:
        writer.close()


async def _read(reader: asyncio.StreamReader, limit: int) -> bytes:
    headers = await _head(reader)
    if headers.get(b"transfer-encoding", b"identity") != b"identity":
        raise PollError("garbage", "the body comes in chunks, which HTTP/1.0 does not have")
    announced = _length(headers)
    if announced is not None and announced > limit:
        raise PollError("answer too large", f"{announced} bytes announced: at most {limit}")
    body = bytearray()
    while announced is None or len(body) < announced:
        more = await reader.read(_CHUNK)
        if not more:
            break
        body += more
        if len(body) > limit:
            raise PollError("answer too large", f"more than {limit} bytes")
    if announced is not None and len(body) < announced:
        raise PollError("closed", f"closed after {len(body)} of {announced} bytes")
    return bytes(body)


async def _head(reader: asyncio.StreamReader) -> dict[bytes, bytes]:
    """The headers of a good answer, names in small letters."""
    try:
        text = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as error:
        if not error.partial:
            raise PollError("closed", "closed without an answer") from error
        raise PollError("garbage", f"no HTTP: it begins {error.partial[:40]!r}") from error
    except asyncio.LimitOverrunError as error:
        raise PollError("garbage", f"no end of the headers within {MAX_HEAD} bytes") from error
    first, *lines = text.split(b"\r\n")
    found = _STATUS.match(first)
    if not found:
        raise PollError("garbage", f"no HTTP: it begins {first[:40]!r}")
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(b":") for line in lines)}
    if found[1] != b"200":
        raise PollError("http status", _refusal(first, found[1], headers))
    return headers


def _refusal(first: bytes, status: bytes, headers: dict[bytes, bytes]) -> str:
    text = first.decode("latin-1").partition(" ")[2][:80]
    if status[:1] == b"3":
        to = headers.get(b"location", b"").decode("latin-1")[:100]
        return f"{text}: redirects are not followed (to {to!r}); give the address where the beans are"
    return text


def _length(headers: dict[bytes, bytes]) -> int | None:
    text = headers.get(b"content-length")
    if text is None:
        return None
    if not text.isdigit() or len(text) > 18:
        raise PollError("garbage", f"Content-Length {text[:40]!r}")
    return int(text)
