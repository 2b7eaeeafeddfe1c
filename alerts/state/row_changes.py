"""Changes of rows: captured by triggers inside a transaction, so that a journal can replicate them, and applied to the
database of another engine.

A row is named by its table and primary key. Its value is the whole row, so that the last change of a row is enough.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol

from alerts.state.operations import OperationError

TABLES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "meta": ("key",),
        "rules": ("name",),
        "alerts": ("rule", "labels"),
        "files": ("name",),
        "outbox": ("seq",),
        "dispatched": ("fingerprint",),
        "groups": ("id",),
        "silences": ("id",),
        "acknowledgements": ("fingerprint",),
        "audit": ("seq",),
        "history": ("seq",),
        "recorded": ("time_ms", "place"),
    }
)
"""Replicated tables with their primary keys: all of the database."""

Key = tuple[str | int, ...]


class NotLeadingError(OperationError):
    """Change that this engine may not store, because another one leads or the journal does not answer."""

    def __init__(self, message: str) -> None:
        super().__init__(message, 503)


@dataclass(frozen=True, slots=True)
class RowChange:
    """New content of a row by column; None: the row was deleted."""

    table: str
    key: Key
    row: Mapping[str, Any] | None


class Journal(Protocol):
    """Replicated log of changes. One transaction of the database is one entry."""

    def append(self, changes: list[RowChange]) -> None:
        """Return once the changes are durable. Raises NotLeadingError if they are not, or may not be."""

    def confirm(self) -> None:
        """Note that the database holds the last entry, too."""

    def invalidate(self, reason: str) -> None:
        """Refuse further entries: the database does not hold the last one."""


def start_capture(db: sqlite3.Connection) -> None:
    """Record the keys of changed rows from now on. The record belongs to the connection and its transaction."""
    # without a unique key: the conflict clause of an upsert would replace that of the trigger
    db.execute("CREATE TEMP TABLE changed (tab TEXT NOT NULL, key TEXT NOT NULL)")
    for table, columns in TABLES.items():
        for event, rows in (("INSERT", ("new",)), ("UPDATE", ("old", "new")), ("DELETE", ("old",))):
            inserts = " ".join(
                f"INSERT INTO changed VALUES ('{table}', json_array({_columns(columns, f'{row}.')}));"  # noqa: S608
                for row in rows
            )
            db.execute(f"CREATE TEMP TRIGGER {table}_{event} AFTER {event} ON main.{table} BEGIN {inserts} END")


def take_changes(db: sqlite3.Connection) -> list[RowChange]:
    """Return the rows that changed since the last call, with their present content."""
    keys = db.execute("SELECT DISTINCT tab, key FROM changed").fetchall()
    found = []
    for table, text in keys:
        key = tuple(json.loads(text))
        where = " AND ".join(f"{column} = ?" for column in TABLES[table])
        cursor = db.execute(f"SELECT * FROM {table} WHERE {where}", key)  # noqa: S608
        row = cursor.fetchone()
        found.append(RowChange(table, key, row and _named(cursor, row)))
    db.execute("DELETE FROM changed")
    return found


def forget_changes(db: sqlite3.Connection) -> None:
    """Drop the record of changed rows."""
    db.execute("DELETE FROM changed")


def all_rows(db: sqlite3.Connection) -> list[RowChange]:
    """Return every row of the database."""
    found = []
    for table, columns in TABLES.items():
        cursor = db.execute(f"SELECT * FROM {table}")  # noqa: S608
        rows = (_named(cursor, row) for row in cursor)
        found += [RowChange(table, tuple(row[column] for column in columns), row) for row in rows]
    return found


def delete_rows(db: sqlite3.Connection) -> None:
    """Delete every row of the database."""
    for table in TABLES:
        db.execute(f"DELETE FROM {table}")  # noqa: S608


def apply_changes(db: sqlite3.Connection, changes: Iterable[RowChange]) -> set[str]:
    """Write changes in their order; return the changed tables. Unknown tables and columns, which a newer version
    writes, are left out."""
    known: dict[str, set[str]] = {}
    for change in changes:
        columns = TABLES.get(change.table)
        if columns is None:
            continue
        if change.table not in known:
            known[change.table] = {str(row[1]) for row in db.execute(f"PRAGMA table_info({change.table})")}
        if change.row is None:
            where = " AND ".join(f"{column} = ?" for column in columns)
            db.execute(f"DELETE FROM {change.table} WHERE {where}", change.key)  # noqa: S608
        else:
            row = {name: value for name, value in change.row.items() if name in known[change.table]}
            places = ", ".join("?" * len(row))
            db.execute(
                f"INSERT OR REPLACE INTO {change.table} ({_columns(row)}) VALUES ({places})",  # noqa: S608
                tuple(row.values()),
            )
    return set(known)


def _columns(names: Iterable[str], prefix: str = "") -> str:
    return ", ".join(f"{prefix}{name}" for name in names)


def _named(cursor: sqlite3.Cursor, row: tuple[Any, ...]) -> dict[str, Any]:
    return {column[0]: value for column, value in zip(cursor.description, row, strict=True)}
