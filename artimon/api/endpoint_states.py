"""Processes that agents poll, and their state, read from the series `artimon.endpoint.up`."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from artimon.api.api_errors import ApiError
from artimon.api.limited_store import LimitedStore
from artimon.model.clock import Clock
from artimon.model.grid import Grid
from artimon.model.select import NAME, Buckets, Matcher, SelectRequest, Store
from artimon.model.values import ValueType

UP = "artimon.endpoint.up"
BUCKETS = 60
MAX_SILENT_BUCKETS = 4
"""Buckets without a report after which an agent's last report is stale: up is null."""
FRESH_S = 5.0
"""Age in seconds at which the endpoints are read again, for all requests together."""
STATES: Mapping[bool | None, str] = {False: "down", None: "unknown", True: "up"}
"""States in the order of a list."""
_RANKS = {up: rank for rank, up in enumerate(STATES)}


@dataclass(frozen=True, slots=True)
class EndpointState:
    """One process. `up` None: no recent report of its agent. `since_ms`: first report of that state, None if it is
    older than the range read. `time_ms`: last report."""

    context: str
    instance: str
    host: str
    labels: Mapping[str, str]
    up: bool | None
    since_ms: int | None
    time_ms: int


@dataclass(frozen=True, slots=True)
class EndpointPage:
    """Part of the list of endpoints: those of a `state`, "" for all, that have every word of `text` in context,
    instance, host or a label, written `name=value`; upper and lower case are the same. Raises ApiError."""

    text: str = ""
    state: str = ""
    offset: int = 0
    limit: int = 1_000

    def __post_init__(self) -> None:
        if self.state and self.state not in STATES.values():
            raise ApiError(400, f"unknown state {self.state!r:.40}: use {', '.join(STATES.values())}, or leave it out")

    def select(self, endpoints: Iterable[EndpointState]) -> list[EndpointState]:
        """Return the endpoints that fit, of all pages."""
        words = self.text.lower().split()
        found = [one for one in endpoints if self.state in ("", STATES[one.up])]
        return [one for one in found if _has_words(one, words)] if words else found


@dataclass(frozen=True, slots=True)
class Endpoints:
    """All endpoints, those that are down first, by context, host and instance."""

    endpoints: list[EndpointState]
    notes: tuple[str, ...] = ()

    def to_json(self, page: EndpointPage) -> dict[str, Any]:
        """Return a JSON object with a page of the `endpoints`; `found` counts those that fit, and `down`, `unknown` and
        `up` count all."""
        fits, counts = page.select(self.endpoints), Counter(one.up for one in self.endpoints)
        shown = fits[page.offset : page.offset + page.limit]
        return {
            "endpoints": [asdict(one) for one in shown],
            "found": len(fits),
            "truncated": len(fits) > page.offset + len(shown),
            **{state: counts[up] for up, state in STATES.items()},
            "notes": list(self.notes),
        }


class EndpointReader:
    """Reads the endpoints once in FRESH_S, for the requests of all threads of roles that see the same."""

    def __init__(self, clock: Clock) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._read: dict[tuple[Matcher, ...], tuple[Endpoints, float]] = {}
        """Endpoints and time of the read by what a role sees; as many as the access file has roles."""

    def read(self, store: LimitedStore) -> Endpoints:
        """Return the endpoints. Raises SelectError, and ApiError if there are more than the limit `endpoints`."""
        with self._lock:
            now, (found, read_at) = self._clock.monotonic(), self._read.get(store.sees, (None, 0.0))
            if found is None or now - read_at >= FRESH_S:
                found = _read_endpoints(store, self._clock.now_ms())
                self._read[store.sees] = found, now
            return found


def _read_endpoints(store: LimitedStore, now_ms: int) -> Endpoints:
    most = store.limits.endpoints
    limits = replace(store.limits, series=most, cells_read=most * BUCKETS)
    found = select_newest(replace(store, limits=limits), (Matcher(NAME, "=", UP),), now_ms, BUCKETS, most)
    endpoints = endpoint_states(found)
    endpoints.sort(key=lambda one: (_RANKS[one.up], one.context, one.host, one.instance))
    return Endpoints(endpoints, found.notes)


def _has_words(one: EndpointState, words: Iterable[str]) -> bool:
    labels = " ".join(f"{name}={value}" for name, value in one.labels.items())
    text = f"{one.context} {one.instance} {one.host} {labels}".lower()
    return all(word in text for word in words)


def select_newest(
    store: Store, matchers: tuple[Matcher, ...], now_ms: int, buckets: int, limit: int, level: int = 0
) -> Buckets:
    """Select the newest buckets of a level, by default the finest: `last`, `last_time` and `count`."""
    step_ms, kept = store.levels()[level]
    grid = Grid(-(-now_ms // step_ms) * step_ms, step_ms, min(buckets, kept))
    return store.select(SelectRequest(matchers, grid, ("last", "last_time", "count"), limit))


def endpoint_states(found: Buckets) -> list[EndpointState]:
    """Return the state of each endpoint by its series UP; those that left in an orderly way, and those without a report
    in the buckets, are left out."""
    here = [
        i
        for i in np.flatnonzero((found.statistics["count"] > 0).any(axis=1)).tolist()
        if found.series[i].name == UP and found.series[i].type != ValueType.STRING and not _ended(found.ended_ms, i)
    ]
    column = {name: np.ascontiguousarray(values) for name, values in found.statistics.items()}
    return [
        _make_state(found.series[i].labels, column["last"][i] != 0, column["last_time"][i], column["count"][i] > 0)
        for i in here
    ]


def _ended(ended_ms: npt.NDArray[np.int64], i: int) -> bool:
    """True if the series has an end marker: the process left in an orderly way."""
    return i < len(ended_ms) and bool(ended_ms[i])


def _make_state(
    labels: Mapping[str, str], up: npt.NDArray[np.bool_], time_ms: npt.NDArray[np.int64], said: npt.NDArray[np.bool_]
) -> EndpointState:
    """Return the endpoint with its state at the end of a row of buckets."""
    places = np.flatnonzero(said)
    states = up[places]
    changes = np.flatnonzero(states[1:] != states[:-1])
    since_ms = int(time_ms[places[changes[-1] + 1]]) if len(changes) else _first(time_ms, places)
    state = bool(states[-1]) if places[-1] >= len(said) - MAX_SILENT_BUCKETS else None
    return EndpointState(
        labels.get("context", ""), labels.get("instance", ""), labels.get("host", ""), dict(labels), state,
        None if state is None else since_ms, int(time_ms[places[-1]]),
    )  # fmt: skip


def _first(time_ms: npt.NDArray[np.int64], places: npt.NDArray[np.intp]) -> int | None:
    """Return the time of the first report, None if it is in the first bucket and an earlier one is possible."""
    return int(time_ms[places[0]]) if places[0] > 0 else None
