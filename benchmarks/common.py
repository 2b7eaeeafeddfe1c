"""Line format of all benchmarks: a JSON object with name, value, unit, peer, ratio and machine."""

import json
import os
import platform
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

if TYPE_CHECKING:
    from artimon.model.batch import PollResult
    from artimon.model.protocols import NewestPoll
CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
"""Cores that this process may use."""


class Line(TypedDict):
    """One measured figure; `ratio` > 1 always means that ours is better than `peer`."""

    name: str
    value: float
    unit: str
    peer: str | None
    ratio: float | None
    machine: str


class CountingSink:
    """Sink that accepts everything and counts the samples, for benchmarks of sources."""

    def __init__(self) -> None:
        self.samples = 0

    async def accept(self, polled: "Sequence[PollResult]") -> None:
        """Count the samples."""
        self.samples += sum(len(one.samples) for one in polled)

    def replay(self, since: "NewestPoll | None" = None) -> "Iterable[PollResult]":  # noqa: ARG002
        """Return nothing: no poll is kept."""
        return ()


@cache
def machine() -> str:
    """Return a description of the machine: system, processor, cores, memory, Python."""
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return (
        f"{platform.system()} {platform.machine()} {_processor()}, {CORES} cores, {pages / 2**30:.0f} GiB, "
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
    """Return the figure as a record, rounded to four significant digits."""
    rounded = None if ratio is None else float(f"{ratio:.4g}")
    return Line(name=name, value=float(f"{value:.4g}"), unit=unit, peer=peer, ratio=rounded, machine=machine())


def show(record: Mapping[str, Any]) -> None:
    """Print a record as one line of JSON and flush."""
    sys.stdout.write(json.dumps(record, ensure_ascii=False) + "\n")
    sys.stdout.flush()


def emit(name: str, value: float, unit: str, peer: str | None = None, ratio: float | None = None) -> Line:
    """Print one figure as a line of JSON and return it."""
    record = line(name, value, unit, peer, ratio)
    show(record)
    return record


def say(text: str) -> None:
    """Print a line about the progress on standard error."""
    print(f"# {text}", file=sys.stderr, flush=True)


def fail(name: str, reason: str) -> None:
    """Print a line with `failed` in place of a value, for a figure that could not be measured."""
    text = " ".join(reason.split()) or "no reason given"
    show({"name": name, "value": None, "unit": "", "peer": None, "ratio": None, "machine": machine(), "failed": text})


class Parts:
    """Runner of a benchmark's parts: a failure becomes a line, and the next part runs."""

    def __init__(self) -> None:
        self.failed = 0

    def run(self, name: str, part: Callable[[], object]) -> None:
        """Call `part`; an exception becomes the failed line `name`."""
        try:
            part()
        except Exception as error:
            traceback.print_exc()
            self.failed += 1
            fail(name, f"{type(error).__name__}: {error}")

    def finish(self) -> None:
        """Exit with code 1 if a part failed."""
        if self.failed:
            sys.exit(f"{self.failed} parts failed: see the lines with `failed`")


def interleaved(rounds: int, *timed: Callable[[], float]) -> list[float]:
    """Return the best (smallest) result of each of `timed`, run in turn `rounds` times so that noise hits all alike."""
    best = [float("inf")] * len(timed)
    for _ in range(rounds):
        for i, run in enumerate(timed):
            best[i] = min(best[i], run())
    return best
