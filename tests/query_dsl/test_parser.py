"""Text to tree and back, and texts that are no query."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from query_dsl import Expr, QueryError, absent, apply, evaluate, fetch, parse, samples
from query_dsl.functions.registry import Argument, Entry
from query_dsl.functions.step import Step
from query_dsl.functions.tables import OPERATORS, TABLES
from query_dsl.tree import nodes
from tests.query_dsl.plain_store import PlainStore

LABEL = st.sampled_from(["host", "dc", "rack", "volume"])
LABELS = st.lists(LABEL, unique=True, max_size=3)
DURATION = st.integers(1, 10**9).map(lambda ms: f"{ms}ms") | st.sampled_from(["5m", "1h30m", "2w"])
TEXT = st.text(st.characters(blacklist_categories=["Cs"]), max_size=12)
NUMBER = st.integers(-(2**63), 2**63 - 1) | st.floats()
NULLS = st.sampled_from(["skip", "propagate", "error"])
COUNT = st.none() | st.integers(0, 9)


@st.composite
def selectors(draw: st.DrawFn) -> str:
    name = draw(st.sampled_from(["cpu", "memcached.hits", "memcached.*", "a:b/c-d"]))
    parts = []
    for _ in range(draw(st.integers(0, 3))):
        op = draw(st.sampled_from(["=", "!=", "=~", "!~"]))
        value = draw(TEXT) if op in ("=", "!=") else draw(st.sampled_from(["a|b", "x{1,2}", r"\\d+,", "", "é.*"]))
        escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
        parts.append(f'{draw(LABEL)}{op}"{escaped}"')
    return f"{name}{{{','.join(parts)}}}" if parts else name


def grown(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    def match(on: list[str], kind: str, drop: bool, fill: float | None) -> dict[str, object]:
        unmatched = "drop" if drop else "error"
        return {"unmatched": unmatched, "fill": fill} | ({kind: on} if kind else {})

    matches = st.builds(match, LABELS, st.sampled_from(["", "on", "ignoring"]), st.booleans(), st.none() | NUMBER)
    return st.one_of(
        st.builds(lambda e, d: e.range(d), inner, DURATION),
        st.builds(lambda e, a: e.between(a, a + 10), inner, st.integers(-(2**50), 2**50)),
        st.builds(lambda e, a: e.at(a), inner, st.sampled_from(["now", "now-1h", "2026-11-21T13:00:00Z", 17, -5])),
        st.builds(lambda e, d: e.offset(d), inner, DURATION),
        st.builds(lambda e, w, g: e.rate(w, max_gap=g), inner, st.none() | DURATION, st.none() | DURATION),
        st.builds(
            lambda e, f, w, a, n, c: e.map(f, w, after=a, nulls=n, min_count=c),
            inner,
            st.sampled_from(["mean", "last", "delta"]),
            DURATION,
            st.none() | DURATION,
            NULLS,
            COUNT,
        ),
        st.builds(lambda e, d, c: e.bucketize("max", d, min_count=c), inner, DURATION, COUNT),
        st.builds(lambda e, a: e.clamp(a, a), inner, st.integers(-(2**63), 2**63 - 1)),
        st.builds(lambda e: e.abs(), inner),
        st.builds(
            lambda e, f, b, n, c: e.reduce(f, by=b, nulls=n, min_count=c),
            inner,
            st.sampled_from(["sum", "count"]),
            LABELS,
            NULLS,
            COUNT,
        ),
        st.builds(lambda e, b: e.mean(without=b), inner, LABELS),
        st.builds(lambda e, n: e.named(n), inner, TEXT.filter(lambda text: bool(text) and not set(text) & set("{}"))),
        st.builds(lambda e, n: e.named(n), inner, st.sampled_from(["{host}", "a {__name__} {{x}} {rack}"])),
        st.builds(lambda e, o, b: e.sub(o.mean(by=b)), inner, inner, LABELS),
        st.builds(lambda e, o, m: e.div(o, **m), inner, inner, matches),
        st.builds(lambda e: -e, inner),
        st.builds(lambda e: ~e, inner),
        st.builds(lambda op, a, b, m: apply(op, a, b, **m), st.sampled_from(list(OPERATORS)), inner, inner, matches),
        st.builds(lambda op, a, b: apply(op, a, b), st.sampled_from(list(OPERATORS)), inner, inner),
        st.builds(
            lambda op, a, b: apply(op, a, b), st.sampled_from(list(OPERATORS)), inner, NUMBER | TEXT | st.booleans()
        ),
        st.builds(lambda op, a, b: apply(op, b, a), st.sampled_from(list(OPERATORS)), inner, NUMBER),
    )


def argument(one: Argument) -> st.SearchStrategy[object]:
    """Any value that an argument takes."""
    least = one.least if one.least is not None else -9.0
    most = one.most if one.most is not None else least + 20.0
    numbers = st.floats(least, most, exclude_min=one.above == least, exclude_max=one.below == most)
    if one.above is not None or one.below is not None:
        low, high = one.above if one.above is not None else 0.0, one.below if one.below is not None else most
        numbers = st.floats(low, high, exclude_min=True, exclude_max=True)
    kinds: dict[str, st.SearchStrategy[object]] = {
        "duration": DURATION,
        "number": numbers,
        "integer": st.integers(math.ceil(least), math.floor(most)),
        "text": TEXT,
        "flag": st.booleans(),
        "choice": st.sampled_from(one.choices or ("",)),
        "label": LABEL,
        "labels": LABELS,
        "texts": st.lists(TEXT, max_size=3),
        "regex": st.sampled_from(["a|b", r"\\d+", "(x)y*"]),
        "zone": st.sampled_from(["UTC", "Europe/Zurich"]),
        "instant": st.sampled_from(["now-1h", 17, "2026-11-21T13:00:00Z"]),
        "value": NUMBER | TEXT | st.booleans(),
        "selector": selectors(),
    }
    return kinds[one.kind]


def called(family: str, entry: Entry, query: Expr, values: dict[str, Any]) -> Expr:
    if family == "window":
        return query.map(entry.name, "5m", **values)
    if family == "point":
        return query.map(entry.name, **values)
    if family == "reduce":
        return query.reduce(entry.name, by=["host"], **values)
    assert isinstance(entry, Step)
    return query._step(family, entry.name, [fetch("other")] * len(entry.operands), values)


@st.composite
def functions(draw: st.DrawFn) -> Expr:
    """Any registered function with any arguments that it takes."""
    family, entry = draw(st.sampled_from([(f, e) for f, t in TABLES.items() if f != "operator" for e in t.values()]))
    wanted = [one for one in entry.arguments if one.required or draw(st.booleans())]
    query = samples("a") if isinstance(entry, Step) and entry.run is None else fetch("a")
    values = {one.name: draw(argument(one)) for one in wanted}
    try:
        return called(family, entry, query, values)
    except QueryError:  # arguments that do not go together
        reject()


QUERIES = st.recursive(
    st.builds(fetch, selectors(), resolution=st.none() | st.just("raw"))
    | st.builds(absent, selectors(), expected=st.just([]) | st.just(['host="a"']))
    | st.builds(lambda s, f: samples(s).bucketize(f, "1m"), selectors(), st.sampled_from(["last", "mean"]))
    | functions().filter(lambda e: not nodes.gives_samples(e.node)),
    grown,
    max_leaves=8,
)


@given(functions())
@settings(max_examples=600, deadline=None)
def test_every_function_prints_what_parses(query: Expr) -> None:
    again = parse(str(query))
    assert again.equals(query), str(query)
    assert str(again) == str(query)


@given(QUERIES)
@settings(max_examples=400, deadline=None)
def test_printing_and_parsing_gives_the_same_tree(query: Expr) -> None:
    """parse(str(q)).equals(q), for every tree that the builder can make."""
    again = parse(str(query))
    assert again.equals(query), str(query)
    assert str(again) == str(query)


@given(st.text(alphabet="fetch('x').+-*/&|~<>=()[]{}\"\\\n abyn015,#:;@!lambda", max_size=60) | st.text(max_size=40))
@settings(max_examples=500, deadline=None)
def test_any_text_is_a_query_or_a_query_error(text: str) -> None:
    """Any text raises at most QueryError, with a position inside the text."""
    problem: QueryError | None = None
    try:
        parse(text)
    except QueryError as caught:
        problem = caught
    if problem is not None:
        assert str(problem)
        assert problem.position is None or 0 <= problem.position <= len(text)


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("fetch('a').map(mean, '5m')", "fetch('a').map('mean', '5m')"),
        ("fetch('a').map('rate', '5m')", "fetch('a').rate('5m')"),
        ("fetch('a').rate('300s')", "fetch('a').rate('5m')"),
        ("fetch('a').clamp(0, 1)", "fetch('a').map(clamp, 0, 1)"),
        ("fetch('a').reduce(mean, by=['b'])", "fetch('a').mean(by=['b'])"),
        ("apply(sub, fetch('a'), fetch('b'))", "fetch('a') - fetch('b')"),
        ("fetch('a{}')", "fetch('a')"),
        ("fetch('{__name__=\"a\"}')", "fetch('a')"),
        ("fetch(\"a{b='c',}\")", "fetch('a{b=\"c\"}')"),
        ("fetch('a')  # comment (", "fetch('a')"),
        ("fetch('a')\n  .rate('5m')\n  .sum(by=[])", "fetch('a').rate('5m').sum(by=[])"),
        ("fetch(r'a{b=~\"\\d+\"}')", "fetch('a{b=~\"\\\\\\\\d+\"}')"),
        ("-1 * fetch('a')", "(-1) * fetch('a')"),
        ("fetch('a') > 1", "(fetch('a') > 1)"),
    ],
)
def test_two_ways_to_write_the_same(text: str, same: str) -> None:
    assert parse(text).equals(parse(same)), (str(parse(text)), str(parse(same)))


def test_numbers_keep_their_type() -> None:
    assert not parse("fetch('a') + 1").equals(parse("fetch('a') + 1.0"))
    assert not parse("fetch('a') + 1").equals(parse("fetch('a') + True"))
    assert parse("fetch('a') + nan").equals(fetch("a") + math.nan)


ERRORS = [
    ("", "the query is empty"),
    ("fetch", "call it: fetch(…)"),
    ("cpu.load", "this is not allowed|call it|unknown"),
    ("feetch('a')", "unknown function feetch(); near: fetch"),
    ("fetch('a').meen(by=[])", "unknown function .meen(); near: mean"),
    ("fetch('a').map('meen', '5m')", "unknown function 'meen'; near: mean"),
    ("fetch('a').map(mean, 300)", "write a number and a unit"),
    ("fetch('a').mean()", "exactly one of by=[..] and without=[..]"),
    ("fetch('a').mean(by=None)", "exactly one of by=[..] and without=[..]"),
    ("fetch('a').mean(by=['b'], without=['c'])", "exactly one of"),
    ("fetch('a').mean(by='b')", "by takes a list of label names"),
    ("fetch('a').mean('5m')", '.map("mean", "5m")'),
    ("fetch('a').mean(by=['b'], nulls='no')", "use one of 'skip'"),
    ("fetch('a').mean(by=['b'], min_count=-1)", "not negative"),
    ("fetch('a').rate(window=5)", "is not a duration"),
    ("fetch('a').rat('5m')", "near: rate"),
    ("fetch('a', 'b')", "fetch(): too many arguments"),
    ("fetch(a)", 'put a in quotes: "a"'),
    ("fetch(fetch('a'))", "a literal is expected here"),
    ("fetch('a').map(lambda w: 1, '5m')", "own functions exist in Python only"),
    ("fetch('a')[0]", "cannot contain subscripts"),
    ("fetch('a') and fetch('b')", "write & for and"),
    ("fetch('a') if 1 else 2", "cannot contain if"),
    ("fetch('a') in fetch('b')", "in, is and not"),
    ("1 < fetch('a') < 3", "comparisons do not chain"),
    ("fetch('a') // 2", "this operator is not available"),
    ("fetch('a') @ fetch('b')", "this operator is not available"),
    ("[fetch('a')]", "not allowed in a query"),
    ("(x := 1)", "cannot contain an assignment"),
    ("fetch('a'), fetch('b')", "write a list"),
    ("f'{1}'", "without f"),
    ("b'a'", "not allowed in a query"),
    ("fetch(*['a'])", "* is not allowed"),
    ("fetch(**{})", "** is not allowed"),
    ("fetch('a'", "this '(' is not closed"),
    ("fetch('a'))", "this ')' has no opening bracket"),
    ("fetch('a]", "no closing quote"),
    ("fetch('a') fetch('b')", "not a query"),
    ("fetch('a{b=c}')", "must be in quotes"),
    ("fetch('a{b=~\"(\"}')", "not valid RE2"),
    ("fetch('{b!=\"x\"}')", "matches all series"),
    ("fetch('a').between('x', 'now')", "is not a time"),
    ("fetch('a').range('-5m')", "is not a duration"),
    ("apply(plus, fetch('a'), 1)", "unknown operator 'plus'"),
    ("apply(add, fetch('a'), 1, on=['a'], ignoring=['b'])", "not both"),
    ("apply(add, fetch('a'), [1])", "takes a query, a number or a text"),
]


@pytest.mark.parametrize(("text", "message"), ERRORS)
def test_invalid_queries_are_refused_with_a_reason(text: str, message: str) -> None:
    with pytest.raises(QueryError) as caught:
        parse(text)
    assert any(part in str(caught.value) for part in message.split("|")), str(caught.value)


@pytest.mark.parametrize(
    ("text", "position", "length"),
    [
        ("1 + fetch('a').meen(by=[])", 15, 4),
        ("fetch('a{b=\"é\"}') + fetch('b').meen(by=[])", 31, 4),
        ("fetch('a{b=c}')", 11, 1),
        ("fetch('ok')\n + feetch('x')", 15, 6),
        ("fetch('a').mean(bye=['x'])", 20, 5),
    ],
)
def test_errors_point_at_the_place(text: str, position: int, length: int) -> None:
    with pytest.raises(QueryError) as caught:
        parse(text)
    assert (caught.value.position, caught.value.length) == (position, length)
    line = text.split("\n")[text.count("\n", 0, position)]
    assert str(caught.value).splitlines()[-2] == f"  {line}"
    assert str(caught.value).splitlines()[-1].strip() == "^" * length


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("fetch('a').reduce('meen', by=[])", "'meen'"),
        ("fetch('a').map(meen, '5m')", "meen"),
        ("fetch('a').map('quantile', '5m', 1.5)", "1.5"),
        ("fetch('a').map('quantile', '5m', q=0.5, method='linar')", "'linar'"),
        ("fetch('a').rate('5x')", "'5x'"),
        ("fetch('a').rate('5m', max_gap='0s')", "'0s'"),
        ("fetch('a').mean(by='dc')", "'dc'"),
        ("fetch('a').mean(by=['dc', 'dc'])", "['dc', 'dc']"),
        ("fetch('a').topk(0, by=[])", "0"),
        ("fetch('a').between('now-1h', 'later')", "'later'"),
        ("fetch('a').mean(by=[], nulls='none')", "'none'"),
        ("apply(plus, fetch('a'), 1)", "plus"),
        ("apply(add, fetch('a'), 1, fill='x')", "'x'"),
        ("fetch('a').filter('last', '~', 1)", "'~'"),
        ("fetch('a').fill('prev')", "'prev'"),
        ("1 + fetch('a').mean()", "mean()"),
        ("1 + fetch('a').clamp(5, 1)", "clamp(5, 1)"),
        ("fetch('a').clamp(1, 1).clamp('x', 'x')", "clamp('x', 'x')"),
        ("fetch('a').node", "node"),
        ("fetch(disk.used)", "disk.used"),
        ("not fetch('a')", "not fetch('a')"),
    ],
)
def test_errors_point_at_the_argument_or_the_call(text: str, part: str) -> None:
    with pytest.raises(QueryError) as caught:
        parse(text)
    position = caught.value.position
    assert position is not None
    assert text[position : position + caught.value.length] == part


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("fetch('a').range('10m').sum(by=[]).range('20m')", "range('10m')"),
        ("fetch('a').between('now', 'now-1h')", "between('now', 'now-1h')"),
        ("fetch('a').bucketize('mean', '5m').bucketize('mean', '10m')", "bucketize('mean', '5m')"),
        ("fetch('a').bucketize('mean', '90s').range('1h')", "bucketize('mean', '90s')"),
        ("fetch('a').bucketize('mean', '1m').range('20000m')", "range('20000m')"),
        ("samples('a').bucketize('mean', '1ms').range('20000m')", "range('20000m')"),
    ],
)
def test_errors_of_the_grid_point_at_what_asks_for_it(text: str, part: str) -> None:
    with pytest.raises(QueryError) as caught:
        evaluate(parse(text), PlainStore().add("a", {}, [(60_000, 1)]), 36_000_000)
    position = caught.value.position
    assert position is not None
    assert caught.value.text == text
    assert text[position : position + caught.value.length] == part


ATTACKS = {
    "import": "__import__('os').system('true')",
    "attribute": "fetch.__globals__",
    "class": "fetch('a').__class__.__mro__",
    "private": "fetch('a')._wrap(1)",
    "format": "'{0.__class__}'.format(1)",
    "comprehension": "[x for x in (1, 2)]",
    "walrus": "(fetch := 1)",
    "power": "9 ** 9 ** 9",
    "shift": "1 << 10 ** 10",
    "text times": "'a' * 10 ** 10",
    "long": "fetch('a')" + " + 1" * 5_000,
    "many": "fetch('a')" + " + 1" * 501,
    "parentheses": "(" * 10_000 + "1" + ")" * 10_000,
    "open": "(" * 5_000,
    "calls": "fetch('a')" + ".abs()" * 2_000,
    "calls within limits": "fetch('a')" + ".abs()" * 400,
    "nested calls": "apply(add, " * 1_300 + "1",
    "unary": "-" * 10_000 + "1",
    "unary within limits": "~" * 400 + "fetch('a')",
    "lists": "fetch('a').mean(by=" + "[" * 99 + "]" * 99 + ")",
    "digits": "fetch('a') + " + "1" * 16_000,
    "huge regex": "fetch('a{b=~\"" + "(x+x+)+" * 1_000 + "y\"}')",
    "repeated regex": "fetch('a{b=~\"((x{900}){900}){900}\"}')",
    "huge duration": "fetch('a').range('999999999999999w')",
    "nul": "fetch('a')\0",
    "surrogate": "fetch('a{b=\"\\ud800\"}')",
}


@pytest.mark.parametrize("text", ATTACKS.values(), ids=ATTACKS)
def test_attacks_end_in_a_query_error(text: str) -> None:
    with pytest.raises(QueryError) as caught:
        evaluate(parse(text), PlainStore(), 0)
    assert len(str(caught.value)) < 2_000


def test_a_sum_of_many_terms_is_one_level() -> None:
    """Within the cap of operators a flat chain parses, prints and compares without recursion."""
    query = parse("fetch('a')" + " + 1" * 490)
    assert parse(str(query)).equals(query)


def test_a_query_built_too_deep_is_refused() -> None:
    def dig() -> None:
        query = fetch("a")
        for _ in range(200):
            query = query.abs()

    with pytest.raises(QueryError, match="nested more than"):
        dig()


def test_selector_may_hold_brackets_and_operators() -> None:
    """The pre-scan knows strings: what stands in quotes is not counted."""
    pattern = "(" * 20 + ")" * 20 + "+-" * 5
    query = parse(f"fetch('a{{b=\"{pattern * 20}\"}}')")
    assert isinstance(query.node, nodes.Fetch)
    assert query.node.selector.matchers[1].value == pattern * 20
