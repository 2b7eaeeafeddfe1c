"""Agents, collectors and the control plane of a simulated fleet: who is connected to whom, and who knows what.

The classes of the product: `Collectors`, `CollectorLink`, `CollectorClient`, `CollectorNotices`, `AckWatcher` and
`ControlPlane` of the agent, `NoticeBoard` with its mirrors of the collector. Simulated: ZooKeeper (`fleet_zookeeper`),
the network between agents and collectors, the threads around these classes, and the disk of the control plane.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from kazoo.protocol.states import KazooState
from thriftpy2.thrift import TApplicationException

from artimon.runtime.zookeeper_client import EphemeralNode
from artimon.runtime.zookeeper_watcher import ZooKeeperWatcher
from bookkeeper.rpc.framed_client import CallTimeoutError, ConnectionLostError
from pipeline.collector import notice_board
from pipeline.collector.notice_board import NoticeBoard
from pipeline.control import ack_watcher, collector_notices, control_plane
from pipeline.control.ack_watcher import AckWatcher
from pipeline.control.agent_controls import AgentControls
from pipeline.control.collector_notices import CollectorNotices
from pipeline.control.control_plane import ControlPlane
from pipeline.control.control_state import ControlState, ControlStateFile
from pipeline.control.control_tree import commands_scope, scope_of
from pipeline.link.collector_choice import COLLECTORS_PATH, CollectorEndpoint, Collectors
from pipeline.link.collector_client import CollectorClient
from pipeline.link.collector_link import CollectorLink
from tests.simulation import fleet_zookeeper
from tests.simulation.fleet_clock import Answer, Timeline
from tests.simulation.fleet_zookeeper import HOP_S, Ensemble, Session, create_node

SESSION_S = 10.0
RECONNECT_S = 5.0
EXPIRE_S = 5.0
"""Interval at which collectors answer calls that have waited long enough."""
IDLE_S = 60.0
"""Interval at which the watchers of an agent look without being woken: shorter ones find nothing and take long."""
LAG_S = 0.05
"""Greatest delay of a server of ZooKeeper: longer than the way of a notice, so that an agent may read what is old."""
BUSY_S = 5.0
"""Interval at which an agent looks while it tries a configuration; for the same reason."""
GROUP = "default"
SETTING = "credits"


class SimClock:
    """Clock of the product, in virtual time."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline

    def now_ms(self) -> int:
        return round(1.7e12 + self._timeline.now * 1000)

    def monotonic(self) -> float:
        return self._timeline.now

    def wait(self, event: Any, seconds: float) -> bool:
        """Wait in the greenlet that calls."""
        until = self._timeline.now + seconds
        while not event.is_set() and self._timeline.now < until:
            self.sleep(min(0.25, until - self._timeline.now))
        return bool(event.is_set())

    def sleep(self, seconds: float) -> None:
        """Let the greenlet that calls wait."""
        over = Answer()
        self._timeline.later(seconds, lambda: over.resolve(None))
        over.get()


class SimZooKeeper(Session):
    """Client of ZooKeeper that reconnects, with listeners."""

    def __init__(self, ensemble: Ensemble) -> None:
        super().__init__(ensemble, SESSION_S)
        self._listeners: list[Callable[[str], None]] = []
        self.is_cut = self.ended = False

    @property
    def connected(self) -> bool:
        return self.server is not None

    def add_listener(self, listener: Callable[[str], None]) -> None:
        self._listeners.append(listener)

    def get_acls_async(self, path: str) -> Answer:
        """Answer that only the platform may write."""
        self.exists_async(path)
        answer = Answer()
        answer.resolve(([], None))
        return answer

    def start(self) -> None:
        """Connect, now or as soon as a server answers."""
        if self.ended or self.connected:
            return
        if self.is_cut or not self._ensemble.up:
            self._timeline.later(self._timeline.random.uniform(0.2, RECONNECT_S), self.start)
            return
        self.connect()
        for listener in self._listeners:
            listener(KazooState.CONNECTED)

    def lose(self) -> None:
        """Lose the connection, and connect again."""
        if self.connected:
            self.disconnect()
            self.drop_watchers()
            for listener in self._listeners:
                listener(KazooState.SUSPENDED)
            self._timeline.later(self._timeline.random.uniform(0.2, RECONNECT_S), self.start)


class WatcherThread:
    """Thread of a ZooKeeperWatcher, and the event that wakes it."""

    def __init__(self, timeline: Timeline, watcher: ZooKeeperWatcher) -> None:
        self._timeline, self._watcher = timeline, watcher
        self._is_set = self._busy = self.ended = False
        self._due = 0.0
        watcher._wake = self  # type: ignore[assignment]

    def start(self, client: SimZooKeeper) -> None:
        client.add_listener(self._watcher._on_state)
        self.set()

    def is_set(self) -> bool:
        return self._is_set

    def clear(self) -> None:
        self._is_set = False

    def set(self) -> None:
        if not self._is_set:
            self._is_set = True
            self._timeline.later(0.0, self._begin)

    def _begin(self) -> None:
        if not self._busy and not self.ended and (self._is_set or self._timeline.now >= self._due):
            self._busy = True
            self._timeline.begin(self._turn)

    def _turn(self) -> None:
        self._is_set = False
        self._watcher.refresh()
        self._busy = False
        self._due = self._timeline.now + self._watcher._pause_s()
        self._timeline.at(self._due, self._begin)
        if self._is_set:
            self._timeline.later(0.0, self._begin)


class SimCall:
    """Call of an agent to a collector."""

    was_connected = True

    def __init__(self, endpoint: CollectorEndpoint, method: str) -> None:
        self.endpoint, self.method, self.answer = endpoint, method, Answer()

    def result(self) -> Any:
        return self.answer.get()


class SimConnections:
    """Connections of an agent: one to each collector that it calls."""

    def __init__(self, links: FleetLinks) -> None:
        self._links, self._timeline = links, links.timeline
        self._open: dict[CollectorEndpoint, int] = {}
        """Collector -> its run, in which the connection began."""
        self.is_cut = False

    def begin(self, endpoint: CollectorEndpoint, method: str, argument: Any, timeout_s: float) -> SimCall:
        call, collector = SimCall(endpoint, method), self._links.collectors[endpoint.host]
        self._links.calls += 1
        self._timeline.later(timeout_s, lambda: call.answer.resolve(CallTimeoutError("no reply in time")))
        if self.is_cut:
            return call
        if self._open.get(endpoint) != collector.runs or not collector.alive:
            self._links.connects += 1
            self._open[endpoint] = collector.runs
        self._timeline.later(HOP_S, lambda: collector.take(call, argument, self))
        return call

    def deliver(self, call: SimCall, value: object) -> None:
        """Deliver a reply, unless the network is cut: then the call times out."""
        if not self.is_cut:
            self._timeline.later(HOP_S, lambda: call.answer.resolve(value))


class SimCollector:
    """One collector. `is_old`: of the version before, without notices."""

    def __init__(self, links: FleetLinks, name: str, is_old: bool) -> None:
        self.links, self.name, self.is_old = links, name, is_old
        self.endpoint = CollectorEndpoint(name, 1)
        self.alive, self.runs = False, 0

    def start(self) -> None:
        self.alive, self.runs = True, self.runs + 1
        self._calls: dict[SimCall, SimConnections] = {}
        self._client = SimZooKeeper(self.links.ensemble)
        client: Any = self._client
        self._board = NoticeBoard(client, self.links.clock)
        data = f'{{"host": "{self.name}", "port": 1}}'.encode()
        node = EphemeralNode(client, f"{COLLECTORS_PATH}/{self.name}", data)
        self._threads = [WatcherThread(self.links.timeline, one) for one in (*self._board._mirrors, node)]
        self._client.start()
        for thread in self._threads:
            thread.start(self._client)
        self._expire(self.runs)

    def _expire(self, run: int) -> None:
        if self.alive and self.runs == run:
            self._board.expire()
            self.links.timeline.later(EXPIRE_S, lambda: self._expire(run))

    def kill(self) -> None:
        """End without notice: connections break at once, the node goes with the session."""
        self.alive = False
        self._client.ended = True
        self._client.disconnect()
        for thread in self._threads:
            thread.ended = True
        calls, self._calls = self._calls, {}
        for call, caller in calls.items():
            caller.deliver(call, ConnectionLostError("the connection was closed"))

    def lose_zookeeper(self) -> None:
        self._client.lose()

    def take(self, call: SimCall, argument: Any, caller: SimConnections) -> None:
        """Take a call that arrives."""
        if not self.alive:
            caller.deliver(call, ConnectionLostError("connection refused"))
            return
        if self.is_old:
            caller.deliver(call, TApplicationException(TApplicationException.UNKNOWN_METHOD, "no such method"))
            return
        self._calls[call] = caller
        self._board.watch(argument).add_done_callback(lambda done: self._end(call, done.result()))

    def _end(self, call: SimCall, value: object) -> None:
        caller = self._calls.pop(call, None)
        if caller is not None:
            caller.deliver(call, value)


class LinkedAgent:
    """One agent. `is_old`: of the version before, which calls no collector for notices and reads ZooKeeper alone."""

    def __init__(self, links: FleetLinks, name: str, is_old: bool = False) -> None:
        self.is_old = is_old
        self.links, self.name = links, name
        self.zookeeper, clock = SimZooKeeper(links.ensemble), links.clock
        self.client = CollectorClient(CollectorLink(Collectors(name)), clock)
        self.connections = SimConnections(links)
        self.client._connections = self.connections  # type: ignore[assignment]
        scopes = [scope_of(group=GROUP), scope_of(name), commands_scope(name)]
        self.notices = CollectorNotices(self.client, scopes, clock)
        self.applied = 0
        """Value of the pushed setting that runs."""
        controls = AgentControls(lambda _mode: None, lambda: 0, lambda: "")
        controls.on_setting(SETTING, self._apply)
        client: Any = self.zookeeper
        told = None if is_old else self.notices
        self.plane = ControlPlane(client, name, (GROUP,), Path(name), controls, clock, notices=told)
        self.watcher = AckWatcher(client, self, "artimon.samples", told, clock)
        self.plane._every_s = IDLE_S
        self.notices.on_acks, self.notices.on_config = self.watcher.wake, self.plane.read_soon

    def _apply(self, value: int | None) -> None:
        self.applied = value or 0

    def start(self) -> None:
        self.plane.begin()
        for watcher in (self.watcher, self.plane):
            WatcherThread(self.links.timeline, watcher).start(self.zookeeper)
        self.zookeeper.start()
        if not self.is_old:
            self.links.timeline.begin(self._follow)

    def _follow(self) -> None:
        """Thread of the notices."""
        while True:
            pause_s = self.notices.watch_once()
            if pause_s:
                self.links.clock.sleep(pause_s)
            self.notices._tell_of_end()

    def cut(self, is_cut: bool) -> None:
        """Cut the agent off from all servers, or end that."""
        self.connections.is_cut = self.zookeeper.is_cut = is_cut
        if is_cut:
            self.zookeeper.lose()

    @property
    def chosen(self) -> str:
        """Name of the collector that gets the next batch, "" if there is none."""
        found = self.client.link.collectors.pick(self.links.timeline.now)
        return found.host if found is not None else ""

    # --- what the watcher of acks tells

    def update_collectors(self, found: dict[str, CollectorEndpoint]) -> None:
        self.client.update(found)

    def unacked(self) -> list[Any]:
        return []

    def apply_verdict(self, verdict: Any) -> None:
        """Nothing waits for an ack."""


class FleetLinks:
    """All of them, and counts."""

    def __init__(self, seed: int) -> None:
        self.timeline = Timeline(seed)
        self.ensemble, self.clock = Ensemble(self.timeline), SimClock(self.timeline)
        self.collectors: dict[str, SimCollector] = {}
        self.agents: list[LinkedAgent] = []
        self.calls = self.connects = 0
        """Calls to collectors, and connections that were opened or refused."""
        self.ensemble.commit(create_node(f"{COLLECTORS_PATH}", b"", 0, True))

    def balance(self) -> Counter[str]:
        """Return the number of agents whose next batch goes to each collector that runs."""
        counts = Counter(agent.chosen for agent in self.agents)
        return Counter({name: counts[name] for name, one in self.collectors.items() if one.alive})

    def change_leader(self, seconds: float) -> None:
        """Answer no request for a time; all connections to ZooKeeper end."""
        self.ensemble.up = False
        for agent in self.agents:
            agent.zookeeper.lose()
        for collector in self.collectors.values():
            if collector.alive:
                collector.lose_zookeeper()

        def elected() -> None:
            self.ensemble.up = True

        self.timeline.later(seconds, elected)


@contextmanager
def linked(seed: int) -> Iterator[FleetLinks]:
    """Return a fleet without members; the modules of the product take chance from its seed."""
    chance = random.Random(seed)
    saved: dict[int, ControlState] = {}

    def save(self: ControlStateFile, memory: ControlState) -> None:
        saved[id(self)] = memory

    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(ack_watcher, "TOLD_CHECK_S", IDLE_S))
        stack.enter_context(mock.patch.object(fleet_zookeeper, "LAG_S", LAG_S))
        stack.enter_context(mock.patch.object(control_plane, "_BUSY_INTERVAL_S", BUSY_S))
        for module in (collector_notices, notice_board, control_plane):
            stack.enter_context(mock.patch.object(module, "random", chance))
        stack.enter_context(mock.patch.object(ControlStateFile, "save", save))
        stack.enter_context(mock.patch.object(ControlStateFile, "load", return_value=ControlState()))
        yield FleetLinks(seed)
