"""Settings of a process for PromQL: exact increases, and names with dots and underscores that find each other."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from typer.testing import CliRunner

from artimon.api.api_limits import ApiConfig
from artimon.cli.query_output import QueryOptions, run_query
from artimon.cli.settings_command import OptionValues, settings_command
from artimon.model.clock import ManualClock
from artimon.model.select import NAME, Matcher
from artimon.model.values import Kind
from artimon.runtime.settings import load
from artimon.session import Session
from query_dsl.promql import PromqlResult, query_store
from query_dsl.promql.promql_settings import PromqlSettings
from query_dsl.promql.similar_names import similar_matchers
from query_dsl.stores.engine_store import MemoryStore
from tests.query_dsl.plain_store import MINUTE, PlainStore
from tests.query_dsl.promql.test_pushed import shards_of

T = 1_700_000_040_000 // MINUTE * MINUTE
NOW = T + 20_000
EXACT = PromqlSettings(exact_increase=True)


def counting_store() -> PlainStore:
    """A counter that grows faster and faster, so that extrapolation shows."""
    samples = [(T - 30_000 - i * MINUTE, (20 - i) ** 2) for i in range(20)]
    return PlainStore().add("c.total", {}, sorted(samples), Kind.COUNTER, birth=T - 60 * MINUTE)


def named_store() -> PlainStore:
    store = PlainStore()
    for value, name in enumerate(
        ("http.requests_total", "http_requests.total", "httpxrequests_total", "http_requests")
    ):
        store.add(name, {"route": "/"}, [(T - 20_000, value)])
    return store


def increase(session: Session, **options: Any) -> float:
    (value,) = session.promql('increase({"c.total"}[3m])', T, **options).tolist(0)
    assert isinstance(value, float)
    return value


def test_a_session_and_each_of_its_queries_choose_exact_increases() -> None:
    usual, exact = (Session(counting_store(), "nowhere", ManualClock(NOW), promql=one) for one in (None, EXACT))
    assert increase(usual) == pytest.approx(114)
    assert increase(exact) == increase(usual, exact_increase=True) == 111
    assert increase(exact, exact_increase=False) == increase(usual)


def test_the_command_line_chooses_exact_increases() -> None:
    session = Session(counting_store(), "nowhere", ManualClock(NOW))
    found = []
    for exact in (None, True):
        out = io.StringIO()
        asked = QueryOptions('increase({"c.total"}[3m])', "json", at="now-20s", promql=True, exact_increase=exact)
        assert run_query(session, asked, out) == 0
        found.append(json.loads(out.getvalue())["series"][0]["values"])
    assert found == [[pytest.approx(114)], [111]]


def names(found: PromqlResult) -> list[str]:
    return [labels[NAME] for labels, _ in found.series()]


@pytest.mark.parametrize("text", ["http_requests_total", '{"http.requests.total"}', '{"http.requests_total"}'])
def test_similar_names_find_each_other_on_request_only(text: str) -> None:
    store = MemoryStore(named_store())
    both = ["http.requests_total", "http_requests.total"]
    assert names(query_store(text, store, NOW, similar_names=True)) == both
    assert names(query_store(text, store, NOW)) == [name for name in both if f'"{name}"' in text]
    counted = query_store(f"sum(count_over_time({text}[5m]))", store, NOW, similar_names=True)
    assert counted.values.tolist() == [[2]]


def test_similar_names_are_found_in_shards() -> None:
    store = shards_of(
        ("a.b_total", [(T - 30_000, 1)]), ("a_b.total", [(T - 30_000, 2)]), ("aXb_total", [(T - 30_000, 4)])
    )
    found = query_store("sum(a_b_total)", MemoryStore(store), NOW, end_ms=T, similar_names=True)
    assert (found.values.tolist(), store.pushed) == ([[3]], 1)


def test_other_matchers_are_left_as_they_are() -> None:
    kept = (Matcher(NAME, "=", "up"), Matcher(NAME, "=~", "a_b"), Matcher(NAME, "!=", "a_b"), Matcher("x", "=", "a_b"))
    assert similar_matchers(kept) == kept
    assert similar_matchers((Matcher(NAME, "=", "a+b.c_d"),)) == (Matcher(NAME, "=~", r"a\+b[._]c[._]d"),)


def test_the_environment_and_then_the_command_line_set_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    app, made = typer.Typer(), list[PromqlSettings]()

    @settings_command(app, "artimon.api.api_limits:ApiConfig")
    def api(given: OptionValues, again: Annotated[bool, typer.Option("--again", help="Again.")] = False) -> None:
        """Start it."""
        made.append(given.make(ApiConfig).promql)

    def settings_of(*words: str) -> PromqlSettings:
        result = CliRunner().invoke(app, ["--data", str(tmp_path), *words])
        assert result.exit_code == 0, result.output
        return made.pop()

    assert settings_of() == PromqlSettings() == PromqlSettings.from_environment(load({}))
    assert settings_of("--promql-exact-increase", "--promql-similar-names") == PromqlSettings(True, True)
    monkeypatch.setenv("ARTIMON_PROMQL_EXACT_INCREASE", "true")
    monkeypatch.setenv("ARTIMON_PROMQL_SIMILAR_NAMES", "1")
    assert settings_of() == PromqlSettings(True, True) == PromqlSettings.from_environment(load())
    assert settings_of("--no-promql-exact-increase") == PromqlSettings(False, True)
