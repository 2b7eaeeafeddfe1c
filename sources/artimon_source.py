"""Source of an agent: discovers registered processes, polls each at its phase and reports the outcome."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Sequence
from concurrent.futures import Future
from functools import partial
from ipaddress import ip_network
from typing import TYPE_CHECKING, Any

from artimon.model.clock import Clock
from artimon.model.protocols import Sink
from artimon.runtime.process_setup import raise_limit
from bookkeeper.process.host_key import write_host_key
from sources.base.schedule import Pace, end_tasks, phase_ms
from sources.delivery.commit_group import GroupCommitSink
from sources.delivery.endpoint_status import EndpointStatuses
from sources.delivery.placement_resolver import PlacementResolver, read_rules
from sources.delivery.poll_context import SPARE, PollContext, PollLimits
from sources.delivery.reading_delivery import ReadingDelivery
from sources.delivery.source_config import SourceConfig
from sources.delivery.source_counts import SourceCounts
from sources.delivery.source_owners import SourceOwners
from sources.dropin.folder import DropinFolder
from sources.host.host_source import HostMetrics
from sources.host.local_source import LocalSource
from sources.poll.final_folder import FinalFolder
from sources.poll.host_coordinator import HostCoordinator
from sources.poll.lease_units import own_host_keys, own_networks
from sources.poll.process_set import FollowedProcesses
from sources.poll.zookeeper_session import ZooKeeperSession
from sources.scrape.scrape_manager import ReloadedSourcesFile, ScrapeManager
from sources.state.relabel import RelabelRegistry
from sources.state.retention_rules import RetentionDivider
from sources.state.source_reading import ReadingBuilder, SourceVariable
from sources.state.state_store import SourceStateStore

if TYPE_CHECKING:
    from sources.receive.receiver import Receiver

_SELF_PHASE = 0.25
"""Phase of the agent's own variables as a fraction of the period: after all endpoints were polled."""
_POLL_LAST_S = 0.5
"""Seconds that an ending process waits for the event loop."""
_FINALS_S = 10.0
"""Timeout of the first sweep of final snapshots in seconds. A snapshot delivered later is only out of order."""


class ArtimonSource:
    """Polls all sources of one agent. Runs in the event loop of `run`, except ZooKeeper, files and name look-ups.

    The constructor raises ConfigFileError if a configuration file is invalid, SettingsError for `receive`."""

    def __init__(
        self,
        config: SourceConfig,
        sink: Sink,
        clock: Clock,
        hostname: str | None = None,
        session: ZooKeeperSession | None = None,
    ) -> None:
        """`session`: that of the process, which its owner starts and stops; None for one of its own."""
        self._config, self._sink, self._clock = config, sink, clock
        rules = read_rules(config.rules) if config.rules else ()
        named = ReloadedSourcesFile(config.sources)
        config.folder.mkdir(parents=True, exist_ok=True)
        self._figures = SourceCounts()
        self._store = SourceStateStore(config.folder, config.max_series)
        self._placement = PlacementResolver(config.folder / "names.json", rules, clock, hostname=hostname)
        self._statuses = EndpointStatuses(config.folder / "vanished.json", config.vanished_ms)
        self._delivery = ReadingDelivery(
            GroupCommitSink(sink),
            self._store,
            self._figures,
            clock,
            RelabelRegistry(named.content.rules),
            RetentionDivider(config.keep),
        )
        self._owns_session = session is None
        self._session = session or ZooKeeperSession(config.zookeeper, config.session_s)
        self._coordinator = HostCoordinator(
            self._session,
            config.agent,
            self._own_keys,
            [ip_network(text) for text in config.own_networks],
            listed=lambda listing: self._processes.on_listed(listing),
            assigned=lambda mine, leaving: self._processes.on_assigned(mine, leaving),
            grace_s=config.takeover_s,
            reconcile_s=config.reconcile_s,
        )
        self._shared = PollContext(
            config,
            clock,
            PollLimits(config.concurrency, raise_limit(SPARE)),
            self._delivery,
            self._placement,
            SourceOwners(),
            self._statuses,
            self._figures,
            lambda endpoint: self._coordinator.holds_lease(endpoint.unit),
            self._take_final,
        )
        networks = partial(own_networks, config.zookeeper, config.own_networks)
        self._final_folder = FinalFolder(config.dropin, self._shared, networks) if config.dropin else None
        self._scraping = ScrapeManager(self._shared, named)
        self._processes = FollowedProcesses(self._shared, self._coordinator)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._dropin: DropinFolder | None = None
        self._receiver = _make_receiver(config, self._delivery, self._pace("statsd"))
        self._host_labels: dict[str, str] = {}

    async def run(self, stop: asyncio.Event) -> None:
        """Poll until `stop` is set; then close connections and write the state."""
        self._loop = asyncio.get_running_loop()
        await asyncio.to_thread(self._load)
        await self._take_finals()
        self._processes.resume(self._store)
        if self._owns_session:
            self._session.start()
        self._coordinator.start(self._loop)
        try:
            await self._start_local()
            self._spawn(self._scraping.run(), "foreign sources")
            self._spawn(self._store.write_forever(), "source state")
            await stop.wait()
        finally:
            await self._stop()

    def poll_last(self, uuid: bytes) -> bool:
        """Poll a process once more, which is about to end; return False if it is not polled here. May be called from
        any thread but that of the event loop."""
        told, loop = Future[bool](), self._loop
        if loop is None:
            return False
        try:
            loop.call_soon_threadsafe(lambda: told.set_result(self._processes.poll_last(uuid)))
            return told.result(_POLL_LAST_S)
        except (RuntimeError, TimeoutError):  # the loop has ended, or is busy
            return False

    def set_period(self, period_ms: int) -> None:
        """Set the poll period; each source changes after its next planned poll. May be called from any thread."""
        self._config.period_ms = period_ms

    def figures(self) -> dict[str, Any]:
        """Return counts, refusals and problems for the health file. May be called from any thread."""
        up, down = self._statuses.counts()
        figures = {"endpoints_up": up, "endpoints_down": down, **self._figures.to_json()}
        figures["warnings"] = [*self._statuses.list_vanished(self._clock.now_ms()), *self._scraping.warnings()]
        bad = self._coordinator.bad_nodes
        if bad:
            figures["refused"]["bad znode"] = len(bad)
            figures["problems"] = [*figures["problems"], *sorted(bad.values())[:10]]
        if not self._session.connected:
            text = f"ZooKeeper at {self._config.zookeeper} is not connected: new processes are not found"
            figures["problems"] = [text, *figures["problems"]]
        figures["zookeeper_failures"] = self._coordinator.failures
        figures["leases"] = self._coordinator.counts()
        figures["damaged_states"] = self._store.damaged
        figures.update(self._scraping.figures())
        return figures

    # --- start and stop

    def _own_keys(self) -> tuple[str, ...]:
        """Return the host keys of this host, and leave the first one for applications in the drop-in folder."""
        keys = own_host_keys(self._config.zookeeper, self._config.host)
        if self._config.dropin is not None:
            with contextlib.suppress(OSError):
                write_host_key(str(self._config.dropin), keys[0])
        return keys

    def _load(self) -> None:
        self._store.load(self._sink.replay(self._store.last_poll_ms), self._clock.now_ms())
        self._statuses.load()

    async def _take_finals(self) -> None:
        """Deliver last values of ended processes before their successors are polled. Waits at most _FINALS_S."""
        if self._final_folder is not None:
            self._spawn(self._final_folder.run(self._pace("final")), "final snapshots")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._final_folder.swept.wait(), _FINALS_S)

    async def _take_final(self, uuid: bytes) -> None:
        if self._final_folder is not None:
            await self._final_folder.take(uuid)

    async def _start_local(self) -> None:
        labels = await self._placement.labels("127.0.0.1")
        host, self._host_labels = labels["host"], labels
        if self._config.host_metrics:
            machine = HostMetrics()
            series = self._store.get(f"host/{host}")
            source = LocalSource(series, self._delivery, machine.maker(), machine.read, labels)
            self._spawn(source.run(self._clock, self._pace(series.name)), "host")
        if self._config.dropin is not None:
            self._dropin = DropinFolder(self._config.dropin, self._delivery, self._shared.owners, labels)
            self._spawn(self._dropin.run(self._clock, self._pace(f"file/{host}")), "drop-in files")
        if self._receiver is not None:
            self._spawn(self._receiver.run(labels), "receiver")
        series = self._store.get(f"agent/{host}/{self._config.agent}")
        maker = ReadingBuilder(uuid.uuid4().bytes, self._clock.now_ms())
        source = LocalSource(series, self._delivery, maker, self._own_variables, {})
        # After a restart all endpoints are polled before the first own reading, or it would end the series it lacks.
        first = self._clock.now_ms() + (self._config.period_ms if series.live else 0)

        def pace() -> tuple[int, int]:
            return round(self._config.period_ms * _SELF_PHASE), self._config.period_ms

        self._spawn(source.run(self._clock, pace, first), "agent")

    def _pace(self, name: str) -> Pace:
        return lambda: (phase_ms(name, self._config.period_ms), self._config.period_ms)

    async def _own_variables(self) -> Sequence[SourceVariable]:
        now_ms = self._clock.now_ms()
        variables = self._statuses.variables(now_ms)
        if self._dropin is not None:
            variables += self._dropin.variables(now_ms)
        if self._receiver is not None:
            variables += self._receiver.variables()
        variables += self._scraping.variables()
        if self._final_folder is not None:
            variables += self._final_folder.variables(self._host_labels)
        await self._statuses.save()
        return variables

    async def _stop(self) -> None:
        await asyncio.gather(end_tasks(list(self._tasks)), self._processes.stop())
        await asyncio.to_thread(self._coordinator.stop)
        if self._owns_session:
            await asyncio.to_thread(self._session.stop)
        self._placement.close()
        if self._dropin is not None:
            self._dropin.close()
        if self._final_folder is not None:
            self._final_folder.close()
        await self._store.flush()
        await self._statuses.save()

    def _spawn(self, work: Any, name: str) -> None:
        task: asyncio.Task[None] = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(self._figures.ended)


def _make_receiver(config: SourceConfig, delivery: ReadingDelivery, pace: Pace) -> Receiver | None:
    """Return the receiver of the configuration; its libraries are imported only if there is one."""
    if not config.receive:
        return None
    from sources.receive.receiver import Receiver

    return Receiver(config.receive, config.receive_token, config.security, delivery, pace)
