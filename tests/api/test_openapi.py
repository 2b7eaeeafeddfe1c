"""/openapi.json: every route, every error, and answers that are as it says."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi.routing import APIRoute
from starlette.routing import Route

from artimon.api.schemas import ANSWERS, ERRORS
from tests.api.serving import STATUS, Client, served, small_app
from tests.api.test_listings import polled_store

PAGES = {
    f"/{name}" for name in ("", "alerts", "dashboards", "fleet", "variables", "cardinality", "queries", "start")
} | {
    "/static/{name:path}",
    "/openapi.json",
}
DASHBOARDS = {f"dashboards{path}" for path in ("", "/import", "/{name}", "/{name}/versions", "/{name}/diff")} | {
    "dashboards/{name}/restore",
    "dashboards/{name}/panels",
}
KINDS: dict[str, Any] = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "integer": int,
    "number": (int, float),
    "null": type(None),
}


def faults(value: Any, schema: dict[str, Any], at: str = "$") -> list[str]:
    """Return the places at which a value differs from its schema."""
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if not any(isinstance(value, KINDS[kind]) and (kind == "boolean" or value is not True) for kind in kinds):
        return [f"{at}: {value!r:.50} is no {kinds}"]
    if "enum" in schema and value not in schema["enum"]:
        return [f"{at}: {value!r} is none of {schema['enum']}"]
    if isinstance(value, list):
        return [fault for i, one in enumerate(value) for fault in faults(one, schema["items"], f"{at}[{i}]")]
    found: list[str] = []
    if isinstance(value, dict):
        known, more = schema.get("properties", {}), schema.get("additionalProperties", False)
        found += [f"{at}: {name} is not there" for name in schema.get("required", []) if name not in value]
        for name, one in value.items():
            inner = known.get(name, more)
            if inner is False:
                found.append(f"{at}: {name} is not described")
            elif inner is not True:
                found += faults(one, inner, f"{at}.{name}")
    return found


@pytest.fixture(scope="module")
def paths(client: Client) -> dict[str, Any]:
    found: dict[str, Any] = client.get("/openapi.json").json["paths"]
    return found


FOREIGN = ("/api/v1/", "/-/", "/federate", "/login", "/logout")
"""Routes of the API of Prometheus, which Prometheus describes, and pages of the login."""


ALERT_PATHS = {
    f"alerts/{name}"
    for name in ("groups", "matching", "silences", "silences/{id}", "history", "acknowledgements", "replay", "draft")
}


def test_every_route_is_described(paths: dict[str, Any]) -> None:
    routes = [route for route in small_app().routes if isinstance(route, Route | APIRoute)]
    own = [route for route in routes if not route.path.startswith(FOREIGN)]
    there = {(route.path, method.lower()) for route in own for method in route.methods or ()}
    told = {(path, method) for path, operations in paths.items() for method in operations}
    assert told == {(path, method) for path, method in there if path not in PAGES}
    assert {path for path, _ in there} - set(paths) == PAGES
    told_paths = {path.removeprefix("/api/") for path in paths}
    assert told_paths == {"query", "queries/{id}", *ANSWERS, *ALERT_PATHS, *DASHBOARDS}


def test_every_operation_says_all_of_itself(paths: dict[str, Any]) -> None:
    for operations in paths.values():
        for operation in operations.values():
            assert operation["description"]
            responses = operation["responses"]
            assert {"200", "400", "500", "503", "504", "default"} <= set(responses)
            assert "422" not in responses
            assert responses["200"]["content"]["application/json"]["schema"]["properties"]
            for status, response in responses.items():
                assert response["description"]
                assert status in ("200", "default") or int(status) in ERRORS
            for parameter in operation.get("parameters", []):
                assert parameter.get("description") or parameter["required"]


def test_a_matrix_comes_in_three_forms(paths: dict[str, Any]) -> None:
    for operation in paths["/api/query"].values():
        assert set(operation["responses"]["200"]["content"]) == {
            "application/json",
            "text/csv",
            "application/vnd.apache.arrow.stream",
        }
        assert "x-artimon-notes" in operation["responses"]["200"]["headers"]
    body = paths["/api/query"]["post"]["requestBody"]["content"]
    assert set(body) == {"application/json", "application/x-www-form-urlencoded"}


@pytest.mark.parametrize(
    ("path", "parameters"),
    [
        ("/api/query", {"q": "fetch('http.requests')"}),
        ("/api/query", {"q": "fetch('heat').range('10m')"}),
        ("/api/find", {"selector": "http.*"}),
        ("/api/lint", {"q": "fetch('http.requests{rack!=\"a\"}')"}),
        ("/api/lint", {"q": "rate(up[1m]", "lang": "promql"}),
        ("/api/names", {}),
        ("/api/labels", {}),
        ("/api/label_values", {"label": "route"}),
        ("/api/endpoints", {}),
        ("/api/alerts", {}),
        ("/api/queries", {}),
        ("/api/status", {}),
        ("/api/configuration", {}),
        ("/api/whoami", {}),
        ("/api/health", {}),
        ("/api/dashboards", {}),
    ],
)
def test_answers_are_as_described(path: str, parameters: dict[str, str], paths: dict[str, Any]) -> None:
    status = {
        "healthy": True,
        "hops": [{**STATUS["hops"][0], "unit": "", "lag_ms": None, "detail": "", "healthy": True}],
    }
    with served(polled_store(), status=lambda _: status) as client:
        answer = client.get(path, **parameters)
        assert answer.status == 200
        schema = paths[path]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
        assert faults(answer.json, schema) == []
        assert faults({**answer.json, "more": 1}, schema)


@pytest.mark.parametrize("path", ["/api/query?q=a", "/api/query", "/api/find?selector=%7B", "/api/names?limit=0"])
def test_errors_are_as_described(client: Client, path: str, paths: dict[str, Any]) -> None:
    answer = client.get(path)
    responses = paths[path.partition("?")[0]]["get"]["responses"]
    assert faults(answer.json, responses[str(answer.status)]["content"]["application/json"]["schema"]) == []
