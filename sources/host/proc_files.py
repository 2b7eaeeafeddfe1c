"""Parsers of Linux's /proc. Every function takes the text of a file, so that unusual files can be tested."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from artimon.model.values import Kind
from sources.state.source_reading import SourceVariable

CPU_MODES = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
SECTOR_BYTES = 512

_CPU_HELP = "Time that the CPU spent in each mode since the machine started"
_MEMORY = {
    "MemTotal": ("host.memory.total.bytes", "Memory of the machine"),
    "MemFree": ("host.memory.free.bytes", "Memory that nothing uses"),
    "MemAvailable": ("host.memory.available.bytes", "Memory that programs can have without swapping"),
    "Buffers": ("host.memory.buffers.bytes", "Memory that holds file system buffers"),
    "Cached": ("host.memory.cached.bytes", "Memory that holds pages of files"),
    "Shmem": ("host.memory.shared.bytes", "Memory of tmpfs and shared segments"),
    "Dirty": ("host.memory.dirty.bytes", "Memory that waits to be written to disk"),
    "SwapTotal": ("host.swap.total.bytes", "Swap space"),
    "SwapFree": ("host.swap.free.bytes", "Swap space that is not used"),
}
_DISK = (
    ("host.disk.reads", "", 1, "Reads completed"),
    ("", "", 0, ""),
    ("host.disk.read.bytes", "bytes", SECTOR_BYTES, "Bytes read"),
    ("host.disk.read.ms", "ms", 1, "Time that reads took, added up"),
    ("host.disk.writes", "", 1, "Writes completed"),
    ("", "", 0, ""),
    ("host.disk.written.bytes", "bytes", SECTOR_BYTES, "Bytes written"),
    ("host.disk.write.ms", "ms", 1, "Time that writes took, added up"),
    ("", "", 0, ""),
    ("host.disk.busy.ms", "ms", 1, "Time during which the disk had work"),
)
_NETWORK = (
    (0, "host.network.received.bytes", "bytes"),
    (1, "host.network.received.packets", ""),
    (2, "host.network.received.errors", ""),
    (3, "host.network.received.drops", ""),
    (8, "host.network.sent.bytes", "bytes"),
    (9, "host.network.sent.packets", ""),
    (10, "host.network.sent.errors", ""),
    (11, "host.network.sent.drops", ""),
)


def cpus(stat: str, ticks_per_s: int) -> Iterator[SourceVariable]:
    """`host.cpu.ms{cpu="0",mode="user"}` from /proc/stat. The kernel includes guest time in user and nice."""
    for line in stat.splitlines():
        name, *fields = line.split()
        if not name.startswith("cpu") or name == "cpu":
            continue
        for mode, ticks in zip(CPU_MODES, fields, strict=False):
            labels = {"cpu": name[3:], "mode": mode}
            ms = int(ticks) * 1000 // ticks_per_s
            yield SourceVariable("host.cpu.ms", labels, ms, Kind.COUNTER, "ms", _CPU_HELP)


def processes(stat: str) -> Iterator[SourceVariable]:
    """Context switches, forks, runnable and blocked processes from /proc/stat."""
    names = {
        "ctxt": ("host.context.switches", Kind.COUNTER),
        "processes": ("host.processes.started", Kind.COUNTER),
        "procs_running": ("host.processes.running", Kind.GAUGE),
        "procs_blocked": ("host.processes.blocked", Kind.GAUGE),
    }
    for line in stat.splitlines():
        key, _, value = line.partition(" ")
        if key in names:
            yield SourceVariable(names[key][0], {}, int(value), names[key][1])


def boot_ms(stat: str) -> int:
    """Return the boot time of the machine in epoch milliseconds, from /proc/stat."""
    for line in stat.splitlines():
        if line.startswith("btime "):
            return int(line.split()[1]) * 1000
    raise ValueError("/proc/stat has no line btime")


def memory(meminfo: str) -> Iterator[SourceVariable]:
    """Gauges in bytes from /proc/meminfo."""
    for line in meminfo.splitlines():
        key, _, value = line.partition(":")
        if key in _MEMORY:
            name, help_ = _MEMORY[key]
            yield SourceVariable(name, {}, int(value.split()[0]) * 1024, Kind.GAUGE, "bytes", help_)


def disks(diskstats: str, whole: frozenset[str]) -> Iterator[SourceVariable]:
    """Counters per device from /proc/diskstats. `whole` lists the disks; partitions and loop devices are left out."""
    for line in diskstats.splitlines():
        fields = line.split()
        if len(fields) < 13 or fields[2] not in whole:
            continue
        for (name, unit, factor, help_), value in zip(_DISK, fields[3:], strict=False):
            if name:
                yield SourceVariable(name, {"device": fields[2]}, int(value) * factor, Kind.COUNTER, unit, help_)


def network(netdev: str) -> Iterator[SourceVariable]:
    """Counters per interface from /proc/net/dev."""
    for line in netdev.splitlines():
        interface, colon, rest = line.partition(":")
        fields = rest.split()
        if not colon or len(fields) < 12:
            continue
        for at, name, unit in _NETWORK:
            yield SourceVariable(name, {"interface": interface.strip()}, int(fields[at]), Kind.COUNTER, unit)


def load(loadavg: str) -> Iterator[SourceVariable]:
    """`host.load{window="1m"}`, 5m and 15m from /proc/loadavg."""
    for window, value in zip(("1m", "5m", "15m"), loadavg.split(), strict=False):
        yield SourceVariable(
            "host.load", {"window": window}, float(value), Kind.GAUGE, "", "Processes that run or wait"
        )


def uptime(text: str) -> Iterator[SourceVariable]:
    """`host.uptime.ms` from /proc/uptime."""
    ms = round(float(text.split()[0]) * 1000)
    yield SourceVariable("host.uptime.ms", {}, ms, Kind.GAUGE, "ms", "Time since the machine started")


def mounts(text: str) -> Mapping[str, tuple[str, str]]:
    """Mount point -> (device, file system) of real volumes in /proc/mounts: `/`, and mounts of a device under /dev.

    A device mounted several times counts once, at its shortest path."""
    found: dict[str, tuple[str, str]] = {}
    by_device: dict[str, str] = {}
    for line in text.splitlines():
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        device, volume, fs = _unescape(fields[0]), _unescape(fields[1]), fields[2]
        if volume != "/" and (not device.startswith("/dev/") or fs in ("squashfs", "iso9660")):
            continue
        shorter = by_device.get(device)
        if shorter is not None and device.startswith("/dev/"):
            if len(shorter) <= len(volume):
                continue
            found.pop(shorter, None)
        by_device[device] = volume
        found[volume] = (device, fs)
    return found


def _unescape(field: str) -> str:
    """Replace the octal escapes of /proc/mounts for space, tab, newline and backslash."""
    for code, plain in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        field = field.replace(code, plain)
    return field
