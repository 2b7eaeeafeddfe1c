"""Delivery of parsed lines to the log, for drop-in files and for scripts that print the same format."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Protocol, TypeVar

from sources.delivery.reading_delivery import ReadingDelivery
from sources.dropin.file_parser import Columns
from sources.dropin.file_source import DropinFile, Look
from sources.dropin.series_owners import SeriesOwners
from sources.state.series_memory import Taken

Result = TypeVar("Result")


class InThread(Protocol):
    """Runs work outside the event loop."""

    def __call__(self, work: Callable[[], Result], /) -> Awaitable[Result]: ...


async def take(
    file: DropinFile,
    look: Look,
    columns: Columns,
    delivery: ReadingDelivery,
    owners: SeriesOwners,
    in_thread: InThread,
    tell: Callable[[Columns], None],
) -> int:
    """Deliver the new samples in `columns` and return their number. Calls `tell` with the refusals. Raises SinkRefused:
    none was accepted."""
    now_ms = delivery.clock.now_ms()
    row = await file.settle(columns, now_ms)
    taken = await in_thread(lambda: file.select(columns, row, now_ms))
    file.seen(row, columns.complete)
    tell(columns)
    delivery.rules.acted(file.series.name, file.rules, file.acted)
    begun = file.begun(taken)
    samples = await deliver(file, replace(taken, ended=file.ended()), delivery, now_ms)
    owners.take(begun, file.series)
    file.taken(look, samples, now_ms)
    return samples


async def deliver(file: DropinFile, taken: Taken, delivery: ReadingDelivery, now_ms: int) -> int:
    """Deliver and return the number of samples accepted. Raises SinkRefused: none was."""
    return await delivery.take(file.series, lambda: file.series.prepare_taken(taken, now_ms))
