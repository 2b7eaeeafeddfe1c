"""Pages of the fleet, the variables, the cardinality and the running queries over the real stack."""

from __future__ import annotations

from playwright.sync_api import expect

from tests.page.watched import Watched

REPORT_MS = 120_000
"""Time until every process of a new stack was polled and listed."""


def test_the_fleet_of_the_stack(watched: Watched) -> None:
    page = watched.page
    page.goto(f"{watched.address}/fleet")
    for role in ("agent", "api", "collector", "shard", "spark"):
        expect(page.locator("#roles")).to_contain_text(role, timeout=REPORT_MS)
    row = page.locator("#list tbody tr", has=page.get_by_role("rowheader", name="agent")).first
    expect(row.locator("td").nth(2)).not_to_have_text("–")  # its version
    expect(row.locator("td").nth(3)).not_to_have_text("–")  # its lag
    expect(page.locator("#configuration")).to_contain_text("1 agent")
    expect(page.locator("#configuration .problems")).to_have_count(0)
    expect(page.locator("#problem")).to_be_empty()


def test_a_variable_of_the_stack(watched: Watched) -> None:
    page = watched.page
    page.goto(f"{watched.address}/variables?filter=host.cpu+mode=idle&range=15m")
    page.get_by_role("link", name="host.cpu.ms").click()
    expect(page.locator("#chart canvas")).to_be_visible()
    expect(page.locator("#facts")).to_contain_text("counter, integer")
    expect(page.locator("#facts")).to_contain_text("on 1 host")
    expect(page.locator("#labels tr", has_text="mode")).to_contain_text("idle")
    expect(page.locator("#since")).not_to_have_text("…")


def test_the_cardinality_of_the_stack(watched: Watched) -> None:
    page = watched.page
    page.goto(f"{watched.address}/cardinality?view=values&filter=mode=idle&top=100")
    expect(page.locator("#total")).to_contain_text("series")
    page.get_by_role("link", name="Names").click()
    page.locator("#filter").fill("host.")
    page.locator("tbody a").first.click()
    expect(page.locator("#detail pre")).to_contain_text('action: "drop"')
    expect(page.locator("#grown")).to_contain_text("memory does not hold a day")
    page.goto(f"{watched.address}/queries")
    expect(page.locator("#list")).to_contain_text("No query runs or waits now")
