"""Endpoints of a company: pages, filter and counts, over an API with 20,160 of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, expect

from artimon.api.endpoint_states import UP
from artimon.model.select import Buckets, SelectRequest, Series
from artimon.model.values import Kind, ValueType
from tests.api.serving import Client, minutes, served
from tests.page.watched import Watched
from tests.query_dsl.plain_store import PlainStore

HOSTS, PER_HOST = 2_880, 7
STATES = [0] * 150 + [1] * 10 + [2] * (HOSTS * PER_HOST - 160)
"""Row of each endpoint in `states`: 150 are down, 10 unknown, 20,000 up."""


def states() -> PlainStore:
    """Store with one endpoint in each state."""
    store = PlainStore()
    for i, (value, last) in enumerate([(0, 0), (1, 20), (1, 0)]):
        store.add(UP, {"context": f"{i}"}, minutes([value], last=last), Kind.GAUGE)
    return store


class Company(PlainStore):
    """Store of HOSTS * PER_HOST endpoints, whose cells are those of `states`."""

    def select(self, request: SelectRequest) -> Buckets:
        found, rows = states().select(request), np.array(STATES)
        series = tuple(
            Series(i, UP, {"context": f"shop{i % PER_HOST}", "host": f"h{i // PER_HOST}", "rack": f"r{i % 40}"},
                   ValueType.INTEGER, Kind.GAUGE)
            for i in range(len(rows))
        )  # fmt: skip
        return replace(
            found,
            series=series,
            statistics={name: values[rows] for name, values in found.statistics.items()},
            births=found.births[:0],
            ended_ms=found.ended_ms[rows],
            newest_ms=found.newest_ms[rows],
        )


@pytest.fixture(scope="module")
def api() -> Iterator[Client]:
    with served(Company()) as client:
        yield client


@pytest.fixture
def page(browser: Browser, api: Client) -> Iterator[Page]:
    watched = Watched(browser, f"http://127.0.0.1:{api.port}", "light", 1440, 900)
    yield watched.open()
    watched.close()


def test_pages_and_counts(page: Page) -> None:
    lines, where = page.locator(".endpoint"), page.locator("#endpoints-range")
    expect(page.locator("#endpoints-counts")).to_have_text("150 endpoints down, 20,000 up, 10 unknown")
    expect(page.locator("#down-chip")).to_have_text("150 down")
    expect(where).to_have_text("1 to 100 of 20,160")
    expect(lines).to_have_count(100)
    expect(page.get_by_role("button", name="Back")).to_be_disabled()
    page.get_by_role("button", name="Next").click()
    expect(where).to_have_text("101 to 200 of 20,160")
    expect(lines.nth(49)).to_contain_text("down")
    expect(lines.nth(50)).to_contain_text("unknown")
    expect(lines.nth(60)).to_contain_text("up")
    page.get_by_role("button", name="Back").click()
    expect(where).to_have_text("1 to 100 of 20,160")


def test_a_filter_begins_at_its_first_page(page: Page) -> None:
    lines, where = page.locator(".endpoint"), page.locator("#endpoints-range")
    page.get_by_role("button", name="Next").click()
    expect(where).to_have_text("101 to 200 of 20,160")
    page.fill("#endpoints-text", "SHOP3 rack=r7")
    expect(lines).to_have_count(72)
    expect(where).to_be_hidden()
    page.fill("#endpoints-text", "shop3")
    page.select_option("#endpoints-state", "up")
    expect(where).to_contain_text("1 to 100 of 2,8")
    page.fill("#endpoints-text", "host=h2879 shop6")
    expect(lines).to_have_count(1)
    expect(page.locator("#endpoints-counts")).to_contain_text("20,000 up")
    page.fill("#endpoints-text", "nowhere")
    expect(page.locator("#endpoints-body")).to_have_text("No endpoint fits.")
    expect(page.locator("#endpoints-text")).to_be_focused()
