"""The local SMTP server: what it takes, what it refuses, what stays after a kill."""

from __future__ import annotations

import signal
import smtplib
import socket
from email.message import EmailMessage
from pathlib import Path

import pytest

from artimon.model.clock import ManualClock
from artimon.stack.mailbox import Mailbox, list_mails
from artimon.stack.smtp import SmtpLimits
from tests.mail.serving import client, kept, message, process, serving
from tests.sockets import to_end
from tests.waiting import eventually


def raw(port: int) -> socket.socket:
    """A connection past the greeting, for a client that does not behave."""
    connection = socket.create_connection(("127.0.0.1", port), timeout=20)
    assert connection.recv(1000).startswith(b"220 ")
    return connection


def test_a_mail_is_kept_as_it_was_sent(tmp_path: Path) -> None:
    with serving(tmp_path) as server, client(server.port) as connection:
        connection.sendmail(
            "bounce@example.org", ["a@example.org", "b@example.org"], b"Subject: hi\r\n\r\n.dot\r\nend\r\n"
        )
        (path,) = (one.path for one in list_mails(tmp_path / "mail"))
        assert server.figures()["accepted"] == server.figures()["kept"] == 1
    head = b"Return-Path: <bounce@example.org>\r\nDelivered-To: a@example.org\r\nDelivered-To: b@example.org\r\n"
    assert path.read_bytes() == head + b"Subject: hi\r\n\r\n.dot\r\nend\r\n"
    for folder in (path.parent, path.parent.parent):
        assert folder.stat().st_mode & 0o077 == 0  # mails are for their owner


def test_multipart_and_html(tmp_path: Path) -> None:
    mail = message()
    mail.add_alternative("<p>The <b>shop</b> does not answer.</p>", subtype="html")
    with serving(tmp_path) as server, client(server.port) as connection:
        connection.send_message(mail)
    (found,) = kept(tmp_path)
    assert (found.sender, found.receivers) == ("artimon@example.org", ["anna@example.org"])
    assert found.subject == "shop is down"
    assert found.text.strip() == "The shop does not answer."
    assert "<b>shop</b>" in found.html


def test_utf8_in_subject_body_and_address(tmp_path: Path) -> None:
    mail = message("Störung im Lager 🏬", "Grüße, 2 °C zu warm")
    eight_bit = "From: A\r\nTo: B\r\nSubject: raw ümlaut\r\nContent-Type: text/plain; charset=utf-8\r\n\r\nläuft\r\n"
    with serving(tmp_path) as server, client(server.port) as connection:
        connection.send_message(mail)
        options = ["SMTPUTF8", "BODY=8BITMIME"]
        connection.sendmail("jörg@example.org", "käthe@example.org", eight_bit.encode(), options)
    first, second = kept(tmp_path)
    assert (first.subject, first.text.strip()) == ("Störung im Lager 🏬", "Grüße, 2 °C zu warm")
    assert (second.subject, second.text.strip()) == ("raw ümlaut", "läuft")
    assert b"Delivered-To: k\xc3\xa4the@example.org" in Path(second.file).read_bytes()


def test_a_mail_that_is_too_large_is_refused_with_552(tmp_path: Path) -> None:
    with serving(tmp_path, SmtpLimits(message_bytes=10_000)) as server, client(server.port) as connection:
        with pytest.raises(smtplib.SMTPSenderRefused) as refused:  # it said the size beforehand
            connection.send_message(message(text="x" * 60 + "\n" * 20_000))
        assert refused.value.smtp_code == 552
        connection.docmd("MAIL FROM:<a@example.org>")  # it did not
        connection.docmd("RCPT TO:<b@example.org>")
        assert connection.data(b"x" * 70 + b"\r\n" * 6_000)[0] == 552
        connection.send_message(message("small"))  # and the connection is still good
    assert [mail.subject for mail in kept(tmp_path)] == ["small"]


def test_a_mail_without_end_is_cut_off(tmp_path: Path) -> None:
    with serving(tmp_path, SmtpLimits(message_bytes=10_000)) as server, raw(server.port) as connection:
        connection.sendall(b"HELO x\r\nMAIL FROM:<a@example.org>\r\nRCPT TO:<b@example.org>\r\nDATA\r\n")
        eventually(lambda: connection.recv(1000).endswith(b"<CR><LF>.<CR><LF>\r\n"))
        connection.sendall(b"x" * 25_000)
        assert to_end(connection).startswith(b"552 ")
        assert server.figures()["refused"] == 1
    assert kept(tmp_path) == []


def test_a_client_that_is_too_slow_is_cut_off(tmp_path: Path) -> None:
    with serving(tmp_path, SmtpLimits(command_s=0.3)) as server, raw(server.port) as silent:
        assert to_end(silent) == b""
        with raw(server.port) as stuck:
            stuck.sendall(b"HELO x\r\nMAIL FROM:<a@example.org>\r\nRCPT TO:<b@example.org>\r\nDATA\r\nSubject: x\r\n")
            assert b"354" in to_end(stuck)
        eventually(lambda: server.figures()["connections"] == 0)
    assert kept(tmp_path) == []


def test_too_many_connections_are_told_so_and_a_free_place_is_given_again(tmp_path: Path) -> None:
    with serving(tmp_path, SmtpLimits(connections=2)) as server:
        with raw(server.port), raw(server.port):
            with socket.create_connection(("127.0.0.1", server.port), timeout=20) as third:
                assert to_end(third).startswith(b"421 ")
            assert server.figures()["turned_away"] == 1
        eventually(lambda: server.figures()["connections"] == 0)
        with client(server.port) as connection:
            connection.send_message(message())
    assert len(kept(tmp_path)) == 1


def test_too_many_receivers(tmp_path: Path) -> None:
    with serving(tmp_path, SmtpLimits(receivers=2)) as server, client(server.port) as connection:
        refused = connection.sendmail("a@example.org", [f"{i}@example.org" for i in range(3)], "Subject: x\r\n\r\nx")
        assert refused["2@example.org"][0] == 452


@pytest.mark.parametrize(
    "commands",
    [
        b"MAIL FROM:<a@example.org>\r\n",
        b"HELO x\r\nRCPT TO:<b@example.org>\r\n",
        b"HELO x\r\nMAIL FROM:no brackets <\r\n",
        b"HELO x\r\nDATA\r\n",
        b"\xff\xfe\x00\r\n",
        b"A" * 5_000 + b"\r\n",
        b"GET / HTTP/1.1\r\n",
    ],
)
def test_nonsense_is_answered_with_5xx(tmp_path: Path, commands: bytes) -> None:
    with serving(tmp_path) as server, raw(server.port) as connection:
        connection.sendall(commands + b"QUIT\r\n")
        answers = to_end(connection).splitlines()
        assert any(line.startswith(b"5") for line in answers), answers
        assert answers[-1].startswith(b"221 ")
    assert kept(tmp_path) == []


def test_the_oldest_mails_go_and_are_counted(tmp_path: Path) -> None:
    with serving(tmp_path, SmtpLimits(kept_mails=3)) as server, client(server.port) as connection:
        for number in range(5):
            connection.send_message(message(f"mail {number}"))
        assert (server.figures()["kept"], server.figures()["removed"]) == (3, 2)
    assert [mail.subject for mail in kept(tmp_path)] == ["mail 2", "mail 3", "mail 4"]


def test_a_mailbox_keeps_to_its_bytes_and_order_whatever_the_clock_does(tmp_path: Path) -> None:
    clock = ManualClock(1_000)
    box = Mailbox(tmp_path, mails=10, bytes_=2_000, clock=clock)
    for number in range(4):
        box.store(b"Subject: %d\r\n\r\n" % number + b"x" * 700, "a", ["b"])
        clock.advance(-200)
    assert [mail.time_ms for mail in list_mails(tmp_path)] == [1_002, 1_003]
    again = Mailbox(tmp_path, mails=1, bytes_=2_000, clock=clock)
    (kept_mail,) = list_mails(tmp_path)
    assert b"Subject: 3\r\n" in kept_mail.path.read_bytes()
    assert again.figures() == {"kept": 1, "bytes": kept_mail.size, "removed": 1}
    path = again.store(b"x", "a", ["b"])
    assert [(mail.path, mail.time_ms) for mail in list_mails(tmp_path)] == [(path, 1_004)]


def test_other_files_are_left_alone_and_scratch_goes(tmp_path: Path) -> None:
    for folder in ("tmp", "new"):
        (tmp_path / folder).mkdir()
    names = {"notes.txt", "1-000002.eml"}  # an earlier version left mails beside the Maildir
    for name in names:
        (tmp_path / name).write_text("x")
    (tmp_path / "tmp" / "1.M2P3Q4.here").write_text("half")
    (tmp_path / "new" / "folder").mkdir()
    (tmp_path / "new" / "link").symlink_to("/etc/hostname")
    assert list_mails(tmp_path) == []
    Mailbox(tmp_path, mails=1).store(b"x", "a\rb", ["c\x00d"])
    assert {path.name for path in tmp_path.iterdir()} == {*names, "tmp", "new", "cur"}
    assert {"folder", "link"} < {path.name for path in (tmp_path / "new").iterdir()}
    assert not list((tmp_path / "tmp").iterdir())
    (one,) = list_mails(tmp_path)
    assert one.path.read_bytes() == b"Return-Path: <a?b>\r\nDelivered-To: c?d\r\nx"


def test_a_folder_that_cannot_be_written_is_452_and_said(tmp_path: Path) -> None:
    with serving(tmp_path) as server, client(server.port) as connection:
        (tmp_path / "mail").rename(tmp_path / "away")
        with pytest.raises(smtplib.SMTPDataError) as refused:
            connection.send_message(message())
        assert refused.value.smtp_code == 452
        assert "could not be kept" in server.problem
        (tmp_path / "away").rename(tmp_path / "mail")
        connection.send_message(message("later"))
        assert server.problem == ""
    assert [mail.subject for mail in kept(tmp_path)] == ["later"]


def test_what_was_answered_with_250_survives_kill_9(tmp_path: Path) -> None:
    with process(tmp_path) as (running, port):
        with client(port) as connection:
            connection.send_message(message("before"))
        with raw(port) as half:
            half.sendall(b"HELO x\r\nMAIL FROM:<a@example.org>\r\nRCPT TO:<b@example.org>\r\nDATA\r\nSubject: half\r\n")
            eventually(lambda: b"354" in half.recv(1000))
            running.send_signal(signal.SIGKILL)
            running.wait(20)
    (tmp_path / "mail" / "tmp" / "1.M2P3Q4.here").write_bytes(b"what a killed writer leaves")
    with process(tmp_path) as (running, port):
        with client(port) as connection:
            connection.send_message(message("after"))
        running.send_signal(signal.SIGTERM)
        _, told = running.communicate(timeout=20)
        assert running.returncode == 0, told
        assert b"Traceback" not in told
    assert [mail.subject for mail in kept(tmp_path)] == ["before", "after"]
    assert not list((tmp_path / "mail" / "tmp").iterdir())


def test_a_message_built_by_hand_needs_no_headers(tmp_path: Path) -> None:
    with serving(tmp_path) as server, client(server.port) as connection:
        connection.sendmail("a@example.org", "b@example.org", "only text")
        connection.send_message(EmailMessage(), "a@example.org", "b@example.org")
    first, _ = kept(tmp_path)
    assert (first.sender, first.receivers, first.subject) == ("<a@example.org>", ["b@example.org"], "")
