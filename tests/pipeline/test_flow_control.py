"""Credits, pacing, live data first and slow collectors: pure decisions under the test's own clock."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from artimon.model.ack_state import Position
from artimon.model.batch import MAX_BYTES, BatchHeader
from artimon.model.batch_codec import parse_header
from bookkeeper.rpc.framed_server import ByteBudget
from pipeline.collector.collector import MAX_BYTES_IN_FLIGHT
from pipeline.delivery.backlog_limiter import BACKLOG_AGE_MS, BacklogLimiter, MiB
from pipeline.delivery.delivery_delays import MAX_SOURCES, OTHER_SOURCES, DelayHistogram, DeliveryDelays
from pipeline.delivery.send_planner import MAX_IDLE_S, PlannedCall
from pipeline.delivery.tracker import LaneCall, Tracker
from pipeline.link.answers import MessageAnswer
from pipeline.link.collector_choice import Collectors
from pipeline.link.collector_link import ALTERNATIVE_DEADLINE_S, SLOW_FOR_S, SLOW_S
from pipeline.link.credits import MIN_CREDIT_BYTES, NO_CREDIT_INFO, AgentCredits, CollectorCredits
from pipeline.wal.state_records import LogPosition
from tests.pipeline.test_scenarios import batch
from tests.pipeline.transit import ONE, TWO, Transit

KIB = 1024


def test_the_free_bytes_are_shared_among_recent_callers() -> None:
    shares = CollectorCredits(64 * MiB)
    assert shares.share("a", 0.0) == 64 * MiB
    assert shares.share("b", 1.0) == 32 * MiB
    assert shares.share("a", 2.0) == 32 * MiB
    assert shares.share("a", 11.5) == 64 * MiB, "b has been silent for ten seconds"
    assert [shares.share(f"agent-{n}", 12.0) for n in range(200)][-1] == MIN_CREDIT_BYTES, (
        "any message fits, with any number of agents"
    )
    assert shares.agents == 201


def test_credit_before_the_first_answer_after_it_and_after_silence() -> None:
    credits: AgentCredits[str] = AgentCredits()
    assert credits.room("c") == MIN_CREDIT_BYTES
    credits.reserve("c", 700 * KIB)
    assert credits.room("c") == MIN_CREDIT_BYTES - 700 * KIB
    credits.reserve("c", 324 * KIB)
    credits.settle("c", 700 * KIB, 8 * MiB)
    assert credits.room("c") == 8 * MiB - 324 * KIB
    credits.settle("c", 324 * KIB, None)
    assert credits.room("c") == MIN_CREDIT_BYTES, "credit shrinks without an answer"
    credits.settle("c", 0, NO_CREDIT_INFO)
    assert credits.room("c") > 1 << 60, "a collector version without credits"
    credits.retain(set())
    assert credits.room("c") == MIN_CREDIT_BYTES


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans(), st.integers(1, 9)), min_size=1, max_size=80))
def test_bytes_in_flight_never_exceed_the_credit(steps: list[tuple[int, bool, int]]) -> None:
    """Calls begin and answers arrive in any order, with changing credits: at the beginning of each call the bytes in
    flight are at most the last credit."""
    transit = Transit()
    for n in range(60):
        place = LogPosition(1, n, 300 * KIB)
        transit.sending.tracker.add(_header(n % 4, n), place, transit.ms)
    flying: list[PlannedCall] = []
    credit = MIN_CREDIT_BYTES
    for pick, ends, share in steps:
        if ends and flying:
            call = flying.pop(pick % len(flying))
            credit = share * MIN_CREDIT_BYTES
            answers = [MessageAnswer(Position("c", "t", 0, n), credit=credit) for n, _ in enumerate(call.group.items)]
            transit.sending.apply_answers(call, answers, transit.now)
        group = transit.take()
        if isinstance(group, LaneCall):
            call_of = transit.sending.begin(group, transit.now)
            assert call_of is not None
            flying.append(call_of)
            assert sum(one.group.size for one in flying) <= credit
        transit.now += 0.01


def _header(lane: int, sequence: int) -> BatchHeader:
    return parse_header(batch(sequence, lane=lane))


def test_a_used_up_credit_waits_for_an_answer_not_for_a_timeout() -> None:
    transit = Transit()
    for n in range(8):
        transit.sending.tracker.add(_header(n % 4, n), LogPosition(1, n, 500 * KIB), transit.ms)
    group = transit.take()
    assert group is not None
    assert group.size == 1000 * KIB
    transit.now += 30
    assert transit.take() is None
    assert transit.sending.link.bytes_in_flight == 1000 * KIB


def test_the_byte_budget_of_a_server_is_first_come_first_served() -> None:
    budget, order = ByteBudget(100), list[int]()
    assert budget.reserve(90, 0.1)
    assert not budget.reserve(20, 0.05)

    def want(number: int, size: int) -> None:
        assert budget.reserve(size, 10)
        order.append(number)

    threads = []
    for number, size in enumerate((60, 5, 300)):
        threads.append(threading.Thread(target=want, args=(number, size)))
        threads[-1].start()
        while budget.waiting <= number:
            pass
    assert order == [], "small requests do not overtake"
    budget.release(90)
    threads[0].join(60)
    threads[1].join(60)
    assert sorted(order) == [0, 1]
    budget.release(65)
    threads[2].join(60)
    assert order[2:] == [2], "more than the limit goes alone"


def test_a_backlog_goes_at_its_rate_and_at_least_twice_as_fast_as_new_data_comes() -> None:
    pacing = BacklogLimiter(rate=10 * MiB)
    sent, now = 0, 0.0
    while now < 60:
        room = pacing.available(now, 0.0)
        if room > 0:
            pacing.consume(4 * MiB)
            sent += 4 * MiB
        now += 0.05
    assert 9.5 * 60 * MiB < sent < 10.7 * 60 * MiB
    for _ in range(3_000):
        pacing.count_new(MiB)
        pacing.available(now, 0.0)
        now += 0.05
    assert pacing._rate_now() > 30 * MiB, "20 MiB a second come"


def test_a_backlog_is_slowed_while_the_table_is_behind() -> None:
    pacing = BacklogLimiter(rate=16 * MiB)
    assert pacing.available(0.0, 0.0) == 16 * MiB, "a restart begins at once"
    assert pacing.available(1.0, 44.0) == 16 * MiB
    assert pacing.available(2.0, 46.0) == MiB
    assert pacing.is_trickling
    pacing.consume(2 * MiB)
    assert pacing.until_token_s() == pytest.approx(1.0, abs=0.01)


def test_without_a_rate_a_backlog_is_not_paced() -> None:
    assert BacklogLimiter(rate=0).available(0.0, 1e9) > 1 << 60


def backlog(live_first: bool, rate: float) -> Transit:
    """One hour of undelivered batches of a lane, one a second."""
    transit = Transit(tracker=Tracker(ack_on_sent=True, live_first=live_first))
    transit.sending.limiter.rate = rate
    for n in range(600):
        transit.accept(batch(n), now_ms=transit.ms - 3_600_000 + n * 1000)
    return transit


def drain(transit: Transit, seconds: float) -> dict[int, float]:
    """Add a batch every second; return the delay of each until Kafka has it."""
    came, took, next_ = dict[int, float](), dict[int, float](), 600
    until = transit.now + seconds
    while transit.now < until:
        if transit.now >= len(came):
            transit.accept(batch(next_))
            came[next_] = transit.now
            next_ += 1
        group = transit.take()
        begun = transit.begin(group) if group is not None else None
        if begun is None:
            transit.now += 0.05
            continue
        for item in transit.answer(*begun).done:
            if item.id.sequence in came:
                took[item.id.sequence] = transit.now - came[item.id.sequence]
    return took


def test_live_data_first_is_not_delayed_by_a_paced_backlog_which_stays_in_order() -> None:
    size = len(batch(0))
    transit = backlog(True, rate=10 * size)
    took = drain(transit, 80)
    assert len(took) >= 79
    assert max(took.values()) < 1.0, "new data overtakes what has waited for an hour"
    order = [id.sequence for id in transit.store.ids()]
    assert [n for n in order if n < 600] == list(range(600)), "the backlog in its order, all of it"
    assert [n for n in order if n >= 600] == sorted(n for n in order if n >= 600)
    assert len(order) == len(set(order))


def test_without_live_first_new_data_waits_for_the_backlog() -> None:
    size = len(batch(0))
    transit = backlog(False, rate=10 * size)
    took = drain(transit, 100)
    assert max(took.values()) > 10
    assert max(took.values()) < BACKLOG_AGE_MS / 1000 + 10
    assert [id.sequence for id in transit.store.ids()] == sorted(id.sequence for id in transit.store.ids())


def test_failed_batches_keep_their_place_among_live_and_old() -> None:
    transit = backlog(True, rate=0)
    for n in range(5):
        transit.accept(batch(600 + n))
    group = transit.take()
    assert group is not None
    assert [item.id.sequence for item in group.items] == [600, 601, 602, 603, 604]
    begun = transit.begin(group)
    assert begun is not None
    transit.sending.call_unanswered(begun[0], transit.now, late=False)
    transit.run()
    order = [id.sequence for id in transit.store.ids()]
    assert order[:5] == [600, 601, 602, 603, 604]
    assert order[5:] == list(range(600))


def two_collectors() -> Transit:
    transit = Transit()
    transit.sending.collectors.update({"one": ONE, "two": TWO})
    for n in range(40):
        transit.accept(batch(n, lane=n % 4))
    return transit


def begin(transit: Transit) -> tuple[PlannedCall, list[bytes]]:
    group = transit.take()
    assert group is not None
    begun = transit.begin(group)
    assert begun is not None
    return begun


def test_a_slow_collector_is_left_for_another_before_its_call_times_out() -> None:
    transit = two_collectors()
    call, _ = begin(transit)
    assert call.reservation.deadline_s == ALTERNATIVE_DEADLINE_S, "another collector is available"
    transit.now += SLOW_S + 0.1
    other, _ = begin(transit)
    assert other.reservation.endpoint != call.reservation.endpoint
    assert transit.sending.link.slow_count == 1
    transit.now += SLOW_FOR_S + 1
    transit.sending.call_unanswered(call, transit.now - SLOW_FOR_S, late=True)
    assert transit.sending.collectors.count_healthy() == 1


def test_a_collector_that_cannot_reach_kafka_is_left_for_another() -> None:
    transit = two_collectors()
    call, _ = begin(transit)
    transit.sending.apply_answers(call, [MessageAnswer(None, "kafka: no answer")] * len(call.group.items), transit.now)
    assert begin(transit)[0].reservation.endpoint != call.reservation.endpoint


def test_a_failed_collector_is_probed_with_one_call_while_the_rest_goes_elsewhere() -> None:
    transit = two_collectors()
    call, _ = begin(transit)
    transit.sending.call_unanswered(call, transit.now, late=True)
    transit.now += 60
    tried = [begin(transit)[0].reservation.endpoint for _ in range(4)]
    assert tried.count(call.reservation.endpoint) == 1


def test_the_only_collector_is_used_however_slow() -> None:
    transit = Transit()
    for n in range(8):
        transit.accept(batch(n, lane=n % 4))
    call, messages = begin(transit)
    assert call.reservation.deadline_s == 15.0
    transit.now += 12
    transit.answer(call, messages)
    assert begin(transit)[0].reservation.endpoint == call.reservation.endpoint


def test_lanes_do_not_poll_while_no_collector_may_be_tried() -> None:
    """A lane thread sleeps until a collector is known or its pause ends; polling fifty times a second costs a core."""
    transit = Transit()
    for n in range(8):
        transit.accept(batch(n, lane=n % 4))
    call, _ = begin(transit)
    pauses = []
    for _ in range(6):
        transit.sending.call_unanswered(call, transit.now, late=False, reached=False)
        wait = transit.sending.next_call(transit.now, transit.ms)
        assert isinstance(wait, float)
        pauses.append(wait)
        transit.now += 20
        call, _ = begin(transit)
    assert pauses == pytest.approx([0.2, 0.4, 0.8, 1.0, 1.0, 1.0])
    assert transit.sending.link.carried_bytes == call.reservation.size, "calls without a connection send nothing"
    nobody = Transit()
    nobody.sending.link.collectors = Collectors("agent-1")
    nobody.accept(batch(0))
    assert nobody.sending.next_call(0.0, nobody.ms) == MAX_IDLE_S
    nobody.sending.collectors.update({"one": ONE})
    nobody.sending.collectors.prefer(("other",))
    assert nobody.sending.next_call(0.0, nobody.ms) == MAX_IDLE_S
    nobody.sending.collectors.prefer(())
    assert isinstance(nobody.sending.next_call(0.0, nobody.ms), LaneCall)


def test_wait_histograms_have_20_percent_resolution_and_bounded_sources() -> None:
    waits = DelayHistogram()
    for n in range(1, 1001):
        waits.add(n)
    assert waits.total_ms == 500_500
    assert 500 <= waits.quantile_ms(0.5) <= 600
    assert 990 <= waits.quantile_ms(0.99) <= 1200
    assert DelayHistogram().quantile_ms(0.5) == 0
    ages = DeliveryDelays()
    ages.record_acks(((f"source-{n}", 0, 10) for n in range(500)), 30)
    assert len(ages.lag_ms) == MAX_SOURCES + 1
    assert ages.lag_ms[OTHER_SOURCES] == 30
    assert ages.figures()["ack_waits_ms"] == 500 * 20


def test_the_smallest_credit_admits_any_message() -> None:
    assert MIN_CREDIT_BYTES >= MAX_BYTES
    assert MAX_BYTES_IN_FLIGHT >= MIN_CREDIT_BYTES
