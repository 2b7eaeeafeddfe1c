"""Host as a source: CPU, memory, disks, volumes, network, load, uptime. Counters begin at the boot of the machine."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

from artimon.model.values import Kind
from sources.delivery.file_thread import FileThread
from sources.host import proc_files as proc
from sources.state.source_reading import ReadingBuilder, SourceVariable

_CPU_STEP_BACK_MS = 10_000


class HostMetrics:
    """Reads /proc and the mounted volumes."""

    def __init__(self, root: Path = Path("/proc"), sys: Path = Path("/sys")) -> None:
        self._proc, self._sys = root, sys
        self._ticks = os.sysconf("SC_CLK_TCK")
        self._cpu: dict[tuple[str, str], int] = {}
        self._thread = FileThread(root, "host")

    def maker(self) -> ReadingBuilder:
        """Return a maker of readings that treats one boot of the machine as one process."""
        boot_id = uuid.UUID(self._text("sys/kernel/random/boot_id").strip())
        return ReadingBuilder(boot_id.bytes, proc.boot_ms(self._text("stat")))

    async def read(self) -> Sequence[SourceVariable]:
        """Return all variables. Raises FileSystemHangsError while a volume hangs; only one thread waits for it."""
        return await self._thread(self.variables)

    def variables(self) -> list[SourceVariable]:
        """Read and return all variables. Blocks."""
        stat = self._text("stat")
        return [
            *self._drop_step_back(proc.cpus(stat, self._ticks)),
            *proc.processes(stat),
            *proc.memory(self._text("meminfo")),
            *proc.disks(self._text("diskstats"), self._whole_disks()),
            *self._volumes(),
            *proc.network(self._text("net/dev")),
            *proc.load(self._text("loadavg")),
            *proc.uptime(self._text("uptime")),
        ]

    def _drop_step_back(self, cpus: Iterator[SourceVariable]) -> Iterator[SourceVariable]:
        """Hide small steps back of iowait and idle, which the kernel allows: they must not look like counter resets."""
        for variable in cpus:
            key = (variable.labels["cpu"], variable.labels["mode"])
            value, known = int(variable.value), self._cpu.get(key, 0)
            if 0 < known - value < _CPU_STEP_BACK_MS:
                value = known
            self._cpu[key] = value
            yield SourceVariable(variable.name, variable.labels, value, variable.kind, variable.unit, variable.help)

    def _whole_disks(self) -> frozenset[str]:
        try:
            names = os.listdir(self._sys / "block")
        except OSError:
            return frozenset()
        return frozenset(name for name in names if not name.startswith(("loop", "ram", "zram", "sr")))

    def _volumes(self) -> Iterator[SourceVariable]:
        for volume, (device, fs) in proc.mounts(self._text("mounts")).items():
            try:
                stat = os.statvfs(volume)
            except OSError:
                continue
            labels = {"volume": volume, "device": device, "fs": fs}
            yield from _volume(labels, stat)

    def _text(self, name: str) -> str:
        """Return the text of a file of /proc, "" if it does not exist."""
        try:
            return (self._proc / name).read_text()
        except FileNotFoundError:
            return ""


def _volume(labels: dict[str, str], stat: os.statvfs_result) -> Iterator[SourceVariable]:
    """Yield the variables of a volume. free: f_bfree, all unused space; available: f_bavail, without root's reserve."""
    unit = stat.f_frsize
    gauges = (
        ("host.volume.size.bytes", stat.f_blocks * unit, "Size of the file system"),
        ("host.volume.free.bytes", stat.f_bfree * unit, "Space that no file uses"),
        ("host.volume.available.bytes", stat.f_bavail * unit, "Space that ordinary users may still have"),
        ("host.volume.used.bytes", (stat.f_blocks - stat.f_bfree) * unit, "Space that files use"),
    )
    for name, value, help_ in gauges:
        yield SourceVariable(name, labels, value, Kind.GAUGE, "bytes", help_)
    yield SourceVariable(
        "host.volume.files.free", labels, stat.f_ffree, Kind.GAUGE, "", "Files that could still be made"
    )
    yield SourceVariable(
        "host.volume.files.total", labels, stat.f_files, Kind.GAUGE, "", "Files that the volume can hold"
    )
