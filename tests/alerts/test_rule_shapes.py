"""Rules of one shape are asked once, with the results that each has alone."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from alerts.evaluation import rule_evaluator, rule_shapes
from alerts.evaluation.promql_answer import ask_promql
from alerts.state.promql_shape import promql_shape_of
from alerts.state.rule_shape import shape_of
from artimon.model.values import Value
from query_dsl import parse
from query_dsl.evaluation.evaluator import prepare
from query_dsl.promql import parse as parse_promql
from tests.alerts.worlds import World
from tests.query_dsl.plain_store import Sample
from tests.seeds import fixed_and_drawn

HOSTS, RACKS, MINUTES = 12, 3, 15
EXPRESSIONS = (
    "fetch('up{{host=\"h{n}\"}}')",
    "fetch('up{{host=\"h{n}\",dc!=\"x\"}}').map('max', '3m')",
    "fetch('load{{host=\"h{n}\"}}').rate('2m') * 60",
    "fetch('load{{host=\"h{n}\"}}').increase('3m').offset('1m')",
    "fetch('up{{rack=\"r{rack}\"}}').sum(by=['rack'])",
    "fetch('up{{rack=\"r{rack}\"}}').sum(by=['dc'])",
    "fetch('up{{rack=\"r{rack}\",host=\"h{n}\"}}').max(by=['host', 'rack'])",
    "fetch('mixed{{host=\"h{n}\"}}')",
    "fetch('load{{host=\"h{n}\"}}') * {n} - 3",
    "5 - fetch('mixed{{host=\"h{n}\"}}')",
    "(fetch('mixed{{host=\"h{n}\"}}') > 1) + 1",
    "fetch('up').sum(by=['rack']) + {n}",
)


def rules(random_: random.Random) -> str:
    """Rules of each shape for every host and some that do not exist, some with a label in place of the series' own."""
    made: list[dict[str, Any]] = []
    for kind, expression in enumerate(EXPRESSIONS):
        for n in range(HOSTS + 6):
            labels = {"rule": f"r{kind}"} | ({"host": "another"} if random_.random() < 0.2 else {})
            rule: dict[str, Any] = {
                "name": f"rule-{kind}-{n}",
                "expr": expression.format(n=n, rack=n % (RACKS + 1)),
                "threshold": random_.choice(("< 1", "> 2", "== 0")),
                "missing": random_.choice(("resolve", "keep", "fire")),
                "for": random_.choice(("0s", "2m")),
                "labels": labels,
            }
            made.append(rule)
    return json.dumps({"rules": made})


PROMQL = (
    'up{{host="h{n}"}} < {n} - 2',
    '{n} * up{{host="h{n}",dc!="x"}} + 1',
    'rate(load{{host="h{n}"}}[5m]) > bool {n}',
    'sum by (rack) (up{{rack="r{rack}"}}) > 0',
    'avg by (rack, host) (max_over_time(load{{host="h{n}"}}[3m]) / 2) >= {n}',
    '3 > up{{host="h{n}"}} offset 1m',
    '-1 <= (up{{host="h{n}"}} % 2)',
    "sum by (rack) (up) + {n} > {rack}",
    'absent(up{{host="h{n}"}})',
    'topk(1, up{{rack="r{rack}"}})',
)


def promql_rules(random_: random.Random) -> str:
    """Rules in PromQL of each shape for every host and some that do not exist, with and without a threshold."""
    made: list[dict[str, Any]] = []
    for kind, expression in enumerate(PROMQL):
        for n in range(HOSTS + 6):
            labels = {"rule": f"r{kind}"} | ({"host": "another"} if random_.random() < 0.2 else {})
            text = expression.format(n=n, rack=n % (RACKS + 1))
            rule: dict[str, Any] = {"name": f"rule-{kind}-{n}", "promql": text, "labels": labels}
            if random_.random() < 0.5:
                rule["threshold"] = random_.choice(("< 1", "> 2", "== 0"))
                rule["missing"] = random_.choice(("resolve", "fire"))
            made.append(rule)
    return json.dumps({"rules": made})


def minute(random_: random.Random, time: int) -> list[tuple[str, dict[str, str], Value]]:
    """Samples of one minute: counters that grow, gauges of three types, some hosts silent."""
    found: list[tuple[str, dict[str, str], Value]] = []
    for n in range(HOSTS):
        labels = {"host": f"h{n}", "rack": f"r{n % RACKS}", "dc": "a"}
        if random_.random() < 0.8:
            found.append(("up", labels, random_.randrange(3)))
            found.append(("load", labels, time * n))
            found.append(("mixed", labels, (1, 2.5, "text")[n % 3]))
    return found


def results(world: World) -> dict[str, Any]:
    view = world.engine.view()
    return {
        name: (result.error, result.truncated, sorted((step.labels, repr(step)) for step in result.steps))
        for name, result in view.results.items()
    }


@pytest.mark.parametrize("seed", fixed_and_drawn([1], "rule shapes"))
def test_results_are_those_of_rules_that_ask_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    random_ = random.Random(seed)
    counted = count_calls(monkeypatch, "prepare", prepare)
    asked, errors = compare(tmp_path, monkeypatch, random_, rules(random_), counted)
    assert any("compares with a number, the value is 'text'" in error for error in errors)
    assert asked[16] < asked[10**9] / 2  # the rules of a host with a text ask themselves: the error is their own


@pytest.mark.parametrize("seed", fixed_and_drawn([1], "rule shapes in PromQL"))
def test_results_in_promql_are_those_of_rules_that_ask_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    random_ = random.Random(seed)
    counted = count_calls(monkeypatch, "ask_promql", ask_promql)
    asked, _ = compare(tmp_path, monkeypatch, random_, promql_rules(random_), counted)
    assert asked[16] < asked[10**9] / 2  # absent and topk share nothing


def compare(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    random_: random.Random,
    text: str,
    counted: Callable[[], int],
) -> tuple[Counter[int], set[str]]:
    """Run both worlds over the same minutes; return the numbers of queries and the errors."""
    for folder in ("shaped", "alone"):
        (tmp_path / folder).mkdir()
    shaped, alone = World(tmp_path / "shaped"), World(tmp_path / "alone")
    for world in (shaped, alone):
        world.write(text)
        world.start()
        assert not world.engine.read_rules().problems
    asked: Counter[int] = Counter()
    errors: set[str] = set()
    for time in range(MINUTES):
        samples = minute(random_, time)
        ended = random_.sample(range(HOSTS), 2) if time > MINUTES // 2 else []
        for world, least in ((shaped, 16), (alone, 10**9)):
            monkeypatch.setattr(rule_shapes, "MIN_SHARED_SELECTORS", least)
            for name, labels, value in samples:
                put(world, name, labels, value)
            for one in world.store.series:
                one.ended = world.time if one.labels["host"] in {f"h{n}" for n in ended} else one.ended
            before = counted()
            world.tick()
            asked[least] += counted() - before
            errors |= {result.error for result in world.engine.view().results.values()}
        assert results(shaped) == results(alone)
        assert shaped.states() == alone.states()
    assert [asdict(note) for note in shaped.notes()] == [asdict(note) for note in alone.notes()]
    for world in (shaped, alone):
        world.close()
    return asked, errors


def count_calls(monkeypatch: pytest.MonkeyPatch, name: str, function: Callable[..., Any]) -> Callable[[], int]:
    """The number of queries that were evaluated so far."""
    evaluated = Mock(wraps=function)
    monkeypatch.setattr(rule_evaluator, name, evaluated)
    return lambda: evaluated.call_count


def put(world: World, name: str, labels: dict[str, str], value: Value) -> None:
    """One sample of the bucket that the next tick evaluates."""
    found = next((one for one in world.store.series if (one.name, one.labels) == (name, labels)), None)
    point = (world.time + 50_000, value)
    if found is None:
        world.store.add(name, labels, [point])
    else:
        found.samples.append(Sample(*point))


@pytest.mark.parametrize(
    ("text", "shape", "values"),
    [
        ("fetch('up{host=\"a\"}')", "fetch('up')", ("a",)),
        (
            'fetch(\'up{host="a",dc!="b",rack="c"}\').rate("5m") > 3',
            'fetch(\'up{dc!="b"}\').rate("5m")',
            ("a", "c"),
        ),
        ("1 - fetch('up{host=\"a\"}').sum(by=['host'])", "fetch('up').sum(by=['host'])", ("a",)),
        ("(fetch('up{host=\"a\"}') + 1).sum(by=['host']) * 2", "(fetch('up') + 1).sum(by=['host'])", ("a",)),
        ("fetch('up').sum(by=['host']) * 2", "fetch('up').sum(by=['host'])", ()),
    ],
)
def test_shape(text: str, shape: str, values: tuple[str, ...]) -> None:
    found = shape_of(parse(text))
    assert found is not None
    assert (found.text, found.values) == (str(parse(shape)), values)


@pytest.mark.parametrize(
    "text",
    [
        "fetch('up')",  # nothing is selected by value
        "fetch('up{host=~\"a\"}')",
        "fetch('up{host=\"\"}')",  # series without the label
        'fetch(\'up{host="a",host="b"}\')',
        "fetch('{host=\"a\"}')",  # of every name
        "fetch('up{host=\"a\"}').sum(by=['rack'])",  # a class of the shape may have more members
        "fetch('up{host=\"a\"}').sum(without=['rack'])",
        "fetch('up{host=\"a\"}') + fetch('up{host=\"a\"}')",
        "absent('up{host=\"a\"}')",
        "fetch('up{host=\"a\"}').topk(1, by=[])",
    ],
)
def test_query_without_a_shape(text: str) -> None:
    assert shape_of(parse(text)) is None


@pytest.mark.parametrize(
    ("text", "shape", "values", "operators"),
    [
        ('up{host="a"}', "up", ("a",), 0),
        ('up{host="a"} < 1', "up", ("a",), 1),
        ('2 * rate(x{host="a",dc!="b"}[5m]) > bool 3', 'rate(x{dc!="b"}[5m])', ("a",), 2),
        ('(sum by (rack) (up{rack="r"})) + 4 < -1', "sum by (rack) (up)", ("r",), 2),
        ("sum by (rack) (up) > 3", "sum by (rack) (up)", (), 1),
        ('round(up{host="a"}, 5)', "round(up, 5)", ("a",), 0),
    ],
)
def test_shape_of_promql(text: str, shape: str, values: tuple[str, ...], operators: int) -> None:
    found, whole = promql_shape_of(parse_promql(text)), promql_shape_of(parse_promql(f"({shape}) + 1"))
    assert found is not None
    assert whole is not None
    assert (found.node, found.values, len(found.operators)) == (whole.node, values, operators)


@pytest.mark.parametrize(
    "text",
    [
        "up",
        'up{host=~"a"}',
        '{host="a"}',
        'up{host="a"} @ 0',
        'sum(up{host="a"}) > 1',
        'sum without (rack) (up{host="a"})',
        'topk(3, up{host="a"})',
        'count_values("v", up{host="a"})',
        'absent(up{host="a"})',
        'histogram_quantile(0.9, rate(x{host="a"}[5m]))',
        'label_replace(up{host="a"}, "host", "b", "", "")',
        'up{host="a"} + up{host="a"}',
        'up{host="a"} and up',
        'max_over_time(up{host="a"}[5m:1m])',
        "vector(1) > 0",
        "1 > bool 0",
    ],
)
def test_promql_without_a_shape(text: str) -> None:
    assert promql_shape_of(parse_promql(text)) is None
