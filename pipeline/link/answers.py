"""Answers of a collector to the messages of one call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from artimon.model.ack_state import Position
from bookkeeper.rpc.framed_server import FramedError
from pipeline.link.credits import NO_CREDIT_INFO

BUFFER_FULL_PREFIX = "buffer full:"
"""Beginning of a collector's reason while Kafka's quota is used up."""


class MessageAnswer(NamedTuple):
    """Answer to one message: a position, or the reason of a refusal. `ours`: the message itself is at fault, so it must
    not delay those behind it."""

    position: Position | None
    reason: str = ""
    is_permanent: bool = False
    credit: int = -1
    """Bytes that the collector takes from now on, given with the first answer of a call; -1: not given."""

    @property
    def is_buffer_full(self) -> bool:
        """True if Kafka's quota is used up: the collector would refuse every other batch as well."""
        return self.reason.startswith(BUFFER_FULL_PREFIX)


def decode_answers(found: Sequence[Any], count: int) -> list[MessageAnswer]:
    """Decode the service's answers to `count` messages. Raises FramedError if their number differs."""
    if len(found) != count:
        raise FramedError(f"{len(found)} answers to {count} messages")
    return [decode_answer(raw) for raw in found]


def decode_answer(raw: Any) -> MessageAnswer:
    """Decode one answer of the service."""
    credit = NO_CREDIT_INFO if raw.credit is None else raw.credit
    if raw.ok:
        epoch = -1 if raw.leader_epoch is None else raw.leader_epoch
        return MessageAnswer(Position(raw.cluster, raw.topic_id, raw.partition, raw.offset, epoch), credit=credit)
    reason = raw.reason or "no reason given"
    return MessageAnswer(None, reason, is_permanent=reason.startswith("damaged:"), credit=credit)


def granted_credit(answers: Sequence[MessageAnswer]) -> int:
    """Return the credit that came with the answers to a call."""
    return answers[0].credit if answers else NO_CREDIT_INFO


def is_any_accepted(answers: Sequence[MessageAnswer]) -> bool:
    """False if a collector took nothing of a call, for another reason than a full Kafka."""
    return not answers or any(answer.position is not None or answer.is_buffer_full for answer in answers)
