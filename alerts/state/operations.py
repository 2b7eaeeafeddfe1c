"""Actions of people on alerts, and the log of them: rows of the database beside the state of the engine."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

MAX_AUDIT = 10_000
"""Rows of the audit log; the oldest are deleted."""
MAX_HISTORY = 50_000
"""Rows of the history of alerts; the oldest are deleted."""
MAX_AUTHOR = 200
MAX_COMMENT = 2_000

SCHEMA = """
CREATE TABLE silences (id TEXT PRIMARY KEY, silence TEXT NOT NULL) STRICT;
CREATE TABLE acknowledgements (fingerprint TEXT PRIMARY KEY, acknowledgement TEXT NOT NULL) STRICT;
CREATE TABLE audit (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, time_ms INTEGER NOT NULL, author TEXT NOT NULL, action TEXT NOT NULL,
    subject TEXT NOT NULL, comment TEXT NOT NULL) STRICT;
CREATE TABLE history (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, time_ms INTEGER NOT NULL, fingerprint TEXT NOT NULL, change TEXT NOT NULL,
    rule TEXT NOT NULL, labels TEXT NOT NULL, summary TEXT NOT NULL, reason TEXT NOT NULL) STRICT;
CREATE INDEX history_of ON history (fingerprint, seq);
"""


class OperationError(ValueError):
    """Action that is refused; the text says what to change. `status`: that of the answer over HTTP."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """Action of a person. `subject`: identity of the silence or alert."""

    time_ms: int
    author: str
    action: str
    subject: str
    comment: str = ""


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """Begin or end of an alert."""

    time_ms: int
    fingerprint: str
    change: str
    rule: str
    labels: Mapping[str, str]
    summary: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class OperationCommit:
    """Changes of silences and acknowledgements as values of JSON, with entries of the audit log; None: deleted."""

    silences: Mapping[str, Any] = field(default_factory=dict)
    acknowledgements: Mapping[str, Any] = field(default_factory=dict)
    audit: Iterable[AuditEntry] = ()


def checked_author(author: str) -> str:
    """Return the name of an author. Raises OperationError."""
    return _checked_text(author, "author", MAX_AUTHOR)


def checked_comment(comment: str) -> str:
    """Return the reason of an action. Raises OperationError."""
    return _checked_text(comment, "comment", MAX_COMMENT)


def _checked_text(text: str, noun: str, most: int) -> str:
    clean = "".join(one if one.isprintable() else " " for one in text).strip()
    if not clean:
        raise OperationError(f"{noun}: missing: every action has an author and a reason")
    if len(clean) > most:
        raise OperationError(f"{noun}: {len(clean):,} characters: use at most {most:,}")
    return clean


def add_audit(db: sqlite3.Connection, entries: Iterable[AuditEntry]) -> None:
    """Append to the audit log, within its bound."""
    rows = [tuple(asdict(one).values()) for one in entries]
    if rows:
        db.executemany("INSERT INTO audit (time_ms, author, action, subject, comment) VALUES (?, ?, ?, ?, ?)", rows)
        db.execute("DELETE FROM audit WHERE seq <= (SELECT max(seq) FROM audit) - ?", (MAX_AUDIT,))


def add_history(db: sqlite3.Connection, entries: Iterable[HistoryEntry]) -> None:
    """Append to the history of alerts, within its bound."""
    rows = [tuple({**asdict(one), "labels": json.dumps(dict(one.labels))}.values()) for one in entries]
    if rows:
        names = "time_ms, fingerprint, change, rule, labels, summary, reason"
        db.executemany(f"INSERT INTO history ({names}) VALUES (?, ?, ?, ?, ?, ?, ?)", rows)  # noqa: S608
        db.execute("DELETE FROM history WHERE seq <= (SELECT max(seq) FROM history) - ?", (MAX_HISTORY,))


def read_audit(db: sqlite3.Connection, limit: int) -> list[AuditEntry]:
    """Return the newest entries of the audit log, newest first."""
    found = db.execute(
        "SELECT time_ms, author, action, subject, comment FROM audit ORDER BY seq DESC LIMIT ?", (limit,)
    )
    return [AuditEntry(*row) for row in found.fetchall()]


def read_history(db: sqlite3.Connection, limit: int, fingerprint: str, until_ms: int) -> list[HistoryEntry]:
    """Return the newest begins and ends of all alerts, or of one, up to a time, newest first."""
    found = db.execute(
        "SELECT time_ms, fingerprint, change, rule, labels, summary, reason FROM history "
        "WHERE ? IN ('', fingerprint) AND time_ms <= ? ORDER BY seq DESC LIMIT ?",
        (fingerprint, until_ms, limit),
    )
    return [
        HistoryEntry(time_ms, one, change, rule, json.loads(labels), summary, reason)
        for time_ms, one, change, rule, labels, summary, reason in found.fetchall()
    ]
