"""Panels of dashboards of Grafana: the queries that Grafana sends, and what a Prometheus answers to them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from benchmarks.peers.process import ask
from benchmarks.peers.series import PeerFailed

Points = dict[int, float]
Series = dict[tuple[tuple[str, str], ...], Points]
VARIABLE = re.compile(r"\$(?:\{(\w+)(?::(\w+))?\}|(\w+))|\[\[(\w+)(?::(\w+))?\]\]")


@dataclass(frozen=True, slots=True)
class Chosen:
    """Values of a variable. `all`: every value is chosen; `many`: the variable takes several values."""

    values: tuple[str, ...]
    is_all: bool = False
    is_many: bool = False
    all_value: str = ""

    def text(self) -> str:
        """Return what Grafana's data source of Prometheus puts in the place of the variable."""
        if self.is_all and self.all_value:
            return self.all_value
        if not self.is_many:
            return (self.values or ("",))[0].replace("\\", "\\\\").replace('"', '\\"')
        escaped = [re.sub(r"[\\^$.*+?()\[\]{}|]", lambda one: f"\\\\{one[0]}", value) for value in self.values]
        return escaped[0] if len(escaped) == 1 else f"({'|'.join(escaped)})"


@dataclass(frozen=True, slots=True)
class GrafanaPanel:
    """Panel with queries. `model`: its JSON; `queries`: those that are shown."""

    title: str
    model: Mapping[str, Any]
    queries: tuple[str, ...] = field(default=())


def panels_of(model: Mapping[str, Any]) -> Iterator[GrafanaPanel]:
    """Yield the panels that show something other than a text, those in rows too."""
    for one in [*model.get("panels", ()), *model.get("rows", ())]:
        if one.get("panels"):
            yield from panels_of(one)
        if one.get("type") in (None, "row", "text"):
            continue
        targets = one.get("targets") or []
        queries = tuple(target["expr"] for target in targets if target.get("expr") and not target.get("hide"))
        yield GrafanaPanel(str(one.get("title", "")), one, queries)


def filled(query: str, chosen: Mapping[str, Chosen]) -> str:
    """Return a query with the values of its variables."""

    def value(found: re.Match[str]) -> str:
        name = found[1] or found[3] or found[4]
        return chosen[name].text() if name in chosen else found[0]

    return VARIABLE.sub(value, query)


def prometheus_answer(address: str, query: str, grid: Mapping[str, float]) -> Series | str:
    """Return the series of a query over a range, or the error."""
    try:
        told = json.loads(ask(f"{address}/api/v1/query_range?{urlencode({'query': query, **grid})}"))["data"]
    except PeerFailed as problem:
        return str(problem)
    return {
        tuple(sorted(one["metric"].items())): {round(time * 1000): float(value) for time, value in one["values"]}
        for one in told["result"]
    }
