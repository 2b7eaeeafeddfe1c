"""Own variables: what a process of Artimon says of itself in its health file, as variables like any application's.

A table (artimon/runtime/own_tables.py) says which figure becomes which variable. Nothing is counted here: figures that
are kept anyway are handed to `bookkeeper` once a second, so that no hot path pays. Only
artimon/cli/processes.py turns it on.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from artimon.model.clock import SYSTEM_CLOCK, Clock
from bookkeeper import Bookkeeper, Integer

MAX_SERIES = 64
OTHER = "other"
LABEL_CHARACTERS = 100
log = logging.getLogger(__name__)


class Shape(Enum):
    """How a figure becomes an integer."""

    NUMBER = "number"
    COUNT = "count"
    """Its length: a list of problems, a mapping of shards."""
    AGE = "age"
    """It is an epoch time in ms; the variable is how long ago that was, and absent while it is 0."""


@dataclass(frozen=True, slots=True)
class Own:
    """One variable. `figure` is a dotted path in the figures of the process; with `labels` it leads to a mapping (of
    mappings, for two) whose keys are their values. A counter's figure counts since the process began, no longer."""

    name: str
    figure: str
    help: str
    unit: str = ""
    counter: bool = False
    labels: tuple[str, ...] = ()
    shape: Shape = Shape.NUMBER

    @property
    def kind(self) -> str:
        """As `bookkeeper.describe` takes it."""
        return "counter" if self.counter else "gauge"


PROCESS = (
    Own("artimon.process.ok", "ok", "1 if the process says that it works, else 0"),
    Own("artimon.process.resident.bytes", "resident_bytes", "Memory in use, without children", "bytes"),
    Own("artimon.process.cpu.ms", "cpu_ms", "CPU time used, without children", "ms", counter=True),
    Own("artimon.process.threads", "threads", "Threads"),
    Own("artimon.process.files.open", "files_open", "Open files and sockets"),
    Own("artimon.process.uptime.ms", "uptime_ms", "Since the process began to publish", "ms"),
)
"""What every process has."""


Values = tuple[str, ...]


class Publisher:
    """A `Publish` (artimon/runtime/health.py) that sets variables of `book`. Called from one thread; never raises.

    A counter goes on where its figure falls, because a part inside the process began anew. A gauge whose figure is
    absent ends; a counter stays. Of one variable at most MAX_SERIES are told apart, the rest together is `other`."""

    def __init__(self, table: Iterable[Own], book: Bookkeeper, clock: Clock = SYSTEM_CLOCK) -> None:
        self._table, self._book, self._clock = tuple(table), book, clock
        self._began = clock.monotonic()
        self._cells: dict[str, dict[Values, tuple[Integer, int]]] = {}
        """Variable -> values of its labels -> cell, and the figure that it was last told."""
        self._failed = False
        for own in (*PROCESS, *self._table):
            book.describe(own.name, own.help, own.unit, own.kind)

    def __call__(self, state: str, figures: Mapping[str, Any]) -> None:
        try:
            self._tell(PROCESS, {"ok": state == "ok", **self._process()})
            self._tell(self._table, figures)
        except Exception:  # a figure of an unforeseen kind must not end a process that works
            if not self._failed:
                log.exception("own variables: a defect; some are missing from now on")
            self._failed = True

    def _process(self) -> dict[str, int]:
        uptime = round((self._clock.monotonic() - self._began) * 1000)
        return {"uptime_ms": uptime, **process_figures()}

    def _tell(self, table: Sequence[Own], figures: Mapping[str, Any]) -> None:
        for own in table:
            cells = self._cells.setdefault(own.name, {})
            numbers = self._numbers(own, dig(figures, own.figure), cells)
            for values, number in numbers.items():
                self._set(own, values, number, cells)
            if not own.counter:
                for values in cells.keys() - numbers.keys():
                    cells.pop(values)[0].remove()

    def _numbers(self, own: Own, found: Any, known: Mapping[Values, Any]) -> dict[Values, int]:
        """Values of the labels -> number, at most MAX_SERIES and `other`."""
        numbers: dict[Values, int] = {}
        for values, one in leaves(found, len(own.labels)):
            number = self._number(own, one)
            if number is not None:
                taken = known.keys() | numbers.keys()
                series = values if values in taken or len(taken) < MAX_SERIES else (OTHER,) * len(values)
                numbers[series] = numbers.get(series, 0) + number
        return numbers

    def _number(self, own: Own, found: Any) -> int | None:
        if own.shape is Shape.COUNT:
            return len(found) if isinstance(found, Sequence | Mapping) else None
        if not isinstance(found, int | float) or found != found:
            return None
        if own.shape is Shape.AGE:
            return max(0, self._clock.now_ms() - round(found)) if found else None
        return int(found) if own.counter else round(found)  # a sum that grows must not be rounded up and down

    def _set(self, own: Own, values: Values, number: int, cells: dict[Values, tuple[Integer, int]]) -> None:
        cell, before = cells.get(values, (None, 0))
        if cell is None:
            cell = self._book.integer(own.name, dict(zip(own.labels, values, strict=True)))
        if own.counter:
            cell.add(number - before if number >= before else max(0, number))
        else:
            cell.set(number)
        cells[values] = cell, number


def leaves(found: Any, depth: int) -> Iterator[tuple[Values, Any]]:
    """(keys, figure) of a mapping of mappings; () and the figure itself for depth 0. Nothing of what is no mapping."""
    if depth == 0:
        yield (), found
    elif isinstance(found, Mapping):
        for key, inner in found.items():
            for values, one in leaves(inner, depth - 1):
                yield (str(key)[:LABEL_CHARACTERS] or "none", *values), one


def dig(figures: Mapping[str, Any], path: str) -> Any:
    """The figure at a dotted path, None if there is none."""
    found: Any = figures
    for step in path.split("."):
        if not isinstance(found, Mapping):
            return None
        found = found.get(step)
    return found


def process_figures(proc: Path = Path("/proc/self")) -> dict[str, int]:
    """Memory, CPU time, threads and open files of this process; without what the system does not tell."""
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
