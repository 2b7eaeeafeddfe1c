"""OTLP over gRPC: `opentelemetry.proto.collector.metrics.v1.MetricsService/Export`.

https://opentelemetry.io/docs/specs/otlp/#otlpgrpc defines answers and errors. `grpcio` belongs to the extra `grpc` of
the installation: only this module imports it."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import AsyncIterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any, NoReturn

import grpc

from artimon.model.protocols import SinkRefusedError
from artimon.runtime.settings import SettingsError
from bookkeeper.rpc.security import Security
from bookkeeper.rpc.tls import Tls, UnauthorizedError
from sources.receive.listener import RETRY_S, Listener, SenderToken
from sources.receive.otlp import partial_success
from sources.receive.protobuf_messages import MESSAGES
from sources.receive.receive_address import DEFAULT_SENDER, SENDER, ReceiveAddress
from sources.receive.received_columns import BodyError
from sources.receive.senders import Senders, SendersError

MAX_BODY, MAX_METADATA = 4 * 1024 * 1024, 16 * 1024
"""Bytes of a request, decompressed too, and of its metadata."""
CONCURRENT, CONNECTIONS, BODY_S, IDLE_S, START_S, STOP_S = 16, 64, 30.0, 600, 60.0, 5.0
AGE_S = 3_600
"""Age in seconds at which a connection is closed: the next one is checked against the files of that time."""
SENDER_METADATA = "artimon-sender"
_SERVICE = "opentelemetry.proto.collector.metrics.v1.MetricsService"
_OPTIONS = (
    ("grpc.max_receive_message_length", MAX_BODY),
    ("grpc.max_metadata_size", MAX_METADATA),
    ("grpc.max_concurrent_streams", CONCURRENT),
    ("grpc.max_allowed_incoming_connections", CONNECTIONS),
    ("grpc.max_connection_idle_ms", IDLE_S * 1000),
    ("grpc.max_connection_age_ms", AGE_S * 1000),
    ("grpc.server_handshake_timeout_ms", 10_000),
    ("grpc.so_reuseport", 0),
)


class GrpcListener(Listener):
    """The server runs in an event loop and a thread of its own. A request is read once it is admitted."""

    def __init__(
        self, address: ReceiveAddress, senders: Senders, token: SenderToken | None, security: Security | None
    ) -> None:
        """Raises SettingsError."""
        super().__init__(address, security)
        self._tls = None if self.security is None else self.security.tls
        if self._tls is not None and self._tls.files.revoked:
            raise SettingsError(f"--receive {address}: gRPC knows no revocation lists: use OTLP over HTTP")
        self._senders, self._token = senders, token
        self._running = 0
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopped = asyncio.Event()

    def start(self) -> None:
        begun: Future[None] = Future()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve(begun)), name="grpc", daemon=True)
        self._thread.start()
        begun.result(START_S)

    def stop(self) -> None:
        if self._thread is not None and self._loop is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stopped.set)
            self._thread.join(2 * STOP_S)

    async def _serve(self, begun: Future[None]) -> None:
        try:
            server = grpc.aio.server(options=_OPTIONS)
            method = grpc.stream_unary_rpc_method_handler(self._export)
            server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(_SERVICE, {"Export": method}),))
            place = f"{self.address.host}:{self.address.port}"
            if self._tls is None:
                server.add_insecure_port(place)
            else:
                server.add_secure_port(place, _credentials(self._tls))
            await server.start()
            self._loop = asyncio.get_running_loop()
        except (RuntimeError, OSError) as problem:
            begun.set_exception(OSError(str(problem)))
            return
        begun.set_result(None)
        await self._stopped.wait()
        await server.stop(STOP_S)

    async def _export(self, messages: AsyncIterator[bytes], context: Any) -> bytes:
        metadata = {str(name): value for name, value in context.invocation_metadata()}
        sender = await self._admit(metadata, context)
        self._running += 1
        try:
            body = await self._read(messages, context)
            taken = await self._senders.deliver(f"otlp/{sender}", body, "protobuf")
        except (BodyError, SendersError) as problem:
            await self._abort(context, grpc.StatusCode.INVALID_ARGUMENT, str(problem))
        except SinkRefusedError as problem:
            text = f"the agent cannot keep samples now: {problem}"
            await self._abort(context, grpc.StatusCode.UNAVAILABLE, text, retry=True)
        finally:
            self._running -= 1
        self.answers["OK"] += 1
        return bytes(partial_success(taken).SerializeToString())

    async def _admit(self, metadata: dict[str, Any], context: Any) -> str:
        """Return the sender of a request, or end it."""
        if self._tls is not None:
            found = context.auth_context()
            names = [*found.get("x509_subject_alternative_name", ()), *found.get("x509_common_name", ())]
            try:
                self._tls.check_names([name.decode(errors="replace") for name in names])
            except UnauthorizedError as problem:
                await self._abort(context, grpc.StatusCode.UNAUTHENTICATED, str(problem))
        if self._token is not None and not self._token.admits(str(metadata.get("authorization", "")).encode()):
            text = "the metadata `authorization` must be 'Bearer' and the token of this agent"
            await self._abort(context, grpc.StatusCode.UNAUTHENTICATED, text)
        if self._running >= CONCURRENT:
            text = f"more than {CONCURRENT} requests at once"
            await self._abort(context, grpc.StatusCode.RESOURCE_EXHAUSTED, text, retry=True)
        sender = str(metadata.get(SENDER_METADATA, DEFAULT_SENDER))
        if not re.fullmatch(SENDER, sender):
            text = f"the metadata `{SENDER_METADATA}` has 1 to 64 of A-Za-z0-9_.-"
            await self._abort(context, grpc.StatusCode.INVALID_ARGUMENT, text)
        return sender

    async def _read(self, messages: AsyncIterator[bytes], context: Any) -> bytes:
        """Return the only message of a request, or end it."""
        try:
            async with asyncio.timeout(BODY_S):
                async for message in messages:
                    return message
        except TimeoutError:
            await self._abort(context, grpc.StatusCode.DEADLINE_EXCEEDED, f"no whole request in {BODY_S:g} s")
        raise BodyError("a request without a message")

    async def _abort(self, context: Any, code: grpc.StatusCode, text: str, retry: bool = False) -> NoReturn:
        """End a request; `retry`: it may be sent again."""
        self.answers[code.name] += 1
        message = text.encode("ascii", "backslashreplace").decode()
        details = (("grpc-status-details-bin", _status(code.value[0], message)),) if retry else ()
        await context.abort(code, message, details)
        raise AssertionError("abort returned")


def _status(code: int, message: str) -> bytes:
    """Return a status of Google's error model with the time of the next attempt."""
    delay = MESSAGES["RetryInfo"](retry_delay=MESSAGES["Duration"](seconds=RETRY_S)).SerializeToString()
    detail = MESSAGES["Any"](type_url="type.googleapis.com/google.rpc.RetryInfo", value=delay)
    return bytes(MESSAGES["Status"](code=code, message=message, details=[detail]).SerializeToString())


def _credentials(tls: Tls) -> Any:
    """Return credentials that read the files of certificates at each handshake, because they may be replaced."""

    def configuration() -> Any:
        files = tls.files
        chain = [(Path(files.key).read_bytes(), Path(files.certificate).read_bytes())]
        return grpc.ssl_server_certificate_configuration(chain, Path(files.authorities).read_bytes())

    return grpc.dynamic_ssl_server_credentials(configuration(), configuration, require_client_authentication=True)
