"""State of the engine: alerts, the outbox of letters about them, and the rule files in force, in one SQLite file.

One transaction stores a whole evaluation: the changes of alerts *and* the letters about them. So no crash can separate
a change from its letter, and sent letters are marked in the same file. Alerts, letters and rule files carry checksums;
a damaged file is quarantined as a whole, and the engine starts with empty state.
Locks: `_lock` guards the connection, shared by the threads of evaluation and senders. No network under it.
"""

from __future__ import annotations

import json
import logging
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import xxhash

from alerts.state.alert import Alert, AlertPhase, RuleMemory
from alerts.state.notification import MAIL, AlertLetter, Notification
from alerts.state.rule import AlertsError, Labels

log = logging.getLogger(__name__)

SCHEMA_VERSION = 1
FILE = "alerts.db"
MAX_PENDING = 10_000
"""Maximum number of waiting letters; beyond it the oldest are dropped."""
MAX_FINISHED_LETTERS = 2_000
"""Rows of the outbox after which a finished letter is deleted."""

_SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
CREATE TABLE rules (name TEXT PRIMARY KEY, digest TEXT NOT NULL) STRICT;
CREATE TABLE alerts (rule TEXT NOT NULL, labels TEXT NOT NULL, alert TEXT NOT NULL, PRIMARY KEY (rule, labels)) STRICT;
CREATE TABLE files (name TEXT PRIMARY KEY, text TEXT NOT NULL) STRICT;
CREATE TABLE outbox (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT NOT NULL UNIQUE, thread TEXT NOT NULL, letter TEXT NOT NULL,
    state TEXT NOT NULL DEFAULT 'pending', made_ms INTEGER NOT NULL, next_ms INTEGER NOT NULL DEFAULT 0,
    attempts INTEGER NOT NULL DEFAULT 0, problem TEXT NOT NULL DEFAULT '') STRICT;
CREATE INDEX waiting ON outbox (state, thread, seq);
"""
_TARGET = "substr(thread, instr(thread, ':') + 1)"
_KIND = f"CASE instr({_TARGET}, ':') WHEN 0 THEN '{MAIL}' ELSE substr({_TARGET}, 1, instr({_TARGET}, ':') - 1) END"
"""Kind of receiver in the column `thread`, see Letter.thread and notification.split_target."""
_DUE = f"""
SELECT seq, letter, made_ms, attempts FROM outbox AS mine
WHERE state = 'pending' AND next_ms <= ? AND (? IS NULL OR {_KIND} = ?) AND NOT EXISTS (
    SELECT 1 FROM outbox AS other WHERE other.state = 'pending' AND other.thread = mine.thread AND other.seq < mine.seq)
ORDER BY seq LIMIT ?
"""  # noqa: S608


class DatabaseDamagedError(Exception):
    """Damaged content of the database file."""


@dataclass(frozen=True, slots=True)
class DueLetter:
    """Letter that is due."""

    seq: int
    letter: AlertLetter
    made_ms: int
    attempts: int


@dataclass(frozen=True, slots=True)
class EvaluationCommit:
    """Results of one evaluation. Alerts that are None are deleted; `files` None: the stored files stay."""

    time_ms: int
    missed: int = 0
    digests: Mapping[str, str] = field(default_factory=dict)
    alerts: Iterable[tuple[str, Labels, Alert | None, tuple[AlertLetter, ...]]] = ()
    """Rule, labels, alert, and the letters sent when it fired."""
    letters: Iterable[AlertLetter] = ()
    files: Mapping[str, str] | None = None


@dataclass(slots=True)
class EngineState:
    """State after the last evaluation."""

    time_ms: int = 0
    missed: int = 0
    known: dict[str, RuleMemory] = field(default_factory=dict)
    firing_letters: dict[tuple[str, Labels], tuple[AlertLetter, ...]] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)


def _sealed(text: str) -> str:
    return f"{xxhash.xxh3_64_hexdigest(text.encode())} {text}"


def _opened(sealed: str) -> str:
    check, _, text = sealed.partition(" ")
    if xxhash.xxh3_64_hexdigest(text.encode()) != check:
        raise DatabaseDamagedError("checksum mismatch in a row")
    return text


class AlertDatabase:
    """Database of the engine, opened by `open_database`. `hook`, called with the name of each step, lets tests end the
    engine there."""

    def __init__(self, connection: sqlite3.Connection, hook: Callable[[str], None]) -> None:
        self._connection, self.hook = connection, hook
        self._lock = threading.Lock()
        self.dropped = 0
        """Letters dropped since the start because too many waited."""

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._connection.close()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")

    # ---- evaluations

    def load(self) -> EngineState:
        """Read the stored state. Raises Damaged if a row cannot be decoded."""
        with self._lock:
            try:
                return _read(self._connection)
            except sqlite3.OperationalError:  # a failure of the disk, not damaged content
                raise
            except (sqlite3.DatabaseError, ValueError, KeyError, TypeError) as error:
                raise DatabaseDamagedError(f"{type(error).__name__}: {error}") from error

    def commit(self, commit: EvaluationCommit) -> None:
        """Store one evaluation, atomically."""
        with self._transaction() as db:
            db.executemany(
                "INSERT INTO meta VALUES (?, ?) ON CONFLICT DO UPDATE SET value = excluded.value",
                [("time_ms", str(commit.time_ms)), ("missed", str(commit.missed))],
            )
            db.executemany(
                "INSERT INTO rules VALUES (?, ?) ON CONFLICT DO UPDATE SET digest = excluded.digest",
                commit.digests.items(),
            )
            self._write_alerts(db, commit)
            self._add_letters(db, commit)
            if commit.files is not None:
                db.execute("DELETE FROM files")
                db.executemany("INSERT INTO files VALUES (?, ?)", [(n, _sealed(t)) for n, t in commit.files.items()])
            self.hook("committing")

    def _write_alerts(self, db: sqlite3.Connection, commit: EvaluationCommit) -> None:
        gone, here = [], []
        for rule, labels, alert, told in commit.alerts:
            key = (rule, json.dumps(labels))
            if alert is None:
                gone.append(key)
            else:
                body = {"alert": asdict(alert), "told": [_letter_text(letter) for letter in told]}
                here.append((*key, _sealed(json.dumps(body))))
        db.executemany("DELETE FROM alerts WHERE rule = ? AND labels = ?", gone)
        db.executemany("INSERT INTO alerts VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET alert = excluded.alert", here)
        db.execute("DELETE FROM rules WHERE name NOT IN (SELECT rule FROM alerts)")

    def _add_letters(self, db: sqlite3.Connection, commit: EvaluationCommit) -> None:
        rows = [(one.key, one.thread, _sealed(_letter_text(one)), commit.time_ms) for one in commit.letters]
        if not rows:
            return
        db.executemany("INSERT OR IGNORE INTO outbox (key, thread, letter, made_ms) VALUES (?, ?, ?, ?)", rows)
        most = "SELECT seq FROM outbox WHERE state = 'pending' ORDER BY seq DESC LIMIT -1 OFFSET ?"
        self.dropped += db.execute(f"DELETE FROM outbox WHERE seq IN ({most})", (MAX_PENDING,)).rowcount  # noqa: S608
        db.execute(
            "DELETE FROM outbox WHERE state != 'pending' AND seq <= (SELECT max(seq) FROM outbox) - ?",
            (MAX_FINISHED_LETTERS,),
        )

    # ---- outbox

    def due_letters(self, now_ms: int, limit: int = 50, kind: str | None = None) -> list[DueLetter]:
        """Due letters, oldest first, for receivers of one kind or of all kinds. Of each alert and target only the first
        waiting letter counts."""
        with self._lock:
            rows = self._connection.execute(_DUE, (now_ms, kind, kind, limit)).fetchall()
        return [DueLetter(seq, _letter_of(_opened(letter)), made, attempts) for seq, letter, made, attempts in rows]

    def sent(self, seq: int) -> None:
        """Mark a letter as accepted by the server."""
        self._finish(seq, "sent", "")

    def failed(self, seq: int, problem: str) -> None:
        """Mark a letter as permanently refused."""
        self._finish(seq, "failed", problem)

    def _finish(self, seq: int, state: str, problem: str) -> None:
        with self._transaction() as db:
            db.execute(
                "UPDATE outbox SET state = ?, problem = ?, attempts = attempts + 1 WHERE seq = ?",
                (state, problem[:500], seq),
            )

    def postpone(self, seq: int, next_ms: int, problem: str) -> None:
        """Schedule the next attempt for `next_ms`."""
        with self._transaction() as db:
            db.execute(
                "UPDATE outbox SET next_ms = ?, problem = ?, attempts = attempts + 1 WHERE seq = ?",
                (next_ms, problem[:500], seq),
            )

    def counts(self) -> dict[str, int]:
        """Number of letters by state: pending, and among the newest KEPT rows sent and failed."""
        with self._lock:
            rows = self._connection.execute("SELECT state, count(*) FROM outbox GROUP BY state").fetchall()
        return {"pending": 0, "sent": 0, "failed": 0, **dict(rows)}

    def failures(self, limit: int = 5) -> list[str]:
        """Reasons of the newest failed letters."""
        with self._lock:
            rows = self._connection.execute(
                "SELECT problem FROM outbox WHERE state = 'failed' ORDER BY seq DESC LIMIT ?", (limit,)
            ).fetchall()
        return [str(problem) for (problem,) in rows]


def _letter_text(letter: AlertLetter) -> str:
    return json.dumps({"notification": letter.notification.to_json(), "address": letter.target})


def _letter_of(text: str) -> AlertLetter:
    data = json.loads(text)
    return AlertLetter(Notification.from_json(data["notification"]), str(data["address"]))


def _read(db: sqlite3.Connection) -> EngineState:
    meta = dict(db.execute("SELECT key, value FROM meta").fetchall())
    digests: dict[str, str] = dict(db.execute("SELECT name, digest FROM rules").fetchall())
    found: dict[str, dict[Labels, Alert]] = {}
    memory = EngineState(int(meta.get("time_ms", 0)), int(meta.get("missed", 0)))
    for rule, labels_text, sealed in db.execute("SELECT rule, labels, alert FROM alerts"):
        body: dict[str, Any] = json.loads(_opened(sealed))
        labels: Labels = tuple((str(name), str(value)) for name, value in json.loads(labels_text))
        found.setdefault(rule, {})[labels] = Alert(**{**body["alert"], "phase": AlertPhase(body["alert"]["phase"])})
        if body["told"]:
            memory.firing_letters[rule, labels] = tuple(_letter_of(text) for text in body["told"])
    memory.known = {rule: RuleMemory(digests.get(rule, ""), alerts) for rule, alerts in found.items()}
    memory.files = {name: _opened(text) for name, text in db.execute("SELECT name, text FROM files")}
    for (letter,) in db.execute("SELECT letter FROM outbox WHERE state = 'pending'"):
        _letter_of(_opened(letter))
    return memory


def _nothing(_step: str) -> None:
    """Default hook, used outside of tests."""


def open_database(
    folder: Path, now_ms: int, hook: Callable[[str], None] = _nothing
) -> tuple[AlertDatabase, EngineState, str]:
    """Open the database in `folder`; returns it, its state, and "" or a message about a quarantined damaged file."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / FILE
    try:
        return (*_open(path, hook), "")
    except sqlite3.OperationalError as error:  # full, read-only or locked: the content is intact
        raise AlertsError(f"{path} cannot be opened: {error}; free space, or give another --data") from error
    except (DatabaseDamagedError, sqlite3.DatabaseError) as error:
        aside = path.with_name(f"{FILE}.damaged-{now_ms}")
        for suffix in ("", "-journal"):
            old = path.with_name(path.name + suffix)
            if old.exists():
                old.replace(aside.with_name(aside.name + suffix))
        problem = f"{path} is damaged ({error}): moved to {aside.name}; the engine starts with empty state"
        log.error("%s", problem)
        return (*_open(path, hook), problem)


def _open(path: Path, hook: Callable[[str], None]) -> tuple[AlertDatabase, EngineState]:
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=5)
    try:
        connection.execute("PRAGMA journal_mode = DELETE")
        connection.execute("PRAGMA synchronous = EXTRA")  # also syncs the deletion of the journal: durable commits
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version == 0:
            connection.executescript(f"BEGIN; {_SCHEMA} PRAGMA user_version = {SCHEMA_VERSION}; COMMIT;")
        elif version != SCHEMA_VERSION:
            raise DatabaseDamagedError(f"version {version}: this program reads version {SCHEMA_VERSION}")
        (good,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        if good != "ok":
            raise DatabaseDamagedError(str(good))
        database = AlertDatabase(connection, hook)
        return database, database.load()
    except BaseException:
        connection.close()
        raise
