"""Counts log records by level and logger, for queries and alerts on errors.

    import logging
    from bookkeeper.integrations.logs import Handler

    logging.getLogger().addHandler(Handler())

| variable | labels | kind |
| --- | --- | --- |
| `log.records` | level, logger | counter |
"""

from __future__ import annotations

import logging
from typing import Any

import bookkeeper

LEVELS = (
    (logging.CRITICAL, "CRITICAL"),
    (logging.ERROR, "ERROR"),
    (logging.WARNING, "WARNING"),
    (logging.INFO, "INFO"),
)
MAX_HANDLES = 4096


class Handler(logging.Handler):
    """Counts the records that reach it; writes nothing, takes no lock and never fails.

    Label `level`: the highest standard level not above the record's. Label `logger`: the first `depth` components of
    the logger's name: `django.db.backends` counts as `django.db` with the default of 2; 0 omits the label."""

    def __init__(
        self, level: int = logging.NOTSET, *, depth: int = 2, book: bookkeeper.Bookkeeper | None = None
    ) -> None:
        super().__init__(level)
        self._depth, self._given = depth, book
        self._book: bookkeeper.Bookkeeper | None = None
        self._handles: dict[tuple[str, int], Any] = {}

    def createLock(self) -> None:
        """Create no lock: counting needs none."""
        self.lock = None

    def handle(self, record: logging.LogRecord) -> bool:
        """Counts a record that passes the filters, without the lock that other handlers need."""
        passed = bool(self.filter(record))
        if passed:
            self.emit(record)
        return passed

    def emit(self, record: logging.LogRecord) -> None:
        """Counts a record."""
        book = self._given or bookkeeper.default()
        if book is not self._book:
            self._handles = {}
            book.describe("log.records", "Log records by level and the beginning of the logger's name", kind="counter")
            self._book = book
        handle = self._handles.get((record.name, record.levelno))
        (handle if handle is not None else self._handle(book, record)).add(1)

    def _handle(self, book: bookkeeper.Bookkeeper, record: logging.LogRecord) -> Any:
        labels = {"level": _level(record.levelno)}
        if self._depth > 0:
            labels["logger"] = ".".join(record.name.split(".")[: self._depth])
        if len(self._handles) >= MAX_HANDLES:  # a program that keeps making loggers
            self._handles.clear()
        handle = self._handles[record.name, record.levelno] = book.integer("log.records", labels)
        return handle


def _level(number: int) -> str:
    return next((name for least, name in LEVELS if number >= least), "DEBUG")
