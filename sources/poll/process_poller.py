"""Follower of one process from its registration to its end: polls it at its phase and detects its end."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter

from artimon.model.protocols import SinkRefusedError
from sources.base.endpoint_address import EndpointAddress
from sources.base.schedule import MAX_SLEEP_S, missed_ticks, next_tick, periods_until_next, phase_ms, wait_s
from sources.base.source_errors import PolledElsewhereError, PollError
from sources.delivery.placement_resolver import source_name
from sources.delivery.poll_context import PollContext
from sources.poll import start_time_memo as memo
from sources.poll.poll_client import PollClient
from sources.state.series_memory import HOST_KEY, PORT, PlacedColumns, SourceSeries
from sources.state.source_reading import NO_PROCESS, Reading

log = logging.getLogger(__name__)
_RETRY_S = 1.0
"""Retry delay in seconds, for a process that waits for its predecessor to end and for refused end markers."""
_CONCLUDE_PAUSE_S = 0.2
"""Seconds between polls of a deregistered process while the agent stops."""
_SESSION_MS = 2_000
"""Below any session timeout, in ms: the znode of a killed process outlives its last answer by more than this."""


class ProcessFollower:
    """Follower of one endpoint. `registered`: its znode exists; without it a failed poll means that the process ended.

    A process of an earlier run of the agent is `met` once its znode was seen or it answered. One that was never met
    ended while the agent was down. The manner of its end is unknown and raises no alarm.

    `_busy` is held during a poll, so that a poll requested by a rival and the scheduled one do not overlap."""

    def __init__(self, endpoint: EndpointAddress, shared: PollContext, series: SourceSeries | None = None) -> None:
        self.endpoint, self._shared = endpoint, shared
        self.registered = True
        self.series = series
        """Source that this process owns; passed at start if it owned it before."""
        self._labels: dict[str, str] = dict(series.meta.get("labels", {})) if series else {}
        self._poller = PollClient(
            endpoint, shared.config, shared.limits, shared.clock, lambda: shared.holds_lease(endpoint)
        )
        self._memo_left = b""
        """Memo last left with the process for another agent."""
        self._failures = 0
        """Consecutive failed polls."""
        self._placed: PlacedColumns | None = None
        self._identified: tuple[str, str] | None = None
        self._refused_as = ""
        self._was_reached = series is None
        self._superseded = self._ended = False
        self._unregistered_ms = 0
        """Time of the first answer after the last loss of its znode, 0 if none."""
        self._answered_ms = 0
        self._just_answered = False
        """True if it answered within _SESSION_MS before the loss of its znode: it was not killed, so that answer may be
        its last one."""
        self._sampled_ms: int | None = series.last_poll_ms if series else None
        self._wake = asyncio.Event()
        self._busy = asyncio.Lock()

    # --- events of discovery

    def set_registered(self, registered: bool) -> None:
        """Record the presence of its znode. After a loss the process is polled once more at once."""
        self._was_reached |= registered
        if self.registered and not registered:
            self._unregistered_ms = 0
            self._just_answered = self._shared.clock.now_ms() - self._answered_ms < _SESSION_MS
            self._wake.set()
        elif registered and not self.registered:
            self._failures = 0
            self._wake.set()
        self.registered = registered

    # --- calls of a rival (Owner)

    async def answers(self, sure: bool) -> bool:
        if not sure and self.registered and not self._poller.failing:
            return True
        try:
            # Two rivals that check each other must not deadlock: one that is busy for so long is alive.
            async with asyncio.timeout(2 * self._shared.config.deadline_s):
                await self._busy.acquire()
        except TimeoutError:
            return True
        try:
            return not self._ended and await self._poll()
        finally:
            self._busy.release()

    def supersede(self) -> None:
        self._forget_source()
        self._superseded = True

    def _forget_source(self) -> None:
        self.series, self._placed, self._identified = None, None, None

    # --- life

    async def run(self) -> None:
        """Poll the process until it has ended. Cancel to stop earlier."""
        try:
            planned = self._shared.clock.now_ms()  # a new process is polled at once, to identify it
            if self.series is not None:
                planned = self._tick(planned)
            while True:
                await self._until(planned)
                asked_to_leave = not self.registered
                async with self._busy:
                    answered = await self._poll()
                if asked_to_leave and not answered:
                    await self._handle_end()
                    return
                planned = self._next(planned, asked_to_leave)
        finally:
            self._ended = True
            self._poller.close()

    async def stand_down(self, task: asyncio.Task[None]) -> None:
        """Hand the process over to another agent: finish a running poll and cancel `task`, the one of `run`. Its series
        do not end."""
        async with self._busy:
            self._ended = True
            task.cancel()
        await asyncio.wait([task])
        shared, series = self._shared, self.series
        shared.statuses.remove(self._key())
        for about in (str(self.endpoint), series.name if series else ""):
            shared.figures.set_refused(about, Counter())
        if series is not None and shared.owners.get(series.name) is self:
            shared.owners.release(series.name, self)
            series.meta["elsewhere"] = True
            series.changed = True
            shared.delivery.store.touch(series)

    async def conclude(self) -> None:
        """Poll a deregistered process until it has ended. Called when the agent stops, after `run` was cancelled: the
        next start of the agent could not know that the process ended in order."""
        while not self.registered and self.series is not None:
            async with self._busy:
                answered = await self._poll()
            if not answered:
                await self._handle_end()
                return
            self._unregistered_ms = self._unregistered_ms or self._shared.clock.now_ms()
            await asyncio.sleep(_CONCLUDE_PAUSE_S)

    def _tick(self, now_ms: int) -> int:
        period = self._shared.config.period_ms
        name = self.series.name if self.series else self._refused_as or str(self.endpoint)
        later = periods_until_next(self._failures, str(self.endpoint)) - 1
        return next_tick(now_ms, phase_ms(name, period), period, self._sampled_ms) + later * period

    def _next(self, planned: int, asked_to_leave: bool) -> int:
        now_ms = self._shared.clock.now_ms()
        self._shared.figures.missed_ticks += missed_ticks(planned, now_ms, self._shared.config.period_ms)
        tick = self._tick(now_ms)
        if asked_to_leave and not self._unregistered_ms:
            self._unregistered_ms = now_ms
            return min(tick, now_ms + round(self._shared.config.goodbye_s * 1000))
        if self._waits_for_predecessor():
            return min(tick, now_ms + round(_RETRY_S * 1000))
        return tick

    def _waits_for_predecessor(self) -> bool:
        owner = self._shared.owners.get(self._refused_as) if self._refused_as else None
        return isinstance(owner, ProcessFollower) and not owner.registered

    async def _until(self, time_ms: int) -> None:
        """Wait until the wall clock reaches `time_ms` or is set back, or the znode appears or disappears."""
        clock = self._shared.clock
        most_ms = time_ms - clock.now_ms() + self._shared.config.period_ms
        while not self._wake.is_set():
            left = wait_s(clock.now_ms(), time_ms, most_ms)
            if left <= 0:
                return
            try:
                await asyncio.wait_for(self._wake.wait(), min(left, MAX_SLEEP_S))
            except TimeoutError:
                continue
        self._wake.clear()

    # --- one poll

    async def _poll(self) -> bool:
        """Poll once and deliver; return False if there was no valid answer. The caller holds `_busy`."""
        figures = self._shared.figures
        figures.polls += 1
        samples = 0
        try:
            samples = await self._take(await self._poller.poll())
        except PolledElsewhereError as other:
            log.info("%s: %s", self.endpoint, other)
            figures.polled_elsewhere += 1
            figures.set_problem(str(self.endpoint), "")
            self._failures = 0
            self._shared.statuses.remove(self._key())
            return True
        except PollError as error:
            self._failures += 1
            figures.poll_errors[error.reason] += 1
            figures.set_problem(str(self.endpoint), f"{self.endpoint}: {error}")
            self._report(False, 0)
            return False
        except SinkRefusedError:
            pass
        except Exception:  # an error in one process must not stop the others
            log.exception("%s", self.endpoint)
            figures.poll_errors["internal"] += 1
            figures.set_problem(str(self.endpoint), f"{self.endpoint}: internal error, see the log")
            return True
        self._failures = 0
        self._answered_ms, self._was_reached = self._shared.clock.now_ms(), True
        if not self._refused_as:
            figures.set_problem(str(self.endpoint), "")
            self._report(True, samples)
        return True

    def _report(self, up: bool, samples: int) -> None:
        """Report its status, unless another process owns its source, or it may have ended while the agent was down."""
        if self._refused_as or self._superseded or not self._was_reached:
            return
        labels = self._labels or {"context": self.endpoint.context, "address": self.endpoint.address}
        self._shared.statuses.record_poll(self._key(), labels, up, self._poller.last_ms, samples)

    def _key(self) -> str:
        return self.series.name if self.series else f"?{self.endpoint}"

    async def _take(self, reading: Reading) -> int:
        """Deliver a reading; return the samples accepted, 0 if another process owns its source."""
        if self._identified != (reading.context, reading.instance):
            await self._identify(reading)
        if self.series is None:
            return 0
        delivery = self._shared.delivery
        if self.series.uuid not in (NO_PROCESS, reading.uuid):
            await self._shared.take_final(self.series.uuid)  # before the successor, so that times rise
        if self._placed is None or self._placed.schema_id != reading.schema.id:
            if not reading.schema.is_whole:
                self._poller.schema = None
                reading = await self._poller.poll()
            self._placed = await delivery.place(self.series, reading, self._labels)
            self._poller.slim_schema()
        if self._poller.inherited is not None:
            memo.apply_memo(self.series, memo.decode_memo(self._poller.inherited), reading, self._placed)
            self._poller.inherited = None
        samples = await delivery.send(self.series, reading, self._placed)
        self._sampled_ms = self.series.last_poll_ms
        if not self.registered:
            await self._poller.confirm()
        self._leave_memo(self.series)
        return samples

    def _leave_memo(self, series: SourceSeries) -> None:
        late = memo.encode_memo(memo.late_series_of(series))
        if late != self._memo_left:
            self._memo_left = late
            self._poller.memo = late

    async def _identify(self, reading: Reading) -> None:
        """Determine the source of this process and claim it."""
        shared = self._shared
        labels = await shared.placement.labels(self.endpoint.ip)
        labels = {**labels, "context": reading.context, "instance": reading.instance}
        name = source_name(labels)
        if self.series is not None and self.series.name != name:
            await self._leave_source()
        if not await shared.owners.claim(name, self, sure=self._refused_as != name):
            self._refuse(name)
            return
        shared.figures.set_refused(str(self.endpoint), Counter())
        shared.statuses.remove(f"?{self.endpoint}")
        self._refused_as, self._superseded, self._labels = "", False, labels
        self._identified = (reading.context, reading.instance)
        self.series = shared.delivery.store.get(name)
        place = {"context": self.endpoint.context, "ip": self.endpoint.ip, PORT: self.endpoint.port}
        self.series.meta = {**place, HOST_KEY: self.endpoint.host, "labels": labels}
        self.series.changed = True

    def _refuse(self, name: str) -> None:
        owner = self._shared.owners.get(name)
        other = owner.endpoint if isinstance(owner, ProcessFollower) else "another process"
        text = f"{self.endpoint} refused: {other} already owns the source {name}; give one of the two another instance"
        if self._refused_as != name:
            log.warning("%s", text)
        self._refused_as = name
        self._shared.statuses.remove(f"?{self.endpoint}")
        self._shared.figures.set_refused(str(self.endpoint), Counter(["same source twice"]), (text,))

    # --- the end

    async def _handle_end(self) -> None:
        shared = self._shared
        shared.figures.set_refused(str(self.endpoint), Counter())
        if self.series is None:
            shared.statuses.remove(f"?{self.endpoint}")
            return
        await shared.take_final(self.endpoint.uuid)
        key, labels, orderly = self._key(), self._labels, self._has_ended_in_order()
        log.info("%s has ended%s", self.endpoint, "" if orderly else " without notice")
        await self._leave_source()
        if shared.owners.get(key) is not None:
            return
        if orderly:
            shared.statuses.remove(key)
        else:
            shared.statuses.mark_vanished(key, labels, shared.clock.now_ms())

    def _has_ended_in_order(self) -> bool:
        """Return True if it answered once more after the loss of its znode, or just before, and not at the next poll.
        Also True if it ended while the agent was down."""
        config = self._shared.config
        within_ms = (config.goodbye_s + 2 * config.deadline_s) * 1000
        at_rest = self._shared.clock.now_ms() - self._unregistered_ms <= within_ms
        return not self._was_reached or self._just_answered or at_rest

    async def _leave_source(self) -> None:
        """End the series of the source, unless another process takes it over; that may happen at any `await`."""
        series, shared = self.series, self._shared

        def mine() -> bool:
            return series is not None and shared.owners.get(series.name) is self

        while series is not None and mine():
            try:
                await shared.delivery.end(series, mine)
            except SinkRefusedError:
                await asyncio.sleep(_RETRY_S)
                continue
            if mine():
                shared.owners.release(series.name, self)
                shared.figures.set_refused(series.name, Counter())
        self._forget_source()
