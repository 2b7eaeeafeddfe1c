"""VictoriaMetrics, one node: import as JSON lines, forced merge, export."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from benchmarks.peers.process import ask, drain, run, serving
from benchmarks.peers.series import Content, PeerFailed, PeerSeries, Stored, folder_bytes, join_numbers
from scripts.programs import Program

LINES, BLOCK_SAMPLES = 500, 2_000_000
"""Limits of one import."""
_A_DAY = 1_440
"""Samples between two looks at the months of a series."""
MERGED_S = 300.0
NOT_DATA = ("cache", "tmp", "snapshots", "flock.lock")
_BUSY = re.compile(r'^vm_(?:active_merges|pending_rows)\{type="(?:storage/|storage|indexdb)[^"]*"\} (\d+)', re.M)


class LoadTimes(NamedTuple):
    """Seconds of an import. A part of the samples is only in memory when they can be read."""

    readable_s: float
    stored_s: float
    """Until the program has stopped, which writes all to disk."""


class Victoria:
    """Peer VictoriaMetrics. `folder` is for it alone; `port` is free."""

    name = "victoriametrics"

    def __init__(self, program: Program, folder: Path, port: int) -> None:
        self._program, self._folder, self._url = program, folder, f"http://127.0.0.1:{port}"
        self._folder.mkdir(parents=True, exist_ok=True)
        self._address = f"127.0.0.1:{port}"

    @property
    def version(self) -> str:
        """Version of the program; Debian's package prints none."""
        return run(self._program, ["--version"]).strip() or "of Debian"

    def load(self, series: Iterable[PeerSeries]) -> LoadTimes:
        """Import series; return the times without that to make them."""
        took = 0.0
        with self._serving():
            for block in _blocks(series):
                data = b"".join(map(export_line, block))
                began = time.monotonic()
                ask(f"{self._url}/api/v1/import", data)
                took += time.monotonic() - began
            began = time.monotonic()
            ask(f"{self._url}/internal/force_flush")
            readable = took + time.monotonic() - began
        return LoadTimes(readable, took + time.monotonic() - began)

    def store(self, series: Iterable[PeerSeries]) -> Stored:
        """See Peer."""
        samples, months = 0, set[str]()
        with self._serving():
            for block in _blocks(series):
                ask(f"{self._url}/api/v1/import", b"".join(map(export_line, block)))
                samples += sum(len(one.times_ms) for one in block)
                months |= {_month(int(at)) for one in block for at in (*one.times_ms[::_A_DAY], one.times_ms[-1])}
            ask(f"{self._url}/internal/force_flush")
            for month in sorted(months):
                ask(f"{self._url}/internal/force_merge?partition_prefix={month}")
            self._settle()
        parts = [path for path in (self._folder / "data").iterdir() if path.name not in NOT_DATA]
        sizes = {path.name: folder_bytes(path) if path.is_dir() else path.stat().st_size for path in parts}
        return Stored(samples, sum(sizes.values()), sizes.get("indexdb", 0))

    def read(self, name: str, start_ms: int, end_ms: int, expected: Content) -> tuple[float, float]:
        """See Peer. Uses /api/v1/export: JSON lines of raw samples."""
        url = f"{self._url}/api/v1/export?match[]={quote(name)}&start={start_ms / 1000}&end={end_ms / 1000}"
        took = []
        with self._serving():
            for turn in range(3):
                seconds, parts = drain(url)
                took.append(seconds)
                if not turn:
                    _check(b"".join(parts), expected)
        return took[0], min(took[1:])

    @contextmanager
    def serve(self) -> Iterator[str]:
        """See Peer."""
        with self._serving():
            yield self._url

    def _serving(self) -> AbstractContextManager[None]:
        data = self._folder / "data"
        options = [f"-storageDataPath={data}", f"-httpListenAddr={self._address}", "-retentionPeriod=100y"]
        options += ["-search.maxExportDuration=10m", "-search.maxQueryDuration=10m", "-loggerLevel=ERROR"]
        return serving(self._program, options, f"{self._url}/health", self._folder / "log.txt")

    def _settle(self) -> None:
        """Wait until no merge runs and no rows are pending in memory."""
        until, quiet = time.monotonic() + MERGED_S, 0
        while quiet < 4:
            busy = sum(map(int, _BUSY.findall(ask(f"{self._url}/metrics").decode())))
            quiet = 0 if busy else quiet + 1
            if time.monotonic() > until:
                raise PeerFailed(f"VictoriaMetrics still merges after {MERGED_S:.0f} s")
            time.sleep(0.5)


def export_line(one: PeerSeries) -> bytes:
    """Return a series as a line of its import and export."""
    metric = json.dumps({"__name__": one.name, **one.labels}, ensure_ascii=False)
    return f'{{"metric":{metric},"values":[{one.joined()}],"timestamps":[{join_numbers(one.times_ms)}]}}\n'.encode()


def _blocks(series: Iterable[PeerSeries]) -> Iterator[list[PeerSeries]]:
    block: list[PeerSeries] = []
    held = 0
    for one in series:
        block.append(one)
        held += len(one.times_ms)
        if len(block) == LINES or held >= BLOCK_SAMPLES:
            yield block
            block, held = [], 0
    if block:
        yield block


def _month(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y_%m")


def _check(answer: bytes, expected: Content) -> None:
    samples = total = 0
    for line in answer.splitlines():
        values = json.loads(line)["values"]
        samples, total = samples + len(values), total + int(sum(values))
    if Content(samples, total) != expected:
        raise PeerFailed(f"VictoriaMetrics gave {samples} samples with the sum {total}, not {expected}")
