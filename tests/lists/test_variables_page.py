"""Page of the variables: search by meaning, what is known of one variable, its chart, links to Explore."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from artimon.access.authenticator import Authenticator
from tests.lists.conftest import MARK, Opener, findings, serving
from tests.lists.counted_store import counted_store
from tests.page.watched import save_picture


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with serving(counted_store()) as found:
        yield found


def charted(page: Page) -> None:
    """Wait until the chart is drawn."""
    expect(page.locator("#chart canvas")).to_be_visible()
    expect(page.locator("#legend tbody tr").first).to_be_visible()


def test_a_counter_is_found_by_its_help_and_drawn_as_a_rate(opener: Opener, address: str) -> None:
    page = opener(address, "variables")
    page.keyboard.press("/")
    page.keyboard.type("answered context=shop")
    expect(page.locator("#count")).to_have_text("1 variable")
    page.locator("#list a").press("Enter")
    charted(page)
    expect(page.locator("#query")).to_have_text("fetch('http.requests').rate().sum(by=[])")
    facts = page.locator("#facts")
    expect(facts).to_contain_text("counter, double")
    expect(facts).to_contain_text("shop on 10 hosts")
    expect(facts).to_contain_text("10 reported in the last full hour")
    expect(page.locator("#since")).not_to_contain_text("before")  # two days of three that memory holds
    expect(page.locator("#labels tr", has_text="host")).to_contain_text("10h0, h1, h2, h3, h4")
    expect(page.locator("#legend tbody")).to_contain_text("/s")
    page.locator("#by").select_option("host")
    expect(page.locator("#legend tbody tr")).to_have_count(10)
    save_picture(page, "variables")
    assert "by=host" in page.url
    page.reload()
    expect(page.locator("#legend tbody tr")).to_have_count(10)
    page.locator("#chart").focus()
    page.keyboard.press("ArrowLeft")
    expect(page.locator("#live")).to_contain_text("host=")
    page.keyboard.press("t")
    expect(page.locator("#table tbody tr")).to_have_count(10)
    page.get_by_role("link", name="Open in Explore").press("Enter")
    expect(page.locator("#query")).to_have_value("fetch('http.requests').rate().sum(by=[\"host\"])")


@pytest.mark.parametrize(
    ("name", "query"),
    [
        ("host.load", "fetch('host.load').mean(by=[])"),
        ("http.seconds.bucket", "fetch('http.seconds.bucket').rate().histogram_quantile(0.9, by=[])"),
    ],
)
def test_a_gauge_is_drawn_as_a_mean_and_a_histogram_as_a_quantile(
    opener: Opener, address: str, name: str, query: str
) -> None:
    page = opener(address, f"variables?name={name}")
    charted(page)
    expect(page.locator("#query")).to_have_text(query)
    page.locator("#how").select_option(index=2)
    charted(page)
    expect(page.locator("#query")).not_to_have_text(query)
    expect(page.locator("#chart-problem")).to_be_empty()


def test_a_text_is_a_table_and_an_unknown_name_says_so(opener: Opener, address: str) -> None:
    page = opener(address, "variables?name=shop.version")
    expect(page.locator("#table tbody tr")).to_have_count(1)
    expect(page.locator("#table tbody")).to_contain_text("onerror")
    page.goto(f"{address}/variables?name=gone")
    expect(page.locator("#variable-problem")).to_have_text("Memory holds no series of this variable.")
    page.locator("#filter").fill("no such thing")
    expect(page.locator("#list")).to_contain_text("No variable fits every word")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_is_accessible_and_texts_are_text(opener: Opener, address: str, scheme: str) -> None:
    page = opener(address, "variables?filter=odd", scheme=scheme)
    expect(page.get_by_role("link", name=f"odd.{MARK}")).to_be_visible()
    page.get_by_role("link", name="odd.value").click()
    charted(page)
    expect(page.locator("#facts")).to_contain_text(MARK)
    expect(page.locator("#labels")).to_contain_text("onerror")
    assert page.locator("img").count() == 0
    assert findings(page) == []
    page.get_by_role("button", name="Table").click()
    assert findings(page) == []
    page.locator("#labels a", has_text="onerror").click()
    expect(page.locator("#chart canvas")).to_be_visible()


def test_each_role_sees_its_series(opener: Opener, access: Authenticator) -> None:
    """The role of sam sees the series with route="/a" only: none of them."""
    with serving(counted_store(), access) as address:
        for user in ("vera", "eddie", "ada"):
            charted(opener(address, "variables?name=host.load", user=user))
        page = opener(address, "variables?name=host.load", user="sam")
        expect(page.locator("#list")).to_contain_text("No variable has arrived yet")
        expect(page.locator("#variable-problem")).to_contain_text("holds no series")


@pytest.mark.parametrize("path", ["queries", "cardinality?of=host.load", "fleet", "variables?name=host.load"])
def test_nothing_is_cut_off_in_a_small_window(opener: Opener, address: str, path: str) -> None:
    page = opener(address, path, width=360)
    expect(page.locator("#age")).to_contain_text("ago")
    assert page.evaluate("() => document.documentElement.scrollWidth") <= 360
