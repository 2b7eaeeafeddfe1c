"""Page of the cardinality: what has most series, its growth in a day, and rules that agents take."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from artimon.access.authenticator import Authenticator
from sources.scrape.sources_file import read_sources
from sources.state.relabel import RelabelRules
from tests.api.serving import small_store
from tests.lists.conftest import MARK, Opener, findings, serving
from tests.lists.counted_store import ODD, counted_store
from tests.page.watched import save_picture


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with serving(counted_store()) as found:
        yield found


def chosen(page: Page, entry: str) -> None:
    """Choose an entry by keyboard and wait for its rule."""
    page.locator("tbody").get_by_role("link", name=entry, exact=True).press("Enter")
    expect(page.locator("#detail h3")).to_have_text(entry)


def remaining(page: Page, folder: Path, name: str, labels: dict[str, str]) -> tuple[str, dict[str, str]] | None:
    """Return a series after the rule of the page, read as an agent reads it."""
    file = folder / "sources.yaml"
    file.write_text(f"relabel:\n  {page.locator('#detail pre').inner_text()}\n")
    return RelabelRules(read_sources(file).rules).apply(name, labels, Counter())


def test_a_variable_with_its_growth_and_the_rule_that_drops_it(opener: Opener, address: str, tmp_path: Path) -> None:
    page = opener(address, "cardinality")
    row = page.locator("tbody tr", has_text="http.requests")
    expect(row).to_contain_text("+4")
    expect(row).to_contain_text("38.5 %")
    chosen(page, "http.requests")
    expect(page.locator("#grown")).to_have_text("10 in the last hour, 6 a day before (+4)")
    page.locator("#filter").fill("h")
    expect(page.locator("tbody tr")).to_have_count(4)
    save_picture(page, "cardinality")
    assert remaining(page, tmp_path, "http.requests", {"a": "b"}) is None
    assert remaining(page, tmp_path, "httpxrequests", {"a": "b"}) == ("httpxrequests", {"a": "b"})
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy rule").press("Enter")
    expect(page.locator("#live")).to_have_text("Copied")
    assert page.evaluate("navigator.clipboard.readText()") == page.locator("#detail pre").inner_text()
    page.reload()
    expect(page.locator("#detail h3")).to_have_text("http.requests")


def test_the_growth_of_a_hundred_long_names(opener: Opener) -> None:
    """They do not fit into the expression of one query."""
    store = counted_store()
    (sample,) = [one for one in store.series if one.labels.get("host") == "h0" and one.name == "host.load"]
    store.series += [replace(sample, name=f"{'long.' * 9}{number:03}") for number in range(90)]
    with serving(store) as address:
        page = opener(address, "cardinality?top=100&filter=long.")
        rows = page.locator("tbody tr")
        expect(rows).to_have_count(90)
        expect(rows.last).to_contain_text("+0")
        expect(rows.filter(has_text="–")).to_have_count(0)


def test_labels_and_values(opener: Opener, address: str, tmp_path: Path) -> None:
    page = opener(address, "cardinality?view=labels")
    expect(page.locator("tbody tr")).to_have_count(5)  # without __name__
    chosen(page, "host")
    expect(page.locator("#detail")).to_contain_text("same series twice")
    assert remaining(page, tmp_path, "x", {"host": "a", "b": "c"}) == ("x", {"b": "c"})
    page.get_by_role("link", name="Label values").click()
    expect(page.locator("#detail-body")).to_contain_text("Choose an entry")
    page.locator("#filter").fill("ODD=")
    expect(page.locator("tbody tr")).to_have_count(1)
    chosen(page, f"odd={ODD}")
    expect(page.locator("#grown")).to_contain_text("1 in the last hour")
    assert remaining(page, tmp_path, "x", {"odd": ODD}) is None
    assert remaining(page, tmp_path, "x", {"odd": "aaa"}) is not None
    page.go_back()
    expect(page).to_have_url(f"{address}/cardinality?view=values&filter=ODD%3D")
    chosen(page, f"odd={ODD}")
    page.get_by_role("link", name="Variables that have this value").click()
    expect(page.locator("#legend, #table")).not_to_have_count(0)
    expect(page.locator("#error p")).to_have_count(0)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_is_accessible_and_texts_are_text(opener: Opener, address: str, scheme: str) -> None:
    page = opener(address, f"cardinality?of=odd.{MARK}", scheme=scheme)
    expect(page.locator("tbody")).to_contain_text("onerror")
    expect(page.locator("#detail pre")).to_contain_text("onerror")
    assert page.locator("img").count() == 0
    assert findings(page) == []
    page.get_by_role("link", name="Labels", exact=True).click()
    assert findings(page) == []


def test_each_role(opener: Opener, access: Authenticator) -> None:
    with serving(counted_store(), access) as address:
        for user in ("vera", "eddie", "ada"):
            expect(opener(address, "cardinality", user=user).locator("tbody tr").first).to_be_visible()
        page = opener(address, "cardinality", user="sam")
        expect(page.locator("#problem")).to_contain_text("sees a part of them only")


def test_a_store_that_does_not_count_says_so(opener: Opener) -> None:
    with serving(small_store()) as address:
        expect(opener(address, "cardinality").locator("#problem")).to_contain_text("does not count its series")
