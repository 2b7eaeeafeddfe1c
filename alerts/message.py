"""From a notification to a mail: text and HTML that say the same. Pure.

Labels and values may hold anything: header values lose control characters, HTML is escaped, everything is cut to size.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime
from urllib.parse import quote

from alerts.notification import Letter, Notification
from alerts.rule import value_text
from alerts.state import Change
from query_dsl.tree.timing import format_duration, format_time

SUBJECT_CHARACTERS = 200
CELL_CHARACTERS = 1_000
EXPR_CHARACTERS = 4_000
ROWS = 60
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]+")
_COLOURS = {Change.FIRING: "#b3261e", Change.RESOLVED: "#1b6e3c"}


@dataclass(frozen=True, slots=True)
class Writer:
    """Who writes, and where the link of a mail leads: `link` is the page's address, "" for mails without one."""

    sender: str
    link: str = ""

    def message_id(self, id: str) -> str:
        """Message-ID of what has this id."""
        return f"<{id}@{self.sender.rpartition('@')[2]}>"

    def link_to(self, expr: str) -> str:
        """The page with this question."""
        return f"{self.link.rstrip('/')}/?q={quote(expr, safe='')}" if self.link and expr else ""

    def write(self, letter: Letter, now_ms: int) -> EmailMessage:
        """The mail; the same letter gives the same Message-ID, whenever it is written."""
        told = letter.notification
        mail = EmailMessage(policy=SMTP.clone(max_line_length=78))
        mail["From"], mail["To"] = self.sender, letter.address
        mail["Subject"] = subject(told)
        mail["Date"] = format_datetime(datetime.fromtimestamp(now_ms / 1000, UTC))
        mail["Message-ID"] = self.message_id(told.id)
        if told.kind is Change.RESOLVED:
            mail["In-Reply-To"] = mail["References"] = self.message_id(told.firing_id)
        mail["Auto-Submitted"] = "auto-generated"
        mail["X-Artimon-Rule"] = one_line(told.rule)
        mail.set_content(as_text(told, self.link_to(told.expr)), cte="quoted-printable")
        mail.add_alternative(as_html(told, self.link_to(told.expr)), subtype="html", cte="quoted-printable")
        return mail


def one_line(text: str, most: int = CELL_CHARACTERS) -> str:
    """Without control characters and line breaks, and not too long."""
    clean = _CONTROL.sub(" ", text).strip()
    return clean if len(clean) <= most else clean[: most - 1] + "…"


def subject(told: Notification) -> str:
    """`[FIRING] rule: summary`."""
    return one_line(f"[{told.kind.upper()}] {told.rule}: {told.summary}", SUBJECT_CHARACTERS)


def facts(told: Notification) -> list[tuple[str, str]]:
    """What is said of the alert, beside its labels."""
    rows = [("rule", told.rule), ("value", value_text(told.value)), ("threshold", told.threshold)]
    rows.append(("since", format_time(told.since_ms)))
    if told.kind is Change.FIRING:
        rows.append(("fired", f"{format_time(told.fired_ms)}, after {format_duration(told.fired_ms - told.since_ms)}"))
    else:
        rows.append(("resolved", format_time(told.resolved_ms)))
        rows.append(("duration", format_duration(max(0, told.resolved_ms - told.since_ms))))
    if told.reason:
        rows.append(("why", told.reason))
    return [(name, one_line(value)) for name, value in rows]


def _labels(told: Notification) -> list[tuple[str, str]]:
    rows = [(one_line(name), one_line(value)) for name, value in told.labels[:ROWS]]
    left = len(told.labels) - len(rows)
    return [*rows, ("…", f"and {left} more labels")] if left > 0 else rows


def as_text(told: Notification, href: str) -> str:
    """The mail as plain text."""
    lines = [f"{told.kind.upper()}: {one_line(told.summary)}", "", *_columns(facts(told))]
    if told.labels:
        lines += ["", "Labels", *_columns(_labels(told))]
    lines += ["", "Question", f"  {one_line(told.expr, EXPR_CHARACTERS)}"]
    if href:
        lines += ["", href]
    return "\n".join(lines) + "\n"


def _columns(rows: Iterable[tuple[str, str]]) -> list[str]:
    rows = list(rows)
    width = max((len(name) for name, _ in rows), default=0)
    return [f"  {name:<{width}}  {value}" for name, value in rows]


def as_html(told: Notification, href: str) -> str:
    """The mail as HTML, without anything that would be loaded from elsewhere."""
    head = f'<strong style="color:{_COLOURS[told.kind]}">{told.kind.upper()}</strong> {_safe(one_line(told.summary))}'
    parts = [f'<p style="font-size:1.2em">{head}</p>', _table(facts(told))]
    if told.labels:
        parts.append(f"<p>Labels</p>{_table(_labels(told))}")
    parts.append(f"<p>Question</p><pre>{_safe(one_line(told.expr, EXPR_CHARACTERS))}</pre>")
    if href:
        parts.append(f'<p><a href="{_safe(href)}">Look at it</a></p>')
    body = "\n".join(parts)
    return f'<!DOCTYPE html>\n<html><body style="font-family:sans-serif">\n{body}\n</body></html>\n'


def _safe(text: str) -> str:
    return html.escape(text, quote=True)


def _table(rows: Iterable[tuple[str, str]]) -> str:
    cells = "\n".join(
        f'<tr><td style="padding-right:1em;color:#555">{_safe(name)}</td><td>{_safe(value)}</td></tr>'
        for name, value in rows
    )
    return f"<table>\n{cells}\n</table>"
