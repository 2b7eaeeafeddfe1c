"""HTTP listener of a receiver, for senders of several protocols."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl

from artimon.model.protocols import SinkRefusedError
from artimon.runtime.http.body_limit import BodyLimitMiddleware, send_answer
from artimon.runtime.http.http_limits import HttpError, HttpLimits
from artimon.runtime.http.http_server import HttpServer
from bookkeeper.rpc.security import Security
from sources.receive.influx import InfluxProtocol
from sources.receive.listener import RETRY_S, Listener, SenderToken
from sources.receive.otlp import OtlpProtocol
from sources.receive.protocol import Protocol
from sources.receive.receive_address import DEFAULT_SENDER, ReceiveAddress
from sources.receive.received_columns import BodyError
from sources.receive.received_source import Taken
from sources.receive.remote_write import RemoteWriteProtocol
from sources.receive.senders import Senders, SendersError

PROTOCOLS: Mapping[str, Protocol] = {one.name: one for one in (RemoteWriteProtocol(), OtlpProtocol(), InfluxProtocol())}
_PATHS = (
    "send remote write to /api/v1/write/SENDER, OTLP to /api/v1/otlp/SENDER/v1/metrics, lines of InfluxDB to "
    "/influx/SENDER/write (SENDER: 1 to 64 of A-Za-z0-9_.-)"
)
LIMITS = HttpLimits(body_bytes=4 * 1024 * 1024, body_s=30.0, connections=64)
ENCODINGS = (b"identity", b"snappy", b"gzip")
MAX_FIELDS = 20
"""Parameters of a URL."""


class HttpListener(Listener):
    """The server runs in a thread of its own."""

    def __init__(
        self, address: ReceiveAddress, senders: Senders, token: SenderToken | None, security: Security | None
    ) -> None:
        super().__init__(address, security)
        self._senders, self._token = senders, token
        app = BodyLimitMiddleware(self._serve, LIMITS, ENCODINGS)
        self._server = HttpServer(
            app,
            LIMITS,
            address.host,
            address.port,
            name="receiver",
            tls=self.tls_context(),
            lifespan=False,
            clients=self if self.security is not None else None,
        )

    def start(self) -> None:
        self._server.start()

    def stop(self) -> None:
        if self._server.port:
            self._server.stop()

    async def _serve(self, scope: Any, receive: Any, send: Any) -> None:
        protocol, sender = _find(str(scope["path"]))
        form = ""
        try:
            if not sender:
                raise HttpError(404, _PATHS)
            form = self._check(scope, protocol)
            body = (await receive())["body"]
            answer = protocol.answer(await self._deliver(f"{protocol.name}/{sender}", body, form), form)
        except HttpError as problem:
            answer = protocol.error(problem, form)
            if problem.status == 503:
                answer.headers.append((b"retry-after", str(RETRY_S).encode()))
        self.answers[str(answer.status)] += 1
        await send_answer(send, answer.status, answer.body, answer.headers)

    def _check(self, scope: Mapping[str, Any], protocol: Protocol) -> str:
        """Return the form of the body. Raises HttpError."""
        headers = dict(scope["headers"])
        if scope["method"] != "POST":
            raise HttpError(405, "send a POST")
        given = headers.get(b"authorization", b"")
        if self._token is not None and not self._token.admits(given, protocol.schemes):
            raise HttpError(401, "the header Authorization must be 'Bearer' and the token of this agent")
        try:
            query = dict(parse_qsl(scope["query_string"].decode(), keep_blank_values=True, max_num_fields=MAX_FIELDS))
        except ValueError:
            raise HttpError(400, f"the URL has no valid query of at most {MAX_FIELDS} parameters") from None
        return protocol.form(headers, query)

    async def _deliver(self, name: str, body: bytes, form: str) -> Taken:
        """Deliver a body and return its answer. Raises HttpError."""
        try:
            return await self._senders.deliver(name, body, form)
        except (BodyError, SendersError) as problem:
            raise HttpError(400, str(problem)) from problem
        except SinkRefusedError as problem:
            raise HttpError(503, f"the agent cannot keep samples now: {problem}") from problem


def _find(path: str) -> tuple[Protocol, str]:
    """Return protocol and sender of a path, the first protocol and "" if it has none."""
    for protocol in PROTOCOLS.values():
        found = protocol.path.fullmatch(path)
        if found is not None:
            return protocol, found["sender"] or DEFAULT_SENDER
    return next(iter(PROTOCOLS.values())), ""
