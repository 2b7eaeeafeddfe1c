"""One conversation with an SMTP server: who it is, how to log in, and what each of its answers means."""

from __future__ import annotations

import json
import smtplib
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from email.message import EmailMessage
from pathlib import Path
from types import TracebackType

from alerts.errors import AlertsError
from alerts.rulefile import is_address
from artimon.runtime.text import parse_address

TIMEOUT_S = 10.0
"""For each answer of the server."""
LETTER_S = 30.0
"""For one letter altogether, or one greeting and login, however slowly the server trickles."""
MAX_SETTINGS = 65_536
_LOCAL = ("127.0.0.1", "::1", "localhost")


class Unreachable(Exception):
    """The server, not the letter, is the problem: all letters wait."""


class Later(Exception):
    """The server does not take this letter now."""


class Refused(Exception):
    """The server will never take this letter."""


@dataclass(frozen=True, slots=True)
class SmtpSettings:
    """Where mails are handed in. `password` is never shown."""

    host: str
    port: int
    sender: str = "artimon@localhost"
    starttls: bool = False
    ca: str | None = None
    user: str | None = None
    password: str | None = None

    def __repr__(self) -> str:
        return (
            f"SmtpSettings({self.host}:{self.port}, sender={self.sender}, starttls={self.starttls}, user={self.user})"
        )


def load_settings(address: str, sender: str, path: Path | None = None) -> SmtpSettings:
    """Settings of host:port; a JSON file may add starttls, ca, user, password and another sender.

    AlertsError if a part is wrong, if others may read a file that holds a password, or if the password would cross a
    network without TLS."""
    try:
        host, port = parse_address(address)
    except ValueError as problem:
        raise AlertsError(f"SMTP server: {problem}") from None
    found = dict(_read_settings(path)) if path else {}
    unknown = set(found) - {"starttls", "ca", "user", "password", "sender"}
    if unknown:
        raise AlertsError(f"{path}: unknown setting {min(unknown)!r}: known are starttls, ca, user, password, sender")
    sender = str(found.get("sender", sender))
    if not is_address(sender):
        raise AlertsError(f"{sender!r} is no mail address: write name@host")
    starttls = found.get("starttls", False)
    ca, user, password = found.get("ca"), found.get("user"), found.get("password")
    if not (
        isinstance(starttls, bool)
        and isinstance(ca, str | None)
        and isinstance(user, str | None)
        and isinstance(password, str | None)
    ):
        raise AlertsError(f"{path}: starttls must be true or false, ca, user and password texts")
    if password and not starttls and host not in _LOCAL:
        raise AlertsError(f"{path}: a password for {host} without TLS: set starttls to true")
    return SmtpSettings(host, port, sender, starttls, ca, user, password)


def _read_settings(path: Path) -> dict[str, object]:
    try:
        if path.stat().st_mode & 0o077:
            raise AlertsError(f"{path}: others may read it: chmod 600 {path}")
        with path.open(encoding="utf-8") as file:
            found = json.loads(file.read(MAX_SETTINGS))
    except (OSError, ValueError) as error:
        raise AlertsError(f"{path}: {error}") from error
    if not isinstance(found, dict):
        raise AlertsError(f"{path}: must hold a JSON object")
    return found


class Conversation:
    """A connection for some letters, a context manager. Raises Unreachable as soon as the server is the problem."""

    def __init__(self, settings: SmtpSettings) -> None:
        self._settings = settings

    def __enter__(self) -> Conversation:
        settings = self._settings
        self._smtp = smtplib.SMTP(timeout=TIMEOUT_S, local_hostname=_own_name())
        with self._server("connecting"), self._deadline():
            self._expect(self._smtp.connect(settings.host, settings.port), 220, "greeting")
            self._smtp.ehlo_or_helo_if_needed()
            if settings.starttls:
                self._smtp.starttls(context=ssl.create_default_context(cafile=settings.ca))
                self._smtp.ehlo_or_helo_if_needed()
            if settings.user is not None:
                self._smtp.login(settings.user, settings.password or "")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(OSError, smtplib.SMTPException), self._deadline(2.0):
            self._smtp.docmd("QUIT")
        self._smtp.close()

    def send(self, mail: EmailMessage, address: str) -> None:
        """Returns once the server has taken the letter; else Later, Refused or Unreachable.

        If the connection breaks after the last byte and before the answer, nobody knows: that is Unreachable, and the
        letter goes again under the same Message-ID."""
        with self._server("sending"), self._deadline():
            self._judge(self._smtp.mail(self._settings.sender), "sender")
            self._judge(self._smtp.rcpt(address), f"recipient {address}")
            self._judge(self._smtp.data(mail.as_bytes()), "letter")

    def _judge(self, answer: tuple[int, bytes], what: str) -> None:
        code, said = answer
        if 200 <= code < 300:
            return
        text = f"the server says {code} to the {what}: {_clean(said)}"
        if code == 421:
            raise Unreachable(text)
        with suppress(OSError, smtplib.SMTPException):
            self._smtp.rset()
        raise (Refused if 500 <= code < 600 else Later)(text)

    def _expect(self, answer: tuple[int, bytes], code: int, what: str) -> None:
        if answer[0] != code:
            said = f"{answer[0]} {_clean(answer[1])}" if answer[0] > 0 else "what is no SMTP"
            raise Unreachable(f"the server says as {what}: {said}")

    @contextmanager
    def _server(self, doing: str) -> Iterator[None]:
        """What goes wrong with the server or the line is Unreachable."""
        where = f"{self._settings.host}:{self._settings.port}"
        try:
            yield
        except smtplib.SMTPDataError as error:  # to DATA itself
            if 400 <= error.smtp_code < 600:
                self._judge((error.smtp_code, _bytes(error.smtp_error)), "letter")
            self._smtp.close()  # a "yes" before the letter is no yes to it
            raise Unreachable(f"{where} says {error.smtp_code} to DATA, not 354") from error
        except smtplib.SMTPResponseException as error:
            self._smtp.close()
            said = _clean(_bytes(error.smtp_error))
            raise Unreachable(f"{where}, {doing}: {error.smtp_code} {said}") from error
        except (smtplib.SMTPException, OSError, ValueError) as error:
            self._smtp.close()
            raise Unreachable(f"{where}, {doing}: {_clean(str(error) or type(error).__name__)}") from error
        except Unreachable:
            self._smtp.close()
            raise

    @contextmanager
    def _deadline(self, seconds: float | None = None) -> Iterator[None]:
        """Cuts the line when the time is over, which ends whatever waits on it."""

        def cut() -> None:
            sock = self._smtp.sock
            if sock is not None:
                with suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)

        timer = threading.Timer(LETTER_S if seconds is None else seconds, cut)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()


def _bytes(said: bytes | str) -> bytes:
    return said if isinstance(said, bytes) else said.encode()


def _clean(said: bytes | str) -> str:
    """What a server says, fit for a log: one line, printable, not long."""
    text = said.decode("utf-8", "replace") if isinstance(said, bytes) else said
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())[:200]


def _own_name() -> str:
    """What to call ourselves, without asking a name server, which could take long."""
    name = socket.gethostname()
    return name if name.isascii() and name.replace("-", "").replace(".", "").isalnum() else "localhost"
