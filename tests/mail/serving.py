"""The SMTP server for tests: in a thread of this process, or as the command `artimon smtp`."""

from __future__ import annotations

import contextlib
import smtplib
import subprocess
import sys
import threading
from collections.abc import Iterator
from email.message import EmailMessage
from pathlib import Path

from artimon.runtime.health import Health, read_health
from artimon.stack.mail_view import Mail, read_mails
from artimon.stack.smtp import SmtpLimits, SmtpServer, run_smtp
from tests.waiting import eventually


def kept(data: Path) -> list[Mail]:
    """All mails of a data folder, newest last."""
    return read_mails(data / "mail", 1_000)


def client(port: int) -> smtplib.SMTP:
    """A connection; the name avoids a look-up of this host's."""
    return smtplib.SMTP("127.0.0.1", port, local_hostname="localhost", timeout=20)


def message(subject: str = "shop is down", text: str = "The shop does not answer.") -> EmailMessage:
    """A small mail."""
    mail = EmailMessage()
    mail["From"], mail["To"], mail["Subject"] = "artimon@example.org", "anna@example.org", subject
    mail.set_content(text)
    return mail


@contextlib.contextmanager
def serving(data: Path, limits: SmtpLimits | None = None) -> Iterator[SmtpServer]:
    """A server in a thread, on any port."""
    stop, listening, found = threading.Event(), threading.Event(), []

    def listens(server: SmtpServer) -> None:
        found.append(server)
        listening.set()

    thread = threading.Thread(target=run_smtp, args=(0, data, None, stop, limits), kwargs={"listening": listens})
    thread.start()
    try:
        assert listening.wait(20)
        yield found[0]
    finally:
        stop.set()
        thread.join(20)
    assert not thread.is_alive()


@contextlib.contextmanager
def process(data: Path) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """`artimon smtp` as a process of its own, and its port; killed at the end."""
    file = data / "mail.json"
    file.unlink(missing_ok=True)
    words = ["smtp", "--port", "0", "--data", str(data), "--health", str(file)]
    with subprocess.Popen([sys.executable, "-m", "artimon.cli", *words], stderr=subprocess.PIPE) as running:
        try:

            def good() -> Health | None:
                assert running.poll() is None
                return read_health(file)

            yield running, eventually(good).figures["port"]
        finally:
            running.kill()
