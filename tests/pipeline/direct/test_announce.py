"""Announcements that share a file, and the node of a stream: only durable batches are published."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from kazoo.handlers.threading import KazooTimeoutError

from artimon.model.ack_state import AckState
from artimon.model.clock import SYSTEM_CLOCK
from pipeline.collector.hdfs.ack_publisher import AckPublisher
from pipeline.collector.hdfs.announcement_writer import AnnouncementWriter
from pipeline.rolling_files.file_store import FileWriter, LocalStore
from tests.waiting import eventually


class Defect(LocalStore):
    """Raises an exception that no store should raise."""

    def create(self, path: str) -> FileWriter:
        raise ZeroDivisionError(path)


def test_a_defect_while_a_shared_file_is_written_acks_no_caller(tmp_path: Path) -> None:
    announcements = AnnouncementWriter(Defect(tmp_path), "stream", SYSTEM_CLOCK)
    answers: list[Any] = []

    def put() -> None:
        try:
            answers.append(announcements.write([b"one"], 120.0)[0])
        except ZeroDivisionError:
            answers.append("raised")

    threads = [threading.Thread(target=put) for _ in range(2)]
    with announcements._writing:  # both arrive while another file is being written
        for thread in threads:
            thread.start()
        eventually(lambda: len(announcements._gathering.messages) == 2, "both share a file")
    for thread in threads:
        thread.join(60.0)
    assert sorted(answers) == ["raised", "store: the announcements were not written in time"]


class Silent:
    """ZooKeeper that accepts calls and never answers in time."""

    connected = True

    def get_async(self, _path: str) -> Silent:
        return self

    def get(self, timeout: float) -> Any:
        raise KazooTimeoutError(f"{timeout:g} s")


def test_a_node_without_an_answer_is_reported_as_unpublished() -> None:
    client: Any = Silent()
    publisher = AckPublisher(
        client, lambda: AckState("c", "t", "s", 0), "s", lambda: pytest.fail("taken"), SYSTEM_CLOCK
    )
    publisher.refresh()
    assert not publisher.published.is_set()
    assert publisher.problem == "acks are not published: KazooTimeoutError 5 s"
