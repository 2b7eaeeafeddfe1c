"""Publication of rules and alerts: one ephemeral znode for each engine, read by the API; a copy of its database."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError

from alerts.state.conditions import Value
from artimon.model.znode import parse_json_object
from artimon.runtime.http.engine_client import EngineError

log = logging.getLogger(__name__)

ALERTS_PATH = "/artimon/alerts"
MAX_BYTES = 900 * 1024
RULES_SHARE = 400 * 1024
READ_TIMEOUT_S = 3.0
MAX_ENGINES = 20


def json_value(value: Value | None) -> Value | None:
    """Value for JSON: "NaN", "Infinity" and "-Infinity" replace numbers that are not finite."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def encode_display(
    head: Mapping[str, Any],
    rules: Iterable[Any],
    alerts: Iterable[Any],
    shown: Callable[[Any], Any] = lambda one: one,
    recordings: Iterable[Any] = (),
    annotations: Iterable[Any] = (),
) -> bytes:
    """Encode `head` with as many rules, recording rules and alerts, in order, as fit into 900 KiB; `truncated` counts
    the rest. `shown` makes the JSON of a rule. Annotations, pairs of a rule and its templates, take what is left."""
    body = dict(head)
    empty = {"rules": [], "recordings": [], "alerts": [], "annotations": [], "truncated": 10**9}
    size = len(_encoded({**body, **empty}))
    room = min(RULES_SHARE, MAX_BYTES - size)
    body["rules"], used, left_rules = _fitting(rules, room, shown)
    body["recordings"], more, left_recordings = _fitting(recordings, room - used, shown)
    room = MAX_BYTES - size - used - more
    body["alerts"], used, left_alerts = _fitting(alerts, room, lambda one: one)
    body["annotations"], _, _ = _fitting(annotations, room - used, lambda one: one)
    body["truncated"] = left_rules + left_recordings + left_alerts
    return _encoded(body)


def _fitting(items: Iterable[Any], room: int, shown: Callable[[Any], Any]) -> tuple[list[Any], int, int]:
    kept, used, left = [], 0, 0
    for item in items:
        made = None if left else shown(item)  # the rest is counted only
        if left or used + (size := len(_encoded(made)) + 2) > room:
            left += 1
            continue
        kept.append(made)
        used += size
    return kept, used, left


def _encoded(item: Any) -> bytes:
    return json.dumps(item, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def read_alerts(client: KazooClient) -> dict[str, Any]:
    """Rules and alerts of every engine in the form of the API; `problem` lists failures. Does not raise for errors of
    ZooKeeper or of an engine. Each call to ZooKeeper takes at most ASK_S seconds."""
    merged: dict[str, Any] = {name: [] for name in ("engines", "rules", "recordings", "alerts")}
    merged |= {"truncated": 0, "problem": ""}
    try:
        names = sorted(client.get_children_async(ALERTS_PATH).get(timeout=READ_TIMEOUT_S))[:MAX_ENGINES]
    except NoNodeError:
        names = []
    except (KazooException, KazooTimeoutError) as error:
        return {**merged, "problem": f"cannot list the alert engines in ZooKeeper: {type(error).__name__}"}
    problems = []
    for name in names:
        try:
            data, _ = client.get_async(f"{ALERTS_PATH}/{name}").get(timeout=READ_TIMEOUT_S)
            _merge(merged, parse_json_object(data))
        except NoNodeError:
            continue
        except (KazooException, KazooTimeoutError, ValueError, KeyError, TypeError) as error:
            problems.append(f"engine {name} cannot be read: {type(error).__name__}: {error}")
    if not merged["engines"] and not problems:
        problems.append("no alert engine runs: start one with `artimon alerts`, or `artimon up`")
    merged["problem"] = "; ".join(problems)
    return merged


def leading_engine(found: Mapping[str, Any]) -> str:
    """Return host:port of the API of the only engine, or of the one that leads its pair, from what `read_alerts`
    found. Raises EngineError."""
    engines = [one for one in found["engines"] if one["api"]]
    if len({one["pair"].get("name", one["id"]) for one in engines}) == 1:  # each engine of a pair takes every request
        engines = sorted(engines, key=lambda one: not one["pair"].get("leads"))[:1]
    addresses = {one["api"]: one["id"] for one in engines}
    if len(addresses) == 1:
        return str(next(iter(addresses)))
    if not addresses:
        raise EngineError(found["problem"] or "no alert engine with an API is registered")
    names = ", ".join(f"{id} at {address}" for address, id in addresses.items())
    raise EngineError(f"several alert engines run: {names}")


def _merge(merged: dict[str, Any], shown: Mapping[str, Any]) -> None:
    engine = {name: shown[name] for name in ("id", "time_ms", "mail", "problems")}
    engine["api"], engine["pair"] = str(shown.get("api", "")), dict(shown.get("pair", {}))
    annotations = dict(shown.get("annotations", ()))  # engines of older versions have none, and no recordings
    rules = [{**one, "annotations": annotations.get(one.get("name"), {})} for one in shown["rules"]]
    recordings, alerts, truncated = list(shown.get("recordings", ())), list(shown["alerts"]), int(shown["truncated"])
    merged["engines"].append(engine)
    merged["rules"] += rules
    merged["recordings"] += recordings
    merged["alerts"] += alerts
    merged["truncated"] += truncated
