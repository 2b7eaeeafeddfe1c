"""Commands to an agent: each is run once, however often it is read, and has one final answer. Pure: no I/O, no clock.

The sender of a command chooses its id; the answer to an id never changes once it is final. Commands are begun in the
order in which they were sent. `drain` lasts until nothing waits in the agent; others may begin meanwhile.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from artimon.model.znode import parse_json_object

COMMAND_NAMES = ("drain", "pause", "resume", "roll", "release")
MAX_ANSWERS = 1000
"""Final answers that an agent keeps on its disk; the oldest are dropped."""
MAX_WAITING = 100
"""Most commands to one agent in ZooKeeper, answered or not."""
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class CommandError(ValueError):
    """The command is malformed or cannot be carried out."""


class AgentMode(Enum):
    """Mode of an agent. It survives a restart."""

    RUNNING = "running"
    PAUSED = "paused"
    """Accepts data but sends nothing: the log keeps it."""
    DRAINING = "draining"
    """Accepts nothing, sends the data that it has."""


MODES = {"pause": AgentMode.PAUSED, "resume": AgentMode.RUNNING, "drain": AgentMode.DRAINING}


@dataclass(frozen=True, slots=True)
class Command:
    """`arguments` belong to the name; times in epoch milliseconds; `order`: position in the order of sending."""

    id: str
    name: str
    arguments: Mapping[str, str]
    issued_ms: int
    deadline_ms: int
    order: int = 0
    signature: Mapping[str, str] | None = None

    def content(self) -> dict[str, Any]:
        """Return the signed content except the agent and the id."""
        fields = {"name": self.name, "arguments": dict(self.arguments)}
        return {**fields, "issued_ms": self.issued_ms, "deadline_ms": self.deadline_ms}

    def to_json(self) -> bytes:
        """Return the content of the znode."""
        signature = {} if self.signature is None else {"signature": dict(self.signature)}
        return json.dumps({**self.content(), **signature}).encode()

    @classmethod
    def parse(cls, id: str, data: bytes, order: int = 0) -> Command:
        """Inverse of `to_json`. Raises CommandError."""
        try:
            found = parse_json_object(data)
            arguments = {str(key): str(value) for key, value in found["arguments"].items()}
            times = int(found["issued_ms"]), int(found["deadline_ms"])
            signature = found.get("signature")
            return cls(validate_id(id), str(found["name"]), arguments, *times, order, signature)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CommandError(f"{data[:200]!r} is not a command: {error!r}") from None


def validate_id(id: str) -> str:
    """Return the id if it is valid, else raise CommandError."""
    if not _ID.fullmatch(id):
        raise CommandError(f"id {id!r}: use letters, digits, . _ and -, at most 100 of them")
    return id


@dataclass(frozen=True, slots=True)
class CommandAnswer:
    """`state`: "begun", or finally "done", "failed", "refused", "expired"."""

    state: str
    text: str
    time_ms: int

    @property
    def is_final(self) -> bool:
        return self.state != "begun"

    def to_json(self) -> bytes:
        return json.dumps({"state": self.state, "text": self.text, "time_ms": self.time_ms}).encode()

    @classmethod
    def parse(cls, data: bytes) -> CommandAnswer:
        """Inverse of `to_json`. Raises ValueError."""
        try:
            found = parse_json_object(data)
            return cls(str(found["state"]), str(found["text"]), int(found["time_ms"]))
        except (KeyError, TypeError) as error:
            raise ValueError(f"{data[:200]!r} is not an answer: {error!r}") from None


@dataclass(frozen=True, slots=True)
class CommandJournal:
    """An agent's record of commands; it is on the disk before anything is done.

    `answers`: by id, oldest first; `drain`: the drain in progress."""

    mode: AgentMode = AgentMode.RUNNING
    answers: Mapping[str, CommandAnswer] = field(default_factory=dict)
    drain: Command | None = None

    def to_json(self) -> dict[str, Any]:
        answers = {id: json.loads(answer.to_json()) for id, answer in self.answers.items()}
        drain = None if self.drain is None else {"id": self.drain.id, **json.loads(self.drain.to_json())}
        return {"mode": self.mode.value, "answers": answers, "drain": drain}

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> CommandJournal:
        """Inverse of `to_json`. Raises ValueError, KeyError, TypeError."""
        answers = {
            str(id): CommandAnswer(one["state"], one["text"], one["time_ms"]) for id, one in found["answers"].items()
        }
        drain = found["drain"]
        command = None if drain is None else Command.parse(drain["id"], json.dumps(drain).encode())
        return cls(AgentMode(found["mode"]), answers, command)


def next_command(book: CommandJournal, heard: Iterable[Command]) -> Command | None:
    """Return the first command without an answer."""
    waiting = [command for command in heard if command.id not in book.answers]
    return min(waiting, key=lambda command: (command.order, command.id), default=None)


def refusal_of(command: Command, now_ms: int) -> CommandAnswer | None:
    """Return the answer that refuses an unknown or expired command; None if it may begin."""
    if command.name not in COMMAND_NAMES:
        return CommandAnswer(
            "refused", f"unknown command {command.name!r}: use one of {', '.join(COMMAND_NAMES)}", now_ms
        )
    if now_ms >= command.deadline_ms:
        return CommandAnswer("expired", f"read {now_ms - command.deadline_ms} ms after its deadline; not begun", now_ms)
    return None


def after_begin(book: CommandJournal, command: Command, now_ms: int) -> CommandJournal:
    """Begin a command. One that changes the mode ends a drain in progress, which then has failed."""
    if command.name not in MODES:
        return book
    if book.drain is not None:
        text = f"ended by {command.name} {command.id} before everything was sent"
        book = with_answer(book, book.drain.id, CommandAnswer("failed", text, now_ms))
    mode = MODES[command.name]
    book = replace(book, mode=mode, drain=command if mode is AgentMode.DRAINING else None)
    return (
        with_answer(book, command.id, CommandAnswer("begun", "draining", now_ms))
        if mode is AgentMode.DRAINING
        else book
    )


def after_drain_check(book: CommandJournal, waiting: int, now_ms: int) -> CommandJournal:
    """Check the drain in progress; `waiting` items are not acked yet. After its deadline the mode stays."""
    command = book.drain
    if command is None:
        return book
    if waiting == 0:
        return replace(with_answer(book, command.id, CommandAnswer("done", "everything is acked", now_ms)), drain=None)
    if now_ms >= command.deadline_ms:
        text = f"{waiting} batches are not acked at the deadline; the agent goes on draining until `resume`"
        return replace(with_answer(book, command.id, CommandAnswer("failed", text, now_ms)), drain=None)
    return book


def with_answer(book: CommandJournal, id: str, answer: CommandAnswer) -> CommandJournal:
    """Record the answer to an id; a final one stays."""
    old = book.answers.get(id)
    if old is not None and old.is_final:
        return book
    answers = {key: value for key, value in book.answers.items() if key != id}
    kept = list({**answers, id: answer}.items())
    while len(kept) > MAX_ANSWERS and kept[0][1].is_final:
        kept.pop(0)
    return replace(book, answers=dict(kept))
