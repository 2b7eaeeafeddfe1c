"""Announced series of a snapshot: dictionary-encoded names and labels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from artimon.model.select import NAME
from varstore.index.label_index import AnnouncedColumns, LabelIndex
from varstore.index.metric_metadata import Metadata, MetricMetadata
from varstore.index.slot_table import NO_SLOT, Slots, SlotTable
from varstore.store.snapshot_frames import SnapshotFormatError, SnapshotFrame, encode_frame

if TYPE_CHECKING:
    from varstore.store.snapshot_transfer import SnapshotImport

SERIES_PER_FRAME = 65_536
KINDS = ("values", "series")
_CODES = "codes:"


def series_frames(index: LabelIndex, table: SlotTable, slots: Slots, metadata: MetricMetadata) -> Iterator[bytes]:
    """Yield, per 65,536 of `slots`, a frame "values" for each label and then a frame "series" of the announced ones.
    The values of the name come with their help and unit, which readers of older versions ignore."""
    for first in range(0, len(slots), SERIES_PER_FRAME):
        announced = index.export(slots[first : first + SERIES_PER_FRAME])
        if not len(announced.slots):
            continue
        for label, (_, values) in announced.labels.items():
            texts = _texts(values, metadata) if label == NAME else {}
            yield encode_frame("values", {"label": label}, {"value": list(values), **texts})
        yield encode_frame(
            "series",
            {},
            {
                "slot": announced.slots.astype(np.uint32),
                "fingerprint": table.fingerprint.take(announced.slots),
                "type": announced.type,
                "kind": announced.kind,
                "version": announced.version,
                "seen_s": announced.seen_s,
                **{_CODES + label: codes for label, (codes, _) in announced.labels.items()},
            },
        )


def _texts(names: Sequence[str], metadata: MetricMetadata) -> dict[str, list[str]]:
    """Return the columns `help` and `unit` of names; {} if none has any."""
    known, unknown = metadata.read(names), Metadata()
    told = [known.get(name, unknown) for name in names]
    return {"help": [one.help for one in told], "unit": [one.unit for one in told]} if known else {}


class SeriesImporter:
    """Imports these frames into an index. Newer frames must come first: a series that is there is left unchanged."""

    def __init__(self, index: LabelIndex, table: SlotTable, metadata: MetricMetadata) -> None:
        self._index, self._table, self._metadata = index, table, metadata
        self._values: dict[str, list[str]] = {}

    def import_frame(self, frame: SnapshotFrame, coming: SnapshotImport) -> Slots:
        """Import one frame; return the slots whose series are known now. Raises SnapshotFormatError if frames do not
        fit. Rows of an older file whose slot belongs to another series by now are skipped."""
        try:
            if frame.kind == "values":
                values = self._values[str(frame.meta["label"])] = [value or "" for value in frame.columns["value"]]
                if frame.meta["label"] == NAME and "help" in frame.columns:
                    for name, help, unit in zip(values, frame.columns["help"], frame.columns["unit"], strict=True):
                        self._metadata.restore(name, help or "", unit or "")
                return np.zeros(0, np.int64)
            labels, self._values = self._values, {}
            return self._series(frame, labels, coming)
        except (KeyError, TypeError, IndexError, ValueError) as error:
            raise SnapshotFormatError(f"part {frame.kind} does not fit: {error!r}") from error

    def _series(self, frame: SnapshotFrame, values: dict[str, list[str]], coming: SnapshotImport) -> Slots:
        columns = frame.columns
        here = coming.local_slots_or_none(columns["slot"])
        same = self._table.fingerprint.take(here, mode="wrap") == columns["fingerprint"]
        keep = (here != NO_SLOT) & same
        labels = {label: (_codes(columns[_CODES + label], keep, texts), texts) for label, texts in values.items()}
        found: Slots = here[keep]
        type_, kind, version, seen_s = (columns[name][keep] for name in ("type", "kind", "version", "seen_s"))
        self._index.load(AnnouncedColumns(found, type_, kind, version, seen_s, labels))
        return found


def _codes(codes: npt.NDArray[Any], keep: npt.NDArray[np.bool_], texts: list[str]) -> npt.NDArray[np.int32]:
    if len(codes) and not 0 <= int(codes.min()) <= int(codes.max()) < len(texts):
        raise SnapshotFormatError("a label code is outside the values of its label")
    kept: npt.NDArray[np.int32] = codes[keep].astype(np.int32)
    return kept
