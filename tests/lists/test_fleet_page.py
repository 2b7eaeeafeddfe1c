"""Page of the fleet: state, version, lag and last report of each process; filters, pages, roles of users."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from playwright.sync_api import expect

from artimon.access.authenticator import Authenticator
from artimon.api.fleet_status import FleetPage, FleetStatus, ProcessStatus
from tests.api.serving import small_store
from tests.lists.conftest import MARK, Opener, findings, serving
from tests.page.watched import PICTURES, save_picture

OTHERS = ("alerts", "api", "collector", "compactor", "shard", "spark")


def fleet(hostile: bool = True) -> FleetStatus:
    """Return 240 agents, of which one is missing and one lags, and one process of each other role."""
    now_ms = int(time.time() * 1000)

    def make(role: str, at: int, state: str = "up", problem: str = "", lag_ms: int | None = 900) -> ProcessStatus:
        version = "1.1" if at == 2 else "1.0"
        seen_ms = now_ms - (600_000 if problem else 20_000)
        return ProcessStatus(
            role, f"h{at:03}", f"{role}-0", version, state, problem, seen_ms, 7_200_000, 90 << 20, lag_ms
        )

    found = [
        make("agent", 7, "missing", "does not answer its agent for 600 s", None),
        make("agent", 9, "failing", f"its oldest batch is not acked for 151 s{MARK * hostile}", 151_000),
    ]
    found += [make("agent", at) for at in range(240) if at not in (7, 9)]
    return FleetStatus([*found, *(make(role, 0, lag_ms=None) for role in OTHERS)])


def status(page: FleetPage) -> Mapping[str, Any]:
    whole = fleet()
    return {"healthy": not whole.problems, "fleet": whole.to_json(page=page)}


def configuration() -> Mapping[str, Any]:
    pushed = {"version": "group/default@4", "made_ms": int(time.time() * 1000), "by": "ana", "note": MARK, "source": 2}
    running = [{"version": "group/default@4", "agents": 239}, {"version": "group/default@3", "agents": 1}]
    refused = [{"agent": "h009", "reason": f"flow access does not start {MARK}"}]
    found = {"agents": 240, "pushed": [pushed], "running": running, "trials": 3, "refused": refused, "refusals": 2}
    return {**found, "problem": ""}


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with serving(small_store(), status=status, configuration=configuration) as found:
        yield found


def test_who_is_missing_and_who_lags(opener: Opener, address: str) -> None:
    page = opener(address, "fleet")
    rows = page.locator("#list tbody tr")
    expect(rows.first).to_contain_text("h007missing1.0–90 MiB2 h10 min ago")
    expect(rows.nth(2)).to_contain_text("failing1.03 min")
    expect(page.locator("#problems")).to_contain_text("agent-0 on h007: does not answer its agent for 600 s")
    expect(page.locator("#problems")).to_contain_text("versions differ: 1.0 (244), 1.1 (1)")
    expect(page.locator("#roles tr", has_text="agent")).to_contain_text("1 missing")
    expect(page.locator("#configuration")).to_contain_text("h009 refuses: flow access does not start")
    expect(page.locator("#configuration")).to_contain_text("240 agents, 3 on trial")
    expect(page.locator("#configuration tr", has_text="@3")).to_contain_text("1")
    expect(page.locator("#configuration")).to_contain_text("(rollback to 2)")
    if PICTURES:
        told = json.loads(json.dumps(configuration()).replace(json.dumps(MARK)[1:-1], "poll faster"))
        page.route("**/api/configuration", lambda asked: asked.fulfill(json=told))
        clean = {"fleet": fleet(hostile=False).to_json(limit=100), "healthy": False}
        page.route("**/api/status*", lambda asked: asked.fulfill(json=clean))
        page.keyboard.press("r")
        expect(page.locator("main")).not_to_contain_text("onerror")
        save_picture(page, "fleet")
        page.unroute("**/api/status*")
    page.keyboard.press("m")
    expect(rows).to_have_count(2)
    assert page.url.endswith("fleet?state=missing")
    expect(page.locator("#state")).to_have_value("missing")
    page.keyboard.press("m")
    page.locator("#roles").get_by_role("link", name="shard").press("Enter")
    expect(rows).to_have_count(1)
    page.reload()
    expect(page.locator("#role")).to_have_value("shard")
    expect(rows).to_have_count(1)


def test_a_long_list_is_filtered_and_comes_in_pages(opener: Opener, address: str) -> None:
    page = opener(address, "fleet?role=agent&offset=900")
    expect(page.locator("#pager")).to_contain_text("201 to 240 of 240")  # the last page
    page.get_by_role("button", name="Page before").press("Enter")
    expect(page.locator("#pager")).to_contain_text("101 to 200 of 240")
    assert "offset=100" in page.url
    page.keyboard.press("/")
    page.keyboard.type("H00 1.1")
    expect(page.locator("#list tbody tr")).to_have_count(1)
    expect(page.locator("#list tbody .mark.warn")).to_have_count(1)  # not the version of most
    expect(page.locator("#pager button")).to_have_count(0)
    page.locator("#filter").fill("nobody")
    expect(page.locator("#list")).to_contain_text("No process fits")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_is_accessible_and_texts_are_text(opener: Opener, address: str, scheme: str) -> None:
    page = opener(address, f"fleet?role=agent&state={MARK}", scheme=scheme)
    expect(page.locator("#list")).to_contain_text("No process fits")
    page.goto(f"{address}/fleet")
    expect(page.locator("#list tbody")).to_contain_text("onerror")
    assert page.locator("img").count() == 0
    assert findings(page) == []


def test_each_role(opener: Opener, access: Authenticator) -> None:
    with serving(small_store(), access, status) as address:
        for user in ("vera", "eddie", "ada"):
            expect(opener(address, "fleet", user=user).locator("#list tbody tr").first).to_be_visible()
        expect(opener(address, "fleet", user="sam").locator("#problem")).to_contain_text("sees a part of them only")


def test_an_api_without_a_cluster_says_so(opener: Opener) -> None:
    with serving(small_store()) as address:
        expect(opener(address, "fleet").locator("#list")).to_contain_text("does not know the processes")
