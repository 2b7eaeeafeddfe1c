"""One Prometheus page as a source: keeps names, adds labels of its target, takes start times from the page."""

from __future__ import annotations

import asyncio
from collections import Counter

import numpy as np
import xxhash

from sources.base.source_errors import PollError
from sources.delivery.poll_context import PollContext, PollLimits
from sources.scrape.prometheus.exposition_reader import OPENMETRICS, Exposition, ExpositionLimits, ExpositionReader
from sources.scrape.server.http_client import HttpRequest, HttpResponse, send_request
from sources.scrape.server.target_source import ReadingSource
from sources.state.relabel import RelabelRules
from sources.state.series_memory import SourceSeries
from sources.state.source_reading import Reading
from sources.targets.http_target import SourceTarget
from sources.targets.prometheus_target import PrometheusTarget

ACCEPT = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
UNKNOWN_START_MS = 1
"""Birth of a series of unknown age: so early that no query counts its first value as an increase."""


class ExpositionSource(ReadingSource[Exposition]):
    """Base of sources that yield a Prometheus page. The process behind a page is unknown: a series keeps its birth
    until its counter resets or it reports another birth."""

    def __init__(
        self,
        target: SourceTarget,
        shared: PollContext,
        pool: PollLimits,
        reader: ExpositionReader,
        rules: RelabelRules | None,
    ) -> None:
        super().__init__(target, shared, pool, rules)
        self._reader = reader
        self.ignored: Counter[str] = Counter()
        """Counts of ignored timestamps and exemplars."""

    @property
    def appeared_ms(self) -> bool:
        """True if a series that is new on a page began after the previous page, provided that one had no faults."""
        return True

    def reading(self, content: Exposition, series: SourceSeries, time_ms: int) -> Reading:
        self.ignored.update(content.ignored)
        uuid = xxhash.xxh3_128_digest(series.name.encode())
        return Reading(
            uuid,
            UNKNOWN_START_MS,
            time_ms,
            content.schema,
            content.values.view(np.int64),
            resumes=True,
            appeared_ms=series.last_poll_ms
            if self.appeared_ms and self.is_clean and series.uuid == uuid
            else UNKNOWN_START_MS,
            created_ms=content.created_ms,
        )


class PrometheusSource(ExpositionSource):
    """Source of a page fetched by HTTP."""

    def __init__(self, target: PrometheusTarget, shared: PollContext, pool: PollLimits) -> None:
        job = target.job
        own = frozenset() if job.honor_labels else frozenset({"job", "instance", *job.labels, *target.own_labels})
        reader = ExpositionReader(own, ExpositionLimits(job.max_series))
        super().__init__(target, shared, pool, reader, RelabelRules(job.rules) if job.rules else None)
        self._page, self._job = target, job

    @property
    def period_ms(self) -> int:
        return self._job.period_ms or self.shared.config.period_ms

    @property
    def deadline_s(self) -> float:
        return self._job.deadline_s or self.shared.config.deadline_s

    @property
    def appeared_ms(self) -> bool:
        return not self._job.proxy

    async def fetch(self, ip: str) -> HttpResponse:
        job = self._job
        shown = await asyncio.to_thread(job.access.load, self._page.scheme)
        headers = {**shown.headers, "X-Prometheus-Scrape-Timeout-Seconds": f"{self.deadline_s:g}"}
        question = HttpRequest(self._page.address, self._page.path, ACCEPT, headers=headers)
        name = job.access.server_name or self._page.host
        return await send_request(question, ip, self._page.port, job.max_bytes, shown.tls, name)

    def read(self, raw: HttpResponse) -> Exposition:
        kind = raw.headers.get(b"content-type", b"text/plain").partition(b";")[0].strip().lower()
        if kind == b"text/html":
            raise PollError("garbage", f"an HTML page, not a Prometheus one; it begins {raw.body[:40]!r}")
        return self._reader.read(raw.body, kind == OPENMETRICS, raw.ended)
