"""The site of the documents builds without a broken link, needs no network, and names every command and variable."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.chromium import chromium
from tests.docs.test_architecture import ROOT

PRODUCT = ("artimon", "bookkeeper", "sources", "pipeline", "varstore", "query_dsl", "alerts")
VARIABLE = re.compile(r"ARTIMON_[A-Z][A-Z_]*[A-Z]")
PREFIXES = {"ARTIMON_KAFKA"}
BUILD = re.compile(r'exec "\$python" -m (mkdocs build .*?) --config-file scripts/site/mkdocs.yml')
"""Command of ./scripts/docs that builds the site."""


def build_command(config: Path | str) -> list[str]:
    """Return the command of ./scripts/docs for a configuration of mkdocs."""
    found = BUILD.search((ROOT / "scripts" / "docs").read_text())
    assert found is not None
    return [sys.executable, "-m", *found[1].split(), "--config-file", str(config)]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as ./scripts/docs does."""
    folder = tmp_path_factory.mktemp("site")
    command = [*build_command("scripts/site/mkdocs.yml"), "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return folder


def test_a_broken_link_fails_the_build(tmp_path: Path) -> None:
    """./scripts/docs exits with an error that names the page and the link."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text("# Home\n\n[gone](nowhere.md)\n")
    config = tmp_path / "mkdocs.yml"
    config.write_text("site_name: one page\n")
    command = [*build_command(config), "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode != 0
    assert "'index.md' contains a link 'nowhere.md'" in done.stderr


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Print nothing."""


@pytest.fixture
def address(site: Path) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(site)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_every_document_is_a_page(site: Path) -> None:
    names = {path.relative_to(ROOT / "docs").with_suffix(".html") for path in (ROOT / "docs").rglob("*.md")}
    assert {name for name in names if not (site / name).is_file()} == set()


def test_every_command_is_in_the_reference(site: Path) -> None:
    text = (site / "reference/cli.html").read_text()
    assert all(f"artimon {name}" in text for name in ("up", "query", "config push", "topics check", "shard"))
    assert "--replication" in text


def test_every_environment_variable_is_documented() -> None:
    sources = [path.read_text() for name in PRODUCT for path in (ROOT / name).rglob("*.py")]
    read = {name for text in sources for name in VARIABLE.findall(text)} - PREFIXES
    pages = "".join((ROOT / "docs" / name).read_text() for name in ("environment.md", "bookkeeper.md"))
    assert read - set(VARIABLE.findall(pages)) == set()


@pytest.mark.stack  # a browser
def test_a_reader_finds_a_page_and_nothing_comes_from_elsewhere(address: str) -> None:
    with chromium() as browser:
        page = browser.new_page()
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.goto(f"{address}/index.html")
        for section in ("Tutorials", "How-to guides", "Reference", "Explanation"):
            expect(page.locator("nav.md-nav--primary").get_by_text(section, exact=True).first).to_be_attached()
        page.goto(f"{address}/tutorials/first_alert.html")
        expect(page.locator("h1")).to_contain_text("A first alert")
        page.locator("input.md-search__input").click()
        page.keyboard.type("rendezvous")
        expect(page.locator(".md-search-result__item").first).to_be_visible(timeout=20_000)
    assert [url for url in asked if not url.startswith((address, "data:", "blob:"))] == []
