"""Web page of the API: files of the package, read once, served from a fixed table of paths."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import PurePosixPath

from starlette.requests import Request
from starlette.responses import Response

from artimon.access.principal import Level
from artimon.access.route_rules import public, requires
from artimon.api.api_errors import ApiError
from query_dsl.language.methods import FUNCTIONS, METHODS, method_summaries

INDEX = "index.html"
FUNCTION_TABLES = "functions.js"
"""Generated module with tables of the functions and methods of queries and their descriptions."""
TYPES: Mapping[str, str] = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".woff2": "font/woff2",
    ".txt": "text/plain; charset=utf-8",
    ".md": "text/plain; charset=utf-8",
}
"""Content types by file suffix; other files are not served."""
POLICY = "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
HEADERS: Mapping[str, str] = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",  # with no-referrer, browsers hide the origin of the form that logs out
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-cache",
    "vary": "accept-encoding",
}
MAX_BYTES = 16 << 20
_MIN_GZIP_BYTES = 512


class PagesTooLargeError(ValueError):
    """The files of the page need too much memory."""


@dataclass(frozen=True, slots=True)
class StaticFile:
    """One file; `packed` is its gzip form, None if not smaller. `tag` is a weak ETag, the same for both forms."""

    body: bytes
    gzipped: bytes | None
    content_type: str
    etag: str


class Pages:
    """Table from paths to files. Requests read only this table, so they open no file."""

    def __init__(self, folder: Traversable | None = None) -> None:
        """Raises PagesTooLargeError. `folder` replaces the package's folder in tests."""
        self._files = dict(_read(folder or files("artimon.api").joinpath("static"), PurePosixPath()))
        self._files[FUNCTION_TABLES] = _file(_function_tables().encode(), TYPES[".js"])
        if (size := sum(len(file.body) for file in self._files.values())) > MAX_BYTES:
            raise PagesTooLargeError(f"the files of the page have {size} bytes, at most {MAX_BYTES} are read")

    @property
    def names(self) -> list[str]:
        """Paths below /static/, sorted."""
        return sorted(self._files)

    @property
    def paths(self) -> list[str]:
        """Paths of the pages: `/` for index.html, `/NAME` for each other NAME.html, sorted."""
        pages = (PurePosixPath(name) for name in self._files)
        found = [page for page in pages if page.suffix == ".html" and len(page.parts) == 1]
        return sorted("/" if page.name == INDEX else f"/{page.stem}" for page in found)

    @requires(Level.VIEWER)
    async def page(self, request: Request) -> Response:
        """Return the page at one of `paths`."""
        name = str(request.scope["path"]).rpartition("/")[2]
        return self._answer(f"{name}.html" if name else INDEX, request)

    @public
    async def file(self, request: Request) -> Response:
        """Return a file of the page."""
        return self._answer(str(request.path_params["name"]), request)

    def _answer(self, name: str, request: Request) -> Response:
        file = self._files.get(name)
        if file is None:
            raise ApiError(404, f"file not found: {name[:200]}")
        headers = {**HEADERS, "etag": file.etag, "content-type": file.content_type}
        if _matches(request.headers.get("if-none-match", ""), file.etag):
            return Response(status_code=304, headers=headers)
        if file.gzipped is not None and accepts_gzip(request.headers.get("accept-encoding", "")):
            return Response(file.gzipped, headers={**headers, "content-encoding": "gzip"})
        return Response(file.body, headers=headers)


def _read(folder: Traversable, at: PurePosixPath) -> Iterator[tuple[str, StaticFile]]:
    if not folder.is_dir():
        return
    for entry in folder.iterdir():
        path = at / entry.name
        if entry.is_dir():
            yield from _read(entry, path)
        elif kind := TYPES.get(path.suffix):
            yield str(path), _file(entry.read_bytes(), kind)


def _function_tables() -> str:
    tables = {"FUNCTIONS": method_summaries(FUNCTIONS), "METHODS": method_summaries(METHODS)}
    return "".join(
        f"export const {name} = {json.dumps(table, ensure_ascii=False, indent=1)};\n" for name, table in tables.items()
    )


def _file(body: bytes, kind: str) -> StaticFile:
    packed = gzip.compress(body, 9, mtime=0) if len(body) >= _MIN_GZIP_BYTES else body
    tag = hashlib.sha256(body).hexdigest()[:32]
    return StaticFile(body, packed if len(packed) < len(body) else None, kind, f'W/"{tag}"')


def _matches(sent: str, tag: str) -> bool:
    return any(one.strip() in ("*", tag, tag.removeprefix("W/")) for one in sent.split(","))


def accepts_gzip(sent: str) -> bool:
    """True if a header Accept-Encoding accepts gzip: named, or by `*`, and not with weight 0."""
    weights: dict[str, float] = {}
    for one in sent.lower().split(","):
        name, _, parameters = one.partition(";")
        weights[name.strip()] = _weight(parameters)
    return weights.get("gzip", weights.get("*", 0.0)) > 0


def _weight(parameters: str) -> float:
    for parameter in parameters.split(";"):
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            try:
                return float(value)
            except ValueError:
                return 0.0
    return 1.0
