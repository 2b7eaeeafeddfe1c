"""Find, hops, parts, endpoints and alerts."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from artimon.model.clock import SYSTEM_CLOCK
from tests.page.conftest import Opener
from tests.page.watched import Watched, answer_with, drawn

ALERTS: dict[str, Any] = {
    "engines": [{"id": "alerts-0", "time_ms": 0, "mail": {"pending": 2, "sent": 7, "problem": "connection refused"}}],
    "rules": [
        {"name": "endpoint down", "file": "a.yaml", "line": 3, "expr": "fetch('artimon.endpoint.up') < 1",
         "threshold": "< 1", "for_ms": 0, "state": "firing", "error": "", "duration_ms": 12, "receivers": ["ops"],
         "completeness": "99.2 % of expected points"},
        {"name": "broken", "file": "b.yaml", "line": 1, "expr": "fetch('none')", "threshold": None, "for_ms": 0,
         "state": "error", "error": "no variable is named none", "duration_ms": 1, "receivers": []},
    ],
    "alerts": [
        {"rule": "gone by", "labels": {}, "state": "resolved", "since_ms": 1, "fired_ms": 1, "resolved_ms": 2,
         "value": 1, "summary": "", "link": ""},
        {"rule": "soon", "labels": {"host": "b"}, "state": "pending", "since_ms": 1, "fired_ms": None,
         "resolved_ms": None, "value": None, "summary": "", "link": ""},
        {"rule": "endpoint down", "labels": {"context": "shop"}, "state": "firing", "since_ms": 1, "fired_ms": 1,
         "resolved_ms": None, "value": 0, "summary": "shop does not answer", "link": "javascript:alert(1)"},
    ],
    "truncated": 3, "problem": "", "problems": ["b.yaml:7:3: unknown key"],
}  # fmt: skip


def test_names_are_found_by_prefix_and_series_by_name(watched: Watched) -> None:
    page = watched.open()
    page.fill("#find-text", "host.disk.r")
    expect(page.locator("#find-list li").first).to_contain_text("host.disk.read.bytes")
    expect(page.locator("#find-count")).to_have_text("3 names")
    page.click('#find-list button:has-text("host.disk.reads")')
    row = page.locator("#find-list tbody tr").first
    expect(row).to_contain_text("integer")
    expect(row).to_contain_text("counter")
    series = row.locator("button.link").text_content() or ""
    row.get_by_role("button", name="rate").click()
    assert page.input_value("#query") == f"fetch('{series}').rate()"
    drawn(page)


def test_series_are_found_by_label(watched: Watched) -> None:
    page = watched.open()
    page.fill("#find-text", "host.c")
    page.select_option("#find-label", "mode")
    page.fill("#find-value", "idle")
    expect(page.locator("#find-list tbody tr").first).to_contain_text('mode="idle"')
    expect(page.locator("#find-list tbody tr", has_not_text='mode="idle"')).to_have_count(0)
    texts = page.locator("#find-list tbody button.link").all_text_contents()
    assert texts
    assert all(text.startswith("host.cpu.ms{") and 'mode="idle"' in text for text in texts)
    page.locator("#find-list tbody button.link").first.click()
    assert page.input_value("#query") == f"fetch('{texts[0]}')"
    drawn(page)


def test_enter_asks_again(watched: Watched) -> None:
    page = watched.open(find="host.disk.reads{}")
    expect(page.locator("#find-list tbody tr").first).to_be_visible()
    with page.expect_request(lambda request: "/api/find" in request.url):
        page.press("#find-text", "Enter")


def test_a_bad_selector_is_explained(watched: Watched) -> None:
    watched.may_refuse = True
    page = watched.open(find="host.load{a=1}")
    expect(page.locator("#find-problem")).not_to_be_empty()
    page.fill("#find-text", "nothing.like.it")
    expect(page.locator("#find-list")).to_contain_text("No name begins with")
    expect(page.locator("#find-problem")).to_be_empty()


def test_every_hop_has_count_and_lag(watched: Watched) -> None:
    page = watched.page
    with page.expect_response(lambda answer: "api/status" in answer.url) as came:
        watched.open(refresh="off")
    status = came.value.json()
    expect(page.locator(".hop")).to_have_count(len(status["hops"]))
    for hop, line in zip(status["hops"], page.locator(".hop").all(), strict=True):
        text = line.text_content() or ""
        assert hop["detail"] in text
        assert (hop["lag_ms"] is None) or "lag" in text
    names = page.locator("#parts tbody th").all_text_contents()
    assert names == [part["name"] for part in status["parts"]]
    assert page.locator("#parts tbody").text_content()


def test_a_sick_hop_and_problems_stand_out(watched: Watched) -> None:
    hop = {
        "name": "spark: to the shards",
        "count": 7,
        "unit": "ranges",
        "lag_ms": 300_000,
        "detail": "shards behind: 1",
        "healthy": False,
    }
    part = {
        "name": "shard-1",
        "state": "dead",
        "healthy": False,
        "pid": 0,
        "restarts": 3,
        "rss_mb": 0,
        "memory_mb": 1536,
        "uptime_s": 0,
        "ports": {},
        "problem": "ended with exit code 1",
        "figures": {},
    }
    answer_with(
        watched.page,
        "status",
        {"healthy": False, "parts": [part], "hops": [hop], "problems": ["shard-1: gone"], "shards": {}},
    )
    page = watched.open()
    expect(page.locator("#health")).to_have_text("2 problems")
    expect(page.locator("#problems")).to_contain_text("shard-1: gone")
    expect(page.locator(".hop.bad")).to_contain_text("lag 5 min")
    expect(page.locator("#parts")).to_contain_text("ended with exit code 1")


LONG = (
    "partition 3 of artimon.samples: Kafka deleted the offsets 18,446,744 to 18,446,999 before they were read; the "
    "shard refills from hdfs://namenode.dc1.example.org:8020/artimon/snapshots/"
    + "shard-1-" * 20
    + "; "
    + "it is tried again. " * 8
)


@pytest.mark.parametrize("width", [1440, 1000, 400])
def test_a_long_problem_of_a_part_is_read_in_lines(opener: Opener, width: int) -> None:
    """It has the width of the table: not that of its longest word, and it does not widen the page."""
    watched = opener(width=width, height=900)
    part = {
        "healthy": False,
        "pid": 1,
        "restarts": 3,
        "rss_mb": 900,
        "memory_mb": 1536,
        "uptime_s": 86_400,
        "figures": {},
    }
    parts = [
        {**part, "name": "collector-0", "state": "starting", "problem": LONG},
        {**part, "name": "shard-1", "state": "healthy", "healthy": True, "problem": ""},
    ]
    answer_with(
        watched.page, "status", {"healthy": False, "parts": parts, "hops": [], "problems": [LONG], "shards": {}}
    )
    page = watched.open(refresh="off")
    problem, table = page.locator("#parts .problem"), page.locator("#parts table")
    expect(problem).to_have_text(LONG)
    told, whole = problem.bounding_box(), table.bounding_box()
    assert told is not None
    assert whole is not None
    assert told["width"] > 0.95 * whole["width"]
    assert told["height"] < 18 * len(LONG) * 7 / told["width"] + 60
    card = page.locator("#parts").bounding_box()
    assert card is not None
    assert whole["width"] <= card["width"] + 1
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    for row in page.locator("#parts tbody th").all():
        box = row.bounding_box()
        assert box is not None
        assert box["height"] < 45, "a name or a state is not broken into letters"


def test_warnings_are_no_problems(watched: Watched) -> None:
    status = {
        "healthy": True,
        "parts": [],
        "hops": [],
        "problems": [],
        "warnings": ["api: serves anybody"],
        "shards": {},
    }
    answer_with(watched.page, "status", status)
    page = watched.open()
    expect(page.locator("#health")).to_have_text("1 warning")
    expect(page.get_by_role("list", name="Warnings")).to_contain_text("api: serves anybody")
    expect(page.get_by_role("list", name="Problems")).to_have_count(0)


def endpoint(page: Page, context: str, word: str, seconds: float) -> None:
    line = page.locator(".endpoint", has_text=context).first
    for _ in range(int(seconds)):
        if line.count() and word in (line.locator(".word").text_content() or "").split():
            return
        page.keyboard.press("r")
        page.wait_for_timeout(1000)
    expect(line).to_contain_text(word)


def test_a_killed_process_is_shown_down(watched: Watched, visitor: subprocess.Popen[bytes]) -> None:
    page = watched.open()
    endpoint(page, "visitor", "up", 60)
    visitor.kill()
    visitor.wait()
    endpoint(page, "visitor", "down", 60)
    expect(page.locator(".endpoint").first).to_contain_text("down")
    expect(page.locator("#down-chip")).to_contain_text("down")
    page.locator(".endpoint.bad", has_text="visitor").locator("button").click()
    assert 'artimon.endpoint.up{context="visitor"' in page.input_value("#query")


def test_endpoints_that_are_down_come_first(watched: Watched) -> None:
    now = SYSTEM_CLOCK.now_ms()
    made: list[dict[str, Any]] = [
        {
            "context": f"c{i}",
            "instance": str(i),
            "host": "h",
            "labels": {},
            "up": up,
            "since_ms": now - 600_000,
            "time_ms": now,
        }
        for i, up in enumerate([False, None, True])
    ]
    answer_with(watched.page, "endpoints", {"endpoints": made, "found": 3, "down": 1, "unknown": 1, "up": 1})
    page = watched.open()
    expect(page.locator("#endpoints-counts")).to_have_text("1 endpoint down, 1 up, 1 unknown")
    expect(page.locator(".endpoint").first).to_contain_text("10 min")
    expect(page.locator("#endpoints-pages")).to_be_hidden()


def test_firing_alerts_come_first(watched: Watched) -> None:
    answer_with(watched.page, "alerts", ALERTS)
    page = watched.open()
    expect(page.locator("#firing-chip")).to_have_text("1 firing")
    expect(page).to_have_title("(1) Artimon")
    states = page.locator(".alert .alert-when strong").all_text_contents()
    assert states == ["firing", "pending", "resolved"]
    for text in (
        "shop does not answer",
        "context=shop",
        "3 more",
        "2 waiting: connection refused",
        "b.yaml:7:3: unknown key",
    ):
        expect(page.locator("#alerts-body")).to_contain_text(text)
    page.click("#alerts summary")
    expect(page.locator(".rules")).to_contain_text("no variable is named none")
    expect(page.locator(".rules")).to_contain_text("99.2 % of expected points")
    page.click('.alert button:has-text("endpoint down")')
    assert page.input_value("#query") == "fetch('artimon.endpoint.up') < 1"
    assert not page.locator('a[href^="javascript"]').count()


@pytest.mark.parametrize(
    ("summary", "reason", "said"),
    [
        ("heat: no data, and the threshold is < 1", "no data", "heat: no data, and the threshold is < 1"),
        ("heat: no data, and the threshold is < 1", "no data for 1 h", "no data for 1 h, and the threshold is < 1"),
        ("the room is silent", "no data", "heat no datathe room is silent"),
        ("", "", "heat no data"),
        ("heat: no data", "the source says that the series ended", "the source says that the series ended"),
    ],
)
def test_no_data_is_said_once(watched: Watched, summary: str, reason: str, said: str) -> None:
    alert = {"rule": "heat", "labels": {}, "state": "firing", "since_ms": 1, "fired_ms": 1, "resolved_ms": None,
             "value": None, "reason": reason, "summary": summary, "link": ""}  # fmt: skip
    answer_with(watched.page, "alerts", {**ALERTS, "alerts": [alert]})
    line = watched.open().locator(".alert .alert-main")
    expect(line).to_contain_text(said)
    text = line.text_content() or ""
    assert text.count("no data") == 1
    assert "missing" not in text


def test_it_is_shown_who_takes_care_of_an_alert(watched: Watched) -> None:
    alert = {**ALERTS["alerts"][2], "silenced_by": ["s-1", "s-2"], "inhibited_by": ["x"],
             "acknowledged": {"author": "ana", "comment": "<b>on it</b>", "until_ms": 0}}  # fmt: skip
    answer_with(watched.page, "alerts", {**ALERTS, "alerts": [alert]})
    line = watched.open().locator(".alert .alert-main")
    for text in ("Silenced by s-1, s-2", "Muted by another alert", "Acknowledged by ana: <b>on it</b>"):
        expect(line).to_contain_text(text)


def test_no_engine_of_alerts_is_said(watched: Watched) -> None:
    answer_with(
        watched.page, "alerts", {"engines": [], "rules": [], "alerts": [], "truncated": 0, "problem": "no engine runs"}
    )
    expect(watched.open().locator("#alerts-body")).to_have_text("no engine runs")


def test_rules_of_the_engine_that_runs_are_listed(watched: Watched) -> None:
    page = watched.open()
    summary = page.locator("#alerts summary")
    expect(summary).to_contain_text("evaluated", timeout=120_000)
    with page.expect_response(lambda answer: "api/alerts" in answer.url) as came:
        page.keyboard.press("r")
    summary.click()
    rules = came.value.json()["rules"]
    assert rules
    for rule, line in zip(rules, page.locator(".rules li").all(), strict=True):
        for text in (rule["name"], rule["state"], rule["expr"], f"{rule['file']}:{rule['line']}"):
            expect(line).to_contain_text(text)
    expect(page.locator("#alerts-body")).to_contain_text("Mail: ")
