"""Speed of reading drop-in files, beside prometheus_client's parser on equal content in the same run.

`dropin.read`: from the file on disk to rows that the sink has accepted; the file has 100,000 lines and is rewritten
each time with new values; one process, the sink only counts. `dropin.read@first`: the same for a file of new series.
`peer.prometheus_client.parse`: only the parsing of Prometheus' text format with the same names, labels and values. All
are measured in turn, and the best of the rounds counts for each.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from time import perf_counter

from prometheus_client.parser import text_string_to_metric_families

from artimon.model.clock import SYSTEM_CLOCK
from benchmarks.common import CountingSink, Line, line, show
from benchmarks.limits import LIMIT, MACHINE, lines_rate, series_rate
from sources.delivery.reading_delivery import ReadingDelivery
from sources.delivery.source_counts import SourceCounts
from sources.delivery.source_owners import SourceOwners
from sources.dropin.folder import DropinFolder
from sources.state.state_store import SourceStateStore

LINES = 100_000
ROUNDS = 3


def value_of(i: int, number: int) -> str:
    """Return the text of a value; three of four are integers."""
    return str(i * 7 + number) if i % 4 else f"{i * 0.5 + number}"


def dropin_text(lines: int, number: int) -> str:
    now = SYSTEM_CLOCK.now_ms() + number
    return "".join(
        f"{now} http.requests{{route=/api/v1/{i % 100},code=200,pod=web-{i}}} {value_of(i, number)}\n"
        for i in range(lines)
    )


def prometheus_text(lines: int, number: int) -> str:
    now = SYSTEM_CLOCK.now_ms() + number
    return "# TYPE http_requests untyped\n" + "".join(
        f'http_requests{{route="/api/v1/{i % 100}",code="200",pod="web-{i}"}} {value_of(i, number)} {now}\n'
        for i in range(lines)
    )


class Reading:
    """Folder with one drop-in file, and its reader."""

    def __init__(self, place: Path) -> None:
        self.folder = place / "dropin"
        self.folder.mkdir(parents=True)
        self.sink = CountingSink()
        store = SourceStateStore(place / "state", 1_000_000)
        self.delivery = ReadingDelivery(self.sink, store, SourceCounts(), SYSTEM_CLOCK)
        self.fresh()

    def fresh(self) -> None:
        """Forget the file and its series."""
        self.dropin = DropinFolder(self.folder, self.delivery, SourceOwners(), {"host": "web1", "dc": "jb"})

    async def timed(self, name: str, text: str, lines: int) -> float:
        """Write `text` to the file and poll it once; return the seconds of the poll."""
        (self.folder / f"{name}.artimon").write_text(text)
        start = perf_counter()
        samples = await self.dropin.poll()
        seconds = perf_counter() - start
        if samples != lines:
            raise RuntimeError(f"{samples} of {lines} lines became samples: {self.delivery.figures.to_json()}")
        return seconds


def parsed(text: str, lines: int) -> float:
    """Parse with prometheus_client; return the seconds."""
    start = perf_counter()
    samples = sum(len(family.samples) for family in text_string_to_metric_families(text))
    seconds = perf_counter() - start
    if samples != lines:
        raise RuntimeError(f"prometheus_client read {samples} of {lines} lines")
    return seconds


async def measure(rounds: int, lines: int) -> list[Line]:
    """Measure and return the figures, ours first."""
    with tempfile.TemporaryDirectory() as folder:
        again, first = Reading(Path(folder) / "again"), Reading(Path(folder) / "first")
        await again.timed("a", dropin_text(lines, 0), lines)
        best = [float("inf")] * 3
        for number in range(1, rounds + 1):
            text, peer = dropin_text(lines, number), prometheus_text(lines, number)
            taken = (
                await again.timed("a", text, lines),
                await first.timed(f"f{number}", text, lines),
                parsed(peer, lines),
            )
            (first.folder / f"f{number}.artimon").unlink()
            first.fresh()
            best = [min(pair) for pair in zip(best, taken, strict=True)]
    ours, new, theirs = (lines / seconds for seconds in best)
    limit, limit_first = lines_rate(text), series_rate(text)
    what = "samples/s (lines split, numbers read"
    return [
        line("dropin.read", ours, "samples/s", "prometheus_client parse", ours / theirs),
        line("dropin.read@first", new, "samples/s", "prometheus_client parse", new / theirs),
        line("peer.prometheus_client.parse", theirs, "samples/s"),
        line(f"{LIMIT}dropin.read", limit, f"{what})", MACHINE, ours / limit),
        line(f"{LIMIT}dropin.read@first", limit_first, f"{what}, labels split)", MACHINE, new / limit_first),
    ]


def run(json: bool = True, rounds: int = ROUNDS, lines: int = LINES) -> Iterable[Line]:
    """Measure, print each figure as a line of JSON (or as text), and return them."""
    figures = asyncio.run(measure(rounds, lines))
    for figure in figures:
        if json:
            show(figure)
        else:
            sys.stdout.write(f"{figure['name']:32} {figure['value']:12,.0f} {figure['unit']}\n")
    return figures


if __name__ == "__main__":
    run()
