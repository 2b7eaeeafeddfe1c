"""Schemas of the answers, for /openapi.json: clients are generated from it, so it has every route and error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from artimon.model.values import CONTENTS

Schema = dict[str, Any]


def _object(properties: Mapping[str, Schema], **more: Any) -> Schema:
    return {"type": "object", "required": list(properties), "properties": dict(properties), **more}


def _list(items: Schema, **more: Any) -> Schema:
    return {"type": "array", "items": items, **more}


TEXT: Schema = {"type": "string"}
TEXTS = _list(TEXT)
INT64: Schema = {"type": "integer", "format": "int64"}
TIME: Schema = {**INT64, "description": "Epoch milliseconds"}
COUNT: Schema = {**INT64, "minimum": 0}
OPTIONAL_TIME: Schema = {**TIME, "type": ["integer", "null"]}
FLAG: Schema = {"type": "boolean"}
LABELS: Schema = {"type": "object", "additionalProperties": TEXT}
ANY_OBJECT: Schema = {"type": "object", "additionalProperties": True}
TYPE: Schema = {"type": "string", "enum": [one.name for one in CONTENTS]}

ERROR = _object(
    {
        "error": _object(
            {
                "message": {**TEXT, "description": "Problem and remedy"},
                "position": {"type": ["integer", "null"], "description": "Position in q, in characters from 0"},
                "length": {"type": ["integer", "null"], "description": "Length of the erroneous text in characters"},
            }
        )
    }
)
GRID = _object(
    {
        "start_ms": TIME,
        "end_ms": TIME,
        "step_ms": {**INT64, "description": "Length of a bucket; 0 for buckets of a calendar"},
        "n": INT64,
        "ends_ms": {**_list(TIME), "description": "Ends of the buckets of a calendar"},
    },
    required=["start_ms", "end_ms", "step_ms", "n"],
)
HOST_POINTS = {"host": TEXT, "series": COUNT, "expected": COUNT, "present": COUNT}
HOST_STATE: Schema = {**TEXT, "enum": ["", "late", "stopped", "agent gone", "agent silent"]}
COMPLETENESS = _object(
    {
        "text": {**TEXT, "description": "In words"},
        "share": {"type": "number", "minimum": 0, "maximum": 1},
        "expected": COUNT,
        "present": COUNT,
        "missing": COUNT,
        "series": COUNT,
        "silent": _list(
            _object({**HOST_POINTS, "since_ms": TIME, "state": HOST_STATE, "acked_ms": TIME}),
            description="Hosts without a sample in their last two periods, the longest silence first",
        ),
        "silent_hosts": COUNT,
        "silent_series": {**COUNT, "description": "Silent series of other hosts"},
        "lacking": _list(_object(HOST_POINTS), description="Other hosts that lack points, most first"),
    }
)
MATRIX = _object(
    {
        "grid": GRID,
        "complete": {**FLAG, "description": "True if memory held the whole range"},
        "partial": {**FLAG, "description": "True if a shard did not answer"},
        "notes": TEXTS,
        "series": _list(
            _object(
                {
                    "name": TEXT,
                    "labels": LABELS,
                    "type": TYPE,
                    "values": _list(
                        {"type": ["number", "string", "boolean", "null"]},
                        description='One value per bucket; null is missing; "NaN", "Infinity", "-Infinity" are values',
                    ),
                }
            )
        ),
    }
)
MATRIX["properties"]["completeness"] = {**COMPLETENESS, "description": "With the parameter of this name"}
QUERY_BODY = {
    "type": "object",
    "required": ["q"],
    "properties": {
        "q": {**TEXT, "description": "The query"},
        "time_ms": TIME,
        "format": {"type": "string", "enum": ["json", "csv", "arrow"]},
        "completeness": FLAG,
        "newest": {"type": "integer", "minimum": 1, "maximum": 11_000},
    },
}
FINDINGS = _object(
    {
        "findings": _list(
            _object(
                {
                    "code": {**TEXT, "description": "Name of the check; `invalid` for a query that cannot be parsed"},
                    "message": {**TEXT, "description": "Problem and remedy"},
                    "position": {"type": ["integer", "null"], "description": "In characters from 0; null if unknown"},
                    "length": INT64,
                }
            ),
            description="In the order of the text",
        )
    }
)
SERIES_LIST = _object(
    {
        "series": _list(
            _object(
                {
                    "series": TEXT,
                    "name": TEXT,
                    "labels": LABELS,
                    "type": TYPE,
                    "kind": {"type": "string", "enum": ["COUNTER", "GAUGE", "UNKNOWN"]},
                }
            )
        ),
        "truncated": FLAG,
    }
)
ENDPOINTS = _object(
    {
        "endpoints": _list(
            _object(
                {
                    "context": TEXT,
                    "instance": TEXT,
                    "host": TEXT,
                    "labels": LABELS,
                    "up": {"type": ["boolean", "null"], "description": "null: no recent report"},
                    "since_ms": OPTIONAL_TIME,
                    "time_ms": TIME,
                }
            )
        ),
        "found": {**INT64, "description": "Number of endpoints that fit, on all pages"},
        "down": {**INT64, "description": "Number of all endpoints that are down"},
        "unknown": {**INT64, "description": "Number of all endpoints without a recent report"},
        "up": {**INT64, "description": "Number of all endpoints that are up"},
        "truncated": FLAG,
        "notes": TEXTS,
    }
)
FLEET = _object(
    {
        "healthy": FLAG,
        "processes": _list(
            _object(
                {
                    "role": TEXT,
                    "host": TEXT,
                    "instance": TEXT,
                    "version": TEXT,
                    "state": {**TEXT, "description": "up, failing, missing or silent"},
                    "problem": TEXT,
                    "seen_ms": TIME,
                    "uptime_ms": {"type": ["integer", "null"]},
                    "resident_bytes": {"type": ["integer", "null"]},
                    "lag_ms": {"type": ["integer", "null"], "description": "The greatest lag that it reports"},
                }
            )
        ),
        "found": {**INT64, "description": "Number of processes that the parameters select"},
        "truncated": {**FLAG, "description": "More follow: ask again with a greater `offset`"},
        "roles": {"type": "object", "additionalProperties": ANY_OBJECT, "description": "Processes by role and state"},
        "versions": {"type": "object", "additionalProperties": ANY_OBJECT, "description": "By role and version"},
        "problems": TEXTS,
        "warnings": TEXTS,
        "notes": TEXTS,
    }
)
STATUS = {
    "type": "object",
    "required": ["healthy"],
    "properties": {
        "healthy": FLAG,
        "parts": _list(ANY_OBJECT),
        "hops": _list(
            _object(
                {
                    "name": TEXT,
                    "count": {"type": ["integer", "null"]},
                    "unit": TEXT,
                    "lag_ms": {"type": ["integer", "null"]},
                    "detail": TEXT,
                    "healthy": FLAG,
                }
            )
        ),
        "problems": TEXTS,
        "warnings": {**TEXTS, "description": "Warnings; the stack is healthy with them"},
        "shards": {"type": "object", "additionalProperties": ANY_OBJECT},
        "fleet": FLEET,
        "stack": {**TEXT, "description": "Reason why there are no parts"},
    },
}
CONFIGURATION = _object(
    {
        "agents": {**COUNT, "description": "Live agents"},
        "pushed": _list(
            _object(
                {"version": TEXT, "made_ms": TIME, "by": TEXT, "note": TEXT, "source": {"type": ["integer", "null"]}}
            ),
            description="Newest version of each group and agent, at most 100; source: the version a rollback copied",
        ),
        "running": _list(_object({"version": TEXT, "agents": COUNT}), description="Most frequent first, at most 100"),
        "trials": {**COUNT, "description": "Agents that try a new version"},
        "refused": _list(_object({"agent": TEXT, "reason": TEXT}), description="At most 100"),
        "refusals": {**COUNT, "description": "Agents that refuse a version"},
        "problem": {**TEXT, "description": "Reason why the answer is empty or may be stale"},
    }
)
ALERTS = _object(
    {
        "engines": _list(ANY_OBJECT),
        "rules": _list(ANY_OBJECT),
        "recordings": _list(ANY_OBJECT),
        "alerts": _list(ANY_OBJECT),
        "truncated": INT64,
        "problem": {**TEXT, "description": "Reason why the answer is empty or may be stale"},
    }
)
QUERIES = _object(
    {
        "queries": _list(
            _object(
                {
                    "id": TEXT,
                    "query": {**TEXT, "description": "At most 2,000 characters"},
                    "language": {"type": "string", "enum": ["artimon", "promql", "rule"]},
                    "client": {**TEXT, "description": "Address"},
                    "user": TEXT,
                    "engine": TEXT,
                    "state": {"type": "string", "enum": ["waiting", "running"]},
                    "limits": {"type": "string", "enum": ["soft", "hard"]},
                    "timeout_ms": COUNT,
                    "started_ms": TIME,
                    "running_ms": INT64,
                }
            )
        )
    }
)
WHOAMI = _object(
    {
        "user": TEXT,
        "role": TEXT,
        "level": {"type": "string", "enum": ["viewer", "editor", "admin"]},
        "method": TEXT,
        "scopes": {"type": ["array", "null"], "items": TEXT},
        "restricted": {**FLAG, "description": "True if the role sees a part of the series only"},
        "login": {**FLAG, "description": "False if no login is configured"},
    }
)
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
        status: {"description": text, "content": {"application/json": {"schema": ERROR}}}
        for status, text in told.items()
    }


def _good(schema: Schema, description: str) -> dict[int | str, dict[str, Any]]:
    good = {"description": description, "content": {"application/json": {"schema": schema}}}
    return {200: good, **_errors(_FAST_PATH_ERRORS)}


def _matrix(statuses: tuple[int, ...]) -> dict[int | str, dict[str, Any]]:
    forms = {
        "application/json": {"schema": MATRIX},
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
        "content": {kind: {"schema": QUERY_BODY} for kind in ("application/json", "application/x-www-form-urlencoded")},
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
    "find": _good(SERIES_LIST, "Series in canonical order"),
    "completeness": _good(COMPLETENESS, "Samples that the query reads, those that are missing, and silent hosts"),
    "lint": _good(FINDINGS, "Warnings about the query, which is not evaluated"),
    "names": _texts("names", "Names of variables, sorted"),
    "labels": _texts("labels", "Names of labels, sorted"),
    "label_values": _texts("values", "Values of the label, sorted"),
    "endpoints": _good(ENDPOINTS, "Processes that agents poll, those that are down first"),
    "queries": _good(QUERIES, "Queries that run or wait, oldest first"),
    "alerts": _good(ALERTS, "Rules and alerts of every engine after its last evaluation"),
    "status": _good(STATUS, "Parts, hops and shards"),
    "configuration": _good(CONFIGURATION, "Roll-out of the configuration of agents"),
    "whoami": _good(WHOAMI, "User, role and level of the request"),
    "health": _good(_object({"state": TEXT}), "This process answers"),
}
_DASHBOARD_ERRORS = (*_FAST_PATH_ERRORS, 404, 409, 415, 428)


def _dashboards(schema: Schema, description: str) -> dict[int | str, dict[str, Any]]:
    return {**_good(schema, description), **_errors(_DASHBOARD_ERRORS)}


DASHBOARDS = _dashboards(
    _object(
        {
            "dashboards": _list(
                _object(
                    {
                        "name": TEXT,
                        "title": TEXT,
                        "description": TEXT,
                        "shipped": {**FLAG, "description": "True for one of the package"},
                        "problem": {**TEXT, "description": "First error of the file, or empty"},
                    }
                )
            ),
            "writable": {**FLAG, "description": "False if the API has no folder of dashboards"},
        }
    ),
    "Dashboards, sorted by name",
)
DASHBOARD = _dashboards(
    _object(
        {
            "name": TEXT,
            "etag": TEXT,
            "shipped": FLAG,
            "writable": FLAG,
            "text": {**TEXT, "description": "YAML"},
            "dashboard": {"type": ["object", "null"], "additionalProperties": True},
            "problem": TEXT,
        }
    ),
    "Text and content of a dashboard",
)
DASHBOARD_SAVED = _dashboards(_object({"name": TEXT, "etag": TEXT}), "The dashboard is saved")
DASHBOARD_DELETED = _dashboards(_object({"deleted": TEXT}), "The dashboard is deleted; its versions are kept")
DASHBOARD_VERSIONS = _dashboards(
    _object({"versions": _list(_object({"number": INT64, "time_ms": TIME, "user": TEXT, "deleted": FLAG}))}),
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
