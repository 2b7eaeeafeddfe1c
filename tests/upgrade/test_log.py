"""An agent that was upgraded goes on with the log and the state of its sources; one that is too old touches neither."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

import pytest
from crc32c import crc32c

from artimon.model.batch_codec import decode_samples, decode_series, verify
from pipeline.wal.log import WriteAheadLog
from pipeline.wal.segment_format import RECORD_BYTES, NewerFormatError, RecordType, encode_record, header_bytes
from sources.state import state_files as state
from tests.upgrade.golden import EPOCH, V1, batches, log_in_place
from tests.upgrade.make_golden import AGENT, LANES, SOURCES, START_MS, TEXTS, block

SEGMENT = "0000000000000001.wal"


def opened(folder: Path) -> WriteAheadLog:
    return WriteAheadLog(folder, AGENT, LANES, lambda _placed: None)


def check_content(log: WriteAheadLog) -> None:
    found = sorted(log.recovered.batches, key=lambda one: one[0].poll_ms)
    for (header, place), (expected, _) in zip(found, batches(), strict=True):
        data = log.read(place)
        assert verify(data).id == expected.header.id == header.id
        assert header.source == expected.header.source
        assert repr(decode_samples(header, data).rows()) == repr(
            decode_samples(expected.header, expected.data).rows()
        )  # NaN equals nothing, so texts are compared
    blocks = [decode_series(header, log.read(place)) for header, place in log.recovered.series]
    assert sorted(blocks, key=lambda one: one.source) == [block(source) for source in SOURCES]


def test_a_log_goes_on_where_it_was(tmp_path: Path) -> None:
    log = opened(log_in_place(tmp_path))
    assert log.epoch == EPOCH
    assert log.new_epoch_because == ""
    assert log.next_sequences == [5, 5, 0, 0]
    check_content(log)
    log.close()


def test_a_copy_of_a_log_begins_a_new_epoch_and_its_batches_keep_theirs(tmp_path: Path) -> None:
    shutil.copytree(V1 / "log", tmp_path / "log")
    log = opened(tmp_path / "log")
    assert log.epoch != EPOCH
    check_content(log)
    log.close()


def everything(folder: Path) -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in folder.rglob("*") if p.is_file() and p.name != "lock"}


def with_version(data: bytes, version: int, honest: bool) -> bytes:
    """A segment whose header names another version; `honest`: its checksum says so too."""
    end = header_bytes(LANES)
    header = data[:4] + bytes([version]) + data[5 : end - 4]
    crc = struct.pack("<I", crc32c(header)) if honest else data[end - 4 : end]
    return header + crc + data[end:]


def test_a_log_of_a_newer_program_is_left_alone(tmp_path: Path) -> None:
    folder = log_in_place(tmp_path)
    segment = folder / SEGMENT
    segment.write_bytes(with_version(segment.read_bytes(), 2, honest=True))
    before = everything(folder)
    with pytest.raises(NewerFormatError, match=r"format version 2, this program reads version 1.*nothing was changed"):
        opened(folder)
    assert everything(folder) == before


def test_a_version_that_a_broken_disk_made_is_damage(tmp_path: Path) -> None:
    folder = log_in_place(tmp_path)
    segment = folder / SEGMENT
    segment.write_bytes(with_version(segment.read_bytes(), 9, honest=False))
    log = opened(folder)
    assert log.new_epoch_because
    check_content(log)
    log.close()


def test_a_newer_batch_in_a_log_is_never_taken_for_damage(tmp_path: Path) -> None:
    folder = log_in_place(tmp_path)
    newer = bytearray(batches()[0][0].data)
    newer[4] = 2
    with (folder / SEGMENT).open("ab") as file:
        file.write(encode_record(1, RecordType.BATCH, bytes(newer)))
    before = everything(folder)
    with pytest.raises(NewerFormatError, match=r"format version 2: this program reads version 1.*docs/upgrade\.md"):
        opened(folder)
    assert everything(folder) == before
    assert len(newer) + RECORD_BYTES < len(before[str(folder / SEGMENT)])


def test_the_state_of_a_source_is_read(tmp_path: Path) -> None:
    shutil.copytree(V1 / "source", tmp_path / "source")
    (path,) = (tmp_path / "source").glob("*" + state.SERIES)
    found = state.read_state(path, 100)
    assert found.name == SOURCES[0]
    assert found.process_ms == START_MS - 5_000
    assert [one.text for one in found.rows.descriptions] == list(TEXTS)
    assert found.rows.state["cell"].tolist() == [41, 0, 1, 0, 7]
    assert found.rows.state["type"].tolist() == [int(type_) for type_, _ in TEXTS.values()]
    assert found.live
