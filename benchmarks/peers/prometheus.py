"""Prometheus: promtool makes blocks of up to a day, as Prometheus' compaction does; the server reads them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO
from urllib.parse import quote

from benchmarks.peers.process import drain, run, serving
from benchmarks.peers.series import Content, PeerFailed, PeerSeries, Stored, folder_bytes
from scripts.programs import Program

BLOCK = "24h"
_POINT = re.compile(rb'\d,"([^"]*)"')


class Prometheus:
    """Peer Prometheus. `folder` is for it alone; `port` is free."""

    name = "prometheus"

    def __init__(self, program: Program, tool: Program, folder: Path, port: int) -> None:
        self._program, self._tool, self._folder = program, tool, folder
        self._blocks = folder / "blocks"
        self._blocks.mkdir(parents=True, exist_ok=True)
        self._address = f"127.0.0.1:{port}"

    @property
    def version(self) -> str:
        found = re.search(r"version ([\d.]+)", run(self._program, ["--version"]))
        return found.group(1) if found else "of unknown version"

    def store(self, series: Iterable[PeerSeries]) -> Stored:
        """See Peer."""
        text = self._folder / "samples.txt"
        with text.open("w", encoding="utf-8") as out:
            samples = sum(_write(out, one) for one in series)
            out.write("# EOF\n")
        try:
            options = [f"--max-block-duration={BLOCK}", "--quiet", str(text), str(self._blocks)]
            run(self._tool, ["tsdb", "create-blocks-from", "openmetrics", *options])
        finally:
            text.unlink()
        blocks = [path for path in self._blocks.iterdir() if (path / "meta.json").is_file()]
        held = sum(json.loads((path / "meta.json").read_text())["stats"]["numSamples"] for path in blocks)
        if held != samples:
            raise PeerFailed(f"promtool stored {held} of {samples} samples")
        index = sum((path / "index").stat().st_size for path in blocks)
        return Stored(samples, sum(map(folder_bytes, blocks)), index)

    @contextmanager
    def serve(self) -> Iterator[str]:
        """See Peer."""
        config = self._folder / "prometheus.yml"
        config.write_text("global: {}\n")
        options = [f"--config.file={config}", f"--storage.tsdb.path={self._blocks}", "--log.level=error"]
        options += [f"--web.listen-address={self._address}", "--storage.tsdb.retention.time=100y"]
        options += ["--query.timeout=10m", "--query.max-samples=100000000"]
        url = f"http://{self._address}"
        with serving(self._program, options, f"{url}/-/ready", self._folder / "log.txt"):
            yield url

    def read(self, name: str, start_ms: int, end_ms: int, expected: Content) -> tuple[float, float]:
        """See Peer. Uses an instant query of a range: JSON of raw samples."""
        question = quote(f"{name}[{(end_ms - start_ms) // 1000}s]")
        took = []
        with self.serve() as address:
            url = f"{address}/api/v1/query?query={question}&time={end_ms / 1000}"
            for turn in range(3):
                seconds, parts = drain(url)
                took.append(seconds)
                if not turn:
                    _check(b"".join(parts), expected)
        return took[0], min(took[1:])


def _write(out: IO[str], one: PeerSeries) -> int:
    """Write one line a sample; return the number of samples."""
    labels = ",".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in one.labels.items())
    head = f"{one.name}{{{labels}}} "
    lines = [
        f"{head}{value} {time / 1000:.3f}\n" for value, time in zip(one.texts(), one.times_ms.tolist(), strict=True)
    ]
    out.writelines(lines)
    return len(lines)


def _check(answer: bytes, expected: Content) -> None:
    samples = total = 0
    for point in _POINT.finditer(answer):
        samples, total = samples + 1, total + int(point[1])
    if Content(samples, total) != expected:
        raise PeerFailed(f"Prometheus gave {samples} samples with the sum {total}, not {expected}")
