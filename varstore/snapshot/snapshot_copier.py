"""Copies the newest snapshot to another folder, as fast as possible."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

from artimon.model.clock import Clock
from varstore.snapshot.manifest import Manifest, manifest_name, sequences
from varstore.snapshot.snapshot_folders import SnapshotFolder
from varstore.store.snapshot_frames import SnapshotFormatError

log = logging.getLogger(__name__)

_CHUNK = 8 * 1024 * 1024
_POLL_S = 0.5
KEPT_COPIES = 2
COPY_THREADS = 4
"""Files that are copied at a time, each held in memory: HDFS takes half a second to close one of any size."""


class SnapshotCopier:
    """One thread, and AT_ONCE that copy. `_lock` guards offered and pinned snapshots and the count; no I/O under it."""

    def __init__(self, local: SnapshotFolder, remote: SnapshotFolder, interval_s: float, clock: Clock) -> None:
        self._local, self.remote, self._interval_s, self._clock = local, remote, interval_s, clock
        self._lock = threading.Lock()
        self._offered: Manifest | None = None
        self._copying: Manifest | None = None
        self._copied: list[Manifest] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="snapshot-copies", daemon=True)
        self._copied_at_ms = 0
        self._bytes = 0
        self.problem = ""
        """Reason why the copy is not up to date; empty if it is."""

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop after the current file; waits at most 5 s."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(5.0)

    def offer(self, manifest: Manifest) -> None:
        """Offer a newer snapshot for copying."""
        with self._lock:
            self._offered = manifest

    @property
    def pinned(self) -> set[str]:
        """Local files that must not be removed: they are being copied."""
        with self._lock:
            return {*self._copying.file_names, self._copying.name} if self._copying is not None else set()

    def figures(self) -> dict[str, Any]:
        age = max(0, self._clock.now_ms() - self._copied_at_ms) if self._copied_at_ms else -1
        return {"snapshot_copy_age_ms": age, "snapshot_copy_bytes": self._bytes}

    def _run(self) -> None:
        due = self._clock.monotonic()
        while not self._stop.is_set():
            self._clock.wait(self._stop, _POLL_S)
            if self._clock.monotonic() >= due and self.copy():
                due = self._clock.monotonic() + self._interval_s

    def copy(self) -> bool:
        """Copy the last offered snapshot; return False if there was none. Never raises."""
        with self._lock:
            manifest = self._copying = self._offered
            self._offered = None
        if manifest is None:
            return False
        try:
            if self._copy(manifest):
                self.problem, self._copied_at_ms = "", self._clock.now_ms()
        except (OSError, SnapshotFormatError, RuntimeError) as error:
            self.problem = f"snapshots are not copied to {self.remote}: {error}"
            log.warning("%s", self.problem)
        finally:
            with self._lock:
                self._copying = None
        return True

    def _copy(self, manifest: Manifest) -> bool:
        """Return False if the process is stopping: nothing is published."""
        there = self.remote.sizes()
        with ThreadPoolExecutor(COPY_THREADS, "snapshot-copy") as pool:
            sizes = list(pool.map(self._create, manifest.missing_files(there)))
        if None in sizes:
            return False
        self.remote.publish(manifest.name, manifest.to_bytes())
        self._copied = [*self._copied, manifest][-KEPT_COPIES:]
        self._remove_old(there)
        return True

    def _create(self, name: str) -> int | None:
        """Copy a file; return its bytes, or None if the process is stopping."""
        if self._stop.is_set():
            return None
        size = self.remote.create(name, self._chunks(name))
        with self._lock:
            self._bytes += size
        return size

    def _chunks(self, name: str) -> Iterator[bytes]:
        with closing(self._local.open(name)) as file:
            while data := file.read(_CHUNK):
                yield data

    def _remove_old(self, there: dict[str, int]) -> None:
        """Remove files that none of the newest copies names; after a restart only once KEPT copies were made."""
        if len(self._copied) < KEPT_COPIES:
            return
        kept = set().union(*({manifest.name, *manifest.file_names} for manifest in self._copied))
        newest = {manifest_name(sequence) for sequence in sequences(there)} - kept
        for name in sorted(newest) + sorted(set(there) - kept - newest):
            self.remote.delete(name)
