"""State in the form of Prometheus: rules, alerts, targets, and what describes the server."""

from __future__ import annotations

import os
import threading
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict
from typing import Any

import yaml
from fastapi import Request, Response

from artimon.access.principal import Area, Level
from artimon.access.route_rules import public, requires
from artimon.api.api_errors import ApiError
from artimon.api.buffered_answer import BufferedAnswer
from artimon.api.endpoint_states import STATES, EndpointReader, EndpointState
from artimon.api.limited_store import LimitedStore
from artimon.api.prefix_search import MAX_SCANNED
from artimon.api.prometheus_format import Fields, success
from artimon.api.prometheus_handlers import PrometheusHandlers, json_response, read_fields
from artimon.api.query_executor import QueryExecutor
from artimon.model.cardinality import MAX_TOP, Cardinality
from artimon.model.select import NAME
from query_dsl.tree.times import format_time

VERSION = "2.24.0"
"""First version of Prometheus whose label routes take `match[]`. A newer one would promise more."""
DEFAULT_TOP = 10
OWN_GROUP = "artimon"
"""Group and file of rules that are in no group."""
_NEVER = "0001-01-01T00:00:00Z"
_RULE_TYPES = {"alert": "alerting", "record": "recording"}


class PrometheusStatus(PrometheusHandlers):
    """Handlers; `alerts` reads the rules and alerts of the engines, `endpoints` the processes that agents poll."""

    def __init__(
        self,
        executor: QueryExecutor,
        alerts: Callable[[], Awaitable[Mapping[str, Any]]],
        endpoints: EndpointReader,
    ) -> None:
        super().__init__(executor)
        self._alerts, self._endpoints = alerts, endpoints
        self._started_ms = executor.clock.now_ms()

    @requires(Level.VIEWER, Area.ALERTS)
    async def rules(self, request: Request) -> Response:
        """Return the rules by groups; those of our own files are the group `artimon`. Their expressions are in the
        language of the rule."""
        wanted = RuleFilter(await read_fields(request))
        told = await self._alerts()
        left = int(told["truncated"])
        warnings = [f"{left} rules and alerts are left out: the engines have too many to show"] if left else []
        return json_response(success({"groups": _groups(told, wanted)}, warnings))

    @requires(Level.VIEWER, Area.ALERTS)
    async def alerts(self) -> Response:
        """Return the alerts that are pending or firing."""
        return json_response(success({"alerts": _alerts(await self._alerts())}))

    @requires(Level.VIEWER, Area.STATUS)
    async def targets(self, request: Request) -> Response:
        """Return the processes that agents poll; `state=dropped`: none."""
        dropped = (await read_fields(request)).one("state") == "dropped"

        def work(store: LimitedStore) -> BufferedAnswer:
            found = [] if dropped else self._endpoints.read(store).endpoints[: self._limits.found]
            told = {"activeTargets": [_target(one) for one in found], "droppedTargets": [], "droppedTargetCounts": {}}
            return self._packed(request, [success(told, list(store.remarks))])

        return await self._answer(request, work)

    @requires(Level.VIEWER, Area.STATUS, whole=True)
    async def tsdb(self, request: Request) -> Response:
        """Return the cardinality of memory: the `limit` names, labels and pairs with most series."""
        top = min((await read_fields(request)).limit() or DEFAULT_TOP, MAX_TOP)

        def work(store: LimitedStore) -> BufferedAnswer:
            found = store.cardinality(top)
            values = {label: max(n, _count(store, label)) for label, n in found.values_by_label.items()}
            newest_ms = self._executor.clock.now_ms()
            step_ms, kept = store.levels()[0]
            head = {
                "numSeries": found.series,
                "numLabelPairs": found.pairs,
                "chunkCount": 0,
                "minTime": newest_ms - step_ms * kept,
                "maxTime": newest_ms,
            }
            return self._packed(request, [success({"headStats": head, **_tops(found, values)}, list(store.remarks))])

        return await self._answer(request, work)

    @requires(Level.VIEWER)
    async def build_info(self) -> Response:
        """Return the version of the API of Prometheus that this one has."""
        told = {"version": VERSION, "revision": "", "branch": "", "buildUser": "", "buildDate": "", "goVersion": ""}
        return json_response(success({**told, "application": "Artimon"}))

    @requires(Level.VIEWER, Area.STATUS)
    async def runtime_info(self) -> Response:
        """Return the state of this process."""
        told = {
            "startTime": format_time(self._started_ms),
            "serverTime": format_time(self._executor.clock.now_ms()),
            "CWD": "",
            "reloadConfigSuccess": True,
            "lastConfigTime": format_time(self._started_ms),
            "corruptionCount": 0,
            "goroutineCount": threading.active_count(),
            "GOMAXPROCS": os.cpu_count() or 1,
            "GOGC": "",
            "GODEBUG": "",
            "storageRetention": "",
        }
        return json_response(success(told))

    @requires(Level.VIEWER, Area.STATUS)
    async def config(self) -> Response:
        """Return the limits of this process; sources are configured at the agents."""
        told = {
            "global": {"scrape_interval": "1m"},
            "limits": {"soft": asdict(self._limits), "hard": asdict(self._executor.hard)},
        }
        return json_response(success({"yaml": yaml.safe_dump(told, sort_keys=False)}))

    @public
    async def ready(self) -> Response:
        """Answer if this process runs."""
        return Response("Artimon is ready.\n", media_type="text/plain")


def _alerts(told: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [_alert(one) for one in told["alerts"] if _state(str(one.get("state", ""))) != "inactive"]


def _alert(one: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "labels": {"alertname": str(one.get("alert") or one.get("rule", "")), **_texts(one.get("labels"))},
        "annotations": {"summary": str(one.get("summary", ""))},
        "state": _state(str(one.get("state", ""))),
        "activeAt": format_time(int(one.get("since_ms") or 0)),
        "value": str(one.get("value", "")),
    }


class RuleFilter:
    """Rules that a request asks for, of one type or both; of these names, groups and files, each if it is given."""

    def __init__(self, fields: Fields) -> None:
        kind = fields.one("type")
        if kind not in (None, *_RULE_TYPES):
            raise ApiError(400, f'invalid parameter "type": write alert or record, not {kind!r:.60}')
        self._type = None if kind is None else _RULE_TYPES[kind]
        self._places = [set(fields.many(name)) for name in ("rule_name[]", "rule_group[]", "file[]")]

    def admits(self, group: Mapping[str, Any], rule: Mapping[str, Any]) -> bool:
        """Return True if the rule in this group is asked for."""
        place = (rule["name"], group["name"], group["file"])
        return self._type in (None, rule["type"]) and all(
            not texts or text in texts for text, texts in zip(place, self._places, strict=True)
        )


def _groups(told: Mapping[str, Any], wanted: RuleFilter) -> list[dict[str, Any]]:
    """Return the groups that have a rule that is asked for, with these rules in the order of their files."""
    by_rule: dict[str, list[dict[str, Any]]] = {}
    for one in told["alerts"]:
        if _state(str(one.get("state", ""))) != "inactive":
            by_rule.setdefault(str(one.get("rule", "")), []).append(_alert(one))
    last_ms = max((int(one.get("time_ms") or 0) for one in told["engines"]), default=0)
    groups: dict[tuple[str, str], dict[str, Any]] = {}
    rules = [*told["rules"], *told["recordings"]]
    for one in sorted(rules, key=lambda one: (str(one.get("file")), one.get("line", 0))):
        group = str(one.get("group") or OWN_GROUP)
        file = str(one.get("file") or OWN_GROUP) if one.get("group") else OWN_GROUP
        made = groups.setdefault(
            (file, group),
            {"name": group, "file": file, "interval": one.get("interval_ms", 60_000) / 1000, "rules": []},
        )
        alerts = by_rule.get(str(one.get("name", "")), [])
        rule = _recording(one) if "record" in one else _rule(one, alerts, last_ms)
        if wanted.admits(made, rule):
            made["rules"].append(rule)
    return [group for group in groups.values() if group["rules"]]


def _rule(one: Mapping[str, Any], alerts: list[dict[str, Any]], last_ms: int) -> dict[str, Any]:
    return {
        **_common(one, last_ms),
        "name": str(one.get("alert") or one.get("name", "")),
        "type": "alerting",
        "state": _state(str(one.get("state", ""))),
        "duration": one.get("for_ms", 0) / 1000,
        "keepFiringFor": one.get("keep_firing_for_ms", 0) / 1000,
        "health": "err" if one.get("error") else "ok",
        "annotations": _texts(one.get("annotations")),
        "alerts": alerts,
    }


def _recording(one: Mapping[str, Any]) -> dict[str, Any]:
    last_ms = int(one.get("time_ms") or 0)
    health = "err" if one.get("error") else "ok" if last_ms else "unknown"
    return {**_common(one, last_ms), "name": str(one["record"]), "type": "recording", "health": health}


def _common(one: Mapping[str, Any], last_ms: int) -> dict[str, Any]:
    return {
        "query": str(one.get("expr", "")),
        "lastError": str(one.get("error") or ""),
        "lastEvaluation": format_time(last_ms) if last_ms else _NEVER,
        "evaluationTime": one.get("duration_ms", 0) / 1000,
        "labels": _texts(one.get("labels")),
    }


def _state(state: str) -> str:
    return state if state in ("firing", "pending") else "inactive"


def _texts(labels: Any) -> dict[str, str]:
    return {str(name): str(value) for name, value in labels.items()} if isinstance(labels, Mapping) else {}


def _target(one: EndpointState) -> dict[str, Any]:
    return {
        "discoveredLabels": dict(one.labels),
        "labels": dict(one.labels),
        "scrapePool": one.context,
        "scrapeUrl": "",
        "globalUrl": "",
        "lastError": "" if one.up is not False else "the process does not answer its agent",
        "lastScrape": format_time(one.time_ms) if one.time_ms else _NEVER,
        "lastScrapeDuration": 0,
        "health": STATES[one.up],
        "scrapeInterval": "1m",
        "scrapeTimeout": "",
    }


def _count(store: LimitedStore, label: str) -> int:
    """Count the values of a label over all shards; 0 if there are too many to list."""
    found = len(store.names() if label == NAME else store.label_values(label, MAX_SCANNED))
    return found if found < MAX_SCANNED else 0


def _tops(found: Cardinality, values: Mapping[str, int]) -> dict[str, Any]:
    tops = {
        "seriesCountByMetricName": found.series_by_name,
        "labelValueCountByLabelName": dict(sorted(values.items(), key=lambda one: (-one[1], one[0]))),
        "memoryInBytesByLabelName": found.bytes_by_label,
        "seriesCountByLabelValuePair": found.series_by_pair,
    }
    return {key: [{"name": name, "value": n} for name, n in counts.items()] for key, counts in tops.items()}
