"""Mails: text and HTML say the same, whatever labels hold; no header can be smuggled in."""

from __future__ import annotations

import email
import json
import re
from collections.abc import Callable
from dataclasses import replace
from email.message import EmailMessage
from email.policy import default
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from alerts.receivers.chart_image import Chart, draw
from alerts.receivers.mail import MailComposer
from alerts.state.alert import AlertChange
from alerts.state.notification import AlertLetter, Message, Notification, merge

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


def composed(told: Notification, writer: MailComposer = WRITER) -> bytes:
    """Mail about one alert."""
    return writer.compose(Message.of_one(told), "ops@example.org", NOW).as_bytes()


def read_back(told: Notification, writer: MailComposer = WRITER) -> EmailMessage:
    return parsed_mail(composed(told, writer))


def parsed_mail(raw: bytes) -> EmailMessage:
    parsed = email.message_from_bytes(raw, policy=default)
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


def hosts(count: int, kind: AlertChange = AlertChange.FIRING) -> tuple[Notification, ...]:
    return tuple(note(kind, labels=(("host", f"h{i}"), ("rack", "r1")), summary=f"h{i} is down") for i in range(count))


def group(alerts: tuple[Notification, ...], truncated: int = 0) -> Message:
    return Message("ops", '{}:{rack="r1"}', (("rack", "r1"),), alerts, truncated, "second", "first")


def test_a_mail_about_many_alerts_counts_them_and_names_what_they_share() -> None:
    mail = parsed_mail(WRITER.compose(group(hosts(30), 970), "ops@example.org", NOW).as_bytes())
    assert mail["Subject"] == "[FIRING] endpoint-down: 1000 firing rack=r1"
    assert (mail["Message-ID"], mail["In-Reply-To"]) == ("<second@example.org>", "<first@example.org>")
    for body in bodies(mail):
        assert all(f"h{i} is down" in body for i in range(30))
        assert "And 970 more alerts" in body


def test_a_mail_about_a_mixed_group_is_firing() -> None:
    mixed = group((*hosts(1), note(AlertChange.RESOLVED, rule="disk", labels=(("host", "h9"),))))
    mail = parsed_mail(WRITER.compose(mixed, "ops@example.org", NOW).as_bytes())
    assert mail["Subject"] == "[FIRING] endpoint-down, disk: 1 firing, 1 resolved rack=r1"


def test_merged_messages_tell_each_alert_once_in_its_latest_state() -> None:
    one, other = group(hosts(3)), group(hosts(2, AlertChange.RESOLVED))
    merged = merge([one, other])
    assert [(alert.kind, dict(alert.labels)["host"]) for alert in merged.alerts] == [
        ("firing", "h2"),
        ("resolved", "h0"),
        ("resolved", "h1"),
    ]
    assert (merged.group_key, merged.thread) == (one.group_key, "first")
    across = merge([one, Message.of_one(note())])
    assert (across.group_key, across.group_labels, len(across.alerts)) == ("digest", (), 4)
    assert merge([one, other]).id == merged.id != across.id


def test_a_letter_is_named_by_its_message_and_target() -> None:
    assert AlertLetter(group(hosts(1)), "a@b.c").key == "second:a@b.c"
    assert AlertLetter(group(hosts(1)), "a@b.c").thread == AlertLetter(group(hosts(2)), "a@b.c").thread


@pytest.mark.parametrize("field", ["summary", "rule", "reason", "expr", "value", "labels"])
def test_nothing_smuggled_gets_into_headers_or_html(field: str) -> None:
    changes: dict[str, Any] = {field: ((NASTY, NASTY),) if field == "labels" else NASTY}
    told = note(AlertChange.FIRING, **changes)
    raw = composed(told)
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
    assert repr(again) == repr(told)  # NaN does not equal itself
    mail = read_back(again)
    assert len(mail["Subject"]) <= 200
    tags = Tags()
    tags.feed(bodies(mail)[1])
    assert tags.seen <= {"html", "body", "p", "strong", "table", "tr", "td", "pre", "a"}


def test_mails_stay_small() -> None:
    labels = tuple((f"l{i}", "é" * 1024) for i in range(200))
    large = note(labels=labels, expr="x" * 100_000, summary="s" * 500)
    assert len(composed(large)) < 1_000_000
    many = WRITER.compose(group((large,) * 100), "ops@example.org", NOW).as_bytes()
    assert len(many) < 5_000_000
    assert "and 140 more labels" in bodies(read_back(note(labels=labels)))[0]


def test_without_a_page_there_is_no_link() -> None:
    assert "http" not in "".join(bodies(read_back(note(), MailComposer("artimon@example.org"))))


# ---- charts


def with_chart(count: int, drawn: Callable[[Notification], Chart | None]) -> EmailMessage:
    alerts = tuple(note(labels=(("host", str(at)),)) for at in range(count))
    message = replace(Message.of_one(note()), alerts=alerts)
    writer = MailComposer("artimon@example.org", "http://page", drawn)
    return parsed_mail(writer.compose(message, "ops@example.org", NOW).as_bytes())


def pictures(mail: EmailMessage) -> dict[str, bytes]:
    found = [part for part in mail.walk() if part.get_content_type() == "image/png"]
    return {str(part["Content-ID"]).strip("<>"): part.get_payload(decode=True) for part in found}  # type: ignore[misc]


def test_charts_are_pictures_of_the_html() -> None:
    png = draw(np.arange(3.0), np.array([1.0, 2.0, 3.0]))
    mail = with_chart(5, lambda told: Chart(png, f'<last> "{dict(told.labels)["host"]}"'))
    _, page = bodies(mail)
    found = pictures(mail)
    assert len(found) == 3  # of the first alerts
    assert set(re.findall(r'src="cid:([^"]+)"', page)) == set(found)
    assert set(found.values()) == {png}
    assert "&lt;last&gt; &quot;0&quot;" in page
    assert "http" not in page.replace("http://page", "")
    assert [part.get_content_type() for part in mail.iter_parts()] == ["text/plain", "multipart/related"]


def test_without_charts_a_mail_has_two_parts() -> None:
    mail = with_chart(2, lambda _: None)
    assert [part.get_content_type() for part in mail.iter_parts()] == ["text/plain", "text/html"]


def test_a_mail_that_is_composed_again_has_the_same_pictures() -> None:
    png = draw(np.arange(3.0), np.array([1.0, 2.0, 3.0]))
    assert pictures(with_chart(1, lambda _: Chart(png, "x"))) == pictures(with_chart(1, lambda _: Chart(png, "x")))
