"""Own variables (self metrics): figures of a process's health file, published as variables like any application's.

A table (artimon/runtime/self_metrics.csv) maps figures to variables. This module counts nothing: it passes
existing figures to `bookkeeper` with each report, without cost on hot paths. Only artimon/cli/process_wiring.py enables
it.
"""

from __future__ import annotations

import csv
import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from artimon.model.clock import SYSTEM_CLOCK, Clock
from artimon.runtime.version import installed_version
from bookkeeper import Bookkeeper, Integer

MAX_SERIES = 64
OTHER_LABEL = "other"
LABEL_CHARACTERS = 100
log = logging.getLogger(__name__)


class FigureConversion(Enum):
    """Conversion of a figure to an integer."""

    NUMBER = "number"
    COUNT = "count"
    """Length of the figure: a list of problems, a mapping of shards."""
    AGE = "age"
    """Age in ms of an epoch time in ms; absent while that is 0."""


@dataclass(frozen=True, slots=True)
class SelfMetric:
    """One variable. `figure` is a dotted path in the figures of the process; with `labels` it leads to a mapping (of
    mappings, for two) whose keys are their values. A counter's figure counts from the start of the process."""

    name: str
    figure: str
    help: str
    unit: str = ""
    counter: bool = False
    labels: tuple[str, ...] = ()
    conversion: FigureConversion = FigureConversion.NUMBER

    @property
    def kind(self) -> str:
        """Kind for `bookkeeper.describe`."""
        return "counter" if self.counter else "gauge"


PROCESS = (
    SelfMetric("artimon.process.ok", "ok", "1 if the process reports that it works, else 0"),
    SelfMetric("artimon.process.resident.bytes", "resident_bytes", "Memory in use, without children", "bytes"),
    SelfMetric("artimon.process.cpu.ms", "cpu_ms", "CPU time used, without children", "ms", counter=True),
    SelfMetric("artimon.process.threads", "threads", "Threads"),
    SelfMetric("artimon.process.files.open", "files_open", "Open files and sockets"),
    SelfMetric("artimon.process.uptime.ms", "uptime_ms", "Time since the process began to publish", "ms"),
    SelfMetric("artimon.process.version", "version", "1 for the version that runs", labels=("role", "version")),
)
"""Variables of every process."""


LabelValues = tuple[str, ...]


class MetricsPublisher:
    """A `Publish` (artimon/runtime/health.py) that sets variables of `book`. Called from one thread; never raises.

    A counter continues if its figure falls, because a component inside the process restarted. A gauge without its
    figure is removed; a counter stays. A variable has at most MAX_SERIES label sets; others are summed as `other`."""

    def __init__(
        self, table: Iterable[SelfMetric], book: Bookkeeper, clock: Clock = SYSTEM_CLOCK, role: str = "other"
    ) -> None:
        self._table, self._book, self._clock = tuple(table), book, clock
        self._version = {role: {installed_version(): 1}}
        self._began = clock.monotonic()
        self._cells: dict[str, dict[LabelValues, tuple[Integer, int]]] = {}
        """Variable -> values of its labels -> cell and the last figure."""
        self._failed = False
        for own in (*PROCESS, *self._table):
            book.describe(own.name, own.help, own.unit, own.kind)

    def __call__(self, state: str, figures: Mapping[str, Any]) -> None:
        try:
            self._publish(PROCESS, {"ok": state == "ok", **self._process_values()})
            self._publish(self._table, figures)
        except Exception:  # a figure of an unexpected type must not end a working process
            if not self._failed:
                log.exception("own variables: unexpected error; some variables may be missing from now on")
            self._failed = True

    def _process_values(self) -> dict[str, Any]:
        uptime = round((self._clock.monotonic() - self._began) * 1000)
        return {"uptime_ms": uptime, "version": self._version, **process_figures()}

    def _publish(self, table: Sequence[SelfMetric], figures: Mapping[str, Any]) -> None:
        for own in table:
            cells = self._cells.setdefault(own.name, {})
            numbers = self._numbers(own, figure_at(figures, own.figure), cells)
            for values, number in numbers.items():
                self._update_cell(own, values, number, cells)
            if not own.counter:
                for values in cells.keys() - numbers.keys():
                    cells.pop(values)[0].remove()

    def _numbers(self, own: SelfMetric, found: Any, known: Mapping[LabelValues, Any]) -> dict[LabelValues, int]:
        """Return numbers by the values of the labels, at most MAX_SERIES and `other`."""
        numbers: dict[LabelValues, int] = {}
        for values, one in flatten_figures(found, len(own.labels)):
            number = self._number(own, one)
            if number is not None:
                taken = known.keys() | numbers.keys()
                series = values if values in taken or len(taken) < MAX_SERIES else (OTHER_LABEL,) * len(values)
                numbers[series] = numbers.get(series, 0) + number
        return numbers

    def _number(self, own: SelfMetric, found: Any) -> int | None:
        if own.conversion is FigureConversion.COUNT:
            return len(found) if isinstance(found, Sequence | Mapping) else None
        if not isinstance(found, int | float) or found != found:
            return None
        if own.conversion is FigureConversion.AGE:
            return max(0, self._clock.now_ms() - round(found)) if found else None
        return int(found) if own.counter else round(found)  # rounding could make a growing sum fall

    def _update_cell(
        self, own: SelfMetric, values: LabelValues, number: int, cells: dict[LabelValues, tuple[Integer, int]]
    ) -> None:
        cell, before = cells.get(values, (None, 0))
        if cell is None:
            cell = self._book.integer(own.name, dict(zip(own.labels, values, strict=True)))
        if own.counter:
            cell.add(number - before if number >= before else max(0, number))
        else:
            cell.set(number)
        cells[values] = cell, number


def flatten_figures(found: Any, depth: int) -> Iterator[tuple[LabelValues, Any]]:
    """Yield (keys, figure) of nested mappings; () and the figure itself for depth 0. Skips other types."""
    if depth == 0:
        yield (), found
    elif isinstance(found, Mapping):
        for key, inner in found.items():
            for values, one in flatten_figures(inner, depth - 1):
                yield (str(key)[:LABEL_CHARACTERS] or "none", *values), one


def figure_at(figures: Mapping[str, Any], path: str) -> Any:
    """Return the figure at a dotted path, None if absent."""
    found: Any = figures
    for step in path.split("."):
        if not isinstance(found, Mapping):
            return None
        found = found.get(step)
    return found


def process_figures(proc: Path = Path("/proc/self")) -> dict[str, int]:
    """Return memory, CPU time, threads and open files of this process, as far as the system provides them."""
    times = os.times()
    found = {"cpu_ms": round((times.user + times.system) * 1000)}
    try:
        fields = (proc / "stat").read_text().rpartition(")")[2].split()  # from field 3 on: the name may hold blanks
        found["threads"] = int(fields[17])
        found["resident_bytes"] = int(fields[21]) * os.sysconf("SC_PAGE_SIZE")
        found["files_open"] = len(os.listdir(proc / "fd"))
    except (OSError, ValueError, IndexError):
        pass
    return found


@cache
def metrics_tables() -> Mapping[str, tuple[SelfMetric, ...]]:
    """Return the variables of self_metrics.csv by part, besides those of every process."""
    found: dict[str, tuple[SelfMetric, ...]] = {}
    with Path(__file__).with_name("self_metrics.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            metric = SelfMetric(
                row["name"],
                row["figure"],
                row["help"],
                row["unit"],
                row["kind"] == "counter",
                tuple(row["labels"].split()),
                FigureConversion(row["conversion"]),
            )
            found[row["part"]] = (*found.get(row["part"], ()), metric)
    return MappingProxyType(found)
