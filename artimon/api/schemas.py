"""Schemas of the answers, for /openapi.json: clients are generated from it, so it has every route and error."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from artimon.model.values import CONTENTS

Schema = dict[str, Any]


def _object(properties: Mapping[str, Schema]) -> Schema:
    return {"type": "object", "required": list(properties), "properties": dict(properties)}


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _read_schemas() -> dict[str, Schema]:
    found: dict[str, Schema] = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
    _require(found)
    found["type"]["enum"] += [one.name for one in CONTENTS]
    described = {**found["completeness"], "description": "With the parameter of this name"}
    found["matrix"]["properties"]["completeness"] = described
    return found


def _require(schema: Any) -> None:
    """Require all properties of each object that does not list its own."""
    for inner in schema.values() if isinstance(schema, dict) else ():
        _require(inner)
    if isinstance(schema, dict) and schema.get("type") == "object" and "properties" in schema:
        schema.setdefault("required", list(schema["properties"]))


SCHEMAS = _read_schemas()
TEXT, TEXTS, FLAG, ANY_OBJECT = (SCHEMAS[name] for name in ("text", "texts", "flag", "any_object"))
ERRORS: Mapping[int, str] = {
    400: "Invalid query, selector or parameter; unknown Host",
    401: "No valid credentials",
    403: "The role, the scope of the token or the origin does not allow it",
    404: "There is no such query, dashboard or version",
    409: "Another change came first: load the dashboard again",
    408: "The body did not arrive in time",
    413: "A limit is exceeded, which the message names",
    415: "Unsupported content type or encoding of the body",
    428: "If-Match or If-None-Match is missing",
    429: "Too many failed logins, or too many queries of this user: see Retry-After",
    431: "URL and headers are too long",
    500: "Internal error: see the log",
    503: "No shard answers, or the server is overloaded: see Retry-After",
    504: "Timeout",
}
_FAST_PATH_ERRORS = (400, 401, 403, 413, 429, 431, 500, 503, 504)
_NOTES = {
    "x-artimon-notes": {"description": "JSON list of the notes of the answer", "schema": TEXT},
    "x-artimon-complete": {"description": "As in JSON", "schema": FLAG},
    "x-artimon-partial": {"description": "As in JSON", "schema": FLAG},
}
_BINARY: Schema = {"type": "string", "format": "binary"}


def _errors(statuses: tuple[int, ...]) -> dict[int | str, dict[str, Any]]:
    told: dict[int | str, str] = {**{status: ERRORS[status] for status in statuses}, "default": "Any other error"}
    return {
        status: {"description": text, "content": {"application/json": {"schema": SCHEMAS["error"]}}}
        for status, text in told.items()
    }


def _good(schema: Schema, description: str) -> dict[int | str, dict[str, Any]]:
    good = {"description": description, "content": {"application/json": {"schema": schema}}}
    return {200: good, **_errors(_FAST_PATH_ERRORS)}


def _matrix(statuses: tuple[int, ...]) -> dict[int | str, dict[str, Any]]:
    forms = {
        "application/json": {"schema": SCHEMAS["matrix"]},
        "text/csv": {"schema": {**TEXT, "description": "series,name,type,time_ms,time,value"}},
        "application/vnd.apache.arrow.stream": {"schema": _BINARY},
    }
    return {200: {"description": "The matrix", "content": forms, "headers": _NOTES}, **_errors(statuses)}


def _texts(word: str, description: str) -> dict[int | str, dict[str, Any]]:
    return _good(_object({word: TEXTS, "truncated": FLAG}), description)


QUERY = _matrix(_FAST_PATH_ERRORS)
QUERY_POSTED = _matrix(tuple(status for status in ERRORS if status != 404))
CANCELLED = {
    200: {
        "description": "The query ends; its client gets 503",
        "content": {"application/json": {"schema": _object({"cancelled": TEXT})}},
    },
    **_errors((*_FAST_PATH_ERRORS, 404)),
}
POSTED = {
    "requestBody": {
        "required": True,
        "content": {
            kind: {"schema": SCHEMAS["query_body"]}
            for kind in ("application/json", "application/x-www-form-urlencoded")
        },
    }
}
ENGINE_ANSWERS: Mapping[str, dict[int | str, dict[str, Any]]] = {
    "groups": _good(_object({"groups": _list(ANY_OBJECT)}), "Groups of alerts that fire, as Alertmanager has them"),
    "matching": _good(_object({"alerts": _list(ANY_OBJECT)}), "Alerts that match, as Alertmanager has them"),
    "silences": _good(_object({"silences": _list(ANY_OBJECT)}), "Silences, as Alertmanager has them"),
    "history": _good(_object({"history": _list(ANY_OBJECT)}), "Messages and actions, the newest first"),
    "silence": _good(_object({"silenceID": TEXT}), "The silence exists"),
    "expire": _good(_object({"expired": TEXT}), "The silence has ended"),
    "acknowledge": _good(_object({"acknowledged": TEXTS}), "Fingerprints of the acknowledged alerts"),
    "draft": _good(
        _object({"file": {**TEXT, "description": "Name for the file"}, "text": {**TEXT, "description": "YAML"}}),
        "A rule file, which the engine would accept",
    ),
    "replay": _good(_object({"from": TEXT, "to": TEXT, "rule": ANY_OBJECT}), "Firings that a rule would have had"),
    "withdraw": _good(_object({"withdrawn": {}}), "Acknowledgements that were withdrawn"),
}
"""Responses by handler."""
ANSWERS: Mapping[str, dict[int | str, dict[str, Any]]] = {
    "find": _good(SCHEMAS["series_list"], "Series in canonical order"),
    "completeness": _good(
        SCHEMAS["completeness"], "Samples that the query reads, those that are missing, and silent hosts"
    ),
    "lint": _good(SCHEMAS["findings"], "Warnings about the query, which is not evaluated"),
    "names": _texts("names", "Names of variables, sorted"),
    "labels": _texts("labels", "Names of labels, sorted"),
    "label_values": _texts("values", "Values of the label, sorted"),
    "endpoints": _good(SCHEMAS["endpoints"], "Processes that agents poll, those that are down first"),
    "queries": _good(SCHEMAS["queries"], "Queries that run or wait, oldest first"),
    "alerts": _good(SCHEMAS["alerts"], "Rules and alerts of every engine after its last evaluation"),
    "status": _good(SCHEMAS["status"], "Parts, hops and shards"),
    "configuration": _good(SCHEMAS["configuration"], "Roll-out of the configuration of agents"),
    "whoami": _good(SCHEMAS["whoami"], "User, role and level of the request"),
    "health": _good(_object({"state": TEXT}), "This process answers"),
}
_DASHBOARD_ERRORS = (*_FAST_PATH_ERRORS, 404, 409, 415, 428)


def _dashboards(schema: Schema, description: str) -> dict[int | str, dict[str, Any]]:
    return {**_good(schema, description), **_errors(_DASHBOARD_ERRORS)}


DASHBOARDS = _dashboards(SCHEMAS["dashboards"], "Dashboards, sorted by name")
DASHBOARD = _dashboards(SCHEMAS["dashboard"], "Text and content of a dashboard")
DASHBOARD_SAVED = _dashboards(_object({"name": TEXT, "etag": TEXT}), "The dashboard is saved")
DASHBOARD_DELETED = _dashboards(_object({"deleted": TEXT}), "The dashboard is deleted; its versions are kept")
DASHBOARD_VERSIONS = _dashboards(
    _object(
        {
            "versions": _list(
                _object({"number": SCHEMAS["int64"], "time_ms": SCHEMAS["time"], "user": TEXT, "deleted": FLAG})
            )
        }
    ),
    "Versions, newest first",
)
DASHBOARD_DIFF = _dashboards(_object({"diff": {**TEXT, "description": "Unified diff"}}), "Difference of two versions")
DASHBOARD_IMPORTED = _dashboards(
    _object({"text": {**TEXT, "description": "YAML"}, "problems": {**TEXTS, "description": "What was not converted"}}),
    "The dashboard in the form of Artimon",
)
DASHBOARD_BODIES: Mapping[str, Schema] = {
    "PUT/{name}": {"requestBody": {"required": True, "content": {"application/yaml": {"schema": TEXT}}}},
    "POST/{name}/panels": {
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {
                    "schema": {
                        "type": "object",
                        "required": ["q", "title"],
                        "properties": dict.fromkeys(("q", "lang", "title", "kind", "dashboard"), TEXT),
                    }
                }
            },
        }
    },
    "POST/import": {"requestBody": {"required": True, "content": {"application/json": {"schema": ANY_OBJECT}}}},
}
