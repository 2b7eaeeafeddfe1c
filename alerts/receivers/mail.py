"""Mail receiver: one letter for each group and address, as text and HTML with the same content, sent to an SMTP server.

Labels and values may contain anything: control characters are removed, HTML is escaped, long texts are cut.
"""

from __future__ import annotations

import html
import json
import re
import smtplib
import socket
import ssl
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, ClassVar

from alerts.receivers.chart_image import HEIGHT, WIDTH, Chart, ChartSource
from alerts.receivers.receiver_kind import (
    Integration,
    IntegrationSection,
    LetterDeferredError,
    LetterRefusedError,
    ReceiverKind,
    ServerUnreachableError,
)
from alerts.state.alert import AlertChange
from alerts.state.notification import ALERT_NAME, MAIL, Message, Notification, link_of, target_of
from alerts.state.rule import AlertsError, value_text
from artimon.runtime.config_model import parsed
from artimon.runtime.deadline import shut_down_after
from artimon.runtime.text import parse_address
from query_dsl.tree.times import format_duration, format_time

TIMEOUT_S = 10.0
"""Timeout of each answer of the server, in seconds."""
LETTER_TIMEOUT_S = 30.0
"""Deadline of a whole letter, or of greeting and login, in seconds, however slowly the server responds."""
MAX_SETTINGS_BYTES = 65_536
SUBJECT_CHARACTERS = 200
CELL_CHARACTERS = 1_000
EXPR_CHARACTERS = 4_000
MAX_TABLE_ROWS = 60
MAX_CHARTS = 3
"""Alerts with a chart, if they fire or have resolved."""
DETAILED_ALERTS = 5
"""Alerts shown with all labels and the query; the others take a line each."""
LINE_CHARACTERS = 300
NO_PICTURES: Mapping[int, str] = MappingProxyType({})
_LOCAL = ("127.0.0.1", "::1", "localhost")
_ADDRESS = re.compile(r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@(?=.{1,255}$)[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]+")
_COLOURS = {AlertChange.FIRING: "#b3261e", AlertChange.RESOLVED: "#1b6e3c"}


def is_address(text: str) -> bool:
    """True for a plain ASCII mail address, `name@host`."""
    return _ADDRESS.fullmatch(text) is not None


# ---- settings


@dataclass(frozen=True, slots=True)
class MailSettings:
    """Settings of the SMTP server. `repr` omits `password`."""

    host: str
    port: int
    sender: str = "artimon@localhost"
    starttls: bool = False
    ca: str | None = None
    user: str | None = None
    password: str | None = None
    charts: ChartSource | None = field(default=None, compare=False)
    """Draws the charts of alerts; None: mails have none."""

    def __repr__(self) -> str:
        shown = f"sender={self.sender}, starttls={self.starttls}, user={self.user}"
        return f"MailSettings({self.host}:{self.port}, {shown})"


def load_settings(address: str, sender: str, path: Path | None = None) -> MailSettings:
    """Settings for host:port; a JSON file may add starttls, ca, user, password and another sender.

    AlertsError if a value is invalid, if others may read the file, or if a password would cross a network without
    TLS."""
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
        raise AlertsError(f"{sender!r} is not a mail address: write name@host")
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
    return MailSettings(host, port, sender, starttls, ca, user, password)


def _read_settings(path: Path) -> dict[str, object]:
    try:
        if path.stat().st_mode & 0o077:
            raise AlertsError(f"{path}: others may read it: run chmod 600 {path}")
        with path.open(encoding="utf-8") as file:
            found = json.loads(file.read(MAX_SETTINGS_BYTES))
    except (OSError, ValueError) as error:
        raise AlertsError(f"{path}: {error}") from error
    if not isinstance(found, dict):
        raise AlertsError(f"{path}: must hold a JSON object")
    return found


# ---- the letter


@dataclass(frozen=True, slots=True)
class MailComposer:
    """Composes mails of one sender; `page` is the address of the page for links, "" for mails without links."""

    sender: str
    page: str = ""
    charts: ChartSource | None = None

    def message_id(self, id: str) -> str:
        """Message-ID for the id of a notification."""
        return f"<{id}@{self.sender.rpartition('@')[2]}>"

    def compose(self, message: Message, address: str, now_ms: int) -> EmailMessage:
        """Compose the mail. The Message-ID depends only on the message and the sender."""
        mail = EmailMessage(policy=SMTP.clone(max_line_length=78))
        mail["From"], mail["To"] = self.sender, address
        mail["Subject"] = subject(message)
        mail["Date"] = format_datetime(datetime.fromtimestamp(now_ms / 1000, UTC))
        mail["Message-ID"] = self.message_id(message.id)
        if message.thread != message.id:
            mail["In-Reply-To"] = mail["References"] = self.message_id(message.thread)
        mail["Auto-Submitted"] = "auto-generated"
        mail["X-Artimon-Rule"] = one_line(", ".join(rules_of(message)))
        mail.set_content(as_text(message, self.page), cte="quoted-printable")
        charts = self._charts(message)
        names = {at: f"chart-{at}.{message.id}@{self.sender.rpartition('@')[2]}" for at in charts}
        pictures = {at: _picture(name, charts[at]) for at, name in names.items()}
        mail.add_alternative(as_html(message, self.page, pictures), subtype="html", cte="quoted-printable")
        html_part = mail.get_body(("html",))
        for at, chart in charts.items():
            assert isinstance(html_part, EmailMessage)
            html_part.add_related(chart.png, "image", "png", cid=f"<{names[at]}>", filename=f"chart-{at}.png")
        return mail

    def _charts(self, message: Message) -> dict[int, Chart]:
        """Return the charts of the first alerts, by their numbers in the message."""
        if self.charts is None:
            return {}
        found = ((at, self.charts(told)) for at, told in enumerate(message.alerts[:MAX_CHARTS]))
        return {at: chart for at, chart in found if chart is not None}


def rules_of(message: Message) -> list[str]:
    """Return the names of the rules of a message."""
    return list(dict.fromkeys(one.shown_name for one in message.alerts))


def one_line(text: str, most: int = CELL_CHARACTERS) -> str:
    """Replace control characters and line breaks by spaces, and cut the text to `most` characters."""
    clean = _CONTROL.sub(" ", text).strip()
    return clean if len(clean) <= most else clean[: most - 1] + "…"


def subject(message: Message) -> str:
    """Subject of the mail: `[FIRING] rule: summary` for one alert, else counts and what the alerts have in common."""
    if len(message.alerts) == 1 and not message.truncated:
        told = message.alerts[0]
        return one_line(f"[{told.kind.upper()}] {told.shown_name}: {told.summary}", SUBJECT_CHARACTERS)
    counts = ", ".join(f"{count} {kind}" for kind, count in counts_of(message).items() if count)
    common = [f"{name}={value}" for name, value in message.group_labels if name != ALERT_NAME]
    names = rules_of(message)
    rules = ", ".join(names[:3]) + (f" and {len(names) - 3} more rules" if len(names) > 3 else "")
    return one_line(f"[{message.status.upper()}] {rules}: {' '.join([counts, *common])}", SUBJECT_CHARACTERS)


def counts_of(message: Message) -> dict[str, int]:
    """Return the number of alerts by state. Alerts left out of the message count with the state of the last one in
    it."""
    counts = {kind.value: sum(one.kind is kind for one in message.alerts) for kind in AlertChange}
    if message.truncated:
        counts[message.alerts[-1].kind.value] += message.truncated
    return counts


def facts(told: Notification) -> list[tuple[str, str]]:
    """Rows (name, text) about the alert, without its labels."""
    rows = [("rule", told.shown_name)]
    if told.expires_ms:
        rows += [(name, text) for name, text in told.annotations if text != told.summary]
    else:
        rows += [("value", value_text(told.value)), *([("threshold", told.threshold)] if told.threshold else [])]
        rows += [(name, text) for name, text in told.annotations if text and text != told.summary]
    rows.append(("since", format_time(told.since_ms)))
    if told.kind is AlertChange.FIRING:
        rows.append(("fired", f"{format_time(told.fired_ms)}, after {format_duration(told.fired_ms - told.since_ms)}"))
    else:
        rows.append(("resolved", format_time(told.resolved_ms)))
        rows.append(("duration", format_duration(max(0, told.resolved_ms - told.since_ms))))
    if told.reason:
        rows.append(("why", told.reason))
    return [(name, one_line(value)) for name, value in rows]


def _labels(told: Notification) -> list[tuple[str, str]]:
    rows = [(one_line(name), one_line(value)) for name, value in told.labels[:MAX_TABLE_ROWS]]
    left = len(told.labels) - len(rows)
    return [*rows, ("…", f"and {left} more labels")] if left > 0 else rows


def as_text(message: Message, page: str) -> str:
    """Body of the mail as plain text."""
    lines = [] if len(message.alerts) == 1 else [one_line(subject(message)), ""]
    for told in message.alerts[:DETAILED_ALERTS]:
        lines += [*_alert_text(told, page), ""]
    lines += [_alert_line(told) for told in message.alerts[DETAILED_ALERTS:]]
    return "\n".join([*lines, *_left_out(message)]).rstrip() + "\n"


def _alert_line(told: Notification) -> str:
    labels = " ".join(f"{name}={value}" for name, value in told.labels)
    return one_line(f"{told.kind.upper()} {told.shown_name}: {told.summary} ({labels})", LINE_CHARACTERS)


def _alert_text(told: Notification, page: str) -> list[str]:
    lines = [f"{told.kind.upper()}: {one_line(told.summary)}", "", *_columns(facts(told))]
    if told.labels:
        lines += ["", "Labels", *_columns(_labels(told))]
    if told.expr:
        lines += ["", "Query", f"  {one_line(told.expr, EXPR_CHARACTERS)}"]
    href = link_of(told, page)
    return [*lines, "", href] if href else lines


def _left_out(message: Message) -> list[str]:
    return [f"And {message.truncated} more alerts, which the page shows."] if message.truncated else []


def _columns(rows: Iterable[tuple[str, str]]) -> list[str]:
    rows = list(rows)
    width = max((len(name) for name, _ in rows), default=0)
    return [f"  {name:<{width}}  {value}" for name, value in rows]


def as_html(message: Message, page: str, pictures: Mapping[int, str] = NO_PICTURES) -> str:
    """Body of the mail as HTML, without external resources. `pictures`: elements of alerts by their numbers."""
    parts = [] if len(message.alerts) == 1 else [f"<p>{_escape_html(subject(message))}</p>"]
    for at, told in enumerate(message.alerts[:DETAILED_ALERTS]):
        parts += [*_alert_html(told, page), *([pictures[at]] if at in pictures else [])]
    parts += [f"<p>{_escape_html(_alert_line(told))}</p>" for told in message.alerts[DETAILED_ALERTS:]]
    body = "\n".join([*parts, *(f"<p>{line}</p>" for line in _left_out(message))])
    return f'<!DOCTYPE html>\n<html><body style="font-family:sans-serif">\n{body}\n</body></html>\n'


def _alert_html(told: Notification, page: str) -> list[str]:
    colour, summary = _COLOURS[told.kind], _escape_html(one_line(told.summary))
    head = f'<strong style="color:{colour}">{told.kind.upper()}</strong> {summary}'
    parts = [f'<p style="font-size:1.2em">{head}</p>', _table(facts(told))]
    if told.labels:
        parts.append(f"<p>Labels</p>{_table(_labels(told))}")
    if told.expr:
        parts.append(f"<p>Query</p><pre>{_escape_html(one_line(told.expr, EXPR_CHARACTERS))}</pre>")
    href = link_of(told, page)
    if href:
        text = "Show the query" if told.expr else "Show the origin"
        parts.append(f'<p><a href="{_escape_html(href)}">{text}</a></p>')
    return parts


def _picture(name: str, chart: Chart) -> str:
    text = _escape_html(chart.text)
    return f'<p><img src="cid:{name}" width="{WIDTH}" height="{HEIGHT}" alt="{text}"><br><small>{text}</small></p>'


def _escape_html(text: str) -> str:
    return html.escape(text, quote=True)


def _table(rows: Iterable[tuple[str, str]]) -> str:
    cells = "\n".join(
        f'<tr><td style="padding-right:1em;color:#555">{_escape_html(name)}</td><td>{_escape_html(value)}</td></tr>'
        for name, value in rows
    )
    return f"<table>\n{cells}\n</table>"


# ---- delivery


class SmtpClient:
    """SMTP connection for a batch of letters; a context manager. Raises ServerUnreachableError if the server fails."""

    def __init__(self, settings: MailSettings, writer: MailComposer) -> None:
        self._settings, self._writer = settings, writer

    def __enter__(self) -> SmtpClient:
        settings = self._settings
        self._smtp = smtplib.SMTP(timeout=TIMEOUT_S, local_hostname=_host_name())
        with self._translate_errors("connecting"), self._deadline():
            self._expect(self._smtp.connect(settings.host, settings.port), 220, "greeting")
            self._smtp.ehlo_or_helo_if_needed()
            if settings.starttls:
                self._smtp.starttls(context=ssl.create_default_context(cafile=settings.ca))
                self._smtp.ehlo_or_helo_if_needed()
            if settings.user is not None:
                self._smtp.login(settings.user, settings.password or "")
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError, smtplib.SMTPException), self._deadline(2.0):
            self._smtp.docmd("QUIT")
        self._smtp.close()

    def send(self, message: Message, address: str, now_ms: int) -> None:
        """Return once the server has accepted the letter; else raise LetterDeferredError, LetterRefusedError or
        ServerUnreachableError.

        If the connection breaks after the last byte and before the answer, the outcome is unknown: then
        ServerUnreachableError is raised, and the letter is sent again with the same Message-ID."""
        mail = self._writer.compose(message, address, now_ms)
        with self._translate_errors("sending"), self._deadline():
            self._raise_for_reply(self._smtp.mail(self._settings.sender), "sender")
            self._raise_for_reply(self._smtp.rcpt(address), f"recipient {address}")
            self._raise_for_reply(self._smtp.data(mail.as_bytes()), "letter")

    def _raise_for_reply(self, answer: tuple[int, bytes], what: str) -> None:
        code, said = answer
        if 200 <= code < 300:
            return
        text = f"the server says {code} to the {what}: {_clean_reply(said)}"
        if code == 421:
            raise ServerUnreachableError(text)
        with suppress(OSError, smtplib.SMTPException):
            self._smtp.rset()
        raise (LetterRefusedError if 500 <= code < 600 else LetterDeferredError)(text)

    def _expect(self, answer: tuple[int, bytes], code: int, what: str) -> None:
        if answer[0] != code:
            said = f"{answer[0]} {_clean_reply(answer[1])}" if answer[0] > 0 else "not SMTP"
            raise ServerUnreachableError(f"unexpected {what} from the server: {said}")

    @contextmanager
    def _translate_errors(self, doing: str) -> Iterator[None]:
        """Convert errors of the server or the connection to ServerUnreachableError."""
        where = f"{self._settings.host}:{self._settings.port}"
        try:
            yield
        except smtplib.SMTPDataError as error:  # answer to the DATA command itself
            if 400 <= error.smtp_code < 600:
                self._raise_for_reply((error.smtp_code, _bytes(error.smtp_error)), "letter")
            self._smtp.close()  # a success code before the content does not accept the letter
            raise ServerUnreachableError(f"{where} answers DATA with {error.smtp_code} instead of 354") from error
        except smtplib.SMTPResponseException as error:
            self._smtp.close()
            said = _clean_reply(_bytes(error.smtp_error))
            raise ServerUnreachableError(f"{where}, {doing}: {error.smtp_code} {said}") from error
        except (smtplib.SMTPException, OSError, ValueError) as error:
            self._smtp.close()
            raise ServerUnreachableError(
                f"{where}, {doing}: {_clean_reply(str(error) or type(error).__name__)}"
            ) from error
        except ServerUnreachableError:
            self._smtp.close()
            raise

    def _deadline(self, seconds: float | None = None) -> AbstractContextManager[None]:
        return shut_down_after(LETTER_TIMEOUT_S if seconds is None else seconds, lambda: self._smtp.sock)


def _bytes(said: bytes | str) -> bytes:
    return said if isinstance(said, bytes) else said.encode()


def _clean_reply(said: bytes | str) -> str:
    """Answer of a server for logs: one line, printable, at most 200 characters."""
    text = said.decode("utf-8", "replace") if isinstance(said, bytes) else said
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())[:200]


def _host_name() -> str:
    """Own name for EHLO, without a DNS look-up, which could take long."""
    name = socket.gethostname()
    return name if name.isascii() and name.replace("-", "").replace(".", "").isalnum() else "localhost"


class MailSection(IntegrationSection):
    """Addresses of a receiver, separated by commas."""

    send_resolved: bool = False
    to: Annotated[tuple[str, ...], parsed(lambda text: _addresses(text), blank=False)]

    def build(self) -> list[Integration]:
        """Return one target for each address."""
        return [Integration(target_of(MAIL, one), self.send_resolved, MailReceiver.max_alerts) for one in self.to]


def _addresses(text: str) -> tuple[str, ...]:
    found = tuple(one.strip() for one in text.split(","))
    for one in found:
        if not is_address(one):
            raise ValueError(f"{one!r:.100} is not a mail address: write name@host in plain ASCII")
    return found


class MailReceiver(ReceiverKind[MailSettings]):
    """Receiver kind for mail by SMTP."""

    name = "mail"
    noun = "mail address"
    example = "name@host"
    summary = "one letter, text and HTML, by SMTP (`--smtp`, `--smtp-settings`, `--sender`); see below"
    sections: ClassVar[Mapping[str, type[IntegrationSection]]] = {"email_configs": MailSection}
    max_alerts = 100
    default = MailSettings("127.0.0.1", 25)

    def accepts(self, address: str) -> bool:
        """True for a plain ASCII address."""
        return is_address(address)

    def connect(self, settings: MailSettings, page: str) -> SmtpClient:
        return SmtpClient(settings, MailComposer(settings.sender, page, settings.charts))


RECEIVER = MailReceiver()
