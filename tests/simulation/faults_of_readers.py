"""Defects planted into the readers of Kafka, into the log and into shedding."""

from __future__ import annotations

from typing import Any

import pipeline.delivery.shedder
from pipeline.delivery.tracker import Tracker
from pipeline.sites.site_router import SiteRouter
from pipeline.spark.buckets_query import BucketsRun
from pipeline.spark.raw_query import RawQuery
from pipeline.wal.log_core import LogCore, OnWritten, PendingWrites
from tests.simulation.planting import Fault, around, on


def raw_ignores_log_start() -> list[Any]:
    return [on(RawQuery, "_check_deleted", lambda self, life: None)]


def buckets_ignore_log_start() -> list[Any]:
    return [on(BucketsRun, "pass_deleted", lambda self, bounds: None)]


def done_segments_stay() -> list[Any]:
    """Segments are deleted with the next batch only, so a full log accepts none."""

    def write(real: Any, self: LogCore, work: PendingWrites, tell: OnWritten) -> None:
        kept, self.deletion_paused = self.deletion_paused, not work.tickets
        try:
            real(self, work, tell)
        finally:
            self.deletion_paused = kept

    return [around(LogCore, "write", write)]


def shed_batches_not_named() -> list[Any]:
    return [on(pipeline.delivery.shedder, "shed_records", lambda agent, batches: iter(()))]


def shed_batches_still_sent() -> list[Any]:
    return [on(Tracker, "stop_sending", lambda self, places: set())]


def site_record_not_saved() -> list[Any]:
    def expose(real: Any, self: SiteRouter, site: str, group: Any) -> bool:
        real(self, site, group)
        return False

    return [around(SiteRouter, "bind", expose)]


def failed_save_believed() -> list[Any]:
    """Found by the simulation in the program: the next call is made as if the record were on the disk."""

    def expose(real: Any, self: SiteRouter, site: str, group: Any) -> bool:
        before = self.record.version
        real(self, site, group)
        return self.record.version > before

    return [around(SiteRouter, "bind", expose)]


def silent_call_withdrawn() -> list[Any]:
    def ended(real: Any, self: SiteRouter, site: str, group: Any, top: int, answers: Any, reached: bool) -> None:
        real(self, site, group, top, answers, reached and answers is not None)

    return [around(SiteRouter, "end_call", ended)]


READER_FAULTS = [
    Fault("raw ignores log start", "the raw query waits for what Kafka deleted unread", raw_ignores_log_start),
    Fault("buckets ignore log start", "shards wait for what Kafka deleted unread", buckets_ignore_log_start),
    Fault("shed batches not named", "a full log gives up batches and says nothing", shed_batches_not_named),
    Fault("shed batches still sent", "what was given up is read again to be sent", shed_batches_still_sent),
    Fault("site record not saved", "a batch goes to a site that the disk does not name", site_record_not_saved),
    Fault("failed save believed", "a record that was not saved is taken for saved", failed_save_believed),
    Fault("silent call withdrawn", "what a site may have goes to another site", silent_call_withdrawn),
    Fault("done segments stay", "a full log keeps what is acked", done_segments_stay),
]
