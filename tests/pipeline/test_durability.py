"""Every change that must survive a loss of power is fsynced by then, with its folder entries. Without any single fsync
one of these tests fails; for pipeline/wal that is tests/pipeline/log/test_crashes.py."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from artimon.model.clock import SYSTEM_CLOCK
from pipeline.collector.hdfs.file_names import Scheme
from pipeline.collector.hdfs.stream import Stream
from pipeline.collector.hdfs.stream_state import RollConfig
from pipeline.control.control_state import ControlState, ControlStateFile
from pipeline.delivery.delivery_mode import UNLOGGED_MARKER, DeliveryMode, clear_marker, prepare_log
from pipeline.flows.runtime.sink_quarantine import SinkQuarantine
from pipeline.flows.sinks.files_sink import FilesSink
from pipeline.flows.sources.source_journal import SourceJournal
from pipeline.rolling_files.file_store import LocalStore
from pipeline.sites.site_record import save_record
from pipeline.wal.epoch import begin_epoch
from pipeline.wal.file_system import LOCAL_FILE_SYSTEM, ensure_folder, replace_file
from tests.pipeline.direct.test_stream import Sending, batch
from tests.pipeline.durable import Durable
from tests.pipeline.flows.parts import Sinks, event_batch, flow
from tests.pipeline.flows.test_files_sink import sealed, sink
from tests.pipeline.flows.test_flow import PLAIN
from tests.waiting import eventually


@pytest.fixture
def durable() -> Iterator[Durable]:
    with Durable.watched() as found:
        yield found


def test_durable_reports_changes_without_fsync(tmp_path: Path, durable: Durable) -> None:
    descriptor = LOCAL_FILE_SYSTEM.create(tmp_path / "a")
    LOCAL_FILE_SYSTEM.write(descriptor, 0, b"x")
    assert len(durable.lacking(tmp_path)) == 2
    LOCAL_FILE_SYSTEM.fsync(descriptor)
    assert durable.lacking(tmp_path) == [f"entry {tmp_path / 'a'}"]
    LOCAL_FILE_SYSTEM.fsync_folder(tmp_path)
    assert durable.lacking(tmp_path) == []
    LOCAL_FILE_SYSTEM.write(descriptor, 1, b"y")
    assert durable.lacking(tmp_path) == [f"content of {tmp_path / 'a'}"]
    LOCAL_FILE_SYSTEM.close(descriptor)
    (tmp_path / "a").unlink()
    assert durable.lacking(tmp_path) == [f"removal of {tmp_path / 'a'}"]


def test_small_files_and_folders_are_durable(tmp_path: Path, durable: Durable) -> None:
    ensure_folder(LOCAL_FILE_SYSTEM, tmp_path / "a" / "b" / "c")
    assert durable.lacking(tmp_path) == []
    for content in (b"1", b"22"):
        replace_file(LOCAL_FILE_SYSTEM, tmp_path / "a" / "b" / "c" / "file", content)
        assert durable.lacking(tmp_path) == []


def test_control_plane_state_of_an_agent_is_durable(tmp_path: Path, durable: Durable) -> None:
    file = ControlStateFile(tmp_path / "data" / "plane")
    file.save(ControlState())
    assert durable.lacking(tmp_path) == []
    file.save(ControlState(groups={"g": {"m": {"host": "h", "port": 1}}}))
    assert durable.lacking(tmp_path) == []


def test_site_assignments_are_durable(tmp_path: Path, durable: Durable) -> None:
    save_record(tmp_path, b"{}")
    assert durable.lacking(tmp_path) == []


def test_a_change_of_delivery_mode_is_durable(tmp_path: Path, durable: Durable) -> None:
    """Disk failover begins a new epoch at each start; the first start back in end-to-end begins one as well."""
    folder = tmp_path / "data" / "log"
    prepare_log(folder, DeliveryMode.DISK_FAILOVER)
    assert durable.lacking(tmp_path) == []
    begin_epoch(LOCAL_FILE_SYSTEM, folder, "a", "h", 4)
    prepare_log(folder, DeliveryMode.END_TO_END)
    assert not (folder / "epoch").exists()
    assert durable.lacking(tmp_path) == []
    clear_marker(folder, DeliveryMode.END_TO_END)
    assert not (folder / UNLOGGED_MARKER).exists()
    assert durable.lacking(tmp_path) == []


def test_files_of_a_folder_store_are_durable(tmp_path: Path, durable: Durable) -> None:
    store = LocalStore(tmp_path)
    writing = store.create("day/hour/.open")
    writing.write(b"1")
    assert durable.lacking(tmp_path) == [f"content of {tmp_path / 'day/hour/.open'}"]
    writing.sync()
    assert durable.lacking(tmp_path) == []
    writing.write(b"2")
    writing.close()
    assert durable.lacking(tmp_path) == []
    store.rename("day/hour/.open", "other/day/hour/done")
    assert durable.lacking(tmp_path) == []


@pytest.mark.parametrize("scheme", Scheme)
def test_an_hdfs_collector_acks_only_durable_files(tmp_path: Path, durable: Durable, scheme: Scheme) -> None:
    stream = Stream(
        LocalStore(tmp_path), "s", "t.samples", SYSTEM_CLOCK, lambda: None, scheme, RollConfig(seconds=600), 0.01
    )
    stream.start()
    try:
        one = Sending(stream)
        one.put(*(batch(n) for n in range(5)))
        if scheme is Scheme.ROLL:
            stream.roll()
        eventually(lambda: one.acked == set(one.at), "all of it is acked")
        assert durable.lacking(tmp_path) == []
    finally:
        stream.stop(5)


@pytest.mark.parametrize("channel", ["file", "spill"])
def test_events_taken_by_a_flow_are_durable(tmp_path: Path, durable: Durable, channel: str) -> None:
    sinks = Sinks()
    sinks["one"].gate.clear()
    text = PLAIN.format(delivery="end-to-end", channel=f'[flow.channel]\ntype = "{channel}"\n')
    running = flow(text, tmp_path / "data" / "flows", sinks)
    running.start()
    try:
        for n in range(3):
            running.put([event_batch(n)])
            assert durable.lacking(tmp_path) == []
    finally:
        sinks["one"].gate.set()
        running.stop()


def test_events_delivered_to_a_file_sink_are_durable(tmp_path: Path, durable: Durable) -> None:
    """Also after a failure, when an earlier file is cut to its committed length."""
    (tmp_path / "out").mkdir()
    durable.fsync_path(tmp_path)
    files: FilesSink = sink(tmp_path / "state", f"file://{tmp_path / 'out'}", path="%Y/{host}", roll_bytes=10)
    durable.fsync_path(tmp_path)  # folder of the flow, created by the flow
    for n in range(4):
        files.deliver([sealed(f"line {n}", host=f"h{n % 2}")])
        assert durable.lacking(tmp_path) == []
    files.stop(5)
    assert durable.lacking(tmp_path) == []


def test_a_file_cut_to_its_committed_length_is_durable(tmp_path: Path, durable: Durable) -> None:
    store = LocalStore(tmp_path / "out")
    (tmp_path / "out").mkdir()
    files = sink(tmp_path / "state", store.uri)
    files.deliver([sealed("1")])
    (open_file,) = (tmp_path / "out" / "p").iterdir()
    with open_file.open("ab") as more:
        more.write(b"never committed")
    files._stop.set()
    again = sink(tmp_path / "state", store.uri)
    again.deliver([sealed("2")])
    durable.fsync_path(tmp_path)
    assert not open_file.exists()
    assert durable.lacking(tmp_path) == []
    again.stop(5)


def test_quarantined_files_are_durable(tmp_path: Path, durable: Durable) -> None:
    SinkQuarantine(tmp_path / "rejected").add(event_batch(1), "bad")
    assert durable.lacking(tmp_path) == []


def test_a_journal_entry_is_durable_before_the_put(tmp_path: Path, durable: Durable) -> None:
    journal = SourceJournal(tmp_path / "journal", "a", "tail/f")
    journal.begin(1, {"from": 0}, {"at": 10})
    assert durable.lacking(tmp_path) == []
    journal.commit()
    journal.close()
    assert durable.lacking(tmp_path) == []
    journal.save_state({"at": 20})
    assert durable.lacking(tmp_path) == []
