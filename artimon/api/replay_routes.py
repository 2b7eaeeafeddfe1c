"""Replay of one rule over the history, for the page of the alerts: the alerts that it would have raised."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import orjson
from fastapi import FastAPI, Request, Response

from alerts.dispatch.routes import Routing
from alerts.evaluation.replay_report import replay_json
from alerts.evaluation.rule_replay import Replay, ReplayError, held_end_ms, replay_rules
from alerts.receivers.receiver_kind import Integration
from alerts.rules.rule_file import DEFAULT_RECEIVER, parse_rules
from alerts.state.rule import Rule
from artimon.access.principal import Area, Level
from artimon.access.route_rules import requires
from artimon.api.active_queries import QueryOrigin
from artimon.api.alert_routes import AlertRoutes, read_object
from artimon.api.api_errors import ApiError
from artimon.api.limited_store import LimitedStore
from artimon.api.prometheus_handlers import json_response
from artimon.api.query_executor import QueryExecutor
from artimon.api.schemas import ENGINE_ANSWERS
from artimon.api.shared_answers import wait_disconnect
from artimon.runtime.config_file import ConfigFileError
from query_dsl import QueryError
from query_dsl.tree.times import parse_instant

MAX_RANGE_MS = 92 * 86_400_000
SHOWN_FIRINGS = 1_000
MINUTE_MS = 60_000
ROUTING = Routing(DEFAULT_RECEIVER, {DEFAULT_RECEIVER: (Integration("mail:default"),)})
"""Routing of a replay, which sends nothing: pages are counted as for the default receiver."""


class ReplayRoutes:
    """Handler of the replay, with the hard limits of queries; it is in the list of queries and can be cancelled."""

    def __init__(self, executor: QueryExecutor, alerts: AlertRoutes) -> None:
        self._executor, self._alerts = executor, alerts

    @requires(Level.EDITOR, Area.ALERTS, whole=True, changes=True)
    async def replay(self, request: Request) -> Response:
        """Replay the rule in force with the name `rule`, or that of a rule file (`text`), from `from` (now-30d) to `to`
        (now)."""
        given = read_object(await request.body())
        rule = await self._rule(given)
        start_ms, end_ms = self._range(given)
        origin = QueryOrigin(f"replay of rule {rule.name}", "rule", request.client.host if request.client else "")
        hard = self._executor.hard
        found = await self._executor.run(
            lambda store: _replay(rule, store, start_ms, end_ms),
            wait_disconnect(request),
            "history",
            origin=origin,
            limits=hard,
            seconds=hard.query_s,
        )
        return json_response(orjson.dumps(found))

    async def _rule(self, given: dict[str, Any]) -> Rule:
        """Return the rule to replay. Raises ApiError."""
        name, text = str(given.get("rule") or ""), str(given.get("text") or "")
        file = "text"
        if not text and not name:
            raise ApiError(400, "give the name of a rule in force (rule), or a rule file (text)")
        if not text:
            kept = await self._alerts.ask_engine("GET", "/api/alerts/rule", name=name)
            file, text = str(kept["file"]), str(kept["text"])
        try:
            rules = {one.name: one for one in parse_rules(text, file).rules}
        except ConfigFileError as problem:
            raise ApiError(400, str(problem)) from None
        if not name and len(rules) == 1:
            name = next(iter(rules))
        if name not in rules:
            raise ApiError(400, f"rule: {name!r:.120} is not in the file: name one of {', '.join(rules)}"[:1_000])
        return replace(rules[name], receivers=())

    def _range(self, given: dict[str, Any]) -> tuple[int, int]:
        """Return start and end. Raises ApiError."""
        now_ms = self._executor.clock.now_ms()
        try:
            start_ms = parse_instant(str(given.get("from") or "now-30d"), "from").resolve(now_ms)
            end_ms = min(now_ms, parse_instant(str(given.get("to") or "now"), "to").resolve(now_ms))
        except QueryError as problem:
            raise ApiError(400, problem.message) from None
        if not MINUTE_MS <= end_ms - start_ms <= MAX_RANGE_MS:
            raise ApiError(400, f"from, to: a range from a minute to {MAX_RANGE_MS // 86_400_000} days")
        return start_ms, end_ms


def _replay(rule: Rule, store: LimitedStore, start_ms: int, end_ms: int) -> dict[str, Any]:
    """Replay and return the report. Raises ApiError, QueryCancelledError."""
    end_ms = held_end_ms(store, end_ms)
    if end_ms - start_ms < MINUTE_MS:
        raise ApiError(400, "the history holds no whole minute of this range yet")

    def progress(_done: float, _text: str) -> None:
        store.check()  # the replay takes an error of the store for one of the rule, and goes on

    try:
        found: Replay = replay_rules({rule.name: rule}, store, start_ms, end_ms, ROUTING, progress)
    except ReplayError as problem:
        raise ApiError(413, str(problem)) from None
    store.check()
    report = replay_json(found)
    (figures,) = report["rules"]
    figures["truncated"] = len(figures["firings"]) > SHOWN_FIRINGS
    del figures["firings"][SHOWN_FIRINGS:]
    return {"from": report["from"], "to": report["to"], "rule": figures}


def add_replay_route(app: FastAPI, routes: ReplayRoutes) -> None:
    path, responses = "/api/alerts/replay", ENGINE_ANSWERS["replay"]
    app.add_api_route(path, routes.replay, methods=["POST"], response_class=Response, responses=responses)
