"""Questions of the benchmarks: texts that differ, answers compared at every step, a world that goes on."""

from __future__ import annotations

import threading
from itertools import islice
from typing import Any

import pytest

from artimon.model.feed_codec import FeedRange
from artimon.model.vshards import ALL_VSHARDS
from benchmarks.loads.dashboards import texts
from benchmarks.loads.queries import GROWTH, QueryWorld
from benchmarks.query import QUESTIONS, check_sums
from benchmarks.serving import living
from benchmarks.serving.comparing import WrongAnswer, compare
from benchmarks.varstore_restart import START_MS, fill_minutes
from query_dsl import parse

END_MS = 1_800_000_000_000


def test_no_user_asks_what_was_asked_before() -> None:
    asked = list(islice(texts(100_000), 10_000))
    assert len(set(asked)) == len(asked)
    assert all(parse(text) is not None for text in asked[:8])


def test_every_question_can_be_parsed() -> None:
    assert all(parse(question.ours.format(new='a=""', host=7)) is not None for question in QUESTIONS)


def answers(first: float | None = 1.0) -> tuple[dict[str, Any], dict[str, Any]]:
    """Ours and a peer's, three steps."""
    ours = {
        "grid": {"start_ms": 0, "end_ms": 180_000, "step_ms": 60_000},
        "series": [{"labels": {"rack": "a"}, "values": [first, 2.0, 3.0]}],
    }
    theirs = {"metric": {"__name__": "n", "rack": "a"}, "values": [[60, "1"], [120, "2"], [180, "3"]]}
    return ours, {"data": {"result": [theirs]}}


def test_equal_answers() -> None:
    assert compare("q", "peer", *answers(), within=0.0) == 3


@pytest.mark.parametrize("first", [1.1, None], ids=["wrong", "missing"])
def test_answers_are_compared_at_the_oldest_step_too(first: float | None) -> None:
    with pytest.raises(WrongAnswer, match="at step 0"):
        compare("q", "peer", *answers(first), within=0.05)


def test_series_of_only_one_answer_are_named() -> None:
    ours, theirs = answers()
    ours["series"].append({"labels": {"rack": "b"}, "values": [1.0, None, None]})
    with pytest.raises(WrongAnswer, match="'rack': 'b'"):
        compare("q", "peer", ours, theirs, 0.0)


def test_sums_are_checked_at_every_step() -> None:
    answer = {"series": [{"values": [1, 2]}, {"values": [3, 4]}]}
    check_sums(answer, [4, 6])
    with pytest.raises(WrongAnswer):
        check_sums(answer, [5, 6])


def test_a_world_goes_on_within_the_first_ten_seconds_after_its_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    world, fed = QueryWorld(2_000, 3, END_MS, long=False), list[FeedRange]()
    stop, times = threading.Event(), iter([0.0, 14.0, 26.0, 74.0, 86.0])
    turns = iter([False] * 4)
    monkeypatch.setattr(stop, "wait", lambda _seconds: next(turns, True))
    going = living.Living(world, 15_000, 0, fed.append)
    going.run(stop, lambda: next(times))
    assert [len(range_.samples) for range_ in fed] == [6_000, 6_000]
    assert [int(range_.samples.time_ms[0]) for range_ in fed] == [END_MS + 30_000, END_MS + 90_000]
    assert going.samples == 12_000


def test_counters_go_on_growing_after_the_last_minute() -> None:
    world = QueryWorld(1_000, 3, END_MS, long=False)
    last, more = (world.poll(minute, 0, ALL_VSHARDS, [0]).samples.cell for minute in (2, 4))
    assert (more - last == 2 * GROWTH).all()


def test_a_world_clock_stands_still_until_it_is_started() -> None:
    clock = living.WorldClock(END_MS)
    assert clock.now_ms() == END_MS
    clock.start()
    assert clock.start_s is not None
    clock.start_s -= 5.0
    assert END_MS + 5_000 <= clock.now_ms() < END_MS + 60_000


@pytest.mark.parametrize(("step", "count"), [(1, 60), (5, 48), (15, 96), (60, 72)])
def test_a_restart_has_every_bucket_filled(step: int, count: int) -> None:
    minutes = 77 * 60
    assert START_MS % 3_600_000 == 0
    filled = {minute // step for minute in fill_minutes(minutes)}
    newest = minutes // step
    assert set(range(newest - count, newest)) <= filled
