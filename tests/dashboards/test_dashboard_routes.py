"""Dashboards over HTTP: who may read and change them, conflicts, and hostile requests."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from artimon.access.authenticator import Authenticator
from artimon.api.app import make_app
from artimon.dashboards.dashboard_store import DashboardStore
from artimon.model.clock import ManualClock
from tests.access.asgi_client import ACCESS, AsgiClient, opened, pages
from tests.access.conftest import basic
from tests.api.serving import NOW, STATUS, small_store

MARK = "<img src=x onerror=alert(1)>"
TEXT = f"title: '{MARK}'\npanels:\n- {{kind: text, text: '{MARK}'}}\n"
VERA, EDDIE, ADA = basic("vera"), basic("eddie"), basic("ada")
NEW = {"if-none-match": "*"}
SHOP = "/api/dashboards/shop"
CHANGES = [("PUT", SHOP), ("DELETE", SHOP), ("POST", f"{SHOP}/restore?number=1")]
PANEL = {"q": "fetch('heat')", "title": MARK, "kind": "value"}


@contextmanager
def client_of(store: DashboardStore, access: Authenticator | None) -> Iterator[AsgiClient]:
    app = make_app(small_store(), lambda _: STATUS, ManualClock(NOW), access=access, pages=pages(), dashboards=store)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    lifespan = app.router.lifespan_context(app)
    asyncio.run_coroutine_threadsafe(lifespan.__aenter__(), loop).result(20)
    yield AsgiClient(app, loop)
    asyncio.run_coroutine_threadsafe(lifespan.__aexit__(None, None, None), loop).result(20)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(20)
    loop.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "dashboards"


@pytest.fixture
def client(tmp_path: Path, folder: Path) -> Iterator[AsgiClient]:
    with client_of(DashboardStore(folder, ManualClock(NOW)), opened(ACCESS, tmp_path)) as found:
        yield found


def test_an_editor_saves_and_a_viewer_reads(client: AsgiClient, tmp_path: Path) -> None:
    made = client.send("PUT", SHOP, TEXT.encode(), {**EDDIE, **NEW})
    assert made.status == 200, made.text
    read = client.get(SHOP, VERA)
    assert read.headers["etag"] == f'"{made.json["etag"]}"'
    assert read.json["text"] == TEXT
    assert read.json["dashboard"]["title"] == MARK
    assert read.headers["content-type"] == "application/json"
    assert read.headers["x-content-type-options"] == "nosniff"
    listed = {one["name"]: one for one in client.get("/api/dashboards", VERA).json["dashboards"]}
    assert listed["shop"]["title"] == MARK
    assert listed["hosts"]["shipped"]
    kept = client.get(f"{SHOP}/versions", VERA).json["versions"]
    assert kept == [{"number": 1, "time_ms": NOW, "user": "eddie", "deleted": False}]
    lines = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    assert ("PUT /api/dashboards/shop", "eddie") in [(one["action"], one["user"]) for one in lines]


def test_a_change_in_between_is_refused(client: AsgiClient) -> None:
    first = client.send("PUT", SHOP, TEXT.encode(), {**EDDIE, **NEW}).headers["etag"]
    changed = TEXT.replace("text, text", "text, description: d, text").encode()
    assert client.send("PUT", SHOP, changed, {**ADA, "if-match": first}).status == 200
    for headers in ({"if-match": first}, NEW):
        for method, path in CHANGES:
            answer = client.send(method, path, TEXT.encode(), {**EDDIE, **headers})
            assert answer.status == 409, path
            assert "load it again" in answer.json["error"]["message"]
    for method, path in CHANGES:
        assert client.send(method, path, TEXT.encode(), EDDIE).status == 428
    assert client.get(SHOP, VERA).json["text"].encode() == changed
    assert "+- {kind: text, description" in client.get(f"{SHOP}/diff", VERA, number="1").json["diff"]
    now = client.get(SHOP, VERA).headers["etag"]
    assert client.send("POST", f"{SHOP}/restore?number=1", b"", {**EDDIE, "if-match": now}).status == 200
    assert client.get(SHOP, VERA).json["text"] == TEXT


@pytest.mark.parametrize("user", ["vera", "sam"])
@pytest.mark.parametrize(("method", "path"), CHANGES)
def test_a_viewer_changes_nothing(client: AsgiClient, folder: Path, user: str, method: str, path: str) -> None:
    client.send("PUT", SHOP, TEXT.encode(), {**EDDIE, **NEW})
    etag = client.get(SHOP, VERA).headers["etag"]
    for headers in (NEW, {"if-match": etag}, {}):
        answer = client.send(method, path, TEXT.replace("title", "titel").encode(), {**basic(user), **headers})
        assert answer.status == 403
        assert "editor" in answer.json["error"]["message"]
    assert (folder / "shop.yaml").read_text() == TEXT
    assert client.send(method, path, b"", NEW).status == 401


def test_another_site_changes_nothing(client: AsgiClient, folder: Path) -> None:
    client.log_in("eddie")
    foreign = {**NEW, "origin": "https://evil.example", "sec-fetch-site": "cross-site"}
    assert client.send("PUT", SHOP, TEXT.encode(), foreign).status == 403
    assert not (folder / "shop.yaml").exists()


@pytest.mark.parametrize(
    "name", ["../x", "..%2Fx", "%2e%2e%2fx", ".versions", "x.yaml", "X", "a%00b", "shop%2F..%2F..%2Fx"]
)
def test_no_name_leads_out_of_the_folder(client: AsgiClient, tmp_path: Path, name: str) -> None:
    (tmp_path / "x.yaml").write_text(TEXT)
    before = sorted(tmp_path.rglob("*"))
    for place in (name, name.replace("%2F", "/").replace("%2f", "/").replace("%2e", ".").replace("%00", "\0")):
        for method, end in (("GET", ""), ("PUT", ""), ("DELETE", ""), ("GET", "/versions"), ("GET", "/diff?number=1")):
            answer = client.send(method, f"/api/dashboards/{place}{end}", TEXT.encode(), {**EDDIE, **NEW})
            assert answer.status in (400, 404, 405), answer.text
            assert b"onerror" not in answer.body
    assert [one for one in sorted(tmp_path.rglob("*")) if one.name != "audit.jsonl"] == [
        one for one in before if one.name != "audit.jsonl"
    ]


def test_an_error_names_the_line(client: AsgiClient) -> None:
    answer = client.send("PUT", SHOP, b"title: A\npanels:\n- kind: html\n", {**EDDIE, **NEW})
    assert answer.status == 400
    assert answer.json["error"]["message"].startswith("shop.yaml:3:")
    assert client.send("PUT", SHOP, b"\xff", {**EDDIE, **NEW}).status == 400
    assert client.send("PUT", SHOP, b"a" * (65 << 10), {**EDDIE, **NEW}).status == 413
    assert client.get(SHOP, VERA).status == 404


def test_a_broken_file_is_shown_with_its_problem(client: AsgiClient, folder: Path) -> None:
    folder.mkdir()
    (folder / "broken.yaml").write_text("titel: x\n")
    told = client.get("/api/dashboards/broken", VERA).json
    assert told["dashboard"] is None
    assert "broken.yaml:1:1: titel: unknown key; did you mean title?" in told["problem"]
    listed = client.get("/api/dashboards", VERA).json["dashboards"]
    assert "broken.yaml:1:1: " in next(one["problem"] for one in listed if one["name"] == "broken")


def test_without_a_folder_all_is_read_only() -> None:
    with client_of(DashboardStore(), None) as client:
        assert client.get("/api/dashboards").json["writable"] is False
        answer = client.send("PUT", SHOP, TEXT.encode(), NEW)
        assert answer.status == 403
        assert "--dashboards FOLDER" in answer.json["error"]["message"]
        assert client.get("/api/dashboards/hosts").json["dashboard"]["panels"]


def test_a_query_is_added_as_a_panel(client: AsgiClient) -> None:
    """To a new dashboard, then to that state of it; not to another state, and not by a viewer."""
    body, path = json.dumps({**PANEL, "dashboard": "Shop"}).encode(), f"{SHOP}/panels"
    assert client.send("POST", path, body, {**VERA, **NEW}).status == 403
    assert client.send("POST", path, body, EDDIE).status == 428
    made = client.send("POST", path, body, {**EDDIE, **NEW})
    assert made.status == 200, made.text
    content = client.get(SHOP, VERA).json["dashboard"]
    assert (content["title"], [one["title"] for one in content["panels"]]) == ("Shop", [MARK])
    second = json.dumps({"q": "heat > 5", "lang": "promql", "title": "Two"}).encode()
    assert client.send("POST", path, second, {**EDDIE, **NEW}).status == 409
    assert client.send("POST", path, second, {**ADA, "if-match": made.headers["etag"]}).status == 200
    late = client.send("POST", path, second, {**EDDIE, "if-match": made.headers["etag"]})
    assert (late.status, "load it again" in late.json["error"]["message"]) == (409, True)
    content = client.get(SHOP, VERA).json["dashboard"]
    assert [(one["kind"], one["queries"][0]["lang"]) for one in content["panels"]] == [
        ("value", "artimon"),
        ("chart", "promql"),
    ]
    assert [one["user"] for one in client.get(f"{SHOP}/versions", VERA).json["versions"]] == ["ada", "eddie"]


@pytest.mark.parametrize("wrong", [{"q": "fetch("}, {"q": ""}, {"kind": "pie"}, {"lang": "sql"}])
def test_a_panel_that_is_wrong_is_refused(client: AsgiClient, folder: Path, wrong: dict[str, str]) -> None:
    for headers in ({**EDDIE, **NEW}, {**EDDIE, "if-match": client.get("/api/dashboards/hosts", VERA).headers["etag"]}):
        for name in ("shop", "hosts"):
            answer = client.send(
                "POST", f"/api/dashboards/{name}/panels", json.dumps({**PANEL, **wrong}).encode(), headers
            )
            assert answer.status in (400, 404, 409), answer.text
    assert not list(folder.glob("*.yaml"))
