"""Role of an engine in its pair, step by step: take-over, seed of an empty journal, unknown outcomes, versions."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError

from alerts.pair.engine_lease import PAIRS, EngineAddress, EngineLease, read_pairs
from alerts.pair.pair_member import PairMember
from alerts.pair.state_log import LogEntry, StateLog
from alerts.state.alert_database import AlertDatabase, DispatchCommit, EngineState, EvaluationCommit, open_database
from alerts.state.operations import AuditEntry, OperationCommit
from alerts.state.row_changes import NotLeadingError, RowChange
from artimon.model.clock import SYSTEM_CLOCK
from artimon.model.topic_spec import platform_topics
from artimon.runtime.settings import zookeeper_auth
from artimon.runtime.zookeeper_client import close_client, zookeeper_client
from artimon.stack.topics import make_topics
from tests.waiting import eventually

pytestmark = pytest.mark.stack


@dataclass
class Member:
    """Engine without rules: database, journal, lease, role. `states`: what was loaded."""

    name: str
    client: KazooClient
    database: AlertDatabase
    log: StateLog
    lease: EngineLease
    role: PairMember = field(init=False)
    states: list[EngineState] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.database.replicate(self.log)
        self.role = PairMember(self.log, self.lease, self.database, self.states.append, SYSTEM_CLOCK)
        self.lease.start()

    def lead(self) -> None:
        eventually(lambda: self.step() or self.role.leads, f"{self.name} leads: {self.role.problems()}")

    def follow(self) -> None:
        eventually(lambda: self.step() or self.role.offset > 0, f"{self.name} follows")

    def step(self) -> bool:
        """False, for conditions that are checked after a step."""
        self.role.step()
        return False

    def evaluate(self, time_ms: int) -> None:
        self.database.commit(DispatchCommit(time_ms), EvaluationCommit(time_ms))

    def close(self) -> None:
        self.role.close()
        self.lease.stop()
        close_client(self.client)
        self.database.close()


Make = Callable[[str], Member]


@pytest.fixture
def member(zookeeper: str, kafka: str, tmp_path: Path) -> Iterator[Make]:
    """Engines of one pair by name."""
    name, made = f"t{uuid.uuid4().hex[:12]}", dict[str, Member]()
    make_topics(kafka, [one for one in platform_topics(name) if one.name.endswith(".alerts")])

    def make(id: str) -> Member:
        client = zookeeper_client(zookeeper, 4.0)
        client.start(timeout=30)
        database, _, _ = open_database(tmp_path / id, 0)
        log = StateLog(kafka, f"{name}.alerts", name, id, SYSTEM_CLOCK)
        lease = EngineLease(client, name, EngineAddress(id, f"{id}:1", 1), SYSTEM_CLOCK, 0.2)
        made[id] = Member(id, client, database, log, lease)
        return made[id]

    yield make
    for one in made.values():
        one.close()


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """This process shows a user of ZooKeeper."""
    file = tmp_path / "user"
    file.write_text("engine:secret of the engines\n")
    file.chmod(0o600)
    monkeypatch.setenv("ARTIMON_ZOOKEEPER_AUTH", str(file))
    zookeeper_auth.cache_clear()
    yield
    monkeypatch.delenv("ARTIMON_ZOOKEEPER_AUTH")
    zookeeper_auth.cache_clear()


def test_a_single_engine_becomes_one_of_a_pair_with_its_state(member: Make, tmp_path: Path) -> None:
    before, _, _ = open_database(tmp_path / "a", 0)
    before.record(OperationCommit({"s": {"id": "s"}}, audit=[AuditEntry(1, "x", "made", "s")]))
    before.close()
    stale, _, _ = open_database(tmp_path / "b", 0)
    stale.record(OperationCommit({"old": {"id": "old"}}))
    stale.close()
    a = member("a")
    a.lead()
    b = member("b")
    b.follow()
    assert (set(a.states[-1].silences), set(b.states[-1].silences)) == ({"s"}, {"s"}), "its own state is replaced"
    assert [one.author for one in b.database.audit(10)] == ["x"]
    a.evaluate(60_000)
    eventually(lambda: b.step() or b.states[-1].time_ms == 60_000, "b follows")
    with pytest.raises(NotLeadingError, match="does not lead"):
        b.evaluate(120_000)
    (found,) = [one for one in read_pairs(a.client) if one.name == a.lease.pair]
    assert found.leader is not None
    assert (found.leader.id, found.leader.since_ms > 1, [one.id for one in found.engines]) == ("a", True, ["a", "b"])

    a.lease.resign()
    eventually(lambda: a.step() or not a.role.leads, "a resigns")
    b.lead()
    b.evaluate(180_000)
    assert b.role.figures()["epoch"] == 2
    eventually(lambda: a.step() or a.states[-1].time_ms == 180_000, "a follows")


def test_an_outcome_that_is_not_known_is_read_from_the_journal(member: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """The transaction is committed, its answer is lost, and the file does not have it: the engine reads it."""
    a = member("a")
    a.lead()
    write = StateLog._write

    def lost(log: StateLog, changes: list[RowChange]) -> int:
        write(log, changes)
        raise OSError("the answer is lost")

    monkeypatch.setattr(StateLog, "_write", lost)
    with pytest.raises(NotLeadingError, match="the answer is lost"):
        a.evaluate(60_000)
    monkeypatch.undo()
    assert a.database.load().time_ms == 0
    with pytest.raises(NotLeadingError, match="the answer is lost"):
        a.evaluate(120_000)
    a.lead()
    eventually(lambda: a.step() or (a.role.takeovers == 2 and a.role.leads), "it leads again")
    assert a.states[-1].time_ms == a.database.load().time_ms == 60_000
    a.evaluate(180_000)


def test_an_old_lease_changes_nothing(member: Make) -> None:
    """An engine that believes in a lease that it lost fences the leader, finds the lease of the other, and gives way;
    the leader leads on."""
    a, b = member("a"), member("b")
    a.lead()
    b.follow()
    b.log.open_writer()  # as an engine that was stopped right before this call
    assert b.lease.confirm() is False
    with pytest.raises(NotLeadingError, match="ProducerFenced"):
        a.evaluate(60_000)
    b.log.close_writer()
    eventually(lambda: a.step() or (a.role.leads and a.role.takeovers == 2), "a leads again")
    a.evaluate(120_000)
    eventually(lambda: b.step() or (b.states and b.states[-1].time_ms == 120_000), "b follows")


def test_the_state_of_a_newer_version_is_left_to_newer_engines(member: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    a = member("a")
    a.lead()
    a.evaluate(60_000)
    taken = StateLog._taken

    def newer(log: StateLog, record: object) -> LogEntry | None:
        found = taken(log, record)
        return None if found is None else replace(found, version=99)

    b = member("b")
    monkeypatch.setattr(StateLog, "_taken", newer)
    b.step()
    assert "has version 99" in b.role.problems()[0]
    a.lease.resign()
    eventually(lambda: a.step() or not a.role.leads, "a resigns")
    eventually(lambda: b.lease.leader is None, "nobody takes the lease")
    b.step()
    assert not b.role.leads


def test_a_pair_that_others_may_write_is_refused(member: Make, zookeeper: str, request: pytest.FixtureRequest) -> None:
    """Engines with a ZooKeeper user of their own do not take the address of a leader from a stranger."""
    stranger = zookeeper_client(zookeeper)
    stranger.start(timeout=30)
    stranger.ensure_path(PAIRS)
    request.getfixturevalue("user")
    a, evil = member("a"), EngineAddress("x", "evil:1", 1).encode()
    base = f"{PAIRS}/{a.lease.pair}"
    eventually(lambda: a.lease.leader is not None, "a has the lease of its own pair")
    a.lease.resign()
    eventually(lambda: a.lease.leader is None, "it resigns")
    with pytest.raises(NoAuthError):
        stranger.create(f"{base}/leader", evil)
    other = uuid.uuid4().hex
    stranger.create(f"{PAIRS}/{other}/leader", evil, makepath=True)
    lease = EngineLease(a.client, other, EngineAddress("b", "b:1", 1), SYSTEM_CLOCK, 0.2)
    lease.start()
    eventually(lambda: "others may write" in lease.problem, "it is refused")
    assert (lease.leader, lease.ours, lease.engines) == (None, False, ())
    lease.stop()
    stranger.delete(f"{PAIRS}/{other}/leader")
    close_client(stranger)
