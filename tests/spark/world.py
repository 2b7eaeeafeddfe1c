"""Agents, a log, drivers and a compactor that a test may disturb in any order. Drivers, tasks, tables and compactor are
real; the log is tests.spark.memory_log."""

from __future__ import annotations

import json
import shutil
import threading
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from artimon.model import ack_state as acks
from artimon.model.ack_state import AckState, Position, SentBatch
from artimon.model.batch import BatchError, BatchHeader, BatchId, Samples
from artimon.model.batch_codec import encode_samples
from artimon.model.clock import ManualClock
from artimon.model.fingerprint import fingerprint
from artimon.model.hash_routing import partition_of
from artimon.model.values import Value
from artimon.rawtable.commit import RawTable
from artimon.rawtable.schema import TableError
from artimon.rawtable.sources import SourcesTable
from artimon.rawtable.table_state import RawState
from pipeline.compaction.compaction_settings import CompactorConfig
from pipeline.compaction.compactor import Compactor
from pipeline.spark.acks_publisher import acks_document
from pipeline.spark.dead_letters import LetterState, classify
from pipeline.spark.raw_query import MissingOffsetsError, RawQuery, RawRun
from pipeline.spark.spark_settings import SparkConfig
from pipeline.spark.topic_client import TopicError
from tests.simulation.log import CLUSTER
from tests.spark.local_files import LocalClient
from tests.spark.memory_log import NAME, Frame, LocalSession, MemoryLog, MemoryTopic
from tests.spark.reference import AgentBatch, Reference, Rows, difference, table_rows

PARTITIONS = 3
START_MS = 1_795_000_000_000
HOUR_MS, DAY_MS = 3_600_000, 86_400_000
VALUES: tuple[Value | None, ...] = (
    0,
    2**63 - 1,
    -(2**63),
    2**53 + 1,
    float("nan"),
    -0.0,
    0.1,
    float("-inf"),
    5e-324,
    True,
    False,
    "",
    "é\x00\n" * 3,
    "x" * 70_000,
    None,
)
SERIES = (0, 2**63, 2**64 - 1, fingerprint("a{}"), fingerprint('b{c="d"}'))
SPANS_MS = (1, 1000, 60_000, HOUR_MS, 7 * HOUR_MS, DAY_MS, 8 * DAY_MS, 45 * DAY_MS, 89 * DAY_MS, 95 * DAY_MS)
EXPECTED = (MissingOffsetsError, TopicError, TableError, OSError)
"""Errors that end a run of the query; the next step begins another."""


class Killed(BaseException):
    """Stands for the end of the process."""


class _Faulty:
    """Commits that fail as `faults` says: before they take effect, or after it, when the answer is lost."""

    faults: deque[str]

    def commit(self, *arguments: Any, **named: Any) -> None:
        fault = self.faults.popleft() if self.faults else ""
        if fault == "before":
            raise OSError("the commit did not go through")
        super().commit(*arguments, **named)  # type: ignore[misc]
        if fault == "after":
            raise OSError("the answer to the commit was lost")


class FaultyRaw(_Faulty, RawTable):
    pass


class FaultySources(_Faulty, SourcesTable):
    def __init__(self, hdfs: str, world: World, probe: Callable[[str], None]) -> None:
        super().__init__(hdfs, world.clock, probe)
        self.faults = world.faults


class Query(RawQuery):
    """The real query, on tables whose commits can fail."""

    def __init__(self, world: World, probe: Callable[[str], None]) -> None:
        config = SparkConfig("", "memory", world.uri, world.folder, topic_prefix="t")
        super().__init__(config, LocalSession(), lambda: None, clock=world.clock, probe=probe)
        self._topic = MemoryTopic(world.log)
        self._world, self._probe_of_world = world, probe

    def open_table(self) -> RawTable:
        raw = FaultyRaw(self._config.hdfs, self._clock)
        raw.faults = self._world.faults
        return raw

    def make_run(self, *parts: Any) -> RawRun:
        run = super().make_run(*parts)
        run.open_sources = partial(FaultySources, world=self._world, probe=self._probe_of_world)
        return run


class LocalCompactor(Compactor):
    """The real compactor, which reads from the log itself the bounds that acks would give it."""

    def __init__(self, world: World) -> None:
        super().__init__(CompactorConfig("", world.uri, world.folder / "compactor"), None, world.clock)
        self._world = world

    def _acks(self, state: RawState) -> dict[str, Any] | None:
        if state.current is None or state.current.topic_id != self._world.log.id:
            return None
        bounds = MemoryTopic(self._world.log).log_bounds(PARTITIONS)
        return acks_document(state, 0, state.current, bounds, self._world.clock.now_ms())


class Driver:
    """One process that runs the raw query; `at_point` maps the name of a point to an action at its next occurrence."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.at_point: dict[str, Callable[[], None]] = {}
        self.restart()

    def restart(self) -> None:
        """Start a new process without memory of the old one."""
        self._query = Query(self._world, self._probe)
        self._life: Any = None
        self._position: dict[int, int] = {}

    def step(self, limit: int, tasks: int, look: bool = False) -> None:
        """Run one micro-batch, after a start if needed; a failure ends the run. `look`: also run the periodic check of
        the query."""
        try:
            if self._life is None:
                self._life = self._query.begin(threading.Event())
                self._position = dict(self._life.state.until())
            if look:
                self._query._check(self._life.info, self._life)
            spans = self._spans(limit)
            if spans:
                self._life.on_batch(Frame(self._world.log, spans, tasks), 0)
        except EXPECTED:
            self._life = None
        except Killed:
            self.restart()
        finally:
            self.at_point.clear()

    def _spans(self, limit: int) -> dict[int, tuple[int, int]]:
        """Return the spans that Spark would read now, by its own positions."""
        spans = {}
        for p, log in enumerate(self._world.log.partitions):
            at = self._position.get(p, 0)
            self._position[p] = min(log.end, at + limit)
            if self._position[p] > at:
                spans[p] = at, self._position[p]
        return spans

    def _probe(self, point: str) -> None:
        action = self.at_point.pop(point, None)
        if action is not None:
            action()


class World:
    """All parts, and the events that can disturb them: each public method below `events` is one event."""

    def __init__(self, folder: Path, clock: ManualClock, client: LocalClient) -> None:
        self.folder, self.clock, self._client = folder, clock, client
        self.uri = folder.as_uri()
        self.log = MemoryLog(PARTITIONS)
        self.faults: deque[str] = deque()
        self.mended = False
        self._epochs, self._sequences = {0: 1, 1: 1}, dict[tuple[str, int, int], int]()
        self._batches: list[AgentBatch] = []
        self._held: list[AgentBatch] = []
        self.made: dict[bytes, AgentBatch] = {}
        self._sent: dict[bytes, SentBatch[bytes]] = {}
        """Batches that their agents keep until they are acked."""
        self._acked: set[bytes] = set()
        self._published = 0
        self.reference = Reference(self.log, self.made, self.uri)
        self.drivers = [Driver(self), Driver(self)]
        self._compactor = self._new_compactor()

    def refuse_buggy(self, header: BatchHeader) -> None:
        """Raise the defect of the program; called by the decoder."""
        if header.source.startswith("buggy") and not self.mended:
            raise BatchError("a defect of the program")

    def check(self) -> None:
        """Check that every acked offset is in the table, the dead letters or the lost ranges."""
        self.reference.follow(self.mended)
        version, state = RawTable(self.uri).head()
        for topic in state.topics:
            published = acks_document(state, version, topic, {}, self.clock.now_ms())["partitions"]
            known = self.reference.until[topic.topic_id]
            assert {int(p): one["until"] for p, one in published.items()} == known

    def check_rows(self) -> None:
        """Check that the table holds exactly the rows of the reference."""
        self.check()
        found = difference(self.reference.rows, table_rows(self.uri))
        assert found == {"missing": {}, "too much": {}}
        _, state = RawTable(self.uri).head()
        assert state.totals.rows == sum(self.reference.rows.values())
        assert state.totals.batches == len(self.reference.seen)
        assert state.totals.dead_letters == self.reference.dead

    def check_agents(self) -> None:
        """Check that every batch that an agent was allowed to forget is stored, or a dead letter."""
        letters = {value for _, value in self.log.letters}
        for data in self._acked:
            made = self.made[data]
            assert made.id in self.reference.seen or data in letters, f"{made.id} is acked and nowhere"

    def settle(self) -> None:
        """End all faults, and read the log and resend lost batches until all is acked."""
        self.faults.clear()
        self._client.failing, self.log.bury_fails = 0, False
        for p in range(PARTITIONS):
            self.log.partitions[p].append(self.clock.now_ms(), b"the end")  # no offset is missing behind it
        for _ in range(200):
            self.drivers[0].step(1000, 1, look=True)
            self.check()
            self.hear(0, 0, 0)
            _, state = RawTable(self.uri).head()
            if not self._sent and dict(state.until()) == {p: log.end for p, log in enumerate(self.log.partitions)}:
                return
        raise AssertionError(f"the table does not hold the whole log, or {len(self._sent)} batches are not acked")

    # events

    def make(self, a: int, b: int, c: int) -> AgentBatch:
        """Make a batch that its agent keeps for now."""
        agent, lane = f"agent-{a % 2}", a // 2 % 2
        epoch = self._epochs[a % 2]
        sequence = self._sequences.get((agent, epoch, lane), 0)
        self._sequences[agent, epoch, lane] = sequence + 1
        now = self.clock.now_ms()
        source = f"{('s', 's', 'buggy')[b % 3]}/{b // 4 % 3}"
        rows: Rows = [
            (SERIES[(c + i) % len(SERIES)], now - SPANS_MS[(b + i) % 5] * (c % 3 - 1), now - b, VALUES[(c + i) % 15])
            for i in range(c % 7)
        ]
        poll, keep = now + (0, -HOUR_MS, 0, 0, 2 * DAY_MS)[c % 5], ("default", "debug")[c // 7 % 2]
        batch = encode_samples(
            BatchId(agent, epoch, lane, sequence), source, bytes(16), 0, poll, keep, Samples.of(rows)
        )
        made = AgentBatch(batch.header.id, source, poll, keep, rows, batch.data, source.startswith("buggy"))
        self._batches.append(made)
        self._held.append(made)
        self.made[batch.data] = made
        return made

    def send(self, a: int, b: int, c: int) -> None:
        """Send a new batch at once."""
        self._write(self.make(a, b, c))

    def release(self, a: int, _b: int, _c: int) -> None:
        """Send a batch that was made and not sent, or sent and not answered, out of order."""
        if self._held:
            self._write(self._held.pop(a % len(self._held)))

    def repeat(self, a: int, b: int, _c: int) -> None:
        """Send any earlier batch again, up to three times."""
        for _ in range(b % 3 + 1 if self._batches else 0):
            self._write(self._batches[a % len(self._batches)])

    def garbage(self, a: int, b: int, c: int) -> None:
        """Append a message that is no batch, or a damaged copy of one."""
        kinds: list[bytes | None] = [None, b"", b"ARTB\x02" + bytes(100), b"nonsense"]
        if self._batches:
            data = bytearray(self._batches[a % len(self._batches)].data)
            data[c % len(data)] ^= 1
            kinds += [bytes(data), bytes(data[:-1])]
        value = kinds[b % len(kinds)]
        self.log.partitions[c % PARTITIONS].append(self.clock.now_ms(), value)

    def hear(self, _a: int, _b: int, _c: int) -> None:
        """Publish acks and let agents act on them."""
        _, state = RawTable(self.uri).head()
        self._published += 1
        states = {}
        for topic in state.topics[-2:]:
            bounds = MemoryTopic(self.log).log_bounds(PARTITIONS) if topic.topic_id == self.log.id else {}
            data = json.dumps(acks_document(state, 0, topic, bounds, self.clock.now_ms())).encode()
            states[topic.topic_id] = AckState.from_json(data, self._published)
        verdict = acks.decide_acks(self._sent.values(), states, NAME)
        for key in verdict.acked:
            del self._sent[key]
            self._acked.add(key)
        for key, since in verdict.checked:
            self._sent[key] = self._sent[key]._replace(checked_version=since)
        for key, _reason in verdict.resend:
            self._write(self.made[key])

    def epoch(self, a: int, _b: int, _c: int) -> None:
        """Lose the log folder of an agent."""
        self._epochs[a % 2] += 1

    def time(self, a: int, _b: int, _c: int) -> None:
        """Advance the clock, mostly a moment, at times months."""
        self.clock.advance(SPANS_MS[a % (len(SPANS_MS) if a % 3 == 0 else 5)])

    def step(self, a: int, b: int, c: int) -> None:
        self.drivers[a % 2].step(b % 5 + 1, c % PARTITIONS + 1, look=c % 7 == 0)

    def restart(self, a: int, _b: int, _c: int) -> None:
        self.drivers[a % 2].restart()

    def fail(self, a: int, b: int, c: int) -> None:
        """Let the next commits fail, before or after they take effect."""
        self.faults.extend(("before", "after", "")[(b >> i) % 3] for i in range(c % 7 + 1))
        self.step(a, 4, 0)

    def unwritable(self, a: int, b: int, _c: int) -> None:
        """Let HDFS refuse the next files."""
        self._client.failing = b % 2 + 1
        self.step(a, 4, 0)

    def unburied(self, a: int, _b: int, _c: int) -> None:
        """Write the next dead letters, but lose the answer."""
        self.log.bury_fails = True
        self.step(a, 4, 0)

    def kill(self, a: int, b: int, _c: int) -> None:
        """Kill a driver before or after its commit, or before or after that of new sources."""

        def die() -> None:
            raise Killed

        self.drivers[a % 2].at_point[("written", "committed", "numbered", "assigned")[b % 4]] = die
        self.step(a, 4, 0)

    def race(self, a: int, b: int, c: int) -> None:
        """Let the other driver append between the files of this one and its commit."""
        self.drivers[a % 2].at_point["written"] = lambda: self.step(a + 1, b, c)
        self.step(a, c, b)

    def oversleep(self, a: int, b: int, _c: int) -> None:
        """Suspend a driver between its files and its commit, for longer than such files are kept."""

        def sleep() -> None:
            self.clock.advance((8 * DAY_MS, HOUR_MS)[b % 2])
            self.compact(0, 0, 0)

        self.drivers[a % 2].at_point["written"] = sleep
        self.step(a, 4, 0)

    def compact(self, a: int, b: int, _c: int) -> None:
        """Run the compactor; mostly some hours have passed by then."""
        self.clock.advance(a % 4 * HOUR_MS)
        if b % 3 == 2:
            self._compactor = self._new_compactor()
        try:
            self._compactor.run_due(threading.Event())
        except EXPECTED:
            pass  # no table yet, or HDFS refuses files: the next turn continues

    def recreate(self, _a: int, _b: int, _c: int) -> None:
        """Delete the topic and create it again."""
        self.log.recreate()

    def trim(self, a: int, b: int, _c: int) -> None:
        """Advance the start of the log, over unread messages or by retention."""
        log = self.log.partitions[a % PARTITIONS]
        log.trim(min(log.end, log.start + b % 4 + 1))

    def cut(self, a: int, b: int, c: int) -> None:
        """Lose the end of the log, as after a power failure; agents continue to send."""
        log = self.log.partitions[a % PARTITIONS]
        log.cut(log.end - b % 4 - 1)
        for _ in range(c % 5):
            self.send(a + 2 * c, b, c)

    def elect(self, a: int, _b: int, _c: int) -> None:
        """Restart a broker without loss."""
        self.log.partitions[a % PARTITIONS].elect()

    def hide(self, a: int, b: int, c: int) -> None:
        """Make one message unreadable, once or for ever."""
        log = self.log.partitions[a % PARTITIONS]
        unread = log.records[max(self._read_until(a % PARTITIONS), log.start) :]
        if unread:
            unread[b % len(unread)].hidden = (1, -1)[c % 2]

    def mend(self, a: int, _b: int, _c: int) -> None:
        """Fix the program, or break it again."""
        self.mended = bool(a % 2)

    def replay(self, a: int, b: int, c: int) -> None:
        """Send a dead letter again, if the program that judges it would do so; mostly it was just fixed."""
        self.mended |= b % 4 > 0
        letters = self.log.letters
        for _, value in letters if c % 3 else letters[a % len(letters) :][:1] if letters else []:
            state, why, header = classify(value, self.clock.now_ms(), self._is_stored)
            if header is not None and state == LetterState.WAITING and not why:
                self._write(self.made[value or b""])

    # helpers of the events

    def _write(self, made: AgentBatch) -> None:
        partition = partition_of(*made.id.lane_id, PARTITIONS)
        log = self.log.partitions[partition]
        position = Position(CLUSTER, self.log.id, partition, log.end, log.epoch)
        log.append(self.clock.now_ms(), made.data)
        if made.data not in self._acked:
            self._sent[made.data] = SentBatch(made.data, position)

    def _is_stored(self, id_: BatchId) -> bool:
        _, state = RawTable(self.uri).head()
        return any(lanes.contains(id_.lane_id, id_.sequence) for lanes in state.lanes.values())

    def _read_until(self, p: int) -> int:
        return self.reference.until.get(self.log.id, {}).get(p, 0)

    def _new_compactor(self) -> Compactor:
        return LocalCompactor(self)


def play(world: World, events: Sequence[tuple[str, int, int, int]]) -> None:
    """Run the events and check the acks after each; in the end the table must be exact."""
    try:
        for name, a, b, c in events:
            getattr(world, name)(a, b, c)
            world.check()
        world.settle()
        world.check_rows()
        world.check_agents()
    finally:
        shutil.rmtree(world.folder, ignore_errors=True)
