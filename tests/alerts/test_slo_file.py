"""Service level objectives: recorded indicators, alerts on burn rates, and the report of budgets."""

from __future__ import annotations

import json
import textwrap
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import pytest

from alerts.evaluation.unit_tests import run_unit_tests
from alerts.rules.rule_file import parse_rules, read_objectives
from alerts.rules.slo_file import ERRORS, REQUESTS
from alerts.rules.unit_test_file import read_unit_tests
from artimon.cli.budget_output import run_budget
from artimon.model.select import Store
from artimon.runtime.config_file import ConfigFileError
from query_dsl.evaluation.query_runner import QueryRunner
from tests.query_dsl.plain_store import PlainStore

MINUTE, DAY = 60_000, 86_400_000
START = 1_800_000_000_000 // DAY * DAY
SLO = """
slos:
  - name: checkout
    objective: 99.9
    errors: sum by (service) (rate(http_requests_total{code=~"5.."}[5m]))
    requests: sum by (service) (rate(http_requests_total[5m]))
    labels: {team: shop}
"""
SERIES = """
  input_series:
    - {{series: 'http_requests_total{{service="a",code="200"}}', values: '0+{good}x{n}'}}
    - {{series: 'http_requests_total{{service="a",code="500"}}', values: '{bad}'}}
    - {{series: 'http_requests_total{{service="b",code="200"}}', values: '0+600x{n}'}}
"""


def verdicts(folder: Path, series: str, tests: str) -> list[str]:
    """Failures of unit tests on the objective."""
    (folder / "slo.yaml").write_text(SLO)
    test = folder / "test.yaml"
    text = "rule_files: [slo.yaml]\nevaluation_interval: 1m\ntests:\n- interval: 1m" + series
    test.write_text(text + textwrap.indent(textwrap.dedent(tests), "  "))
    return run_unit_tests(read_unit_tests(test), folder)


def fires(at: str, *severities: tuple[str, str]) -> str:
    """Expected alerts of service a: severity and summary."""
    expected = [
        f"    - {{exp_labels: {{severity: {severity}, service: a, slo: checkout, team: shop}},"
        f" exp_annotations: {{summary: '{text} of the requests of checkout fail'}}}}"
        for severity, text in severities
    ]
    lines = [f"- eval_time: {at}", "  alertname: checkout", *(["  exp_alerts:"] if expected else []), *expected]
    return "\n".join(lines) + "\n"


def test_a_high_burn_rate_pages_and_ends_soon_after_the_errors(tmp_path: Path) -> None:
    """2 % of the requests of one service fail for 90 minutes: 20 times the budget of 0.1 %."""
    series = SERIES.format(good=588, n=200, bad="0x60 12+12x90 1092x50")
    during = (("page", "1.934%"), ("ticket", "0.9845%"))
    tests = "alert_rule_test:\n" + fires("1h") + fires("2h", *during) + fires("3h10m", ("ticket", "0.978%"))
    failures = verdicts(tmp_path, series, tests)
    assert not failures, "\n".join(failures)


def test_errors_within_the_budget_alert_nobody(tmp_path: Path) -> None:
    series = SERIES.format(good=6000, n=120, bad="0+5x120")  # 0.083 %
    assert verdicts(tmp_path, series, "alert_rule_test:\n" + fires("1h") + fires("2h")) == []


def test_a_slow_burn_is_a_ticket(tmp_path: Path) -> None:
    series = SERIES.format(good=1000, n=150, bad="0+4x150")  # 0.4 %: four times the budget
    failures = verdicts(tmp_path, series, "alert_rule_test:\n" + fires("2h30m", ("ticket", "0.3984%")))
    assert not failures, "\n".join(failures)


def test_recorded_series_have_the_labels_of_the_objective_and_no_error_is_zero(tmp_path: Path) -> None:
    series = SERIES.format(good=60, n=20, bad="0x20")
    tests = """\
    promql_expr_test:
      - expr: 'slo:errors:rate5m'
        eval_time: 10m
        exp_samples:
          - {labels: 'slo:errors:rate5m{service="a",slo="checkout",team="shop"}', value: 0}
          - {labels: 'slo:errors:rate5m{service="b",slo="checkout",team="shop"}', value: 0}
      - expr: 'slo:requests:rate5m{service="a"}'
        eval_time: 10m
        exp_samples:
          - {labels: 'slo:requests:rate5m{service="a",slo="checkout",team="shop"}', value: 1}
    """
    assert verdicts(tmp_path, series, tests) == []


def test_rules_have_the_windows_of_the_objective() -> None:
    file = parse_rules(SLO.replace("99.9", "99").replace("labels:", "window: 7d\n    labels:"), "slo.yaml")
    assert [rule.name for rule in file.rules] == ["checkout/page", "checkout/ticket"]
    page = file.rules[0]
    # 2 % of the budget of 7 days in an hour is 3.36 times the even rate: 3.36 % of the requests
    assert f'{ERRORS}{{slo="checkout"}}[1h]' in page.expr
    assert "> 0.0336" in page.expr
    assert [record.record for record in file.records] == [ERRORS, REQUESTS]
    assert parse_rules(SLO + "    alerts: []\n", "slo.yaml").rules == ()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("99.9", "100"), "slo.yaml:4:16"),
        (("99.9", "0"), "slo.yaml:4:16"),
        (("{team: shop}", "{slo: x}"), "slo.yaml:7:14: slos[0].labels.slo: slo is a label of every objective"),
        (("    labels", "    window: 1h\n    labels"), "1h is not a window of an objective: use 1d to 90d"),
        (("[5m]))\n    requests", "[5m)\n    requests"), "slo.yaml:5:"),
        (("    labels", "    alerts: [call]\n    labels"), "slo.yaml:7:14"),
        (("    requests", "    labels: {}\n    requests"), "labels"),
        (("rate(http_requests_total[5m]))\n    labels", "1)\n    labels"), "slo.yaml:6:"),
        (("sum by (service) (rate(http_requests_total[5m]))", "http_requests_total[5m]"), "are not valid"),
        (("sum by (service) (rate(http_requests_total[5m]))", "x" * 16_380), "the query has 1"),
        (("    objective: 99.9\n", ""), "give the percentage of good requests, as in objective: 99.9"),
    ],
)
def test_faults_have_a_position(change: tuple[str, str], message: str) -> None:
    with pytest.raises(ConfigFileError) as raised:
        parse_rules(SLO.replace(*change), "slo.yaml")
    assert message in str(raised.value)


def test_two_objectives_of_one_name_are_refused() -> None:
    twice = SLO + SLO.replace("\nslos:\n", "")
    with pytest.raises(ConfigFileError, match="objective 'checkout'"):
        parse_rules(twice, "slo.yaml")


def session(store: PlainStore, now_ms: int) -> QueryRunner:
    """A session that answers PromQL from a store."""

    class Runner(QueryRunner):
        @property
        def now_ms(self) -> int:
            return now_ms

        def _engine(self, engine: str) -> AbstractContextManager[Store]:
            assert engine == "auto"
            return nullcontext(store)

    return Runner()


def recorded(store: PlainStore, service: str, errors: float, days: int) -> None:
    """Recorded rates of 10 requests a second, one sample an hour."""
    labels = {"slo": "checkout", "service": service, "team": "shop"}
    times = [START - days * DAY + (i + 1) * 60 * MINUTE for i in range(days * 24)]
    store.add(ERRORS, labels, [(time, errors * 10) for time in times])
    store.add(REQUESTS, labels, [(time, 10.0) for time in times])


def test_budget(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = PlainStore(level_table=((60 * MINUTE, 24 * 40),))
    recorded(store, "a", 0.0005, 2)
    recorded(store, "b", 0.002, 2)
    file = tmp_path / "slo.yaml"
    file.write_text(SLO.replace("    labels", "    window: 1d\n    labels"))
    assert run_budget(session(store, START), [file], None, as_json=True) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(one["labels"]["service"], round(one["used"], 6), round(one["burn"], 6)) for one in found] == [
        ("a", 0.5, 0.5),
        ("b", 2.0, 2.0),
    ]
    assert run_budget(session(store, START), [file], None) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first == (
        'checkout{service="a",team="shop"}  99.95 % of 99.9 % in 1d, 50.0 % of the error budget used,'
        " burn rate of the last hour 0.5"
    )
    assert "200.0 % of the error budget used" in second


def test_budget_without_data_or_objectives(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "slo.yaml"
    file.write_text(SLO)
    assert run_budget(session(PlainStore(), START), [file], None) == 1
    assert "checkout: no requests were recorded" in capsys.readouterr().err
    file.write_text("rules: []\n")
    assert run_budget(session(PlainStore(), START), [file], None) == 1
    assert "no objective" in capsys.readouterr().err
    assert read_objectives("groups: []\n", "x.yaml") == ()
