"""increase, delta and rate against a slow reference that walks the raw samples one by one."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from artimon.model.values import Kind
from query_dsl import Matrix, evaluate, fetch
from query_dsl.stores.levels import SETTLE_MS
from tests.query_dsl.past_lists import PastLists
from tests.query_dsl.plain_store import PlainStore, Sample
from tests.query_dsl.pushing import Plain
from tests.query_dsl.test_pushdown import Told, fed_shards

END = 1_200
BASE = 2**53 + 1


@st.composite
def histories(draw: st.DrawFn, whole: bool = True) -> list[Sample]:
    """A counter of up to 5 lives, in order of time: births, gaps, and amounts beyond 2^53 are random."""
    out: list[Sample] = []
    time = draw(st.integers(1, 600))
    for life in range(draw(st.integers(1, 5))):
        earliest = -2_000 if life == 0 else out[-1].time
        # a successor may have started before the last sample of the one it follows
        births = st.integers(out[-1].birth + 1, earliest + 150) if life else st.integers(earliest, time)
        birth = draw(births)
        time = max(time, birth) + (draw(st.integers(0, 120)) if life else 0)
        value = draw(st.sampled_from([0, 1, 7, BASE]))
        for _ in range(draw(st.integers(1, 12))):
            if time > END:
                break
            out.append(Sample(time, value if whole else float(value % 1000) / 4, birth))
            time += draw(st.integers(1, 60) | st.integers(1, 400))
            value += draw(st.integers(0, 9))
        if time > END:
            break
    return out or [Sample(5, 1, 1)]


def first_step(window: list[Sample], older: Sample | None, s: int, gap: int) -> tuple[float | None, int]:
    """(what the first sample of the window adds, time of its predecessor); None: it has no predecessor."""
    x = window[0]
    recent = older is not None and older.time >= s - gap
    if recent and older is not None and older.birth == x.birth:
        return x.value - older.value, older.time  # type: ignore[operator]
    born_here = older is None or older.birth != x.birth
    if born_here and (recent or x.birth >= s - gap):
        # the birth is a sample 0: the predecessor itself if before the window, else what came before it
        before = older.time if recent and older is not None and not s - gap <= x.birth <= s else x.birth
        return x.value, before  # type: ignore[return-value]
    return None, x.time


def plain_increase(samples: list[Sample], s: int, t: int, gap: int) -> tuple[float | None, int, bool]:
    """(increase, milliseconds it took, whether the first sample has a predecessor) of the samples in (s, t]."""
    window = [x for x in samples if s < x.time <= t]
    if not window:
        return None, 0, True
    older = max((x for x in samples if x.time <= s), key=lambda x: x.time, default=None)
    total, start = first_step(window, older, s, gap)
    if total is None and len(window) == 1:
        return None, 0, False
    result = total or 0
    for before, x in pairwise(window):
        result += x.value - before.value if x.birth == before.birth else x.value  # type: ignore[operator]
    return result, window[-1].time - start, total is not None


def run(samples: list[Sample], step: int, function: str, window: int, gap: int, order: list[Sample]) -> Matrix:
    store = PlainStore(level_table=((step, 1_000),)).add("c", {}, order, Kind.COUNTER)
    store.add("c", {"other": "1"}, [Sample(END, 5, 1)], Kind.COUNTER)
    query = fetch("c").map(function, f"{window}ms", max_gap=f"{gap}ms").between(0, END)
    return evaluate(query, store, END + SETTLE_MS)


@given(histories(), st.sampled_from([10, 50, 200]), st.integers(1, 4), st.integers(1, 600), st.randoms())
@settings(max_examples=300, deadline=None)
def test_increase_equals_the_reference(samples: list[Sample], step: int, width: int, gap: int, random) -> None:  # type: ignore[no-untyped-def]
    """Exact in int64 at every step, whatever the order in which the store got the samples."""
    order = samples[:]
    random.shuffle(order)
    matrix = run(samples, step, "increase", width * step, gap, order)
    got = matrix.tolist(matrix.series.index("c"))
    for t, value in zip(matrix.times, got, strict=True):
        expected, _, known = plain_increase(samples, t - width * step, t, gap)
        if not known and lives_in_first_bucket(samples, t - width * step, t, step) > 1:
            continue  # buckets do not know the first value there; the answer says "approximate"
        assert value == expected, (t, gap)


def lives_in_first_bucket(samples: list[Sample], s: int, t: int, step: int) -> int:
    first = min(x.time for x in samples if s < x.time <= t)
    end = -(-first // step) * step
    return len({x.birth for x in samples if end - step < x.time <= end})


@given(histories(whole=False), st.sampled_from([10, 50]), st.integers(1, 4), st.integers(1, 600))
@settings(max_examples=150, deadline=None)
def test_rate_equals_the_reference(samples: list[Sample], step: int, width: int, gap: int) -> None:
    """Increase over the seconds from the first predecessor used to the last sample."""
    matrix = run(samples, step, "rate", width * step, gap, samples)
    for t, value in zip(matrix.times, matrix.tolist(matrix.series.index("c")), strict=True):
        expected, took, known = plain_increase(samples, t - width * step, t, gap)
        if not known:
            continue  # from buckets it starts at the last sample of the first bucket
        if expected is None or took <= 0:
            assert value is None
        else:
            assert value == pytest.approx(expected / (took / 1000), rel=1e-9)


@given(histories(), st.sampled_from([10, 50, 100]))
@settings(max_examples=100, deadline=None)
def test_adjacent_windows_add_up(samples: list[Sample], step: int) -> None:
    """Without a limit to gaps, the sum of single buckets is the increase of the whole."""
    single = run(samples, step, "increase", step, 10_000, samples)
    whole = run(samples, step, "increase", END, 10_000, samples)
    parts = [v for v in single.tolist(single.series.index("c")) if isinstance(v, int)]
    total = whole.tolist(whole.series.index("c"))[-1]
    if total is None:
        assert parts == []
    elif lives_in_first_bucket(samples, 0, END, step) == 1 and samples[0].birth >= -10_000:
        assert sum(parts) == total


@given(
    st.lists(st.tuples(st.integers(1, 60), st.integers(-(2**62), 2**62 - 1)), min_size=1, max_size=25),
    st.integers(1, 3),
)
@settings(max_examples=100, deadline=None)
def test_delta_is_the_difference_to_the_value_before(steps: list[tuple[int, int]], width: int) -> None:
    """One sample a bucket, no births: exact differences over the whole of int64."""
    samples: list[Sample] = []
    time = 0
    for wait, amount in steps:
        time += 10 * wait
        samples.append(Sample(time, amount, 0))
    end = time
    store = PlainStore(level_table=((10, 5_000),)).add("g", {}, samples)
    matrix = evaluate(fetch("g").delta(f"{10 * width}ms", max_gap="100s").between(0, end), store, end + SETTLE_MS)
    for t, value in zip(matrix.times, matrix.tolist(0), strict=True):
        window = [x for x in samples if t - 10 * width < x.time <= t]
        older = [x for x in samples if x.time <= t - 10 * width]
        chain = [int(x.value) for x in older[-1:] + window]
        assert value == (chain[-1] - chain[0] if window and len(chain) > 1 else None)


def test_difference_beyond_int64_is_a_double() -> None:
    """Differences outside int64 are DOUBLE, never wrapped."""
    store = PlainStore(level_table=((10, 50),)).add("g", {}, [(10, -(2**63)), (20, 2**63 - 1)])
    assert evaluate(fetch("g").delta().between(0, 20), store, 20 + SETTLE_MS).tolist(0) == [None, 2.0**64]


@pytest.mark.parametrize("step_ms", [60_000, 300_000, 900_000, 3_600_000])
def test_the_gap_of_buckets_follows_the_step_of_the_answer(step_ms: int) -> None:
    """A value 20 minutes before the bucket is its predecessor at every level; one 2 h 20 min before is not."""
    hour = 3_600_000
    for before_ms, increase in [(20 * 60_000, 55), (140 * 60_000, 5)]:
        store = PlainStore(level_table=((step_ms, 10 * hour // step_ms),))
        store.add("c", {}, [(4 * hour - before_ms, 100), (5 * hour - 60_000, 150), (5 * hour, 155)], Kind.COUNTER)
        query = fetch("c").bucketize("increase", "1h").between(4 * hour, 5 * hour)
        assert evaluate(query, store, 5 * hour + SETTLE_MS).tolist(0) == [increase]


HOUR = 3_600_000
T = 500_000 * HOUR
DOUBT = "points are approximate"


def counter(*samples: tuple[int, int]) -> list[Told]:
    """(minutes before T, value) of a counter that is older than all of them."""
    told = tuple((T - before * 60_000, 0, value) for before, value in samples)
    return [Told("c", (), Kind.COUNTER, told, "s0", 0)]


def test_a_rate_that_wide_buckets_hide_is_counted_as_approximate() -> None:
    """Buckets of an hour know neither the time of the first sample, nor how much it grew from it."""
    told = counter(*((60 - i, i) for i in range(1, 60)))
    for store in (fed_shards(told, 1), Plain(fed_shards(told, 1))):
        for query in (
            "fetch('c').bucketize('rate', '1h', min_count={})",
            "fetch('c').map('rate', '1h', min_count={}).sum(by=[])",
        ):
            for least, doubts in ((1, 1), (100, 0)):
                found = evaluate(f"{query.format(least)}.between({T - 30 * HOUR}, {T})", store, T + SETTLE_MS)
                assert found.tolist(0)[-1] is None
                assert sum(DOUBT in note for note in found.notes) == doubts
    assert evaluate("fetch('c').rate('50m').at('now')", store, T + SETTLE_MS).tolist(0) == [1 / 60]


def test_a_value_before_the_window_that_memory_does_not_hold_is_told() -> None:
    """Buckets of a minute reach 77 minutes back; the history has all of the gap."""
    query = "fetch('c').increase('30m', max_gap='2h').at('now')"
    for before, memory_knows in ((50, True), (100, False)):
        told = counter((before, 7), (10, 8), (5, 10))
        memory = fed_shards(told, 1)
        found = evaluate(query, memory, T + SETTLE_MS)
        assert found.tolist(0) == [3 if memory_knows else 2]
        assert any(DOUBT in note and "memory lacks" in note for note in found.notes) == (not memory_knows)
        past = evaluate(query, PastLists(told, memory.levels()), T + SETTLE_MS)
        assert past.tolist(0) == [3]
        assert not any(DOUBT in note for note in past.notes)


def test_shards_answer_partial_windows_like_the_evaluator() -> None:
    told = counter(*((60 * i, 100 - i) for i in reversed(range(70))))
    for store in (fed_shards(told, 1), Plain(fed_shards(told, 1))):
        found = evaluate("fetch('c').increase('10d').sum(by=[]).at('now')", store, T + SETTLE_MS, partial_windows=True)
        assert found.tolist(0) == [69.0]
