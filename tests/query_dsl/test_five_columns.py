"""Wrong or dangerous answers of the past, each asked of memory, history, both (auto), offline and by an alert rule.

One row of the table is a Case, one column a way to ask; the plain evaluator answers every query that it takes, too. The
numbers at the left are those of the list of defects that the cases come from."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from query_dsl.stores.levels import SETTLE_MS
from query_dsl.stores.query_limits import Limits
from tests.query_dsl.answer_columns import COLUMNS, Ask, Reply, Rows, open_columns
from tests.query_dsl.asking import agree
from tests.query_dsl.plainly import Raw, Sample, World
from tests.query_dsl.test_plain_evaluator import SHARD_LEVELS

MINUTE = 60_000
HOUR = 60 * MINUTE
T = 1_800_000_000_000
"""2027-01-15T08:00Z, a Friday: the end of all data."""
NOW = T + SETTLE_MS
OLD = T - 40 * 24 * HOUR
TOP = 2**61 + 854
SEVEN_LIVES = 16_140_901_064_495_863_642
"""Growth over seven lives that each end at TOP; modulo 2^64 it is -2305843009213687974."""
GROW = ".replace('.', '\\\\0\\\\0\\\\0\\\\0')" * 5

# --- data


def counted(name: str, labels: Mapping[str, str], each: int, count: int, every_ms: int = MINUTE) -> Raw:
    """A counter that grew by `each` between any two of its samples, and is older than the first of them."""
    samples = tuple(Sample(T - 10_000 - (count - i) * every_ms, each * i, OLD) for i in range(1, count + 1))
    return Raw(name, labels, "INTEGER", samples, "COUNTER")


def gauge(name: str, *values: Any, every_ms: int = MINUTE, **labels: str) -> Raw:
    """The last value lies ten seconds before T."""
    kinds: dict[type, str] = {bool: "BOOLEAN", int: "INTEGER", float: "DOUBLE", str: "STRING"}
    samples = (Sample(T - 10_000 - (len(values) - 1 - i) * every_ms, v, OLD) for i, v in enumerate(values))
    return Raw(name, labels, kinds[type(values[0])], tuple(samples), "GAUGE")


def lived(name: str, *lives: tuple[int, ...], birth: int = 0) -> Raw:
    """A counter with new starts, each told at the sample before as a source tells them that sees a counter fall."""
    times = iter(range(T - 10_000 - (sum(map(len, lives)) - 1) * MINUTE, T, MINUTE))
    samples: list[Sample] = []
    for values in lives:
        birth = samples[-1].time if samples else birth
        samples += [Sample(next(times), value, birth) for value in values]
    return Raw(name, {"host": "a"}, "INTEGER", tuple(samples), "COUNTER")


SERIES = (
    gauge("up", *[0] * 1_261, *[100] * 299, host="a"),
    counted("errors", {"host": "a"}, 5, 7 * 60),
    counted("budget", {"host": "a"}, 2, 11 * 24, HOUR),
    counted("requests", {"service": "shop", "code": "200"}, 90, 20),
    counted("requests", {"service": "shop", "code": "500"}, 10, 20),
    counted("requests", {"service": "mail", "code": "200"}, 50, 20),
    gauge("one", *[1] * 240, host="a"),
    gauge("orders", *[(8 - i) % 24 for i in reversed(range(1, 31))], every_ms=HOUR, host="a"),
    lived("falls", (10, 20), (3, 8)),
    lived("unknown", (100, 110, 130)),
    lived("lives", *[(5, 10, TOP // 2, TOP)] * 7, birth=T - 29 * MINUTE),
    gauge("on", True, False, True, host="a"),
    gauge("colour", "red", "red", "blue", host="a"),
    gauge("slow", *[2 * i for i in range(10)], every_ms=5 * MINUTE, host="a"),
    gauge("fast", *range(50), host="a"),
    gauge("large", *[2**62] * 3, every_ms=1_000, host="a"),
    *(gauge("word", *(f"{i:03} {j:02} " * 8 for j in range(60)), host=f"w{i:03}") for i in range(170)),
)
WORLD = World(SERIES, SHARD_LEVELS)

# --- table


@dataclass(frozen=True)
class Expected:
    """Values by series with a part of a note, or a part of the error; `reason`: why a column has no such answer."""

    rows: Rows | None = None
    note: str = ""
    error: str = ""
    reason: str = ""


def gives(value: Any, note: str = "", name: str = '{host="a"}') -> Expected:
    """One value of one series, or a row of them."""
    return Expected({name: value if isinstance(value, list) else [value]}, note)


def refused(error: str) -> Expected:
    return Expected(error=error)


def no_meaning(reason: str) -> Expected:
    return Expected(reason=reason)


@dataclass(frozen=True)
class Case:
    """A query and what it gives everywhere, but for some columns."""

    item: str
    query: str
    everywhere: Expected
    columns: Mapping[str, Expected] = field(default_factory=dict)
    seconds: float = 60

    def expected(self, column: str) -> Expected:
        return self.columns.get(column, self.everywhere)


NOW_ONLY = refused("is a fixed time: a rule asks about now")
DAY_BY_HOUR = [None, *range(9, 18), *[None] * 14]
"""Of the buckets of 24 hours until 8:00, those of the hours 9 to 17."""
ORDERS = "fetch('orders').bucketize('last', '1h')"
HOUR_OF = f"{ORDERS}.calendar('hour', zone='%s')"
IN_HOURS = f"{ORDERS}.where(({HOUR_OF} >= 9) & ({HOUR_OF} < 18))"
FAILED = "fetch('requests{code=\"500\"}').increase('5m').sum(by=['service'])"
NONE_FAILED = FAILED.replace("500", "418")
ALL = "fetch('requests').increase('5m').sum(by=['service'])"
SHOP, MAIL = '{service="shop"}', '{service="mail"}'
CASES = [
    # 1.1 windows longer than a level
    Case("1.1 mean of a day", "fetch('up').map('mean', '1d').at('now')", gives(29_900 / 1_440)),
    Case("1.1 increase of 6 h", "fetch('errors').increase('6h').at('now')", gives(1_800)),
    Case(
        "1.1 windows of 5 m and 6 h in one query",
        "(fetch('errors').increase('5m') / fetch('errors').increase('6h')).at('now')",
        gives(25 / 1_800),
    ),
    Case(
        "1.1 a window that memory does not hold",
        "fetch('budget').increase('10d').at('now')",
        gives(480),
        {
            "memory": gives(None, "begins before what memory holds: NA"),
            "rules without history": refused("the answer is truncated"),
            "plain": no_meaning("the plain evaluator has the levels of memory, and no notes"),
        },
    ),
    Case(
        "1.1 an answer from buckets that are too wide",
        "fetch('up').map('median', '1d').at('now')",
        gives(0.0, "points are approximate"),
        {"offline": gives(0.0), "rules": refused("points are approximate")},
    ),
    # 1.2 a missing partner
    Case(
        "1.2 error ratio of a healthy and a failing service",
        f"({FAILED.replace(chr(39) + ')', chr(39) + ', default=0)', 1)} / {ALL}).at('now')",
        Expected({MAIL: [0.0], SHOP: [0.1]}),
    ),
    Case(
        "1.2 a key without a partner",
        f"({FAILED} / {ALL}).at('now')",
        Expected({SHOP: [0.1]}, f"left out 1 series on the right without a partner on the left: {MAIL}"),
    ),
    Case("1.2 refused on request", f"apply('div', {FAILED}, {ALL}, unmatched='error').at('now')", refused("partner")),
    Case("1.2 an operand of nothing", f"({NONE_FAILED} / {ALL}).at('now')", Expected({}, "operand of div is empty")),
    Case(
        "1.2 or_ with an operand of nothing",
        f"({NONE_FAILED}.or_(0) / {ALL}).at('now')",
        Expected({MAIL: [0.0], SHOP: [0.0]}),
    ),
    Case("1.2 fill", f"{FAILED}.div({ALL}, fill=0).at('now')", Expected({MAIL: [0.0], SHOP: [0.1]})),
    # 1.3 between
    Case(
        "1.3 ends that are no ends of buckets",
        f"fetch('one').map('sum', '13m').between({T - 133 * MINUTE}, {T - 120 * MINUTE})",
        refused("no bucket of 5m ends at the start 2027-01-15T05:47:00Z: use 2027-01-15T05:45:00Z or"),
        {"offline": gives([13.0] * 13), "rules": NOW_ONLY},
    ),
    Case(
        "1.3 a sum of 15 minutes",
        f"fetch('one').between({T - 130 * MINUTE}, {T - 115 * MINUTE}).bucketize('sum', '15m')",
        gives(15.0),
        {"rules": NOW_ONLY},
    ),
    Case(
        "1.3 a sum of 13 minutes",
        "fetch('one').between('now-23m', 'now-10m').bucketize('sum', '13m')",
        gives(13.0),
    ),
    # 1.4 the calendar of a bucket
    Case("1.4 the hours 9 to 17", f"({IN_HOURS % ('UTC', 'UTC')}).range('24h')", gives(DAY_BY_HOUR)),
    Case(
        "1.4 until the hour 17 elsewhere",
        f"({IN_HOURS % ('Etc/GMT-10', 'Etc/GMT-10')}).range('10h')",
        gives([None, 23, *range(8)]),
    ),
    Case(
        "1.4 midnight belongs to the day that ends",
        f"{ORDERS}.calendar('day', zone='Etc/GMT+8').range('2h')",
        gives([14, 14]),
    ),
    # 1.5 calendar buckets: midnight is at 8:00 and at 6:00 of these zones
    Case(
        "1.5 a day of a zone",
        "fetch('up').bucketize('mean', '1d', zone='Etc/GMT+8').at('now')",
        gives(29_900 / 1_440),
        {"plain": no_meaning("it has no calendars; tests of calendar buckets count days of their own")},
    ),
    Case(
        "1.5 since midnight",
        "fetch('one').map('sum', since='1d', zone='Etc/GMT+6').at('now')",
        gives(120.0),
        {"plain": no_meaning("it has no calendars; tests of calendar buckets count days of their own")},
    ),
    Case(
        "1.5 a profile of the hours",
        "fetch('orders').profile('hour', '24h').filter('{hour=\"07\"}').at('now')",
        gives(7.0, name='{host="a",hour="07"}'),
        {"plain": no_meaning("it has no calendars; tests of calendar buckets count days of their own")},
    ),
    # 1.6 starts of counters
    Case("1.6 a declared counter that falls", "fetch('falls').increase('5m').at('now')", gives(10 + 3 + 5)),
    Case("1.6 a start time of 0 is unknown", "fetch('unknown').increase('5m').at('now')", gives(30)),
    Case("2 the time of the evaluation", "(now() - fetch('fast')).at('now')", gives(NOW / 1000 - 49)),
    Case("2 the time of a bucket", "(time() - fetch('fast')).at('now')", gives(T / 1000 - 49)),
    Case(
        "2 arithmetic of constants", "fetch('fast').mul(1024 * 2 ** 10 / -7).at('now')", gives(49 * (1024 * 1024 / -7))
    ),
    # 1.7 types and arguments
    Case("1.7 BOOLEAN and a text", "(fetch('on') == 'true').at('now')", refused("write == True without quotes")),
    Case("1.7 BOOLEAN and True", "(fetch('on') == True).at('now')", gives(True)),
    Case("1.7 INTEGER and a text", "(fetch('fast') == '5').at('now')", refused("write == a number without quotes")),
    Case(
        "1.7 no counts of values that are not there",
        "fetch('colour').count_values('is', by=[]).range('3m')",
        Expected({'{is="red"}': [1, 1, None], '{is="blue"}': [None, None, 1]}),
    ),
    Case(
        "1.7 count_distinct",
        "fetch('{host=\"a\",__name__=~\"on|up\"}').count_distinct(by=[]).at('now')",
        gives(2, name="{}"),
    ),
    Case("1.7 hint for stddev", "stddev_over_time(fast[5m])", refused('map("sd", "5m", ddof=0)')),
    Case("1.7 the hinted deviation", "fetch('fast').map('sd', '5m', ddof=0).at('now')", gives(math.sqrt(2))),
    Case("1.7 hint for topk", "topk(3, fast)", refused('rank="each"')),
    Case(
        "1.7 groups as in sed",
        r"fetch('fast').label_replace('is', '\\1-b', 'host', '(.*)').at('now')",
        gives(49, name='{host="a",is="a-b"}'),
    ),
    Case(
        "1.7 groups as in PromQL",
        "fetch('fast').label_replace('is', '$1-b', 'host', '(.*)').at('now')",
        gives(49, name='{host="a",is="a-b"}'),
    ),
    Case(
        "1.7 a group that does not exist",
        "fetch('fast').label_replace('is', '$2', 'host', '(.*)').at('now')",
        refused("has no group"),
    ),
    Case("1.7 a quantile beyond 1", "fetch('fast').histogram_quantile(1.5, by=[]).at('now')", refused("q=1.5")),
    Case("1.7 an integral of one bucket", "fetch('fast').integrate().at('now')", refused('.range("1h").integrate()')),
    Case(
        "1.7 five minutes joined with one",
        "(fetch('slow') - fetch('fast')).range('5m')",
        gives([16.0 - 45, 16.0 - 46, 16.0 - 47, 16.0 - 48, 18.0 - 49], "carried until the next"),
    ),
    # 1.8 integers beyond int64
    Case(
        "1.8 an increase over seven lives",
        "fetch('lives').increase('30m').at('now')",
        gives(float(SEVEN_LIVES), "1 series exceed 64 bits"),
    ),
    Case(
        "1.8 a sum inside a bucket",
        "fetch('large').map('sum', '1m').at('now')",
        gives(float(3 * 2**62), "exceeds 64 bits"),
    ),
    Case("1.8 a product", "(fetch('large') * fetch('large')).at('now')", gives(2.0**124)),
    # 1.9 limits inside a step
    Case(
        "1.9 texts that grow, over 10,200 points",
        f"fetch('word'){GROW}.range('60m')",
        refused("limit"),
        {"plain": no_meaning("the plain evaluator has no limits")},
        seconds=0.5,
    ),
]


def params(cases: list[Case]) -> list[Any]:
    return [
        pytest.param(case, column, id=f"{case.item}-{column}")
        for case in cases
        for column in dict.fromkeys((*COLUMNS, "plain", *case.columns))
    ]


@pytest.fixture(scope="module")
def columns(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, Ask]]:
    with open_columns(WORLD, NOW, tmp_path_factory.mktemp("columns")) as found:
        yield found


@pytest.mark.parametrize(("case", "column"), params(CASES))
def test_every_column_gives_the_value_of_the_case(case: Case, column: str, columns: Mapping[str, Ask]) -> None:
    expected = case.expected(column)
    if expected.reason:
        pytest.skip(expected.reason)
    begun = time.process_time()
    reply = columns[column](case.query, Limits(seconds=case.seconds))
    assert time.process_time() - begun < case.seconds + 0.5
    check(reply, expected, column)


def check(reply: Reply, expected: Expected, column: str) -> None:
    assert bool(reply.error) == bool(expected.error), reply
    if column == "plain":
        assert expected.rows is None or same(reply.rows, expected.rows), reply
        return
    assert expected.error in reply.error, reply.error
    if column.startswith("rules"):
        expected = Expected(newest(expected.rows))
    assert expected.rows is None or same(reply.rows, expected.rows), reply
    assert any(expected.note in note for note in reply.notes) or not expected.note, reply.notes


def newest(rows: Rows | None) -> Rows | None:
    """An alert has the labels of its series, and only a value that is there."""
    if rows is None:
        return None
    return {re.sub(r"^\w+", "", name): row[-1:] for name, row in rows.items() if row[-1] is not None}


def same(found: Rows, expected: Rows) -> bool:
    """Equal types and values; the name of a series counts where the expected one has a name."""
    by_labels = {name if name in expected else re.sub(r"^[\w.]+", "", name): row for name, row in found.items()}
    if by_labels.keys() != expected.keys():
        return False
    return all(len(by_labels[k]) == len(row) and all(map(agree, by_labels[k], row)) for k, row in expected.items())


BROKEN = {
    "empty": "",
    "NUL": "fetch('up\0')",
    "a lone surrogate": "fetch('\ud800')",
    "5,000 digits": f"fetch('up') + {'9' * 5_000}",
    "too long": f"fetch('up'){'.abs()' * 5_000}",
    "not closed": "fetch('up",
    "a long unknown name": f"fetch('up').{'abs' * 2_000}()",
}


@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize("text", BROKEN.values(), ids=BROKEN)
def test_every_error_has_a_place_and_echoes_little(text: str, column: str, columns: Mapping[str, Ask]) -> None:
    """A caret below the query, or the line and column of the rule file."""
    error = columns[column](text, None).error
    assert re.search(r"rules\.yaml:1:\d+: " if column == "rules" else r"\n +\^", error), error
    echoed = [part for start in range(len(text) - 200) if (part := text[start : start + 201]) in error]
    assert not echoed
    assert not re.search(r"Traceback|<class|object at|ord\(\)|codec|SyntaxError", error), error
