"""Memory of a source for final snapshots (docs/formats/final.md): its former processes, and snapshots taken."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from artimon.model.batch import Polled
from sources.state.reading import NO_PROCESS
from sources.state.series_births import Flags

MAX_AGE_MS = 7 * 86_400_000
"""A final snapshot that is older is refused. State of a source is kept for longer (store.FORGET_FILES_MS)."""
MAX_PASTS = 4
MAX_LATE = 12_000
"""Births that are kept of a process: as many as its poller leaves with it (memo.py)."""


@dataclass(frozen=True, slots=True)
class Past:
    """A process that spoke for the source before. `late`: births of its series that did not begin with it, by
    fingerprint."""

    uuid: bytes
    uid: int | None
    process_ms: int
    last_poll_ms: int
    late: dict[int, int]


@dataclass(slots=True)
class Finals:
    """`taken`: process -> poll time of the batch that holds its final snapshot."""

    pasts: list[Past] = field(default_factory=list)
    taken: dict[bytes, int] = field(default_factory=dict)

    def keep(self, past: Past) -> None:
        """Remember a process that another one has succeeded; the oldest one is forgotten."""
        others = [one for one in self.pasts if one.uuid != past.uuid]
        self.pasts = [*others[1 - MAX_PASTS :], past]

    def past(self, uuid: bytes) -> Past | None:
        return next((one for one in self.pasts if one.uuid == uuid), None)

    def take(self, uuid: bytes, time_ms: int) -> None:
        """Remember a final snapshot for longer than one may lie in the folder."""
        self.taken = {one: at for one, at in self.taken.items() if at > time_ms - 2 * MAX_AGE_MS} | {uuid: time_ms}

    def to_json(self) -> dict[str, Any]:
        pasts = [[p.uuid.hex(), p.uid, p.process_ms, p.last_poll_ms, list(p.late.items())] for p in self.pasts]
        return {"pasts": pasts, "taken": {uuid.hex(): at for uuid, at in self.taken.items()}}

    @classmethod
    def from_json(cls, content: Any) -> Finals:
        """Inverse of `to_json`. ValueError, KeyError or TypeError if it is none."""
        pasts = [
            Past(bytes.fromhex(uuid), uid, process_ms, last_poll_ms, dict(late))
            for uuid, uid, process_ms, last_poll_ms, late in content["pasts"]
        ]
        return cls(pasts, {bytes.fromhex(uuid): at for uuid, at in content["taken"].items()})


def past_of(uuid: bytes, uid: int | None, process_ms: int, last_poll_ms: int, state: npt.NDArray[np.void]) -> Past:
    """The process whose series stand in `state`, at its last poll. A series that had ended before began anew since."""
    known, alive = state["birth_ms"] >= process_ms, alive_at_end(state)
    last_poll_ms = polled_ms(state, last_poll_ms)
    born = np.where(alive, state["birth_ms"], last_poll_ms)
    late = known & (born != process_ms)
    found = dict(zip(state["fingerprint"][late].tolist(), born[late].tolist(), strict=True))
    newest = sorted(found.items(), key=lambda one: one[1])[-MAX_LATE:]
    return Past(uuid, uid, process_ms, last_poll_ms, dict(newest))


def alive_at_end(state: npt.NDArray[np.void]) -> Flags:
    """Series that had a value at the last poll, whether or not the end of the process is known by now."""
    live: Flags = state["live"]
    if live.any():
        return live
    last: Flags = _begun(state) & (state["last_ms"] == _last_ms(state))
    return last


def polled_ms(state: npt.NDArray[np.void], last_poll_ms: int) -> int:
    """Time of the last poll that had values; `last_poll_ms` is the time of the end, once that is known."""
    return last_poll_ms if bool(state["live"].any()) else min(last_poll_ms, _last_ms(state))


def _last_ms(state: npt.NDArray[np.void]) -> int:
    return int(state["last_ms"].max(initial=0, where=_begun(state)))


def _begun(state: npt.NDArray[np.void]) -> Flags:
    """Rows with a sample: one that was just made has none."""
    begun: Flags = state["birth_ms"] > 0
    return begun


def is_final(polled: Polled) -> bool:
    """A batch of a final snapshot: its samples are older than the batch, unlike those of a poll."""
    return polled.endpoint != NO_PROCESS and int(polled.samples.time_ms.max()) < polled.poll_ms
