"""Celery's signals without a worker: states, durations, and that the receivers can be taken off again."""

from __future__ import annotations

from bookkeeper import testing
from bookkeeper.integrations import celery


def states() -> dict[tuple[str, str], object]:
    found = testing.snapshot().series("celery.tasks")
    return {(labels["task"], labels["state"]): value for labels, value in found}


def test_every_end_of_a_task_has_its_state() -> None:
    """A retry is one end of the task, and what comes of it another."""
    from tests.integrations import tasks

    with testing.isolated():
        for _ in range(3):
            tasks.fine.apply()
        tasks.broken.apply()
        tasks.again.apply()
        assert states() == {
            ("tests.fine", "SUCCESS"): 3,
            ("tests.broken", "FAILURE"): 1,
            ("tests.again", "RETRY"): 2,
            ("tests.again", "FAILURE"): 1,
        }
        found = testing.snapshot()
        assert found.value("celery.task.seconds.count", {"task": "tests.fine"}) == 3
        assert found.value("celery.tasks.active") == 0


def test_receivers_are_kept_until_they_are_removed() -> None:
    from tests.integrations import tasks

    with testing.isolated() as book, testing.isolated():
        more = celery.install(book)
        tasks.fine.apply()
        more.remove()
        tasks.fine.apply()
        assert testing.snapshot(book).total("celery.tasks") == 1
        assert testing.snapshot().total("celery.tasks") == 2
