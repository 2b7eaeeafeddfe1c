"""The cache of announcements for other sites."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

from artimon.model.batch import BatchHeader
from pipeline.sites.announcement_cache import AnnouncementCache


def header(block: int) -> BatchHeader:
    return cast(BatchHeader, SimpleNamespace(source="a", block=block, poll_ms=1))


def test_a_block_dropped_while_a_site_reads_it_leaves_no_entry() -> None:
    names = AnnouncementCache(held_bytes=10)
    names.add(header(1), b"x" * 10)
    taken = names.missing_at("far")
    names.add(header(2), b"x" * 10)
    names.mark_sent("far", [*taken, *names.missing_at("far")])
    assert names.missing_at("far") == []
    assert list(names._sent_versions["far"]) == [("a", 2)]
