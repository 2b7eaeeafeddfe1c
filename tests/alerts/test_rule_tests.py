"""`artimon rules test`: the same verdicts as `promtool test rules`, and what goes beyond it."""

# ruff: noqa: E501  # tables of tests
from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from alerts.evaluation.unit_tests import UnitTestRun, load_rules, run_unit_tests
from alerts.rules.unit_test_file import read_unit_tests
from artimon.cli.program import app
from artimon.runtime.config_file import ConfigFileError
from artimon.runtime.settings import child_environment
from tests.programs import require

RULES = """
groups:
- name: first
  labels: {}
  rules:
  - record: job:up:sum
    expr: sum by (job) (up)
  - alert: Down
    expr: up == 0
    for: 2m
    keep_firing_for: 3m
    labels: {severity: page, level: '{{ if gt $value 1.0 }}high{{ else }}low{{ end }}'}
    annotations: {summary: "{{ $labels.instance }} is {{ $value }} in {{ $externalLabels.region }}"}
  - alert: Low
    expr: job:up:sum < 2
- name: second
  rules:
  - alert: Gone
    expr: absent(up{job="a"})
    for: 1m
  - alert: Errors
    expr: rate(errors_total[5m]) > 0.5
    annotations: {rate: "{{ $value | humanize }} {{ printf \\"%.3f\\" $value }} {{ $value }}"}
  - record: errors:rate
    expr: sum(rate(errors_total[5m]))
  - alert: Pending
    expr: ALERTS{alertstate="pending"} == 1
    annotations: {other: '{{ range query "ALERTS" }}{{ .Labels.alertname }}={{ .Value }} {{ end }}'}
""".replace("  labels: {}\n", "")
HEAD = "rule_files: [rules.yml]\nevaluation_interval: {every}\ntests:\n- interval: {interval}\n  input_series:\n"
UP = """  - {series: 'up{job="a",instance="x"}', values: '1 0x5 1x20'}
  - {series: 'up{job="a",instance="y"}', values: '1x3 _x2 stale 1x20'}
"""
ERRORS = "  - {series: 'errors_total{path=\"/\"}', values: '0+60x10 0+5x10'}\n"
X = "{severity: page, level: low, job: a, instance: x}"


def of(series: str, tests: str, every: str = "1m", interval: str = "1m", more: str = "") -> str:
    return HEAD.format(every=every, interval=interval) + series + tests + more


def alert(time: str, name: str, *expected: str) -> str:
    lines = [
        f"    - exp_labels: {one.partition('|')[0]}\n      exp_annotations: {one.partition('|')[2] or '{}'}\n"
        for one in expected
    ]
    return f"  - eval_time: {time}\n    alertname: {name}\n" + ("    exp_alerts:\n" + "".join(lines) if lines else "")


def query(expr: str, time: str, *expected: str) -> str:
    lines = [f"    - {{labels: '{one.rpartition(' ')[0]}', value: {one.rpartition(' ')[2]}}}\n" for one in expected]
    return f"  - expr: '{expr}'\n    eval_time: {time}\n" + ("    exp_samples:\n" + "".join(lines) if lines else "")


ALERTS, QUERIES = "  alert_rule_test:\n", "  promql_expr_test:\n"
GONE = "|{summary: 'x is 0 in '}"
CASES = {
    "pending": of(UP, ALERTS + alert("2m", "Down")),
    "fires": of(UP, ALERTS + alert("3m", "Down", X + GONE)),
    "fires_but_not_expected": of(UP, ALERTS + alert("3m", "Down")),
    "other_labels": of(UP, ALERTS + alert("3m", "Down", "{severity: page, level: low, job: a, instance: z}" + GONE)),
    "other_annotations": of(UP, ALERTS + alert("3m", "Down", X + "|{summary: 'x'}")),
    "no_annotations": of(UP, ALERTS + alert("3m", "Down", X)),
    "kept": of(UP, ALERTS + alert("8m", "Down", X + GONE)),
    "kept_last": of(UP, ALERTS + alert("9m", "Down", X + GONE)),
    "kept_too_long": of(UP, ALERTS + alert("10m", "Down", X + GONE)),
    "resolved": of(UP, ALERTS + alert("10m", "Down")),
    "between_evaluations": of(UP, ALERTS + alert("3m59s", "Down", X + GONE)),
    "before_evaluation": of(UP, ALERTS + alert("2m59s", "Down")),
    "external_labels": of(UP, ALERTS + alert("3m", "Down", X + "|{summary: 'x is 0 in eu'}"), more="  external_labels: {region: eu}\n"),
    "recorded_in_the_same_evaluation": of(UP, ALERTS + alert("1m", "Low", "{job: a}")),
    "recorded": of(UP, QUERIES + query("job:up:sum", "4m", 'job:up:sum{job="a"} 1')),
    "recorded_wrong_value": of(UP, QUERIES + query("job:up:sum", "4m", 'job:up:sum{job="a"} 2')),
    "recorded_wrong_name": of(UP, QUERIES + query("job:up:sum", "4m", 'job:up{job="a"} 1')),
    "stale": of(UP, QUERIES + query("up", "6m", 'up{job="a",instance="x"} 1')),
    "look_back": of(UP, QUERIES + query("count(up)", "5m", "{} 2")),
    "look_back_wrong": of(UP, QUERIES + query("count(up)", "5m", "{} 1")),
    "alerts_series": of(UP, QUERIES + query('ALERTS{alertname="Down"}', "2m", 'ALERTS{alertname="Down",alertstate="pending",instance="x",job="a",level="low",severity="page"} 1')),
    "alerts_for_state": of(UP, QUERIES + query('ALERTS_FOR_STATE{alertname="Down"}', "2m", 'ALERTS_FOR_STATE{alertname="Down",instance="x",job="a",level="low",severity="page"} 60')),
    "alerts_end": of(UP, QUERIES + query('ALERTS{alertname="Down"}', "20m")),
    "counter": of(ERRORS, ALERTS + alert("6m", "Errors", "{path: /}|{rate: '1 1.000 1'}")),
    "counter_reset": of(ERRORS, QUERIES + query("increase(errors_total[5m])", "13m", '{path="/"} 198.75')),
    "counter_wrong": of(ERRORS, QUERIES + query("errors:rate", "6m", "errors:rate 2")),
    "absent": of(ERRORS, ALERTS + alert("1m", "Gone", "{job: a}")),
    "absent_pending": of(ERRORS, ALERTS + alert("0m", "Gone")),
    "of_alerts": of(ERRORS, ALERTS + alert("0m", "Pending", '{}|{other: "Gone=1 "}')),
    "scalar": of(UP, QUERIES + query("1 + 1", "0m", "{} 2")),
    "time": of(UP, QUERIES + query("time()", "7m", "{} 420")),
    "text": of(UP, QUERIES + query('"a"', "0m", "{} 2")),
    "infinity": of(UP, QUERIES + query("1 / 0", "0m", "{} +Inf")),
    "infinity_of_yaml": of(UP, QUERIES + query("1 / 0", "0m", "{} .inf")),
    "nan": of(UP, QUERIES + query("0 / 0", "0m", "{} NaN")),
    "nothing_expected": of(UP, QUERIES + query("nowhere", "1m")),
    "bad_query": of(UP, QUERIES + query("sum(", "1m")),
    "half_minutes": of(UP, ALERTS + alert("2m30s", "Down", X + GONE), every="30s", interval="30s"),
    "half_minutes_too_early": of(UP, ALERTS + alert("2m", "Down", X + GONE), every="30s", interval="30s"),
    "five_minutes": of(UP, ALERTS + alert("5m", "Down"), every="5m"),
    "no_series": of("", ALERTS + alert("1m", "Gone", "{job: a}")),
    "no_alertname": of(UP, "  alert_rule_test:\n  - eval_time: 1m\n"),
    "unknown_alert": of(UP, ALERTS + alert("1m", "Nothing")),
    "unknown_alert_expected": of(UP, ALERTS + alert("1m", "Nothing", "{}")),
    "unknown_key": of(UP, ALERTS + alert("1m", "Down"), more="  alerts: []\n"),
    "bad_values": of("  - {series: up, values: '1 x 2'}\n", ALERTS + alert("1m", "Down")),
    "bad_series": of("  - {series: 'up{', values: '1'}\n", ALERTS + alert("1m", "Down")),
    "bad_time": of(UP, ALERTS + alert("soon", "Down")),
    "bad_labels": of(UP, QUERIES + query("up", "1m", "up{ 1")),
    "no_tests": "rule_files: [rules.yml]\ntests: []\n",
    "missing_rule_file": "rule_files: [nowhere.yml]\ntests: []\n",
    "broken_rule_file": "rule_files: [broken.yml]\ntests:\n- interval: 1m\n",
    "evaluation_error": "rule_files: [failing.yml]\ntests:\n- interval: 1m\n  input_series:\n" + UP + ALERTS + alert("1m", "Down"),
    "order": "group_eval_order: [second, first]\n" + of(UP, ALERTS + alert("2m", "Pending")),
}  # fmt: skip


def write(folder: Path) -> None:
    (folder / "rules.yml").write_text(RULES)
    (folder / "broken.yml").write_text("groups: [{name: a, rules: [{alert: A}]}]\n")
    (folder / "failing.yml").write_text("groups: [{name: a, rules: [{alert: A, expr: 'up * on(job) up'}]}]\n")
    for name, text in CASES.items():
        (folder / f"{name}.yaml").write_text(text)


def fails(file: Path) -> bool:
    try:
        return bool(run_unit_tests(read_unit_tests(file), file.parent))
    except ConfigFileError:
        return True


@pytest.mark.programs
def test_the_verdicts_are_those_of_promtool(tmp_path: Path) -> None:
    program = require("promtool")
    write(tmp_path)
    files = [str(tmp_path / f"{name}.yaml") for name in CASES]
    environment = child_environment(program.environment)
    done = subprocess.run(
        [program.path, "test", "rules", *files], env=environment, capture_output=True, timeout=120, check=False
    )
    told = done.stdout.decode()
    passed = {Path(found).stem for found in re.findall(r"Unit Testing:  (\S+)\n  SUCCESS", told)}
    assert 20 <= len(passed) <= len(CASES) - 15, told
    ours = {name for name in CASES if not fails(tmp_path / f"{name}.yaml")}
    assert ours == passed, done.stderr.decode()


TEMPLATES = [
    "{{ $labels.instance }} {{ .Labels.job }} {{ $labels.absent }}|{{ $value }} {{ .Value }}",
    "{{ $value | humanize }} {{ humanize1024 $value }} {{ humanizeDuration $value }} {{ humanizePercentage $value }}",
    '{{ humanizeTimestamp $value }} {{ printf "%f|%.2f|%e|%g|%v|%8.1f|%-8.1f|%d|%s" $value $value $value $value $value $value $value $value $value }}',
    '{{ printf "%s|%q|%5s|%-5s|%x|%v|%d" "a" "b" "c" "d" "e" $labels "f" }}',
    '{{ title "ab cd-ef" }} {{ toUpper "x" }} {{ stripPort "h:80" }} {{ stripPort "[::1]:80" }} {{ stripDomain "a.b:80" }} {{ stripDomain "1.2.3.4" }}',
    '{{ reReplaceAll "(a)(b)" "$2-${1}x$9" "xaby" }} {{ match "^x" "xy" }} {{ len $labels }} {{ index $labels "job" }}',
    "{{ range $k, $v := $labels }}{{ $k }}={{ $v }};{{ end }}{{ range $labels }}{{ . }},{{ end }}",
    '{{ if and (gt $value 0.0) (ne $labels.job "x") }}a{{ else if eq 1 1 }}b{{ else }}c{{ end }}{{ with $labels.absent }}d{{ else }}e{{ end }}',
    "a {{- 1 -}} b {{- /* c */ -}} c {{ $x := 1.5 }}{{ $x }} {{ true }} {{ 100000.0 }} {{ 1e6 }} {{ 1e20 }} {{ 0.00001 }} {{ 123456789.0 }} {{ 1e21 }}",
    '{{ print 1 2 "a" "b" 3 }} {{ println "a" 1 }}{{ html "<a&\'b>" }} {{ urlquery "a b&c" }} {{ slice "abcd" 1 3 }} {{ not true }} {{ or 0 "x" }}',
    '{{ query "value" | first | value }} {{ with query "value" }}{{ . | first | label "job" }}{{ end }} {{ len (query "nope") }}',
    '{{ \'a\' }} {{ 0x1f }} {{ `raw` }} {{ "t\\tq\\"" }} {{ 12 | printf "%03d" }} {{ graphLink "up == 0" }} {{ tableLink "a" }}',
]
VALUES = ["1234567.5", "0.00042", "-75.25", "0", "93784", "1e9", "Inf", "3"]


@pytest.mark.programs
def test_templates_give_the_texts_of_prometheus(tmp_path: Path) -> None:
    program = require("promtool")
    texts = {f"a{at}": text for at, text in enumerate(TEMPLATES)}
    rule = {"alert": "F", "expr": "value", "annotations": texts}
    (tmp_path / "formats.yml").write_text(json.dumps({"groups": [{"name": "g", "rules": [rule]}]}))
    for at, value in enumerate(VALUES):
        series = {"series": 'value{job="a b",instance="h:80"}', "values": value}
        asked: dict[str, object] = {"eval_time": "0m", "alertname": "F", "exp_alerts": []}
        test = {"interval": "1m", "input_series": [series], "alert_rule_test": [asked]}
        file = {"rule_files": ["formats.yml"], "tests": [test]}
        path = tmp_path / f"{at}.yaml"
        path.write_text(json.dumps(file))
        (got,) = got_alerts(path)
        asked["exp_alerts"] = [{"exp_labels": {"job": "a b", "instance": "h:80"}, "exp_annotations": got}]
        path.write_text(json.dumps(file))
    files = [str(tmp_path / f"{at}.yaml") for at in range(len(VALUES))]
    environment = child_environment(program.environment)
    done = subprocess.run(
        [program.path, "test", "rules", *files], env=environment, capture_output=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr.decode()


def got_alerts(path: Path) -> list[dict[str, str]]:
    """Annotations of the alerts that fire in the only test of a file."""
    tests = read_unit_tests(path)
    run = UnitTestRun(tests.tests[0], load_rules(tests, path.parent), tests.evaluation_interval)
    list(run.failures())
    return [dict(texts) for texts in run.texts.values()]


OWN = """
rules:
  - name: state
    expr: fetch('job.state')
    threshold: '!= "ok"'
    missing: keep
    labels: {team: core}
    annotations: {text: "{{ value }} of {{ labels.host }}"}
  - name: off
    expr: fetch('job.on')
    threshold: "== false"
    missing: resolve
    for: 1m
    summary: "{host} is {value}"
  - name: busy
    promql: load > 5
    resolve_promql: load < 3
"""
OF_OWN = """
rule_files: [own.yaml]
tests:
- interval: 1m
  input_series:
  - {series: 'job.state{host="a"}', values: '"ok"x2 "bad one"x1 _x3 "ok"'}
  - {series: 'job.state{host="b"}', values: '"bad"x1 stale'}
  - {series: 'job.on{host="a"}', values: 'true falsex3 _x5'}
  - {series: 'load{host="a"}', values: '1 6 4 4 2 4'}
  alert_rule_test:
  - eval_time: 1m
    alertname: state
    exp_alerts:
    - {exp_labels: {host: b, team: core}, exp_annotations: {text: bad of b, summary: 'state: bad, and the threshold is != "ok"'}}
  - eval_time: 7m   # missed polls keep the alert; the series of b has ended
    alertname: state
    exp_alerts:
    - exp_labels: {host: a, team: core}
      exp_annotations: {text: bad one of a, summary: 'state: bad one, and the threshold is != "ok"'}
  - {eval_time: 8m, alertname: state}
  - eval_time: 3m
    alertname: off
    exp_alerts: [{exp_labels: {host: a}, exp_annotations: {summary: a is false}}]
  - {eval_time: 6m, alertname: off}
  - eval_time: 3m
    alertname: busy
    exp_alerts: [{exp_labels: {host: a}, exp_annotations: {summary: 'busy: 6'}}]
  - {eval_time: 4m, alertname: busy}
"""


def test_rules_of_our_own_language_with_texts_booleans_ends_and_missed_polls(tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text(OWN)
    (tmp_path / "test.yaml").write_text(OF_OWN)
    assert run_unit_tests(read_unit_tests(tmp_path / "test.yaml"), tmp_path) == []


def test_the_command_tells_what_differs_and_where(tmp_path: Path) -> None:
    write(tmp_path)
    good, bad, broken = (str(tmp_path / f"{name}.yaml") for name in ("fires", "other_labels", "unknown_key"))
    assert CliRunner().invoke(app, ["rules", "test", good]).exit_code == 0
    result = CliRunner().invoke(app, ["rules", "test", good, bad, broken, str(tmp_path / "nowhere")])
    assert result.exit_code == 1
    assert result.output.count("SUCCESS") == 1
    assert 'Labels:{alertname="Down", instance="z", job="a", level="low", severity="page"}' in result.output
    assert "unknown_key.yaml:11:3: tests[0].alerts: unknown key" in result.output
    assert "No such file" in result.output


def run(folder: Path, text: str) -> list[str]:
    (folder / "rules.yml").write_text("groups: []\n")
    (folder / "test.yml").write_text(text)
    return run_unit_tests(read_unit_tests(folder / "test.yml"), folder)


@pytest.mark.parametrize(
    ("start", "end_s"), [("1609459200", 1609459260), ('"2024-01-01T01:00:00+01:00"', 1704067260), ("1.5", 61.5)]
)
def test_a_test_may_begin_at_any_time(tmp_path: Path, start: str, end_s: float) -> None:
    """As in promtool 3: Debian's version does not know it."""
    asked = f"  promql_expr_test:\n  - {{expr: time(), eval_time: 1m, exp_samples: [{{value: {end_s}}}]}}\n"
    series = "  - {series: x, values: '1 2'}\n"
    assert run(tmp_path, of(series, asked, more=f"  start_timestamp: {start}\n")) == []
    (failure,) = run(tmp_path, of(series, asked.replace(f"{end_s}", "60"), more=f"  start_timestamp: {start}\n"))
    assert f"got: {{}} {float(end_s)!r}" in failure


@pytest.mark.parametrize("start", ["inf", "nan", "1e300", "-1", "2024-01-01T00:00:00", "soon"])
def test_a_begin_that_is_no_time_is_told_with_its_place(tmp_path: Path, start: str) -> None:
    with pytest.raises(ConfigFileError, match=r"test\.yml:\d+:\d+: tests\[0\]\.start_timestamp: "):
        run(tmp_path, of("  - {series: x, values: '1'}\n", "", more=f"  start_timestamp: {start}\n"))


def test_values_that_differ_in_their_last_bit_are_equal_on_request(tmp_path: Path) -> None:
    asked = "  promql_expr_test:\n  - {expr: x, exp_samples: [{labels: x, value: 3}]}\n"
    for value, fuzzy in (("2.9999999999999996", True), ("3.0000000000000004", True), ("2.9999999999999991", False)):
        text = of(f"  - {{series: x, values: '{value}'}}\n", asked)
        assert len(run(tmp_path, text)) == 1
        assert len(run(tmp_path, f"fuzzy_compare: true\n{text}")) == (0 if fuzzy else 1)


def test_a_test_is_bounded(tmp_path: Path) -> None:
    write(tmp_path)
    file = tmp_path / "long.yaml"
    file.write_text(of(UP, QUERIES + query("up", "10000d")))
    (told,) = run_unit_tests(read_unit_tests(file), tmp_path)
    assert "evaluations" in told
    file.write_text(of("  - {series: up, values: '1x99999999999'}\n", ""))
    with pytest.raises(ConfigFileError, match="more than"):
        read_unit_tests(file)
