"""Gaps that the table remembers: counts, figures, and sentences for operators. Pure: no I/O, no clock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from itertools import groupby
from typing import Any

from artimon.rawtable.table_state import END_OF_LOG, LogGap, RawState, RecordedGap

KINDS = ("lost", "cut", "topic")
REPORTED_MS = 24 * 3600 * 1000
"""Time for which a gap is a problem in `artimon status`."""
COUNTED_MS = 10 * 60 * 1000
"""Maximum age of gaps that a starting process counts: the one that named them may have died before it was polled."""
_WORDS = {
    "lost": "Kafka deleted messages before they were read; agents resend what was not acked",
    "cut": "the log lost its end; newer messages at these offsets are read, agents resend what the table lacks",
    "topic": "the topic was re-created; the unread rest of the old one is lost and agents resend it",
}


def count_by_kind(gaps: Iterable[LogGap]) -> Counter[str]:
    """Return the number of gaps of each kind, zeros included."""
    found = Counter(dict.fromkeys(KINDS, 0))
    found.update(gap.kind for gap in gaps)
    return found


def recent(state: RawState, now_ms: int, age_ms: int) -> list[RecordedGap]:
    """Return those of the table's newest gaps that were named within `age_ms`, oldest first."""
    return [named for named in state.recent_gaps if now_ms - named.time_ms < age_ms]


def to_figures(state: RawState, now_ms: int) -> list[dict[str, Any]]:
    """Return the gaps of the last 24 h for health; `end` is None for the end of the log."""
    return [
        {
            "kind": named.gap.kind,
            "partition": named.gap.partition,
            "start": named.gap.start,
            "end": None if named.gap.end == END_OF_LOG else named.gap.end,
            "topic_id": named.topic_id,
            "time_ms": named.time_ms,
            "append": named.append,
        }
        for named in recent(state, now_ms, REPORTED_MS)
    ]


def problem_texts(state: RawState, now_ms: int) -> list[str]:
    """Return one sentence for each kind and each append that named gaps within the last 24 h, newest first."""
    found = recent(state, now_ms, REPORTED_MS)
    order = sorted(found, key=lambda n: (-n.append, n.gap.kind, n.gap.partition))
    return [_sentence(list(group)) for _, group in groupby(order, key=lambda n: (n.append, n.gap.kind))]


def _sentence(gaps: list[RecordedGap]) -> str:
    first = gaps[0]
    when = datetime.fromtimestamp(first.time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    ranges = ", ".join(f"{n.gap.partition}: {n.gap.start} to {_end(n.gap.end)}" for n in gaps)
    return f"gap ({first.gap.kind}) named by append {first.append} at {when}: {_WORDS[first.gap.kind]}. {ranges}"


def _end(offset: int) -> str:
    return "its end" if offset == END_OF_LOG else str(offset)
