"""Log records as counts: by level and logger, without a lock, never in the way of logging itself."""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Iterator

import pytest

from bookkeeper import Bookkeeper, use
from bookkeeper.integrations.logs import Handler
from bookkeeper.testing import snapshot


@pytest.fixture
def book() -> Bookkeeper:
    return Bookkeeper(online=False, strict=True)


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    made = logging.getLogger("integrations.logs.test.deep")
    made.setLevel(logging.DEBUG)
    made.propagate = False
    yield made
    made.handlers.clear()


def counts(book: Bookkeeper) -> dict[tuple[str, str], object]:
    return {
        (labels["level"], labels.get("logger", "")): value for labels, value in snapshot(book).series("log.records")
    }


def test_records_by_level_and_the_beginning_of_the_name(book: Bookkeeper, logger: logging.Logger) -> None:
    logger.addHandler(Handler(book=book))
    for level in (5, 10, 20, 25, 30, 40, 50, 60):
        logger.setLevel(1)
        logger.log(level, "message %s", level)
    name = "integrations.logs"
    assert counts(book) == {
        ("DEBUG", name): 2,
        ("INFO", name): 2,
        ("WARNING", name): 1,
        ("ERROR", name): 1,
        ("CRITICAL", name): 2,
    }


def test_level_filter_and_depth_are_those_of_the_handler(book: Bookkeeper, logger: logging.Logger) -> None:
    handler = Handler(logging.WARNING, depth=0, book=book)
    handler.addFilter(lambda record: "not this" not in record.getMessage())
    logger.addHandler(handler)
    logger.info("below")
    logger.warning("this")
    logger.error("not this")
    assert counts(book) == {("WARNING", ""): 1}


def test_it_goes_to_whatever_book_is_in_use(book: Bookkeeper, logger: logging.Logger) -> None:
    logger.addHandler(Handler())
    other = Bookkeeper(online=False)
    before = use(book)
    try:
        logger.error("one")
        use(other)
        logger.error("two")
        use(book)
        logger.error("three")
    finally:
        use(before)
    assert counts(book) == {("ERROR", "integrations.logs"): 2}
    assert counts(other) == {("ERROR", "integrations.logs"): 1}


def test_threads_lose_nothing(book: Bookkeeper, logger: logging.Logger) -> None:
    logger.addHandler(Handler(book=book))

    def work() -> None:
        for _ in range(500):
            logger.info("x")

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts(book) == {("INFO", "integrations.logs"): 4000}


def test_a_refusal_that_logs_does_not_come_back_for_ever(logger: logging.Logger) -> None:
    """bookkeeper logs what it refuses; a handler on that very logger counts the record and that is all."""
    book = Bookkeeper(online=False)
    own = logging.getLogger("bookkeeper")
    handler = Handler(book=book)
    own.addHandler(handler)
    try:
        book.set_string_var("log.records", {"level": "WARNING", "logger": "bookkeeper"}, "in the way")
        own.warning(f"of this test {uuid.uuid4()}")  # the same text again within a minute would be left out
    finally:
        own.removeHandler(handler)
    assert 1 <= book.refusals()["type"] <= 3
