"""pipeline.control.agent_commands: each command runs once, in order, and keeps its answer."""

from __future__ import annotations

import json

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from pipeline.control import agent_commands as commands
from pipeline.control.agent_commands import AgentMode, Command, CommandAnswer, CommandError, CommandJournal

LATE = 1_000


def command(name: str, id: str = "1", order: int = 0, deadline_ms: int = LATE) -> Command:
    return Command(id, name, {}, 0, deadline_ms, order)


def test_commands_survive_a_round_trip() -> None:
    one = Command("a.b-1", "release", {"lane": "3"}, 5, 9, 7)
    assert Command.parse("a.b-1", one.to_json(), 7) == one
    for id, data in (("a/b", one.to_json()), ("a", b"{}"), ("a", b"x"), ("a", b'{"name": 1, "arguments": []}')):
        with pytest.raises(CommandError):
            Command.parse(id, data)


def test_a_drain_ends_and_is_answered_when_nothing_waits() -> None:
    drain = command("drain")
    book = commands.after_begin(CommandJournal(), drain, 0)
    assert (book.mode, book.answers["1"].state) == (AgentMode.DRAINING, "begun")
    assert commands.after_drain_check(book, 3, 10) == book
    ended = commands.after_drain_check(book, 0, 20)
    assert (ended.answers["1"].state, ended.mode, ended.drain) == ("done", AgentMode.DRAINING, None)


def test_a_drain_fails_at_its_deadline_or_by_another_command_and_keeps_its_answer() -> None:
    book = commands.after_begin(CommandJournal(), command("drain"), 0)
    late = commands.after_drain_check(book, 3, LATE)
    assert late.answers["1"].state == "failed"
    assert "3 batches" in late.answers["1"].text
    assert late.mode is AgentMode.DRAINING
    resumed = commands.after_begin(book, command("resume", "2"), 5)
    assert (resumed.answers["1"].state, resumed.mode) == ("failed", AgentMode.RUNNING)
    assert commands.with_answer(resumed, "1", CommandAnswer("done", "", 6)).answers["1"].state == "failed"


def test_late_and_unknown_commands_are_not_started() -> None:
    expired = commands.refusal_of(command("pause"), LATE)
    assert expired is not None
    assert expired.state == "expired"
    unknown = commands.refusal_of(command("explode"), 0)
    assert unknown is not None
    assert "drain, pause, resume, roll, release" in unknown.text


def test_the_number_of_kept_answers_is_bounded() -> None:
    book = CommandJournal()
    for number in range(commands.MAX_ANSWERS + 10):
        book = commands.with_answer(book, str(number), CommandAnswer("done", "", number))
    assert len(book.answers) == commands.MAX_ANSWERS
    assert "9" not in book.answers


class World(RuleBasedStateMachine):
    """Agent that reads commands repeatedly, in any portion, and whose process ends anywhere."""

    @initialize()
    def begin(self) -> None:
        self.book, self.disk = CommandJournal(), CommandJournal().to_json()
        self.given: list[Command] = []
        self.begun: dict[str, int] = {}
        self.final: dict[str, CommandAnswer] = {}
        self.waiting, self.now = 0, 0

    @rule(name=st.sampled_from((*commands.COMMAND_NAMES, "explode")), patience=st.integers(0, 400))
    def give(self, name: str, patience: int) -> None:
        number = len(self.given)
        self.given.append(Command(f"c{number}", name, {}, self.now, self.now + patience, number))

    @rule(waiting=st.integers(0, 2), ms=st.integers(1, 200))
    def time_passes(self, waiting: int, ms: int) -> None:
        self.waiting, self.now = waiting, self.now + ms

    @rule(crash=st.booleans(), data=st.data())
    def obey(self, crash: bool, data: st.DataObject) -> None:
        heard = data.draw(st.permutations(self.given))
        command = commands.next_command(self.book, heard)
        if command is not None:
            assert all(c.id in self.book.answers for c in self.given if c.order < command.order), "in order"
            answer = commands.refusal_of(command, self.now)
            if answer is None:
                self.begun[command.id] = self.begun.get(command.id, 0) + 1
                self.book = commands.after_begin(self.book, command, self.now)
                self.disk = self.book.to_json()
                if self.book.drain != command:
                    answer = CommandAnswer("done", "", self.now)
            if crash:
                self._restart()
                return
            if answer is not None:
                self.book = commands.with_answer(self.book, command.id, answer)
            self.disk = self.book.to_json()
        self.book = commands.after_drain_check(self.book, self.waiting, self.now)
        self.disk = self.book.to_json()

    @rule()
    def _restart(self) -> None:
        self.book = CommandJournal.from_json(json.loads(json.dumps(self.disk)))

    @invariant()
    def final_answers_stay(self) -> None:
        for id, answer in self.book.answers.items():
            if answer.is_final:
                assert self.final.setdefault(id, answer) == answer
        for id, count in self.begun.items():
            assert count == 1 or id not in self.book.answers or self.book.answers[id].state != "refused"

    @invariant()
    def a_drain_under_way_is_that_of_the_mode(self) -> None:
        if self.book.drain is not None:
            assert self.book.mode is AgentMode.DRAINING
            assert self.book.answers[self.book.drain.id].state == "begun"

    def teardown(self) -> None:
        """Every command has a final answer in the end."""
        if not hasattr(self, "book"):
            return
        while (command := commands.next_command(self.book, self.given)) is not None:
            answer = commands.refusal_of(command, self.now)
            if answer is None:
                self.book = commands.after_begin(self.book, command, self.now)
                answer = None if self.book.drain == command else CommandAnswer("done", "", self.now)
            if answer is not None:
                self.book = commands.with_answer(self.book, command.id, answer)
        self.book = commands.after_drain_check(self.book, 0, self.now)
        assert {c.id for c in self.given} == {id for id, answer in self.book.answers.items() if answer.is_final}


World.TestCase.settings = settings(max_examples=50, stateful_step_count=30, deadline=None)
TestWorld = World.TestCase
