"""Messages that killed a worker, and the second run of tasks after a worker died.

A suspect is not refused, but decoded in a subprocess first (pipeline/spark/decoder_trial.py). The verdict is made
anew each time, so a fixed program stores messages that an older one could not.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from artimon.runtime.supervision import one_line
from pipeline.spark.feed_task import FeedPlan, FeedResult
from pipeline.spark.raw_task import RawPlan, RawResult

log = logging.getLogger(__name__)

SUSPECTS_FILE = "suspects.json"
"""Name of the file in the driver's folder."""
MAX_SUSPECTS = 1_000
"""Maximum number of digests kept, 32 characters each; the oldest are dropped first."""
_DEATHS = ("Python worker exited unexpectedly", "ExecutorLostFailure", "MemoryError", "java.io.EOFException")

Plan = TypeVar("Plan", RawPlan, FeedPlan)
Result = TypeVar("Result", RawResult, FeedResult)


class Suspects:
    """Digests of messages that killed a worker, in memory and in a file of the driver. Thread-safe: `_lock` guards
    both."""

    def __init__(self, path: Path) -> None:
        self._path, self._lock = path, threading.Lock()
        self._digests: dict[str, None] = dict.fromkeys(_read(path))
        self.alarm = False
        """True if a worker died and its messages were not all tried yet: the next run of a query tries them at once."""

    def digests(self) -> frozenset[str]:
        with self._lock:
            return frozenset(self._digests)

    def add(self, digests: Iterable[str]) -> None:
        """Remember these digests. A failure to write the file is only logged: the messages are found again."""
        with self._lock:
            fresh = [one for one in digests if one not in self._digests]
            if not fresh:
                return
            self._digests.update(dict.fromkeys(fresh))
            self._digests = dict.fromkeys(list(self._digests)[-MAX_SUSPECTS:])
            try:
                partial = self._path.with_suffix(".new")
                partial.write_text(json.dumps(list(self._digests)))
                partial.replace(self._path)
            except OSError as error:
                log.warning("suspects cannot be written to %s: %s", self._path, error)


def _read(path: Path) -> list[str]:
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return []
    return [str(one) for one in found][-MAX_SUSPECTS:] if isinstance(found, list) else []


def run_with_trial(run: Callable[[Plan], list[Result]], plan: Plan, suspects: Suspects) -> list[Result]:
    """Return the results of `run(plan)`. If a worker dies, run again and try every message in a subprocess first:
    the message that killed the worker gets its verdict, and the others continue."""
    plan = replace(plan, suspects=suspects.digests(), try_all=suspects.alarm)
    try:
        results = run(plan)
    except Exception as error:
        if plan.try_all or not is_worker_death(error):
            raise
        suspects.alarm = True
        log.error("a worker died, trying its messages one by one: %s", one_line(error))
        results = run(replace(plan, try_all=True))
    suspects.alarm = False
    suspects.add(one for result in results for one in result.poison)
    return results


def is_worker_death(error: BaseException) -> bool:
    """Return True if a worker died or ran out of memory, judged by the text of Spark's error."""
    text = str(error)
    return any(sign in text for sign in _DEATHS)
