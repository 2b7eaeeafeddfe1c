"""HTTP listener of an agent, for senders of several protocols. Each sender is a source of its own,
`<protocol>/<host>/<sender>`, with limits of its own."""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from artimon.model.protocols import SinkRefusedError
from artimon.model.values import Kind
from artimon.runtime.exposure import require_protection
from artimon.runtime.http.body_limit import BodyLimitMiddleware, send_answer
from artimon.runtime.http.http_error import HttpError
from artimon.runtime.http.http_limits import HttpLimits
from artimon.runtime.http.http_server import HttpServer
from artimon.runtime.settings import SettingsError
from artimon.runtime.text import parse_address
from bookkeeper.rpc.security import Security
from sources.base.source_errors import PollError
from sources.delivery.reading_delivery import ReadingDelivery
from sources.dropin.series_owners import SeriesOwners
from sources.receive.otlp_protocol import OtlpProtocol
from sources.receive.protocol import Protocol
from sources.receive.received_columns import BodyError
from sources.receive.received_source import META, ReceivedSource, Taken
from sources.receive.remote_write_protocol import RemoteWriteProtocol
from sources.state.source_reading import SourceVariable
from sources.targets.credentials import read_secret

log = logging.getLogger(__name__)
PROTOCOLS: Mapping[str, Protocol] = {one.name: one for one in (RemoteWriteProtocol(), OtlpProtocol())}
_PATHS = "send remote write to /api/v1/write/SENDER, OTLP to /api/v1/otlp/SENDER/v1/metrics (1 to 64 of A-Za-z0-9_.-)"
LIMITS = HttpLimits(body_bytes=4 * 1024 * 1024, body_s=30.0, connections=64)
ENCODINGS = (b"identity", b"snappy", b"gzip")
MAX_SENDERS = 64
MAX_TOKEN_BYTES = 4_096
TICK_S = 60.0
RETRY_S = 5
"""Seconds after which a sender may send again what could not be kept now."""


class Receiver:
    """The server runs in a thread of its own; what it receives is delivered in the event loop of the agent."""

    def __init__(
        self,
        address: str,
        token: Path | None,
        security: Security | None,
        delivery: ReadingDelivery,
    ) -> None:
        """Raises SettingsError for a wrong address or token, and if every client could send."""
        host, port = _parse_listener(address)
        self._token = None if token is None else _read_token(token)
        if self._token is None:
            remedy = "give --receive-token, or certificates (docs/security.md)"
            require_protection("the receiver", host, security, insecure=False, remedy=remedy)
        self._address, self._delivery = address, delivery
        self._placement: dict[str, str] = {}
        tls = security.tls.server_context() if security is not None and security.tls is not None else None
        app = BodyLimitMiddleware(self._serve, LIMITS, ENCODINGS)
        self._server = HttpServer(app, LIMITS, host, port, name="receiver", tls=tls, lifespan=False)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._owners = SeriesOwners()
        self._senders: dict[str, ReceivedSource] = {}
        self._answers: Counter[int] = Counter()

    async def run(self, placement: Mapping[str, str]) -> None:
        """Listen until cancelled; then stop. `placement`: labels of this host, for the agent's own variables."""
        self._loop, self._placement = asyncio.get_running_loop(), dict(placement)
        for series in list(self._delivery.store):
            name = str(series.meta.get(META, ""))
            if name.partition("/")[0] in PROTOCOLS and series.name == self._source(name):
                self._open(name)
                await asyncio.sleep(0)
        await self._listen()
        try:
            while True:
                await asyncio.sleep(TICK_S)
                await self.end_silent()
        finally:
            await asyncio.shield(asyncio.to_thread(self._server.stop))

    async def _listen(self) -> None:
        """Listen once the port is free."""
        while True:
            try:
                self._server.start()
            except OSError as problem:
                self._delivery.figures.set_problem("receiver", f"--receive {self._address}: {problem}; trying again")
                await asyncio.sleep(RETRY_S)
            else:
                self._delivery.figures.set_problem("receiver", "")
                log.info("receives at port %d", self._server.port)
                return

    async def end_silent(self) -> None:
        """End the series of all senders that are silent."""
        for sender in list(self._senders.values()):
            try:
                await sender.end_silent()
            except SinkRefusedError as error:
                log.warning("%s: %s", sender.name, error)
        self._owners.trim(sender.series for sender in self._senders.values())

    def variables(self) -> Iterator[SourceVariable]:
        """Yield the agent's own variables about each sender."""
        for name, sender in self._senders.items():
            labels = {**self._placement, "sender": name}
            text = "Samples that a sender sent and the log took"
            yield SourceVariable("artimon.receive.samples.accepted", labels, sender.accepted, Kind.COUNTER, "", text)
            for reason, count in sender.refused.items():
                text = "Samples that were not taken; out of order and time taken are mostly repeats"
                yield SourceVariable(
                    "artimon.receive.samples.refused", {**labels, "reason": reason}, count, Kind.COUNTER, "", text
                )
        for status, count in list(self._answers.items()):
            labels = {**self._placement, "code": str(status)}
            yield SourceVariable(
                "artimon.receive.requests", labels, count, Kind.COUNTER, "", "Requests answered, by status"
            )

    # --- in the thread of the server

    async def _serve(self, scope: Any, receive: Any, send: Any) -> None:
        protocol, sender = _find(str(scope["path"]))
        form = ""
        try:
            if not sender:
                raise HttpError(404, _PATHS)
            form = self._check(scope, protocol)
            body = (await receive())["body"]
            taken = await self._deliver(f"{protocol.name}/{sender}", body, form)
            answer = protocol.answer(taken, form)
        except HttpError as problem:
            answer = protocol.error(problem, form)
            if problem.status == 503:
                answer.headers.append((b"retry-after", str(RETRY_S).encode()))
        self._answers[answer.status] += 1
        await send_answer(send, answer.status, answer.body, answer.headers)

    def _check(self, scope: Mapping[str, Any], protocol: Protocol) -> str:
        """Return the form of the body. Raises HttpError."""
        headers = dict(scope["headers"])
        if scope["method"] != "POST":
            raise HttpError(405, "send a POST")
        given = headers.get(b"authorization", b"")
        if self._token is not None and not hmac.compare_digest(given, b"Bearer " + self._token):
            raise HttpError(401, "the header Authorization must be 'Bearer' and the token of this agent")
        return protocol.form(headers)

    async def _deliver(self, name: str, body: bytes, form: str) -> Taken:
        if self._loop is None:
            raise HttpError(503, "the agent is starting")
        future = asyncio.run_coroutine_threadsafe(self._take(name, body, form), self._loop)
        try:
            return await asyncio.wrap_future(future)
        except BodyError as problem:
            raise HttpError(400, str(problem)) from problem
        except SinkRefusedError as problem:
            raise HttpError(503, f"the agent cannot keep samples now: {problem}") from problem

    # --- in the event loop of the agent

    async def _take(self, name: str, body: bytes, form: str) -> Taken:
        return await self._open(name).take(body, form)

    def _open(self, name: str) -> ReceivedSource:
        """Return the source `<protocol>/<sender>`. Raises HttpError if there are too many."""
        found = self._senders.get(name)
        if found is None:
            if len(self._senders) >= MAX_SENDERS:
                raise HttpError(400, f"more than {MAX_SENDERS} senders")
            series = self._delivery.store.get(self._source(name))
            make_reader = PROTOCOLS[name.partition("/")[0]].make_reader
            made = ReceivedSource(name, make_reader, series, self._owners, self._delivery)
            found = self._senders[name] = made
        return found

    def _source(self, name: str) -> str:
        protocol, _, sender = name.partition("/")
        return f"{protocol}/{self._placement['host']}/{sender}"


def _find(path: str) -> tuple[Protocol, str]:
    """Return protocol and sender of a path, the first protocol and "" if it has none."""
    for protocol in PROTOCOLS.values():
        found = protocol.path.fullmatch(path)
        if found is not None:
            return protocol, found["sender"] or "default"
    return next(iter(PROTOCOLS.values())), ""


def _parse_listener(address: str) -> tuple[str, int]:
    """Parse HOST:PORT. Raises SettingsError."""
    try:
        return parse_address(address)
    except ValueError as problem:
        raise SettingsError(f"--receive {address!r:.100}: {problem}") from None


def _read_token(path: Path) -> bytes:
    """Return the token in a file. Raises SettingsError."""
    try:
        token = read_secret(path).encode()
    except PollError as problem:
        raise SettingsError(f"--receive-token: {problem.text}") from None
    if not 16 <= len(token) <= MAX_TOKEN_BYTES:
        raise SettingsError(f"--receive-token {path}: a token has 16 to {MAX_TOKEN_BYTES} bytes")
    return token
