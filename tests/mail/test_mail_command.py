"""`artimon mail`: a table, whole mails, JSON; nothing in a mail reaches the terminal as a command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from artimon.cli.commands import search as questions
from artimon.model.clock import ManualClock
from artimon.stack.mail_view import parse_mail, show_mails
from artimon.stack.mailbox import Mailbox, StoredMail
from tests.mail.serving import kept, message


def fill(data: Path, *mails: bytes) -> None:
    """Keep mails a second apart."""
    clock = ManualClock(1_795_000_000_000)
    box = Mailbox(data / "mail", clock=clock)
    for mail in mails:
        box.store(mail, "sender@example.org", ["receiver@example.org"])
        clock.advance(1_000)


def test_the_table_has_the_newest_last(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fill(tmp_path, *(message(f"mail {n}").as_bytes() for n in range(3)))
    questions.mail(tmp_path, lines=2, as_json=False, full=False)
    assert capsys.readouterr().out.splitlines() == [
        "time                  from                 to                subject",
        "2026-11-18T11:06:41Z  artimon@example.org  anna@example.org  mail 1",
        "2026-11-18T11:06:42Z  artimon@example.org  anna@example.org  mail 2",
    ]


def test_full_prints_the_text_or_the_words_of_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = (
        b"Content-Type: text/html\r\nSubject: page\r\n\r\n<style>p{}</style><h1>Shop</h1><p>is &lt;down&gt;<br>now</p>"
    )
    fill(tmp_path, message().as_bytes(), page, b"Subject: none\r\nContent-Type: image/png\r\n\r\nxx")
    questions.mail(tmp_path, lines=9, as_json=False, full=True)
    shown = capsys.readouterr().out
    assert "Subject: shop is down\n\nThe shop does not answer." in shown
    assert "Subject: page\n\nShop\nis <down>\nnow" in shown
    assert shown.endswith("Subject: none\n\n(no text)\n")


def test_json_has_the_parts_only_when_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fill(tmp_path, message().as_bytes())
    questions.mail(tmp_path, lines=9, as_json=True, full=False)
    (short,) = json.loads(capsys.readouterr().out)
    assert sorted(short) == ["file", "receivers", "sender", "subject", "time_ms"]
    questions.mail(tmp_path, lines=9, as_json=True, full=True)
    (long,) = json.loads(capsys.readouterr().out)
    assert long["text"].strip() == "The shop does not answer."


def test_an_empty_folder_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    questions.mail(tmp_path, lines=9, as_json=False, full=False)
    found = capsys.readouterr()
    assert found.out == ""
    assert "no mail is kept" in found.err
    questions.mail(tmp_path, lines=9, as_json=True, full=False)
    assert json.loads(capsys.readouterr().out) == []


def test_control_characters_are_shown_as_escapes(tmp_path: Path) -> None:
    fill(tmp_path, b"Subject: \x1b[2Jcleared\r\nFrom: =?utf-8?b?G1szMW0=?=x\r\n\r\n\x1b]0;title\x07\ttext\x00\r\n")
    for full in (False, True):
        shown = show_mails(kept(tmp_path), full=full)
        assert all(c.isprintable() or c == "\n" for c in shown)
        assert "\\x1b[2Jcleared" in shown
        assert "\\x1b[31mx" in shown


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe\x00",
        b"Subject: =?utf-8?b?a?= =?nonsense?q?=ff?=\r\n\r\nx",
        b"Subject: =?utf-8?b?=====?=\r\nContent-Type: text/plain; charset=nonsense\r\n\r\n\xe4",
        b"Content-Type: text/plain; charset*=x''%ff\r\nContent-Transfer-Encoding: base64\r\n\r\n!!!\r\n",
        b"Content-Type: multipart/mixed\r\n\r\nno boundary",
        b"Content-Type: text/html\r\n\r\n<![nonsense[<p>x",
        b"".join(b'Content-Type: multipart/mixed; boundary="%d"\r\n\r\n--%d\r\n' % (n, n) for n in range(3_000)),
    ],
)
def test_no_mail_makes_the_reading_fail(content: bytes) -> None:
    mail = parse_mail(StoredMail(Path("x"), 0, len(content)), content)
    assert show_mails([mail], full=True)
    assert json.dumps(mail.to_json(full=True))
