"""Processes that agents poll, and their state, read from the series `artimon.endpoint.up`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from artimon.api.limited_store import LimitedStore
from artimon.model.grid import Grid
from artimon.model.select import NAME, Buckets, Matcher, SelectRequest, Store
from artimon.model.values import ValueType

UP = "artimon.endpoint.up"
BUCKETS = 60
MAX_SILENT_BUCKETS = 4
"""Buckets without a report after which an agent's last report is stale: up is null."""
_ORDER = {False: 0, None: 1, True: 2}


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
    time_ms: int | None


def read_endpoints(store: LimitedStore, now_ms: int, limit: int) -> dict[str, Any]:
    """Return a JSON object: at most `limit` `endpoints`, those that are down first; `down` counts all of these."""
    found = select_newest(store, (Matcher(NAME, "=", UP),), now_ms, BUCKETS, store.limits.series)
    endpoints = endpoint_states(found)
    endpoints.sort(key=lambda one: (_ORDER[one.up], one.context, one.host, one.instance))
    return {
        "endpoints": [asdict(one) for one in endpoints[:limit]],
        "down": sum(one.up is False for one in endpoints),
        "truncated": len(endpoints) > limit,
        "notes": list(found.notes),
    }


def select_newest(store: Store, matchers: tuple[Matcher, ...], now_ms: int, buckets: int, limit: int) -> Buckets:
    """Select the newest buckets of the finest level: `last`, `last_time` and `count`."""
    step_ms, kept = store.levels()[0]
    grid = Grid(-(-now_ms // step_ms) * step_ms, step_ms, min(buckets, kept))
    return store.select(SelectRequest(matchers, grid, ("last", "last_time", "count"), limit))


def endpoint_states(found: Buckets) -> list[EndpointState]:
    """Return the state of each endpoint by its series UP; those that left in an orderly way are left out."""
    here = [
        i
        for i, one in enumerate(found.series)
        if one.name == UP and one.type != ValueType.STRING and not _ended(found.ended_ms, i)
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
    state: bool | None = None
    since_ms: int | None = None
    newest_ms: int | None = None
    places = np.flatnonzero(said)
    if len(places):
        states = up[places]
        newest_ms = int(time_ms[places[-1]])
        changes = np.flatnonzero(states[1:] != states[:-1])
        since_ms = int(time_ms[places[changes[-1] + 1]]) if len(changes) else _first(time_ms, places)
        state = bool(states[-1]) if places[-1] >= len(said) - MAX_SILENT_BUCKETS else None
    return EndpointState(
        labels.get("context", ""), labels.get("instance", ""), labels.get("host", ""), dict(labels), state,
        None if state is None else since_ms, newest_ms,
    )  # fmt: skip


def _first(time_ms: npt.NDArray[np.int64], places: npt.NDArray[np.intp]) -> int | None:
    """Return the time of the first report, None if it is in the first bucket and an earlier one is possible."""
    return int(time_ms[places[0]]) if places[0] > 0 else None
