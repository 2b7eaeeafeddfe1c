"""Pattern of the route that an ASGI application chose, read from the scope that its router has written to.

Depending on version, Starlette and FastAPI add the route, the endpoint, the values of parameters and the path prefix
consumed by mounts. A pattern never contains a value of a parameter: where that cannot be guaranteed, the result is
UNMATCHED.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from bookkeeper.integrations.web import UNMATCHED

MAX_SHAPES = 4096
_PARAMETER = re.compile(r"{([a-zA-Z_][a-zA-Z0-9_]*)(?::[^}]*)?}")


class _RouteShape(NamedTuple):
    """Shape of a route: its own `pattern` without the types of parameters; number of `slashes` in it, -1 if a parameter
    may contain some; the `names` of its parameters; True if it is a `mount`."""

    route: Any  # a reference, so that its id is not reused
    pattern: str
    slashes: int
    names: frozenset[str]
    mount: bool


class RoutePatterns:
    """Finds patterns of requests; caches the shapes of routes."""

    def __init__(self) -> None:
        self._shapes: dict[int, _RouteShape] = {}

    def pattern(self, scope: Mapping[str, Any], root: str) -> str:
        """Pattern of an answered request; `root` is the `root_path` before the application ran."""
        route = scope.get("route")
        if route is not None:
            shape = self._shapes.get(id(route)) or self._shape(route)
            if shape.slashes == scope["path"].count("/") and not root:  # no room for a prefix
                return shape.pattern
            return _prefixed(shape, scope, root)
        if scope.get("endpoint") is None:
            return UNMATCHED
        used = _mounted(scope, root)
        if used:
            prefix = replace_values(used, scope.get("path_params") or {})
            return UNMATCHED if prefix is None else prefix + "/{path}"
        return replace_values(_path(scope, root), scope.get("path_params") or {}) or UNMATCHED

    def _shape(self, route: Any) -> _RouteShape:
        text = getattr(route, "path_format", None) or getattr(route, "path", None) or ""
        typed = getattr(route, "path", None) or text
        names = frozenset(_PARAMETER.findall(text))
        open_ended = ":path}" in typed or ":path}" in text
        mount = hasattr(route, "app") and not hasattr(route, "endpoint")
        pattern = _PARAMETER.sub(r"{\1}", text)
        shape = _RouteShape(route, pattern, -1 if open_ended or mount else pattern.count("/"), names, mount)
        if len(self._shapes) >= MAX_SHAPES:
            self._shapes.clear()
        self._shapes[id(route)] = shape
        return shape


def _prefixed(shape: _RouteShape, scope: Mapping[str, Any], root: str) -> str:
    """Pattern with the prefixes of mounts and of included routers."""
    values = scope.get("path_params") or {}
    if shape.mount:
        prefix = replace_values(_mounted(scope, root), values)
        return UNMATCHED if prefix is None else (prefix or "") + "/{path}"
    path = _path(scope, root)
    if shape.slashes >= 0 and not any("/" in str(values.get(name, "")) for name in shape.names):
        parts = path.rsplit("/", shape.slashes) if shape.slashes else [path]
        before = parts[0]
    else:
        found = re.search(_regex(shape.pattern) + r"\Z", path)
        before = path[: found.start()] if found is not None else _mounted(scope, root)
    foreign = {name: value for name, value in values.items() if name not in shape.names}
    prefix = replace_values(before, foreign) if before else ""
    return UNMATCHED if prefix is None else prefix + shape.pattern


def replace_values(path: str, values: Mapping[str, Any]) -> str | None:
    """Replace the values of parameters in `path` by their names, the last first; None if a value is not found, because
    its text may still be there in another form.

    >>> replace_values("/shops/7/items/7", {"shop": 7, "item": 7})
    '/shops/{shop}/items/{item}'
    """
    end, after = len(path), ""
    for name, value in reversed(list(values.items())):
        text = "/" + str(value)
        at = path.rfind(text, 0, end)
        while at >= 0 and path[at + len(text) : end][:1] not in ("", "/"):
            at = path.rfind(text, 0, at + len(text) - 1) if at else -1
        if at < 0:
            return None
        after = f"/{{{name}}}{path[at + len(text) : end]}{after}"
        end = at
    return path[:end] + after


def _regex(pattern: str) -> str:
    parts = _PARAMETER.split(pattern)
    return "".join(re.escape(part) if i % 2 == 0 else ".*" for i, part in enumerate(parts))


def _path(scope: Mapping[str, Any], root: str) -> str:
    path = str(scope["path"])
    return path[len(root) :] if root and path.startswith(root) else path


def _mounted(scope: Mapping[str, Any], root: str) -> str:
    """Prefix of the path that mounts have consumed."""
    now = str(scope.get("root_path", ""))
    return now[len(root) :] if now.startswith(root) else now
