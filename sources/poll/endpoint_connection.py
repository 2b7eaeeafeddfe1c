"""Connections to endpoints, with TLS and tokens if required. docs/security.md."""

from __future__ import annotations

import asyncio
import struct

from bookkeeper.rpc.security import Security, Unauthorized
from bookkeeper.rpc.thrift_messages import FramedError
from bookkeeper.rpc.tokens import frame_size, hello_steps
from sources.base.endpoint_address import EndpointAddress
from sources.base.errors import PollError

_LENGTH = struct.calcsize(">I")
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def open_connection(endpoint: EndpointAddress, security: Security | None) -> Streams:
    """Open an authenticated connection. The caller sets the timeout. Raises PollError, OSError."""
    if security is None or security.mode == "accept":
        return await asyncio.open_connection(endpoint.ip, endpoint.port)
    if security.tls is None:
        streams = await asyncio.open_connection(endpoint.ip, endpoint.port)
    else:
        streams = await _encrypted(endpoint, security)
    try:
        if security.tokens is not None:
            await _greet(streams, security)
    except (Unauthorized, FramedError) as error:
        streams[1].close()
        raise PollError("unauthorized", str(error)) from error
    except BaseException:
        streams[1].close()
        raise
    return streams


async def _encrypted(endpoint: EndpointAddress, security: Security) -> Streams:
    import ssl

    tls = security.tls
    if tls is None:
        raise PollError("unauthorized", "no certificates are set")
    try:
        return await asyncio.open_connection(
            endpoint.ip, endpoint.port, ssl=tls.client_context(), server_hostname=tls.expected(endpoint.ip)
        )
    except ssl.SSLError as error:
        raise PollError("unauthorized", str(error)) from error


async def _greet(streams: Streams, security: Security) -> None:
    reader, writer = streams
    if security.tokens is None:
        return
    steps = hello_steps(security.tokens)
    frame = next(steps)
    try:
        while True:
            writer.write(frame)
            await writer.drain()
            size = frame_size(await reader.readexactly(_LENGTH))
            frame = steps.send(await reader.readexactly(size))
    except StopIteration:
        pass
