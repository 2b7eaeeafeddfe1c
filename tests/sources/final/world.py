"""Final snapshots as files, the source that reads them without ZooKeeper, and the sum of a counter's samples."""

from __future__ import annotations

import ipaddress
import os
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from artimon.model.clock import Clock, ManualClock
from artimon.model.protocols import Sink
from artimon.model.values import Kind, Value
from bookkeeper.export.final_file import SUFFIX, encode_final
from bookkeeper.rpc.poll_service import idl
from sources.base.endpoint_address import EndpointAddress
from sources.delivery.commit_group import GroupCommitSink
from sources.delivery.endpoint_status import EndpointStatuses
from sources.delivery.placement_resolver import PlacementResolver
from sources.delivery.poll_context import PollContext, PollLimits
from sources.delivery.reading_delivery import ReadingDelivery
from sources.delivery.source_config import SourceConfig
from sources.delivery.source_counts import SourceCounts
from sources.delivery.source_owners import SourceOwners
from sources.poll.final_files import FinalLimits
from sources.poll.final_folder import FinalFolder
from sources.poll.poll_codec import check_columns
from sources.state.series_memory import PORT
from sources.state.source_reading import Reading
from sources.state.state_store import SourceStateStore
from tests.sources.helpers import HOST, KeepingSink, columns

T = 1_800_000_000_000
MINUTE = 60_000
SOURCE = f"shop/{HOST}/0"
LABELS = {"host": HOST, "context": "shop", "instance": "0"}
Row = tuple[int, int, Value | None]


class Process:
    """A process of the context shop, with counters; `born`, and the times of its polls, in minutes after T."""

    def __init__(self, born: int, name: int, uid: int | None = None) -> None:
        self.birth_ms, self.uuid = T + born * MINUTE, uuid.UUID(int=name).bytes
        self.uid = os.geteuid() if uid is None else uid

    def columns(self, minute: float, values: Mapping[str, Value], /, **changes: Any) -> Any:
        kinds: dict[str, Kind] = dict.fromkeys(values, Kind.COUNTER)
        made = columns(self.uuid, values, birth_ms=self.birth_ms, kinds=kinds)
        made.endpoint.time_ms, made.endpoint.uid = T + round(minute * MINUTE), self.uid
        for name, value in changes.items():
            setattr(made.endpoint if hasattr(made.endpoint, name) else made, name, value)
        return made

    def reading(self, minute: float, values: Mapping[str, Value]) -> Reading:
        """Return the reading of a poll."""
        return check_columns(self.columns(minute, values), None, 1000).reading

    def final(self, minute: float, counts: Mapping[str, Value], address: str = "127.0.0.1", **changes: Any) -> bytes:
        """Return the bytes of its final snapshot."""
        return encode_final(idl().Final(self.columns(minute, counts, **changes), address, 0))

    @property
    def file(self) -> str:
        return self.uuid.hex() + SUFFIX


class World:
    """Memory and disk of an agent; the sink outlives restarts. No process is registered."""

    def __init__(
        self, place: Path, sink: Sink | None = None, clock: Clock | None = None, limits: FinalLimits | None = None
    ) -> None:
        self.dropin, self.data, self.limits = place / "dropin", place / "data", limits
        self.dropin.mkdir(exist_ok=True, parents=True)
        self.clock, self.sink = clock or ManualClock(T + 30 * MINUTE), sink or KeepingSink()
        self.start()

    def start(self) -> None:
        config = SourceConfig("agent1", "127.0.0.1:1", self.data, dropin=self.dropin)
        config.folder.mkdir(exist_ok=True, parents=True)
        self.figures, self.owners, clock = SourceCounts(), SourceOwners(), self.clock
        self.store = SourceStateStore(config.folder, config.max_series)
        self.delivery = ReadingDelivery(GroupCommitSink(self.sink), self.store, self.figures, clock)
        placement = PlacementResolver(config.folder / "names.json", (), clock, hostname=HOST)
        statuses = EndpointStatuses(config.folder / "vanished.json", MINUTE)
        self.shared = PollContext(
            config, clock, PollLimits(4, 64), self.delivery, placement, self.owners, statuses, self.figures
        )
        own = frozenset([ipaddress.ip_network("10.1.1.1")])
        self.finals = FinalFolder(self.dropin, self.shared, lambda: own, self.limits)
        self.store.load(self.sink.replay(self.store.last_poll_ms), clock.now_ms())

    async def restart(self, saved: bool) -> None:
        """Restart; unless `saved`, the state on disk is an older one, and the log must supply the rest."""
        if saved:
            await self.store.flush()
        self.finals.close()
        if isinstance(self.sink, KeepingSink):
            self.sink.log = tuple(self.sink.accepted)
        self.start()

    async def poll(self, process: Process, minute: float, **values: Value) -> None:
        """Poll a process that owns the source."""
        series, reading = self.store.get(SOURCE), process.reading(minute, values)
        series.meta = {"context": "shop", "ip": "127.0.0.1", PORT: 1, "labels": LABELS}
        placed = await self.delivery.place(series, reading, LABELS)
        await self.delivery.send(series, reading, placed)

    async def put(self, name: str, data: bytes, age_s: float = 0.0) -> Path:
        await self.finals._list()
        folder = self.dropin / "final"
        scratch = folder / f".{name}.tmp"
        scratch.write_bytes(data)
        self.date(scratch, age_s)
        return scratch.rename(folder / name)

    def date(self, path: Path, age_s: float = 0.0) -> None:
        """Set the time of a file by the clock of this world."""
        seconds = self.clock.now_ms() / 1000 - age_s
        os.utime(path, (seconds, seconds), follow_symlinks=False)

    def files(self) -> list[str]:
        return sorted(path.name for path in (self.dropin / "final").iterdir())

    def close(self) -> None:
        self.finals.close()
        self.shared.placement.close()


def endpoint_of(process: Process) -> EndpointAddress:
    return EndpointAddress("shop", "127.0.0.1", 1, process.uuid)


def increase_of(rows: Sequence[Row]) -> int:
    """Return the increase of a counter from 0, by (time, start time, value); no value may fall."""
    total, before, birth = 0, 0, 0
    for _, born, value in sorted(rows, key=lambda row: row[:2]):
        if not isinstance(value, int):
            continue
        assert born >= birth, rows
        before = before if born == birth else 0
        assert value >= before, rows
        total, before, birth = total + value - before, value, born
    return total


def rows_of(sink: KeepingSink, name: str, source: str = SOURCE) -> list[Row]:
    """(time, birth, value) of a series, by time."""
    found = [(t, b, v) for text, t, b, v in sink.samples(source) if text.startswith(name + "{")]
    return sorted(found, key=lambda row: row[:2])
