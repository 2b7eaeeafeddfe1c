"""`artimon mail`: the kept mails as text and JSON. Mails are untrusted input: control characters are escaped, and an
unreadable mail does not stop the listing."""

from __future__ import annotations

import contextlib
from dataclasses import asdict, dataclass
from email import message_from_bytes
from email.errors import MessageError
from email.header import decode_header
from email.message import Message
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from artimon.runtime.text import printable
from artimon.stack.mailbox import StoredMail, list_mails
from query_dsl.tree.times import format_time

READ_BYTES = 4 * 1024 * 1024
MAX_PARTS = 100
HTML_CHARACTERS = 256 * 1024
_CELL = 60


@dataclass(frozen=True, slots=True)
class Mail:
    """One kept mail. `time_ms` is its arrival; `sender` and `receivers` come from its own headers, else from the
    envelope; `text` and `html` are its first parts of that type, "" if it has none."""

    file: str
    time_ms: int
    sender: str
    receivers: list[str]
    subject: str
    text: str
    html: str

    def to_json(self, *, full: bool) -> dict[str, Any]:
        """Return a JSON object; text and html only if `full`."""
        found = asdict(self)
        return found if full else {name: found[name] for name in found if name not in ("text", "html")}


def read_mails(folder: Path, count: int) -> list[Mail]:
    """Read the newest `count` mails of `folder`, newest last. Mails removed meanwhile are left out."""
    chosen = list_mails(folder)[-count:] if count > 0 else []
    found = []
    for kept in chosen:
        with contextlib.suppress(OSError), kept.path.open("rb") as file:
            found.append(parse_mail(kept, file.read(READ_BYTES)))
    return found


def parse_mail(kept: StoredMail, content: bytes) -> Mail:
    """Parse one mail; undecodable headers stay as they are. An unparsable mail has the error as its subject."""
    try:
        return _parsed(kept, message_from_bytes(content))
    except (RecursionError, LookupError, ValueError, MessageError) as problem:
        return Mail(str(kept.path), kept.time_ms, "", [], f"(cannot be read: {problem})", "", "")


def _parsed(kept: StoredMail, message: Message) -> Mail:
    receivers = _texts(message, "To") or _texts(message, "Delivered-To")
    return Mail(
        file=str(kept.path),
        time_ms=kept.time_ms,
        sender=next(iter(_texts(message, "From") or _texts(message, "Return-Path")), ""),
        receivers=receivers,
        subject=next(iter(_texts(message, "Subject")), ""),
        text=_body_of_type(message, "text/plain"),
        html=_body_of_type(message, "text/html"),
    )


def _texts(message: Message, name: str) -> list[str]:
    """Return the values of a header, decoded, each on one line."""
    raw = [str(value) for key, value in message.raw_items() if key.lower() == name.lower()]
    return [" ".join(_decoded(value).split()) for value in raw]


def _decoded(value: str) -> str:
    """Decode a header: UTF-8 as it is, encoded words where possible."""
    plain = value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    try:
        pieces = decode_header(plain)
    except (ValueError, MessageError):
        return plain
    return "".join(piece if isinstance(piece, str) else _text(piece, charset or "utf-8") for piece, charset in pieces)


def _text(content: bytes, charset: str) -> str:
    for one in (charset, "utf-8"):
        with contextlib.suppress(LookupError, ValueError):
            return content.decode(one)
    return content.decode("latin-1")


def _body_of_type(message: Message, kind: str) -> str:
    """Return the text of the first part of a type that has no file name (is not an attachment), "" if none."""
    for number, part in enumerate(message.walk()):
        if number >= MAX_PARTS:
            break
        if part.get_content_type() == kind and part.get_filename() is None:
            payload = part.get_payload(decode=True)
            content = payload if isinstance(payload, bytes) else b""
            return _text(content, part.get_content_charset() or "utf-8")
    return ""


class _HtmlText(HTMLParser):
    """Extracts the visible text of an HTML page."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.pieces: list[str] = []
        self._hidden = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:  # noqa: ARG002
        self._hidden += tag in ("style", "script", "head", "title")
        if tag in ("br", "p", "div", "tr", "li", "h1", "h2", "h3", "table"):
            self.pieces.append("\n")

    def handle_endtag(self, tag: str) -> None:
        self._hidden = max(0, self._hidden - (tag in ("style", "script", "head", "title")))
        if tag in ("td", "th"):
            self.pieces.append("  ")

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self.pieces.append(" ".join(data.split()) if data.strip() else " ")


def _readable(mail: Mail) -> str:
    if mail.text or not mail.html:
        return mail.text
    words = _HtmlText()
    try:
        words.feed(mail.html[:HTML_CHARACTERS])
    except AssertionError:  # raised by the parser for a malformed declaration
        return mail.html
    return "\n".join(line.strip() for line in "".join(words.pieces).splitlines() if line.strip())


def show_mails(mails: list[Mail], *, full: bool) -> str:
    """Format mails as a table, newest last; with `full` each with its headers and its text."""
    if full:
        return "\n\n".join(map(_whole, mails))
    rows = [
        ("time", "from", "to", "subject"),
        *((_time(mail), _cut(mail.sender), _cut(", ".join(mail.receivers)), _cut(mail.subject)) for mail in mails),
    ]
    widths = [max(len(row[i]) for row in rows) for i in range(3)]
    return "\n".join(
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[3]]) for row in rows
    )


def _whole(mail: Mail) -> str:
    head = [("Time", _time(mail)), ("From", mail.sender), ("To", ", ".join(mail.receivers)), ("Subject", mail.subject)]
    lines = [f"{name + ':':<8} {printable(value)}" for name, value in head]
    body = [printable(line.replace("\t", "    ")) for line in _readable(mail).splitlines()]
    return "\n".join([*lines, "", *(body or ["(no text)"])])


def _time(mail: Mail) -> str:
    return format_time(mail.time_ms - mail.time_ms % 1000)


def _cut(text: str) -> str:
    shown = printable(text)
    return shown if len(shown) <= _CELL else shown[: _CELL - 1] + "…"
