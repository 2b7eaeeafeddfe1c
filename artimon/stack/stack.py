"""Stack of real servers on this machine, as a context manager: for `artimon up` and for tests."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Self

from artimon.runtime.settings import Settings
from artimon.runtime.settings import load as load_settings
from artimon.stack import jars
from artimon.stack.child_process import start_time
from artimon.stack.java import find_java
from artimon.stack.kafka_part import kafka_address
from artimon.stack.part_catalogue import SHARDS, choose_parts
from artimon.stack.part_runner import Phase
from artimon.stack.port_leases import PortLeases
from artimon.stack.stack_errors import NotHealthyError
from artimon.stack.stack_part import StackContext, StackHost, StackPart
from artimon.stack.stack_state import DataLock, PartState, StackState, kill_stale, read_state, write_state
from artimon.stack.supervisor import Supervisor
from artimon.stack.zookeeper_part import zookeeper_address

START_TIMEOUT_S = 900.0
PART_TIMEOUT_S = 60.0


class Stack:
    """The chosen parts on one data folder.

    `parts`: names of parts and groups (None: all; "hdfs" means namenode and datanode). `base_port`: None means the
    stable default ports, a number means free ports from there on, so that tests do not disturb a running stack.
    `hosts`: the hosts of parts that run elsewhere than on this machine, by part.
    All its processes end with this process, even after SIGKILL. Raises StackError."""

    def __init__(
        self,
        data: Path,
        parts: Iterable[str] | None = None,
        *,
        base_port: int | None = None,
        options: Mapping[str, str] | None = None,
        settings: Settings | None = None,
        hosts: Mapping[str, StackHost] | None = None,
    ) -> None:
        self.data = data.absolute()
        self._settings = settings or load_settings()
        self._base_port, self._options, self._hosts = base_port, dict(options or {}), dict(hosts or {})
        shards = int(self._options.get("shards", SHARDS))
        brokers = int(self._options.get("brokers", 1))
        self.parts: list[StackPart] = choose_parts(("all",) if parts is None else parts, shards, brokers)
        self._leases = PortLeases()
        self._lock: DataLock | None = None
        self._supervisor: Supervisor | None = None
        self._context: StackContext | None = None

    def __enter__(self) -> Self:
        self.start()
        try:
            self.wait_healthy()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Lock the folder, lease the ports and start the supervisor. Returns before the parts are healthy."""
        java = find_java(self._settings)
        folder = jars.ensure_jars(self._settings, java, [name for part in self.parts for name in part.jar_sets])
        self._lock = DataLock(self.data)
        try:
            kill_stale(self.data)
            self._context = StackContext(
                data=self.data,
                ports=self._lease_ports(),
                settings=self._settings,
                java=java,
                jars=folder,
                spark_jars=jars.spark_jars(),
                options=self._options,
                hosts=self._hosts,
            )
            self._supervisor = Supervisor(self.parts, self._context, self._publish)
            self._supervisor.start()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop all parts in reverse order, release ports and folder. Idempotent."""
        if self._supervisor is not None:
            self._supervisor.stop()
            self._supervisor = None
        self._leases.release()
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    @property
    def started(self) -> bool:
        """True from `start` to `stop`."""
        return self._supervisor is not None

    @property
    def context(self) -> StackContext:
        """Ports and folders. Raises NotHealthyError before `start`."""
        if self._context is None:
            raise NotHealthyError(0, {"stack": "not started"})
        return self._context

    @property
    def zookeeper(self) -> str:
        """host:port of each ZooKeeper server, separated by commas."""
        return zookeeper_address(self.context)

    @property
    def kafka(self) -> str:
        """host:port of each broker, separated by commas."""
        return kafka_address(self.context)

    @property
    def hdfs(self) -> str:
        """URI of the file system, such as hdfs://127.0.0.1:8020."""
        return f"hdfs://{self.context.address('namenode.rpc')}"

    def addresses(self) -> dict[str, str]:
        """Return the variables of `artimon env`."""
        found: dict[str, str] = {}
        for part in self.parts:
            found.update(part.addresses(self.context))
        return {**found, "ARTIMON_DATA": str(self.data)}

    def wait_healthy(self, timeout_s: float = START_TIMEOUT_S, names: Iterable[str] | None = None) -> None:
        """Wait until the parts `names` (default: all that should run) are healthy. Raises NotHealthyError."""
        self._running().wait_healthy(timeout_s, names)

    def states(self) -> dict[str, PartState]:
        """Return the current state of every part."""
        return self._running().states()

    def resident(self) -> dict[str, int]:
        """Return resident bytes by part, at most some seconds old."""
        return self._running().resident()

    def pid(self, name: str) -> int:
        """Return the process id of a part, 0 if none runs."""
        return self.states()[name].pid

    def kill(self, name: str, number: int = signal.SIGKILL) -> int:
        """Send a signal to a part's process and return its process id (0: none ran).

        After SIGKILL it returns once the supervisor has seen the end, so that `wait_healthy` means the next process."""
        pid = self._running().kill(name, number)
        if number == signal.SIGKILL and pid:
            self._wait(name, lambda state: state.pid != pid)
        return pid

    def restart(self, name: str) -> None:
        """Stop a part in an orderly way and start it again; returns when a new process runs. See `wait_healthy`."""
        pid = self.pid(name)
        self._running().restart(name)
        self._wait(name, lambda state: state.pid not in (0, pid))

    def stop_part(self, name: str) -> None:
        """Stop a part and keep it stopped; returns when it is."""
        self._running().set_wanted(name, False)
        self._wait(name, lambda state: state.state == Phase.STOPPED)

    def kill_part(self, name: str) -> None:
        """Kill a part with SIGKILL and keep it stopped; returns when it is. `start_part` lets it run again."""
        self._running().kill(name)
        self.stop_part(name)

    def start_part(self, name: str) -> None:
        """Let a stopped part run again. See `wait_healthy`."""
        self._running().set_wanted(name, True)

    def _wait(self, name: str, condition: Callable[[PartState], bool]) -> None:
        if not self._running().wait(lambda states: condition(states[name]), PART_TIMEOUT_S):
            raise NotHealthyError(PART_TIMEOUT_S, {name: "did not reach the requested state"})

    def _running(self) -> Supervisor:
        if self._supervisor is None:
            raise NotHealthyError(0, {"stack": "not started"})
        return self._supervisor

    def _lease_ports(self) -> dict[str, int]:
        """Lease the ports of the last run on this folder, else the defaults; the next free ones if those are taken."""
        before = read_state(self.data)
        known = before.ports if before else {}
        ports: dict[str, int] = {}
        for part in self.parts:
            for name, default in part.ports.items():
                wished = default if self._base_port is None else self._base_port
                ports[name] = self._leases.lease(known.get(name, wished))
        return ports

    def _publish(self, states: list[PartState], guard_pid: int) -> None:
        me = os.getpid()
        state = StackState(
            pid=me,
            started=start_time(me),
            ports=dict(self.context.ports),
            addresses=self.addresses(),
            parts=states,
            guard_pid=guard_pid,
        )
        write_state(self.data, state)
