"""Rolling file sink: each event is written once in spite of failures and restarts; on local disk and on HDFS."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest

from artimon.model.batch import BatchId, Samples
from artimon.model.batch_codec import encode_samples
from pipeline.delivery.batch_numbers import LaneNumbers
from pipeline.flows import event as event_batches
from pipeline.flows.context import Context
from pipeline.flows.event import Event, EventBatch
from pipeline.flows.runtime.builtin_components import builtin_registry
from pipeline.flows.sinks.files_sink import FilesOptions, FilesSink
from pipeline.flows.spi import SinkFailed
from pipeline.rolling_files.file_store import FileStore, LocalStore, StoreError, open_store
from tests.waiting import eventually

NUMBERS = LaneNumbers("a", 7)


def sealed(*bodies: str, **headers: str) -> EventBatch:
    events = tuple(Event(headers, body.encode()) for body in bodies)
    return event_batches.with_identity_and_bytes(EventBatch(events), NUMBERS, "f", 1_000)


def sink(folder: Path, uri: str, **options: Any) -> FilesSink:
    folder.mkdir(exist_ok=True)
    made = FilesSink(
        FilesOptions(uri=uri, **{"encoding": "lines", "path": "p", **options}),
        Context("a", "f", "files", folder, builtin_registry()),
    )
    made.start()
    return made


def finished(local_store: FileStore, folder: str = "p") -> dict[str, bytes]:
    return {
        s.path: local_store.read(s.path)
        for s in local_store.list_folder(folder)
        if not s.path.rsplit("/", 1)[-1].startswith(".")
    }


def lines(local_store: FileStore, folder: str = "p") -> list[str]:
    return b"".join(finished(local_store, folder).values()).decode().split()


@pytest.fixture
def local_store(tmp_path: Path) -> LocalStore:
    (tmp_path / "out").mkdir()
    return LocalStore(tmp_path / "out")


def test_delivered_events_are_in_a_file_once_it_is_finished(tmp_path: Path, local_store: LocalStore) -> None:
    files = sink(tmp_path / "s", local_store.uri)
    files.deliver([sealed("1", "2"), sealed("3")])
    assert finished(local_store) == {}
    files.stop(5)
    (name,) = finished(local_store)
    assert re.fullmatch(r"p/events\.a\.f\.[0-9a-f]{8}\.000000\.lines", name)
    assert lines(local_store) == ["1", "2", "3"]


def test_store_errors_name_the_file_once(local_store: LocalStore) -> None:
    for path in ("a", "b"):
        local_store.create(path).close()
    with pytest.raises(StoreError) as refused:
        local_store.rename("a", "b")
    assert str(refused.value) == f"{local_store.root / 'b'} exists already"
    with pytest.raises(StoreError, match=f"creating a in {local_store.uri}: "):
        local_store.create("a")
    with pytest.raises(StoreError, match=f"reading the length of c in {local_store.uri}: "):
        local_store.length("c")


def test_repeated_event_batches_are_not_written_again(tmp_path: Path, local_store: LocalStore) -> None:
    files, event_batch = sink(tmp_path / "s", local_store.uri), sealed("1")
    files.deliver([event_batch])
    files.deliver([event_batch, sealed("2")])
    files.stop(5)
    again = sink(tmp_path / "s", local_store.uri)
    again.deliver([event_batch, sealed("3")])
    again.stop(5)
    assert lines(local_store) == ["1", "2", "3"]
    assert again.figures()["repeats"] == 1


def test_folders_by_time_and_header_stay_below_the_root(tmp_path: Path, local_store: LocalStore) -> None:
    files = sink(tmp_path / "s", local_store.uri, path="{host}/%Y-%m-%d/%H")
    files.deliver([sealed("1", host="../../x", time_ms="1065910455003"), sealed("2", host="..")])
    files.stop(5)
    assert (local_store.root / ".._.._x" / "2003-10-11" / "22").is_dir()
    assert sorted(p.name for p in local_store.root.iterdir()) == [".._.._x", "_"]


@pytest.mark.parametrize("path", ["../x", "a/%Q", "a/{b", "a/../b", "a\\b"])
def test_invalid_paths_are_refused(path: str) -> None:
    with pytest.raises(ValueError, match="folders of letters"):
        FilesOptions(uri="file:///x", path=path)


def test_files_roll_by_size_by_age_and_by_number(tmp_path: Path, local_store: LocalStore) -> None:
    files = sink(tmp_path / "s", local_store.uri, roll_bytes=10, open_files=2, path="{k}", idle_s=600)
    files.deliver([sealed("0123456789", k="big"), sealed("a", k="a"), sealed("b", k="b")])
    assert len(finished(local_store, "big")) == 1
    files.deliver([sealed("c", k="c")])
    assert len(finished(local_store, "a")) == 1
    files.stop(5)
    assert [lines(local_store, k) for k in "abc"] == [["a"], ["b"], ["c"]]
    old = sink(tmp_path / "s2", local_store.uri, roll_s=0.1, path="old")
    old.deliver([sealed("x")])
    eventually(lambda: finished(local_store, "old"), "it rolls by itself")
    old.stop(5)


def test_compressed_files_are_readable(tmp_path: Path, local_store: LocalStore) -> None:
    files = sink(tmp_path / "s", local_store.uri, compression="gzip", encoding="json")
    files.deliver([sealed("1", a="b")])
    files.deliver([sealed("2")])
    files.stop(5)
    ((name, data),) = finished(local_store).items()
    assert name.endswith(".json.gz")
    found = [json.loads(line) for line in gzip.decompress(data).splitlines()]
    assert found == [{"headers": {"a": "b"}, "body": "1"}, {"headers": {}, "body": "2"}]


def killed(files: FilesSink) -> None:
    """End the process without a stop."""
    files._stop.set()
    for file in files._open.values():
        file.rolling_file.abandon()


def test_undelivered_bytes_are_truncated_after_a_kill(tmp_path: Path, local_store: LocalStore) -> None:
    files = sink(tmp_path / "s", local_store.uri)
    files.deliver([sealed("1")])
    (open_file,) = files._open.values()
    open_file.rolling_file.write(b"half of a deliv")  # and then the process was killed
    killed(files)
    again = sink(tmp_path / "s", local_store.uri)
    again.deliver([sealed("2")])
    again.stop(5)
    assert lines(local_store) == ["1", "2"]


@pytest.mark.parametrize("step", ["write", "sync", "close", "rename", "create"])
def test_failures_of_the_store_at_any_step_lose_nothing(
    tmp_path: Path, local_store: LocalStore, step: str, monkeypatch: Any
) -> None:
    """The sink reports the error, retries, and in the end has everything once."""
    files = sink(tmp_path / "s", local_store.uri, roll_bytes=2)
    broken = {"on": False, "count": 0}

    def breaking(real: Any) -> Any:
        def call(*arguments: Any) -> Any:
            if broken["on"]:
                broken["count"] += 1
                raise StoreError("the store is away")
            return real(*arguments)

        return call

    inner = files._store
    for name in ("rename", "create"):
        if step == name:
            monkeypatch.setattr(inner, name, breaking(getattr(inner, name)))
    real_create = inner.create

    def create(path: str) -> Any:
        writing = real_create(path)
        if step in ("write", "sync", "close"):
            monkeypatch.setattr(writing, step, breaking(getattr(writing, step)))
        return writing

    monkeypatch.setattr(inner, "create", create)
    event_batches = [sealed(str(n)) for n in range(6)]
    for n, event_batch in enumerate(event_batches):
        broken["on"] = n % 2 == 0
        try:
            files.deliver([event_batch])
        except SinkFailed:
            broken["on"] = False
            files.deliver([event_batch])
        broken["on"] = False
    files.deliver(event_batches)  # the whole delivery again
    files.stop(5)
    again = sink(tmp_path / "s", local_store.uri)
    again.deliver(event_batches)
    again.stop(5)
    assert sorted(lines(local_store)) == [str(n) for n in range(6)]
    assert broken["count"] > 0


@pytest.mark.parametrize("open_files", [1, 64])
def test_a_delivery_that_fails_half_way_leaves_no_events(
    tmp_path: Path, local_store: LocalStore, open_files: int, monkeypatch: Any
) -> None:
    """The part that was written into the first folders is discarded."""
    files = sink(tmp_path / "s", local_store.uri, path="{k}", open_files=open_files)
    event_batch, real = sealed("x", k="c"), files._store.create
    both = [sealed("1", k="a"), sealed("2", k="b"), event_batch]

    def create(path: str) -> Any:
        if path.startswith("c/"):
            raise StoreError("the store is away")
        return real(path)

    monkeypatch.setattr(files._store, "create", create)
    with pytest.raises(SinkFailed, match="away"):
        files.deliver(both)
    killed(files)
    again = sink(tmp_path / "s", local_store.uri, path="{k}", open_files=open_files)
    again.deliver(both)
    again.stop(5)
    assert [lines(local_store, k) for k in "abc"] == [["1"], ["2"], ["x"]]
    assert len(again._open) == 0


@pytest.mark.parametrize("step", ["delete", "create", "write", "close", "rename"])
def test_a_kill_during_a_truncation_loses_nothing(
    tmp_path: Path, local_store: LocalStore, step: str, monkeypatch: Any
) -> None:
    files = sink(tmp_path / "s", local_store.uri)
    files.deliver([sealed("1")])
    (open_file,) = files._open.values()
    open_file.rolling_file.write(b"half")
    killed(files)
    middle = sink(tmp_path / "s", local_store.uri)
    middle._stop.set()

    def gone(*_: Any) -> None:
        raise KeyboardInterrupt

    real = middle._store.create

    def create(path: str) -> Any:
        writing = real(path)
        monkeypatch.setattr(writing, step, gone)
        return writing

    if step in ("write", "close"):
        monkeypatch.setattr(middle._store, "create", create)
    else:
        monkeypatch.setattr(middle._store, step, gone)
    with pytest.raises(KeyboardInterrupt):
        middle.deliver([sealed("2")])
    again = sink(tmp_path / "s", local_store.uri)
    again.deliver([sealed("3")])
    again.stop(5)
    assert lines(local_store) == ["1", "3"]
    assert [p.name for p in (local_store.root / "p").iterdir() if p.name.startswith(".")] == []


def test_a_file_of_the_last_run_is_finished_without_new_events(tmp_path: Path, local_store: LocalStore) -> None:
    files = sink(tmp_path / "s", local_store.uri)
    files.deliver([sealed("1")])
    killed(files)
    again = sink(tmp_path / "s", local_store.uri)
    eventually(lambda: lines(local_store) == ["1"], "it is finished")
    again.stop(5)


def test_two_sinks_of_one_folder_keep_each_others_files(tmp_path: Path, local_store: LocalStore) -> None:
    for folder in ("s1", "s2"):
        files = sink(tmp_path / folder, local_store.uri)
        files.deliver([sealed("x")])
        files.stop(5)
    assert lines(local_store) == ["x", "x"]


def test_a_time_in_non_ascii_digits_is_ignored(tmp_path: Path, local_store: LocalStore) -> None:
    files = sink(tmp_path / "s", local_store.uri, path="%Y")
    files.deliver([sealed("1", time_ms="\u00b2")])
    files.stop(5)
    assert files.figures()["events"] == 1


def test_one_delivery_may_hold_the_same_event_batch_twice(tmp_path: Path, local_store: LocalStore) -> None:
    files, event_batch = sink(tmp_path / "s", local_store.uri), sealed("1")
    files.deliver([event_batch, event_batch])
    files.stop(5)
    assert (lines(local_store), files.figures()["repeats"]) == (["1"], 1)


def test_samples_are_refused(tmp_path: Path, local_store: LocalStore) -> None:
    files = sink(tmp_path / "s", local_store.uri)
    samples = encode_samples(BatchId("a", 1, 0, 0), "s", bytes(16), 1, 1, "default", Samples.of([(1, 1, 1, 5)]))
    with pytest.raises(SinkFailed, match="takes only events") as refused:
        files.deliver([EventBatch((), samples.header.id, samples.data)])
    assert not refused.value.retry
    files.stop(5)


def test_an_unreadable_state_file_is_named(tmp_path: Path, local_store: LocalStore) -> None:
    sink(tmp_path / "s", local_store.uri).deliver([sealed("1")])
    (tmp_path / "s" / "files.files.json").write_text("{}")
    with pytest.raises(StoreError, match="move it away"):
        sink(tmp_path / "s", local_store.uri)


@pytest.mark.stack
def test_a_kill_on_hdfs_loses_nothing(tmp_path: Path, hdfs: str) -> None:
    uri = f"{hdfs}/flows-{tmp_path.name}"
    local_store = open_store(uri)
    files = sink(tmp_path / "s", uri)
    files.deliver([sealed("1")])
    (open_file,) = files._open.values()
    open_file.rolling_file.write(b"half")
    open_file.rolling_file.sync()
    killed(files)
    again = sink(tmp_path / "s", uri)

    def delivered() -> bool:
        try:
            again.deliver([event_batch])
        except SinkFailed:
            return False
        return True

    event_batch = sealed("2")
    eventually(delivered, "the old file is finished")
    again.stop(20)
    assert lines(local_store) == ["1", "2"]
