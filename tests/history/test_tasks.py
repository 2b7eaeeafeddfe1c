"""Tasks add further tasks; the first error is raised and cancels the rest."""

from __future__ import annotations

import threading

import pytest

from query_dsl.stores.history.sample_query import HistoryInterrupted
from query_dsl.stores.history.task_pool import Task, TaskPool, TaskResult


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
