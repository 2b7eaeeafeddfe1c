"""Decision logic without I/O, clock or threads: ledger, standings, restarts, progress."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.flows.channels.branch_ledger import BranchLedger, BranchPolicy
from pipeline.flows.groups.choice_group import SinkHealth, by_priority, by_turn, least_loaded
from pipeline.flows.runtime.flow_runners import MAX_RESTART_S, RestartBackoff, StallDetector

STEPS = st.lists(
    st.tuples(st.sampled_from(["add", "take", "commit", "rollback", "shed"]), st.integers(0, 2), st.integers(1, 4)),
    max_size=80,
)
NAMES = ("a", "b", "c")
BEHIND = 5


@given(STEPS)
@settings(max_examples=150)
def test_a_ledger_agrees_with_a_simple_model(steps: list[tuple[str, int, int]]) -> None:
    """Each branch sees each item once unless it is rolled back, in order; an item is free exactly when every branch is
    done with it; c is optional and its backlog never exceeds BEHIND items of size 1."""
    policies = {"a": BranchPolicy(), "b": BranchPolicy(), "c": BranchPolicy(required=False, behind_bytes=BEHIND)}
    ledger: BranchLedger[int] = BranchLedger(policies)
    wants: dict[str, list[int]] = {name: [] for name in NAMES}
    out: dict[str, list[int]] = {name: [] for name in NAMES}
    free: set[int] = set()
    settled: set[int] = set()
    added = 0
    for step, which, count in steps:
        name = NAMES[which]
        if step == "add":
            assert ledger.add(added, 1) == added
            for wanted in wants.values():
                wanted.append(added)
            added += 1
        elif step == "take":
            taken = [number for number, _ in ledger.take(name, count, 100)]
            assert taken == [n for n in wants[name] if n not in out[name]][:count]
            out[name] += taken
        elif step == "commit":
            done, out[name] = out[name][:count], out[name][count:]
            wants[name] = [n for n in wants[name] if n not in done]
            free.update(ledger.commit(name, done))
            settled.update(ledger.take_settled())
        elif step == "rollback":
            back, out[name] = out[name][-count:], out[name][:-count]
            ledger.rollback(name, back)
        else:
            free.update(ledger.shed())
            wants["c"] = wants["c"][-BEHIND:]
            out["c"] = [n for n in out["c"] if n in wants["c"]]
        held = set().union(*wants.values())
        assert free == set(range(added)) - held
        assert settled == set(range(added)) - set(wants["a"]) - set(wants["b"])
        assert ledger.used_bytes == len(ledger) == len(held)
        assert ledger.held_bytes == ledger.held_count == len(set(wants["a"]) | set(wants["b"]))
        for one in NAMES:
            assert ledger.cursor(one) == min(wants[one], default=added)
            assert ledger.waiting(one) == len(wants[one]) - len(out[one])


def test_a_take_is_bounded_by_bytes_but_never_empty() -> None:
    ledger: BranchLedger[str] = BranchLedger()
    for size in (50, 5, 5, 5):
        ledger.add("x", size)
    assert [n for n, _ in ledger.take("", 10, 10)] == [0]
    assert [n for n, _ in ledger.take("", 10, 10)] == [1, 2]
    ledger.rollback_all()
    assert [n for n, _ in ledger.take("", 3, 100)] == [0, 1, 2]


def test_healthy_sinks_are_tried_before_failed_ones() -> None:
    near, far = SinkHealth("near"), SinkHealth("far")
    assert [s.name for s in by_priority([near, far], 0.0)] == ["near", "far"]
    near.record_failure(0.0)
    assert by_priority([near, far], 0.0) == [far]
    assert by_priority([near, far], near.not_before) == [near, far]
    assert by_turn([near, far], 100.0, 1) == [far, near]
    near.record_success(0.5, 100.0)
    far.record_success(0.1, 100.0)
    assert least_loaded([near, far], 100.0, 0) == [far, near]
    far.busy = True
    assert least_loaded([near, far], 100.0, 0) == [near]


def test_fault_12_slow_sinks_are_used_after_the_others() -> None:
    near, far = SinkHealth("near"), SinkHealth("far")
    near.record_success(3.0, 10.0, slow_s=2.0)
    assert by_priority([near, far], 10.0) == [far]
    assert near.total_failures == 0
    near.record_success(1.0, 20.0, slow_s=2.0)
    assert by_priority([near, far], 20.0) == [near, far]


def test_restart_delays_grow_and_reset_after_a_calm_time() -> None:
    restarts, now, pauses = RestartBackoff(), 0.0, []
    for _ in range(30):
        assert restarts.is_due(now)
        restarts.record_death(now)
        pauses.append(round(restarts.not_before - now, 6))
        now = restarts.not_before
    assert pauses[0] > 0
    assert pauses == sorted(pauses)
    assert pauses[-1] == MAX_RESTART_S
    restarts.record_death(now + 1000)
    assert (restarts.in_a_row, restarts.deaths) == (1, 31)


def test_each_standstill_raises_one_alarm() -> None:
    progress = StallDetector(10.0)
    assert progress.stalled_s(100.0) == 0.0  # it waits for work
    progress.begin(100.0)
    assert progress.stalled_s(110.0) == 0.0
    assert progress.stalled_s(111.0) == 11.0
    assert progress.stalled_s(120.0) == 20.0
    progress.advanced(120.0)
    assert progress.stalled_s(130.0) == 0.0
    assert progress.stalled_s(131.0) == 11.0
    progress.end()
    progress.advanced(500.0)
    assert progress.stalled_s(600.0) == 0.0
    assert progress.alarms == 2
