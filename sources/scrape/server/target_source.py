"""One foreign server as a source: asks it at its phase of each period, says how it is, ends what is gone.

What is asked and how an answer is understood is for subclasses to say.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
from abc import ABC, abstractmethod
from collections import Counter
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from artimon.model.protocols import SinkRefused
from sources.base.errors import Faults, PollError
from sources.base.schedule import missed_ticks, next_tick, phase_ms, until
from sources.delivery.poll_context import PollContext
from sources.delivery.poll_limits import PollLimits
from sources.state.reading import Reading
from sources.state.relabel import Rules
from sources.state.series_memory import Placed, SourceSeries
from sources.targets.http_target import Target

log = logging.getLogger(__name__)
GONE_PERIODS = 5
"""Without an answer for so long, the series of a server end."""
_EARLY_TRIES = 12
"""In a period, until the first answer."""


class TargetReading(Protocol):
    """What one poll found."""

    @property
    def faults(self) -> Faults: ...


Content = TypeVar("Content")
FoundContent = TypeVar("FoundContent", bound=TargetReading)


class Pool:
    """What the foreign servers of an agent share: so many answers are in memory at once, those of targets that failed
    last time in a quarter as many places of their own. `parsing` is held while an answer is parsed: one at a time."""

    def __init__(self, concurrency: int = 32) -> None:
        self.limits = PollLimits(concurrency)
        self.parsing = asyncio.Lock()


class TargetSource(ABC, Generic[Content]):
    """Everything runs in the event loop, except `read`, one poll at a time."""

    eager: ClassVar[bool] = True
    """Until its first answer it is asked several times a period: it may be starting."""

    def __init__(self, target: Target, shared: PollContext, pool: Pool) -> None:
        self.target, self.shared, self._pool = target, shared, pool
        self.series: SourceSeries | None = self._series_before()
        """The source, once it is known where the server stands."""
        self.labels: dict[str, str] = dict(self.series.meta["labels"]) if self.series else {}
        """Of all its series: those of its host, then its own; empty until it is known where it stands."""
        self._failing, self._met = False, False
        self._answered_ms = self.series.last_poll_ms if self.series else 0
        self._last_ms = 0.0

    # --- what a subclass says

    @abstractmethod
    async def fetch(self, ip: str) -> Any:
        """The raw answers of one poll, within the deadline. PollError with the reason."""

    @abstractmethod
    def read(self, raw: Any) -> Content:
        """What the answers say, in a thread. PollError if they say nothing."""

    @abstractmethod
    async def deliver(self, content: Content, series: SourceSeries, time_ms: int) -> int:
        """Say what was refused of what a poll found, and hand on the rest: samples accepted. SinkRefused: none."""

    def renew(self) -> None:
        """What it had has ended: what comes next is looked at afresh."""

    @property
    def period_ms(self) -> int:
        """Between two polls."""
        return self.shared.config.period_ms

    @property
    def deadline_s(self) -> float:
        """For one poll: connect, ask, read the whole answer."""
        return self.shared.config.deadline_s

    # --- what a rival asks (Owner)

    async def answers(self, sure: bool) -> bool:  # noqa: ARG002
        """It keeps its source for as long as it is configured, whether it answers or not."""
        return True

    def supersede(self) -> None:
        """Never asked to: see `answers`."""

    # --- life

    async def run(self) -> None:
        """For ever; a poll that fails is counted, and the next one is made all the same."""
        clock = self.shared.clock
        planned = self._tick() if self.series is not None and self.series.live else clock.now_ms()
        while True:
            await until(planned, clock, lambda: 2 * self.period_ms)
            await self._poll_safely()
            self.shared.figures.missed_ticks += missed_ticks(planned, clock.now_ms(), self.period_ms)
            planned = self._next()

    async def leave(self) -> None:
        """It is no longer configured: its series end, and nothing more is said of it. `run` was cancelled before."""
        figures, series = self.shared.figures, self.series
        for about in (f"?{self.target}", series.name if series else ""):
            self.shared.statuses.left(about)
        figures.problem(self._about, "")
        figures.refuse(f"answer of {self.target}", Counter())
        if series is None or self.shared.owners.get(series.name) is not self:
            return
        self.shared.owners.release(series.name, self)
        figures.refuse(series.name, Counter())
        try:
            await self.shared.delivery.end(series)
        except SinkRefused:
            pass  # said at the next start of the agent, which does not know the target either

    def _next(self) -> int:
        tick = self._tick()
        if self._met or not self.eager:
            return tick
        return min(tick, self.shared.clock.now_ms() + self.period_ms // _EARLY_TRIES)

    def _tick(self) -> int:
        name = self.series.name if self.series else str(self.target)
        sampled = self.series.last_poll_ms if self.series else None
        return next_tick(self.shared.clock.now_ms(), phase_ms(name, self.period_ms), self.period_ms, sampled)

    def _series_before(self) -> SourceSeries | None:
        """The source of the last run, so that a server that is down at start is known by its labels."""
        for series in self.shared.delivery.store:
            if series.meta.get(self.target.kind) == self.target.identity:
                return series
        return None

    # --- one poll

    @property
    def _about(self) -> str:
        return f"{self.target.kind}/{self.target}"

    async def _poll_safely(self) -> None:
        figures = self.shared.figures
        figures.polls += 1
        try:
            samples = await self._poll()
        except PollError as error:
            figures.poll_errors[error.reason] += 1
            figures.problem(self._about, f"{self.target}: {error}")
            await self._failed()
            return
        except SinkRefused:
            samples = 0
        except Exception as error:  # whatever is wrong with this one, the others go on
            log.exception("%s", self.target)
            figures.internal(self._about, self.target, error)
            return
        figures.problem(self._about, "")
        self._failing, self._met, self._answered_ms = False, True, self.shared.clock.now_ms()
        self._report(True, samples)

    async def _failed(self) -> None:
        self._failing = True
        self._report(False, 0)
        silent_ms = self.shared.clock.now_ms() - self._answered_ms
        if self.series is not None and self.series.live and silent_ms > (GONE_PERIODS - 0.5) * self.period_ms:
            log.warning("%s: no answer for %.0f s: its series end", self.target, silent_ms / 1000)
            try:
                await self.shared.delivery.end(self.series)
                self.renew()
            except SinkRefused:
                pass  # said again with the next poll

    def _report(self, up: bool, samples: int) -> None:
        key = self.series.name if self.series else f"?{self.target}"
        unplaced = {**self.target.labels, "address": self.target.address}
        self.shared.statuses.polled(key, self.labels or unplaced, up, self._last_ms, samples)

    async def _poll(self) -> int:
        """Samples accepted. PollError: there was no good answer."""
        async with self._pool.limits.place(self._failing):
            raw = await self._ask()
            time_ms = self.shared.clock.now_ms()
            async with self._pool.parsing:
                content = await asyncio.to_thread(self.read, raw)
            del raw
        return await self.deliver(content, self.known_series(), time_ms)

    async def _ask(self) -> Any:
        began = self.shared.clock.monotonic()
        try:
            async with asyncio.timeout(self.deadline_s):
                ip = await self._resolved()
                await self._identify(ip)
                return await self.fetch(ip)
        except TimeoutError:
            raise PollError("timeout", f"no whole answer within {self.deadline_s:g} s") from None
        finally:
            self._last_ms = (self.shared.clock.monotonic() - began) * 1000

    def tell(self, faults: Faults) -> None:
        texts = tuple(f"{self.target}: {reason}: {text}" for reason, text in faults.examples.items())
        self.shared.figures.refuse(f"answer of {self.target}", Counter(faults.counts), texts)

    # --- who answers

    async def _resolved(self) -> str:
        """The address of the server. PollError `network` if its name has none."""
        host = self.target.host
        try:
            return str(ipaddress.ip_address(host))
        except ValueError:
            pass
        try:
            found = await asyncio.get_running_loop().getaddrinfo(host, self.target.port, type=socket.SOCK_STREAM)
        except OSError as error:
            raise PollError("network", f"{host}: {error}") from error
        return str(found[0][4][0])

    async def _identify(self, ip: str) -> None:
        """Find out which source this is: once a run, by the address."""
        if self.series is not None and self.shared.owners.get(self.series.name) is self:
            return
        target, owners = self.target, self.shared.owners
        placed = await self.shared.placement.labels(ip)
        name = target.source(placed["host"])
        if owners.get(name) not in (None, self):
            raise PollError("same source twice", f"{name} is polled already: give one of the two another instance")
        owners.hold(name, self)
        self.shared.statuses.left(f"?{target}")
        before, self.series = self.series, self.shared.delivery.store.get(name)
        if before is not None and before is not self.series:
            await self.shared.delivery.end(before)
        self.labels = {**placed, **target.labels}
        self.series.meta = {"context": target.labels["context"], "labels": self.labels, target.kind: target.identity}
        self.series.changed = True

    def known_series(self) -> SourceSeries:
        if self.series is None:
            raise PollError("internal", "the source is not known")
        return self.series


class ReadingSource(TargetSource[FoundContent]):
    """A server whose answers become readings: every series that it has, at the time of the poll."""

    def __init__(self, target: Target, shared: PollContext, pool: Pool, rules: Rules | None = None) -> None:
        super().__init__(target, shared, pool)
        self._rules = rules
        self._placed: Placed | None = None
        self._clean = False

    @abstractmethod
    def reading(self, content: FoundContent, series: SourceSeries, time_ms: int) -> Reading:
        """The reading of a poll; `self.clean` tells of the poll before."""

    @property
    def clean(self) -> bool:
        """The poll before, in this run, found everything and had no faults: what is new now was not there then."""
        return self._clean

    def renew(self) -> None:
        """Also when another process answers: what it has is placed anew."""
        self._placed, self._clean = None, False

    async def deliver(self, content: FoundContent, series: SourceSeries, time_ms: int) -> int:
        self.tell(content.faults)
        reading = self.reading(content, series, time_ms)
        if self._placed is None or self._placed.schema_id != reading.schema.id:
            self._placed = await self.shared.delivery.place(series, reading, self.labels, self._rules)
        self._clean = not content.faults.counts
        return await self.shared.delivery.send(series, reading, self._placed)
