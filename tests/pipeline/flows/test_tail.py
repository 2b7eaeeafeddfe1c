"""Tailed files: each byte arrives once in spite of rename, truncation, restarts and crashes (scenario 39)."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from artimon.model.batch import BatchId
from pipeline.flows.context import Context
from pipeline.flows.event import EventBatch, events_of
from pipeline.flows.interceptors.headers import StaticHeaders, StaticOptions
from pipeline.flows.runtime.builtin_components import builtin_registry
from pipeline.flows.sources.line_splitter import split_lines
from pipeline.flows.sources.tail_source import TailOptions, TailSource
from pipeline.flows.spi import ChannelFull
from tests.seeds import fixed_and_drawn


class Tail:
    """Source over a folder that can be killed; its events go through a channel that drops repeats."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.logs, self._state = folder / "logs", folder / "state"
        self.logs.mkdir()
        self._state.mkdir()
        self._options = TailOptions(paths=[str(self.logs / "*.log")], **{"settle_s": 0.0, **options})
        self.arrived: dict[BatchId, EventBatch] = {}
        self.refuse = self.crash = False
        self.begin()

    def begin(self) -> None:
        self.source = TailSource(self._options, Context("a", "f", "tail", self._state, builtin_registry()))
        self.source.start()

    def kill(self) -> None:
        """End the process without a stop."""
        for file in self.source._files.values():
            os.close(file.descriptor)
        self.begin()

    def put(self, event_batches: Sequence[EventBatch]) -> None:
        if self.refuse:
            raise ChannelFull("full")
        for event_batch in event_batches:
            assert event_batch.id is not None
            held = self.arrived.setdefault(event_batch.id, event_batch)
            assert held.data == event_batch.data  # one identity, one content
        if self.crash:
            raise KeyboardInterrupt

    def drain(self) -> list[bytes]:
        while self.source.poll(self.put):
            pass
        return self.lines()

    def lines(self) -> list[bytes]:
        return [event.body for event_batch in self.arrived.values() for event in events_of(event_batch)]


@pytest.fixture
def tail(tmp_path: Path) -> Tail:
    return Tail(tmp_path)


def append(path: Path, text: str) -> None:
    with path.open("ab") as file:
        file.write(text.encode())


def test_appended_lines_become_events(tail: Tail) -> None:
    path = tail.logs / "a.log"
    append(path, "one\ntwo\nthr")
    assert tail.drain() == [b"one", b"two"]
    append(path, "ee\n\n")
    assert tail.drain() == [b"one", b"two", b"three"]
    assert events_of(next(iter(tail.arrived.values())))[0].headers == {"file": str(path)}


def test_a_renamed_file_is_read_to_its_end_and_the_new_one_from_its_beginning(tail: Tail) -> None:
    path = tail.logs / "a.log"
    append(path, "1\n2")
    tail.drain()
    path.rename(tail.logs / "a.log.1")
    append(path, "4\n")
    append(tail.logs / "a.log.1", "\n3")  # its program still has it open
    assert sorted(tail.drain()) == [b"1", b"2", b"3", b"4"]  # and the last line of the old one, without an end
    assert tail.source.figures()["files"] == 1


def test_a_file_renamed_while_the_agent_was_down_is_read_on(tail: Tail) -> None:
    path = tail.logs / "a.log"
    append(path, "1\n")
    tail.drain()
    tail.source.stop(1)
    append(path, "2\n")
    path.rename(tail.logs / "a.log.1")
    append(path, "3\n")
    tail.begin()
    assert sorted(tail.drain()) == [b"1", b"2", b"3"]


def test_a_truncated_file_is_read_from_its_beginning(tail: Tail) -> None:
    path = tail.logs / "a.log"
    append(path, "first\nsecond\n")
    tail.drain()
    path.write_bytes(b"third\n")
    assert tail.drain() == [b"first", b"second", b"third"]
    path.write_bytes(b"another file of any length that is greater than before\n")  # truncated and grown beyond
    assert tail.drain()[-1].startswith(b"another")
    assert tail.source.figures()["truncated"] == 2


def test_refused_lines_are_put_again(tail: Tail) -> None:
    append(tail.logs / "a.log", "1\n")
    tail.refuse = True
    for _ in range(3):
        with pytest.raises(ChannelFull):
            tail.drain()
    tail.refuse = False
    append(tail.logs / "a.log", "2\n")
    assert tail.drain() == [b"1", b"2"]


def test_a_deleted_file_is_closed_once_it_was_read(tail: Tail) -> None:
    path = tail.logs / "a.log"
    append(path, "1\n")
    tail.source.scan()
    append(path, "2\n")
    path.unlink()
    assert tail.drain() == [b"1", b"2"]
    assert tail.source.figures()["files"] == 0


def test_existing_lines_are_skipped_on_request(tmp_path: Path) -> None:
    tail = Tail(tmp_path, start="end")
    append(tail.logs / "a.log", "old\n")
    tail.drain()
    append(tail.logs / "a.log", "new\n")
    append(tail.logs / "b.log", "whole\n")
    assert tail.drain() == [b"new", b"whole"]


def test_a_file_rewritten_before_a_retry_gets_new_identities(tail: Tail) -> None:
    """Other bytes never get an identity that is in use."""
    path = tail.logs / "a.log"
    append(path, "1\n2\n")
    tail.crash = True
    with pytest.raises(KeyboardInterrupt):
        tail.drain()
    tail.crash = False
    path.write_bytes(b"3\n4\n5\n")
    tail.kill()
    assert tail.drain() == [b"1", b"2", b"3", b"4", b"5"]
    assert tail.source.figures()["unknown"] == 1


def test_lines_are_put_only_after_their_journal_entry(tail: Tail, monkeypatch: pytest.MonkeyPatch) -> None:
    append(tail.logs / "a.log", "1\n")
    tail.source.scan()
    journal = tail.source._open_journal()
    with monkeypatch.context() as broken:
        broken.setattr(journal, "_save", lambda: (_ for _ in ()).throw(OSError("the disk is full")))
        for _ in range(3):
            with pytest.raises(OSError, match="full"):
                tail.drain()
    assert tail.arrived == {}
    append(tail.logs / "a.log", "2\n")
    assert tail.drain() == [b"1", b"2"]


def test_lines_written_while_the_agent_was_down_are_new(tmp_path: Path) -> None:
    tail = Tail(tmp_path, start="end")
    assert tail.drain() == []
    tail.source.stop(1)
    append(tail.logs / "a.log", "new\n")
    tail.begin()
    assert tail.drain() == [b"new"]


def test_a_name_that_is_not_utf_8_is_read(tail: Tail) -> None:
    with open(os.fsencode(tail.logs) + b"/\xff.log", "wb") as file:
        file.write(b"1\n")
    assert tail.drain() == [b"1"]


def test_an_interceptor_may_extend_events_that_have_an_identity(tail: Tail) -> None:
    append(tail.logs / "a.log", "1\n")
    tail.drain()
    (event_batch,) = tail.arrived.values()
    host = StaticHeaders(StaticOptions(headers={"site": "here"}))
    (changed,) = host([event_batch])
    assert (changed.id, changed.data) == (event_batch.id, None)  # the channel makes the bytes
    assert changed.events[0].headers["site"] == "here"
    hop = EventBatch((), event_batch.id, event_batch.data)
    assert host([hop]) == [hop]
    assert host.figures()["final"] == 1


def test_an_unreadable_state_file_is_quarantined_and_reported(tail: Tail, tmp_path: Path) -> None:
    append(tail.logs / "a.log", "1\n")
    tail.drain()
    tail.source.stop(1)
    (tmp_path / "state" / "tail.json").write_text("{}")
    tail.begin()
    assert "may come again" in tail.source.figures()["problems"][0]
    assert (tmp_path / "state" / "tail.json.damaged").exists()


def test_too_many_files_are_reported(tmp_path: Path) -> None:
    tail = Tail(tmp_path, files=1)
    append(tail.logs / "a.log", "1\n")
    append(tail.logs / "b.log", "2\n")
    assert tail.drain() == [b"1"]
    assert "b.log is not followed" in tail.source.figures()["problems"][0]


@pytest.mark.parametrize("seed", fixed_and_drawn(range(6), "tail", 6))
def test_each_byte_arrives_once_after_random_faults(tmp_path: Path, seed: int) -> None:
    """Random appends, renames, kills before and after a put, refusals."""
    rng, tail = random.Random(seed), Tail(tmp_path, settle_s=0.0)
    path, number, wrote = tail.logs / "app.log", 0, []
    for _ in range(60):
        match rng.choice(["write", "write", "poll", "poll", "rename", "kill", "crash", "refuse"]):
            case "write":
                lines = [f"line {number + n} {'x' * rng.randrange(200)}" for n in range(rng.randrange(1, 40))]
                number += len(lines)
                wrote += lines
                append(path, "".join(f"{line}\n" for line in lines))
            case "rename" if path.exists():
                if tail.source._open_journal().pending is None:
                    tail.source.scan()  # a file created and deleted between two scans cannot be found
                    path.rename(tail.logs / f"app.log.{number}")
            case "kill":
                tail.kill()
            case "crash":  # between the put and its note in the journal
                tail.crash = True
                try:
                    tail.source.poll(tail.put)
                except KeyboardInterrupt:
                    tail.kill()
                tail.crash = False
            case "refuse":
                tail.refuse = True
                try:
                    tail.source.poll(tail.put)
                except ChannelFull:
                    pass
                tail.refuse = False
            case _:
                tail.source.poll(tail.put)
    tail.drain()
    assert sorted(line.decode() for line in tail.lines()) == sorted(wrote)


@settings(max_examples=200)
@given(
    st.lists(st.sampled_from([b"a", b"bb", b"\n", b"\r\n", b"ccc"]), max_size=30), st.integers(1, 5), st.integers(1, 9)
)
def test_cuts_are_repeatable(parts: list[bytes], longest: int, most: int) -> None:
    """The cut of a piece is independent of the bytes after it."""
    data = b"".join(parts)
    used, lines = split_lines(data, longest, False, most)
    assert split_lines(data[:used], longest, False, most) == (used, lines)
    assert all(0 < len(line) <= longest for line in lines)
