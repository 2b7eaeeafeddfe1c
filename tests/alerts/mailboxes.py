"""Mail servers: a real one (aiosmtpd) that keeps what it takes, and crooked ones that follow a script."""

from __future__ import annotations

import email
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from email.message import EmailMessage
from email.policy import default
from typing import Any

from aiosmtpd.controller import Controller


def free_port() -> int:
    """A port on which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class Mailbox:
    """Messages accepted by a server. `answer` may refuse: it gets recipient or data and returns the reply."""

    port: int
    raw: list[bytes] = field(default_factory=list)
    recipients: list[str] = field(default_factory=list)
    refuse_rcpt: dict[str, str] = field(default_factory=dict)
    refuse_data: list[str] = field(default_factory=list)
    """Answers to the next letters; then they are taken."""

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def messages(self) -> list[EmailMessage]:
        parsed = [email.message_from_bytes(raw, policy=default) for raw in self.raw]
        return [one for one in parsed if isinstance(one, EmailMessage)]

    @property
    def subjects(self) -> list[str]:
        return [str(one["Subject"]) for one in self.messages]

    @property
    def ids(self) -> Counter[str]:
        return Counter(str(one["Message-ID"]) for one in self.messages)

    async def handle_RCPT(self, server: Any, session: Any, envelope: Any, address: str, rcpt_options: list[str]) -> str:
        if address in self.refuse_rcpt:
            return self.refuse_rcpt[address]
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        if self.refuse_data:
            return self.refuse_data.pop(0)
        self.raw.append(bytes(envelope.content))
        self.recipients += envelope.rcpt_tos
        return "250 OK"


@contextmanager
def mailbox(port: int = 0) -> Iterator[Mailbox]:
    """A server on `port` (0: any free one) while the context lasts."""
    box = Mailbox(port or free_port())
    controller = Controller(box, hostname="127.0.0.1", port=box.port)
    controller.start()
    try:
        yield box
    finally:
        controller.stop()


@contextmanager
def crooked(serve: Callable[[socket.socket], None]) -> Iterator[str]:
    """host:port of a server that treats every connection as `serve` does."""
    listener = socket.create_server(("127.0.0.1", 0))
    ended = threading.Event()
    connections: list[socket.socket] = []

    def accept() -> None:
        while not ended.is_set():
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            connections.append(sock)
            threading.Thread(target=one, args=(sock,), daemon=True).start()

    def one(sock: socket.socket) -> None:
        with suppress(OSError), sock:
            serve(sock)

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}"
    finally:
        ended.set()
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        for sock in connections:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        thread.join(60)
