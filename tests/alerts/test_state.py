"""The state machine: a table of single steps, and random histories against a plain reference."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alerts.state.alert import (
    MAX_GAP_MS,
    SHOWN_MS,
    Alert,
    AlertChange,
    AlertPhase,
    AlertVerdict,
    Outcome,
    next_state,
)
from alerts.state.rule import FlapLimit

MINUTE = 60_000
NOW = 100 * MINUTE
BAD, WELL = AlertVerdict(Outcome.TRUE, 0), AlertVerdict(Outcome.FALSE, 1)
BETWEEN, KEEP = AlertVerdict(Outcome.BETWEEN, 1), AlertVerdict(Outcome.KEEP)
PENDING = Alert(AlertPhase.PENDING, NOW - MINUTE, NOW - MINUTE, NOW - MINUTE, 0)
FIRING = Alert(AlertPhase.FIRING, NOW - 2 * MINUTE, NOW - MINUTE, NOW - MINUTE, 0, fired_ms=NOW - MINUTE)
RESOLVED = Alert(AlertPhase.RESOLVED, 1, 1, 1, 1, fired_ms=2, resolved_ms=NOW - MINUTE)


@pytest.mark.parametrize(
    ("before", "verdict", "hold", "phase", "change"),
    [
        pytest.param(None, WELL, 0, None, None, id="well_stays_well"),
        pytest.param(None, KEEP, 0, None, None, id="nothing_known_of_nothing"),
        pytest.param(None, BETWEEN, 0, None, None, id="between_does_not_begin"),
        pytest.param(None, BAD, MINUTE, AlertPhase.PENDING, None, id="first_true_waits"),
        pytest.param(None, BAD, 0, AlertPhase.FIRING, AlertChange.FIRING, id="without_for_it_fires_at_once"),
        pytest.param(PENDING, BAD, MINUTE, AlertPhase.FIRING, AlertChange.FIRING, id="held_long_enough"),
        pytest.param(PENDING, BAD, MINUTE + 1, AlertPhase.PENDING, None, id="not_yet"),
        pytest.param(PENDING, WELL, MINUTE, None, None, id="one_false_deletes_pending"),
        pytest.param(PENDING, BETWEEN, MINUTE, None, None, id="between_deletes_pending"),
        pytest.param(PENDING, KEEP, 0, AlertPhase.PENDING, None, id="without_data_pending_never_fires"),
        pytest.param(FIRING, BAD, 0, AlertPhase.FIRING, None, id="fires_on_without_a_word"),
        pytest.param(FIRING, BETWEEN, 0, AlertPhase.FIRING, None, id="not_recovered_yet"),
        pytest.param(FIRING, KEEP, 0, AlertPhase.FIRING, None, id="kept"),
        pytest.param(FIRING, WELL, 0, AlertPhase.RESOLVED, AlertChange.RESOLVED, id="resolves"),
        pytest.param(RESOLVED, WELL, 0, AlertPhase.RESOLVED, None, id="shown_for_a_while"),
        pytest.param(RESOLVED, BAD, 0, AlertPhase.FIRING, AlertChange.FIRING, id="fires_anew"),
        pytest.param(RESOLVED, BAD, MINUTE, AlertPhase.PENDING, None, id="waits_anew"),
    ],
)
def test_one_step(
    before: Alert | None, verdict: AlertVerdict, hold: int, phase: AlertPhase | None, change: AlertChange | None
) -> None:
    after, told = next_state(before, verdict, NOW, hold)
    assert (after.phase if after else None, told) == (phase, change)


def test_what_resolved_is_forgotten_in_time() -> None:
    assert next_state(RESOLVED, WELL, RESOLVED.resolved_ms + SHOWN_MS - 1, 0)[0] == RESOLVED
    assert next_state(RESOLVED, WELL, RESOLVED.resolved_ms + SHOWN_MS, 0) == (None, None)


def test_for_goes_on_over_a_gap_but_not_over_a_long_one() -> None:
    alert, change = next_state(PENDING, BAD, PENDING.true_ms + MAX_GAP_MS, 2 * MINUTE)
    assert (change, alert and alert.since_ms) == (AlertChange.FIRING, PENDING.since_ms)
    later = PENDING.true_ms + MAX_GAP_MS + MINUTE
    alert, change = next_state(PENDING, BAD, later, 2 * MINUTE)
    assert (change, alert and alert.since_ms) == (None, later)


def test_a_clock_that_went_back_makes_nothing_negative() -> None:
    alert, change = next_state(PENDING, BAD, PENDING.since_ms - 10 * MINUTE, 5 * MINUTE)
    assert change is None
    assert alert is not None
    assert alert.since_ms == PENDING.since_ms - 10 * MINUTE


FLAPS = FlapLimit(ends=3, within_ms=60 * MINUTE)


def changes(verdicts: list[AlertVerdict], hold_ms: int = 0) -> list[tuple[int, AlertChange]]:
    """Minute and change of an alert with a verdict a minute."""
    alert, found = None, []
    for minute, verdict in enumerate(verdicts):
        alert, change = next_state(alert, verdict, NOW + minute * MINUTE, hold_ms, 0, FLAPS)
        found += [(minute, change)] if change else []
    return found


def test_an_alert_that_flaps_fires_until_it_has_been_well_for_the_whole_time() -> None:
    told = changes([BAD, WELL] * 20 + [WELL] * 70)
    assert [one for _, one in told] == [AlertChange.FIRING, AlertChange.RESOLVED] * 4
    assert told[6:] == [(6, AlertChange.FIRING), (39 + 60, AlertChange.RESOLVED)]


def test_after_it_was_calm_an_alert_may_end_as_often_again() -> None:
    calm_and_again = changes([BAD, WELL] * 4 + [WELL] * 70 + [BAD, WELL] * 3 + [WELL])
    assert [one for _, one in calm_and_again] == [AlertChange.FIRING, AlertChange.RESOLVED] * 7


def test_ends_count_within_the_time_only() -> None:
    assert len(changes(([BAD] + [WELL] * 25) * 10)) == 20


def test_ends_survive_a_firing_that_was_never_told() -> None:
    waits = [BAD, BAD, WELL, BAD, WELL]  # fires, then is pending for a minute
    told = changes(waits * 3 + [BAD, BAD, WELL, WELL], hold_ms=MINUTE)
    assert [one for _, one in told] == [AlertChange.FIRING, AlertChange.RESOLVED] * 3 + [AlertChange.FIRING]


def test_times_and_values_of_a_life() -> None:
    alert, _ = next_state(None, AlertVerdict(Outcome.TRUE, 3), 10 * MINUTE, 2 * MINUTE)
    alert, _ = next_state(alert, AlertVerdict(Outcome.TRUE, 4), 11 * MINUTE, 2 * MINUTE)
    alert, change = next_state(alert, AlertVerdict(Outcome.TRUE, 5), 12 * MINUTE, 2 * MINUTE)
    assert change is AlertChange.FIRING
    assert alert is not None
    assert (alert.since_ms, alert.fired_ms, alert.value) == (10 * MINUTE, 12 * MINUTE, 5)
    alert, _ = next_state(alert, KEEP, 13 * MINUTE, 0)
    assert alert is not None
    assert (alert.value, alert.data_ms) == (5, 12 * MINUTE)
    alert, change = next_state(alert, AlertVerdict(Outcome.FALSE, 9, ""), 14 * MINUTE, 0)
    assert alert is not None
    assert (change, alert.resolved_ms, alert.value) == (AlertChange.RESOLVED, 14 * MINUTE, 9)


def test_an_alert_fires_on_for_keep_firing_for() -> None:
    """The clock starts at the first evaluation that is false; true clears it, and the last true value is shown."""
    keep, alert = 2 * MINUTE, FIRING
    history = [WELL, WELL, BAD, WELL, KEEP, WELL]
    for minute, verdict in enumerate(history):
        found, change = next_state(alert, verdict, NOW + minute * MINUTE, 0, keep)
        if minute == len(history) - 1:
            break
        assert found is not None
        assert (found.phase, change) == (AlertPhase.FIRING, None), minute
        if verdict is WELL:
            assert found.value == FIRING.value
        alert = found
    assert found is not None
    assert (found.phase, change, found.value) == (AlertPhase.RESOLVED, AlertChange.RESOLVED, 1)
    assert next_state(replace(PENDING), WELL, NOW, MINUTE, keep) == (None, None), "only an alert that fires"


@dataclass
class Plain:
    """The rules of client_alerts in the plainest words: since when it holds, and whether it was told."""

    since: int = -1
    firing: bool = False
    keep: int = 0
    missed: int = -1

    def feed(self, says: Outcome, now: int, hold: int) -> str:
        if says is Outcome.FALSE and self.firing and self.keep:
            self.missed = now if self.missed < 0 else self.missed
            if now - self.missed < self.keep:
                return ""
        if says is Outcome.TRUE:
            self.missed = -1
            self.since = now if self.since < 0 else self.since
            if not self.firing and now - self.since >= hold:
                self.firing = True
                return "firing"
        elif says is Outcome.FALSE or (says is Outcome.BETWEEN and not self.firing):
            was, self.firing, self.since, self.missed = self.firing, False, -1, -1
            return "resolved" if was else ""
        return ""


@given(st.lists(st.sampled_from(Outcome), max_size=40), st.integers(0, 4), st.integers(0, 3))
def test_random_histories_change_as_the_reference_does(
    history: list[Outcome], hold_minutes: int, keep_minutes: int
) -> None:
    """Each transition is told once: never two of a kind in a row, the first one fires."""
    alert: Alert | None = None
    plain = Plain(keep=keep_minutes * MINUTE)
    told = []
    for minute, says in enumerate(history, 1):
        hold_ms, keep_ms = hold_minutes * MINUTE, keep_minutes * MINUTE
        alert, change = next_state(alert, AlertVerdict(says, 1), minute * MINUTE, hold_ms, keep_ms)
        assert (change or "") == plain.feed(says, minute * MINUTE, hold_minutes * MINUTE)
        assert (alert is not None and alert.phase is AlertPhase.FIRING) == plain.firing
        told += [change] if change else []
    assert told == [AlertChange.FIRING, AlertChange.RESOLVED] * (len(told) // 2) + [AlertChange.FIRING] * (
        len(told) % 2
    )
