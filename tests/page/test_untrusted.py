"""Names, labels, values and messages come from others: none of them may become part of the page."""

from __future__ import annotations

import subprocess
import urllib.request
from typing import Any

from playwright.sync_api import Page, expect

from tests.page.watched import Watched, answer_with, drawn, matrix

EVIL = "<img src=x onerror=alert(1)>"


def harmless(page: Page) -> None:
    assert page.locator("img").count() == 0
    assert page.evaluate("() => document.querySelectorAll('[onerror], script:not([src])').length") == 0


def test_a_label_value_of_an_application_stays_text(watched: Watched, visitor: subprocess.Popen[bytes]) -> None:
    page = watched.open(find="page.visits{}")
    found = page.locator("#find-list button.link", has_text="page.visits")
    for _ in range(90):  # until a poll of it is in memory
        if found.count():
            break
        page.wait_for_timeout(1000)
        page.press("#find-text", "Enter")
    expect(found.first).to_contain_text(EVIL)
    found.first.click()
    assert EVIL in page.input_value("#query")
    harmless(page)


def test_nothing_of_any_answer_becomes_markup(watched: Watched) -> None:
    watched.may_refuse = True
    page = watched.page
    evil = {"labels": {"a": EVIL}, "values": [1.0, 2.0]}
    series: list[dict[str, Any]] = [
        evil,
        {"name": EVIL, "labels": {"a": "b"}, "values": [1.0, 3.0]},
        {"type": "STRING", "values": [EVIL, EVIL]},
    ]
    answer_with(page, "query", matrix(series, notes=[EVIL]))
    hop = {"name": EVIL, "count": 1, "unit": EVIL, "lag_ms": 1, "detail": EVIL, "healthy": False}
    part = {
        "name": EVIL,
        "state": EVIL,
        "healthy": False,
        "restarts": 1,
        "rss_mb": 1,
        "memory_mb": 2,
        "uptime_s": 1,
        "problem": EVIL,
    }
    answer_with(
        page,
        "status",
        {"healthy": False, "parts": [part], "hops": [hop], "problems": [EVIL], "shards": {}, "stack": EVIL},
    )
    one = {
        "context": EVIL,
        "instance": EVIL,
        "host": EVIL,
        "labels": {"x": EVIL},
        "up": False,
        "since_ms": 1,
        "time_ms": 1,
    }
    answer_with(page, "endpoints", {"endpoints": [one], "found": 1, "down": 1, "unknown": 0, "up": 0})
    alert = {
        "rule": EVIL,
        "labels": {EVIL: EVIL},
        "state": "firing",
        "since_ms": 1,
        "fired_ms": 1,
        "resolved_ms": None,
        "value": EVIL,
        "summary": EVIL,
        "link": EVIL,
    }
    rule = {
        "name": EVIL,
        "file": EVIL,
        "line": 1,
        "expr": EVIL,
        "state": EVIL,
        "error": EVIL,
        "duration_ms": 1,
        "receivers": [EVIL],
    }
    engine = {"id": EVIL, "time_ms": 1, "mail": {"pending": 1, "sent": 1, "problem": EVIL}}
    answer_with(
        page,
        "alerts",
        {"engines": [engine], "rules": [rule], "alerts": [alert], "problems": [EVIL], "truncated": 0, "problem": EVIL},
    )
    answer_with(page, "names", {"names": [EVIL], "truncated": False})
    answer_with(page, "labels", {"labels": [EVIL]})
    watched.open("fetch('heat')")
    drawn(page)
    expect(page.locator("#notes")).to_contain_text(EVIL)
    expect(page.locator("#find-list")).to_contain_text(EVIL)
    page.hover("#chart .u-over")
    page.focus("#query")
    page.keyboard.press("End")
    page.fill("#query", "fetch('")
    page.keyboard.press("Control+Space")
    expect(page.locator("#suggestions")).to_contain_text(EVIL)
    harmless(page)
    page.keyboard.press("Escape")
    page.get_by_role("tab", name="Table").click()
    expect(page.locator("#table")).to_contain_text(EVIL)
    harmless(page)
    error = {"error": {"message": EVIL, "position": 0, "length": 3}}
    page.unroute("**/api/query*")
    page.route("**/api/query*", lambda asked: asked.fulfill(status=400, json=error))
    page.fill("#query", EVIL)
    page.press("#query", "Enter")
    expect(page.locator("#error p")).to_have_text(EVIL)
    harmless(page)


def test_the_page_may_run_its_own_files_only(address: str) -> None:
    with urllib.request.urlopen(f"{address}/", timeout=20) as answer:
        policy = answer.headers["content-security-policy"]
        page = answer.read().decode()
    assert "default-src 'self'" in policy
    assert "unsafe" not in policy
    for text in ("style=", "onclick", "javascript:", "http://", "https://"):
        assert text not in page
