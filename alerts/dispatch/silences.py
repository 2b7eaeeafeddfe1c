"""Silences: alerts that match one are left out of messages while it lasts. The meaning is that of Alertmanager.

`Silence` and `SilenceIndex` are pure; `Silences` keeps the silences of an engine, for its thread and those of the API.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from alerts.dispatch.matchers import MAX_MATCHERS, MAX_TEXT, matcher, matchers_text, matches
from alerts.state.notification import ALERT_NAME
from alerts.state.operations import AuditEntry, OperationCommit, OperationError, checked_author, checked_comment
from artimon.model.select import Matcher
from query_dsl.tree.selector import accepts

MAX_SILENCES = 10_000
MAX_UNINDEXED = 500
"""Silences without a matcher `label="value"`: each of them is compared with every alert."""
KEPT_MS = 5 * 86_400_000
"""Time after its end for which a silence is kept."""
MAX_CACHED = 50_000
"""Label sets whose silences are remembered."""
_PROBES = ("down", "Zq-9", "HostOutOfMemory")
"""Names of alerts that have nothing in common: what accepts all of them accepts every name."""

Save = Callable[[OperationCommit], None]
LabelSet = Mapping[str, str]


class SilenceState(StrEnum):
    """State of a silence, in the order of lists."""

    ACTIVE = "active"
    PENDING = "pending"
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True)
class Silence:
    """Silence over [start, end) in epoch milliseconds. `id` "": not yet stored."""

    id: str
    matchers: tuple[Matcher, ...]
    starts_ms: int
    ends_ms: int
    author: str
    comment: str
    updated_ms: int = 0

    def state(self, now_ms: int) -> SilenceState:
        """Return the state at a time."""
        if now_ms >= self.ends_ms:
            return SilenceState.EXPIRED
        return SilenceState.PENDING if now_ms < self.starts_ms else SilenceState.ACTIVE

    @property
    def hides_everything(self) -> bool:
        """True if it matches alerts without labels, or every name of an alert."""
        return all(
            accepts(one, "") or (one.label == ALERT_NAME and all(accepts(one, name) for name in _PROBES))
            for one in self.matchers
        )

    def to_json(self) -> dict[str, Any]:
        """Convert to values for JSON."""
        return {
            "id": self.id,
            "matchers": [[one.label, one.op, one.value] for one in self.matchers],
            "starts_ms": self.starts_ms,
            "ends_ms": self.ends_ms,
            "author": self.author,
            "comment": self.comment,
            "updated_ms": self.updated_ms,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Silence:
        """Inverse of `to_json`."""
        return cls(**{**data, "matchers": tuple(Matcher(*one) for one in data["matchers"])})


def checked_matchers(given: Iterable[tuple[str, str, str]]) -> tuple[Matcher, ...]:
    """Return the matchers (label, operator, value) of a silence. Raises OperationError."""
    found: list[Matcher] = []
    for label, op, value in given:
        if not label or len(label) + len(value) > MAX_TEXT:
            raise OperationError(f"matchers: a label and its value have 1 to {MAX_TEXT:,} characters")
        try:
            found.append(matcher(label, op, value))
        except ValueError as problem:
            raise OperationError(f"matchers: {label}: {problem}") from None
        if len(found) > MAX_MATCHERS:
            raise OperationError(f"matchers: at most {MAX_MATCHERS}")
    if not found:
        raise OperationError("matchers: a silence needs at least one")
    return tuple(found)


class SilenceIndex:
    """Silences by one of their matchers `label="value"`. Immutable but for the memory of answers."""

    def __init__(self, silences: Iterable[Silence]) -> None:
        self._by_pair: dict[tuple[str, str], list[Silence]] = {}
        self._others: list[Silence] = []
        for one in silences:
            pair = equality_of(one)
            (self._others if pair is None else self._by_pair.setdefault(pair, [])).append(one)
        self._found: dict[tuple[tuple[str, str], ...], tuple[Silence, ...]] = {}

    def matching(self, labels: LabelSet) -> tuple[Silence, ...]:
        """Return the silences that match, whatever their time."""
        if not self._by_pair and not self._others:
            return ()
        key = tuple(labels.items())
        known = self._found.get(key)
        if known is not None:
            return known
        candidates = [one for pair in labels.items() for one in self._by_pair.get(pair, ())]
        found = tuple(one for one in (*candidates, *self._others) if matches(one.matchers, labels))
        if len(self._found) >= MAX_CACHED:
            self._found = {}
        self._found[key] = found
        return found


def equality_of(silence: Silence) -> tuple[str, str] | None:
    """Return a label and the value that every alert under the silence has."""
    return next(((one.label, one.value) for one in silence.matchers if one.op == "=" and one.value), None)


@dataclass(slots=True)
class Silences:
    """Silences of an engine. `save` stores changes before they take effect.

    `_lock` serialises changes and is held during `save`; readers take `_index`, which is replaced as a whole."""

    save: Save
    silences: dict[str, Silence] = field(default_factory=dict)
    _index: SilenceIndex = field(init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._index = SilenceIndex(self.silences.values())

    # ---- reading

    def hides(self, labels: LabelSet, now_ms: int) -> bool:
        """Return True if an alert with these labels is silenced."""
        return any(one.starts_ms <= now_ms < one.ends_ms for one in self._index.matching(labels))

    def hiding(self, labels: LabelSet, now_ms: int) -> list[str]:
        """Return the identities of the silences that hide an alert with these labels."""
        found = self._index.matching(labels)
        return sorted(one.id for one in found if one.state(now_ms) is SilenceState.ACTIVE)

    def ordered(self, now_ms: int) -> list[Silence]:
        """Return all silences: active ones by end, pending ones by start, expired ones latest first."""
        order = list(SilenceState)

        def key(one: Silence) -> tuple[int, int, str]:
            state = one.state(now_ms)
            times = {
                SilenceState.ACTIVE: one.ends_ms,
                SilenceState.PENDING: one.starts_ms,
                SilenceState.EXPIRED: -one.ends_ms,
            }
            return order.index(state), times[state], one.id

        return sorted(self.silences.values(), key=key)

    def get(self, id: str) -> Silence:
        """Return a silence. Raises OperationError."""
        found = self.silences.get(id)
        if found is None:
            raise OperationError(f"silence {id!r:.60} is not known", 404)
        return found

    # ---- changes

    def put(self, wanted: Silence, now_ms: int, *, force: bool = False) -> Silence:
        """Store a new silence, or change the one with this identity; one that cannot be changed is expired and
        replaced. `force`: even if it hides everything. Raises OperationError."""
        wanted = self._checked(wanted, now_ms, force)
        with self._lock:
            before = self.get(wanted.id) if wanted.id else None
            changes: dict[str, Silence | None] = {}
            if before is not None and _can_change(before, wanted, now_ms):
                made, action = replace(wanted, updated_ms=now_ms), "silence changed"
            else:
                starts_ms, action = max(wanted.starts_ms, now_ms), "silence created"
                made = replace(wanted, id=str(uuid.uuid4()), starts_ms=starts_ms, updated_ms=now_ms)
                if before is not None:
                    changes, action = self._expired(before, now_ms), f"silence created in place of {before.id}"
            room = self._room(made, now_ms, changes)
            self._commit({**room, **changes, made.id: made}, now_ms, made.author, action, made)
        return made

    def expire(self, id: str, author: str, now_ms: int) -> Silence:
        """End a silence now. Raises OperationError."""
        author = checked_author(author)
        with self._lock:
            before = self.get(id)
            changes = self._expired(before, now_ms)
            if not changes:
                raise OperationError(f"silence {id} has already expired", 409)
            self._commit(changes, now_ms, author, "silence expired", before)
            return self.get(id)

    def purge(self, now_ms: int) -> None:
        """Delete the silences that ended long ago."""
        silences = self.silences
        if any(one.ends_ms <= now_ms - KEPT_MS for one in silences.values()):
            with self._lock:
                gone = {id: None for id, one in self.silences.items() if one.ends_ms <= now_ms - KEPT_MS}
                self._store(gone, OperationCommit(gone))

    def _checked(self, wanted: Silence, now_ms: int, force: bool) -> Silence:
        wanted = replace(wanted, author=checked_author(wanted.author), comment=checked_comment(wanted.comment))
        if wanted.starts_ms >= wanted.ends_ms:
            raise OperationError("the start of a silence must be before its end")
        if wanted.ends_ms <= now_ms:
            raise OperationError("the end of a silence cannot be in the past")
        if wanted.hides_everything and not force:
            raise OperationError(
                f"{matchers_text(wanted.matchers)} hides every alert: add a matcher with a value, or confirm it with "
                "force=true",
                409,
            )
        return wanted

    def _expired(self, one: Silence, now_ms: int) -> dict[str, Silence | None]:
        if one.state(now_ms) is SilenceState.EXPIRED:
            return {}
        return {one.id: replace(one, starts_ms=min(one.starts_ms, now_ms), ends_ms=now_ms, updated_ms=now_ms)}

    def _room(self, new: Silence, now_ms: int, changes: Mapping[str, Silence | None]) -> dict[str, Silence | None]:
        """Return the expired silences to delete so that one more fits. Raises OperationError."""
        others = [one for one in self.silences.values() if one.id != new.id and one.id not in changes]
        lasting = [one for one in others if one.ends_ms > now_ms]
        if len(lasting) >= MAX_SILENCES:
            raise OperationError(f"{MAX_SILENCES:,} silences last: expire some before you add one", 409)
        if equality_of(new) is None and sum(equality_of(one) is None for one in lasting) >= MAX_UNINDEXED:
            raise OperationError(
                f'{MAX_UNINDEXED} silences have no matcher label="value": add one to this silence', 409
            )
        left = len(others) + len(changes) + 1 - MAX_SILENCES
        old = sorted((one for one in others if one.ends_ms <= now_ms), key=lambda one: one.ends_ms)
        return {one.id: None for one in old[: max(0, left)]}

    def _commit(
        self, changes: dict[str, Silence | None], now_ms: int, author: str, action: str, subject: Silence
    ) -> None:
        text = f"{matchers_text(subject.matchers)}: {subject.comment}"[:MAX_TEXT]
        entry = AuditEntry(now_ms, author, action, subject.id, text)
        rows = {id: one and one.to_json() for id, one in changes.items()}
        self._store(changes, OperationCommit(rows, audit=[entry]))

    def _store(self, changes: Mapping[str, Silence | None], commit: OperationCommit) -> None:
        self.save(commit)
        after = {**self.silences, **{id: one for id, one in changes.items() if one is not None}}
        for id in [id for id, one in changes.items() if one is None]:
            after.pop(id, None)
        self.silences = after
        self._index = SilenceIndex(after.values())


def _can_change(before: Silence, after: Silence, now_ms: int) -> bool:
    """Return True if a silence may be changed in place, so that no time that has passed is rewritten."""
    if before.matchers != after.matchers:
        return False
    match before.state(now_ms):
        case SilenceState.ACTIVE:
            return after.starts_ms // 1000 == before.starts_ms // 1000
        case SilenceState.PENDING:
            return after.starts_ms >= now_ms
    return False
