"""Answers of a collector to the messages of one call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from artimon.model.acks import Position
from bookkeeper.rpc.framed_server import FramedError
from pipeline.link.credits import NOT_TOLD

FULL = "buffer full:"
"""Beginning of a collector's reason while Kafka's quota is used up."""


class Answer(NamedTuple):
    """What the collector said of one message: a position, or why not. `ours` says that the message itself is at fault,
    so that it must not hold up those behind it."""

    position: Position | None
    reason: str = ""
    ours: bool = False
    credit: int = -1
    """Bytes that the collector takes from now on, with the first answer of a call; -1: not told."""

    @property
    def full(self) -> bool:
        """Kafka's quota is used up: the same would be said of every other batch."""
        return self.reason.startswith(FULL)


def answers_of(found: Sequence[Any], count: int) -> list[Answer]:
    """Read the answers of the service to `count` messages. Raises FramedError for another number."""
    if len(found) != count:
        raise FramedError(f"{len(found)} answers to {count} messages")
    return [answer_of(raw) for raw in found]


def answer_of(raw: Any) -> Answer:
    """Read one answer of the service."""
    credit = NOT_TOLD if raw.credit is None else raw.credit
    if raw.ok:
        epoch = -1 if raw.leader_epoch is None else raw.leader_epoch
        return Answer(Position(raw.cluster, raw.topic_id, raw.partition, raw.offset, epoch), credit=credit)
    reason = raw.reason or "no reason given"
    return Answer(None, reason, ours=reason.startswith("damaged:"), credit=credit)


def granted_by(answers: Sequence[Answer]) -> int:
    """Credit that comes with the answers to a call."""
    return answers[0].credit if answers else NOT_TOLD


def is_useful(answers: Sequence[Answer]) -> bool:
    """False for a collector that took nothing of a call, for another reason than that Kafka is full."""
    return not answers or any(answer.position is not None or answer.full for answer in answers)
