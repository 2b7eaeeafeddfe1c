"""Local SMTP server of the stack: accepts every mail on loopback, for any receiver, and keeps it in a folder.

It is for one machine: it relays nothing, has no authentication, and answers 250 only when the mail is on disk.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from aiosmtpd.smtp import SMTP, Envelope, Session

from artimon.runtime.health import HealthFile, Publish, unpublished
from artimon.runtime.process_options import Health, ListenPort, StackData, Zookeeper, process_name
from artimon.stack.mailbox import FOLDER, MAX_BYTES, MAX_MAILS, Mailbox

HOST = "127.0.0.1"
PORT = 8725
BACKLOG = 64
HEALTH_S = 1.0
STOP_S = 5.0


@dataclass(frozen=True, slots=True)
class SmtpLimits:
    """Limits of one client and of all together. `command_s` also limits the time from DATA to the end of a mail."""

    message_bytes: int = 1024 * 1024
    connections: int = 32
    command_s: float = 30.0
    commands: int = 5_000
    receivers: int = 100
    kept_mails: int = MAX_MAILS
    kept_bytes: int = MAX_BYTES


@dataclass(frozen=True, slots=True)
class SmtpConfig:
    """Settings of the process; mails are kept in `<data>/mail`."""

    zookeeper: Zookeeper
    data: StackData
    port: ListenPort = PORT
    health: Health = None
    id: Annotated[str, process_name("Name of this server.")] = "mail"


class _SmtpConnection(SMTP):
    """One client. Connections above the limit get 421, a mail that never ends gets 552; both are closed."""

    def __init__(self, server: SmtpServer) -> None:
        limits = server.limits
        super().__init__(
            server,
            data_size_limit=limits.message_bytes,
            enable_SMTPUTF8=True,
            hostname="localhost",
            ident="Artimon keeps mail on this machine",
            timeout=limits.command_s,
            command_call_limit=limits.commands,
            loop=asyncio.get_running_loop(),
        )
        self._server = server
        self._rejected = False
        self._since_mail = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if len(self._server.open) >= self._server.limits.connections:
            self._rejected = True
            self._server.rejected += 1
            _end(transport, b"421 4.3.2 Too many connections, come back later\r\n")
            return
        self._server.open.add(self)
        super().connection_made(transport)

    def connection_lost(self, error: Exception | None) -> None:
        if not self._rejected:
            self._server.open.discard(self)
            super().connection_lost(error)

    def eof_received(self) -> bool | None:
        return None if self._rejected else super().eof_received()

    def data_received(self, data: bytes) -> None:
        """Limit the bytes since the last mail: the base class checks sizes only at line ends, which may never come."""
        self._since_mail += len(data)
        if self._rejected:
            return
        if self._since_mail > 2 * self._server.limits.message_bytes:
            self._server.refused += 1
            self._since_mail = 0
            _end(self.transport, b"552 5.3.4 Too much data\r\n")
            return
        super().data_received(data)

    def begin_mail(self) -> None:
        """Count the bytes of the next mail from here."""
        self._since_mail = 0


def _end(transport: Any, answer: bytes) -> None:
    if transport is not None and not transport.is_closing():
        transport.write(answer)
        transport.close()


class SmtpServer:
    """Listens on loopback and passes complete mails to the mailbox. Bound to one event loop; `open`: the clients."""

    def __init__(self, mailbox: Mailbox, limits: SmtpLimits | None = None, port: int = 0) -> None:
        self.limits = limits or SmtpLimits()
        self.open: set[_SmtpConnection] = set()
        self.port = port
        self.rejected = self.accepted = self.refused = 0
        self.problem = ""
        self._mailbox = mailbox
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Start to listen. Raises OSError if the port is in use."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _SmtpConnection(self), HOST, self.port, backlog=BACKLOG)
        self.port = int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Stop listening and close all connections; a mail that is being written is completed."""
        if self._server is not None:
            self._server.close()
            for connection in list(self.open):
                _end(connection.transport, b"421 4.3.2 The server stops\r\n")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._server.wait_closed(), STOP_S)

    def figures(self) -> dict[str, int]:
        """Return counts since the start, and the current connections and mails."""
        return {
            "accepted": self.accepted,
            "refused": self.refused,
            "connections": len(self.open),
            "turned_away": self.rejected,
            "port": self.port,
            **self._mailbox.figures(),
        }

    # hooks of aiosmtpd, which finds them by name

    async def handle_MAIL(
        self, connection: _SmtpConnection, _session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        connection.begin_mail()
        envelope.mail_from = address
        envelope.mail_options.extend(options)
        return "250 OK"

    async def handle_RCPT(
        self, _connection: _SmtpConnection, _session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        if len(envelope.rcpt_tos) >= self.limits.receivers:
            return f"452 4.5.3 At most {self.limits.receivers} receivers a mail"
        envelope.rcpt_tos.append(address)
        envelope.rcpt_options.extend(options)
        return "250 OK"

    async def handle_DATA(self, connection: _SmtpConnection, _session: Session, envelope: Envelope) -> str:
        connection.begin_mail()
        sender, receivers = envelope.mail_from or "", list(envelope.rcpt_tos)
        try:
            await asyncio.to_thread(self._mailbox.store, envelope.original_content or b"", sender, receivers)
        except OSError as problem:
            self.problem = f"a mail could not be kept: {problem}"
            self.refused += 1
            return "452 4.3.1 The mail could not be written, try again later"
        self.problem = ""
        self.accepted += 1
        return "250 2.0.0 Kept"


def run_smtp(
    port: int,
    data: Path,
    health: Path | None,
    stop: threading.Event,
    limits: SmtpLimits | None = None,
    publish: Publish = unpublished,
    listening: Callable[[SmtpServer], None] = lambda _server: None,
) -> None:
    """Serve until `stop`, keeping mails in `<data>/mail`; `listening` is called once the server listens.

    Raises OSError if the port is in use or the folder is unusable."""
    for noisy in ("mail.log", "mail.debug"):
        logging.getLogger(noisy).setLevel(logging.ERROR)
    bounds = limits or SmtpLimits()
    mailbox = Mailbox(data / FOLDER, bounds.kept_mails, bounds.kept_bytes)
    file = HealthFile(health, "mail", publish=publish)
    asyncio.run(_serve(SmtpServer(mailbox, bounds, port), file, stop, listening))


async def _serve(
    server: SmtpServer, file: HealthFile, stop: threading.Event, listening: Callable[[SmtpServer], None]
) -> None:
    await server.start()
    listening(server)
    try:
        while not stop.is_set():
            state, problem = "failing" if server.problem else "ok", server.problem
            if file.is_due(state, problem):
                file.write(state, problem, **server.figures())
            await asyncio.to_thread(stop.wait, HEALTH_S)
    finally:
        await server.stop()
