"""The way of a letter: servers that are away, refuse, hang or break off; each letter arrives once."""

from __future__ import annotations

import email
import json
import re
import socket
import threading
from email.policy import default
from pathlib import Path

import pytest

from alerts.receivers import mail
from alerts.receivers.mail import load_settings
from alerts.state import alert_database as database_module
from alerts.state.rule import AlertsError
from tests.alerts.mailboxes import Mailbox, crooked, free_port, mailbox
from tests.alerts.worlds import MINUTE, World, rule_text
from tests.waiting import eventually


def mail_text(raw: bytes) -> str:
    """Plain text of a mail."""
    body = email.message_from_bytes(raw, policy=default).get_body(("plain",))
    assert body is not None
    return str(body.get_content())


def firing(world: World, *hosts: str) -> None:
    """These hosts fire; each has a rule, so that each has a letter."""
    for host in hosts:
        rule = rule_text().replace("name: down", f"name: down-{host}").replace("'up'", f"'up{{host=\"{host}\"}}'")
        world.write(rule, f"{host}.yaml")
    world.tick(dict.fromkeys(hosts, 0))


def test_one_mail_when_it_fires_and_one_when_it_resolves(world: World, mails: Mailbox) -> None:
    sender = world.sender(mails.address)
    firing(world, "a")
    assert sender.send_due() == (True, 0.0)
    world.tick({"a": 0})
    assert sender.send_due() == (False, 0.0)
    world.tick({"a": 1})
    sender.send_due()
    sender.send_due()
    assert mails.subjects == ["[FIRING] down-a: a is 0", "[RESOLVED] down-a: a is 1"]
    assert mails.recipients == ["ops@example.org"] * 2
    assert (sender.figures.sent, world.database.counts()) == (2, {"pending": 0, "sent": 2, "failed": 0})


def test_while_nothing_listens_mails_wait_and_come_once_in_order(world: World) -> None:
    port = free_port()
    sender = world.sender(f"127.0.0.1:{port}")
    firing(world, "a")
    waits = [sender.send_due()[1] for _ in range(9)]
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert "refused" in sender.figures.problem
    world.tick({"a": 1})  # resolved before anybody heard that it fired: both are told, in order
    world.start()
    sender = world.sender(f"127.0.0.1:{port}")
    with mailbox(port) as box:
        for _ in range(4):
            sender.send_due()
            world.clock.advance(MINUTE)
        assert box.subjects == ["[FIRING] down-a: a is 0", "[RESOLVED] down-a: a is 1"]
    assert sender.figures.problem == ""


def test_a_mail_put_off_comes_later_and_keeps_its_order(world: World, mails: Mailbox) -> None:
    sender = world.sender(mails.address)
    mails.refuse_data = ["451 later"]
    firing(world, "a", "b")
    sender.send_due()
    assert mails.subjects == ["[FIRING] down-b: b is 0"]
    mails.refuse_data = ["451 later"]
    world.tick({"a": 1, "b": 0})
    sender.send_due()
    sender.send_due()  # the end of a waits for its beginning, although it is due
    assert len(mails.raw) == 1
    world.clock.advance(20_000)
    for _ in range(3):
        sender.send_due()
    assert [one for one in mails.subjects if " a " in one] == ["[FIRING] down-a: a is 0", "[RESOLVED] down-a: a is 1"]


def test_a_mail_put_off_for_days_is_given_up(world: World, mails: Mailbox) -> None:
    sender = world.sender(mails.address)
    mails.refuse_rcpt = {"ops@example.org": "450 full"}
    firing(world, "a")
    for _ in range(300):
        sender.send_due()
        world.clock.advance(900_000)
    assert world.database.counts()["failed"] == 1
    assert "put off for 3 days" in world.database.failures()[0]


def test_a_mail_refused_for_ever_is_kept_as_failed_and_stops_no_other(world: World, mails: Mailbox) -> None:
    world.to = ("nobody@example.org", "ops@example.org")
    sender = world.sender(mails.address)
    mails.refuse_rcpt = {"nobody@example.org": "550 no such person\x07"}
    mails.refuse_data = ["554 spam"]
    firing(world, "a", "b")
    for _ in range(3):
        sender.send_due()
    assert mails.subjects == ["[FIRING] down-b: b is 0"]
    assert sender.figures.failed == 3
    assert world.database.counts() == {"pending": 0, "sent": 1, "failed": 3}
    assert any("550 to the recipient nobody@example.org: no such person" in f for f in world.database.failures())


def replies(*script: bytes | None) -> list[bytes | None]:
    """Answers to greeting, EHLO, MAIL, RCPT, DATA, the letter."""
    usual: list[bytes | None] = [b"220 x\r\n", b"250 x\r\n", b"250 x\r\n", b"250 x\r\n", b"354 go\r\n"]
    return [*usual, *script]


class Scripted:
    """Answers line by line by a script; None hangs, b"" breaks off. Counts how often a whole letter came."""

    def __init__(self, script: list[bytes | None]) -> None:
        self.script, self.letters = script, 0
        self.ended = threading.Event()

    def serve(self, sock: socket.socket) -> None:
        stream = sock.makefile("rb")
        for i, answer in enumerate(self.script):
            if i == 5:
                while (line := stream.readline()) not in (b".\r\n", b""):
                    pass
                self.letters += line == b".\r\n"
            elif i:
                stream.readline()
            if answer is None:
                self.ended.wait(30)
                return
            if answer == b"":
                return
            sock.sendall(answer)
        self.ended.wait(30)


@pytest.mark.parametrize(
    ("script", "told"),
    [
        pytest.param([b"554 go away\r\n"], "greeting from the server: 554 go away", id="refuses_at_the_door"),
        pytest.param([b"421 busy\r\n"], "421", id="busy"),
        pytest.param([*replies()[:4], b"250 x\r\n"], "instead of 354", id="says_yes_before_the_letter"),
        pytest.param([b""], "connecting", id="closes_at_once"),
        pytest.param([b"\xff\x00\r\n" * 3], "not SMTP", id="garbage"),
        pytest.param([b"220 " + b"x" * 100_000 + b"\r\n"], "connecting", id="endless_line"),
        pytest.param([None], "timed out", id="says_nothing"),
        pytest.param(replies(b"421 closing\r\n"), "421", id="closing_at_the_letter"),
        pytest.param(replies(b""), "sending", id="closes_after_the_letter"),
        pytest.param(replies(None), "timed out", id="hangs_after_the_letter"),
        pytest.param([*replies()[:2], b""], "sending", id="closes_at_mail"),
    ],
)
def test_a_server_that_breaks_costs_no_letter(
    world: World, script: list[bytes | None], told: str, monkeypatch: pytest.MonkeyPatch, mails: Mailbox
) -> None:
    """The letter stays, and reaches a good server under the same Message-ID, once."""
    monkeypatch.setattr(mail, "TIMEOUT_S", 0.5)
    firing(world, "a")
    crook = Scripted(script)
    with crooked(crook.serve) as address:
        sender = world.sender(address)
        more, wait_s = sender.send_due()
        crook.ended.set()
    assert more
    assert wait_s > 0
    assert told in sender.figures.problem
    assert world.database.counts()["pending"] == 1
    world.clock.advance(MINUTE)
    again = world.sender(mails.address)
    again.send_due()
    again.send_due()
    assert list(mails.ids.values()) == [1]


def test_a_server_that_trickles_is_cut_off(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mail, "LETTER_TIMEOUT_S", 0.5)
    ended = threading.Event()

    def serve(sock: socket.socket) -> None:
        while not ended.wait(0.05):
            sock.sendall(b"220-x\r\n")

    firing(world, "a")
    with crooked(serve) as address:
        sender = world.sender(address)
        finished = threading.Thread(target=sender.send_due, daemon=True)
        finished.start()
        finished.join(60)
        ended.set()
        assert not finished.is_alive()
    assert world.database.counts()["pending"] == 1


def test_a_letter_on_which_the_server_breaks_does_not_stop_the_others(world: World) -> None:
    """Poison goes last: another letter gets through although the first one breaks every connection."""
    taken: list[bytes] = []

    def serve(sock: socket.socket) -> None:
        stream = sock.makefile("rb")
        sock.sendall(b"220 x\r\n")
        while line := stream.readline():
            if line == b"data\r\n":
                sock.sendall(b"354 go\r\n")
                lines = []
                while (line := stream.readline()) not in (b".\r\n", b""):
                    lines.append(line)
                letter = b"".join(lines)
                if b"down-a: a is" in letter:
                    return
                taken.append(letter)
            sock.sendall(b"250 x\r\n")

    firing(world, "a", "b")
    with crooked(serve) as address:
        sender = world.sender(address)
        for _ in range(3):
            sender.send_due()
    assert len(taken) == 1


def test_the_thread_sends_when_woken_and_survives_a_server_that_comes_late(world: World) -> None:
    port = free_port()
    sender = world.sender(f"127.0.0.1:{port}")
    sender.start()
    firing(world, "a")
    sender.wake()
    eventually(lambda: "refused" in sender.figures.problem)
    world.clock.advance(MINUTE)
    with mailbox(port) as box:
        eventually(lambda: len(box.raw) == 1)
        eventually(lambda: sender.figures.sent == 1)
    sender.stop()


def test_too_many_that_wait_drop_the_oldest_and_say_so(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database_module, "MAX_PENDING", 5)
    firing(world, *"abcdefgh")
    assert world.database.dropped == 3
    assert world.told() == [f"firing {host}" for host in "defgh"]


def test_a_storm_is_at_most_five_letters_in_five_minutes_and_tells_every_alert(world: World, mails: Mailbox) -> None:
    sender = world.sender(mails.address)
    told: list[str] = []
    for minute in range(5):
        firing(world, *(f"h{minute}x{i}" for i in range(20)))
        sender.send_due()
        sender.send_due()
    assert len(mails.raw) <= 5
    world.clock.advance(5 * MINUTE)
    sender.send_due()
    sender.send_due()
    assert len(mails.raw) <= 8
    told = [line for raw in mails.raw for line in re.findall(r"FIRING[^\n]*?(h\d+x\d+) is 0", mail_text(raw))]
    assert set(told) == {f"h{minute}x{i}" for minute in range(5) for i in range(20)}


def test_letters_that_waited_for_the_server_become_one(world: World, mails: Mailbox) -> None:
    firing(world, *"abcdefgh")
    world.tick({"a": 1, **dict.fromkeys("bcdefgh", 0)})
    sender = world.sender(mails.address)
    while sender.send_due()[0]:
        pass
    (raw,) = mails.raw
    assert "1 resolved" in mails.subjects[0]
    assert "7 firing" in mails.subjects[0]
    assert world.database.counts()["pending"] == 0
    assert sum(f"{host} is" in mail_text(raw) for host in "abcdefgh") == 8


def test_a_letter_that_the_server_refuses_is_not_merged_into_others(world: World, mails: Mailbox) -> None:
    sender = world.sender(mails.address)
    mails.refuse_data = ["451 later"]
    firing(world, "p")
    sender.send_due()
    firing(world, *"pabcdefgh")
    while sender.send_due()[0]:
        pass
    assert mails.subjects[0] == "[FIRING] down-p: p is 0"
    (other,) = mails.raw[1:]
    assert "8 firing" in mails.subjects[1]
    assert "p is 0" not in mail_text(other)


def test_what_is_done_is_forgotten_in_time(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database_module, "MAX_FINISHED_LETTERS", 4)
    world.write(rule_text())
    for i in range(20):
        world.tick({"a": i % 2})
        world.told()
    assert sum(world.database.counts().values()) <= 6


@pytest.mark.parametrize(
    ("content", "mode", "address", "told"),
    [
        ({}, 0o644, "mail:25", "chmod 600"),
        ({"pasword": "x"}, 0o600, "mail:25", "unknown setting"),
        ({"starttls": "yes"}, 0o600, "mail:25", "true or false"),
        ({"user": 5}, 0o600, "mail:25", "texts"),
        ({"user": "a", "password": "b"}, 0o600, "mail:25", "without TLS"),
        ({"sender": "a\nb@c"}, 0o600, "mail:25", "not a mail address"),
        ([], 0o600, "mail:25", "JSON object"),
        ({}, 0o600, "mail", "host:port"),
        ({}, 0o600, "mail:99999", "host:port"),
    ],
)
def test_settings_that_are_wrong(tmp_path: Path, content: object, mode: int, address: str, told: str) -> None:
    path = tmp_path / "smtp.json"
    path.write_text(json.dumps(content))
    path.chmod(mode)
    with pytest.raises(AlertsError, match=told):
        load_settings(address, "artimon@localhost", path)


def test_a_password_is_never_shown(tmp_path: Path) -> None:
    path = tmp_path / "smtp.json"
    path.write_text(json.dumps({"user": "me", "password": "hunter2", "starttls": True}))
    path.chmod(0o600)
    found = load_settings("[::1]:25", "artimon@localhost", path)
    assert (found.host, found.password) == ("::1", "hunter2")
    assert "hunter2" not in repr(found)
