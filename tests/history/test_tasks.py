"""Tasks add further tasks; the first error is raised and cancels the rest."""

from __future__ import annotations

import threading

import pytest

from query_dsl.stores.history.sample_query import HistoryInterrupted
from query_dsl.stores.history.task_pool import FETCHED_AHEAD, Task, TaskPool, TaskResult


def splitting(size: int, done: list[int]) -> Task:
    """Task that does one unit and splits the rest between two others."""

    def task() -> TaskResult:
        done.append(1)
        rest = size - 1
        return TaskResult(1, tuple(splitting(part, done) for part in (rest // 2, rest - rest // 2) if part))

    return task


def test_all_are_done_and_counted() -> None:
    done: list[int] = []
    told: list[int] = []
    TaskPool(threading.Event()).run([splitting(50, done), splitting(7, done)], told.append)
    assert len(done) == told[-1] == 57
    assert told == sorted(told)


def test_no_tasks_report_no_progress() -> None:
    told: list[int] = []
    TaskPool(threading.Event()).run([], told.append)
    assert told == []


def test_an_error_ends_the_others() -> None:
    pool = TaskPool(threading.Event())

    def waits() -> TaskResult:
        assert pool.ended.wait(60)
        return TaskResult(1)

    def fails() -> TaskResult:
        raise FileNotFoundError("gone")

    with pytest.raises(FileNotFoundError, match="gone"):
        pool.run([waits, fails, *[waits] * 20], lambda _: None)  # two threads at least
    assert pool.ended.is_set()


def test_stopping_interrupts() -> None:
    stop = threading.Event()
    pool = TaskPool(stop)

    def stops() -> TaskResult:
        stop.set()
        pool.ended.wait(60)
        return TaskResult(1)

    with pytest.raises(HistoryInterrupted):
        pool.run([stops], lambda _: None)


def test_few_files_are_fetched_ahead() -> None:
    """Reading waits for nothing but its own file, and at most FETCHED_AHEAD files are fetched and not yet read."""
    held, most, lock, names = [0], [0], threading.Lock(), set[str]()

    def count(by: int) -> None:
        with lock:
            held[0] += by
            most[0] = max(most[0], held[0])
            names.add(threading.current_thread().name.partition("_")[0])

    def read() -> TaskResult:
        count(-1)
        return TaskResult(1)

    def fetch() -> TaskResult:
        count(1)
        return TaskResult(0, (read,))

    told: list[int] = []
    TaskPool(threading.Event()).run([fetch] * 200, told.append, fetching=True)
    assert told[-1] == 200
    assert 1 <= most[0] <= FETCHED_AHEAD
    assert names == {"fetching", "history"}


def test_an_error_of_a_fetched_file_ends_the_others() -> None:
    pool = TaskPool(threading.Event())

    def fails() -> TaskResult:
        raise OSError("broken")

    with pytest.raises(OSError, match="broken"):
        pool.run([lambda: TaskResult(0, (fails,))] * 50, lambda _: None, fetching=True)
    assert pool.ended.is_set()
