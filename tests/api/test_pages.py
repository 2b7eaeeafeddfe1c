"""The page: a fixed table of files with strict headers, nothing else of the disk."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path

import pytest

from artimon.api import pages as pages_module
from artimon.api.pages import Pages, PagesTooLargeError, accepts_gzip
from tests.api.serving import Answer, Client, served

INDEX = b"<!doctype html><title>here</title>"
SCRIPT = b"export const answer = 42;\n" * 100


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    folder = tmp_path_factory.mktemp("outside") / "static"
    (folder / "uplot").mkdir(parents=True)
    (folder / "index.html").write_bytes(INDEX)
    (folder / "app.js").write_bytes(SCRIPT)
    (folder / "uplot" / "uPlot.css").write_bytes(b"a{}")
    (folder / "secret.py").write_bytes(b"no type")
    (folder.parent / "outside.txt").write_bytes(b"held back")
    with served(pages=Pages(folder)) as client:
        yield client


def strict(answer: Answer) -> bool:
    policy = answer.headers["content-security-policy"]
    return (
        "default-src 'self'" in policy
        and "frame-ancestors 'none'" in policy
        and "unsafe" not in policy
        and answer.headers["x-content-type-options"] == "nosniff"
        and answer.headers["referrer-policy"] == "same-origin"
        and "access-control-allow-origin" not in answer.headers
    )


@pytest.mark.parametrize(
    ("path", "kind", "body"),
    [
        ("/", "text/html; charset=utf-8", INDEX),
        ("/static/index.html", "text/html; charset=utf-8", INDEX),
        ("/static/app.js", "text/javascript; charset=utf-8", SCRIPT),
        ("/static/uplot/uPlot.css", "text/css; charset=utf-8", b"a{}"),
    ],
)
def test_files_come_with_their_type_and_strict_headers(site: Client, path: str, kind: str, body: bytes) -> None:
    answer = site.get(path)
    assert (answer.status, answer.headers["content-type"], answer.body) == (200, kind, body)
    assert strict(answer)
    assert site.send("HEAD", path).status == 200


@pytest.mark.parametrize(
    "path",
    [
        "/static/",
        "/static/secret.py",
        "/static/nothing.js",
        "/static/../outside.txt",
        "/static/%2e%2e/outside.txt",
        "/static/..%2foutside.txt",
        "/static//etc/passwd",
        "/static/uplot",
        "/static/app.js%00.html",
        "/index.html",
    ],
)
def test_what_is_not_in_the_table_does_not_exist(site: Client, path: str) -> None:
    answer = site.send("GET", path)
    assert answer.status == 404
    assert b"held back" not in answer.body


def test_an_unchanged_file_is_not_sent_again(site: Client) -> None:
    first = site.get("/static/app.js")
    tag = first.headers["etag"]
    again = site.send("GET", "/static/app.js", headers={"If-None-Match": f'"other", {tag}'})
    assert (again.status, again.body, again.headers["etag"]) == (304, b"", tag)
    assert strict(again)
    assert site.send("GET", "/static/app.js", headers={"If-None-Match": '"other"'}).status == 200
    assert site.get("/").headers["etag"] != tag


def test_a_file_is_packed_for_who_takes_it(site: Client) -> None:
    packed = site.send("GET", "/static/app.js", headers={"Accept-Encoding": "br, gzip"})
    assert packed.headers["content-encoding"] == "gzip"
    assert packed.headers["vary"] == "accept-encoding"
    assert gzip.decompress(packed.body) == SCRIPT
    assert len(packed.body) < len(SCRIPT)
    assert "content-encoding" not in site.send("GET", "/", headers={"Accept-Encoding": "gzip"}).headers


@pytest.mark.parametrize(
    ("sent", "taken"),
    [
        ("gzip", True),
        ("GZIP;q=0.5, br", True),
        ("*", True),
        ("gzip;q=0", False),
        ("gzip;q=0, *", False),
        ("br", False),
        ("", False),
        ("gzip;q=x", False),
    ],
)
def test_who_takes_gzip(sent: str, taken: bool) -> None:
    assert accepts_gzip(sent) is taken


def test_the_page_of_the_package_is_there(client: Client) -> None:
    answer = client.get("/")
    assert answer.status == 200
    assert answer.body.lstrip().lower().startswith(b"<!doctype html>")
    assert strict(answer)
    for name in Pages().names:
        assert client.get(f"/static/{name}").status == 200


def test_too_much_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "index.html").write_bytes(INDEX)
    monkeypatch.setattr(pages_module, "MAX_BYTES", 10)
    with pytest.raises(PagesTooLargeError, match="at most 10"):
        Pages(tmp_path)
