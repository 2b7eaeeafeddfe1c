"""Mails: text and HTML say the same, whatever labels hold; no header can be smuggled in."""

from __future__ import annotations

import email
import json
from email.message import EmailMessage
from email.policy import default
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from alerts.receivers.mail import MailComposer
from alerts.state.alert import AlertChange
from alerts.state.notification import Notification, letters

NASTY = '"><script>alert(1)</script>\r\nBcc: evil@example.org\r\n\r\n.\r\nMAIL FROM:<x@y.z>\x00\u202e'
WRITER = MailComposer("artimon@example.org", "http://127.0.0.1:8780/")
NOW = 1_800_000_000_000


def note(kind: AlertChange = AlertChange.FIRING, **changes: Any) -> Notification:
    base: dict[str, Any] = {
        "kind": kind, "rule": "endpoint-down", "labels": (("context", "shop"), ("host", "a")),
        "expr": "fetch('artimon.endpoint.up{host=\"a\"}')", "threshold": "< 1", "hold_ms": 60_000,
        "since_ms": NOW - 60_000, "fired_ms": NOW, "resolved_ms": NOW + 300_000 if kind == AlertChange.RESOLVED else 0,
        "value": 0, "reason": "", "summary": "shop on a is down",
    }  # fmt: skip
    return Notification(**{**base, **changes})


def read_back(told: Notification, writer: MailComposer = WRITER) -> EmailMessage:
    parsed = email.message_from_bytes(writer.compose(told, "ops@example.org", NOW).as_bytes(), policy=default)
    assert isinstance(parsed, EmailMessage)
    return parsed


def bodies(mail: EmailMessage) -> tuple[str, str]:
    text, page = mail.get_body(("plain",)), mail.get_body(("html",))
    assert text is not None
    assert page is not None
    return str(text.get_content()), str(page.get_content())


def test_what_a_mail_says() -> None:
    mail = read_back(note())
    assert mail["Subject"] == "[FIRING] endpoint-down: shop on a is down"
    assert (mail["From"], mail["To"]) == ("artimon@example.org", "ops@example.org")
    assert mail["Auto-Submitted"] == "auto-generated"
    assert mail["Date"] == "Fri, 15 Jan 2027 08:00:00 +0000"
    text, page = bodies(mail)
    link = "http://127.0.0.1:8780/?q=fetch%28%27artimon.endpoint.up%7Bhost%3D%22a%22%7D%27%29"
    for body in (text, page):
        for word in ("FIRING", "shop on a is down", "context", "2027-01-15T07:59:00Z", "after 1m", link):
            assert word in body
        assert "value" in body
    assert "&lt; 1" in page
    assert "< 1" in text


def test_the_end_answers_the_beginning() -> None:
    fired, ended = read_back(note()), read_back(note(AlertChange.RESOLVED, reason="the rule was removed"))
    assert ended["Subject"].startswith("[RESOLVED] ")
    assert ended["In-Reply-To"] == ended["References"] == fired["Message-ID"] != ended["Message-ID"]
    text, _ = bodies(ended)
    assert "6m" in text
    assert "the rule was removed" in text


def test_the_id_depends_on_the_alert_and_when_it_fired_only() -> None:
    assert note().id == note(value=7, summary="else", reason="x").id
    others = [note(fired_ms=1), note(rule="x"), note(labels=()), note(AlertChange.RESOLVED)]
    assert len({note().id, *(one.id for one in others)}) == 5
    assert [one.key for one in letters(note(), ["a@b.c", "a@b.c", "d@e.f"])] == [
        f"{note().id}:a@b.c",
        f"{note().id}:d@e.f",
    ]


@pytest.mark.parametrize("field", ["summary", "rule", "reason", "expr", "value", "labels"])
def test_nothing_smuggled_gets_into_headers_or_html(field: str) -> None:
    changes: dict[str, Any] = {field: ((NASTY, NASTY),) if field == "labels" else NASTY}
    told = note(AlertChange.FIRING, **changes)
    raw = WRITER.compose(told, "ops@example.org", NOW).as_bytes()
    mail = read_back(told)
    assert mail["Bcc"] is None
    assert {name.lower() for name in mail} == {
        "from", "to", "subject", "date", "message-id", "auto-submitted", "x-artimon-rule", "mime-version",
        "content-type",
    }  # fmt: skip
    text, page = bodies(mail)
    assert "<script" not in page
    assert "\x00" not in text + page
    assert "\u202e" not in text + page
    assert b"\nBcc" not in raw
    assert b"\n.\r\n" not in raw


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=2000), st.text(max_size=300), st.floats() | st.booleans() | st.text(max_size=20) | st.none())
def test_any_label_and_value_can_be_mailed(label: str, summary: str, value: float | bool | str | None) -> None:
    told = note(labels=(("host", label),), summary=summary, value=value)
    again = Notification.from_json(json.loads(json.dumps(told.to_json())))
    assert again.id == told.id
    mail = read_back(again)
    assert len(mail["Subject"]) <= 200
    tags = Tags()
    tags.feed(bodies(mail)[1])
    assert tags.seen <= {"html", "body", "p", "strong", "table", "tr", "td", "pre", "a"}


def test_mails_stay_small() -> None:
    labels = tuple((f"l{i}", "é" * 1024) for i in range(200))
    raw = WRITER.compose(note(labels=labels, expr="x" * 100_000), "ops@example.org", NOW).as_bytes()
    assert len(raw) < 1_000_000
    assert "and 140 more labels" in bodies(read_back(note(labels=labels)))[0]


def test_without_a_page_there_is_no_link() -> None:
    assert "http" not in "".join(bodies(read_back(note(), MailComposer("artimon@example.org"))))
