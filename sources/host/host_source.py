"""The host as a source: CPU, memory, disks, volumes, network, load, uptime; counters begin when the machine started."""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

from artimon.model.values import Kind
from sources.host import proc
from sources.state.reading import ReadingMaker, Variable

READ_DEADLINE_S = 10.0
_CPU_STEP_BACK_MS = 10_000


class Host:
    """Reads /proc and the mounted volumes."""

    def __init__(self, root: Path = Path("/proc"), sys: Path = Path("/sys")) -> None:
        self._proc, self._sys = root, sys
        self._ticks = os.sysconf("SC_CLK_TCK")
        self._cpu: dict[tuple[str, str], int] = {}
        self._reading: asyncio.Task[list[Variable]] | None = None

    def maker(self) -> ReadingMaker:
        """For readings whose process is the machine, from its start to its next one."""
        boot_id = uuid.UUID(self._text("sys/kernel/random/boot_id").strip())
        return ReadingMaker(boot_id.bytes, proc.boot_ms(self._text("stat")))

    async def read(self) -> Sequence[Variable]:
        """All variables. While a volume hangs: TimeoutError, and one thread that waits for it, never more."""
        reading = self._reading
        if reading is None or reading.done():
            reading = self._reading = asyncio.create_task(asyncio.to_thread(self.variables))
        return await asyncio.wait_for(asyncio.shield(reading), READ_DEADLINE_S)

    def variables(self) -> list[Variable]:
        """All variables, read now."""
        stat = self._text("stat")
        return [
            *self._steady(proc.cpus(stat, self._ticks)),
            *proc.processes(stat),
            *proc.memory(self._text("meminfo")),
            *proc.disks(self._text("diskstats"), self._whole_disks()),
            *self._volumes(),
            *proc.network(self._text("net/dev")),
            *proc.load(self._text("loadavg")),
            *proc.uptime(self._text("uptime")),
        ]

    def _steady(self, cpus: Iterator[Variable]) -> Iterator[Variable]:
        """The kernel lets iowait and idle step back a little at times: that must not look like a new beginning."""
        for variable in cpus:
            key = (variable.labels["cpu"], variable.labels["mode"])
            value, known = int(variable.value), self._cpu.get(key, 0)
            if 0 < known - value < _CPU_STEP_BACK_MS:
                value = known
            self._cpu[key] = value
            yield Variable(variable.name, variable.labels, value, variable.kind, variable.unit, variable.help)

    def _whole_disks(self) -> frozenset[str]:
        try:
            names = os.listdir(self._sys / "block")
        except OSError:
            return frozenset()
        return frozenset(name for name in names if not name.startswith(("loop", "ram", "zram", "sr")))

    def _volumes(self) -> Iterator[Variable]:
        for volume, (device, fs) in proc.mounts(self._text("mounts")).items():
            try:
                stat = os.statvfs(volume)
            except OSError:
                continue
            labels = {"volume": volume, "device": device, "fs": fs}
            yield from _volume(labels, stat)

    def _text(self, name: str) -> str:
        """A file of /proc; one that does not exist here has nothing to say."""
        try:
            return (self._proc / name).read_text()
        except FileNotFoundError:
            return ""


def _volume(labels: dict[str, str], stat: os.statvfs_result) -> Iterator[Variable]:
    """free: f_bfree, all that no file uses; available: f_bavail, what of it ordinary users may have."""
    unit = stat.f_frsize
    gauges = (
        ("host.volume.size.bytes", stat.f_blocks * unit, "Size of the file system"),
        ("host.volume.free.bytes", stat.f_bfree * unit, "Space that no file uses"),
        ("host.volume.available.bytes", stat.f_bavail * unit, "Space that ordinary users may still have"),
        ("host.volume.used.bytes", (stat.f_blocks - stat.f_bfree) * unit, "Space that files use"),
    )
    for name, value, help_ in gauges:
        yield Variable(name, labels, value, Kind.GAUGE, "bytes", help_)
    yield Variable("host.volume.files.free", labels, stat.f_ffree, Kind.GAUGE, "", "Files that could still be made")
    yield Variable("host.volume.files.total", labels, stat.f_files, Kind.GAUGE, "", "Files that the volume can hold")
