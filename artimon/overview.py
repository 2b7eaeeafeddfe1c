"""Answers of the API about the platform itself: its alerts, its status, its history."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from artimon.api.latest import Latest
    from artimon.model.select import Store


def opener(hdfs: str, zookeeper: str, memory: Store) -> Callable[[], Store]:
    """Return a function that opens the history once, without Spark: the API has no memory for Spark's JVM."""

    @lru_cache(maxsize=1)
    def opened() -> Store:
        from query_dsl.stores.history.engine import History
        from query_dsl.stores.past import HistoryStore

        return HistoryStore(History(hdfs, zookeeper), memory.levels(), "local")

    return opened


def api_alerts(engines: Latest[dict[str, Any]]) -> dict[str, Any]:
    """Return the alerts of all engines within two seconds; "problem" says why they may be stale or missing."""
    told = engines.get()
    found = told.value or {"engines": [], "rules": [], "alerts": [], "truncated": 0, "problem": ""}
    return {**found, "problem": "; ".join(text for text in (told.problem, found["problem"]) if text)}


def api_status(shards: Latest[dict[str, dict[str, Any]]], data: Path) -> dict[str, Any]:
    """Return parts and hops from the health files of `data`, and the status of each shard, within two seconds.
    "problems" includes a missing answer of the shards; "stack" is there only if no stack runs, and says so."""
    from artimon.stack.errors import NotRunning
    from artimon.stack.status import read_status

    try:
        found = read_status(data).to_json()
        status = {name: found[name] for name in ("healthy", "parts", "hops", "problems", "warnings")}
    except NotRunning as problem:
        status = {"healthy": True, "parts": [], "hops": [], "problems": [], "warnings": [], "stack": str(problem)}
    told = shards.get()
    if not told.problem:
        return {**status, "shards": told.value or {}}
    return {**status, "healthy": False, "shards": told.value or {}, "problems": [*status["problems"], told.problem]}
