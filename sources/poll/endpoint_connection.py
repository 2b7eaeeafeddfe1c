"""Connections to endpoints, with TLS and tokens if required. docs/security.md."""

from __future__ import annotations

import asyncio
import ssl
import struct

from bookkeeper.rpc.security import Security, UnauthorizedError
from bookkeeper.rpc.thrift_messages import FramedError
from bookkeeper.rpc.tokens import Tokens, client_hello, frame_size
from sources.base.endpoint_address import EndpointAddress
from sources.base.source_errors import PollError

_LENGTH = struct.calcsize(">I")
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def open_connection(endpoint: EndpointAddress, security: Security | None) -> Streams:
    """Open an authenticated connection. The caller sets the timeout. Raises PollError, OSError."""
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
            size = frame_size(await reader.readexactly(_LENGTH))
            frame = steps.send(await reader.readexactly(size))
    except StopIteration:
        pass
