"""Delivery of final snapshots: last values of processes that ended without a last poll. docs/formats/final.md."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

from artimon.model.protocols import SinkRefusedError
from artimon.model.values import Kind
from bookkeeper.export.final_file import SUFFIX
from sources.base.schedule import Pace, next_tick, sleep_until
from sources.base.source_errors import FileRefusedError
from sources.delivery.file_thread import FileSystemHangsError, FileThread
from sources.delivery.placement_resolver import source_name
from sources.delivery.poll_context import PollContext
from sources.poll.final_files import (
    FinalLimits,
    FinalSnapshot,
    decode_final,
    list_finals,
    make_folder,
    read_final,
    remove_final,
)
from sources.poll.final_samples import prepare
from sources.poll.lease_units import Network
from sources.state.series_memory import SourceSeries
from sources.state.source_reading import SourceVariable

log = logging.getLogger(__name__)
RETRIED_REASONS = ("future", "unreadable", "foreign folder")
"""Temporary reasons of refusal: the file stays until it is too old."""
_ABOUT = "final snapshots"
_BEFORE_POLL_S = 5.0
"""Seconds that the first poll of a process waits for the final snapshot of its predecessor."""


class FinalFolder:
    """Takes the final snapshots of one folder. Event loop only; files are read in a separate thread.

    `_turn` is held while one file is taken. A file is deleted after the log has its samples and the state on disk
    records that: after a crash in between, the log or the state shows that it was taken."""

    def __init__(
        self,
        dropin: Path,
        shared: PollContext,
        networks: Callable[[], frozenset[Network]],
        limits: FinalLimits | None = None,
    ) -> None:
        """`networks` returns the addresses of this host; it blocks."""
        self._dropin, self._shared, self._networks = dropin, shared, networks
        self._limits = limits or FinalLimits()
        self._files_thread = FileThread(dropin, "final")
        self._sweep_lock = asyncio.Lock()
        self._own: frozenset[Network] = frozenset()
        self._tasks: set[asyncio.Task[None]] = set()
        self.folder: Path | None = None
        self.swept = asyncio.Event()
        """Set after the first sweep."""
        self.taken = 0
        self.refused: Counter[str] = Counter()
        """Refused files since the start by reason."""

    async def run(self, pace: Pace) -> None:
        """Sweep at once, then once a period, until cancelled."""
        clock = self._shared.clock
        while True:
            await self.sweep()
            self.swept.set()
            tick = next_tick(clock.now_ms(), *pace())
            await sleep_until(tick, clock, lambda: 2 * pace()[1])

    async def sweep(self) -> int:
        """Take every file once; return the number taken. Never raises."""
        problems, texts, taken = Counter[str](), list[str](), 0
        try:
            for name in await self._list():
                try:
                    taken += await self._take_file(name)
                except FileRefusedError as error:
                    problems[error.reason] += 1
                    texts.append(error.text)
        except (FileRefusedError, FileSystemHangsError) as error:
            texts.append(str(error))
        except Exception as error:
            log.exception("final snapshots in %s cannot be read", self._dropin)
            texts.append(f"{self._dropin}: {type(error).__name__}: {error}")
        named = tuple(f"{_ABOUT}: {text}" for text in texts[:1])
        self._shared.figures.set_refused(_ABOUT, problems, named)
        return taken

    async def take(self, uuid: bytes) -> None:
        """Take the file of one process, if any. Waits at most _BEFORE_POLL_S. Never raises."""
        if self.folder is None:
            return
        task = asyncio.create_task(self._take_one(uuid), name=f"final snapshot of {uuid.hex()}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        await asyncio.wait([task], timeout=_BEFORE_POLL_S)  # never cancelled: the log may have accepted it already

    async def _take_one(self, uuid: bytes) -> None:
        try:
            await self._take_file(uuid.hex() + SUFFIX)
        except (FileRefusedError, FileSystemHangsError):
            return  # the next sweep reports it
        except Exception:
            log.exception("final snapshot of %s", uuid.hex())

    def close(self) -> None:
        self._files_thread.close()

    def variables(self, labels: Mapping[str, str]) -> Iterator[SourceVariable]:
        """Own variables of the agent about final snapshots; `labels` are those of the host."""
        yield SourceVariable("artimon.final.taken", labels, self.taken, Kind.COUNTER, "", "Final snapshots taken")
        refused = self.refused.total()
        yield SourceVariable("artimon.final.refused", labels, refused, Kind.COUNTER, "", "Final snapshots refused")

    # --- one file

    async def _list(self) -> tuple[str, ...]:
        async with self._sweep_lock:
            self.folder = await self._files_thread(partial(make_folder, self._dropin))
            if self.folder is None:
                return ()
            now_ms = self._shared.clock.now_ms()
            names, deleted = await self._files_thread(partial(list_finals, self.folder, self._limits, now_ms))
            self.refused += deleted
            if names:
                self._own = await self._files_thread(self._networks)
            return names

    async def _take_file(self, name: str) -> bool:
        """Take one file. False if it is missing, was taken before, or the log is refusing now. Raises FileRefusedError
        and deletes the file, unless the reason is temporary (WAITING)."""
        if self.folder is None:
            return False
        path = self.folder / name
        async with self._sweep_lock:
            try:
                data, owner = await self._files_thread(partial(read_final, path, self._limits))
                final = await self._decode(path, data, owner)
                series, labels = await self._source(path, final)
                _refuse_owner(path, series, final)
                return await self._deliver(path, final, series, labels)
            except FileNotFoundError:
                return False
            except SinkRefusedError as error:
                log.warning("%s: %s", path, error)
                return False
            except FileRefusedError as error:
                if error.reason not in RETRIED_REASONS:
                    await self._files_thread(partial(remove_final, path))
                    self.refused[error.reason] += 1
                    log.warning("refused and deleted: %s", error)
                raise

    async def _decode(self, path: Path, data: bytes, owner: int) -> FinalSnapshot:
        config, clock = self._shared.config, self._shared.clock
        try:
            final = await asyncio.to_thread(decode_final, data, owner, config.max_series, clock)
        except FileRefusedError as error:
            raise FileRefusedError(error.reason, f"{path}: {error.text}") from error
        if final.reading.uuid.hex() != path.stem:
            raise FileRefusedError(
                "malformed", f"{path}: holds process {final.reading.uuid.hex()}, but its name is of another process"
            )
        return final

    async def _source(self, path: Path, final: FinalSnapshot) -> tuple[SourceSeries, dict[str, str]]:
        """Return the source of a process and its labels. Raises FileRefusedError for a process of another host."""
        reading, store = final.reading, self._shared.delivery.store
        labels = await self._shared.placement.labels(final.address)
        labels = {**labels, "context": reading.context, "instance": reading.instance}
        name = source_name(labels)
        address = ipaddress.ip_address(final.address)
        near = address.is_loopback or any(address in network for network in self._own)
        if not near and not store.last_poll_ms(name):
            raise FileRefusedError(
                "foreign address", f"{path}: {address} is not an address of this host: see --own-network"
            )
        return store.get(name), labels

    async def _deliver(self, path: Path, final: FinalSnapshot, series: SourceSeries, labels: Mapping[str, str]) -> bool:
        delivery, reading = self._shared.delivery, final.reading
        new = reading.uuid not in series.finals.taken
        if new:
            placed = await delivery.place(series, reading, labels)
            await delivery.take(series, lambda: prepare(series, final, placed, self._shared.clock.now_ms()))
            self.taken += 1
            log.info("%s taken: %s", path, series.name)
        owners = self._shared.owners  # a followed process is ended by its follower
        await delivery.end(series, lambda: series.uuid == reading.uuid and owners.get(series.name) is None)
        if await delivery.store.write_now(series):
            await self._files_thread(partial(remove_final, path))
        return new


def _refuse_owner(path: Path, series: SourceSeries, final: FinalSnapshot) -> None:
    """Raise FileRefusedError unless the uid is that of the process when polled, or of its predecessor if it never
    was."""
    reading = final.reading
    past = series.finals.past(reading.uuid)
    expected = past.uid if past is not None else series.uid
    if expected is not None and reading.uid != expected:
        text = f"{path}: written for user {reading.uid}, but {series.name} belongs to user {expected}"
        raise FileRefusedError("foreign owner", text)
