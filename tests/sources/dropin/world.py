"""A folder of drop-in files, a manual clock, a source that can be restarted; polls are a minute apart."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from artimon.model.clock import ManualClock
from artimon.model.values import Value
from sources.delivery.reading_delivery import ReadingDelivery
from sources.delivery.source_counts import SourceCounts
from sources.delivery.source_owners import SourceOwners
from sources.dropin.folder import DropinFolder
from sources.dropin.folder_files import FileLimits
from sources.state.state_store import SourceStateStore
from tests.sources.helpers import HOST, KeepingSink

T = 1_800_000_000_000
MINUTE = 60_000
LABELS = {"host": HOST, "dc": "jb"}
Row = tuple[str, int, int, Value | None]


class World:
    """`sink` outlives restarts of the source."""

    def __init__(self, place: Path, limits: FileLimits | None = None, max_series: int = 100_000) -> None:
        self.folder, self._state = place / "dropin", place / "state"
        self._limits, self._max_series = limits, max_series
        self.folder.mkdir(parents=True)
        self._state.mkdir()
        self.clock, self.sink = ManualClock(T), KeepingSink()
        self.start()

    def start(self) -> None:
        """Begin with empty memory; only `restart` reads the state on disk."""
        self.figures, self.owners = SourceCounts(), SourceOwners()
        self.store = SourceStateStore(self._state, self._max_series)
        delivery = ReadingDelivery(self.sink, self.store, self.figures, self.clock)
        self.dropin = DropinFolder(self.folder, delivery, self.owners, LABELS, self._limits)

    async def restart(self, saved: bool = True) -> None:
        """Stop and start; unless `saved`, the state on disk is an older one and the log must supply the rest."""
        if saved:
            await self.store.flush()
            self.sink.log = ()
        else:
            self.sink.log = tuple(self.sink.accepted)
        self.dropin.close()
        self.start()
        self.store.load(self.sink.replay(), self.clock.now_ms())
        await self.dropin.resume()

    def put(self, name: str, *lines: str, end: str = "\n") -> Path:
        """Write a file as producers do, by rename."""
        return self.put_bytes(name, ("\n".join(lines) + end).encode())

    def put_bytes(self, name: str, data: bytes) -> Path:
        path, scratch = self.folder / name, self.folder / f".{name}.new"
        scratch.write_bytes(data)
        seconds = self.clock.now_ms() / 1000
        os.utime(scratch, (seconds, seconds))
        scratch.replace(path)
        return path

    async def poll(self, minutes: int = 1) -> int:
        """Advance the clock and poll each minute; return the number of accepted samples."""
        samples = 0
        for _ in range(minutes):
            self.clock.advance(MINUTE)
            samples += await self.dropin.poll()
        return samples

    @property
    def now(self) -> int:
        return self.clock.now_ms()

    @property
    def problems(self) -> list[str]:
        found: list[str] = self.figures.to_json()["problems"]
        return found

    @property
    def refused(self) -> dict[str, int]:
        found: dict[str, int] = self.figures.to_json()["refused"]
        return found

    def rows(self, name: str | None = None) -> list[Row]:
        """Return (name of the variable, time, start time, value) in the order of acceptance."""
        source = None if name is None else f"file/{HOST}/{name}"
        samples = self.sink.samples(source)
        return [(text.partition("{")[0], time_ms, birth_ms, value) for text, time_ms, birth_ms, value in samples]

    def values(self, variable: str) -> list[Value | None]:
        return [value for name, _, _, value in self.rows() if name == variable]

    def told(self) -> Mapping[tuple[str, str], Value]:
        """Return the agent's own variables: (variable, file) -> value."""
        return {(v.name, v.labels["file"]): v.value for v in self.dropin.variables(self.now)}


def lines(time_ms: int, **values: object) -> Iterator[str]:
    """Return a line for each variable without labels."""
    return (f"{time_ms} {name} {value}" for name, value in values.items())
