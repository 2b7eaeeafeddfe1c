"""Journal of a pair in a real topic: order, fencing, large rows, and the rows that a new engine reads."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from alerts.pair import state_log
from alerts.pair.state_log import StateLog, StateLogError
from alerts.state.alert_database import open_database
from alerts.state.row_changes import NotLeadingError, RowChange
from artimon.model.clock import SYSTEM_CLOCK
from artimon.model.topic_spec import platform_topics
from artimon.stack.topics import make_topics

pytestmark = pytest.mark.stack
Open = Callable[[str], StateLog]


@pytest.fixture
def prefix(kafka: str) -> str:
    made = f"t{uuid.uuid4().hex[:12]}"
    make_topics(kafka, [one for one in platform_topics(made) if one.name.endswith(".alerts")])
    return made


@pytest.fixture
def log_of(kafka: str, prefix: str) -> Iterator[Open]:
    """Journals of engines by name."""
    opened: list[StateLog] = []

    def made(id: str) -> StateLog:
        opened.append(StateLog(kafka, f"{prefix}.alerts", "p", id, SYSTEM_CLOCK))
        return opened[-1]

    yield made
    for one in opened:
        one.close()


def meta(value: str, key: str = "x") -> RowChange:
    return RowChange("meta", (key,), {"key": key, "value": value})


def test_who_opens_a_writer_fences_the_one_before(log_of: Open) -> None:
    a, b, reader = log_of("a"), log_of("b"), log_of("c")
    a.open_writer()
    assert a.read_to_end() == []
    with pytest.raises(NotLeadingError, match="does not lead"):
        a.append([meta("too early")])
    a.begin_epoch([])
    a.append([meta("1"), RowChange("silences", ("s",), None)])
    a.confirm()
    position = a.position
    b.open_writer()
    assert [len(one.changes) for one in b.read_to_end()] == [0, 2]
    with pytest.raises(NotLeadingError, match="ProducerFenced"):
        a.append([meta("stale")])
    with pytest.raises(NotLeadingError, match="ProducerFenced"):
        a.append([meta("stale again")])
    assert a.position == position
    b.begin_epoch([])
    b.append([meta("2")])
    read = reader.read_to_end()
    assert [(one.engine, one.epoch, [change.row for change in one.changes]) for one in read] == [
        ("a", 1, []),
        ("a", 1, [{"key": "x", "value": "1"}, None]),
        ("b", 2, []),
        ("b", 2, [{"key": "x", "value": "2"}]),
    ]
    assert reader.stale == 0
    a.close_writer()
    a.continue_reading()
    assert [one.engine for one in a.read_to_end()] == ["b", "b"]


def test_a_message_of_a_smaller_epoch_is_ignored(log_of: Open) -> None:
    """The broker does not let it through; the readers would not either."""
    a, b, reader = log_of("a"), log_of("b"), log_of("c")
    a.open_writer()
    a.epoch = 6
    a.begin_epoch([meta("1")])
    b.open_writer()
    b.begin_epoch([meta("2")])
    assert [one.epoch for one in reader.read_to_end()] == [7]
    assert reader.stale == 2


def test_a_large_row_and_many_rows_are_one_transaction(log_of: Open, tmp_path: Path) -> None:
    a, reader = log_of("a"), log_of("b")
    a.open_writer()
    a.read_to_end()
    rules = RowChange("files", ("r.yaml",), {"name": "r.yaml", "text": "x - y\n" * 700_000})
    a.begin_epoch([rules, *(meta("1", f"k{n}") for n in range(3_000))])
    (entry,) = reader.read_to_end()
    assert (len(entry.changes), entry.changes[0]) == (3_001, rules)
    database, _, _ = open_database(tmp_path, 0)
    database.restore(entry.changes, whole=True)
    assert len(database.rows()) == 3_001
    database.close()


def test_a_topic_that_does_not_exist_is_an_error_that_names_the_remedy(kafka: str) -> None:
    with pytest.raises(StateLogError, match="does not exist: artimon topics create"):
        StateLog(kafka, "nosuch.alerts", "p", "a", SYSTEM_CLOCK).read(0.1)


def test_a_broker_that_does_not_answer_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_log, "CALL_S", 1.0)
    with pytest.raises(StateLogError, match=r"127\.0\.0\.1:1, connecting"):
        StateLog("127.0.0.1:1", "t.alerts", "p", "a", SYSTEM_CLOCK).open_writer()
