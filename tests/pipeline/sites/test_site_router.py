"""Agent of several sites without I/O: after any failure, hang, crash or recovery no batch is at two sites, and no
batch is forgotten that no site has."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from artimon.model.ack_state import AckDecision, Position
from artimon.model.batch import BatchHeader, BatchId, BatchKind
from artimon.model.ranges import LaneId
from pipeline.delivery.tracker import LaneCall, Tracker
from pipeline.link.answers import MessageAnswer
from pipeline.sites.site_binding import LaneMove, SiteAssignment
from pipeline.sites.site_record import LaneRecord, SiteRecord
from pipeline.sites.site_router import SiteRouter
from pipeline.wal.state_records import LogPosition

SITES = ("near", "far", "last")
PATIENCE, RETURN = 10.0, 20.0
EPOCH, AGENT = 9, "a"


def lane(number: int) -> LaneId:
    return LaneId(AGENT, EPOCH, number)


def placing(record: SiteRecord | None = None) -> SiteRouter:
    binding = SiteAssignment(SITES, PATIENCE, RETURN)
    return SiteRouter(binding, {site: Tracker() for site in SITES}, record or SiteRecord())


def header(number: int, sequence: int) -> BatchHeader:
    id = BatchId(AGENT, EPOCH, number, sequence)
    return BatchHeader(BatchKind.SAMPLES, id, f"s{number}", bytes(16), 0, 0, 1, 0, "default", 0, 10)


class Logged(NamedTuple):
    header: BatchHeader
    place: LogPosition


class World:
    """Three sites that store every batch they receive, and an agent with its log and its record on the disk."""

    def __init__(self) -> None:
        self.now = 0.0
        self.up = dict.fromkeys(SITES, True)
        self.stored: dict[str, set[BatchId]] = {site: set() for site in SITES}
        self.durable_acks: set[BatchId] = set()
        self.log: dict[BatchId, Logged] = {}
        """What must still be kept."""
        self.unsure: dict[BatchId, Logged] = {}
        """Acked, and the disk does not know it: a crash brings them back while their segment is there."""
        self.held = range(1, 2)
        """Segments of the log."""
        self.noted: dict[BatchId, Position] = {}
        """SENT notes that reached the disk."""
        self.disk: bytes | None = None
        self.agent = placing()
        self.next = [0, 0]
        self.released: set[BatchId] = set()

    def accept(self, number: int) -> None:
        one = Logged(header(number, self.next[number]), LogPosition(self.held[-1], sum(self.next), 10))
        self.next[number] += 1
        self.log[one.header.id] = one
        self.agent.add_logged([one], 0)

    def reachable(self) -> list[str]:
        return [site for site in SITES if self.up[site]]

    def send(self, site: str, outcome: str, note: bool = True) -> int:
        """One call to `site`. `outcome`: taken, silent (delivered, no answer), lost (not delivered, no answer),
        refused; a site that is down is never reached."""
        tracker = self.agent.trackers[site]
        group = tracker.take_call(self.now)
        if group is None:
            return 0
        top = self.agent.bound_until.get(group.lane, -1)
        if self.agent.bind(site, group):
            self.disk, self.agent.record.saved = self.agent.record.to_json(), self.agent.record.version
        if not self.up[site]:
            self.agent.unbind(site, group, top)
            tracker.call_failed(group, self.now)
            return 0
        self._end(site, group, outcome, top, note)
        return len(group.items)

    def _end(self, site: str, group: LaneCall, outcome: str, top: int, note: bool) -> None:
        tracker = self.agent.trackers[site]
        if outcome in ("taken", "silent"):
            self.stored[site].update(item.id for item in group.items)
        if outcome in ("silent", "lost"):
            tracker.call_failed(group, self.now)
        elif outcome == "refused":
            self.agent.unbind(site, group, top)
            tracker.apply_answers(group, [MessageAnswer(None, "full: no")] * len(group.items), self.now)
        else:
            at = [Position(site, site, 0, item.id.sequence) for item in group.items]
            self.agent.mark_served(site, group.lane)
            tracker.apply_answers(group, [MessageAnswer(p) for p in at], self.now)
            if note:
                self.noted.update(zip((item.id for item in group.items), at, strict=True))

    def roll(self) -> None:
        """Begin a new segment; delete the oldest ones without needed batches."""
        newest = self.held.stop
        self.held = range(min((one.place.segment for one in self.log.values()), default=newest), newest + 1)
        self.unsure = {id: one for id, one in self.unsure.items() if one.place.segment in self.held}

    def ack(self, site: str, noted: bool = True) -> None:
        """The site acks everything it stored; the agent forgets it. `noted`: its disk does too."""
        tracker = self.agent.trackers[site]
        waiting = [sent.key for sent in tracker.unacked()]
        for item in tracker.apply_verdict(AckDecision(tuple(waiting))):
            assert item.id in self.stored[site]
            acked = self.log.pop(item.id)
            if not noted:
                self.unsure[item.id] = acked
            self.durable_acks.add(item.id)

    def crash(self) -> None:
        """Keep only the log, its notes and the last saved record."""
        record = SiteRecord(is_new=True) if self.disk is None else SiteRecord.from_json(self.disk)
        found = {**self.log, **self.unsure}
        self.log, self.unsure = {id: found[id] for id in sorted(found, key=lambda id: found[id].place)}, {}
        self.agent = placing(record)
        self.agent.restore((one.header, one.place, self.noted.get(id), 0) for id, one in self.log.items())

    def tick(self, seconds: float = 0.0) -> list[LaneMove]:
        self.now += seconds
        return self.agent.move_due(self.now, self.reachable(), self.held)

    def at(self, number: int) -> str:
        return self.agent.binding.lanes[lane(number)]


def leave(world: World) -> None:
    """Let the near site be down for longer than the patience."""
    world.up["near"] = False
    world.send("near", "taken")
    world.tick()
    world.tick(PATIENCE)


def test_a_lane_stays_during_the_patience_then_its_unsent_batches_move() -> None:
    world = World()
    world.accept(0)
    world.up["near"] = False
    assert world.tick() == []
    assert world.tick(PATIENCE - 1) == []
    assert world.tick(1) == [LaneMove(lane(0), "near", "far")]
    assert world.send("far", "taken") == 1
    assert world.stored["far"] == {header(0, 0).id}


@pytest.mark.parametrize("outcome", ["taken", "silent", "lost"])
def test_batches_that_a_site_may_have_stay_with_it(outcome: str) -> None:
    world = World()
    world.accept(0)
    world.send("near", outcome)
    world.accept(0)
    leave(world)
    assert world.at(0) == "far"
    world.now += 100
    assert world.send("far", "taken") == 1
    assert world.stored["far"] == {header(0, 1).id}, "only unsent batches"
    assert world.agent.bound_counts()["near"] == {str(lane(0)): 1}
    world.up["near"] = True
    world.send("near", "taken")
    world.ack("near")
    world.ack("far")
    assert not world.log
    assert world.agent.bound_counts() == {}


def test_refused_and_undelivered_batches_may_move() -> None:
    world = World()
    world.accept(0)
    world.send("near", "refused")
    leave(world)
    world.now += 100
    assert world.send("far", "taken") == 1


def test_an_unsaved_record_is_saved_before_the_next_call() -> None:
    """Otherwise it would go to a site without a record on the disk, and after a crash to another site too."""
    world = World()
    world.accept(0)
    agent, tracker = world.agent, world.agent.trackers["near"]
    for _ in range(2):
        group = tracker.take_call(world.now)
        assert group is not None
        assert agent.bind("near", group), "nothing of it is on the disk"
        agent.unbind("near", group, -1)  # the record could not be written
        tracker.call_failed(group, world.now)
        world.now += 60
    agent.record.saved = agent.record.version
    group = tracker.take_call(world.now)
    assert group is not None
    assert not agent.bind("near", group)


def test_a_recovered_site_is_probed_with_one_lane_first() -> None:
    world = World()
    for number in (0, 1):
        world.accept(number)
    leave(world)
    assert {world.at(0), world.at(1)} == {"far"}
    for _ in range(2):
        world.send("far", "taken")
    world.up["near"] = True
    world.tick()
    moves = world.tick(RETURN)
    assert len(moves) == 1, "a probe"
    assert world.tick(1) == []
    world.now += 100
    world.accept(moves[0].lane.lane)
    world.send("near", "taken")
    assert len(world.tick(RETURN)) == 1, "the probe succeeded: the other lane follows"
    assert {world.at(0), world.at(1)} == {"near"}


def test_the_pause_of_a_site_grows_with_each_failure() -> None:
    world = World()
    world.accept(0)
    away = []
    for _ in range(3):
        world.up["near"] = False
        while world.at(0) == "near":
            world.tick(1)
        left, world.up["near"] = world.now, True
        while world.at(0) != "near":
            world.tick(1)
        away.append(world.now - left)
    assert away[0] < away[1] < away[2]


def test_a_crash_binds_only_batches_that_may_have_been_sent_according_to_the_record() -> None:
    world = World()
    for _ in range(3):
        world.accept(0)
    world.send("near", "silent", note=False)
    world.crash()
    world.accept(0)
    world.up["near"] = False
    world.tick()
    world.tick(PATIENCE)
    assert sum(world.agent.bound_counts()["near"].values()) == 3
    known = world.agent.record.lanes[lane(0)]
    assert known.is_unassigned(known.unsent_from)
    assert not known.is_unassigned(known.unsent_from - 1)


@pytest.mark.parametrize("note", [True, False])
def test_an_acked_batch_stays_with_its_site_after_its_note_is_lost(note: bool) -> None:
    """The lane has left that site meanwhile, and the record on the disk is younger than the ack."""
    world = World()
    world.accept(0)
    leave(world)
    world.now += 100
    assert world.send("far", "taken", note) == 1
    world.ack("far", noted=False)
    world.up["near"] = True
    world.tick()
    assert world.tick(RETURN) == [LaneMove(lane(0), "far", "near")]
    world.accept(0)
    assert world.send("near", "taken") == 1
    world.crash()
    assert header(0, 0).id in world.log, "its ack is forgotten"
    for site in SITES:
        world.send(site, "taken")
    assert world.stored == {"near": {header(0, 1).id}, "far": {header(0, 0).id}, "last": set()}
    for site in SITES:
        world.ack(site)
    assert not world.log


def test_the_record_forgets_a_span_once_the_log_has_deleted_its_batches() -> None:
    world = World()
    world.accept(0)
    leave(world)
    world.now += 100
    world.send("far", "taken")
    world.up["near"] = True
    world.tick()
    world.tick(RETURN)
    known = world.agent.record.lanes[lane(0)]
    assert known.spans == [(0, "far"), (1, "near")]
    world.roll()
    world.tick()
    assert len(known.spans) == 2, "not acked"
    world.ack("far", noted=False)
    world.tick()
    assert len(known.spans) == 2, "the segment is still there"
    world.roll()
    world.tick()
    assert known.spans == [(1, "near")]


def test_release_gives_up_the_guarantee_for_that_lane_alone() -> None:
    world = World()
    for number in (0, 1):
        world.accept(number)
        world.send("near", "taken")
    leave(world)
    assert world.agent.release(0, world.reachable()) == [LaneMove(lane(0), "near", "far")]
    assert world.send("far", "taken") == 1
    assert world.agent.bound_counts() == {"far": {str(lane(0)): 1}, "near": {str(lane(1)): 1}}
    assert world.agent.release(0, world.reachable()) == [], "nothing more to release"


def test_empty_spans_are_forgotten() -> None:
    one = LaneRecord([(0, "near"), (10, "far"), (20, "near")])
    one.prune(9)
    assert len(one.spans) == 3
    one.prune(10)
    assert one.spans == [(10, "far"), (20, "near")]
    assert one.site_of(15) == "far"
    assert SiteRecord.from_json(SiteRecord({lane(0): one}).to_json()).lanes[lane(0)] == one


class Sites(RuleBasedStateMachine):
    """All operations in any order."""

    @initialize()
    def begin(self) -> None:
        self.world = World()

    @rule(number=st.integers(0, 1))
    def accept(self, number: int) -> None:
        self.world.accept(number)

    @rule(site=st.sampled_from(SITES), up=st.booleans())
    def reach(self, site: str, up: bool) -> None:
        self.world.up[site] = up

    @rule(
        site=st.sampled_from(SITES), outcome=st.sampled_from(["taken", "silent", "lost", "refused"]), note=st.booleans()
    )
    def send(self, site: str, outcome: str, note: bool) -> None:
        self.world.send(site, outcome, note)

    @rule(seconds=st.sampled_from([0.0, 1.0, PATIENCE, RETURN, 100.0]))
    def tick(self, seconds: float) -> None:
        self.world.tick(seconds)

    @rule(site=st.sampled_from(SITES), noted=st.booleans())
    def ack(self, site: str, noted: bool) -> None:
        self.world.ack(site, noted)

    @rule()
    def roll(self) -> None:
        self.world.roll()

    @precondition(lambda self: self.world.log or self.world.unsure)
    @rule()
    def crash(self) -> None:
        self.world.crash()

    @invariant()
    def nothing_is_at_two_sites_and_nothing_is_forgotten(self) -> None:
        if not hasattr(self, "world"):
            return
        world = self.world
        for site in SITES:
            for other in SITES:
                assert site == other or not world.stored[site] & world.stored[other]
        anywhere = set().union(*world.stored.values())
        assert world.durable_acks <= anywhere
        held = sum(tracker.pending for tracker in world.agent.trackers.values())
        assert held == len(world.log), "each batch that is not acked is with exactly one tracker"

    def teardown(self) -> None:
        """With all sites up, every batch is stored and acked in the end."""
        if not hasattr(self, "world"):
            return
        world = self.world
        world.up = dict.fromkeys(SITES, True)
        for _ in range(60):
            world.now += 1000
            world.tick()
            for site in SITES:
                world.send(site, "taken")
                world.ack(site)
        assert not world.log
        self.nothing_is_at_two_sites_and_nothing_is_forgotten()


Sites.TestCase.settings = settings(max_examples=120, stateful_step_count=40, deadline=None)
TestSites = Sites.TestCase
