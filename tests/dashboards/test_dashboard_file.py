"""Files of dashboards: the model, its errors with their positions, and the dashboards of the package."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from artimon.dashboards.dashboard_file import (
    MAX_BYTES,
    MAX_PANELS,
    REFERENCE,
    append_panel,
    check_name,
    read_dashboard,
    write_yaml,
)
from artimon.dashboards.dashboard_store import DashboardText, read_shipped
from artimon.runtime.config_file import ConfigFileError
from artimon.saved_queries import panel_of
from artimon.stack.demo_fleet import METRICS

ROOT = Path(__file__).resolve().parents[2]
GOOD = """\
title: Shop
variables:
- {name: host, label: host, series: host.load, multi: true}
- {name: window, values: [1m, 5m]}
panels:
- title: Load
  thresholds: [{above: 80, state: warn}]
  queries:
  - q: fetch('host.load{host=~"$host",window="${window}"}')
    legend: "{host}"
  - {q: "rate(http_requests[$__rate_interval])", lang: promql}
- {kind: text, text: Hello, links: [{title: more, url: "https://example.org/$host"}]}
"""


def test_a_dashboard_is_read() -> None:
    found = read_dashboard(GOOD, "shop.yaml")
    assert [panel.kind for panel in found.panels] == ["chart", "text"]
    assert found.panels[0].queries[1].lang == "promql"
    assert found.variables[0].multi
    assert read_dashboard(write_yaml(found.model_dump(exclude_defaults=True)), "again.yaml") == found


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('~"$host"', '~"$hots"', "9:32: panels[0].queries[0].q: unknown variable $hots; did you mean host?"),
        ("fetch('host.load", "fetsch('host.load", "9:8: panels[0].queries[0].q: "),
        ("rate(http", "rate((http", "11:9: panels[0].queries[1].q: "),
        ("https://example.org", "javascript:alert(1)//", "12:56: panels[1].links[0].url: 'javascript:"),
        ("https://example.org/", "//evil.example/", "panels[1].links[0].url"),
        ("https://example.org/", "https://$host.example/", "panels[1].links[0].url"),
        ("kind: text", "kind: html", "12:10: panels[1].kind: 'html': write chart or value or"),
        ("above: 80", "above: .nan", "panels[0].thresholds[0].above"),
        ("above: 80", "abov: 80", "unknown key; did you mean above?"),
        ("name: window", "name: host", "4:10: variables[1].name: host is defined a second time, first in line 3"),
        ("name: window", "name: __range", "variables[1].name"),
        ("series: host.load", "series: 'host.load{'", "3:"),
        ("- title: Load", "- repeat: hots\n  title: Load", "panels[0].repeat: unknown variable 'hots'"),
        ("- title: Load", "- width: 25\n  title: Load", "panels[0].width"),
        ("panels:", "marks: {starts: fetsch('x')}\npanels:", "5:17: marks.starts: "),
        ("panels:", 'marks: {starts: "fetch(\'x{h=\\"$hots\\"}\')"}\npanels:', "marks.starts: unknown variable $hots"),
        ("panels:", "marks: {deploys: true}\npanels:", "marks.deploys: unknown key"),
        ("panels:", "marks: {queries: [{q: up, lang: promq}]}\npanels:", "marks.queries[0].lang"),
        ("panels:", "marks: {queries: [{q: up{, lang: promql}]}\npanels:", "5:"),
        ("panels:", "marks: {queries: [{q: 'up{a=\"$b\"}', lang: promql}]}\npanels:", "unknown variable $b"),
        ("title: Shop", "titel: Shop", "1:1: titel: unknown key; did you mean title?"),
    ],
)
def test_an_error_names_its_place(old: str, new: str, told: str) -> None:
    assert old in GOOD
    with pytest.raises(ConfigFileError) as raised:
        read_dashboard(GOOD.replace(old, new), "shop.yaml")
    assert told in str(raised.value)
    assert str(raised.value).startswith("shop.yaml:")


def test_a_list_with_a_wrong_element_only_is_not_called_empty() -> None:
    with pytest.raises(ConfigFileError) as raised:
        read_dashboard(f"title: a\npanels:\n- {ONE[:-1]}, width: 99}}\n", "a.yaml")
    assert str(raised.value).splitlines() == [
        "a.yaml:3:51: panels[0].width: write a value less than or equal to 24, not '99'"
    ]


def test_files_have_limits() -> None:
    panel = "- {kind: text, text: a}\n"
    with pytest.raises(ConfigFileError, match=f"panels: more than {MAX_PANELS} entries"):
        read_dashboard("title: T\npanels:\n" + panel * (MAX_PANELS + 1), "many.yaml")
    with pytest.raises(ConfigFileError, match=f"more than {MAX_BYTES} bytes"):
        read_dashboard("#" * (MAX_BYTES + 1), "long.yaml")
    with pytest.raises(ConfigFileError, match="panels: "):
        read_dashboard("title: T\npanels: []\n", "empty.yaml")


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../a", "a/b", "a\\b", "A", ".versions", "a.b", "a\0", "-a", "a" * 65, "ä"]
)
def test_names_are_safe(name: str) -> None:
    with pytest.raises(ValueError, match="write a name of a-z"):
        check_name(name)


SHIPPED = read_shipped()


def test_the_dashboards_of_the_package() -> None:
    assert set(SHIPPED) == {"artimon", "host", "hosts", "jvm-hdfs", "kafka", "web"}


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_dashboard_is_valid_and_asks_for_what_exists(name: str) -> None:
    """Its queries are parsed by the reader; the variables are those of sources, demo and processes."""
    found = DashboardText(name, SHIPPED[name].text, True).read()
    assert found.marks
    assert found.marks.alerts
    assert found.marks.starts or found.marks.queries
    queries = [one.q for panel in found.panels for one in panel.queries]
    assert len(queries) >= 8
    queries += [one.q for one in found.marks.queries] + [found.marks.starts or ""]
    asked = {match for text in queries for match in re.findall(r"fetch\('([a-z0-9_.]+)", text)}
    asked |= {re.split(r"\{", one.series)[0] for one in found.variables if one.series}
    assert asked
    unknown = sorted(one for one in asked if one not in known_variables())
    assert not unknown


@cache
def known_variables() -> set[str]:
    texts = [*(ROOT / "sources").rglob("*.py"), *(ROOT / "sources").rglob("*.yaml"), ROOT / "docs" / "variables.md"]
    found = {word for file in texts for word in re.findall(r"[a-z]+(?:\.[a-z0-9]+)+", file.read_text())}
    return found | set(METRICS)


def test_references_are_names_after_a_dollar() -> None:
    assert [match[1] or match[2] for match in REFERENCE.finditer('$a ${b_1}c $__range =~"x$" $1 $')] == [
        "a",
        "b_1",
        "__range",
    ]


PANEL = panel_of("fetch('orders').rate()", "Orders: all", "value")
ONE = "{title: One, queries: [{q: fetch('x')}]}"


@pytest.mark.parametrize(
    "text",
    [
        f"title: a\npanels:\n- {ONE} # first\n",
        f"title: a\npanels:\n- {ONE}",
        f"title: a\npanels:\n  - {ONE}\n\n# the end\n",
        f"panels: # all\n- {ONE}\n# links\nlinks:\n- {{title: l, url: /x}}\ntitle: a\n",
        f"title: a\npanels: [{ONE}]\nrange: 1h\n",
        f"title: a\npanels: [\n  {ONE},\n]\n",
        f"title: a\npanels: [\n  {ONE} # first\n  # the end\n]\n",
        '{"title": "a", "panels": [{"title": "One", "queries": [{"q": "fetch(\'x\')"}]}]}',
        "title: a\npanels:\n- kind: text\n  text: |+\n    - a list\n\n",
        f"title: ü – a\npanels:\r\n- {ONE}\r\n",
    ],
)
def test_a_panel_is_appended_and_the_rest_of_the_text_stays(text: str) -> None:
    found = append_panel(text, PANEL, "a.yaml")
    before, after = read_dashboard(text, "a.yaml"), read_dashboard(found, "a.yaml")
    assert after.panels[:-1] == before.panels
    assert (after.panels[-1].title, after.panels[-1].kind) == ("Orders: all", "value")
    assert after.panels[-1].queries[0].q == "fetch('orders').rate()"
    assert after.model_copy(update={"panels": before.panels}) == before
    for comment in ("# first", "# the end", "# all", "# links"):
        assert (comment in found) == (comment in text)
    again = append_panel(found, PANEL, "a.yaml")
    assert len(read_dashboard(again, "a.yaml").panels) == 3


def test_a_panel_that_is_wrong_or_too_many_is_refused() -> None:
    text = f"title: a\npanels:\n- {ONE}\n"
    with pytest.raises(ConfigFileError, match="not closed"):
        append_panel(text, panel_of("fetch('x'", "t", "chart"), "a.yaml")
    with pytest.raises(ConfigFileError):
        append_panel("title: a\npanels: 5\n", PANEL, "a.yaml")
    with pytest.raises(ConfigFileError):
        append_panel(f"title: a\npanels:\n{f'- {ONE}{chr(10)}' * MAX_PANELS}", PANEL, "a.yaml")
