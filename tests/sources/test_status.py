"""The agent's report of endpoints, and the process that owns a source."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

from sources.delivery.endpoint_status import POLL_MS, POLL_SAMPLES, UP, EndpointStatuses
from sources.delivery.source_counts import SourceCounts
from sources.delivery.source_owners import SourceOwners

HOUR = 3_600_000
LABELS = {"context": "shop", "host": "web1", "instance": "0"}


def said(statuses: EndpointStatuses, now_ms: int) -> dict[str, object]:
    return {variable.name: variable.value for variable in statuses.variables(now_ms)}


def test_a_polled_endpoint_says_how_the_poll_went(tmp_path: Path) -> None:
    statuses = EndpointStatuses(tmp_path / "v.json", HOUR)
    statuses.record_poll("shop/web1/0", LABELS, True, 12.5, 1_500)
    assert said(statuses, 0) == {UP: 1, POLL_MS: 12.5, POLL_SAMPLES: 1_500}
    statuses.record_poll("shop/web1/0", LABELS, False, 5_000.0, 0)
    assert said(statuses, 0) == {UP: 0, POLL_MS: 5_000.0, POLL_SAMPLES: 0}
    assert statuses.counts() == (0, 1)


def test_what_vanished_is_down_for_an_hour_also_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "v.json"
    first = EndpointStatuses(path, HOUR)
    first.record_poll("shop/web1/0", LABELS, True, 1, 1)
    first.record_poll("shop/web1/1", {**LABELS, "instance": "1"}, True, 1, 1)
    first.mark_vanished("shop/web1/0", LABELS, 1_000)
    asyncio.run(first.save())
    again = EndpointStatuses(path, HOUR)
    again.load()
    assert said(again, 1_000 + HOUR) == {UP: 0}
    assert said(again, 1_001 + HOUR) == {}


def test_what_comes_back_or_leaves_in_order_is_not_kept(tmp_path: Path) -> None:
    path = tmp_path / "v.json"
    statuses = EndpointStatuses(path, HOUR)
    statuses.mark_vanished("a", LABELS, 1_000)
    asyncio.run(statuses.save())
    statuses.record_poll("a", LABELS, True, 1, 1)
    asyncio.run(statuses.save())
    again = EndpointStatuses(path, HOUR)
    again.load()
    assert said(again, 2_000) == {}
    statuses.remove("a")
    assert said(statuses, 2_000) == {}


def test_a_damaged_file_counts_as_none(tmp_path: Path) -> None:
    for text in ("", "[]", '{"a": 7}', '{"a": {"nope": 1}}'):
        (tmp_path / "v.json").write_text(text)
        statuses = EndpointStatuses(tmp_path / "v.json", HOUR)
        statuses.load()
        assert said(statuses, 0) == {}


def test_counts_are_read_by_a_thread_while_they_change(tmp_path: Path) -> None:
    """The event loop adds an entry while the entries are added up."""
    statuses, figures = EndpointStatuses(tmp_path / "v.json", HOUR), SourceCounts()

    class Polled:
        @property
        def up(self) -> bool:
            statuses.record_poll("other", LABELS, True, 1, 1)
            return True

    class Refused(Counter[str]):
        def items(self) -> Any:
            figures.set_refused("other", Counter("b"))
            return super().items()

    statuses._by_key["one"] = Polled()  # type: ignore[assignment]
    figures.set_refused("one", Refused("a"))
    assert statuses.counts() == (1, 0)
    assert figures.to_json()["refused"] == {"a": 1}


class Process:
    """Owner that is alive or not."""

    def __init__(self, alive: bool) -> None:
        self.alive, self.superseded = alive, False

    async def answers(self, sure: bool) -> bool:
        await asyncio.sleep(0)
        return self.alive

    def supersede(self) -> None:
        self.superseded = True


def test_a_source_has_one_owner_and_a_dead_one_gives_way() -> None:
    async def run() -> None:
        owners, dead, alive, rival = SourceOwners(), Process(False), Process(True), Process(True)
        assert await owners.claim("s", dead, sure=True)
        assert await owners.claim("s", alive, sure=True)
        assert dead.superseded
        assert await owners.claim("s", alive, sure=True)
        assert not await owners.claim("s", rival, sure=True)
        owners.release("s", rival)
        assert owners.get("s") is alive
        owners.release("s", alive)
        assert await owners.claim("s", rival, sure=True)

    asyncio.run(run())


def test_of_several_rivals_at_once_one_wins() -> None:
    async def run() -> None:
        owners, rivals = SourceOwners(), [Process(True) for _ in range(5)]
        owners.set_owner("s", Process(False))
        won = await asyncio.gather(*(owners.claim("s", rival, sure=True) for rival in rivals))
        assert sorted(won) == [False] * 4 + [True]
        assert owners.get("s") is rivals[won.index(True)]
        assert not any(rival.superseded for rival in rivals)

    asyncio.run(run())
