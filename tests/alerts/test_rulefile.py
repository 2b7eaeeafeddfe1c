"""Rule files: every mistake one by one, with its place and what to do."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import alerts
from alerts.rules.rule_file import parse_rules, tree_at_now
from alerts.rules.rule_folder import examine_files
from alerts.state.conditions import ConditionError, parse_condition
from alerts.state.rule import MissingDataPolicy, check_template, fill_template
from artimon.model.clock import ManualClock
from artimon.model.values import Kind
from artimon.runtime.config_file import MAX_BYTES, ConfigFileError
from artimon.session import Session
from query_dsl import parse
from tests.cli.test_misuse import artimon
from tests.query_dsl.plain_store import PlainStore

GOOD = """receivers:
  ops: {mail: [ops@example.org, night@example.org]}
rules:
  - name: slow
    expr: |
      fetch('http.ms')
        .map("mean", "5m")
    threshold: "> 5"
    resolve: "<= 4.5"
    for: 5m
    keep_firing_for: 10m
    missing: keep
    labels: {severity: page, code: 010, no: no}
    receivers: [ops]
    summary: "{host} takes {value} ms {{really}}"
"""
RULE = "rules:\n- name: a\n  expr: fetch('x')\n  threshold: '> 5'\n  missing: keep\n"


def problems(text: str) -> list[str]:
    with pytest.raises(ConfigFileError) as caught:
        parse_rules(text, "f.yaml")
    return [str(problem) for problem in caught.value.problems]


def test_a_good_file() -> None:
    file = parse_rules(GOOD, "f.yaml")
    (rule,) = file.rules
    assert file.receivers[0].targets == ("ops@example.org", "night@example.org")
    assert (rule.name, rule.hold_ms, rule.missing, rule.line) == ("slow", 300_000, MissingDataPolicy.KEEP, 4)
    assert rule.keep_ms == 600_000
    assert rule.labels == (("code", "010"), ("no", "no"), ("severity", "page"))
    assert rule.threshold is not None
    assert (rule.threshold.op, rule.threshold.operand) == (">", 5)
    assert rule.resolve is not None
    assert rule.resolve.operand == 4.5
    assert rule.text((("host", "{value}"),), 7) == "{value} takes 7 ms {really}"
    assert str(rule.query) == "fetch('http.ms').map('mean', '5m').at('now')"


@pytest.mark.parametrize("text", ["", "# nothing\n", "rules: []\n", "receivers: {}\n"])
def test_files_without_rules_are_good(text: str) -> None:
    assert parse_rules(text, "f.yaml").rules == ()


@pytest.mark.parametrize(
    ("text", "place", "told"),
    [
        pytest.param("rulez: []", "1:1", "did you mean rules", id="unknown_top_key"),
        pytest.param("- a\n", "1:1", "write a mapping", id="top_is_a_list"),
        pytest.param("rules: 5", "1:8", "write a list", id="rules_no_list"),
        pytest.param("rules:\n- 5", "2:3", "write a mapping", id="rule_no_mapping"),
        pytest.param(RULE + "  treshold: 1\n", "6:3", "did you mean threshold", id="unknown_key"),
        pytest.param(RULE + "  for: 60\n", "6:8", "60s", id="duration_without_unit"),
        pytest.param(RULE + "  for: soon\n", "6:8", "not a duration", id="bad_duration"),
        pytest.param(RULE + "  for: -5m\n", "6:8", "not a duration", id="negative_duration"),
        pytest.param(RULE + "  for: 400d\n", "6:8", "30d", id="long_duration"),
        pytest.param(RULE + "  for: [1m]\n", "6:8", "write a text", id="duration_list"),
        pytest.param(RULE + "  resolve: about 5\n", "6:12", "not a condition", id="bad_resolve"),
        pytest.param(RULE + "  resolve: '> \"x\"'\n", "6:12", "needs a number", id="text_is_not_ordered"),
        pytest.param(RULE + "  labels: [a]\n", "6:11", "write a mapping", id="labels_list"),
        pytest.param(RULE + "  labels: {__a: b}\n", "6:12", "reserved", id="reserved_label"),
        pytest.param(RULE + "  labels: {a-b: b}\n", "6:12", "label name", id="bad_label"),
        pytest.param(RULE + "  labels: {a: [b]}\n", "6:15", "write a text", id="label_no_text"),
        pytest.param(RULE + "  summary: 'oh {host'\n", "6:16", "lone brace", id="lone_brace"),
        pytest.param(RULE + "  summary: 'oh {0.a}'\n", "6:16", "lone brace", id="no_attribute_access"),
        pytest.param(RULE + f"  summary: {'x' * 501}\n", "6:12", "at most 500", id="long_summary"),
        pytest.param(RULE + "  name: b\n", "6:3", "second time, first in line 2", id="key_twice"),
        pytest.param(RULE + RULE[7:], "6:9", "second time, first in line 2", id="name_twice"),
        pytest.param(RULE.replace("name: a", "name: a b"), "2:9", "cannot be a name", id="bad_name"),
        pytest.param(RULE.replace("'> 5'", "> 5"), "4:16", "in quotes", id="unquoted_threshold"),
        pytest.param(RULE.replace("'> 5'", "!= 5"), "4:14", "in quotes", id="unquoted_not_equal"),
        pytest.param(RULE.replace("'> 5'", "5"), "4:14", "one of <", id="threshold_without_operator"),
        pytest.param(RULE.replace("'> 5'", "'> nan'"), "4:14", "not a number", id="nan_is_no_threshold"),
        pytest.param(RULE.replace("'> 5'", ""), "4:13", "empty", id="empty_threshold"),
        pytest.param(RULE.replace("keep", "kep"), "5:12", "or keep or", id="bad_missing"),
        pytest.param(RULE.replace("fetch('x')", "fetch('x').foo()"), "3:20", "unknown function", id="bad_expr"),
        pytest.param(RULE.replace("fetch('x')", "|\n    fetch('x')\n      .foo()"), "5:8", "foo", id="in_a_block"),
        pytest.param(RULE.replace("fetch('x')", "\"fetch('x').foo()\""), "3:21", "foo", id="in_quotes"),
        pytest.param(RULE.replace("fetch('x')", "fetch('x{'"), "3:", "expr:", id="bad_selector"),
        pytest.param(
            RULE.replace("fetch('x')", "fetch('x').at('2026-01-01')"), "3:", "asks about now", id="fixed_time"
        ),
        pytest.param(RULE.replace("fetch('x')", "__import__('os')"), "3:9", "unknown function", id="no_code"),
        pytest.param("receivers: {ops: {}}", "1:18", "mail or webhook: missing", id="receiver_without_mail"),
        pytest.param("receivers: {ops: {mail: []}}", "1:25", "empty", id="no_address"),
        pytest.param("receivers: {ops: {mail: [a b]}}", "1:26", "not a mail address", id="bad_address"),
        pytest.param('receivers: {ops: {mail: ["a@b.c\\nBcc: x@y.z"]}}', "1:26", "not a mail address", id="injection"),
        pytest.param("receivers: {ops: {smtp: [a@b.c]}}", "1:19", "unknown key", id="unknown_receiver_key"),
        pytest.param("receivers: {default: {mail: [a@b.c]}}", "1:13", "another name", id="default_is_taken"),
        pytest.param("a: &x [1]\nrules: *x", "1:4", "aliases", id="alias"),
        pytest.param("rules: !!python/object/apply:os.system [ls]", "1:8", "tag", id="tag"),
        pytest.param("rules: " + "[" * 30 + "]" * 30, "1:", "nested more than", id="deep"),
        pytest.param("rules: " + "[" * 20_000, "1:", "nested more than", id="very_deep"),
        pytest.param("rules: []\n---\nrules: []", "2:1", "second document", id="two_documents"),
        pytest.param("\trules: []", "1:1", "spaces", id="tab"),
        pytest.param("rules: [", "", "not YAML", id="cut_off"),
        pytest.param("rules: \x07", "", "not YAML", id="control_character"),
        pytest.param("{[a]: b}", "1:2", "key must be a word", id="list_as_key"),
        pytest.param("rules: " + "x" * MAX_BYTES, "", "split the file", id="too_large"),
    ],
)
def test_a_mistake_is_told_with_its_place(text: str, place: str, told: str) -> None:
    found = problems(text)
    assert any(one.startswith(f"f.yaml:{place}" if place else "f.yaml") and told in one for one in found), found


def test_every_mistake_is_told_at_once() -> None:
    found = problems("rules:\n- {}\n- name: a\n  expr: f(\n  threshold: x\n  missing: y\n")
    assert [one.split(":")[1] for one in found] == ["2", "2", "2", "2", "4", "5", "6"]


def test_alias_bombs_are_refused_at_once() -> None:
    bomb = "a: &a [x,x,x]\n" + "".join(
        f"{b}: &{b} [*{a},*{a},*{a}]\n" for a, b in zip("abcdefg", "bcdefgh", strict=True)
    )
    assert "aliases" in problems(bomb)[0]


@settings(deadline=None, max_examples=200)
@given(st.text(max_size=200) | st.text(alphabet="rules:-nameexprfor {}[]&*!|>'\"\n #%@`,?", max_size=300))
def test_any_text_is_read_or_refused_with_words(text: str) -> None:
    found = []
    try:
        parse_rules(text, "f.yaml")
    except ConfigFileError as error:
        found = error.problems
    assert all(str(problem).startswith("f.yaml") and problem.text for problem in found)


@pytest.mark.parametrize(
    ("condition", "value", "holds"),
    [
        ("< 1", 0, True), ("< 1", 1, False), ("<= 1", 1, True), ("> 1", 1.5, True), (">= 2", 1, False),
        ("== 9007199254740993", 9007199254740992, False), ("== 9007199254740993", 9007199254740993, True),
        ("> 9007199254740992", 9007199254740993, True), ("> 5.9", 5, False), ("== 1", True, True),
        ("> 1", float("nan"), False), ("<= 1", float("nan"), False), ("!= 1", float("nan"), True),
        ("> 1e3", float("inf"), True), ("== true", True, True), ("== true", False, False), ("!= true", False, True),
        ('== "up"', "up", True), ("!= 'up'", "down", True), ("< -1", -2, True), ("> .5", 0.6, True),
    ],
)  # fmt: skip
def test_conditions(condition: str, value: float | str | bool, holds: bool) -> None:
    assert parse_condition(condition).holds(value) is holds


@pytest.mark.parametrize(("condition", "value"), [("== true", 1), ("> 1", "x"), ('== "x"', 1), ('== "x"', True)])
def test_conditions_that_cannot_judge(condition: str, value: float | str | bool) -> None:
    with pytest.raises(ConditionError):
        parse_condition(condition).holds(value)


def test_templates_fill_once_and_only_labels() -> None:
    check_template("{a} {{x}} {b}")
    assert fill_template("{a} {{x}} {b}", {"a": "{b}{{"}) == "{b}{{ {x} ?"


def test_a_question_that_says_its_time_is_left_alone() -> None:
    assert str(tree_at_now(parse("fetch('x').range('5m')"))) == str(parse("fetch('x').range('5m')"))


def test_the_shipped_rules_are_good() -> None:
    folder = Path(alerts.__file__).parent / "rules"
    assert sorted(path.name for path in folder.glob("*.yaml")) == ["endpoint-down.yaml", "kafka-gap.yaml"]
    assert alerts.check_files(folder.glob("*.yaml")) == []


def test_queries_of_valid_rules_are_checked_by_the_lint(tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text(RULE.replace("'x'", "'x{host=~\"a\"}'") + "- name: b\n  promql: rate(sum(x)[5m:1m]) > 5\n")
    found, warnings = examine_files([file])
    assert found == []
    first, second = warnings
    assert first.startswith(f"{file}:2: rule 'a': host=~\"a\" is a plain value")
    assert second.startswith(f"{file}:6: rule 'b': rate of what was reduced")
    store = PlainStore().add("x", {"host": "b"}, [(60_000, 1)], Kind.COUNTER)
    with Session(store, "nowhere", ManualClock(120_000)) as session:
        _, known = examine_files([file], session.lint)
    assert set(warnings) < set(known)
    assert any("selects nothing" in one and "at " in one for one in known)


def test_the_command_says_what_is_wrong(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.yaml", tmp_path / "bad.yaml"
    good.write_text(GOOD)
    assert artimon("rules", "check", str(good)).returncode == 0
    bad.write_text(RULE.replace("fetch", "fetsch") + "- name: slow\n  receivers: [opps]\n")
    answer = artimon("rules", "check", str(good), str(bad))
    assert answer.returncode == 1
    assert f"{bad}:3:9: rules[0].expr: unknown function" in answer.stderr
    assert "Traceback" not in answer.stderr
    answer = artimon("rules", "check", str(tmp_path / "none.yaml"))
    assert (answer.returncode, "No such file" in answer.stderr) == (1, True)
