"""pipeline.control.rollout: desired against running versions, with any order of pushes, faults, crashes and outages."""

from __future__ import annotations

import json

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pipeline.control import rollout as decide
from pipeline.control.config_document import canonical
from pipeline.control.rollout import (
    MAX_ATTEMPTS,
    NO_CONFIGURATION,
    PROBATION_S,
    Layer,
    RolloutAction,
    RolloutState,
    VersionId,
)

SCOPES = ("group/default", "agent/a")
BAD = 1 << 20
"""Values from here on break the agent that runs them; odd ones among them end its process."""


def layer(scope: str, number: int, value: int, lineage: str = "l") -> Layer:
    """Version whose document holds `value`."""
    return Layer(VersionId(scope, lineage, number), canonical({"metrics": {"credits": value}}))


def values(configuration: decide.Configuration) -> list[int]:
    return [json.loads(one.text)["metrics"]["credits"] for one in configuration.layers]


def settle(state: RolloutState, now: float = 0.0) -> tuple[RolloutState, float]:
    """Run all pending steps without faults."""
    for _ in range(10):
        step = decide.next_step(state, SCOPES, now, "")
        if step.act is RolloutAction.TRY:
            state = decide.after_begin(state, step.target, now)
        elif step.act is RolloutAction.CONFIRM:
            state = decide.after_success(state)
        elif step.act is RolloutAction.GO_BACK:
            state = decide.after_rollback(state, step.reason)
        elif state.trial is None:
            break
        now += PROBATION_S / 2
    return state, now


def test_a_new_version_is_tried_and_becomes_the_good_one() -> None:
    state = decide.with_layers(RolloutState(), {"agent/a": layer("agent/a", 1, 7)})
    step = decide.next_step(state, SCOPES, 0.0, "")
    assert (step.act, values(step.target)) == (RolloutAction.TRY, [7])
    state = decide.after_begin(state, step.target, 0.0)
    assert decide.next_step(state, SCOPES, PROBATION_S - 1, "").act is RolloutAction.NOTHING
    assert decide.next_step(state, SCOPES, PROBATION_S, "").act is RolloutAction.CONFIRM
    assert decide.after_success(state).last_good == step.target


def test_a_fault_during_the_trial_brings_the_last_good_one_back_for_good() -> None:
    state, now = settle(decide.with_layers(RolloutState(), {"agent/a": layer("agent/a", 1, 7)}))
    state = decide.with_layers(state, {"agent/a": layer("agent/a", 2, 8)})
    state = decide.after_begin(state, decide.next_step(state, SCOPES, now, "").target, now)
    step = decide.next_step(state, SCOPES, now + 1, "a flow does not start")
    assert step.act is RolloutAction.GO_BACK
    state = decide.after_rollback(state, step.reason)
    assert values(state.running) == [7]
    assert decide.next_step(state, SCOPES, now + 2, "").act is RolloutAction.NOTHING, "it is not tried again"
    state = decide.with_layers(state, {"agent/a": layer("agent/a", 3, 9)})
    assert decide.next_step(state, SCOPES, now + 3, "").act is RolloutAction.TRY, "a newer one is"


def test_outages_and_older_versions_change_nothing() -> None:
    state, now = settle(decide.with_layers(RolloutState(), {"agent/a": layer("agent/a", 5, 7)}))
    for found in ({}, {"agent/a": layer("agent/a", 4, 1)}):
        after = decide.with_layers(state, found)
        assert decide.next_step(after, SCOPES, now, "").act is RolloutAction.NOTHING
    assert "older than the known version 5" in decide.with_layers(state, {"agent/a": layer("agent/a", 4, 1)}).stale
    anew = decide.with_layers(state, {"agent/a": layer("agent/a", 1, 1, lineage="after a wipe")})
    assert decide.next_step(anew, SCOPES, now, "").act is RolloutAction.TRY


def test_a_version_that_ends_the_process_is_refused_after_some_attempts() -> None:
    state, now = settle(decide.with_layers(RolloutState(), {"agent/a": layer("agent/a", 1, 7)}))
    state = decide.with_layers(state, {"agent/a": layer("agent/a", 2, 8)})
    state = decide.after_begin(state, decide.next_step(state, SCOPES, now, "").target, now)
    for _ in range(MAX_ATTEMPTS - 1):
        state = decide.after_restart(decide.from_json(decide.to_json(state)), 0.0)
        assert values(state.running) == [8]
    state = decide.after_restart(decide.from_json(decide.to_json(state)), 0.0)
    assert values(state.running) == [7]
    assert "ended" in state.reason
    assert decide.next_step(state, SCOPES, 1.0, "").act is RolloutAction.NOTHING


class World(RuleBasedStateMachine):
    """Agent that saves its state before each action, with pushes, outages of ZooKeeper, harmful versions and crashes
    at any point."""

    @initialize()
    def begin(self) -> None:
        self.state, self.disk, self.now = RolloutState(), decide.to_json(RolloutState()), 0.0
        self.zookeeper: dict[str, Layer] = {}
        self.lineage = 0
        self.live: list[int] = []
        self.good: list[int] = []
        self.ends_since_trial = 0
        self.broke: set[tuple[VersionId, ...]] = set()

    def _stamps(self, configuration: decide.Configuration) -> tuple[VersionId, ...]:
        return tuple(one.stamp for one in configuration.layers)

    @rule(scope=st.sampled_from(SCOPES), value=st.one_of(st.integers(0, 5), st.integers(BAD, BAD + 1)))
    def push(self, scope: str, value: int) -> None:
        old = self.zookeeper.get(scope)
        self.zookeeper[scope] = layer(scope, old.stamp.number + 1 if old else 1, value, f"l{self.lineage}")

    @rule()
    def zookeeper_is_wiped(self) -> None:
        self.zookeeper, self.lineage = {}, self.lineage + 1

    @rule()
    def look(self) -> None:
        self.state = decide.with_layers(self.state, dict(self.zookeeper))

    @rule(seconds=st.floats(0.5, 20.0))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule(crash=st.sampled_from(("no", "before the act", "after the act")))
    def turn(self, crash: str) -> None:
        broken = any(value >= BAD for value in self.live)
        fault = "it is broken" if broken and self.state.trial is not None else ""
        step = decide.next_step(self.state, SCOPES, self.now, fault)
        if step.act is RolloutAction.TRY:
            assert self._stamps(step.target) not in self.broke, "a harmful version is tried again"
            self.state = decide.after_begin(self.state, step.target, self.now)
            self.ends_since_trial = 0
        elif step.act is RolloutAction.CONFIRM:
            assert not broken, "a version that breaks the agent became good"
            self.state = decide.after_success(self.state)
            self.good = list(self.live)
        elif step.act is RolloutAction.GO_BACK:
            if fault:
                self.broke.add(self._stamps(self.state.running))
            self.state = decide.after_rollback(self.state, step.reason)
        self.disk = decide.to_json(self.state)
        if crash != "before the act" and step.act in (RolloutAction.TRY, RolloutAction.GO_BACK):
            self.live = values(step.target)
        if crash != "no":
            self._process_ends()

    @precondition(lambda self: any(value == BAD + 1 for value in self.live))
    @rule()
    def it_ends_its_process(self) -> None:
        self._process_ends()

    def _process_ends(self) -> None:
        trial = self.state.trial
        self.state = decide.after_restart(decide.from_json(json.loads(json.dumps(self.disk))), self.now)
        self.disk = decide.to_json(self.state)
        self.live = values(self.state.running)
        if trial is not None:
            self.ends_since_trial += 1
            if self.state.trial is None:
                self.broke.add(self._stamps(trial))
                assert self.ends_since_trial >= MAX_ATTEMPTS

    @invariant()
    def what_runs_is_the_trial_or_the_good_one(self) -> None:
        assert self.live == values(self.state.running)
        assert values(self.state.last_good) == self.good, "only a successful trial changes the good version"
        assert not any(value >= BAD for value in self.good)

    @invariant()
    def versions_never_fall_within_a_lineage(self) -> None:
        for scope, known in self.state.known.items():
            at = self.zookeeper.get(scope)
            if at is not None and at.stamp.lineage == known.stamp.lineage:
                assert known.stamp.number <= at.stamp.number

    def teardown(self) -> None:
        """Without further pushes the desired version runs in the end, or is refused and the good one runs."""
        if not hasattr(self, "state"):
            return
        self.look()
        for _ in range(12):
            self.turn("no")
            self.now += PROBATION_S
        wanted = decide.desired(self.state, SCOPES)
        assert self.state.trial is None
        if any(value >= BAD for value in values(wanted)) or self._stamps(wanted) in self.broke:
            assert self.state.running == self.state.last_good
        elif wanted != NO_CONFIGURATION:
            assert self.state.last_good == wanted


World.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestWorld = World.TestCase
