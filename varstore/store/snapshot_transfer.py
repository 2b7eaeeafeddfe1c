"""Snapshots: the whole state of some virtual shards at one point, in bounded parts; written by `SnapshotExport`, read
by `SnapshotImport`.

Used for moves between processes (part by part) and by snapshots, whose files hold the same frames.
docs/formats/image.md.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from artimon.compute.sample_order import Cells
from artimon.model.grid import Level
from artimon.model.values import ValueType
from artimon.model.vshards import union
from varstore.cells.string_pool import NO_STRING
from varstore.index.label_index import vshard_flags
from varstore.index.slot_table import NO_SLOT
from varstore.store.bucket_store import BucketStore
from varstore.store.capture import INCARNATIONS_KEY, STATE_KEY, CaptureKey, Columns
from varstore.store.feed_groups import FeedGroup
from varstore.store.snapshot_frames import SnapshotFormatError, SnapshotFrame, encode_frame

# export


def make_copier(store: BucketStore) -> Callable[[CaptureKey, Cells], Columns]:
    """Make the copy function of a Capture; call it with the store's lock held. Cells of strings come with `text`."""

    def copy(key: CaptureKey, slots: Cells) -> Columns:
        if key == STATE_KEY:
            columns = {"slot": slots, **store.export_slots(slots)}
        elif key == INCARNATIONS_KEY:
            columns = store.incarnations.export_past(slots)
        else:
            columns = _row(store, key, slots)
        texts = _strings(store, columns)
        return columns if texts is None else {**columns, "text": texts}

    return copy


def _row(store: BucketStore, key: CaptureKey, slots: Cells) -> Columns:
    held = store.rings[key[0]].export_row(key[1], slots)
    some = held["count"] > 0
    if some.all():
        return {"slot": slots, **held}
    return {"slot": slots[some], **{name: column[some] for name, column in held.items()}}


def _strings(store: BucketStore, columns: Columns) -> npt.NDArray[np.object_] | None:
    """Return the strings that `last` refers to, None for numbers; None if all are numbers."""
    is_text = store.types.types_of(columns["slot"]) == ValueType.STRING
    if "known" in columns:
        is_text &= columns["known"]
    if not is_text.any():
        return None
    texts = np.full(len(is_text), None, object)
    texts[is_text] = [store.strings[id] for id in columns["last"][is_text].tolist()]
    return texts


def state_frame(levels: Sequence[Level], key: CaptureKey, columns: Columns) -> bytes:
    """Encode one part of a capture."""
    narrow = {**columns, "slot": columns["slot"].astype(np.uint32)}
    if key == STATE_KEY:
        return encode_frame("slots", {}, narrow)
    if key == INCARNATIONS_KEY:
        return encode_frame("lives", {}, narrow)
    return encode_frame("row", {"step_ms": levels[key[0]].step_ms, "number": key[1]}, narrow)


def head_frame(levels: Sequence[Level], head_ms: int, groups: Sequence[FeedGroup]) -> bytes:
    """Encode the first part."""
    told = {"levels": [[level.step_ms, level.count] for level in levels], "head_ms": head_ms, "groups": len(groups)}
    return encode_frame("head", told, {})


def group_frame(group: FeedGroup) -> bytes:
    """Encode one group with its positions and lanes."""
    return encode_frame("group", {}, {"json": [json.dumps(group.to_json())]})


def sort_by_urgency(store: BucketStore) -> list[CaptureKey]:
    """Return the keys of nonempty rows, those that will change soon first: the newest of each level, then the oldest,
    whose places new buckets take."""
    keys = [(at, number) for at, ring in enumerate(store.rings) for number in ring.bucket_numbers()]
    newest, oldest = dict(keys), dict(reversed(keys))

    def urgency(key: CaptureKey) -> int:
        return min(2 * (newest[key[0]] - key[1]), 2 * (key[1] - oldest[key[0]]) + 5)

    return sorted(keys, key=urgency)


@dataclass(frozen=True, slots=True)
class SnapshotExport:
    """Snapshot being exported: iterate over it once for its parts, then close it."""

    groups: Sequence[FeedGroup]
    """Copies of the exported groups."""
    parts: Iterable[bytes]
    """Parts except the end."""
    close: Callable[[], None]
    """Releases the capture."""

    def __iter__(self) -> Iterator[bytes]:
        count = 0
        for part in self.parts:
            count += 1
            yield part
        yield encode_frame("end", {"parts": count}, {})


# import


class SnapshotImport:
    """Imports the parts of a snapshot into a store that holds none of its virtual shards yet.

    Nothing is visible to feeders before the caller adds `groups`. Used by one thread; `cells` is taken for each part.
    After a SnapshotFormatError the caller removes the series of `wanted`."""

    def __init__(
        self, store: BucketStore, cells: AbstractContextManager[Any], wanted: int, exact: bool = False
    ) -> None:
        """wanted: mask of virtual shards. exact: the store is empty, and every series gets its previous slot."""
        self._store, self._cells, self.wanted, self._exact = store, cells, wanted, exact
        self._map: Cells = np.full(0, NO_SLOT, np.int64)
        self._parts = 0
        self._at_end = False
        self.groups: list[FeedGroup] = []
        self.head_ms = 0

    def import_frame(self, frame: SnapshotFrame) -> None:
        """Import one part. Raises SnapshotFormatError if it does not fit."""
        if self._at_end:
            raise SnapshotFormatError("the snapshot has a part after its end")
        try:
            match frame.kind:
                case "head":
                    self._head(frame.meta)
                case "group":
                    self._group(frame)
                case "slots":
                    self._slots(frame)
                case "lives":
                    self._incarnations(frame)
                case "row":
                    self._row(frame)
                case "end":
                    self._end(frame)
                case "values" | "series" | "blocks":
                    pass  # Holdings has imported it
                case kind:
                    raise SnapshotFormatError(f"the snapshot has a part of unknown kind {kind!r}")
        except (KeyError, TypeError, ValueError, IndexError, OverflowError) as error:
            raise (
                error
                if isinstance(error, SnapshotFormatError)
                else SnapshotFormatError(f"part {frame.kind}: {error!r}")
            ) from error
        self._parts += 1

    def finish(self) -> None:
        """Raise SnapshotFormatError unless the snapshot is complete."""
        if not self._at_end:
            raise SnapshotFormatError("the snapshot is truncated: its end is missing")
        if lacking := self.wanted & ~union(group.vshards for group in self.groups):
            raise SnapshotFormatError(f"the snapshot lacks virtual shards {lacking:x} (mask)")

    def _head(self, meta: Mapping[str, Any]) -> None:
        told = [tuple(level) for level in meta["levels"]]
        mine = [(ring.step_ms, ring.level.count) for ring in self._store.rings]
        if told != mine:
            raise SnapshotFormatError(f"the snapshot has levels {told}, this shard has {mine}")
        self.head_ms = int(meta["head_ms"])

    def _group(self, frame: SnapshotFrame) -> None:
        group = FeedGroup.from_frame(frame)
        group.vshards &= self.wanted
        if group.vshards:
            self.groups.append(group)

    def _end(self, frame: SnapshotFrame) -> None:
        if frame.meta["parts"] != self._parts:
            raise SnapshotFormatError(f"the snapshot has {self._parts} parts, {frame.meta['parts']} were written")
        self._at_end = True

    def local_slots_or_none(self, slots: npt.NDArray[Any]) -> Cells:
        """Map slots of the snapshot to (n,) local slots, NO_SLOT for unwanted series and slots that no part named."""
        there = slots.astype(np.int64)
        here, named = np.full(len(there), NO_SLOT, np.int64), there < len(self._map)
        here[named] = self._map.take(there[named])
        return here

    def _wanted(self, frame: SnapshotFrame) -> tuple[Cells, Columns]:
        """Return the local slots of the rows of wanted series, and their columns. SnapshotFormatError if a slot is
        unknown."""
        slots = frame.columns["slot"]
        if len(slots) and int(slots.max()) >= len(self._map):
            raise SnapshotFormatError(f"slot {int(slots.max())} is in no earlier part of the snapshot")
        here = self._map.take(slots.astype(np.int64))
        return here[here != NO_SLOT], _pick(frame.columns, here != NO_SLOT)

    def _slots(self, frame: SnapshotFrame) -> None:
        there = frame.columns["slot"].astype(np.int64)
        vshards = frame.columns["vshard"]
        wanted = vshard_flags(self.wanted)[vshards]
        if not len(there):
            return
        if int(there.max()) >= len(self._map):
            bigger = np.full(max(int(there.max()) + 1, 2 * len(self._map)), NO_SLOT, np.int64)
            bigger[: len(self._map)] = self._map
            self._map = bigger
        columns = _pick(frame.columns, wanted)
        with self._cells:
            here = self._allocate(there[wanted], columns)
            self._store.import_slots(here, self._interned(columns))
        self._map[there[wanted]] = here

    def _allocate(self, there: Cells, columns: Columns) -> Cells:
        prints, vshards = columns["fingerprint"], columns["vshard"]
        table = self._store.slots
        here = there
        if self._exact:
            table.restore(there, prints, vshards)
        else:
            here = np.full(len(there), NO_SLOT, np.int64)
            for vshard in np.unique(vshards).tolist():
                mine = vshards == vshard
                here[mine] = table.add(prints[mine], vshard)
        if (here == NO_SLOT).any():
            refused = int((here == NO_SLOT).sum())
            raise SnapshotFormatError(
                f"{refused} series of the snapshot got no slot: capacity reached or new series refused"
            )
        return here

    def _interned(self, columns: Columns) -> Columns:
        """Replace `last` of string series by numbers of this store's `texts`."""
        texts = columns.get("text")
        if texts is None:
            return columns
        last = columns["last"].copy()
        for row in np.flatnonzero(texts != np.array(None)).tolist():
            last[row] = self._store.strings.intern(texts[row])
            if last[row] == NO_STRING:
                raise SnapshotFormatError("no room for the strings of the snapshot: string bytes are at the limit")
        return {**columns, "last": last}

    def _incarnations(self, frame: SnapshotFrame) -> None:
        here, columns = self._wanted(frame)
        with self._cells:
            self._store.incarnations.load_past({**self._interned(columns), "slot": here})

    def _row(self, frame: SnapshotFrame) -> None:
        ring, number = self._store.ring(int(frame.meta["step_ms"])), int(frame.meta["number"])
        if ring is None:
            raise SnapshotFormatError(f"no level has buckets of {frame.meta['step_ms']} ms")
        here, columns = self._wanted(frame)
        closing = True
        while closing:  # segment by segment, so that the lock is held only briefly
            with self._cells:
                closing = ring.close_next(number)
        with self._cells:
            for capture in self._store.captures:
                capture.before_row(self._store.rings.index(ring), number)
            ring.import_row(number, here, self._interned(columns))


def _pick(columns: Mapping[str, Any], keep: npt.NDArray[np.bool_]) -> Columns:
    """Select rows; lists of texts become object arrays."""
    whole = bool(keep.all())
    plain = {name: np.array(c, object) if isinstance(c, list) else c for name, c in columns.items()}
    return plain if whole else {name: column[keep] for name, column in plain.items()}
