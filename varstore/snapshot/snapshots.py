"""Snapshots of a shard: incremental, durable, taken while it is fed, loaded at a restart. docs/formats/image.md.

A snapshot writes the rows that changed since the last one, the series announced since, and the small state by slot. For
the rest it names the files of older snapshots. Its manifest is written last.
"""

from __future__ import annotations

import errno
import logging
import secrets
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from artimon.model.clock import SYSTEM_CLOCK, Clock
from varstore.shard.shard import Shard
from varstore.snapshot.manifest import MAX_BYTES, Manifest, manifest_name, sequences
from varstore.snapshot.snapshot_copier import SnapshotCopier
from varstore.snapshot.snapshot_folders import HdfsFolder, LocalFolder, SnapshotFolder
from varstore.store.capture import CaptureKey
from varstore.store.feed_groups import FeedGroup
from varstore.store.ownership import FrozenState
from varstore.store.snapshot_frames import SnapshotFormatError, SnapshotFrame, read_frames

log = logging.getLogger(__name__)

INTERVAL_S = 60.0
COPY_INTERVAL_S = 300.0
MIN_PAUSE_S = 10.0
MAX_CHANGES = 20_000_000
"""Samples applied after which a snapshot is taken early."""
QUOTA_BYTES = 64 << 30
FREE_BYTES = 256 << 20
"""Least free space on the disk."""
KEPT_SNAPSHOTS = 2
"""Number of newest manifests kept."""
SERIES_FILES = 32
"""Maximum number of series files in one snapshot; then all series are written anew."""
_POLL_S = 0.5

Usable = Callable[[Sequence[FeedGroup]], bool]
"""Returns True if groups at these positions can continue from there."""


@dataclass(frozen=True, slots=True)
class SnapshotResult:
    """Result of a snapshot."""

    sequence: int
    files: int
    bytes: int
    """Bytes written."""
    rows: int
    """Rows written."""
    took_s: float
    pause_s: float
    """Time at its start during which nothing could be applied."""


class SnapshotWriteError(RuntimeError):
    """Nothing was published; the previous snapshot stays the newest."""


class Snapshots:
    """Takes and loads the snapshots of one shard. `load` before `start`; `take` from one thread at a time.

    Invariant: `_rows` maps each row to the version and file that hold it, and `_series` names the files of announced
    series, both for exactly the virtual shards in `_mask`."""

    def __init__(
        self,
        shard: Shard,
        folder: Path | SnapshotFolder,
        hdfs: str | None = None,
        interval_s: float = INTERVAL_S,
        clock: Clock = SYSTEM_CLOCK,
        quota_bytes: int = QUOTA_BYTES,
        hdfs_interval_s: float = COPY_INTERVAL_S,
    ) -> None:
        """`hdfs`: a folder for the copies of all shards; this one's are in <hdfs>/<id>."""
        self._shard, self._holdings, self._clock = shard, shard.ownership, clock
        self._folder: SnapshotFolder = LocalFolder(folder) if isinstance(folder, Path) else folder
        self._copier = None
        if hdfs is not None:
            remote = HdfsFolder(f"{hdfs.rstrip('/')}/{shard.id}")
            self._copier = SnapshotCopier(self._folder, remote, hdfs_interval_s, clock)
        self._interval_s, self._quota_bytes = interval_s, quota_bytes
        self._token = secrets.token_hex(2)
        self._rows: dict[CaptureKey, tuple[int, str]] = {}
        self._mask = 0
        self._series: tuple[str, ...] = ()
        self._sizes: dict[str, int] = {}
        self._sequence = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="snapshots", daemon=True)
        self._last: SnapshotResult | None = None
        self._taken_at_ms = 0
        self._disk_bytes = 0
        self._failures = 0
        self.longest_pause_s = 0.0
        self.problem = ""
        """Reason why the last snapshot failed; empty if it succeeded."""

    # start and stop

    def start(self) -> None:
        """Take a snapshot every interval, in a thread of its own."""
        self._thread.start()
        if self._copier is not None:
            self._copier.start()

    def stop(self, last: bool = False) -> None:
        """Stop taking snapshots, after a `last` one if wanted; never raises."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        if last:
            self._attempt()
        if self._copier is not None:
            self._copier.stop()

    def _run(self) -> None:
        began, applied = self._clock.monotonic(), self._shard.applied
        while not self._stop.is_set():
            self._clock.wait(self._stop, _POLL_S)
            waited = self._clock.monotonic() - began
            busy = self._shard.applied - applied > MAX_CHANGES and waited > MIN_PAUSE_S
            if not self._stop.is_set() and (waited > self._interval_s or busy):
                self._attempt()
                began, applied = self._clock.monotonic(), self._shard.applied

    def _attempt(self) -> None:
        try:
            self.take()
        except SnapshotWriteError as error:
            log.warning("%s", error)
        except Exception as error:  # no error may stop the feeding
            self.problem = f"snapshot of shard {self._shard.id}: {error!r}"
            log.exception("snapshot of shard %s", self._shard.id)

    @property
    def problems(self) -> list[str]:
        """Problems for health."""
        mirrored = self._copier.problem if self._copier is not None else ""
        return [text for text in (self.problem, mirrored) if text]

    def figures(self) -> dict[str, Any]:
        """Return the figures that `artimon status` shows."""
        last = self._last
        age = max(0, self._clock.now_ms() - self._taken_at_ms) if self._taken_at_ms else -1
        return {
            "snapshot": last.sequence if last else 0,
            "snapshot_age_ms": age,
            "snapshot_took_ms": round(last.took_s * 1000) if last else 0,
            "snapshot_bytes": last.bytes if last else 0,
            "snapshot_rows": last.rows if last else 0,
            "snapshot_pause_ms": round(self.longest_pause_s * 1000),
            "snapshot_disk_bytes": self._disk_bytes,
            "snapshot_failures": self._failures,
            **(self._copier.figures() if self._copier is not None else {}),
        }

    # take

    def take(self) -> SnapshotResult | None:
        """Take a snapshot of all ready virtual shards; None if there are none. Raises SnapshotWriteError."""
        vshards = self._shard.ready
        if not vshards:
            return None
        try:
            self._make_room()
        except OSError as error:
            raise self._record_failure(error) from error
        began = self._clock.monotonic()
        if vshards != self._mask:
            self._rows, self._series, self._mask = {}, (), vshards
        frozen = self._holdings.freeze(vshards, {key: version for key, (version, _) in self._rows.items()}, True)
        self.longest_pause_s = max(self.longest_pause_s, frozen.pause_s)
        writing = _SnapshotWriter(
            self._folder, max(self._sequence + 1, self._clock.now_ms()), self._token, self._quota()
        )
        try:
            manifest, rows = self._write(writing, frozen)
            if frozen.removals != self._holdings.removals:
                raise SnapshotFormatError("virtual shards were dropped meanwhile")
            self._folder.publish(manifest.name, manifest.to_bytes())
        except BaseException as error:
            self._holdings.restore_journal(frozen)
            self._remove(writing.sizes)
            if isinstance(error, OSError | SnapshotFormatError):
                raise self._record_failure(error) from error
            raise
        finally:
            self._holdings.thaw(frozen)
        self._published(manifest, rows)
        took_s = self._clock.monotonic() - began
        written = sum(writing.sizes.values())
        self._last = SnapshotResult(
            manifest.sequence, len(writing.sizes), written, writing.rows, took_s, frozen.pause_s
        )
        return self._last

    def _record_failure(self, error: Exception) -> SnapshotWriteError:
        self._failures += 1
        full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        if full:
            with suppress(OSError):
                self._remove_old(1)  # make room for the next attempt
        self.problem = f"no snapshot of shard {self._shard.id} in {self._folder}: {error}"
        return SnapshotWriteError(self.problem)

    def _make_room(self) -> None:
        free = self._folder.free_bytes()
        if free < FREE_BYTES:
            raise OSError(errno.ENOSPC, f"{free} bytes are free, {FREE_BYTES} must stay free")

    def _quota(self) -> int:
        """Return the bytes that may be written now."""
        return min(self._quota_bytes - sum(self._folder.sizes().values()), self._folder.free_bytes() - FREE_BYTES // 2)

    def _write(
        self, writing: _SnapshotWriter, frozen: FrozenState
    ) -> tuple[Manifest, dict[CaptureKey, tuple[int, str]]]:
        """Write all files; return the manifest that names them, and the version and file of each row."""
        levels = self._shard.level_list
        rows = {key: at for key, at in self._rows.items() if frozen.rows.get(key) == at[0]}
        grouped = groupby(self._holdings.row_frames(frozen), lambda one: one[0])
        state: list[bytes] = list(self._holdings.state_frames(frozen))
        name = ""
        for key, of_key in grouped:
            frames = (frame for _, frame in of_key)
            if key[0] < 0:
                state.extend(frames)
                continue
            if not name:
                name = writing.write_file("state", state)
            step = levels[key[0]].step_ms
            rows[key] = frozen.rows[key], writing.write_file(f"row-{step}-{key[1]}", frames)
            writing.rows += 1
        if not name:
            name = writing.write_file("state", state)
        series = self._write_series(writing, frozen)
        sizes = {**self._sizes, **writing.sizes}
        where = {(levels[at].step_ms, number): file for (at, number), (_, file) in rows.items()}
        manifest = Manifest(writing.sequence, self._shard.id, self._mask, self._clock.now_ms(), name, series, where, {})
        return replace(manifest, sizes={file: sizes[file] for file in manifest.file_names}), rows

    def _write_series(self, writing: _SnapshotWriter, frozen: FrozenState) -> tuple[str, ...]:
        slots, series = frozen.slots, self._series
        if frozen.journal is None or len(series) >= SERIES_FILES or not series:
            series = ()
        else:
            learnt = np.fromiter(frozen.journal, np.int64, len(frozen.journal))
            slots = slots[np.isin(slots, learnt)]
            if not len(slots):
                return series
        return (*series, writing.write_file("series", self._holdings.series_frames(slots)))

    def _published(self, manifest: Manifest, rows: dict[CaptureKey, tuple[int, str]]) -> None:
        self._rows, self._series, self._sizes = rows, manifest.series, dict(manifest.sizes)
        self._sequence, self._taken_at_ms, self.problem = manifest.sequence, manifest.created_ms, ""
        try:
            self._remove_old(KEPT_SNAPSHOTS)
        except OSError as error:
            self.problem = f"old snapshots in {self._folder} are not removed: {error}"
        if self._copier is not None:
            self._copier.offer(manifest)

    # retention

    def _remove_old(self, count: int) -> None:
        """Remove files that none of the newest `count` manifests names."""
        sizes = self._folder.sizes()
        newest = sequences(sizes)
        kept: set[str] = {manifest_name(sequence) for sequence in newest[:count]}
        for sequence in newest[:count]:
            try:
                kept |= read_manifest(self._folder, sequence).file_names
            except SnapshotFormatError as error:
                log.warning("%s", error)
        if self._copier is not None:
            kept |= self._copier.pinned
        gone = set(sizes) - kept
        self._remove(sorted(gone, key=lambda name: not name.startswith("manifest")))
        self._disk_bytes = sum(size for name, size in sizes.items() if name not in gone)

    def _remove(self, names: Iterable[str]) -> None:
        for name in names:
            try:
                self._folder.delete(name)
            except OSError as error:
                log.warning("%s in %s cannot be removed: %s", name, self._folder, error)

    # load

    def load(self, usable: Usable = lambda _groups: True) -> bool:
        """Load the newest whole snapshot of the folder, else of the copy on HDFS; return False if there is none. The
        shard must be empty. `usable`: called before anything is loaded."""
        folders = [self._folder, *([self._copier.remote] if self._copier is not None else [])]
        for folder in folders:
            for manifest in manifests(folder):
                if self._load(folder, manifest, usable):
                    return True
        return False

    def _load(self, folder: SnapshotFolder, manifest: Manifest, usable: Usable) -> bool:
        landed = partial(self._register_rows, manifest if folder is self._folder else None)
        try:
            self._holdings.import_snapshot(manifest.vshards, frames_of(folder, manifest, usable), True, landed)
        except (SnapshotFormatError, OSError, ValueError) as error:
            log.warning("snapshot %s in %s cannot be used: %s", manifest.name, folder, error)
            return False
        self._sequence = max(self._sequence, manifest.sequence)
        return True

    def _register_rows(self, manifest: Manifest | None) -> None:
        """Register every loaded row as the content of its file; None: it is in another folder. Call with the locks of
        the shard."""
        if manifest is None:
            return
        versions = self._holdings.row_versions()
        steps = {level.step_ms: at for at, level in enumerate(self._shard.level_list)}
        for (step, number), name in manifest.rows.items():
            key = (steps[step], number)
            if key in versions:
                self._rows[key] = versions[key], name
        self._mask, self._series, self._sizes = manifest.vshards, manifest.series, dict(manifest.sizes)
        self._taken_at_ms = manifest.created_ms
        self._holdings.begin_journal()


class _SnapshotWriter:
    """Writer of the files of one snapshot."""

    def __init__(self, folder: SnapshotFolder, sequence: int, token: str, room: int) -> None:
        self._folder, self.sequence, self._token, self._room = folder, sequence, token, room
        self.sizes: dict[str, int] = {}
        self.rows = 0

    def write_file(self, kind: str, frames: Iterable[bytes]) -> str:
        """Write one file and return its name. Raises OSError, also at the end of the quota."""
        name = f"{kind}-{self.sequence}-{self._token}.img"
        self.sizes[name] = 0  # removed if this fails
        self.sizes[name] = self._folder.create(name, self._counted(frames))
        return name

    def _counted(self, frames: Iterable[bytes]) -> Iterator[bytes]:
        for frame in frames:
            self._room -= len(frame)
            if self._room < 0:
                raise OSError(errno.EDQUOT, "the quota of snapshots is used up")
            yield frame


def read_manifest(folder: SnapshotFolder, sequence: int) -> Manifest:
    """Read a manifest. Raises SnapshotFormatError if it is damaged, OSError."""
    name = manifest_name(sequence)
    with closing(folder.open(name)) as file:
        return Manifest.from_bytes(file.read(MAX_BYTES), f"{folder}/{name}")


def manifests(folder: SnapshotFolder) -> Iterator[Manifest]:
    """Yield manifests whose files are all present, newest first; problems of others are logged. Never raises."""
    try:
        sizes = folder.sizes()
    except OSError as error:
        log.warning("snapshots in %s: %s", folder, error)
        return
    for sequence in sequences(sizes):
        try:
            manifest = read_manifest(folder, sequence)
        except (SnapshotFormatError, OSError, ValueError) as error:
            log.warning("snapshots in %s: %s", folder, error)
            continue
        lacking = manifest.missing_files(sizes)
        if lacking:
            log.warning("%s in %s: %d files missing or truncated: %s", manifest.name, folder, len(lacking), lacking[:3])
        else:
            yield manifest


def frames_of(folder: SnapshotFolder, manifest: Manifest, usable: Usable) -> Iterator[SnapshotFrame]:
    """Yield the frames of all files, in the form of one snapshot. Raises SnapshotFormatError, OSError."""
    count = 0
    groups: list[FeedGroup] = []
    asked = False
    order = [manifest.state, *manifest.rows.values(), *reversed(manifest.series)]
    for frame in read_frames((f"{folder}/{name}", partial(folder.open, name)) for name in order):
        if frame.kind == "group":
            groups.append(FeedGroup.from_frame(frame))
        elif frame.kind != "head" and not asked:
            asked = True
            if not usable(groups):
                raise SnapshotFormatError(f"{manifest.name}: feeding cannot continue at its offsets")
        count += 1
        yield frame
    yield SnapshotFrame("end", {"parts": count}, {})
