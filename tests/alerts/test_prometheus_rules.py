"""Rule files of Prometheus: the same verdicts as promtool's."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from alerts.rules.rule_file import parse_rules
from artimon.runtime.config_file import ConfigFileError
from artimon.runtime.settings import child_environment
from tests.alerts.worlds import World
from tests.programs import require

HEAD = "groups:\n- name: g\n  rules:\n  - alert: A\n    expr: up\n"
FILE = """
groups:
- name: hosts
  interval: 2m
  limit: 2
  labels: {site: paris}
  rules:
  - record: job:up:sum
    expr: sum by (job) (up)
  - alert: Down
    expr: up < 1
    for: 2m
    keep_firing_for: 2m
    labels: {severity: page, level: '{{ if eq $value 0.0 }}high{{ else }}low{{ end }}'}
    annotations:
      summary: '{{ $labels.host }} is {{ $value | humanizePercentage }}{{ with query "up" }}, of {{ len . }}{{ end }}'
      description: '{{ $labels.severity }}{{ .Labels.__name__ }}'
"""
CASES = {
    "empty": "",
    "nothing": "groups:\n",
    "no_groups": "groups: []\n",
    "unknown_top_key": "groups: []\nrulez: []\n",
    "group_without_name": "groups:\n- rules: []\n",
    "empty_group_name": "groups:\n- name: ''\n  rules: []\n",
    "group_twice": "groups:\n- name: g\n- name: g\n",
    "no_rules": "groups:\n- name: g\n  rules:\n",
    "unknown_group_key": "groups:\n- name: g\n  intervall: 1m\n",
    "interval": "groups:\n- name: g\n  interval: 1m30s\n",
    "interval_number": "groups:\n- name: g\n  interval: 60\n",
    "interval_zero": "groups:\n- name: g\n  interval: 0\n",
    "interval_negative": "groups:\n- name: g\n  interval: -1m\n",
    "interval_order": "groups:\n- name: g\n  interval: 1m1h\n",
    "limit": "groups:\n- name: g\n  limit: 10\n",
    "limit_text": "groups:\n- name: g\n  limit: ten\n",
    "good": HEAD,
    "unknown_rule_key": HEAD + "    fro: 1m\n",
    "for": HEAD + "    for: 1d\n",
    "for_bad": HEAD + "    for: 1 minute\n",
    "for_fraction": HEAD + "    for: 1.5m\n",
    "keep": HEAD + "    keep_firing_for: 10m\n",
    "labels": HEAD + "    labels: {severity: page, code: 7, truth: no}\n",
    "labels_empty": HEAD + "    labels:\n",
    "labels_list": HEAD + "    labels: [a]\n",
    "label_name": HEAD + "    labels: {a-b: c}\n",
    "label_of_name": HEAD + "    labels: {__name__: c}\n",
    "label_reserved": HEAD + "    labels: {__a: c}\n",
    "label_value_list": HEAD + "    labels: {a: [c]}\n",
    "annotation_name": HEAD + "    annotations: {a.b: c}\n",
    "annotations": HEAD + "    annotations: {summary: 'x'}\n",
    "template": HEAD + "    annotations: {summary: '{{ $labels.a }} {{ $value | humanize }}'}\n",
    "template_in_label": HEAD + "    labels: {a: '{{ $labels.a }'}\n",
    "template_open": HEAD + "    annotations: {a: '{{ $value'}\n",
    "template_variable": HEAD + "    annotations: {a: '{{ $valu }}'}\n",
    "template_function": HEAD + "    annotations: {a: '{{ humanise $value }}'}\n",
    "template_if": HEAD + "    annotations: {a: '{{ if $value }}x'}\n",
    "template_end": HEAD + "    annotations: {a: '{{ end }}'}\n",
    "template_else": HEAD + "    annotations: {a: '{{ if true }}a{{ else if false }}b{{ else }}c{{ end }}'}\n",
    "template_range": HEAD + "    annotations: {a: '{{ range $k, $v := $labels }}{{ $k }}{{ break }}{{ end }}'}\n",
    "template_break": HEAD + "    annotations: {a: '{{ break }}'}\n",
    "template_scope": HEAD + "    annotations: {a: '{{ with $x := 1 }}{{ end }}{{ $x }}'}\n",
    "template_pipe": HEAD + "    annotations: {a: '{{ 1 | 2 }}'}\n",
    "template_argument": HEAD + "    annotations: {a: '{{ $value 3 }}'}\n",
    "template_empty": HEAD + "    annotations: {a: '{{ }}'}\n",
    "template_comment": HEAD + "    annotations: {a: 'x {{- /* c */ -}} y'}\n",
    "template_quote": HEAD + "    annotations: {a: '{{ \"x }}'}\n",
    "template_unknown_field": HEAD + "    annotations: {a: '{{ .Nothing }}'}\n",
    "template_declared": HEAD + "    annotations: {a: '{{ $x := 1 }}{{ $x = 2 }}{{ $x }}{{ (printf \"%d\" $x) }}'}\n",
    "template_undeclared": HEAD + "    annotations: {a: '{{ $x = 2 }}'}\n",
    "template_of_record": "groups:\n- name: g\n  rules:\n  - {record: a, expr: up, labels: {a: '{{ $x }}'}}\n",
    "both": HEAD + "    record: b\n",
    "neither": "groups:\n- name: g\n  rules:\n  - expr: up\n",
    "no_expr": "groups:\n- name: g\n  rules:\n  - alert: A\n",
    "empty_expr": "groups:\n- name: g\n  rules:\n  - {alert: A, expr: ''}\n",
    "bad_expr": "groups:\n- name: g\n  rules:\n  - {alert: A, expr: 'sum(up'}\n",
    "bad_function": "groups:\n- name: g\n  rules:\n  - {alert: A, expr: 'summ(up)'}\n",
    "number_expr": "groups:\n- name: g\n  rules:\n  - {alert: A, expr: 1}\n",
    "range_expr": "groups:\n- name: g\n  rules:\n  - {alert: A, expr: 'up[5m]'}\n",
    "record": "groups:\n- name: g\n  rules:\n  - {record: 'a:b', expr: up, labels: {a: b}}\n",
    "record_name": "groups:\n- name: g\n  rules:\n  - {record: 'a-b', expr: up}\n",
    "record_for": "groups:\n- name: g\n  rules:\n  - {record: a, expr: up, for: 1m}\n",
    "record_keep": "groups:\n- name: g\n  rules:\n  - {record: a, expr: up, keep_firing_for: 1m}\n",
    "record_annotations": "groups:\n- name: g\n  rules:\n  - {record: a, expr: up, annotations: {a: b}}\n",
    "alert_with_spaces": "groups:\n- name: g\n  rules:\n  - {alert: 'A b/c', expr: up}\n",
    "twice": HEAD + "  - alert: A\n    expr: up\n",
    "twice_other_labels": HEAD + "  - alert: A\n    expr: up\n    labels: {a: b}\n",
    "key_twice": HEAD + "    expr: up\n",
    "not_yaml": "groups: [\n",
}


def _fails(text: str) -> bool:
    found = []
    try:
        parse_rules(text, "f.yaml")
    except ConfigFileError as error:
        found = error.problems
    assert all(problem.line for problem in found), text
    return bool(found)


@pytest.mark.programs
def test_the_verdicts_are_those_of_promtool(tmp_path: Path) -> None:
    program = require("promtool")
    for name, text in CASES.items():
        (tmp_path / f"{name}.yaml").write_text(text)
    files = [str(tmp_path / f"{name}.yaml") for name in CASES]
    environment = child_environment(program.environment)
    done = subprocess.run(
        [program.path, "check", "rules", *files], env=environment, capture_output=True, timeout=120, check=False
    )
    told = done.stdout.decode() + done.stderr.decode()
    broken = {Path(found).stem for found in re.findall(r"^(\S+?): ", done.stderr.decode(), re.MULTILINE)} & CASES.keys()
    assert len(broken) > 30, told
    assert {name for name, text in CASES.items() if _fails(text)} == broken, told


def test_a_file_of_prometheus_runs_as_it_is(tmp_path: Path) -> None:
    world = World(tmp_path)
    try:
        world.write(FILE)
        world.tick({"a": 0, "b": 1})
        world.tick({"a": 0, "b": 1})
        name = "rules.yaml/hosts/Down"
        assert world.error(name) == ""
        world.tick({"a": 0, "b": 1})
        world.tick({"a": 0, "b": 0.5})
        (fired,) = world.changes()
        assert fired.labels_with_name == {
            "alertname": "Down", "host": "a", "severity": "page", "site": "paris", "level": "high",
        }  # fmt: skip
        assert fired.summary == "a is 0%, of 2"
        assert fired.shown_annotations == {
            "summary": "a is 0%, of 2", "value": "0", "reason": "", "description": "up",
        }  # fmt: skip
    finally:
        world.close()


def test_the_limit_of_a_group_is_an_error(tmp_path: Path) -> None:
    world = World(tmp_path)
    try:
        world.write(FILE)
        world.tick({"a": 0, "b": 0, "c": 0})
        world.tick({"a": 0, "b": 0, "c": 0})
        assert world.error("rules.yaml/hosts/Down") == "exceeded limit of 2 with 3 alerts"
    finally:
        world.close()


def test_duplicates_are_remarks() -> None:
    (warning,) = parse_rules(CASES["twice"], "f.yaml").warnings
    assert warning == "f.yaml:6:5: 'A' is a duplicate of line 4"
    assert parse_rules(CASES["twice_other_labels"], "f.yaml").warnings == ()
