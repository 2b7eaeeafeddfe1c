"""The table has the values of the API, in full."""

from __future__ import annotations

import json
import subprocess
import urllib.request
from datetime import datetime

from playwright.sync_api import Page, Response, expect

from tests.page.watched import CPU, Watched, answer_with, matrix, racks


def shown_rows(page: Page) -> list[list[str]]:
    """Series and values of the page of the table that is shown."""
    script = """() => [...document.querySelectorAll("#table tbody tr")].map((row) =>
      [row.querySelector("th"), ...[...row.querySelectorAll("td")].slice(1)].map((cell) => cell.textContent))"""
    found: list[list[str]] = page.evaluate(script)
    return found


def expected(answer: Response) -> list[list[str]]:
    """The same out of the API's answer: the newest ten values, newest first."""
    texts = []
    for one in answer.json()["series"]:
        pairs = ",".join(f'{key}="{value}"' for key, value in sorted(one["labels"].items()))
        newest = list(reversed(one["values"]))[:10]
        texts.append([f"{one['name']}{{{pairs}}}", *map(text_of, newest)])
    return texts


def text_of(value: float | int | None) -> str:
    """As JavaScript writes it."""
    if value is None:
        return "–"
    return str(int(value)) if float(value).is_integer() else repr(value)


def test_it_has_the_values_of_the_api(watched: Watched) -> None:
    page = watched.page
    with page.expect_response(lambda answer: "api/query" in answer.url) as came:
        watched.open(CPU, view="table", refresh="off")
    expect(page.locator("#table tbody tr").first).to_be_visible()
    assert shown_rows(page) == expected(came.value)
    expect(page.locator("#panel-chart")).to_be_hidden()


def test_it_is_paged_both_ways(watched: Watched) -> None:
    answer_with(watched.page, "query", matrix(racks(120, 25)))
    page = watched.open("fetch('heat')", view="table")
    expect(page.locator("#table-tools")).to_contain_text("1–50 of 120 series")
    assert len(shown_rows(page)) == 50
    page.get_by_role("button", name="Next series").click()
    page.get_by_role("button", name="Next series").click()
    assert shown_rows(page)[0][0] == 'heat{rack="r100"}'
    page.get_by_role("button", name="Next points").click()
    page.get_by_role("button", name="Next points").click()
    assert shown_rows(page)[0] == ['heat{rack="r100"}', "104", "103", "102", "101", "100"]
    page.get_by_role("button", name="In order of series").click()
    assert shown_rows(page)[0][0] == 'heat{rack="r119"}'


def test_types_are_kept_exactly(watched: Watched) -> None:
    body = json.dumps(
        matrix(
            [
                {"labels": {"a": "1"}, "type": "INTEGER", "values": [2**53 + 1, -(2**63)]},
                {"labels": {"a": "2"}, "type": "BOOLEAN", "values": [True, False]},
                {"labels": {"a": "3"}, "type": "STRING", "values": ["x y", None]},
                {"labels": {"a": "4"}, "values": ["NaN", "-Infinity"]},
            ]
        )
    )
    watched.page.route("**/api/query*", lambda asked: asked.fulfill(body=body, content_type="application/json"))
    page = watched.open("fetch('heat')", view="table")
    expect(page.locator("#table tbody tr")).to_have_count(4)
    assert [row[1:] for row in shown_rows(page)] == [
        [str(-(2**63)), str(2**53 + 1)], ["false", "true"], ["–", "x y"], ["-Infinity", "NaN"]
    ]  # fmt: skip
    page.get_by_role("tab", name="Chart").click()
    expect(page.locator("#legend-note")).to_contain_text("1 series of texts: see the table")


def test_csv_and_curl_ask_the_same(watched: Watched) -> None:
    page = watched.open(CPU)
    expect(page.locator("#csv")).to_be_visible()
    link = page.evaluate("() => document.getElementById('csv').href")
    with urllib.request.urlopen(link, timeout=20) as answer:
        assert answer.headers["content-type"].startswith("text/csv")
        assert len(answer.read().splitlines()) > 2
    watched.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.click("#curl")
    expect(page.locator("#curl")).to_have_text("Copied")
    command = page.evaluate("() => navigator.clipboard.readText()")
    done = subprocess.run(["/bin/sh", "-c", command], capture_output=True, check=True, timeout=30)
    assert json.loads(done.stdout)["series"]


def test_buckets_of_a_calendar_have_their_own_ends(watched: Watched) -> None:
    """A day of 23 hours: the ends are those of the answer, not multiples of a step."""
    days = ["2026-03-27T23:00:00Z", "2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z"]
    start, *ends = (int(datetime.fromisoformat(day).timestamp() * 1000) for day in days)
    grid = {"start_ms": start, "end_ms": ends[-1], "step_ms": 0, "n": 2, "ends_ms": ends}
    answer_with(watched.page, "query", {**matrix([{"values": [1.0, 2.0]}]), "grid": grid})
    page = watched.open("fetch('heat')", view="table")
    expect(page.locator("#summary")).to_contain_text("2 points of a calendar")
    shown = page.locator("#table thead time").evaluate_all("all => all.map((one) => one.dateTime.slice(0, 16))")
    assert shown == ["2026-03-29T22:00", "2026-03-28T23:00"]
    page = watched.open("fetch('heat')", view="chart")
    expect(page.locator("#panel-chart canvas").first).to_be_visible()
