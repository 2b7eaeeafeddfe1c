"""Progress of the shards: whether they hold a minute, and the sources that are late. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

MAX_NAMED = 3
"""Maximum number of late sources that a message names."""


@dataclass(frozen=True, slots=True)
class PollCount:
    """Sources with one period and one time of the newest poll, in ms; `example` is the name of one."""

    period_ms: int
    newest_ms: int
    sources: int
    example: str

    def is_late(self, end_ms: int) -> bool:
        """True if the last poll before `end_ms` has not arrived. After two missing polls a source is not waited for."""
        return end_ms - 2 * self.period_ms < self.newest_ms <= end_ms - self.period_ms


@dataclass(frozen=True, slots=True)
class FeedStatus:
    """State of one shard. `newest_ms`: time of the newest sample; `applied`: samples applied since its start; `polls`:
    newest polls of its sources, () if it tells none."""

    newest_ms: int
    applied: int = 0
    polls: tuple[PollCount, ...] = ()

    @classmethod
    def from_status(cls, status: Mapping[str, Any]) -> FeedStatus:
        """Return the state in the status of a shard."""
        polls = [
            PollCount(1000 * int(period_s), 1000 * int(newest_s), int(sources), str(example))
            for period_s, newest_s, sources, example in status.get("polls") or ()
        ]
        return cls(int(status.get("newest_sample_ms") or 0), int(status.get("applied") or 0), tuple(polls))


def hold_minute(feeds: Iterable[FeedStatus], end_ms: int) -> bool:
    """Return True if every source has delivered its polls up to `end_ms`. False if no source is known."""
    polls = [one for feed in feeds for one in feed.polls]
    return bool(polls) and not any(one.is_late(end_ms) for one in polls)


def late_text(feeds: Sequence[FeedStatus], end_ms: int) -> str:
    """Return the text that names late sources; "" without one."""
    late = [one for feed in feeds for one in feed.polls if one.is_late(end_ms)]
    if not late:
        return ""
    count, names = sum(one.sources for one in late), ", ".join(one.example for one in late[:MAX_NAMED])
    return f"the last poll of {count} sources had not arrived, among them {names:.200}"
