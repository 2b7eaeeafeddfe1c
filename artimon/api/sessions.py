"""Sessions of browsers and logins that have begun at the OpenID provider, in bounded memory."""

from __future__ import annotations

import hashlib
import secrets
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace

from artimon.access.principal import LoginRequest, Principal
from artimon.model.clock import Clock

MAX_SESSIONS, MAX_USER_SESSIONS = 10_000, 50
MAX_BEGUN, BEGUN_S = 1_000, 600.0


@dataclass(slots=True)
class Session:
    """Session of one browser. `proof`: configuration that admitted its user. Times are monotonic seconds."""

    principal: Principal
    proof: object
    created: float
    used: float


class SessionStore:
    """Table of sessions by the hash of their key, so that a memory dump has no valid cookie. Thread-safe."""

    def __init__(self, clock: Clock, length_s: float, idle_s: float, most: int = MAX_SESSIONS) -> None:
        self._clock, self._length_s, self._idle_s, self._most = clock, length_s, idle_s, most
        self._lock = threading.Lock()
        self._sessions: OrderedDict[bytes, Session] = OrderedDict()
        self._of_user: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(self, principal: Principal, proof: object) -> str:
        """Return the key of a new session. The oldest session of a user with too many ends, then the oldest of all."""
        key, now = secrets.token_urlsafe(32), self._clock.monotonic()
        with self._lock:
            if self._of_user[principal.user] >= MAX_USER_SESSIONS:
                self._drop(next(one for one, it in self._sessions.items() if it.principal.user == principal.user))
            while len(self._sessions) >= self._most:
                self._drop(next(iter(self._sessions)))
            self._sessions[_mark(key)] = Session(replace(principal, from_browser=True), proof, now, now)
            self._of_user[principal.user] += 1
        return key

    def find(self, key: str, address: str, proof_of: Callable[[Principal], object]) -> Principal | None:
        """Return the principal of a session that has not expired and whose proof is the same as at its begin."""
        mark, now = _mark(key), self._clock.monotonic()
        with self._lock:
            found = self._sessions.get(mark)
            if found is None:
                return None
            expired = now - found.created >= self._length_s or now - found.used >= self._idle_s
            if expired or proof_of(found.principal) != found.proof:
                self._drop(mark)
                return None
            found.used = now
            return replace(found.principal, address=address)

    def end(self, key: str) -> None:
        with self._lock:
            if _mark(key) in self._sessions:
                self._drop(_mark(key))

    def _drop(self, mark: bytes) -> None:
        user = self._sessions.pop(mark).principal.user
        self._of_user[user] -= 1
        if not self._of_user[user]:
            del self._of_user[user]


class BegunLogins:
    """Logins that wait for the answer of the provider, by their state, each for one use. Event loop only."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._begun: OrderedDict[str, tuple[LoginRequest, str, float]] = OrderedDict()

    def add(self, begun: LoginRequest, target: str) -> None:
        """Add a login that leads to `target`; the oldest is dropped if there are too many."""
        self._begun[begun.state] = begun, target, self._clock.monotonic() + BEGUN_S
        while len(self._begun) > MAX_BEGUN:
            self._begun.popitem(last=False)

    def take(self, state: str) -> tuple[LoginRequest, str] | None:
        """Return and remove a login; None if it is unknown or took too long."""
        begun, target, until = self._begun.pop(state, (None, "", 0.0))
        return None if begun is None or self._clock.monotonic() >= until else (begun, target)


def _mark(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()
