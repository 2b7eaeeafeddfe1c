"""The host's variables against /proc and statvfs, read beside them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from artimon.model.values import Kind
from sources.host import proc_files as proc
from sources.host.host_source import HostMetrics
from sources.state.source_reading import SourceVariable

STAT = """cpu  10 20 30 40 50 60 70 80 0 0
cpu0 1 2 3 4 5 6 7 8 0 0
cpu1 9 18 27 36 45 54 63 72 0 0
ctxt 123
btime 1700000000
processes 42
procs_running 2
procs_blocked 0
"""


def test_cpu_times_are_in_ms_by_cpu_and_mode() -> None:
    found = {(v.labels["cpu"], v.labels["mode"]): v.value for v in proc.cpus(STAT, 100)}
    assert len(found) == 16
    assert found["0", "user"] == 10
    assert found["1", "steal"] == 720


def test_the_cpus_of_this_machine_stand_where_proc_stat_has_them() -> None:
    """Read before and after: every counter lies between."""
    ticks = os.sysconf("SC_CLK_TCK")
    before = dict(_cpu_ms(ticks))
    read = {(v.labels["cpu"], v.labels["mode"]): v.value for v in HostMetrics().variables() if v.name == "host.cpu.ms"}
    after = dict(_cpu_ms(ticks))
    assert read.keys() == before.keys()
    for key, value in read.items():
        # iowait and idle may step back by a little: man 5 proc.
        assert before[key] - 100 <= int(value) <= after[key] + 100, key


def _cpu_ms(ticks: int) -> list[tuple[tuple[str, str], int]]:
    lines = [line.split() for line in Path("/proc/stat").read_text().splitlines()]
    return [
        ((line[0][3:], mode), int(line[1 + at]) * 1000 // ticks)
        for line in lines
        if line[0].startswith("cpu") and line[0] != "cpu"
        for at, mode in enumerate(("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal"))
    ]


def test_volumes_are_as_statvfs_says() -> None:
    read: dict[str, dict[str, int]] = {}
    for v in HostMetrics().variables():
        if v.name.startswith("host.volume.") and v.name.endswith(".bytes"):
            read.setdefault(v.labels["volume"], {})[v.name.split(".")[2]] = int(v.value)
    assert "/" in read
    for volume, found in read.items():
        stat = os.statvfs(volume)
        assert found["size"] == stat.f_blocks * stat.f_frsize
        for name, blocks in (("free", stat.f_bfree), ("available", stat.f_bavail)):
            assert abs(found[name] - blocks * stat.f_frsize) < 1 << 30, "others write at the same time"
        assert found["used"] + found["free"] == found["size"]


def test_memory_is_as_meminfo_says() -> None:
    read = {v.name: v.value for v in HostMetrics().variables()}
    kib = {line.split(":")[0]: int(line.split()[1]) for line in Path("/proc/meminfo").read_text().splitlines()}
    assert read["host.memory.total.bytes"] == kib["MemTotal"] * 1024
    assert abs(int(read["host.memory.available.bytes"]) - kib["MemAvailable"] * 1024) < 4 << 30


def test_no_variable_is_told_twice() -> None:
    names = [(v.name, tuple(sorted(v.labels.items()))) for v in HostMetrics().variables()]
    assert len(names) == len(set(names))
    assert {"host.load", "host.uptime.ms", "host.network.received.bytes"} <= {name for name, _ in names}


def test_disks_are_whole_devices_in_bytes() -> None:
    line = "   8       0 sda 100 1 2000 30 400 5 6000 70 0 80 90 0 0 0 0"
    part = line.replace("sda", "sda1")
    found = {v.name: v.value for v in proc.disks(f"{line}\n{part}\nshort\n", frozenset({"sda"}))}
    assert found == {
        "host.disk.reads": 100,
        "host.disk.read.bytes": 2000 * 512,
        "host.disk.read.ms": 30,
        "host.disk.writes": 400,
        "host.disk.written.bytes": 6000 * 512,
        "host.disk.write.ms": 70,
        "host.disk.busy.ms": 80,
    }


def test_network_counters() -> None:
    text = "Inter-|\n face |\n  eth0: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\nlo:0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n"
    found = {(v.labels["interface"], v.name): v.value for v in proc.network(text)}
    assert found["eth0", "host.network.received.bytes"] == 1
    assert found["eth0", "host.network.sent.bytes"] == 9
    assert found["eth0", "host.network.sent.drops"] == 12
    assert len(found) == 16


@pytest.mark.parametrize(
    ("text", "volumes"),
    [
        pytest.param("/dev/sda1 / ext4 rw 0 0\nproc /proc proc rw 0 0\n", {"/"}, id="no pseudo file systems"),
        pytest.param("overlay / overlay rw 0 0\n", {"/"}, id="the root of a container"),
        pytest.param("/dev/a / ext4 rw 0 0\n/dev/a /etc/hosts ext4 rw 0 0\n", {"/"}, id="bind mounts count once"),
        pytest.param("/dev/b /long/path xfs rw 0 0\n/dev/b /b xfs rw 0 0\n", {"/b"}, id="shortest path"),
        pytest.param("/dev/b /my\\040disk xfs rw 0 0\n", {"/my disk"}, id="escaped blank"),
        pytest.param("nas:/x /mnt nfs rw 0 0\n/dev/loop0 /snap squashfs ro 0 0\n", set(), id="not remote"),
    ],
)
def test_real_volumes(text: str, volumes: set[str]) -> None:
    assert set(proc.mounts(text)) == volumes


def test_a_cpu_counter_that_steps_back_a_little_stays_and_one_that_begins_anew_does_not() -> None:
    host = HostMetrics()

    def seen(ms: int) -> object:
        variable = SourceVariable("host.cpu.ms", {"cpu": "0", "mode": "iowait"}, ms, Kind.COUNTER)
        return next(iter(host._drop_step_back(iter([variable])))).value

    assert [seen(ms) for ms in (50_000, 49_990, 50_010, 20)] == [50_000, 50_000, 50_010, 20]


def test_boot_time() -> None:
    assert proc.boot_ms(STAT) == 1_700_000_000_000
    with pytest.raises(ValueError, match="btime"):
        proc.boot_ms("cpu 1 2 3\n")
