"""Kinds of receivers: each is found, documented, and has its own letters of the outbox."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from alerts.receivers import receiver_kind as kinds
from alerts.receivers.letter_sender import LetterSender
from alerts.receivers.receiver_kind import ReceiverKind, ServerUnreachableError, receiver_kinds
from alerts.rules.rule_file import parse_rules
from alerts.state.notification import Message, split_target, target_of
from tests.alerts.worlds import World, rule_text
from tests.bookkeeper.polling import REPOSITORY


class Taken:
    """Takes every letter, or none while `away`."""

    def __init__(self) -> None:
        self.away = False
        self.letters: list[tuple[str, str]] = []

    def send(self, message: Message, address: str, now_ms: int) -> None:
        self.letters.append((message.status, address))


class PagerKind(ReceiverKind[Taken]):
    """A kind that only this test knows."""

    name, noun, example, summary = "pager", "number", "555", ""
    default = Taken()

    def accepts(self, address: str) -> bool:
        return address.isdigit()

    @contextmanager
    def connect(self, settings: Taken, page: str) -> Iterator[Taken]:
        if settings.away:
            raise ServerUnreachableError("no line")
        yield settings


@pytest.fixture
def pager(monkeypatch: pytest.MonkeyPatch) -> PagerKind:
    """A second kind beside mail."""
    made = PagerKind()
    both = {**receiver_kinds(), "pager": made}
    for module in (kinds, parse_rules.__globals__):
        if isinstance(module, dict):
            monkeypatch.setitem(module, "receiver_kinds", lambda: both)
        else:
            monkeypatch.setattr(module, "receiver_kinds", lambda: both)
    return made


def test_every_kind_stands_in_the_page() -> None:
    text = (REPOSITORY / "docs" / "alerts.md").read_text()
    for kind in receiver_kinds().values():
        assert f"| `{kind.name}` | `{kind.example}` | {kind.summary} |" in text
        assert kind.accepts(kind.example)


@pytest.mark.parametrize(("kind", "address"), [("mail", "a@b.c"), ("webhook", "https://a/b:c"), ("pager", "5")])
def test_a_target_names_kind_and_address(kind: str, address: str) -> None:
    assert split_target(target_of(kind, address)) == (kind, address)


def test_a_rule_file_names_addresses_of_every_kind(pager: PagerKind) -> None:
    file = parse_rules("receivers: {ops: {mail: [a@b.c], pager: ['555', '556']}}", "rules.yaml")
    assert file.receivers[0].targets == ("a@b.c", "pager:555", "pager:556")


def test_a_kind_that_is_away_holds_up_its_own_letters_only(world: World, pager: PagerKind) -> None:
    world.to = ("pager:555", "ops@example.org")
    world.write(rule_text())
    world.tick({"a": 0})
    line = Taken()
    sender = LetterSender(world.database, pager, line, "", world.clock)
    line.away = True
    assert sender.send_due() == (True, 1.0)
    assert [one.letter.target for one in world.database.due_letters(2**60, 10, "mail")] == ["ops@example.org"]
    line.away = False
    sender.send_due()
    assert line.letters == [("firing", "555")]
    assert [letter.target for letter in world.letters()] == ["ops@example.org"]
