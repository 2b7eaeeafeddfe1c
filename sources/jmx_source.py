"""One bean server as a source: polls it at its phase, maps its beans, tells restarts and ends."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import xxhash

from artimon.model.protocols import SinkRefused
from sources.errors import PollError
from sources.follower import Shared
from sources.jmx_answer import Answer, Start, parse_answers, start_of
from sources.jmx_http import ask_beans
from sources.jmx_mapper import Mapper
from sources.jmx_rules import BeanRule, queries
from sources.jmx_target import JmxTarget
from sources.poller import Limits
from sources.reading import ReadingMaker, Variable
from sources.schedule import missed_ticks, next_tick, phase_ms
from sources.series import Placed, SourceSeries

log = logging.getLogger(__name__)
GONE_PERIODS = 5
"""Without an answer for so long, the series of a bean server end."""
_EARLY_TRIES = 12
"""In a period, until the first answer."""


class JmxShared:
    """What the bean servers of an agent share; `parsing` is held while an answer is parsed: one in memory at a time."""

    def __init__(self, shared: Shared, rules: Sequence[BeanRule]) -> None:
        self.shared, self.rules, self.queries = shared, tuple(rules), queries(rules)
        self.limits = Limits(16)
        self.parsing = asyncio.Lock()


@dataclass(slots=True)
class Process:
    """The JVM that answers now. `clean`: its poll before looked for everything and had no faults."""

    uuid: bytes
    birth_ms: int
    maker: ReadingMaker
    placed: Placed | None = None
    clean: bool = False


class JmxSource:
    """Everything runs in the event loop, except parsing and mapping, one poll at a time."""

    def __init__(self, target: JmxTarget, jmx: JmxShared) -> None:
        self.target, self._jmx, self._shared = target, jmx, jmx.shared
        self._mapper = Mapper(jmx.rules, jmx.shared.config.max_bean_series)
        self.series: SourceSeries | None = self._series_before()
        """The source, once it is known where the server stands."""
        self._labels: dict[str, str] = dict(self.series.meta["labels"]) if self.series else {}
        self._process: Process | None = None
        self._failing, self._met = False, False
        self._answered_ms = self.series.last_poll_ms if self.series else 0
        self._last_ms = 0.0

    async def answers(self, sure: bool) -> bool:  # noqa: ARG002
        """It keeps its source for as long as it is configured, whether it answers or not (Owner)."""
        return True

    def supersede(self) -> None:
        """Never asked to: see `answers`."""

    async def run(self) -> None:
        """For ever; a poll that fails is counted, and the next one is made all the same."""
        clock, period = self._shared.clock, self._shared.config.period_ms
        planned = self._tick() if self.series is not None and self.series.live else clock.now_ms()
        while True:
            while (left := (planned - clock.now_ms()) / 1000) > 0:
                await asyncio.sleep(min(left, 30.0))
            await self._poll_safely()
            self._shared.figures.missed_ticks += missed_ticks(planned, clock.now_ms(), period)
            planned = self._next()

    def _next(self) -> int:
        """A server that has not answered in this run may be starting: it is not left alone for a whole period."""
        tick, config = self._tick(), self._shared.config
        return tick if self._met else min(tick, self._shared.clock.now_ms() + config.period_ms // _EARLY_TRIES)

    def _tick(self) -> int:
        period = self._shared.config.period_ms
        name = self.series.name if self.series else str(self.target)
        sampled = self.series.last_poll_ms if self.series else None
        return next_tick(self._shared.clock.now_ms(), phase_ms(name, period), period, sampled)

    def _series_before(self) -> SourceSeries | None:
        """The source of the last run, so that a server that is down at start is known by its labels."""
        for series in self._shared.delivery.store:
            if series.meta.get("jmx") == identity(self.target):
                return series
        return None

    # --- one poll

    async def _poll_safely(self) -> None:
        figures, about = self._shared.figures, f"jmx/{self.target}"
        figures.polls += 1
        try:
            samples = await self._poll()
        except PollError as error:
            figures.poll_errors[error.reason] += 1
            figures.problem(about, f"{self.target}: {error}")
            await self._failed()
            return
        except SinkRefused:
            samples = 0
        except Exception as error:  # whatever is wrong with this one, the others go on
            log.exception("%s", self.target)
            figures.poll_errors["internal"] += 1
            figures.problem(about, f"{self.target}: {type(error).__name__}: {error}")
            return
        figures.problem(about, "")
        self._failing, self._met, self._answered_ms = False, True, self._shared.clock.now_ms()
        self._report(True, samples)

    async def _failed(self) -> None:
        self._failing = True
        self._report(False, 0)
        period = self._shared.config.period_ms
        silent_ms = self._shared.clock.now_ms() - self._answered_ms
        if self.series is not None and self.series.live and silent_ms > (GONE_PERIODS - 0.5) * period:
            log.warning("%s: no answer for %.0f s: its series end", self.target, silent_ms / 1000)
            try:
                await self._shared.delivery.end(self.series)
            except SinkRefused:
                pass  # said again with the next poll

    def _report(self, up: bool, samples: int) -> None:
        key = self.series.name if self.series else f"?{self.target}"
        unplaced = {"context": self.target.context, "instance": self.target.instance, "address": self.target.address}
        self._shared.statuses.polled(key, self._labels or unplaced, up, self._last_ms, samples)

    async def _poll(self) -> int:
        """Samples accepted. PollError: there was no good answer."""
        answers = await self._ask()
        time_ms = self._shared.clock.now_ms()
        async with self._jmx.parsing:
            answer, start, variables = await asyncio.to_thread(self._read, answers)
        del answers
        self._tell(answer)
        series = self._known_series()
        process = self._process = self._which(series, start, time_ms)
        reading = replace(process.maker.make(variables, time_ms), resumes=True, appeared_ms=self._appeared_ms(series))
        if process.placed is None or process.placed.schema_id != reading.schema.id:
            process.placed = await self._shared.delivery.place(series, reading, self._labels)
        process.clean = not answer.faults
        return await self._shared.delivery.send(series, reading, process.placed)

    async def _ask(self) -> list[bytes]:
        config = self._shared.config
        async with self._jmx.limits.place(self._failing):
            began = self._shared.clock.monotonic()
            try:
                async with asyncio.timeout(config.deadline_s):
                    ip = await self._resolved()
                    await self._identify(ip)
                    return await ask_beans(self.target, ip, self._jmx.queries, config.max_frame)
            except TimeoutError:
                raise PollError("timeout", f"no whole answer within {config.deadline_s:g} s") from None
            finally:
                self._last_ms = (self._shared.clock.monotonic() - began) * 1000

    def _read(self, answers: Sequence[bytes]) -> tuple[Answer, Start | None, list[Variable]]:
        answer = parse_answers(answers)
        start = start_of(answer)
        return answer, start, self._mapper.variables(answer)

    def _tell(self, answer: Answer) -> None:
        faults = answer.faults
        texts = tuple(f"{self.target}: {reason}: {text}" for reason, text in faults.examples.items())
        self._shared.figures.refuse(f"beans of {self.target}", Counter(faults.counts), texts)

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
        if self.series is not None and self._shared.owners.get(self.series.name) is self:
            return
        target, owners = self.target, self._shared.owners
        placed = await self._shared.placement.labels(ip)
        labels = {**placed, "context": target.context, "instance": target.instance}
        name = f"jmx/{target.context}/{labels['host']}/{target.instance}"
        if owners.get(name) not in (None, self):
            raise PollError("same source twice", f"{name} is polled already: write {target.context}/INSTANCE=…")
        owners.hold(name, self)
        self._shared.statuses.left(f"?{target}")
        before, self.series = self.series, self._shared.delivery.store.get(name)
        if before is not None and before is not self.series:
            await self._shared.delivery.end(before)
        self._labels = labels
        self.series.meta = {"context": target.context, "labels": labels, "jmx": identity(target)}
        self.series.changed = True

    def _known_series(self) -> SourceSeries:
        if self.series is None:
            raise PollError("internal", "the source is not known")
        return self.series

    def _which(self, series: SourceSeries, start: Start | None, time_ms: int) -> Process:
        """The process that answered; one that does not say when it started is taken for the one before."""
        if start is not None:
            text = f"{series.name}\n{start.time_ms}\n{start.name}"
            uuid = xxhash.xxh3_128_digest(text.encode("utf-8", "surrogatepass"))
        elif series.last_poll_ms:
            uuid = series.uuid
        else:
            uuid = xxhash.xxh3_128_digest(f"{series.name}\n?{time_ms}".encode())
        if self._process is not None and self._process.uuid == uuid:
            return self._process
        first_ms = min(start.time_ms, time_ms) if start else time_ms
        birth_ms = series.process_ms if series.uuid == uuid else first_ms
        return Process(uuid, birth_ms, ReadingMaker(uuid, birth_ms))

    def _appeared_ms(self, series: SourceSeries) -> int:
        """Birth of a series that was not there before: the poll before, if that would have found it; else unknown to
        us, so that its count is taken as old as the process, and what it shows now never for an increase."""
        process = self._process
        if process is not None and process.clean and series.uuid == process.uuid:
            return series.last_poll_ms
        return process.birth_ms if process is not None else 0


def identity(target: JmxTarget) -> list[str]:
    """How a source remembers its target."""
    return [target.context, target.instance, target.url]
