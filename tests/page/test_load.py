"""The page comes in one round: all of its modules are named in its head, and no other file is."""

from __future__ import annotations

import re
from importlib.resources import files

from playwright.sync_api import Route, expect

from artimon.api.pages import FUNCTION_TABLES
from tests.page.watched import Watched, comes

STATIC = files("artimon.api").joinpath("static")


def modules() -> set[str]:
    """Return the files that app.js needs, itself included."""
    found: set[str] = set()
    todo = ["app.js"]
    while todo:
        name = todo.pop()
        if name not in found:
            found.add(name)
            if name != FUNCTION_TABLES:  # made by the server, needs nothing
                todo += re.findall(r'from "\./([\w.]+)"', STATIC.joinpath(name).read_text())
    return found


def test_every_module_is_preloaded_and_nothing_else() -> None:
    named = re.findall(r'rel="modulepreload" href="static/([\w.]+)"', STATIC.joinpath("index.html").read_text())
    assert sorted(named) == sorted(modules())


def test_all_come_before_the_first_has_come(watched: Watched) -> None:
    page = watched.page
    held: list[Route] = []
    page.route("**/static/app.js", lambda asked: held.append(asked))
    seen: list[str] = []
    page.on("request", lambda request: seen.append(request.url.partition("/static/")[2]))
    page.goto(f"{watched.address}/", wait_until="commit")
    wanted = modules()
    comes(page, lambda: bool(held) and wanted <= set(seen))
    assert wanted <= set(seen), sorted(wanted - set(seen))
    for route in held:
        route.continue_()
    expect(page.get_by_text("Ask a question")).to_be_visible()
    assert sorted(name for name in seen if name in wanted) == sorted(wanted), "some came twice"
