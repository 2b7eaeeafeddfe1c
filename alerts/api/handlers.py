"""Routes of the API. Handlers run in threads of their own; the engine gives them states that do not change."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Protocol
from urllib.parse import urlsplit

import yaml

from alerts.api.alert_json import alert_json, parse_silence, silence_json
from alerts.dispatch.alert_status import AlertStatus, AlertStatuses
from alerts.dispatch.dispatcher import Dispatcher
from alerts.dispatch.foreign_alerts import parse_alert, parse_time
from alerts.dispatch.groups import Group
from alerts.dispatch.matchers import matcher, matches, parse_matchers
from alerts.evaluation.alert_engine import AlertEngine
from alerts.state.alert import AlertChange
from alerts.state.alert_database import AlertDatabase
from alerts.state.notification import Notification
from alerts.state.operations import OperationError
from artimon.access.principal import LOCAL, Area, Level, current_principal
from artimon.access.route_rules import RouteRule
from artimon.access.scoped_store import visibility
from artimon.model.clock import Clock
from artimon.model.select import Matcher
from artimon.runtime.text import parse_duration
from artimon.runtime.version import installed_version
from query_dsl.tree.times import MAX_MS, format_time

MAX_LISTED = 1_000
"""Entries of the audit log or the history in one answer."""
MAX_POSTED = 10_000
"""Alerts in one request."""
SHARES_PATH = "/api/alerts/shares"
"""Address at which an engine of a pair evaluates rules for the one that leads."""
TRUE, FALSE = ("true", "1"), ("false", "0")


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """Request. `author`: name that a client gives itself, or its address."""

    method: str
    path: str
    query: Mapping[str, list[str]]
    body: bytes
    author: str
    forwarded: bool = False
    """True if another engine of the pair passes it on."""

    def one(self, name: str, default: str = "") -> str:
        """Return the last value of a parameter."""
        return self.query.get(name, [default])[-1]

    def flag(self, name: str, default: bool) -> bool:
        """Return a parameter that is true or false. Raises OperationError."""
        text = self.one(name).lower()
        if text not in ("", *TRUE, *FALSE):
            raise OperationError(f"{name}: {text!r:.40}: write true or false")
        return default if not text else text in TRUE

    def limit(self) -> int:
        """Return the number of entries that are wanted. Raises OperationError."""
        text = self.one("limit", "100")
        if not (text.isdecimal() and len(text) < 9 and 1 <= int(text) <= MAX_LISTED):
            raise OperationError(f"limit: from 1 to {MAX_LISTED:,}")
        return int(text)

    def json(self) -> Any:
        """Return the body. Raises OperationError."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            raise OperationError("the body is not valid JSON") from None

    def object(self) -> dict[str, Any]:
        """Return the body, an object. Raises OperationError."""
        found = self.json()
        if not isinstance(found, dict):
            raise OperationError("the body is not an object of JSON")
        return found

    def matchers(self) -> tuple[Matcher, ...]:
        """Return the matchers of the parameters `filter`. Raises OperationError."""
        try:
            return tuple(one for text in self.query.get("filter", ()) for one in parse_matchers(text))
        except ValueError as problem:
            raise OperationError(f"filter: {problem}") from None


Handler = Callable[[ApiRequest], Any]
VIEWER = RouteRule(Level.VIEWER, Area.ALERTS)
WHOLE = RouteRule(Level.VIEWER, Area.ALERTS, whole=True)
"""For what is not restricted to the alerts that a role may see."""
EDITOR = RouteRule(Level.EDITOR, Area.ALERTS, whole=True, changes=True)
ADMIN = RouteRule(Level.ADMIN, Area.ALERTS, whole=True)


class Pair(Protocol):
    """Other engines of a pair, for the API."""

    def is_elsewhere(self) -> bool:
        """Return True if another engine takes the changes."""

    def forward(self, request: ApiRequest) -> Any:
        """Return the answer of the engine that leads. Raises OperationError."""

    def answer_share(self, asked: Mapping[str, Any]) -> Any:
        """Evaluate rules for the engine that leads. Raises OperationError."""

    def peers(self) -> list[dict[str, Any]]:
        """Return the engines in the form of the peers of an Alertmanager."""


@dataclass(frozen=True, slots=True)
class _AlertFilter:
    """Choice of alerts by the parameters of a request."""

    matchers: tuple[Matcher, ...]
    active: bool
    silenced: bool
    inhibited: bool
    receiver: Matcher | None

    @classmethod
    def of(cls, request: ApiRequest) -> _AlertFilter:
        """Raises OperationError."""
        text = request.one("receiver")
        try:
            receiver = matcher("receiver", "=~", text) if text else None
        except ValueError as problem:
            raise OperationError(f"receiver: {problem}") from None
        active, silenced, inhibited = (request.flag(name, True) for name in ("active", "silenced", "inhibited"))
        return cls(request.matchers(), active, silenced, inhibited, receiver)

    def accepts(self, alert: Notification, status: AlertStatus) -> bool:
        """Return True if an alert is wanted."""
        if not self.active and not (status.silenced_by or status.inhibited_by):
            return False
        if (not self.silenced and status.silenced_by) or (not self.inhibited and status.inhibited_by):
            return False
        return matches(self.matchers, alert.labels_with_name)

    def accepts_receiver(self, name: str) -> bool:
        """Return True if a group of this receiver is wanted."""
        return self.receiver is None or matches([self.receiver], {"receiver": name})


class AlertHandlers:
    """Handlers by method and path."""

    def __init__(self, engine: AlertEngine, database: AlertDatabase, clock: Clock, page: str) -> None:
        self._engine, self._database, self._clock, self._page = engine, database, clock, page
        self._started_ms = clock.now_ms()
        self.pair: Pair | None = None
        v2, own = "/api/v2", "/api/alerts"
        self.routes: list[tuple[str, re.Pattern[str], RouteRule, Handler]] = [
            (method, re.compile(pattern), rule, handler)
            for method, pattern, rule, handler in (
                ("GET", f"{v2}/status", WHOLE, self._status),
                ("GET", f"{v2}/receivers", VIEWER, self._receivers),
                ("GET", f"{v2}/alerts", VIEWER, self._alerts),
                ("POST", f"{v2}/alerts", EDITOR, self._post_alerts),
                ("GET", f"{v2}/alerts/groups", VIEWER, self._groups),
                ("GET", f"{v2}/silences", WHOLE, self._silences),
                ("POST", f"{v2}/silences", EDITOR, self._post_silence),
                ("GET", f"{v2}/silence/[^/]+", WHOLE, self._silence),
                ("DELETE", f"{v2}/silence/[^/]+", EDITOR, self._expire_silence),
                ("GET", "/-/(?:ready|healthy)", VIEWER, lambda _: "OK"),
                ("POST", f"{own}/acknowledgements", EDITOR, self._acknowledge),
                ("DELETE", f"{own}/acknowledgements", EDITOR, self._withdraw),
                ("GET", f"{own}/audit", ADMIN, self._audit),
                ("GET", f"{own}/history", WHOLE, self._history),
                ("GET", f"{own}/rule", ADMIN, self._rule),
                ("POST", SHARES_PATH, ADMIN, self._share),
            )
        ]

    def answer(self, request: ApiRequest) -> Any:
        """Return the answer as values for JSON. Raises OperationError, AccessError."""
        found = [(method, rule, handler) for method, path, rule, handler in self.routes if path.fullmatch(request.path)]
        for method, rule, handler in found:
            if method == request.method:
                rule.check(current_principal() or LOCAL)
                pair, changes = self.pair, method != "GET" and request.path != SHARES_PATH
                return pair.forward(request) if pair and changes and pair.is_elsewhere() else handler(request)
        if found:
            raise OperationError(f"{request.path:.80}: use {' or '.join(method for method, _, _ in found)}", 405)
        raise OperationError(f"{request.path:.80}: no such path: Alertmanager's API v2 begins with /api/v2/", 404)

    # ---- state

    def _status(self, _request: ApiRequest) -> Any:
        pair = self.pair
        built = dict.fromkeys(("branch", "buildDate", "buildUser", "goVersion", "revision"), "")
        return {
            "cluster": {"status": "ready", "peers": pair.peers()} if pair else {"status": "disabled", "peers": []},
            "config": {"original": shown_config(self._engine.routing_text)},
            "uptime": format_time(self._started_ms),
            "versionInfo": {"version": f"artimon {installed_version()}", **built},
        }

    def _receivers(self, _request: ApiRequest) -> Any:
        return [{"name": name} for name in sorted(self._engine.dispatcher.routing.receivers)]

    def _alerts(self, request: ApiRequest) -> Any:
        wanted, dispatcher, statuses = _AlertFilter.of(request), self._engine.dispatcher, self._engine.statuses()
        receivers = _receivers_by_alert(dispatcher.groups.values())
        now_ms, found = self._clock.now_ms(), []
        is_visible = visibility((current_principal() or LOCAL).role.sees)
        for one, alert in dispatcher.alerts.items():
            names = receivers.get(one, [])
            if (
                alert.kind is AlertChange.FIRING
                and is_visible(alert.labels_with_name)
                and (wanted.receiver is None or any(map(wanted.accepts_receiver, names)))
            ):
                status = statuses.of(alert)
                if wanted.accepts(alert, status):
                    found.append(alert_json(alert, status, names, now_ms, self._page))
        return sorted(found, key=lambda shown: str(shown["fingerprint"]))

    def _groups(self, request: ApiRequest) -> Any:
        wanted, dispatcher, statuses = _AlertFilter.of(request), self._engine.dispatcher, self._engine.statuses()
        receivers = _receivers_by_alert(dispatcher.groups.values())
        found = []
        for group in dispatcher.groups.values():
            if wanted.accepts_receiver(group.route.receiver):
                alerts = self._alerts_of(group, dispatcher, statuses, wanted, receivers)
                if alerts:
                    labels, name = dict(group.labels), {"name": group.route.receiver}
                    found.append({"labels": labels, "receiver": name, "alerts": alerts})
        return sorted(found, key=lambda one: (sorted(one["labels"].items()), one["receiver"]["name"]))

    def _alerts_of(
        self,
        group: Group,
        dispatcher: Dispatcher,
        statuses: AlertStatuses,
        wanted: _AlertFilter,
        receivers: Mapping[str, list[str]],
    ) -> list[dict[str, Any]]:
        now_ms, found = self._clock.now_ms(), []
        is_visible = visibility((current_principal() or LOCAL).role.sees)
        for one in sorted(group.members):
            alert = dispatcher.alerts[one]
            status = statuses.of(alert)
            if not is_visible(alert.labels_with_name):
                continue
            if alert.kind is AlertChange.FIRING and wanted.accepts(alert, status):
                found.append(alert_json(alert, status, receivers.get(one, []), now_ms, self._page))
        return found

    def _share(self, request: ApiRequest) -> Any:
        if self.pair is None:
            raise OperationError("this engine belongs to no pair", 404)
        return self.pair.answer_share(request.object())

    # ---- alerts from outside

    def _post_alerts(self, request: ApiRequest) -> Any:
        given, now_ms = request.json(), self._clock.now_ms()
        if not isinstance(given, list):
            raise OperationError("the body is not a list of alerts")
        if len(given) > MAX_POSTED:
            raise OperationError(f"{len(given):,} alerts: send at most {MAX_POSTED:,} at once", 413)
        good, bad = [], []
        for at, one in enumerate(given):
            try:
                good.append(parse_alert(one, now_ms))
            except OperationError as problem:
                bad.append(f"alert {at}: {problem}")
        self._engine.inbox.add(good)
        if bad:
            raise OperationError("; ".join(bad[:5]))
        return None

    # ---- silences

    def _silences(self, request: ApiRequest) -> Any:
        wanted, now_ms = request.matchers(), self._clock.now_ms()
        found = self._engine.silences.ordered(now_ms)
        chosen = (one for one in found if _has_matchers(one.matchers, wanted))
        return [silence_json(one, now_ms) for one in chosen]

    def _silence(self, request: ApiRequest) -> Any:
        return silence_json(self._engine.silences.get(_last(request.path)), self._clock.now_ms())

    def _post_silence(self, request: ApiRequest) -> Any:
        wanted = parse_silence(request.object())
        made = self._engine.silences.put(wanted, self._clock.now_ms(), force=request.flag("force", False))
        return {"silenceID": made.id}

    def _expire_silence(self, request: ApiRequest) -> Any:
        self._engine.silences.expire(_last(request.path), request.author, self._clock.now_ms())
        return None

    # ---- acknowledgements and logs

    def _chosen(self, given: Mapping[str, Any]) -> list[Notification]:
        """Return the alerts that a body names by fingerprint, or by matchers, or by the labels of their group."""
        dispatcher = self._engine.dispatcher
        keys = [key for key in ("alerts", "filter", "group") if given.get(key)]
        if len(keys) != 1:
            raise OperationError("name alerts by one of: alerts (fingerprints), filter (matchers), group (its labels)")
        wanted = given[keys[0]]
        if keys == ["group"] and isinstance(wanted, Mapping):
            labels = {str(name): str(value) for name, value in wanted.items()}
            found = {one for group in dispatcher.groups.values() if group.labels == labels for one in group.members}
        elif keys == ["filter"] and isinstance(wanted, str):
            try:
                matchers = parse_matchers(wanted)
            except ValueError as problem:
                raise OperationError(f"filter: {problem}") from None
            found = {one for one, it in dispatcher.alerts.items() if matches(matchers, it.labels_with_name)}
        elif keys == ["alerts"] and isinstance(wanted, list):
            found = {str(one) for one in wanted}
        else:
            raise OperationError("alerts is a list of fingerprints, filter a text, group an object of labels")
        return [alert for one, alert in dispatcher.alerts.items() if one in found]

    def _acknowledge(self, request: ApiRequest) -> Any:
        given, now_ms = request.object(), self._clock.now_ms()
        until_ms = parse_time(given.get("until"), "until")
        if given.get("duration"):
            try:
                until_ms = now_ms + parse_duration(str(given["duration"]))
            except ValueError as problem:
                raise OperationError(f"duration: {problem}") from None
        author, comment = str(given.get("createdBy") or ""), str(given.get("comment") or "")
        made = self._engine.acknowledgements.put(self._chosen(given), author, comment, now_ms, until_ms)
        return {"acknowledged": [one.fingerprint for one in made]}

    def _withdraw(self, request: ApiRequest) -> Any:
        chosen = self._chosen(request.object())
        return {"withdrawn": self._engine.acknowledgements.remove(chosen, request.author, self._clock.now_ms())}

    def _audit(self, request: ApiRequest) -> Any:
        return [asdict(one) for one in self._database.audit(request.limit())]

    def _rule(self, request: ApiRequest) -> Any:
        """Return the file of a rule in force. Its receivers may hold secrets."""
        active, name = self._engine.view().active, request.one("name")
        if name not in active.rules:
            raise OperationError(f"no rule {name!r:.120} is in force", 404)
        file = active.rules[name].file
        return {"file": file, "text": active.files[file]}

    def _history(self, request: ApiRequest) -> Any:
        until = request.one("until_ms") or str(MAX_MS)
        if not (until.isdecimal() and len(until) < 17):
            raise OperationError("until_ms: epoch milliseconds")
        found = self._database.history(request.limit(), request.one("fingerprint"), int(until))
        return [asdict(one) for one in found]


def _last(path: str) -> str:
    return path.rpartition("/")[2]


def _receivers_by_alert(groups: Iterable[Group]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for group in groups:
        for one in group.members:
            found.setdefault(one, []).append(group.route.receiver)
    return {one: sorted(set(names)) for one, names in found.items()}


def _has_matchers(matchers: Iterable[Matcher], wanted: Iterable[Matcher]) -> bool:
    """Return True if the labels and values of a silence's matchers fulfil those that are wanted."""
    return matches(wanted, {one.label: one.value for one in matchers})


NO_FILE = "route:\n  receiver: default\nreceivers:\n- name: default\n"
"""Configuration of an engine without a routing file, in the form of Alertmanager."""
MASK = "<secret>"
OWN_KEYS = frozenset(("escalation", "alertmanager_configs", "apprise_configs"))
"""Keys of a routing file that Alertmanager does not have."""
_SECRET_KEY = re.compile(r"password|secret|token|credential|api_key|service_key|routing_key|webhook_url|api_url")
_URL = re.compile(r"https?://", re.IGNORECASE)


def shown_config(text: str) -> str:
    """Return a routing file without passwords, tokens and paths of URLs, which may be secrets, and without the keys
    that clients of Alertmanager refuse."""
    if not text:
        return NO_FILE
    node = yaml.compose(text, yaml.SafeLoader)
    return NO_FILE if node is None else str(yaml.serialize(_shown(node, ""), Dumper=yaml.SafeDumper))


def _shown(node: yaml.Node, key: str) -> yaml.Node:
    """Mask a node in place; `key`: that of the mapping which holds it."""
    if isinstance(node, yaml.MappingNode):
        node.value = [pair for pair in node.value if pair[0].value not in OWN_KEYS]
        for name, value in node.value:
            _shown(value, str(name.value).lower())
    elif isinstance(node, yaml.SequenceNode):
        for one in node.value:
            _shown(one, key)
    elif isinstance(node, yaml.ScalarNode) and node.value:
        if _SECRET_KEY.search(key) and not key.endswith("_file"):
            node.value, node.style = MASK, None
        elif _URL.match(node.value):
            node.value, node.style = _shown_url(node.value), None
    return node


def _shown_url(text: str) -> str:
    try:
        parts = urlsplit(text)
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return "http://masked"
    host = "".join(one for one in parts.hostname or "" if one.isalnum() or one in ".-_")
    return f"{parts.scheme}://{host}{port}/masked"
