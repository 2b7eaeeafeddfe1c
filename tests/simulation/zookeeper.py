"""A model of ZooKeeper: nodes with versions, watches that fire once or get lost, and the two kinds of clients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from kazoo.exceptions import BadVersionError, KazooException, NodeExistsError, NoNodeError

from tests.simulation.scheduler import Process, Scheduler

Watch = Callable[[Any], None]


class Stat(NamedTuple):
    """Status of a node, reduced to the fields in use."""

    version: int


class SimZookeeper:
    """The ZooKeeper ensemble."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self.nodes: dict[str, tuple[bytes, int]] = {}
        self.down = False
        self._watches: dict[str, list[tuple[Watch, Process, int]]] = {}
        self.on_write: Callable[[str, bytes, bytes | None], None] | None = None

    def write(self, path: str, data: bytes, version: int = -1, new: bool = False) -> None:
        """Write a node; raises the exceptions of kazoo."""
        before = self.nodes.get(path)
        if new and before is not None:
            raise NodeExistsError
        if not new and before is None:
            raise NoNodeError
        if before is not None and version >= 0 and before[1] != version:
            raise BadVersionError
        if self.on_write is not None:
            self.on_write(path, data, None if before is None else before[0])
        self.nodes[path] = data, 0 if before is None else before[1] + 1
        self._fire(path)
        if before is None:
            self._fire(path.rpartition("/")[0])

    def remove(self, path: str) -> None:
        """Remove a node, as when the session of an ephemeral node ends."""
        if self.nodes.pop(path, None) is not None:
            self._fire(path)
            self._fire(path.rpartition("/")[0])

    def wipe(self) -> None:
        """Remove all nodes, as when the ensemble loses its disks."""
        for path in list(self.nodes):
            self.remove(path)

    def children(self, path: str) -> list[str]:
        """Return the names of the children. Raises NoNodeError."""
        found = [name[len(path) + 1 :] for name in self.nodes if name.startswith(f"{path}/")]
        if not found:
            raise NoNodeError
        return found

    def watch(self, path: str, watch: Watch | None, owner: Process) -> None:
        """Register a watch for the next change of the node."""
        if watch is not None:
            self._watches.setdefault(path, []).append((watch, owner, owner.life))

    def _fire(self, path: str) -> None:
        notified: set[int] = set()
        for watch, owner, life in self._watches.pop(path, ()):
            if owner.life != life or id(watch.__self__) in notified:  # type: ignore[attr-defined]
                continue
            notified.add(id(watch.__self__))  # type: ignore[attr-defined]
            if not self._scheduler.chance(0.05):  # watches get lost
                delay = 0.01 + self._scheduler.random.random() * 0.1
                self._scheduler.later(delay, _WatchEvent(watch), owner)


class _WatchEvent:
    """A watch event on its way."""

    __slots__ = ("_watch",)

    def __init__(self, watch: Watch) -> None:
        self._watch = watch

    def __call__(self) -> None:
        self._watch(None)


class SimClient:
    """The part of KazooClient that processes use."""

    def __init__(self, zookeeper: SimZookeeper, scheduler: Scheduler, owner: Process) -> None:
        self._zookeeper, self._scheduler, self._owner = zookeeper, scheduler, owner

    @property
    def connected(self) -> bool:
        return not self._zookeeper.down

    def _wait(self) -> None:
        if self._scheduler.chance(0.01):
            self._scheduler.block(self._owner, self._scheduler.random.random() * 0.5)
        if self._zookeeper.down:
            raise KazooException("connection lost")

    def get_children(self, path: str, watch: Watch | None = None) -> list[str]:
        self._wait()
        self._zookeeper.watch(path, watch, self._owner)
        return self._zookeeper.children(path)

    def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat]:
        self._wait()
        self._zookeeper.watch(path, watch, self._owner)
        try:
            data, version = self._zookeeper.nodes[path]
        except KeyError:
            raise NoNodeError from None
        return data, Stat(version)

    def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        self._zookeeper.watch(path, watch, self._owner)
        found = self._zookeeper.nodes.get(path)
        return None if found is None else Stat(found[1])

    def get_async(self, path: str, watch: Watch | None = None) -> _Answer:
        return _Answer(lambda: self.get(path, watch))

    def get_children_async(self, path: str, watch: Watch | None = None) -> _Answer:
        return _Answer(lambda: self.get_children(path, watch))

    def exists_async(self, path: str, watch: Watch | None = None) -> _Answer:
        return _Answer(lambda: self.exists(path, watch))

    def create_async(self, path: str, data: bytes, makepath: bool = False) -> _Answer:
        del makepath
        return _Answer(lambda: self._write(path, data, new=True))

    def set_async(self, path: str, data: bytes, version: int) -> _Answer:
        return _Answer(lambda: self._write(path, data, version))

    def _write(self, path: str, data: bytes, version: int = -1, new: bool = False) -> None:
        self._wait()
        self._zookeeper.write(path, data, version, new)


class _Answer:
    """Result of an asynchronous call."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self._call = call

    def get(self, timeout: float | None = None) -> Any:
        """Run the call and return its result."""
        del timeout
        return self._call()
