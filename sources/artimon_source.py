"""The source of an agent: finds every process that registered, polls each at its phase, and says what became of it."""

from __future__ import annotations

import asyncio
import logging
import socket
import uuid
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from artimon.model.clock import Clock
from artimon.model.protocols import Sink
from sources.address import Endpoint
from sources.config import SourceConfig
from sources.delivery import Delivery
from sources.discovery import Discovery, Listing
from sources.dropin import DropinFolder
from sources.figures import Figures
from sources.follower import Follower, Shared
from sources.host import Host
from sources.jmx import bean_sources, end_removed, load_rules
from sources.local import LocalSource
from sources.names import Placement
from sources.owners import Owners
from sources.placement import read_rules
from sources.poller import Limits
from sources.reading import ReadingMaker, Variable
from sources.schedule import Pace, phase_ms
from sources.series import SourceSeries
from sources.status import Statuses
from sources.store import SeriesStore

log = logging.getLogger(__name__)
MAX_ENDPOINTS = 20_000
LEAVING_S = 1.0
"""So long an agent that ends waits for processes that are leaving."""
_SELF_PHASE = 0.25
"""The agent speaks of its endpoints a quarter into the period, after all of them were polled."""


class ArtimonSource:
    """One for each agent. Everything runs in the event loop of `run`, except ZooKeeper, files and name look-ups.

    Raises RulesError or JmxRulesError at once if the placement rules or the mapping rules cannot be read."""

    def __init__(self, config: SourceConfig, sink: Sink, clock: Clock, hostname: str | None = None) -> None:
        self._config, self._sink, self._clock = config, sink, clock
        rules = read_rules(config.rules) if config.rules else ()
        self._bean_rules = load_rules(config)
        config.folder.mkdir(parents=True, exist_ok=True)
        self._figures = Figures()
        self._store = SeriesStore(config.folder, config.max_series)
        self._placement = Placement(
            config.folder / "names.json", rules, clock, hostname=hostname or socket.gethostname()
        )
        self._statuses = Statuses(config.folder / "vanished.json", config.vanished_ms)
        self._delivery = Delivery(sink, self._store, self._figures, clock)
        self._shared = Shared(
            config,
            clock,
            Limits(config.concurrency),
            self._delivery,
            self._placement,
            Owners(),
            self._statuses,
            self._figures,
        )
        self._followers: dict[Endpoint, tuple[Follower, asyncio.Task[None]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._dropin: DropinFolder | None = None
        self._discovery = Discovery(config.zookeeper, config.reconcile_s, self._heard, self._listed)

    async def run(self, stop: asyncio.Event) -> None:
        """Until `stop` is set; then connections are closed and the state is written."""
        await asyncio.to_thread(self._load)
        self._resume()
        self._discovery.start(asyncio.get_running_loop())
        try:
            await self._start_local()
            await self._start_jmx()
            self._spawn(self._store.write_forever(), "source state")
            await stop.wait()
        finally:
            await self._stop()

    def set_period(self, period_ms: int) -> None:
        """Poll so often from now on: each source after its next poll as planned. May be called from any thread."""
        self._config.period_ms = period_ms

    def figures(self) -> dict[str, Any]:
        """Counts, refusals and problems, for the health file; may be called from any thread."""
        up, down = self._statuses.counts()
        figures = {"endpoints_up": up, "endpoints_down": down, **self._figures.to_json()}
        figures["problems"] = [*figures["problems"], *self._statuses.who_vanished(self._clock.now_ms())]
        bad = dict(self._discovery.bad_nodes)
        if bad:
            figures["refused"]["bad znode"] = len(bad)
            figures["problems"] = [*figures["problems"], *sorted(bad.values())[:10]]
        if not self._discovery.connected:
            text = f"ZooKeeper at {self._config.zookeeper} is not connected: new processes are not found"
            figures["problems"] = [text, *figures["problems"]]
        figures["zookeeper_failures"] = self._discovery.failures
        figures["damaged_states"] = self._store.damaged
        return figures

    # --- start and stop

    def _load(self) -> None:
        self._store.load(self._sink.replay(), self._clock.now_ms())
        self._statuses.load()

    def _resume(self) -> None:
        """Follow the processes of the last run, whether ZooKeeper can be asked or not."""
        for series in self._store:
            meta = series.meta
            if "port" in meta and series.live:
                endpoint = Endpoint(meta["context"], meta["ip"], meta["port"], series.uuid)
                self._follow(endpoint, series)

    async def _start_local(self) -> None:
        labels = await self._placement.labels("127.0.0.1")
        host = labels["host"]
        if self._config.host_metrics:
            machine = Host()
            series = self._store.get(f"host/{host}")
            source = LocalSource(series, self._delivery, machine.maker(), machine.read, labels)
            self._spawn(source.run(self._clock, self._pace(series.name)), "host")
        if self._config.dropin is not None:
            self._dropin = DropinFolder(self._config.dropin, self._delivery, self._shared.owners, labels)
            self._spawn(self._dropin.run(self._clock, self._pace(f"file/{host}")), "drop-in files")
        series = self._store.get(f"agent/{host}/{self._config.agent}")
        maker = ReadingMaker(uuid.uuid4().bytes, self._clock.now_ms())
        source = LocalSource(series, self._delivery, maker, self._own_variables, {})
        # After a restart every endpoint is polled before the agent speaks, or it would say that what it knows ended.
        first = self._clock.now_ms() + (self._config.period_ms if series.live else 0)
        self._spawn(source.run(self._clock, self._own_pace, first), "agent")

    def _pace(self, name: str) -> Pace:
        return lambda: (phase_ms(name, self._config.period_ms), self._config.period_ms)

    def _own_pace(self) -> tuple[int, int]:
        return round(self._config.period_ms * _SELF_PHASE), self._config.period_ms

    async def _start_jmx(self) -> None:
        await end_removed(self._shared)
        for source in bean_sources(self._shared, self._bean_rules):
            self._spawn(source.run(), str(source.target))

    async def _own_variables(self) -> Sequence[Variable]:
        now_ms = self._clock.now_ms()
        variables = self._statuses.variables(now_ms)
        if self._dropin is not None:
            variables += self._dropin.variables(now_ms)
        await asyncio.to_thread(self._statuses.save)
        return variables

    async def _stop(self) -> None:
        tasks = [*self._tasks, *(task for _, task in self._followers.values())]
        for task in tasks:
            task.cancel()
        followers = [follower for follower, _ in self._followers.values()]
        if tasks:
            await asyncio.wait(tasks, timeout=5)
        await self._conclude(followers)
        await asyncio.to_thread(self._discovery.stop)
        self._placement.close()
        if self._dropin is not None:
            self._dropin.close()
        await self._store.flush()
        await asyncio.to_thread(self._statuses.save)

    async def _conclude(self, followers: Iterable[Follower]) -> None:
        """Hear out who is about to leave; not for long, and whoever stays is followed again at the next start."""
        leaving = [asyncio.create_task(follower.conclude()) for follower in followers if not follower.registered]
        if not leaving:
            return
        _, late = await asyncio.wait(leaving, timeout=LEAVING_S)
        for task in late:
            task.cancel()
        await asyncio.gather(*leaving, return_exceptions=True)

    def _spawn(self, work: Any, name: str) -> None:
        task: asyncio.Task[None] = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("%s ended", task.get_name(), exc_info=task.exception())
            self._figures.problem(task.get_name(), f"{task.get_name()} ended: {task.exception()!r}")

    # --- what discovery says, in the event loop

    def _heard(self, context: str, endpoints: frozenset[Endpoint]) -> None:
        known = [endpoint for endpoint in self._followers if endpoint.context == context]
        self._compare(known, endpoints)

    def _listed(self, listing: Listing) -> None:
        everything = frozenset().union(*listing.values())
        self._compare(list(self._followers), everything)

    def _compare(self, known: Iterable[Endpoint], registered: frozenset[Endpoint]) -> None:
        for endpoint in known:
            self._followers[endpoint][0].set_registered(endpoint in registered)
        for endpoint in sorted(registered - set(known)):
            self._follow(endpoint, None)

    def _follow(self, endpoint: Endpoint, series: SourceSeries | None) -> None:
        if len(self._followers) >= MAX_ENDPOINTS:
            self._figures.problem("endpoints", f"more than {MAX_ENDPOINTS} endpoints: the others are not polled")
            return
        follower = Follower(endpoint, self._shared, series)
        if series is not None:
            self._shared.owners.hold(series.name, follower)
        task = asyncio.create_task(follower.run(), name=str(endpoint))
        self._followers[endpoint] = (follower, task)
        task.add_done_callback(lambda done: self._unfollow(endpoint, done))

    def _unfollow(self, endpoint: Endpoint, task: asyncio.Task[None]) -> None:
        self._followers.pop(endpoint, None)
        self._figures.refuse(str(endpoint), Counter())  # a rival may have asked it when it had gone
        if not task.cancelled() and task.exception() is not None:
            log.error("%s is no longer followed", endpoint, exc_info=task.exception())
