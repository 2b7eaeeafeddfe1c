"""State of the engine: alerts, their groups, the outbox of letters about them, the rule files in force, and actions of
people, in one SQLite file.

One transaction stores a whole evaluation: the changes of alerts *and* the letters about them. So no crash can separate
a change from its letter, and sent letters are marked in the same file. Alerts, letters and rule files carry checksums;
a damaged file is quarantined as a whole, and the engine starts with empty state.
Locks: `_lock` guards the connection, shared by the threads of evaluation and senders. No network under it, but for the
journal of an engine that belongs to a pair: it takes each transaction before the file does.
"""

from __future__ import annotations

import json
import logging
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import xxhash

from alerts.state.alert import Alert, RuleMemory
from alerts.state.notification import MAIL, AlertLetter, Message, Notification, merge
from alerts.state.operations import (
    SCHEMA as _SCHEMA_3,
)
from alerts.state.operations import (
    AuditEntry,
    HistoryEntry,
    OperationCommit,
    add_audit,
    add_history,
    read_audit,
    read_history,
)
from alerts.state.recorded_lines import (
    SCHEMA as _SCHEMA_5,
)
from alerts.state.recorded_lines import (
    RecordedByKey,
    RecordedLines,
    add_recorded,
    read_recorded,
)
from alerts.state.row_changes import (
    Journal,
    RowChange,
    all_rows,
    apply_changes,
    delete_rows,
    forget_changes,
    start_capture,
    take_changes,
)
from alerts.state.rule import AlertsError, Labels
from query_dsl.tree.times import MAX_MS

log = logging.getLogger(__name__)

SCHEMA_VERSION = 5
FILE = "alerts.db"
MAX_PENDING = 10_000
"""Maximum number of waiting letters; beyond it the oldest are dropped."""
MAX_FINISHED_LETTERS = 2_000
"""Rows of the outbox after which a finished letter is deleted."""

_SCHEMA_1 = """
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
_SCHEMA_2 = """
CREATE TABLE dispatched (fingerprint TEXT PRIMARY KEY, alert TEXT NOT NULL) STRICT;
CREATE TABLE groups (id TEXT PRIMARY KEY, state TEXT NOT NULL) STRICT;
ALTER TABLE outbox ADD COLUMN sent_ms INTEGER NOT NULL DEFAULT 0;
"""
_SCHEMA_4 = """
ALTER TABLE outbox ADD COLUMN started INTEGER NOT NULL DEFAULT 0;
"""
_SCHEMAS = (_SCHEMA_1, _SCHEMA_2, _SCHEMA_3, _SCHEMA_4, _SCHEMA_5)
"""Steps from one version of the schema to the next."""
_TARGET = "substr(thread, instr(thread, ':') + 1)"
_KIND = f"CASE instr({_TARGET}, ':') WHEN 0 THEN '{MAIL}' ELSE substr({_TARGET}, 1, instr({_TARGET}, ':') - 1) END"
"""Kind of receiver in the column `thread`, see Letter.thread and notification.split_target."""
_DUE = f"""
SELECT seq, letter, made_ms, attempts FROM outbox AS mine
WHERE state = 'pending' AND next_ms <= ? AND (? IS NULL OR {_KIND} = ?) AND NOT EXISTS (
    SELECT 1 FROM outbox AS other WHERE other.state = 'pending' AND other.thread = mine.thread AND other.seq < mine.seq)
ORDER BY seq LIMIT ?
"""  # noqa: S608


_WAITING = f"""
SELECT {_TARGET}, count(*) FROM outbox WHERE state = 'pending' AND attempts + started = 0 GROUP BY 1
HAVING count(*) > 1
"""  # noqa: S608
_WAITING_FOR = f"""
SELECT seq, letter, made_ms FROM outbox
WHERE state = 'pending' AND attempts + started = 0 AND {_TARGET} = ? ORDER BY seq
"""  # noqa: S608
_RECENT = f"SELECT {_TARGET}, count(*) FROM outbox WHERE state = 'sent' AND sent_ms > ? GROUP BY 1"  # noqa: S608


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
    alerts: Iterable[tuple[str, Labels, Alert | None]] = ()
    """Rule, labels, alert."""
    files: Mapping[str, str] | None = None
    recorded: RecordedLines | None = None
    """Results of the recording rules."""


@dataclass(frozen=True, slots=True)
class DispatchCommit:
    """Letters made at a time, and changes of the dispatcher's state as values for JSON; None: deleted."""

    now_ms: int
    letters: Sequence[AlertLetter] = ()
    alerts: Mapping[str, Any] = field(default_factory=dict)
    groups: Mapping[str, Any] = field(default_factory=dict)
    history: Sequence[HistoryEntry] = ()

    @property
    def is_empty(self) -> bool:
        """True if there is nothing to store."""
        return not (self.letters or self.alerts or self.groups or self.history)


@dataclass(slots=True)
class EngineState:
    """State after the last evaluation."""

    time_ms: int = 0
    missed: int = 0
    known: dict[str, RuleMemory] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    dispatched: dict[str, Any] = field(default_factory=dict)
    """Alerts of the dispatcher by fingerprint, as values of JSON."""
    groups: dict[str, Any] = field(default_factory=dict)
    told_before: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Fingerprint -> targets told of the firing by version 1, which had no groups."""
    silences: dict[str, Any] = field(default_factory=dict)
    acknowledgements: dict[str, Any] = field(default_factory=dict)
    """By fingerprint, as values of JSON."""
    recorded: RecordedByKey = field(default_factory=dict)
    """Those of the last ten minutes."""


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
        self._journal: Journal | None = None
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
                journal = self._journal
                if journal is not None and (changes := take_changes(self._connection)):
                    journal.append(changes)
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
            try:
                self._connection.execute("COMMIT")
            except BaseException as error:
                if journal is not None:  # it is ahead of the file now
                    journal.invalidate(f"the database does not take changes: {error}")
                with suppress(sqlite3.Error):
                    self._connection.execute("ROLLBACK")
                raise
            if journal is not None:
                journal.confirm()

    # ---- replication

    def replicate(self, journal: Journal) -> None:
        """Store every later change in the journal first. Called once."""
        with self._lock:
            start_capture(self._connection)
            self._journal = journal

    @contextmanager
    def settled(self) -> Iterator[None]:
        """Wait for the running transaction, and let none begin within the block."""
        with self._lock:
            yield

    def restore(self, changes: Iterable[RowChange], *, whole: bool = False) -> set[str]:
        """Write changes of another engine; return the changed tables. `whole`: they replace everything."""
        with self._lock:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                if whole:
                    delete_rows(self._connection)
                tables = apply_changes(self._connection, changes)
                if self._journal is not None:
                    forget_changes(self._connection)
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")
            return tables

    def rows(self) -> list[RowChange]:
        """Return every row, for an empty journal."""
        with self._lock:
            return all_rows(self._connection)

    # ---- evaluations

    def load(self) -> EngineState:
        """Read the stored state. Raises DatabaseDamagedError if a row cannot be decoded."""
        with self._lock:
            try:
                return _read(self._connection)
            except sqlite3.OperationalError:  # a failure of the disk, not damaged content
                raise
            except (sqlite3.DatabaseError, ValueError, KeyError, TypeError) as error:
                raise DatabaseDamagedError(f"{type(error).__name__}: {error}") from error

    def commit(self, dispatch: DispatchCommit, evaluation: EvaluationCommit | None = None) -> None:
        """Store letters and the state of the dispatcher, with an evaluation if there was one, atomically."""
        with self._transaction() as db:
            if evaluation is not None:
                self._write_evaluation(db, evaluation)
            _write_entries(db, "dispatched", "fingerprint", "alert", dispatch.alerts)
            _write_entries(db, "groups", "id", "state", dispatch.groups)
            self._add_letters(db, dispatch)
            add_history(db, dispatch.history)
            self.hook("committing")

    def _write_evaluation(self, db: sqlite3.Connection, commit: EvaluationCommit) -> None:
        db.executemany(
            "INSERT INTO meta VALUES (?, ?) ON CONFLICT DO UPDATE SET value = excluded.value",
            [("time_ms", str(commit.time_ms)), ("missed", str(commit.missed))],
        )
        db.executemany(
            "INSERT INTO rules VALUES (?, ?) ON CONFLICT DO UPDATE SET digest = excluded.digest",
            commit.digests.items(),
        )
        self._write_alerts(db, commit)
        if commit.files is not None:
            db.execute("DELETE FROM files")
            db.executemany("INSERT INTO files VALUES (?, ?)", [(n, _sealed(t)) for n, t in commit.files.items()])
        if commit.recorded is not None:
            add_recorded(db, commit.recorded)

    def _write_alerts(self, db: sqlite3.Connection, commit: EvaluationCommit) -> None:
        gone, here = [], []
        for rule, labels, alert in commit.alerts:
            key = (rule, json.dumps(labels))
            if alert is None:
                gone.append(key)
            else:
                here.append((*key, _sealed(json.dumps({"alert": asdict(alert)}))))
        db.executemany("DELETE FROM alerts WHERE rule = ? AND labels = ?", gone)
        db.executemany("INSERT INTO alerts VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET alert = excluded.alert", here)
        db.execute("DELETE FROM rules WHERE name NOT IN (SELECT rule FROM alerts)")

    def _add_letters(self, db: sqlite3.Connection, commit: DispatchCommit) -> None:
        rows = [(one.key, one.thread, _sealed(_letter_text(one)), commit.now_ms) for one in commit.letters]
        if not rows:
            return
        db.executemany("INSERT OR IGNORE INTO outbox (key, thread, letter, made_ms) VALUES (?, ?, ?, ?)", rows)
        most = "SELECT seq FROM outbox WHERE state = 'pending' ORDER BY seq DESC LIMIT -1 OFFSET ?"
        self.dropped += db.execute(f"DELETE FROM outbox WHERE seq IN ({most})", (MAX_PENDING,)).rowcount  # noqa: S608
        db.execute(
            "DELETE FROM outbox WHERE state != 'pending' AND seq <= (SELECT max(seq) FROM outbox) - ?",
            (MAX_FINISHED_LETTERS,),
        )

    # ---- actions of people

    def record(self, commit: OperationCommit) -> None:
        """Store silences and acknowledgements with their entries of the audit log, atomically."""
        with self._transaction() as db:
            _write_entries(db, "silences", "id", "silence", commit.silences)
            _write_entries(db, "acknowledgements", "fingerprint", "acknowledgement", commit.acknowledgements)
            add_audit(db, commit.audit)

    def audit(self, limit: int) -> list[AuditEntry]:
        """Return the newest entries of the audit log, newest first."""
        with self._lock:
            return read_audit(self._connection, limit)

    def history(self, limit: int, fingerprint: str = "", until_ms: int = MAX_MS) -> list[HistoryEntry]:
        """Return the newest begins and ends of all alerts, or of one, up to a time, newest first."""
        with self._lock:
            return read_history(self._connection, limit, fingerprint, until_ms)

    # ---- outbox

    def due_letters(self, now_ms: int, limit: int = 50, kind: str | None = None) -> list[DueLetter]:
        """Due letters, oldest first, for receivers of one kind or of all kinds. Of each group and target only the first
        waiting letter counts."""
        with self._lock:
            rows = self._connection.execute(_DUE, (now_ms, kind, kind, limit)).fetchall()
        return [DueLetter(seq, _letter_of(_opened(letter)), made, attempts) for seq, letter, made, attempts in rows]

    def merge_floods(self, now_ms: int, single: int, window_ms: int) -> None:
        """Merge the waiting letters of a target into one if they exceed its allowance: `single`, less the letters that
        it got within `window_ms`. Letters that were refused before are not merged."""
        with self._transaction() as db:
            waiting = db.execute(_WAITING).fetchall()
            recent = dict(db.execute(_RECENT, (now_ms - window_ms,)).fetchall()) if waiting else {}
            for target, count in waiting:
                if count > max(1, single - int(recent.get(target, 0))):
                    self._merge(db, db.execute(_WAITING_FOR, (target,)).fetchall())

    def _merge(self, db: sqlite3.Connection, rows: list[tuple[int, str, int]]) -> None:
        letters = [_letter_of(_opened(letter)) for _, letter, _ in rows]
        one = AlertLetter(merge([letter.message for letter in letters]), letters[0].target)
        db.executemany("UPDATE outbox SET state = 'merged' WHERE seq = ?", [(seq,) for seq, _, _ in rows])
        db.execute(
            "INSERT OR IGNORE INTO outbox (key, thread, letter, made_ms) VALUES (?, ?, ?, ?)",
            (one.key, one.thread, _sealed(_letter_text(one)), rows[0][2]),
        )

    def sent_since(self, target: str, time_ms: int) -> list[int]:
        """Return the times at which letters reached a target since `time_ms`, in order."""
        with self._lock:
            rows = self._connection.execute(
                f"SELECT sent_ms FROM outbox WHERE state = 'sent' AND sent_ms > ? AND {_TARGET} = ? ORDER BY sent_ms",  # noqa: S608
                (time_ms, target),
            ).fetchall()
        return [int(sent) for (sent,) in rows]

    def begin(self, seq: int) -> bool:
        """Note that a letter is about to be sent. From then on it is sent as it is, with its identity: it is not merged
        with others, even if the answer of the server is lost. In a pair this also proves that the engine leads. False:
        the letter does not wait any more, because another engine has sent it."""
        with self._transaction() as db:
            wanted = "seq = ? AND state = 'pending'"
            return db.execute(f"UPDATE outbox SET started = started + 1 WHERE {wanted}", (seq,)).rowcount == 1  # noqa: S608

    def sent(self, seq: int, now_ms: int = 0) -> None:
        """Mark a letter as accepted by the server."""
        self._finish(seq, "sent", "", now_ms)

    def failed(self, seq: int, problem: str) -> None:
        """Mark a letter as permanently refused."""
        self._finish(seq, "failed", problem)

    def _finish(self, seq: int, state: str, problem: str, sent_ms: int = 0) -> None:
        with self._transaction() as db:
            db.execute(
                "UPDATE outbox SET state = ?, problem = ?, attempts = attempts + 1, sent_ms = ? WHERE seq = ?",
                (state, problem[:500], sent_ms, seq),
            )

    def hold(self, seq: int, next_ms: int) -> None:
        """Schedule a letter that was not tried for `next_ms`."""
        with self._transaction() as db:
            db.execute("UPDATE outbox SET next_ms = ? WHERE seq = ?", (next_ms, seq))

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


def _write_entries(db: sqlite3.Connection, table: str, key: str, value: str, entries: Mapping[str, Any]) -> None:
    """Write or delete rows of a table of sealed JSON."""
    gone = [(name,) for name, entry in entries.items() if entry is None]
    here = [(name, _sealed(json.dumps(entry))) for name, entry in entries.items() if entry is not None]
    db.executemany(f"DELETE FROM {table} WHERE {key} = ?", gone)  # noqa: S608
    db.executemany(
        f"INSERT INTO {table} VALUES (?, ?) ON CONFLICT DO UPDATE SET {value} = excluded.{value}",  # noqa: S608
        here,
    )


def _letter_text(letter: AlertLetter) -> str:
    return json.dumps({"message": letter.message.to_json(), "address": letter.target})


def _letter_of(text: str) -> AlertLetter:
    data = json.loads(text)
    if "notification" in data:  # version 1: a letter for each alert
        message = Message.of_one(Notification.from_json(data["notification"]))
    else:
        message = Message.from_json(data["message"])
    return AlertLetter(message, str(data["address"]))


def _read(db: sqlite3.Connection) -> EngineState:
    meta = dict(db.execute("SELECT key, value FROM meta").fetchall())
    digests: dict[str, str] = dict(db.execute("SELECT name, digest FROM rules").fetchall())
    found: dict[str, dict[Labels, Alert]] = {}
    memory = EngineState(int(meta.get("time_ms", 0)), int(meta.get("missed", 0)))
    for rule, labels_text, sealed in db.execute("SELECT rule, labels, alert FROM alerts"):
        body: dict[str, Any] = json.loads(_opened(sealed))
        labels: Labels = tuple((str(name), str(value)) for name, value in json.loads(labels_text))
        found.setdefault(rule, {})[labels] = Alert.from_json(body["alert"])
        _read_told(memory, body.get("told", ()))
    memory.known = {rule: RuleMemory(digests.get(rule, ""), alerts) for rule, alerts in found.items()}
    memory.files = {name: _opened(text) for name, text in db.execute("SELECT name, text FROM files")}
    memory.dispatched |= {name: json.loads(_opened(text)) for name, text in db.execute("SELECT * FROM dispatched")}
    memory.groups = {name: json.loads(_opened(text)) for name, text in db.execute("SELECT * FROM groups")}
    memory.silences = {id: json.loads(_opened(text)) for id, text in db.execute("SELECT * FROM silences")}
    acknowledged = db.execute("SELECT * FROM acknowledgements")
    memory.acknowledgements = {one: json.loads(_opened(text)) for one, text in acknowledged}
    memory.recorded = read_recorded(db)
    for (letter,) in db.execute("SELECT letter FROM outbox WHERE state = 'pending'"):
        _letter_of(_opened(letter))
    return memory


def _read_told(memory: EngineState, texts: Iterable[str]) -> None:
    """Take the targets that version 1 told of a firing from the row of an alert."""
    for text in texts:
        letter = json.loads(text)
        alert = Notification.from_json(letter["notification"])
        memory.dispatched[alert.thread] = alert.to_json()
        told = memory.told_before.get(alert.thread, ())
        memory.told_before[alert.thread] = (*told, str(letter["address"]))


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
    with suppress(OSError):  # SQLite tells what is wrong with the file
        path.touch()
        path.chmod(0o600)  # letters may hold addresses with secrets
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=5)
    try:
        connection.execute("PRAGMA journal_mode = DELETE")
        connection.execute("PRAGMA synchronous = EXTRA")  # also syncs the deletion of the journal: durable commits
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version > SCHEMA_VERSION:
            raise DatabaseDamagedError(f"version {version}: this program reads version {SCHEMA_VERSION}")
        if version < SCHEMA_VERSION:
            steps = "".join(_SCHEMAS[version:])
            connection.executescript(f"BEGIN; {steps} PRAGMA user_version = {SCHEMA_VERSION}; COMMIT;")
        (good,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        if good != "ok":
            raise DatabaseDamagedError(str(good))
        database = AlertDatabase(connection, hook)
        return database, database.load()
    except BaseException:
        connection.close()
        raise
