"""Export of dashboards to the JSON of Grafana; queries that are not in PromQL are listed and left out."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from artimon.dashboards.dashboard_file import COLUMNS, Dashboard, Marks, Panel, Variable
from artimon.dashboards.grafana_import import KINDS, REDUCTIONS, UNITS, GrafanaImport

TYPES = {kind: next(name for name, found in KINDS.items() if found == kind) for kind in dict.fromkeys(KINDS.values())}
UNIT_NAMES = {unit: next(name for name, found in UNITS.items() if found == unit) for unit in set(UNITS.values())}
CALLS = {name: next(call for call, found in REDUCTIONS.items() if found == name) for name in set(REDUCTIONS.values())}
COLOURS = {"good": "green", "warn": "orange", "bad": "red"}
SCHEMA_VERSION = 39


def export_grafana(board: Dashboard) -> GrafanaImport:
    """Return the JSON of a dashboard, and what could not be converted."""
    problems: list[str] = []
    made: dict[str, Any] = {
        "title": board.title,
        "description": board.description,
        "schemaVersion": SCHEMA_VERSION,
        "time": {"from": f"now-{board.range}", "to": "now"},
        "refresh": "" if board.refresh == "off" else board.refresh,
        "links": [{"type": "link", "title": one.title, "url": one.url} for one in board.links],
        "templating": {"list": [_variable(one, problems) for one in board.variables]},
        "annotations": {"list": list(_annotations(board.marks or Marks(), problems))},
        "panels": [],
    }
    left = top = tallest = 0
    for number, panel in enumerate(board.panels, 1):
        if left + panel.width > COLUMNS:
            left, top, tallest = 0, top + tallest, 0
        place = {"x": left, "y": top, "w": panel.width, "h": panel.height}
        left, tallest = left + panel.width, max(tallest, panel.height)
        made["panels"].append({"id": number, "gridPos": place, **_panel(panel, problems)})
    return GrafanaImport(json.dumps(made, indent=2), problems)


def _annotations(marks: Marks, problems: list[str]) -> Iterator[dict[str, Any]]:
    """Yield the marks as annotations of a data source of Prometheus."""
    source = {"enable": True, "datasource": {"type": "prometheus"}}
    if marks.alerts:
        problems.append("marks.alerts: the annotation asks ALERTS, which Prometheus has and Artimon does not")
        yield {"name": "Alerts", **source, "expr": 'ALERTS{alertstate="firing"}', "titleFormat": "{{alertname}}"}
    if marks.starts:
        problems.append("marks.starts: the query is not in PromQL")
    for at, one in enumerate(marks.queries):
        if one.lang == "promql":
            title = _legend(one.title)
            yield {"name": one.title or f"Marks {at + 1}", **source, "expr": one.q, "titleFormat": title}
        else:
            problems.append(f"marks.queries[{at}]: the query is not in PromQL")


def _legend(text: str) -> str:
    """Return a legend with labels as Grafana writes them; `${variable}` stays."""
    return re.sub(r"(?<!\$)\{([^{}]*)\}", r"{{\1}}", text)


def _variable(one: Variable, problems: list[str]) -> dict[str, Any]:
    made: dict[str, Any] = {"name": one.name, "label": one.title, "multi": one.multi, "includeAll": one.multi}
    if one.all:
        made["allValue"] = one.all
    if one.default:
        made["current"] = {"value": list(one.default) if one.multi else one.default[0]}
    if one.label is not None:
        of = one.query if one.lang == "promql" else None
        if of is None and (one.query or one.series):
            problems.append(f"variable {one.name!r}: it offers the values of all series")
        return {
            **made,
            "type": "query",
            "query": f"label_values({of}, {one.label})" if of else f"label_values({one.label})",
        }
    if one.values:
        return {**made, "type": "custom", "query": ",".join(one.values)}
    return {**made, "type": "textbox", "query": next(iter(one.default), "")}


def _panel(panel: Panel, problems: list[str]) -> dict[str, Any]:
    made: dict[str, Any] = {"type": TYPES[panel.kind], "title": panel.title, "description": panel.description}
    made["links"] = [{"title": one.title, "url": one.url} for one in panel.links]
    if panel.repeat:
        made["repeat"] = panel.repeat
    if panel.kind == "text":
        return {**made, "options": {"mode": "code", "content": panel.text}}
    targets = []
    for number, query in enumerate(panel.queries):
        if query.lang == "promql":
            legend = _legend(query.legend) or "__auto"
            targets.append({"refId": chr(65 + number), "expr": query.q, "legendFormat": legend})
        else:
            problems.append(f"panel {panel.title!r}: a query is not in PromQL")
    steps: list[dict[str, Any]] = [{"color": "green", "value": None}]
    for one in panel.thresholds:
        if one.above is not None:
            steps.append({"color": COLOURS[one.state], "value": one.above})
        else:
            problems.append(f"panel {panel.title!r}: a threshold of values below a number")
    defaults: dict[str, Any] = {"unit": UNIT_NAMES[panel.unit], "thresholds": {"mode": "absolute", "steps": steps}}
    defaults |= {key: value for key in ("min", "max") if (value := getattr(panel, key)) is not None}
    if panel.names:
        shown = {f"{one.value:g}": {"text": one.text, "color": COLOURS.get(one.state or "")} for one in panel.names}
        defaults["mappings"] = [{"type": "value", "options": shown}]
    options = {"reduceOptions": {"calcs": [CALLS[panel.reduce]]}}
    return {**made, "targets": targets, "fieldConfig": {"defaults": defaults, "overrides": []}, "options": options}
