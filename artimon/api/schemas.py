"""Schemas of the answers, for /openapi.json: clients are generated from it, so it has every route and error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Schema = dict[str, Any]


def _object(properties: Mapping[str, Schema], **more: Any) -> Schema:
    return {"type": "object", "required": list(properties), "properties": dict(properties), **more}


def _list(items: Schema, **more: Any) -> Schema:
    return {"type": "array", "items": items, **more}


TEXT: Schema = {"type": "string"}
TEXTS = _list(TEXT)
WHOLE: Schema = {"type": "integer", "format": "int64"}
TIME: Schema = {**WHOLE, "description": "Epoch milliseconds"}
MAYBE_TIME: Schema = {**TIME, "type": ["integer", "null"]}
FLAG: Schema = {"type": "boolean"}
LABELS: Schema = {"type": "object", "additionalProperties": TEXT}
ANYTHING: Schema = {"type": "object", "additionalProperties": True}
TYPE: Schema = {"type": "string", "enum": ["INTEGER", "DOUBLE", "BOOLEAN", "STRING"]}

ERROR = _object(
    {
        "error": _object(
            {
                "message": {**TEXT, "description": "What is wrong and what to do"},
                "position": {"type": ["integer", "null"], "description": "Where in q, in characters from 0"},
                "length": {"type": ["integer", "null"], "description": "How many characters are meant"},
            }
        )
    }
)
MATRIX = _object(
    {
        "grid": _object({"start_ms": TIME, "end_ms": TIME, "step_ms": WHOLE, "n": WHOLE}),
        "complete": {**FLAG, "description": "Whether memory held the whole range"},
        "partial": {**FLAG, "description": "Whether a shard did not answer"},
        "notes": TEXTS,
        "series": _list(
            _object(
                {
                    "name": TEXT,
                    "labels": LABELS,
                    "type": TYPE,
                    "values": _list(
                        {"type": ["number", "string", "boolean", "null"]},
                        description='A value a bucket; null is missing; "NaN", "Infinity", "-Infinity" are values',
                    ),
                }
            )
        ),
    }
)
QUESTION = {
    "type": "object",
    "required": ["q"],
    "properties": {
        "q": {**TEXT, "description": "The question"},
        "time_ms": TIME,
        "format": {"type": "string", "enum": ["json", "csv", "arrow"]},
    },
}
FOUND = _object(
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
                    "up": {"type": ["boolean", "null"], "description": "null: nothing was said of it lately"},
                    "since_ms": MAYBE_TIME,
                    "time_ms": MAYBE_TIME,
                }
            )
        ),
        "down": {**WHOLE, "description": "How many are down, those left out of the list too"},
        "truncated": FLAG,
        "notes": TEXTS,
    }
)
STATUS = {
    "type": "object",
    "required": ["healthy"],
    "properties": {
        "healthy": FLAG,
        "parts": _list(ANYTHING),
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
        "warnings": {**TEXTS, "description": "What to know; the stack is healthy with them"},
        "shards": {"type": "object", "additionalProperties": ANYTHING},
        "stack": {**TEXT, "description": "Why there are no parts"},
    },
}
ALERTS = _object(
    {
        "engines": _list(ANYTHING),
        "rules": _list(ANYTHING),
        "alerts": _list(ANYTHING),
        "truncated": WHOLE,
        "problem": {**TEXT, "description": "Why there is nothing, or why it may be old"},
    }
)
ERRORS: Mapping[int, str] = {
    400: "The question, selector or a parameter is wrong; a Host that is not served",
    408: "The body did not come in time",
    413: "Something is larger than the limit that the message names",
    415: "A kind of body that is not taken",
    431: "Address and headers are too long",
    500: "A defect: the log has it",
    503: "No shard answers, or too much runs: see Retry-After",
    504: "No answer in time",
}
_QUICK = (400, 413, 431, 500, 503, 504)
_NOTES = {
    "x-artimon-notes": {"description": "A JSON list of what a reader must know", "schema": TEXT},
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
    return {200: good, **_errors(_QUICK)}


def _matrix(statuses: tuple[int, ...]) -> dict[int | str, dict[str, Any]]:
    forms = {
        "application/json": {"schema": MATRIX},
        "text/csv": {"schema": {**TEXT, "description": "series,name,type,time_ms,time,value"}},
        "application/vnd.apache.arrow.stream": {"schema": _BINARY},
    }
    return {200: {"description": "The matrix", "content": forms, "headers": _NOTES}, **_errors(statuses)}


def _texts(word: str, description: str) -> dict[int | str, dict[str, Any]]:
    return _good(_object({word: TEXTS, "truncated": FLAG}), description)


QUERY = _matrix(_QUICK)
QUERY_POSTED = _matrix(tuple(ERRORS))
POSTED = {
    "requestBody": {
        "required": True,
        "content": {kind: {"schema": QUESTION} for kind in ("application/json", "application/x-www-form-urlencoded")},
    }
}
ANSWERS: Mapping[str, dict[int | str, dict[str, Any]]] = {
    "find": _good(FOUND, "Series in canonical order"),
    "names": _texts("names", "Names of variables, sorted"),
    "labels": _texts("labels", "Names of labels, sorted"),
    "label_values": _texts("values", "Values of the label, sorted"),
    "endpoints": _good(ENDPOINTS, "Processes that are polled, those that are down first"),
    "alerts": _good(ALERTS, "What every engine said after its last evaluation"),
    "status": _good(STATUS, "Parts, hops and shards"),
    "health": _good(_object({"state": TEXT}), "This process answers"),
}
