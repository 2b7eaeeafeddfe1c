"""Ensemble of three ZooKeeper servers with its guarantees, and no stronger ones.

- The leader orders all writes. A server applies them in that order, each later than the leader, so a client may read
  what another client has changed; it always reads its own writes.
- Requests of a session are answered in order, and a watch event arrives before any answer that shows the change.
- A watch fires once, and ends with the connection. A session survives a new connection within its timeout; else it
  expires, its ephemeral nodes go, and the client learns so when it connects again.
- A call under way at the end of a connection fails; a write may have been made nevertheless.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kazoo.exceptions import (
    BadVersionError,
    ConnectionLoss,
    KazooException,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    SessionExpiredError,
)

from tests.simulation.fleet_clock import Answer, Timeline

SERVERS = 3
LAG_S = 0.004
"""Greatest delay of a server behind the leader, seconds."""
HOP_S = 0.001
Watch = Callable[[Any], None]
Watcher = tuple[str, str, Watch]
"""Kind, path and callback of a watch."""


class Event(NamedTuple):
    """What a watch is told."""

    path: str
    type: str = "NONE"


class Stat(NamedTuple):
    """Status of a node, reduced to the fields in use."""

    version: int
    ephemeralOwner: int
    numChildren: int
    pzxid: int


@dataclass(slots=True)
class Node:
    """One node of a tree."""

    data: bytes = b""
    owner: int = 0
    version: int = 0
    children: set[str] = field(default_factory=set)
    children_version: int = 0
    """Number of changes of the children."""

    @property
    def stat(self) -> Stat:
        return Stat(self.version, self.owner, len(self.children), self.children_version)


class Tree:
    """Nodes by path."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {"/": Node()}
        self.owned: dict[int, set[str]] = {}
        """Session -> its ephemeral nodes."""

    def find(self, path: str) -> Node:
        """Return a node. Raises NoNodeError."""
        found = self.nodes.get(path)
        if found is None:
            raise NoNodeError
        return found

    def create(self, path: str, data: bytes, owner: int) -> None:
        """Create a node. Raises NodeExistsError, NoNodeError."""
        parent = path.rpartition("/")[0] or "/"
        if path in self.nodes:
            raise NodeExistsError
        above = self.find(parent)
        above.children.add(path.rpartition("/")[2])
        above.children_version += 1
        self.nodes[path] = Node(data, owner)
        if owner:
            self.owned.setdefault(owner, set()).add(path)

    def delete(self, path: str, version: int = -1) -> None:
        """Delete a node. Raises NoNodeError, BadVersionError, NotEmptyError."""
        node = self.find(path)
        if version not in (-1, node.version):
            raise BadVersionError
        if node.children:
            raise NotEmptyError
        del self.nodes[path]
        above = self.nodes[path.rpartition("/")[0] or "/"]
        above.children.discard(path.rpartition("/")[2])
        above.children_version += 1
        if node.owner:
            self.owned[node.owner].discard(path)


Write = Callable[[Tree], list[str]]
"""Change of a tree; returns the paths of which watches fire. Raises the errors of the call."""


class Server:
    """One server: its copy of the tree, and the watches of the clients that are connected to it."""

    def __init__(self, ensemble: Ensemble) -> None:
        self._ensemble = ensemble
        self.tree = Tree()
        self._applied_at = 0.0
        self.watches: dict[tuple[str, str], dict[tuple[int, Watch], tuple[Session, int]]] = {}
        """Kind and path -> watch -> session, and the connection in which it was set."""

    def apply(self, write: Write, then: Callable[[], None] | None = None) -> None:
        """Apply a write that the leader has made, in order and with a delay."""
        timeline = self._ensemble.timeline
        self._applied_at = max(self._applied_at, timeline.now + timeline.random.random() * LAG_S)

        def now() -> None:
            for path in write(self.tree):
                self._fire(path)
            if then is not None:
                then()

        timeline.at(self._applied_at, now)

    def watch(self, kind: str, path: str, watch: Watch | None, session: Session) -> None:
        """Register a watch: kazoo keeps each callback of a path once."""
        if watch is not None:
            self.watches.setdefault((kind, path), {})[session.id, watch] = session, session.connection
            session.watchers.add((kind, path, watch))

    def _fire(self, path: str) -> None:
        kind, _, path = path.partition(":")
        for (_, watch), (session, connection) in self.watches.pop((kind, path), {}).items():
            session.notify((kind, path, watch), connection)


class Ensemble:
    """The leader, its followers, and all sessions."""

    def __init__(self, timeline: Timeline) -> None:
        self.timeline = timeline
        self.tree = Tree()
        """State of the leader: all writes."""
        self.servers = [Server(self) for _ in range(SERVERS)]
        self.up = True
        self.messages = 0
        """Requests and watch events of all sessions."""
        self._next_session = 0

    def new_session(self) -> int:
        """Number a session."""
        self._next_session += 1
        return self._next_session

    def commit(self, write: Write, server: Server | None = None, then: Callable[[], None] | None = None) -> None:
        """Order a write, and give it to all servers. Raises the error of the write."""
        write(self.tree)
        for one in self.servers:
            one.apply(write, then if one is server else None)

    def refuse(self, server: Server, then: Callable[[], None]) -> None:
        """Answer a write that failed, in the order of the writes."""
        server.apply(lambda _tree: [], then)

    def expire(self, session: int) -> None:
        """End a session: its ephemeral nodes go."""
        for path in sorted(self.tree.owned.get(session, ())):
            self.commit(delete_node(path))


def create_node(path: str, data: bytes, owner: int, makepath: bool) -> Write:
    """Return the write that creates a node, with its parents if `makepath`."""

    def write(tree: Tree) -> list[str]:
        fired = []
        if makepath:
            parts = path.split("/")[1:-1]
            for end in range(1, len(parts) + 1):
                above = "/" + "/".join(parts[:end])
                if above not in tree.nodes:
                    tree.create(above, b"", 0)
                    fired += _changed(above)
        tree.create(path, data, owner)
        return fired + _changed(path)

    return write


def delete_node(path: str, version: int = -1) -> Write:
    """Return the write that deletes a node."""

    def write(tree: Tree) -> list[str]:
        tree.delete(path, version)
        return [*_changed(path), f"children:{path}"]

    return write


def set_node(path: str, data: bytes, version: int = -1) -> Write:
    """Return the write that replaces the data of a node."""

    def write(tree: Tree) -> list[str]:
        node = tree.find(path)
        if version not in (-1, node.version):
            raise BadVersionError
        node.data, node.version = data, node.version + 1
        return [f"data:{path}"]

    return write


def _changed(path: str) -> list[str]:
    return [f"data:{path}", f"children:{path.rpartition('/')[0] or '/'}"]


class Session:
    """Connection of a client, and its session (the client of kazoo as far as it is used)."""

    def __init__(self, ensemble: Ensemble, timeout_s: float) -> None:
        self._ensemble, self._timeline = ensemble, ensemble.timeline
        self.timeout_s = timeout_s
        self.arrived: Callable[[], None] = lambda: None
        """Called after everything that arrives at the client."""
        self.id = 0
        self.server: Server | None = None
        self._queue: deque[tuple[Callable[[Server], object], Answer]] = deque()
        self._outstanding: list[Answer] = []
        """Answers on their way to the client."""
        self._delivered_at = 0.0
        self.watchers: set[Watcher] = set()
        self.connection = 0
        """Number of connections; watches and answers of an earlier one are not delivered."""
        self.messages = 0
        """Requests and watch events of this client."""

    @property
    def client_id(self) -> tuple[int, bytes]:
        return self.id, b""

    # --- the connection

    def connect(self) -> bool:
        """Connect to a server; return True if the session is a new one."""
        fresh = not self.id
        if fresh:
            self.id = self._ensemble.new_session()
        self.connection += 1
        self.server = self._timeline.random.choice(self._ensemble.servers)
        self._ensemble.messages += 1
        return fresh

    def disconnect(self, unheard_s: float = 0.0) -> None:
        """Lose the connection, its watches, and the answers to all calls. The session expires after its timeout;
        `unheard_s`: seconds since the last ping."""
        server, self.server = self.server, None
        if server is None:
            return
        self.connection += 1
        self._fail(ConnectionLoss())
        number = self.connection
        self._timeline.later(self.timeout_s - unheard_s, lambda: self._expire() if number == self.connection else None)

    def close(self) -> None:
        """End the session in order."""
        self._fail(SessionExpiredError())
        self.server = None
        self.connection += 1
        self._expire()

    def _count(self) -> None:
        self.messages += 1
        self._ensemble.messages += 1

    def _expire(self) -> None:
        session, self.id = self.id, 0
        if self._ensemble.up:
            self._ensemble.expire(session)
        else:  # the leader that is elected next expires it
            self._timeline.later(self.timeout_s, lambda: self._ensemble.expire(session))

    def _fail(self, error: Exception) -> None:
        lost = [*self._outstanding, *(answer for _, answer in self._queue)]
        self._outstanding, self._queue = [], deque()
        for answer in lost:
            self._timeline.later(0.0, lambda answer=answer: answer.resolve(error))  # type: ignore[misc]

    def notify(self, watcher: Watcher, connection: int) -> None:
        """Deliver a watch event, before any later answer."""
        if connection == self.connection:
            self._count()
            self.watchers.discard(watcher)
            self._deliver(lambda: watcher[2](Event(watcher[1])))

    def drop_watchers(self) -> None:
        """Call every watch, as kazoo does when it notices the end of the connection."""
        watchers, self.watchers = self.watchers, set()
        for _, _, watch in sorted(watchers, key=lambda watcher: watcher[:2]):
            watch(Event(""))

    def _deliver(self, action: Callable[[], object]) -> None:
        """Do something at the client after what was sent to it before, if the connection lasts."""
        connection = self.connection
        self._delivered_at = max(self._delivered_at, self._timeline.now + HOP_S * self._timeline.random.random())

        def arrive() -> None:
            if connection == self.connection:
                action()
                self.arrived()

        self._timeline.at(self._delivered_at, arrive)

    # --- requests

    def _request(self, act: Callable[[Server], object]) -> Answer:
        """Send a request; requests of a session are answered in order."""
        answer = Answer()
        self._count()
        if self.server is None:
            answer.resolve(ConnectionLoss() if self.id else SessionExpiredError())
            return answer
        self._queue.append((act, answer))
        if len(self._queue) == 1:
            self._timeline.later(HOP_S * self._timeline.random.random(), self._serve)
        return answer

    def _serve(self) -> None:
        """Serve the first request of the queue. A write is finished by the server when it applies it."""
        if not self._queue or self.server is None or not self._ensemble.up:
            return
        act, answer = self._queue[0]
        try:
            value = act(self.server)
        except Exception as error:
            value = error
        if value is not _PENDING:
            self._finish(answer, value)

    def _finish(self, answer: Answer, value: object) -> None:
        if self._queue and self._queue[0][1] is answer:
            self._queue.popleft()
            self._outstanding.append(answer)
            self._deliver(lambda: self._receive(answer, value))
            if self._queue:
                self._timeline.later(0.0, self._serve)

    def _receive(self, answer: Answer, value: object) -> None:
        self._outstanding.remove(answer)
        answer.resolve(value)

    def write(
        self, write: Write, value: object, refusal: Callable[[Exception], object] = lambda error: error
    ) -> Answer:
        """Make a write; `refusal`: the answer if it fails."""

        def act(server: Server) -> object:
            try:
                self._ensemble.commit(write, server, lambda: self._finish(answer, value))
            except KazooException as refused:
                told = refusal(refused)
                self._ensemble.refuse(server, lambda: self._finish(answer, told))
            return _PENDING

        answer = self._request(act)
        return answer

    def sync_async(self, path: str) -> Answer:
        """See kazoo: answered once the server has applied everything that the leader had ordered."""
        return self.write(lambda _tree: [], path)

    def create_async(self, path: str, data: bytes = b"", ephemeral: bool = False, makepath: bool = False) -> Answer:
        """See kazoo."""
        return self.write(create_node(path, data, self.id if ephemeral else 0, makepath), path)

    def delete_async(self, path: str, version: int = -1) -> Answer:
        """See kazoo."""
        return self.write(delete_node(path, version), True)

    def set_async(self, path: str, data: bytes, version: int = -1) -> Answer:
        """See kazoo."""
        return self.write(set_node(path, data, version), True)

    def exists_async(self, path: str, watch: Watch | None = None) -> Answer:
        """See kazoo."""

        def act(server: Server) -> object:
            server.watch("data", path, watch, self)
            node = server.tree.nodes.get(path)
            return None if node is None else node.stat

        return self._request(act)

    def get_async(self, path: str, watch: Watch | None = None) -> Answer:
        """See kazoo."""

        def act(server: Server) -> object:
            node = server.tree.find(path)
            server.watch("data", path, watch, self)
            return node.data, node.stat

        return self._request(act)

    def get_children_async(self, path: str, watch: Watch | None = None) -> Answer:
        """See kazoo."""

        def act(server: Server) -> object:
            node = server.tree.find(path)
            server.watch("children", path, watch, self)
            return list(node.children)

        return self._request(act)

    def transaction(self) -> Transaction:
        return Transaction(self)

    def create(self, path: str, data: bytes = b"", ephemeral: bool = False, makepath: bool = False) -> object:
        return self.create_async(path, data, ephemeral, makepath).get()

    def delete(self, path: str, version: int = -1) -> object:
        return self.delete_async(path, version).get()

    def exists(self, path: str, watch: Watch | None = None) -> object:
        return self.exists_async(path, watch).get()

    def get(self, path: str, watch: Watch | None = None) -> object:
        return self.get_async(path, watch).get()

    def set(self, path: str, data: bytes) -> object:
        return self.set_async(path, data).get()

    def get_children(self, path: str, watch: Watch | None = None) -> object:
        return self.get_children_async(path, watch).get()

    def ensure_path(self, path: str, acl: object = None) -> None:
        if self.exists(path) is None:
            try:
                self.create(path, makepath=True)
            except NodeExistsError:
                pass

    def get_acls(self, _path: str) -> tuple[object, None]:
        self.exists("/")
        return None, None


class Transaction:
    """See kazoo. If a write fails those before it must have left nothing."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._writes: list[Write] = []

    def create(self, path: str, data: bytes = b"", ephemeral: bool = False) -> None:
        self._writes.append(create_node(path, data, self._session.id if ephemeral else 0, False))

    def delete(self, path: str) -> None:
        self._writes.append(delete_node(path))

    def commit_async(self) -> Answer:
        def write(tree: Tree) -> list[str]:
            return [fired for one in self._writes for fired in one(tree)]

        return self._session.write(write, [True] * len(self._writes), lambda error: [error])


_PENDING = object()
