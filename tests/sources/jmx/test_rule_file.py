"""Files of mapping rules: errors name file, line and column."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from artimon.cli import app
from artimon.model.values import Kind, ValueType
from artimon.runtime.config_file import MAX_BYTES, ConfigFileError
from sources.base.source_errors import TargetError
from sources.scrape.jmx.mapping_file import ALL_BEANS, RULE_SETS, queries, read_rules, rule_set
from sources.targets.bean_target import JmxTarget, parse_target
from tests.sources.jmx.bean_server import parse_rules

SHIPPED = [rule for name in RULE_SETS for rule in rule_set(name)]
PREFIXES = tuple(f"| `{name}." for name in RULE_SETS)

GOOD = """beans:
  - bean: shop:type=Queue,name=<queue>
    labels: {queue: <queue>}
    variables:
      - name: shop.orders
        attributes: {Good: accepted, Bad: refused}
        labels: {result: <each>}
        kind: counter
        help: Orders
"""


def test_a_rule_file() -> None:
    (rule,) = parse_rules(GOOD, "shop.yaml")
    first, second = rule.variables
    assert (first.name, first.kind, first.type, first.help) == (
        "shop.orders",
        Kind.COUNTER,
        ValueType.INTEGER,
        "Orders",
    )
    assert [step.text for step in second.path] == ["Bad"]
    assert second.labels["result"].render({"queue": "q"}) == "refused"
    assert second.labels["queue"].render({"queue": "q"}) == "q"


@pytest.mark.parametrize(
    ("old", "new", "where", "text"),
    [
        ("beans:", "bean:", "1:1", "did you mean beans"),
        ("variables:", "variable:", "4:5", "did you mean variables"),
        ("attributes: {Good: accepted, Bad: refused}", "help: x", "9:9", "second time"),
        ("        attributes: {Good: accepted, Bad: refused}\n", "", "5:9", "want `attribute:`"),
        ("Bad: refused", "Good: refused", "6:38", "'Good' is defined a second time"),
        ("<each>", "<all>", "5:9", "no place is named <all>"),
        ("<queue>}", "<queue|upper>}", "3:21", "no filter upper"),
        ("<queue>}", "<Queue>}", "3:21", "<word>"),
        ("name=<queue>", "name=<a><b>", "2:11", "text between"),
        ("shop:type", "shop", "2:11", "not the name of a bean"),
        ("kind: counter", "kind: sum", "8:15", "write counter or gauge"),
        ("kind: counter", "type: text", "8:15", "write integer or double"),
        ("kind: counter", "divide: 0", "8:17", "greater than 0"),
        ("kind: counter", "divide: x", "8:17", "whole number"),
        ("kind: counter", "missing: 1", "8:18", "write a list"),
        ("kind: counter", "kind: [counter]", "8:15", "not a list"),
        ("shop.orders", "9shop", "5:15", "begin with a letter"),
        ("result: <each>", "__r: <each>", "7:18", "reserved"),
        ("{result: <each>}", "{result: <each>", "8:13", "expected"),
        ("beans:", "beans: [1, [", "2:3", ""),
        ("result: <each>", "result: &a <each>, again: *a", "7:26", "alias"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(old: str, new: str, where: str, text: str) -> None:
    with pytest.raises(ConfigFileError) as caught:
        parse_rules(GOOD.replace(old, new, 1), "shop.yaml")
    found = list(map(str, caught.value.problems))
    assert any(one.startswith(f"shop.yaml:{where}: ") and text in one for one in found), found


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    large, binary, empty = tmp_path / "large.yaml", tmp_path / "binary.yaml", tmp_path / "empty.yaml"
    large.write_text("#" * (MAX_BYTES + 1))
    binary.write_bytes(b"\xff\xfe\x00")
    empty.write_text("# nothing\n")
    for path, text in (
        (large, "more than"),
        (binary, "not UTF-8"),
        (empty, "write `beans:`"),
        (tmp_path / "none", "No such"),
    ):
        with pytest.raises(ConfigFileError, match=text) as caught:
            read_rules(path)
        assert str(caught.value).startswith(f"{path}:1:1: ")


def _expanded(text: str) -> list[str]:
    """`a.{b,c}{label}` -> a.b, a.c."""
    text = re.sub(r"\{[^{}]*\}$", "", text) if re.search(r"[^.]\{[^{}]*\}$", text) else text
    found = re.search(r"\{([^{}]*)\}", text)
    if not found:
        return [text]
    before, after = text[: found.start()], text[found.end() :]
    return [one for choice in found[1].split(",") for one in _expanded(before + choice + after)]


def test_the_page_names_the_variables_of_the_shipped_rules_and_no_others() -> None:
    docs = Path(__file__).parents[3] / "docs"
    page = (docs / "sources.md").read_text() + (docs / "foreign.md").read_text()
    rows = [line.split("|")[1] for line in page.splitlines() if line.startswith(PREFIXES)]
    named = {name for row in rows for text in re.findall(r"`([^`]+)`", row) for name in _expanded(text)}
    assert named == {variable.name for rule in SHIPPED for variable in rule.variables}


def test_a_server_is_asked_for_the_domains_that_have_rules_the_start_first() -> None:
    default = [rule for name in JmxTarget("", "", 0).rule_sets for rule in rule_set(name)]
    assert queries(default) == ("java.lang:*", "Hadoop:*", "java.nio:*")
    assert queries(parse_rules(GOOD, "x")) == ("java.lang:*", "shop:*")
    assert queries(parse_rules(GOOD.replace("shop:type", "<any>:type"), "x")) == (ALL_BEANS,)


def test_targets() -> None:
    assert parse_target("a=http://h/") == JmxTarget("a", "h", 80, "/")
    assert parse_target("a/2=http://[::1]:8080") == JmxTarget("a", "::1", 8080, "/jmx", "2")
    assert parse_target("a=http://h:1/jmx?qry=x:*").url == "http://h:1/jmx?qry=x:*"


@pytest.mark.parametrize(
    "text",
    ["", "a", "http://h/jmx", "=http://h", "a/=http://h", "a b=http://h", "a=https://h", "a=http://", "a=h:1",
     "a=http://u:p@h", "a=http://h:99999", "a=http://h/\r\nX: y", "a=http://h/ü", "a=http://h/#x", "a/b/c=http://h",
     "a=http://[::1"],
)  # fmt: skip
def test_what_is_no_target(text: str) -> None:
    with pytest.raises(TargetError, match=r"CONTEXT=|Invalid|out of range"):
        parse_target(text)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [(["--jmx", "nonsense"], "writeCONTEXT="), (["--jmx-rules", "{folder}/own.yaml"], "own.yaml:1:8:")],
)
def test_the_command_line_refuses_both_before_anything_starts(tmp_path: Path, arguments: list[str], text: str) -> None:
    (tmp_path / "own.yaml").write_text("beans: 1")
    words = [word.format(folder=tmp_path) for word in arguments]
    answer = CliRunner().invoke(app, ["agent", *words])
    assert answer.exit_code == 2
    assert text in re.sub(r"[\s│]", "", answer.output), "whatever the width at which the message is wrapped"
