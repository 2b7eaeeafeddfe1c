"""Pool of threads for tasks that may add further tasks, until all are done or the caller stops it."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice

from query_dsl.stores.history.sample_query import HistoryInterrupted

THREADS = max(2, min(4, os.cpu_count() or 1))
"""More threads than processors only write to more memory."""
FETCHING_THREADS = 2
"""Threads that fetch files ahead of those that read them: they wait for the storage most of their time."""
FETCHED_AHEAD = 2 * THREADS
"""Number of tasks in progress at which no further file is fetched."""
POLL_S = 0.2


@dataclass(frozen=True, slots=True)
class TaskResult:
    """Result of a task: its part of the total bytes, and the tasks that it adds."""

    size: int
    next_tasks: tuple[Task, ...] = ()


Task = Callable[[], TaskResult]


class TaskPool:
    """One set of tasks. `ended` is set once their results are no longer needed; long tasks check it."""

    def __init__(self, stop: threading.Event) -> None:
        self._stop = stop
        self.ended = threading.Event()

    def run(self, tasks: Iterable[Task], told: Callable[[int], None], fetching: bool = False) -> None:
        """Run all tasks; `told` is called in this thread at times with the bytes done. Raises HistoryInterrupted once
        stopped, and exceptions of tasks.

        fetching: the given tasks only fetch and add tasks; they run in threads of their own, a few ahead."""
        ready: queue.SimpleQueue[Future[TaskResult]] = queue.SimpleQueue()
        rest, limit = iter(tasks), FETCHED_AHEAD if fetching else None
        running = size = 0
        with ExitStack() as ended:
            pool = ended.enter_context(ThreadPoolExecutor(THREADS, thread_name_prefix="history"))
            fetchers = pool
            if fetching:
                fetchers = ended.enter_context(ThreadPoolExecutor(FETCHING_THREADS, thread_name_prefix="fetching"))

            def begin(executor: ThreadPoolExecutor, some: Iterable[Task]) -> int:
                begun = [executor.submit(task) for task in some]
                for future in begun:
                    future.add_done_callback(ready.put)
                return len(begun)

            try:
                while True:
                    running += begin(fetchers, islice(rest, limit and max(0, limit - running)))
                    if not running:
                        break
                    future = _next(ready)
                    if self._stop.is_set():
                        raise HistoryInterrupted("reading the history was interrupted")
                    if future is not None:
                        done = future.result()
                        size += done.size
                        running += begin(pool, done.next_tasks) - 1
                    told(size)
            finally:
                self.ended.set()
                for executor in (fetchers, pool):
                    executor.shutdown(wait=False, cancel_futures=True)


def _next(ready: queue.SimpleQueue[Future[TaskResult]]) -> Future[TaskResult] | None:
    try:
        return ready.get(timeout=POLL_S)
    except queue.Empty:
        return None
