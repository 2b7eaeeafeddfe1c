"""Page of the first steps: what is there, lines that run, a rule that the engine takes."""

from __future__ import annotations

import ast

import pytest
import yaml
from playwright.sync_api import expect

from alerts.rules.rule_file import parse_rules
from query_dsl import parse
from tests.lists.conftest import MARK, Opener, findings, serving
from tests.page.watched import save_picture
from tests.query_dsl.plain_store import MINUTE, PlainStore

PYTHON = ("Python", "FastAPI, Starlette", "Flask", "Django", "Celery")


def filled_store(context: str = MARK) -> PlainStore:
    store = PlainStore()
    for n in range(7):
        store.add("host.load", {"host": f"h{n}"}, [(MINUTE, 1.0)])
    return store.add("orders", {"host": "h0", "context": context}, [(MINUTE, 1)])


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_what_is_collected(opener: Opener, scheme: str) -> None:
    with serving(filled_store()) as address:
        page = opener(address, "start", scheme=scheme)
        expect(page.locator("#facts")).to_have_text(f"2 variables of 7 hosts (h0, h1, h2, h3, h4, …), from {MARK}.")
        links = page.locator("#queries a")
        expect(links).to_have_count(1)
        assert findings(page) == []
        links.first.click()
        expect(page.locator("#query")).to_have_value("fetch('host.load')")


def test_nothing_is_collected_yet(opener: Opener) -> None:
    with serving(PlainStore()) as address:
        page = opener(address, "start")
        expect(page.locator("#facts")).to_contain_text("look again in a minute")
        texts = page.locator("#queries code").all_inner_texts()
        assert len(texts) == 3
        for text in texts:
            parse(text)


def test_each_kind_of_application_is_a_link_with_lines_that_can_be_read(opener: Opener) -> None:
    with serving(filled_store()) as address:
        page = opener(address, "start?kind=flask")  # an unknown one is the first
        expect(page.get_by_role("radio", name="Python")).to_be_checked()
        shown: dict[str, str] = {}
        for label in page.locator("#kinds label").all():
            name = label.inner_text()
            label.click()
            shown[name] = page.locator("#kind-code pre").inner_text()
        assert len(set(shown.values())) == len(shown) == 7
        for name in PYTHON:
            ast.parse(shown[name].removeprefix("pip install artimon-bookkeeper\n"))
            assert "bookkeeper" in shown[name]
        assert yaml.safe_load(shown["Prometheus"])["remote_write"]
        page.reload()
        expect(page.get_by_role("radio", name="OpenTelemetry")).to_be_checked()


@pytest.mark.parametrize(
    ("variables", "query"),
    [
        (("host.memory.available.bytes", "host.memory.total.bytes"), "fetch('host.memory.available.bytes') / "),
        (("host.load", "artimon.endpoint.up"), "fetch('host.load')"),
        (("artimon.endpoint.up",), "fetch('artimon.endpoint.up')"),
        (("orders", "zeal"), "absent('orders')"),
    ],
)
def test_the_first_alert_is_a_rule_of_a_variable_that_exists(
    opener: Opener, variables: tuple[str, ...], query: str
) -> None:
    store = PlainStore()
    for name in variables:
        store.add(name, {"host": "h0", "context": "shop"}, [(MINUTE, 1.0)])
    with serving(store) as address:
        page = opener(address, "start")
        page.get_by_role("link", name="First alert").click()
        dialog = page.get_by_role("dialog", name="Save the query")
        expect(dialog.get_by_role("radio", name="Alert rule")).to_be_checked()
        expect(dialog.locator("pre").last).to_contain_text("rules:")
        text = dialog.locator("pre").last.inner_text()
        (rule,) = parse_rules(text, "first.yaml").rules
        assert rule.expr.startswith(query)
        assert rule.hold_ms >= 300_000
        expect(dialog.locator("code")).to_contain_text([f"{rule.name}.yaml", "alerts/rules"])
        assert findings(page) == []


def test_without_a_variable_there_is_no_first_alert(opener: Opener) -> None:
    with serving(PlainStore()) as address:
        page = opener(address, "start")
        expect(page.locator("#alert-about")).to_have_text("It comes with the first variable.")
        expect(page.get_by_role("link", name="First alert")).to_have_count(0)


def test_the_help_opens_by_its_key(opener: Opener) -> None:
    with serving(filled_store("shop")) as address:
        page = opener(address, "start")
        expect(page.locator("#facts")).to_contain_text("from shop.")
        save_picture(page, "start")
        page.keyboard.press("?")
        expect(page.get_by_role("dialog")).to_be_visible()
