"""Times as values, and arithmetic of constants in arguments."""

from __future__ import annotations

from typing import Any

import pytest

from query_dsl import NothingSelected, QueryError, apply, evaluate, fetch, now, parse, time
from query_dsl.stores.levels import SETTLE_MS
from tests.query_dsl.plain_store import PlainStore

MINUTE, DAY = 60_000, 86_400
T = 1_800_000_000_000
NOW = T + SETTLE_MS + 7_000
ENDS = T + 30 * DAY * 1000


def asked(query: Any, name: str = "cert.not_after") -> list[Any]:
    store = PlainStore(level_table=((MINUTE, 60),)).add(
        name, {"host": "a"}, [(T - i * MINUTE, ENDS // 1000) for i in range(5)]
    )
    found = evaluate(parse(query) if isinstance(query, str) else query, store, NOW)
    return [found.tolist(i) for i in range(len(found))]


def test_days_until_a_certificate_ends() -> None:
    days = 30 - (NOW - T) / 1000 / DAY
    texts = ["(fetch('cert.not_after') - now()) / 86400", "fetch('cert.not_after').sub(now()).div(24 * 60 * 60)"]
    for query in [*texts, (fetch("cert.not_after") - now()) / 86400]:
        text = query if isinstance(query, str) else str(query)
        assert asked(f"({text}).range('2m')") == [[pytest.approx(days)] * 2]


def test_the_time_of_buckets_goes_with_them() -> None:
    assert asked("(time() - fetch('cert.not_after')).range('3m')") == [
        [(T - i * MINUTE - ENDS) / 1000 for i in (2, 1, 0)]
    ]
    assert asked((time() - now() + 0 * fetch("cert.not_after")).range("2m")) == [[-82.0, -22.0]]


def test_offsets_and_windows_move_the_time_of_buckets_not_now() -> None:
    """Both are as of the earlier bucket; the evaluation has one time."""
    late = "(time() - 0 * fetch('cert.not_after')).offset('1m').at('now')"
    assert asked(late) == [[(T - MINUTE) / 1000]]
    assert asked("(time() + 0 * fetch('cert.not_after')).map('mean', '3m').at('now')") == [[(T - MINUTE) / 1000]]
    assert asked("(now() + 0 * fetch('cert.not_after')).offset('1m').at('now')") == [[NOW / 1000]]


def test_a_time_beside_nothing_is_nothing() -> None:
    unknown = "fetch('cert.unknown')"
    for literal in ("now()", "time()", "(now() / 60)", "(time() - 60)", "(now() + 1 - time())"):
        for text in (f"{literal} - {unknown}", f"{unknown} * {literal}", f"{literal} + 1 - {unknown}"):
            with pytest.raises(NothingSelected):
                asked(text)
    with pytest.raises(NothingSelected):
        asked(f"(2 > 1) & ({unknown} > 0)")


@pytest.mark.parametrize("text", ["now()", "time()", "time() - now()", "now().rate('5m')", "-time()"])
def test_times_alone_are_no_series(text: str) -> None:
    with pytest.raises(QueryError, match=r"plain value|changes with time"):
        asked(text)


@pytest.mark.parametrize("text", ["now() - fetch('a')", "fetch('a') / (time() * 2)", "apply('max', now(), fetch('a'))"])
def test_text_and_tree_are_the_same(text: str) -> None:
    assert str(parse(text)) == text
    assert parse(str(parse(text))).equals(parse(text))


@pytest.mark.parametrize(
    ("call", "same"),
    [
        ("mul(1/60)", "mul(0.016666666666666666)"),
        ("mul(1024*1024)", "mul(1048576)"),
        ("clamp(-2**3, 5*(1+4))", "clamp(-8, 25)"),
        ("map('quantile', '5m', 95/100)", "map('quantile', '5m', 0.95)"),
        ("topk(7%4, by=[])", "topk(3, by=[])"),
        ("fill('value', -(3-1))", "fill('value', -2)"),
        ("mul(2**0.5)", f"mul({2**0.5!r})"),
        ("mul(7//2)", "mul(3)"),
        ("where(value > 5*60)", "where(value > 300)"),
        ("clamp(10**-2, 1e3)", "clamp(0.01, 1000.0)"),
    ],
)
def test_constants_are_computed(call: str, same: str) -> None:
    assert parse(f"fetch('x').{call}").equals(parse(f"fetch('x').{same}"))


@pytest.mark.parametrize(
    "argument",
    ["1/0", "1%0", "9**9**9", "10**400", "(-1)**0.5", "9223372036854775807+1", "1e308*10**308", "0**-1"],
)
def test_constants_without_a_value_are_refused(argument: str) -> None:
    with pytest.raises(QueryError, match="a division by 0, or a number too large") as caught:
        parse(f"fetch('x').clamp(0, {argument})")
    assert caught.value.position is not None
    with pytest.raises(QueryError, match="a division by 0, or a number too large") as caught:
        parse(f"fetch('x') * ({argument})")
    assert caught.value.position == 14


@pytest.mark.parametrize(
    "argument", ["'a'*3", "True+1", "value//2", "1<<3", "[1]*9", "None+1", "2*value", "1+fetch('x')"]
)
def test_other_arithmetic_is_refused(argument: str) -> None:
    with pytest.raises(QueryError):
        parse(f"fetch('x').clamp(0, {argument})")


def test_operands_of_constants_are_computed_in_text_and_in_python() -> None:
    assert str(parse("fetch('x') * (1024*1024)")) == "fetch('x') * 1048576"
    assert parse("fetch('x') > 5*60").equals(fetch("x") > 300)
    assert str(fetch("x") * apply("add", 1, 2)) == "fetch('x') * 3"
    assert str(parse("fetch('x') / 0")) == "fetch('x') / 0", "of series it is infinite"
    assert str(parse("fetch('x') * (inf - 1)")) == "fetch('x') * (inf - 1)"
    with pytest.raises(QueryError, match="a division by 0"):
        apply("div", 1, 0)
    with pytest.raises(QueryError, match=r"for series: write \(a / b\)\.floor\(\)"):
        parse("fetch('x') // 2")


def test_long_sums_of_constants_are_computed_at_once() -> None:
    assert parse("fetch('x') * (" + "+".join(["1"] * 400) + ")").equals(parse("fetch('x') * 400"))
