"""One bean server as a source: polls it, maps its beans and detects restarts."""

from __future__ import annotations

import asyncio
import json
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote

import xxhash

from sources.base.source_errors import RejectCounts
from sources.delivery.poll_context import PollContext, PollLimits
from sources.scrape.jmx.bean_mapper import BeanMapper
from sources.scrape.jmx.jmx_response import BeanResponse, JvmIdentity, identity_of, parse_answers
from sources.scrape.jmx.jolokia import parse_bulk, parse_singles, requests_for
from sources.scrape.jmx.mapping_file import BeanRule, queries
from sources.scrape.server.http_client import HttpRequest, send_request
from sources.scrape.server.target_source import ReadingSource
from sources.state.series_memory import SourceSeries
from sources.state.source_reading import Reading, ReadingBuilder, SourceVariable
from sources.targets.bean_target import BeanTarget, JmxTarget, JolokiaTarget

_JSON = "application/json"


@dataclass(slots=True)
class JvmProcess:
    """JVM that answered last."""

    uuid: bytes
    birth_ms: int
    maker: ReadingBuilder


@dataclass(frozen=True, slots=True)
class MappedBeans:
    """Result of one poll: variables by the rules, and the identity of the process."""

    variables: Sequence[SourceVariable]
    start: JvmIdentity | None
    faults: RejectCounts


class BeanSource(ReadingSource[MappedBeans]):
    """Base of the sources of bean servers, independent of the protocol."""

    def __init__(self, target: BeanTarget, shared: PollContext, pool: PollLimits, rules: Sequence[BeanRule]) -> None:
        super().__init__(target, shared, pool)
        self._mapper = BeanMapper(rules, shared.config.max_bean_series)
        self._process: JvmProcess | None = None

    @abstractmethod
    def parse(self, raw: Any) -> BeanResponse:
        """Parse the beans of an answer. Raises PollError `garbage` if it is invalid."""

    def read(self, raw: Any) -> MappedBeans:
        answer = self.parse(raw)
        start = identity_of(answer)
        return MappedBeans(self._mapper.variables(answer), start, answer.faults)

    def reading(self, content: MappedBeans, series: SourceSeries, time_ms: int) -> Reading:
        process = self._identify_process(series, content.start, time_ms)
        if process is not self._process:
            self.renew()
        self._process = process
        made = process.maker.make(content.variables, time_ms)
        # A new series began at the poll before, if that one was complete. Else its count may be as old as the process,
        # so that its first value is not taken for an increase.
        before = self.is_clean and series.uuid == process.uuid
        return replace(made, resumes=True, appeared_ms=series.last_poll_ms if before else process.birth_ms)

    def _identify_process(self, series: SourceSeries, start: JvmIdentity | None, time_ms: int) -> JvmProcess:
        """Return the process that answered; without a start time it counts as the one before."""
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
        return JvmProcess(uuid, birth_ms, ReadingBuilder(uuid, birth_ms))


class JmxSource(BeanSource):
    """Source of a Hadoop `/jmx` server: one GET for each domain that has rules."""

    def __init__(self, target: JmxTarget, shared: PollContext, pool: PollLimits, rules: Sequence[BeanRule]) -> None:
        super().__init__(target, shared, pool, rules)
        asked = (f"{target.path}?qry={quote(query, safe='*:,=')}" for query in queries(rules))
        paths = [target.path] if "?" in target.path else asked
        self._jmx, self._requests = target, [HttpRequest(target.address, path, _JSON) for path in paths]

    async def fetch(self, ip: str) -> list[bytes]:
        port, limit = self._jmx.port, self.shared.config.max_frame
        return [(await send_request(question, ip, port, limit)).body for question in self._requests]

    def parse(self, raw: list[bytes]) -> BeanResponse:
        return parse_answers(raw)


class JolokiaSource(BeanSource):
    """Source of a Jolokia agent: requests only the attributes that the rules name."""

    def __init__(self, target: JolokiaTarget, shared: PollContext, pool: PollLimits, rules: Sequence[BeanRule]) -> None:
        super().__init__(target, shared, pool, rules)
        self._jolokia, self._reads = target, requests_for(rules)
        self._body = json.dumps([one.body() for one in self._reads]).encode()

    async def fetch(self, ip: str) -> list[bytes]:
        target = self._jolokia
        shown = await asyncio.to_thread(target.access.load, target.scheme)
        if target.bulk:
            questions = [HttpRequest(target.address, f"{target.path}/", _JSON, self._body, shown.headers)]
        else:
            paths = (one.path(target.path) for one in self._reads)
            questions = [HttpRequest(target.address, path, _JSON, headers=shown.headers) for path in paths]
        name, limit = target.access.server_name or target.host, self.shared.config.max_frame
        return [(await send_request(one, ip, target.port, limit, shown.tls, name)).body for one in questions]

    def parse(self, raw: list[bytes]) -> BeanResponse:
        return parse_bulk(raw[0], self._reads) if self._jolokia.bulk else parse_singles(raw, self._reads)
