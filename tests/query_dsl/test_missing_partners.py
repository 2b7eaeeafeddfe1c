"""Operands that lack a partner: left out, or replaced by a default; the recipe of the error ratio over every engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from artimon.model.clock import ManualClock
from artimon.model.values import Kind
from query_dsl import Matrix, NothingSelected, QueryError, apply, evaluate, fetch, offline, parse
from query_dsl.stores.auto_store import AutoStore
from tests.query_dsl.past_lists import PastLists
from tests.query_dsl.reducing import table
from tests.query_dsl.test_pushdown import MINUTE, NOW, T, Told, fed_shards

BIRTH = T - 60 * MINUTE


def counter(name: str, each: int, service: str, **labels: str) -> Told:
    """A counter that grows by `each` a minute, for 20 minutes."""
    samples = tuple((T - i * MINUTE, BIRTH, each * (30 - i)) for i in reversed(range(20)))
    return Told(name, tuple(sorted({"service": service, **labels}.items())), Kind.COUNTER, samples, "s0", len(service))


SERIES = [
    counter("requests", 90, "shop", code="200"),
    counter("requests", 10, "shop", code="500"),
    counter("requests", 50, "mail", code="200"),
    counter("requests", 20, "web", code="200"),
]
HEALTHY = [one for one in SERIES if ("code", "500") not in one.labels]


def of_lists(told: list[Told]) -> Any:
    named = {f"{one.name}{{{','.join(f'{k}={v!r}' for k, v in one.labels)}}}": one for one in told}
    return offline(
        {name: [(time, value) for time, _, value in one.samples] for name, one in named.items()},
        births={name: [birth for _, birth, _ in one.samples] for name, one in named.items()},
        kinds=dict.fromkeys(named, "counter"),
    )


def past(told: list[Told]) -> Any:
    return PastLists(told, fed_shards(told, 1).levels())


def both(told: list[Told]) -> Any:
    """Memory that holds nothing of the past: the history answers what it lacks."""
    return AutoStore(fed_shards(told, 2), lambda: past(told), ManualClock(NOW))


STORES: dict[str, Callable[[list[Told]], Any]] = {
    "memory": lambda told: fed_shards(told, 2),
    "history": past,
    "auto": both,
    "offline": of_lists,
}
RATIO = (
    "fetch('requests{code=~\"5..\"}', default=0).increase('5m').sum(by=['service']) / "
    "fetch('requests').increase('5m').sum(by=['service'])"
)


def answered(text: str, store: Any) -> Matrix:
    assert parse(str(parse(text))).equals(parse(text))
    return evaluate(parse(f"({text}).at('now')"), store, NOW)


@pytest.mark.parametrize("engine", STORES)
def test_the_error_ratio_of_healthy_services_is_zero(engine: str) -> None:
    found = answered(RATIO, STORES[engine](SERIES))
    assert table(found) == {'{service="mail"}': [0.0], '{service="shop"}': [0.1], '{service="web"}': [0.0]}
    found = answered(RATIO, STORES[engine](HEALTHY))
    assert table(found) == {'{service="mail"}': [0.0], '{service="shop"}': [0.0], '{service="web"}': [0.0]}
    assert any("selects nothing" in note and "this operand of div is 0" in note for note in found.notes), found.notes


@pytest.mark.parametrize("engine", STORES)
def test_a_key_without_a_partner_is_left_out_and_named(engine: str) -> None:
    text = RATIO.replace(", default=0", "")
    found = answered(text, STORES[engine](SERIES))
    assert table(found) == {'{service="shop"}': [0.1]}
    named = 'div: left out 2 series on the right without a partner on the left: {service="mail"}, {service="web"}'
    assert named in found.notes
    found = answered(text, STORES[engine](HEALTHY))
    assert table(found) == {}
    assert any("selects nothing" in note and "this operand of div is empty" in note for note in found.notes)


@pytest.mark.parametrize("engine", STORES)
def test_a_number_stands_for_what_is_missing(engine: str) -> None:
    errors = "fetch('requests{code=~\"5..\"}').increase('5m').sum(by=['service'])"
    store = STORES[engine](SERIES)
    assert table(answered(f"{errors}.or_(0) - fetch('requests').increase('5m').sum(by=['service'])", store)) == {
        '{service="mail"}': [-250.0],
        '{service="shop"}': [-450.0],
        '{service="web"}': [-100.0],
    }
    assert table(answered(f"({errors}.or_(0) > 20)", STORES[engine](HEALTHY))) == {"{}": [False]}
    assert table(answered(f"{errors}.or_(0)", STORES[engine](HEALTHY))) == {"{}": [0]}


def store() -> Any:
    return offline(
        {
            "a{h='1'}": [(MINUTE, 1), (3 * MINUTE, 3)],
            "a{h='2'}": [(MINUTE, 5), (2 * MINUTE, 6), (3 * MINUTE, 7)],
            "b{h='2'}": [(MINUTE, 2), (2 * MINUTE, 2), (3 * MINUTE, 2)],
            "b{h='3'}": [(MINUTE, 4)],
            "on{h='2'}": [(MINUTE, True), (3 * MINUTE, False)],
        }
    )


def asked(text: str) -> dict[str, list[Any]]:
    query = parse(f"({text}).range('3m')")
    assert parse(str(query)).equals(query)
    return table(evaluate(query, store(), 3 * MINUTE + 15_000))


@pytest.mark.parametrize(
    ("text", "expect"),
    [
        ("fetch('a') - fetch('b')", {'{h="2"}': [3.0, 4.0, 5.0]}),
        ("fetch('a', default=0) - fetch('b')", {'{h="2"}': [3.0, 4.0, 5.0], '{h="3"}': [-4.0, None, None]}),
        ("fetch('a') - fetch('b', default=0)", {'{h="1"}': [1.0, None, 3.0], '{h="2"}': [3.0, 4.0, 5.0]}),
        (
            "fetch('a', default=10) - fetch('b', default=0)",
            {'{h="1"}': [1.0, 10.0, 3.0], '{h="2"}': [3.0, 4.0, 5.0], '{h="3"}': [6.0, 10.0, 10.0]},
        ),
        ("fetch('a').or_(10) - fetch('b')", {'{h="2"}': [3.0, 4.0, 5.0], '{h="3"}': [6.0, None, None]}),
        ("fetch('a').or_(2)", {'a{h="1"}': [1, 2, 3], 'a{h="2"}': [5, 6, 7]}),
        ("fetch('a').or_(0.5)", {'a{h="1"}': [1.0, 0.5, 3.0], 'a{h="2"}': [5.0, 6.0, 7.0]}),
        ("fetch('on').or_(True)", {'on{h="2"}': [True, True, False]}),
        ("fetch('on').or_(7)", {'on{h="2"}': [1, 7, 0]}),
        ("fetch('a') + fetch('c')", {}),
        ("fetch('a') + fetch('c', default=100)", {'{h="1"}': [101.0, None, 103.0], '{h="2"}': [105.0, 106.0, 107.0]}),
        ("(fetch('c', default=1) * 60) + fetch('b{h=\"2\"}')", {'{h="2"}': [62.0, 62.0, 62.0]}),
        ("-fetch('c', default=1).map('add', 1) + fetch('b{h=\"2\"}')", {'{h="2"}': [0.0, 0.0, 0.0]}),
        ("(fetch('c', default=1) + fetch('d', default=2)) * fetch('b{h=\"2\"}')", {'{h="2"}': [6.0, 6.0, 6.0]}),
        ("fetch('c', default=1) + fetch('d', default=2)", {"{}": [3.0, 3.0, 3.0]}),
        ("fetch('c', default=4).sum(by=['rack'])", {"{}": [4, 4, 4]}),
        ("fetch('a{h=\"2\"}') / fetch('c', default=2).sum(by=[]).scalar()", {'{h="2"}': [2.5, 3.0, 3.5]}),
        ("fetch('a').where(fetch('c', default=0) == 0)", {'a{h="1"}': [1, None, 3], 'a{h="2"}': [5, 6, 7]}),
        ("fetch('a').where(fetch('on', default=True))", {'a{h="1"}': [1, None, 3], 'a{h="2"}': [5, 6, None]}),
        ("fetch('a').unless(fetch('c'))", {'a{h="1"}': [1, None, 3], 'a{h="2"}': [5, 6, 7]}),
        ("fetch('c').or_(fetch('b{h=\"3\"}'))", {'b{h="3"}': [4, None, None]}),
        ("fetch('a').and_(fetch('c'))", {}),
    ],
)
def test_what_stands_for_missing_keys_and_points(text: str, expect: dict[str, list[Any]]) -> None:
    assert asked(text) == expect


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("fetch('a') - apply('sub', fetch('a'), fetch('b'), unmatched='error')", "2 series have no partner"),
        ("fetch('c') * 2", "no variable is named 'c'"),
        ("fetch('c') * fetch('d')", "no variable is named 'c'"),
        ("fetch('c').sum(by=[])", "no variable is named 'c'"),
        ("fetch('a').or_('x')", "a default is a number, True or False, not 'x'"),
        ("apply('set_or', fetch('a'), 0, on=['h'])", "or with a number pairs no series"),
        ("fetch('a', default='x')", "default takes a number, not 'x'"),
        ("fetch('a', fallback=1)", "fetch() has no argument fallback="),
    ],
)
def test_refusals(text: str, message: str) -> None:
    with pytest.raises(QueryError) as caught:
        asked(text)
    assert message in str(caught.value)


def test_ambiguous_partners_stay_an_error() -> None:
    with pytest.raises(QueryError, match="on the left two series have the same key"):
        asked("apply('add', fetch('a'), fetch('b'), on=[])")


def test_a_note_says_that_no_key_is_common() -> None:
    found = evaluate(parse("fetch('a{h=\"1\"}').range('3m') + fetch('b')"), store(), 3 * MINUTE + 15_000)
    assert len(found) == 0
    assert found.notes[0].endswith('{h="1"}; no series pair: match fewer labels with on=[..] or ignoring=[..]')


def test_a_note_names_the_first_keys_only() -> None:
    many = offline({"a": [(MINUTE, 1)], **{f"b{{h='{i}'}}": [(MINUTE, 1)] for i in range(9)}})
    found = evaluate(parse("(fetch('a') + fetch('b', default=1)).or_(fetch('b') * fetch('a'))"), many, MINUTE + 15_000)
    (note,) = [note for note in found.notes if "on the left without" in note]
    assert note.startswith(
        'mul: left out 9 series on the left without a partner on the right: {h="0"}, {h="1"}, {h="2"}'
    )
    assert " and 6 more" in note


def test_own_functions_take_defaults() -> None:
    def share(part: Any, whole: Any) -> Any:
        return part / whole

    query = apply(share, fetch("b", default=0), fetch("a")).range("3m")
    found = evaluate(query, store(), 3 * MINUTE + 15_000)
    assert table(found)['{h="1"}'] == [0.0, None, 0.0]
    with pytest.raises(NothingSelected):
        evaluate(apply(share, fetch("c"), fetch("d")), store(), 3 * MINUTE + 15_000)
