"""The one line format of every benchmark: a JSON object with name, value, unit, peer, ratio and machine."""

import json
import os
import platform
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from artimon.model.batch import Polled
    from artimon.model.protocols import Since


class Line(TypedDict):
    """One measured figure; `ratio` > 1 always means that ours is better than `peer`."""

    name: str
    value: float
    unit: str
    peer: str | None
    ratio: float | None
    machine: str


class CountingSink:
    """Accepts everything and counts the samples: what is measured is what brings them."""

    def __init__(self) -> None:
        self.samples = 0

    async def accept(self, polled: "Sequence[Polled]") -> None:
        """Counts them."""
        self.samples += sum(len(one.samples) for one in polled)

    def replay(self, since: "Since | None" = None) -> "Iterable[Polled]":  # noqa: ARG002
        """Nothing: nothing is kept."""
        return ()


@cache
def machine() -> str:
    """What the figures were measured on: system, processor, cores, memory, Python."""
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return (
        f"{platform.system()} {platform.machine()} {_processor()}, {cores} cores, {pages / 2**30:.0f} GiB, "
        f"{platform.python_implementation()} {platform.python_version()}"
    )


def _processor() -> str:
    try:
        for text in Path("/proc/cpuinfo").read_text().splitlines():
            if text.startswith("model name"):
                return text.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or "unknown processor"


def line(name: str, value: float, unit: str, peer: str | None = None, ratio: float | None = None) -> Line:
    """The figure as a record, rounded to four significant digits."""
    rounded = None if ratio is None else float(f"{ratio:.4g}")
    return Line(name=name, value=float(f"{value:.4g}"), unit=unit, peer=peer, ratio=rounded, machine=machine())


def show(record: Line) -> None:
    """Prints a record as one line of JSON at once."""
    sys.stdout.write(json.dumps(record, ensure_ascii=False) + "\n")
    sys.stdout.flush()


def emit(name: str, value: float, unit: str, peer: str | None = None, ratio: float | None = None) -> Line:
    """Prints one figure as a line of JSON and returns it."""
    record = line(name, value, unit, peer, ratio)
    show(record)
    return record


def interleaved(rounds: int, *timed: Callable[[], float]) -> list[float]:
    """Best (smallest) result of each of `timed`, run in turn `rounds` times so that noise hits all alike."""
    best = [float("inf")] * len(timed)
    for _ in range(rounds):
        for i, run in enumerate(timed):
            best[i] = min(best[i], run())
    return best
