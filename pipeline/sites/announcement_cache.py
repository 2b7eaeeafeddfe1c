"""Announcements that other sites need too: samples at a site have no names there until their series are announced.
Holds the newest version of each block in bounded memory; a site gets the missing ones once lanes go there."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence

from artimon.model.batch import BatchHeader
from pipeline.link.collector_client import CollectorClient

MAX_CACHE_BYTES = 64 * 1024 * 1024
CALL_BYTES, CALL_COUNT = 3 * 1024 * 1024, 1000
CALL_TIMEOUT_S = 15.0

BlockKey = tuple[str, int]
"""Source, block."""


class AnnouncementCache:
    """Cache of announcements. Thread-safe. When full it drops and counts the oldest, which come again within a day."""

    def __init__(self, held_bytes: int = MAX_CACHE_BYTES) -> None:
        self._max_bytes, self._lock = held_bytes, threading.Lock()
        self._blocks: OrderedDict[BlockKey, tuple[int, bytes]] = OrderedDict()
        self._sent_versions: dict[str, dict[BlockKey, int]] = {}
        """Versions of the blocks that a site has, by site."""
        self._bytes = 0
        self.dropped = 0

    def add(self, header: BatchHeader, data: bytes) -> None:
        """Add an announcement, which replaces older versions of its block."""
        key = header.source, header.block
        with self._lock:
            old = self._blocks.get(key)
            if old is not None and old[0] > header.poll_ms:
                return
            self._bytes += len(data) - (len(old[1]) if old else 0)
            self._blocks[key] = header.poll_ms, data
            self._blocks.move_to_end(key)
            while self._bytes > self._max_bytes:
                gone, (_, lost) = self._blocks.popitem(last=False)
                self._bytes -= len(lost)
                self.dropped += 1
                for known in self._sent_versions.values():
                    known.pop(gone, None)

    def missing_at(self, site: str) -> list[tuple[BlockKey, int, bytes]]:
        """Return announcements that the site does not have yet, at most one call of them."""
        with self._lock:
            known = self._sent_versions.setdefault(site, {})
            found: list[tuple[BlockKey, int, bytes]] = []
            size = 0
            for key, (version, data) in self._blocks.items():
                if known.get(key) == version:
                    continue
                size += len(data)
                if found and (size > CALL_BYTES or len(found) >= CALL_COUNT):
                    break
                found.append((key, version, data))
            return found

    def mark_sent(self, site: str, blocks: Sequence[tuple[BlockKey, int, bytes]]) -> None:
        """Record the announcements as sent to the site, except those that were dropped meanwhile."""
        with self._lock:
            kept = {key: version for key, version, _ in blocks if key in self._blocks}
            self._sent_versions.setdefault(site, {}).update(kept)


def send_announcements(names: AnnouncementCache, site: str, client: CollectorClient) -> bool:
    """Send announcements that the site lacks, in one call; True if there may be more. Raises CollectorCallError."""
    blocks = names.missing_at(site)
    if not blocks:
        return False
    answers = client.send([data for _, _, data in blocks], CALL_TIMEOUT_S).answers
    taken = [block for block, answer in zip(blocks, answers, strict=False) if answer.position is not None]
    names.mark_sent(site, taken)
    return bool(taken)
