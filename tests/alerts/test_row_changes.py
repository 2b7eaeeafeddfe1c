"""Changes of rows: whatever one database commits, another one that applies the changes holds the same rows."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path

import pytest

from alerts.state.alert_database import FILE, AlertDatabase, open_database
from alerts.state.row_changes import TABLES, NotLeadingError, RowChange
from tests.alerts.worlds import World, rule_text


@dataclass
class MemoryJournal:
    """Keeps the entries; refuses them while `broken`."""

    entries: list[list[RowChange]] = field(default_factory=list)
    confirmed: int = 0
    broken: bool = False

    def append(self, changes: list[RowChange]) -> None:
        if self.broken:
            raise NotLeadingError("broken")
        self.entries.append(changes)

    def confirm(self) -> None:
        self.confirmed = len(self.entries)

    def invalidate(self, reason: str) -> None:
        self.broken = bool(reason)


def rows(database: AlertDatabase) -> set[str]:
    return {repr((one.table, one.key, sorted((one.row or {}).items()))) for one in database.rows()}


def test_a_second_database_that_applies_the_changes_holds_the_same_rows(world: World, tmp_path: Path) -> None:
    world.write(rule_text())
    journal = MemoryJournal()
    world.database.replicate(journal)
    other, _, _ = open_database(tmp_path / "other", 0)
    world.tick({"a": 0, "b": 1})
    (due,) = world.database.due_letters(2**60)
    world.database.begin(due.seq)
    world.database.sent(due.seq, 5)
    world.tick({"a": 1, "b": 0})
    world.tick({"a": 1, "b": 0})
    assert journal.confirmed == len(journal.entries) >= 5
    for entry in journal.entries:
        other.restore(entry)
    assert rows(other) == rows(world.database)
    state = other.load()
    assert (state.time_ms, len(state.dispatched)) == (world.time, len(world.engine.dispatcher.alerts))
    other.restore([], whole=True)
    assert rows(other) == set()
    other.close()


def test_replicated_tables_are_those_of_the_schema_with_their_primary_keys(tmp_path: Path) -> None:
    database, _, _ = open_database(tmp_path, 0)
    database.close()
    with closing(sqlite3.connect(tmp_path / FILE)) as db:
        tables = db.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
        ).fetchall()
        columns = {table: db.execute(f"PRAGMA table_info({table})").fetchall() for (table,) in tables}
    keys = {
        table: tuple(str(row[1]) for row in sorted(rows, key=itemgetter(5)) if row[5])
        for table, rows in columns.items()
    }
    assert keys == TABLES


def test_what_the_journal_refuses_is_not_in_the_file(world: World) -> None:
    world.write(rule_text())
    journal = MemoryJournal(broken=True)
    world.database.replicate(journal)
    before = rows(world.database)
    with pytest.raises(NotLeadingError):
        world.tick({"a": 0})
    assert rows(world.database) == before
    assert world.engine.dispatcher.alerts == {}
    journal.broken = False
    assert world.engine.evaluate_due()
    assert [one.kind.value for one in world.notes()] == ["firing"]


def test_rows_of_a_newer_version_are_left_out(tmp_path: Path) -> None:
    database, _, _ = open_database(tmp_path, 0)
    database.restore([
        RowChange("escalations", ("x",), {"id": "x"}),
        RowChange("meta", ("time_ms",), {"key": "time_ms", "value": "7", "unit": "ms"}),
    ])  # fmt: skip
    assert database.load().time_ms == 7
    database.close()


def test_a_letter_that_was_begun_is_never_merged_into_another_one(world: World) -> None:
    """Its receiver may have it: what is sent again must have the same identity."""
    world.write(rule_text())
    for minute in range(8):
        world.tick({"a": minute % 2})
    first = world.database.due_letters(2**60)[0]
    world.database.begin(first.seq)
    world.database.merge_floods(world.clock.now_ms(), 4, 300_000)
    left = world.database.due_letters(2**60, 100)
    assert left[0].letter == first.letter
    assert world.database.counts()["pending"] == 2, "that letter, and one in place of the others"
