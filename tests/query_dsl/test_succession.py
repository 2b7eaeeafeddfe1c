"""Overlapping lives and births that go back give the same answer in every engine and in lists."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from artimon.compute.succession import normalize_incarnations, normalize_start_times
from artimon.model.select import INCARNATION_DTYPE
from tests.query_dsl import asking
from tests.query_dsl.plainly import Raw, Sample, World, in_succession
from tests.query_dsl.worlds import offline_store, plain_store, shards

MINUTE, T = asking.MINUTE, asking.T
STORES: dict[str, Callable[[World], Any]] = {
    "lists": plain_store,
    "offline": offline_store,
    "shards": lambda world: shards(world, 2),
}
FUNCTIONS = ["increase('3m')", "rate('2m')", "resets('10m')", "irate('5m')", "increase('2m').sum(by=[])"]


def one(*samples: tuple[float, int, float]) -> World:
    """A counter: minutes before T, value, minutes of birth before T."""
    told = tuple(Sample(T - int(t * MINUTE), value, T - int(b * MINUTE)) for t, value, b in samples)
    return World((Raw("c", {"h": "a"}, "INTEGER", told, "COUNTER"),), asking.LEVELS)


WORLDS = {
    "the clock of the second process was behind": one((9, 50, 20), (8, 60, 20), (6, 4, 25), (5, 9, 25)),
    "twice": one((9, 50, 20), (7, 4, 25), (5, 3, 30), (4, 5, 30)),
    "the later birth was seen in between": one((9, 50, 20), (8, 3, 8.5), (7, 60, 20), (6, 8, 8.5)),
}


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("world", WORLDS)
def test_every_engine_says_the_same(world: str, store: str) -> None:
    made: Any = STORES[store](WORLDS[world])
    for function in FUNCTIONS:
        text = f"fetch('c').{function}.range('10m')"
        assert asking.differences(text, asking.ours(text, made), asking.theirs(text, WORLDS[world])) == [], text


@pytest.mark.parametrize("store", STORES)
def test_a_life_that_is_older_by_its_birth_begins_when_the_one_before_was_over(store: str) -> None:
    made: Any = STORES[store](WORLDS["the clock of the second process was behind"])
    found = asking.ours("fetch('c').increase().range('10m')", made)
    assert not isinstance(found, str)
    assert found.tolist(0) == [None, 10, None, 4, 5, None, None, None, None, None]


@pytest.mark.parametrize("name", ["increase", "rate", "irate", "resets"])
def test_raw_samples_know_the_same_lives(name: str) -> None:
    """One sample a bucket: samples answer at the sample like fetch at its bucket."""
    for world in WORLDS.values():
        store = offline_store(world)
        on_grid = asking.ours(f"fetch('c').map('{name}', '4m').range('10m')", store)
        raw: Any = asking.ours(f"samples('c').map('{name}', '4m').between({T - 10 * MINUTE}, {T})", store)
        assert not isinstance(on_grid, str)
        assert not isinstance(raw, str), raw
        values = dict(zip(on_grid.times, on_grid.tolist(0), strict=True))
        assert dict(raw.tolist(0)) == {t: v for t, v in values.items() if t in dict(raw.tolist(0))}
        assert len(raw.tolist(0)) >= 2


@pytest.mark.parametrize("store", STORES)
def test_a_birth_before_the_last_sample_of_the_life_before_is_no_reset_of_that_sample(store: str) -> None:
    """The second process was born a minute before the first one was seen last: that sample is still of the first."""
    world = one((9, 50, 20), (7, 62, 20), (6, 3, 8))
    made: Any = STORES[store](world)
    found = asking.ours("fetch('c').irate('4m').range('10m')", made)
    assert not isinstance(found, str)
    assert found.tolist(0)[2:4] == [12 / 120, 3 / 60]


LIVES = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 30), st.integers(0, 60)), max_size=25)


@settings(max_examples=150, deadline=None)
@given(LIVES)
def test_samples_and_their_lives_are_told_alike(told: list[tuple[int, int, int]]) -> None:
    """(series, birth, time) of samples: births of samples are those of the lives that they belong to."""
    told = sorted(set(told), key=lambda one: (one[0], one[2]))
    owner, birth, time = (np.array([one[i] for one in told], np.int64) for i in range(3))
    born = normalize_start_times(owner, time, birth)
    for row in set(owner.tolist()):
        mine = [Sample(t, 0, b) for r, b, t in told if r == row]
        assert [b for r, b in zip(owner.tolist(), born.tolist(), strict=True) if r == row] == [
            s.birth for s in in_succession(mine)
        ]
    each = sorted({(row, b) for row, b, _ in told})
    spans = [[t for r, b, t in told if (r, b) == life] for life in each]
    rows = [(r, b, min(times), max(times), 0) for (r, b), times in zip(each, spans, strict=True)]
    lives = normalize_incarnations(np.array(rows, INCARNATION_DTYPE))
    assert {(int(one["row"]), int(one["birth_ms"])) for one in lives} == set(
        zip(owner.tolist(), born.tolist(), strict=True)
    )
    same = lives["row"][1:] == lives["row"][:-1]
    assert (lives["birth_ms"][1:] > lives["birth_ms"][:-1])[same].all()
    assert (lives["first_ms"][1:] >= lives["last_ms"][:-1])[same].all()
    assert normalize_incarnations(lives) is lives
