"""Memory of a source for final snapshots (docs/formats/final.md): former processes, and snapshots taken."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from artimon.model.batch import PollResult
from sources.state.source_reading import NO_PROCESS
from sources.state.start_times import Flags

MAX_AGE_MS = 7 * 86_400_000
"""Maximum age of a final snapshot. The state of a source is kept for longer (state_store.FORGET_FILES_MS)."""
MAX_PAST_PROCESSES = 4
MAX_START_TIMES = 12_000
"""Maximum births kept of a process: as many as its poller leaves with it (memo.py)."""


@dataclass(frozen=True, slots=True)
class PastProcess:
    """Former process of the source. `late`: fingerprint -> birth of its series that began later than the process."""

    uuid: bytes
    uid: int | None
    process_ms: int
    last_poll_ms: int
    late: dict[int, int]


@dataclass(slots=True)
class FinalSnapshots:
    """Former processes of a source, and snapshots taken: process -> poll time of the batch with its final snapshot."""

    pasts: list[PastProcess] = field(default_factory=list)
    taken: dict[bytes, int] = field(default_factory=dict)

    def add_past(self, past: PastProcess) -> None:
        """Remember a process that has a successor, and only the newest MAX_PASTS of them."""
        others = [one for one in self.pasts if one.uuid != past.uuid]
        self.pasts = [*others[1 - MAX_PAST_PROCESSES :], past]

    def past(self, uuid: bytes) -> PastProcess | None:
        return next((one for one in self.pasts if one.uuid == uuid), None)

    def mark_taken(self, uuid: bytes, time_ms: int) -> None:
        """Remember a snapshot as taken for twice the maximum age of a file."""
        self.taken = {one: at for one, at in self.taken.items() if at > time_ms - 2 * MAX_AGE_MS} | {uuid: time_ms}

    def to_json(self) -> dict[str, Any]:
        pasts = [[p.uuid.hex(), p.uid, p.process_ms, p.last_poll_ms, list(p.late.items())] for p in self.pasts]
        return {"pasts": pasts, "taken": {uuid.hex(): at for uuid, at in self.taken.items()}}

    @classmethod
    def from_json(cls, content: Any) -> FinalSnapshots:
        """Inverse of `to_json`. Raises ValueError, KeyError or TypeError for invalid content."""
        pasts = [
            PastProcess(bytes.fromhex(uuid), uid, process_ms, last_poll_ms, dict(late))
            for uuid, uid, process_ms, last_poll_ms, late in content["pasts"]
        ]
        return cls(pasts, {bytes.fromhex(uuid): at for uuid, at in content["taken"].items()})


def make_past_process(
    uuid: bytes, uid: int | None, process_ms: int, last_poll_ms: int, state: npt.NDArray[np.void]
) -> PastProcess:
    """Return the process of the series in `state`, as of its last poll. Series that ended earlier would begin anew."""
    known, alive = state["birth_ms"] >= process_ms, alive_at_end(state)
    last_poll_ms = polled_ms(state, last_poll_ms)
    born = np.where(alive, state["birth_ms"], last_poll_ms)
    late = known & (born != process_ms)
    found = dict(zip(state["fingerprint"][late].tolist(), born[late].tolist(), strict=True))
    newest = sorted(found.items(), key=lambda one: one[1])[-MAX_START_TIMES:]
    return PastProcess(uuid, uid, process_ms, last_poll_ms, dict(newest))


def alive_at_end(state: npt.NDArray[np.void]) -> Flags:
    """Return the mask of series with a value at the last poll, even if the process is known to have ended."""
    live: Flags = state["live"]
    if live.any():
        return live
    last: Flags = _has_started(state) & (state["last_ms"] == _last_ms(state))
    return last


def polled_ms(state: npt.NDArray[np.void], last_poll_ms: int) -> int:
    """Return the time of the last poll with values. `last_poll_ms` is the time of the end once that is known."""
    return last_poll_ms if bool(state["live"].any()) else min(last_poll_ms, _last_ms(state))


def _last_ms(state: npt.NDArray[np.void]) -> int:
    return int(state["last_ms"].max(initial=0, where=_has_started(state)))


def _has_started(state: npt.NDArray[np.void]) -> Flags:
    """Return the mask of rows that have had a sample."""
    begun: Flags = state["birth_ms"] > 0
    return begun


def is_final(polled: PollResult) -> bool:
    """Return True for a batch of a final snapshot: unlike in a poll, its samples are older than the batch."""
    return polled.endpoint != NO_PROCESS and int(polled.samples.time_ms.max()) < polled.poll_ms
