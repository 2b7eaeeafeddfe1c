"""One foreign server as a source: polls it at its phase, reports its status and ends series that are gone.

Subclasses define the request and the parser of the answer.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
from abc import ABC, abstractmethod
from collections import Counter
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from artimon.model.protocols import SinkRefusedError
from sources.base.schedule import missed_ticks, next_tick, phase_ms, sleep_until
from sources.base.source_errors import PollError, RejectCounts
from sources.delivery.poll_context import PollContext, PollLimits
from sources.delivery.source_owners import FixedOwner
from sources.state.relabel import RelabelRules
from sources.state.series_memory import PlacedColumns, SourceSeries
from sources.state.source_reading import Reading
from sources.targets.http_target import SourceTarget

log = logging.getLogger(__name__)
END_AFTER_PERIODS = 5
"""Periods without an answer after which the series of a server end."""
_EARLY_TRIES = 12
"""Polls per period until the first answer."""


class TargetReading(Protocol):
    """Parsed content of one poll."""

    @property
    def faults(self) -> RejectCounts: ...


Content = TypeVar("Content")
FoundContent = TypeVar("FoundContent", bound=TargetReading)


class TargetSource(FixedOwner, ABC, Generic[Content]):
    """Source of one target. Runs in the event loop, except `read`, one poll at a time."""

    eager: ClassVar[bool] = True
    """True to poll it _EARLY_TRIES times per period until its first answer, because it may be starting."""

    def __init__(self, target: SourceTarget, shared: PollContext, pool: PollLimits) -> None:
        self.target, self.shared, self._limits = target, shared, pool
        self.series: SourceSeries | None = self._series_before()
        """State of the source, once the host of the server is known."""
        self.labels: dict[str, str] = dict(self.series.meta["labels"]) if self.series else {}
        """Labels of all its series: those of its host, then its own; empty until its host is known."""
        self._failing, self._was_reached = False, False
        self._answered_ms = self.series.last_poll_ms if self.series else 0
        self._last_ms = 0.0

    # --- defined by subclasses

    @abstractmethod
    async def fetch(self, ip: str) -> Any:
        """Fetch the raw answers of one poll; the caller sets the timeout. Raises PollError with the reason."""

    @abstractmethod
    def read(self, raw: Any) -> Content:
        """Parse the raw answers; runs in a thread. Raises PollError if they are invalid."""

    @abstractmethod
    async def deliver(self, content: Content, series: SourceSeries, time_ms: int) -> int:
        """Report refusals, deliver the rest and return the number of accepted samples. Raises SinkRefusedError if the
        sink accepted none."""

    def renew(self) -> None:
        """Reset the state of earlier polls: all series have ended."""

    @property
    def period_ms(self) -> int:
        """Period of the polls in ms."""
        return self.shared.config.period_ms

    @property
    def deadline_s(self) -> float:
        """Timeout of one poll in seconds: connect, send the request, read the whole answer."""
        return self.shared.config.deadline_s

    # --- life

    async def run(self) -> None:
        """Poll until cancelled. A failed poll is counted and does not stop the loop."""
        clock = self.shared.clock
        planned = self._tick() if self.series is not None and self.series.live else clock.now_ms()
        while True:
            await sleep_until(planned, clock, lambda: 2 * self.period_ms)
            await self._poll_safely()
            self.shared.figures.missed_ticks += missed_ticks(planned, clock.now_ms(), self.period_ms)
            planned = self._next()

    async def remove(self) -> None:
        """End the series of a target removed from the configuration, and its status. `run` was cancelled before."""
        figures, series = self.shared.figures, self.series
        for about in (f"?{self.target}", series.name if series else ""):
            self.shared.statuses.remove(about)
        figures.set_problem(self._about, "")
        figures.set_refused(f"answer of {self.target}", Counter())
        if series is None or self.shared.owners.get(series.name) is not self:
            return
        self.shared.owners.release(series.name, self)
        figures.set_refused(series.name, Counter())
        try:
            await self.shared.delivery.end(series)
        except SinkRefusedError:
            pass  # the next start of the agent ends them, as the target is not configured then either

    def _next(self) -> int:
        tick = self._tick()
        if self._was_reached or not self.eager:
            return tick
        return min(tick, self.shared.clock.now_ms() + self.period_ms // _EARLY_TRIES)

    def _tick(self) -> int:
        name = self.series.name if self.series else str(self.target)
        sampled = self.series.last_poll_ms if self.series else None
        return next_tick(self.shared.clock.now_ms(), phase_ms(name, self.period_ms), self.period_ms, sampled)

    def _series_before(self) -> SourceSeries | None:
        """Return the source of the last run, so that a server that is down at the start has its labels."""
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
            figures.set_problem(self._about, f"{self.target}: {error}")
            await self._handle_failure()
            return
        except SinkRefusedError:
            samples = 0
        except Exception as error:  # an error in one target must not stop the others
            log.exception("%s", self.target)
            figures.note_internal_error(self._about, self.target, error)
            return
        figures.set_problem(self._about, "")
        self._failing, self._was_reached, self._answered_ms = False, True, self.shared.clock.now_ms()
        self._report(True, samples)

    async def _handle_failure(self) -> None:
        self._failing = True
        self._report(False, 0)
        silent_ms = self.shared.clock.now_ms() - self._answered_ms
        if self.series is not None and self.series.live and silent_ms > (END_AFTER_PERIODS - 0.5) * self.period_ms:
            log.warning("%s: no answer for %.0f s: its series end", self.target, silent_ms / 1000)
            try:
                await self.shared.delivery.end(self.series)
                self.renew()
            except SinkRefusedError:
                pass  # repeated after the next failed poll

    def _report(self, up: bool, samples: int) -> None:
        key = self.series.name if self.series else f"?{self.target}"
        unplaced = {**self.target.labels, "address": self.target.address}
        self.shared.statuses.record_poll(key, self.labels or unplaced, up, self._last_ms, samples)

    async def _poll(self) -> int:
        """Poll once and return the samples accepted. Raises PollError if there was no valid answer."""
        async with self._limits.place(self._failing):
            raw = await self._fetch()
            time_ms = self.shared.clock.now_ms()
            async with self._limits.parsing:
                content = await asyncio.to_thread(self.read, raw)
            del raw
        return await self.deliver(content, self.known_series(), time_ms)

    async def _fetch(self) -> Any:
        began = self.shared.clock.monotonic()
        try:
            async with asyncio.timeout(self.deadline_s):
                ip = await self._resolved()
                await self._identify(ip)
                return await self.fetch(ip)
        except TimeoutError:
            raise PollError("timeout", f"no complete answer within {self.deadline_s:g} s") from None
        finally:
            self._last_ms = (self.shared.clock.monotonic() - began) * 1000

    def report(self, faults: RejectCounts) -> None:
        texts = tuple(f"{self.target}: {reason}: {text}" for reason, text in faults.examples.items())
        self.shared.figures.set_refused(f"answer of {self.target}", Counter(faults.counts), texts)

    # --- identity

    async def _resolved(self) -> str:
        """Return the address of the server. Raises PollError `network` if its name cannot be resolved."""
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
        """Determine and claim the source, once per run, by the address. Raises PollError if another target owns it."""
        if self.series is not None and self.shared.owners.get(self.series.name) is self:
            return
        target, owners = self.target, self.shared.owners
        placed = await self.shared.placement.labels(ip)
        name = target.source(placed["host"])
        if owners.get(name) not in (None, self):
            raise PollError("same source twice", f"{name} is polled already: give one of the two another instance")
        owners.set_owner(name, self)
        self.shared.statuses.remove(f"?{target}")
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
    """Base of servers whose answers become readings: all their series at the time of the poll."""

    def __init__(
        self, target: SourceTarget, shared: PollContext, pool: PollLimits, rules: RelabelRules | None = None
    ) -> None:
        super().__init__(target, shared, pool)
        self._rules = rules
        self._placed: PlacedColumns | None = None
        self._clean = False

    @abstractmethod
    def reading(self, content: FoundContent, series: SourceSeries, time_ms: int) -> Reading:
        """Return the reading of a poll; `self.clean` refers to the poll before."""

    @property
    def is_clean(self) -> bool:
        """True if the previous poll of this run was complete, so that a series that is new now was absent then."""
        return self._clean

    def renew(self) -> None:
        """Reset the placed columns; also called when another process answers."""
        self._placed, self._clean = None, False

    async def deliver(self, content: FoundContent, series: SourceSeries, time_ms: int) -> int:
        self.report(content.faults)
        reading = self.reading(content, series, time_ms)
        if self._placed is None or self._placed.schema_id != reading.schema.id:
            self._placed = await self.shared.delivery.place(series, reading, self.labels, self._rules)
        self._clean = not content.faults.counts
        return await self.shared.delivery.send(series, reading, self._placed)
