"""Hostile queries and data sets under a time limit. Run as a program it tries them all and prints what took most."""

from __future__ import annotations

import json
import random
import re
import resource
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from query_dsl import QueryError, offline
from query_dsl.evaluation.offline import LiteralStore
from query_dsl.functions.registry import Argument, Entry
from query_dsl.functions.step import Step
from query_dsl.functions.tables import MAPPERS, OPERATORS, POINTS, REDUCERS, STEPS
from query_dsl.stores.query_limits import Limits
from tests.query_dsl import attacks

SECONDS, GRACE_SECONDS, MOST_BYTES = 2.0, 0.5, 200 * 1024**2
"""Time limit of a query, the time that it may take beyond it, and the memory that all may take together."""
MINUTE = 60_000
Task = Callable[[Limits], str]
Data = dict[str, Any]
POINTS_OF_LONG = 10_000
MAX_ECHO, PIECE = 200, 30
"""Characters of the query that an error may show, in pieces of at least so many."""
FOREIGN = re.compile(
    "invalid syntax|positional argument|unexpected keyword|codec can't|Exceeds the limit|object has no"
    "|not supported between|out of range|must be str|too large to|cannot convert|NoneType|<class|Traceback|unhashable"
    "|null bytes|sys\\."
)
"""Sentences of the interpreter and of its libraries."""
R = f".range('{POINTS_OF_LONG}m')"
GROW = ".replace('.', '\\\\0\\\\0\\\\0\\\\0')"
DENSE = ("fetch('many').fill('previous')", "fetch('{__name__=~\"many|count|huge|mixed\"}').fill('linear')")
"""Matrices with a value in every cell."""
HEAVY = [
    f"fetch('text'){GROW * 5}{R}",
    f"fetch('text'){GROW * 20}{R}",
    f"fetch('text').replace('^', '{'a' * 1000}'){R}" + f".replace('^', '{'b' * 999}')" * 14,
    f"fetch('text').replace('', '{'a' * 1000}'){R}",
    f"fetch('long').replace('.', '{'a' * 1000}'){R}",
    f"fetch('long').match('((x?x?x?x?x?x?x?x?){{100}})'){R}",
    f"fetch('long').replace('((x?x?x?x?x?x?x?x?){{100}})', 'y'){R}",
    f"fetch('count').to_string(){R}" + GROW * 3,
    f"fetch('count').count_values('v', by=[]){R}",
    f"fetch('text').count_values('v', by=[]){R}",
    "samples('count').value_split('v')",
    "samples('text').value_split('v')" + R,
    f"samples('count').split('1ms'){R}",
    f"samples('count').modulo('1ms'){R}",
    *(
        f"{source}.map({name}, '{window}'{args}){R}"
        for source in ("fetch('count')", "fetch('many')", "samples('many')", "samples('huge')", "fetch('huge')")
        for window in ("1000m", "9000m")
        for name, args in (("'quantile'", ", 0.9, method='hazen'"), ("'ewma'", ", 0.3"), ("'holt'", ", 0.3, 0.3"))
    ),
    *(
        f"fetch('{source}').map('{name}', '9000m'){R}"
        for source in ("count", "many", "huge")
        for name in (
            "increase",
            "rate",
            "delta",
            "median",
            "mad",
            "sd",
            "zscore",
            "derivative",
            "changes",
            "max",
            "mean",
        )
    ),
    f"fetch('many').map('deviation', '1h', weeks=52){R}",
    f"fetch('many').quantile(0.5, by=[]){R}",
    f"fetch('many').topk(3, by=[], rank='each'){R}",
    f"fetch('count').lttb(9999){R}",
    f"samples('count').lttb(9999){R}",
    f"fetch('many').fill('linear'){R}",
    f"fetch('many').map('mean', '20000m').map('max', '9000m'){R}",
    "fetch('count') + fetch('many') * fetch('huge')",
    f"fetch('many').bucketize('mean', '1ms'){R}",
    f"samples('many').bucketize('quantile', '1m', 0.5){R}",
    f"fetch('count').longest_streak('9000m'){R}",
    f"samples('count').map('since_change', '9000m'){R}",
    f"fetch('count').corr(fetch('huge'), '9000m'){R}",
    f"fetch('text').join('{'z' * 900}', by=[]){R}",
    f"fetch('long').join(by=[]){R}",
    *(f"{dense}.map('{name}', '9000m'){R}" for dense in DENSE for name in ("mean", "sd", "median", "rate", "changes")),
    *(
        f"{dense}.{call}{R}"
        for dense in DENSE
        for call in (
            "time_of_max('9000m')",
            "time_of_min('1000m')",
            "since_change('9000m')",
            "longest_streak('9000m')",
            f"corr({DENSE[0]}, '9000m')",
            "count_distinct(by=[])",
            "to_string().join(by=[])",
            "histogram_fraction(0, 1, le='host', without=[])",
            "count_values('v', by=[])",
            "where(value > 3).where(value < 9).where(value != 5).where('!= 6')",
            "to_string().to_double()",
            "integrate()",
        )
    ),
]
ERRORS: dict[str, str] = {
    "too long": "fetch('x')" + " + 1" * 5_000,
    "empty": "",
    "blank": " \n ",
    "NUL": "fetch('x')\0 + 1",
    "NUL in quotes": "fetch('x\0y')",
    "lone surrogate": "fetch('x') + \ud800",
    "lone surrogate in quotes": "fetch('\udfff')",
    "5,000 digits": "fetch('x') + " + "9" * 5_000,
    "5,000 digits after a point": "fetch('x') + 1." + "9" * 5_000,
    "5,000 hexadecimal digits": "fetch('x') + 0x" + "f" * 5_000,
    "5,000 digits in a duration": "fetch('x').range('" + "9" * 5_000 + "m')",
    "long name": "q" * 5_000,
    "long function": "q" * 5_000 + "(1)",
    "long method": "fetch('x')." + "q" * 5_000 + "()",
    "long argument": "fetch('x').mean(" + "q" * 5_000 + "=1)",
    "long variable": "fetch('" + "q" * 5_000 + "')",
    "long label": "fetch('x').mean(by=['" + "q" * 5_000 + "'])",
    "long labels": "fetch('x').mean(by=[" + "'q q'," * 900 + "])",
    "long attribute": "a." + "q" * 5_000,
    "long name as text": "fetch('x').mean(by=" + "q" * 5_000 + ")",
    "long variable in braces": "fetch('{__name__=\"" + "q " * 2_500 + "\"}')",
    "long prefix": "fetch('" + "q" * 5_000 + ".*')",
    "long labels of both": "apply('add', fetch('many'), fetch('count'), on=['" + "q" * 900 + "', '" + "r" * 900 + "'])",
    "long name and long value": "fetch('" + "q" * 900 + '{a="' + "r" * 900 + '",b="' + "s" * 900 + "\"}')",
    "long value": "fetch('x{a=\"" + "q " * 2_500 + "\"}')",
    "long value of a label that is": "fetch('many{host=\"" + "q " * 2_500 + "\"}')",
    "long pattern": "fetch('x{a=~\"" + "q " * 2_500 + "\"}')",
    "broken pattern": "fetch('x{a=~\"" + "(" * 900 + "\"}')",
    "broken pattern with spaces": "fetch('x{a=~\"" + "( " * 400 + "\"}')",
    "long text for a choice": "fetch('x').reduce('" + "q " * 2_500 + "', by=[])",
    "long text for a number": "fetch('x').clamp('" + "q " * 2_500 + "', 1)",
    "long text for an instant": "fetch('x').at('" + "q " * 2_500 + "')",
    "long text after now": "fetch('x').at('now" + "q " * 2_500 + "')",
    "long text for a zone": "fetch('x').calendar('hour', zone='" + "q " * 2_500 + "')",
    "long text as operator": "apply('" + "q " * 2_500 + "', fetch('x'), 1)",
    "long text as filter": "fetch('x').filter('" + "q " * 2_500 + "', 1)",
    "long text as step": "fetch('x').transform('" + "q " * 2_500 + "')",
    "long text as fill": "fetch('x').fill('" + "q " * 2_500 + "')",
    "long text compared": "fetch('count') + '" + "q " * 2_500 + "'",
    "long line that is unclosed": "fetch('x" + "q " * 2_500,
    "missing argument": "fetch('x').topk(by=[])",
    "too many arguments": "fetch('x', 'y', 'z')",
    "argument twice": "fetch('x').map('quantile', '5m', 0.5, q=0.6)",
    "no operator": "fetch('x') fetch('y')",
    "leading zeros": "fetch('x') + 007",
    "unknown escape": "fetch('x').named('\\N{nope}')",
    "format text": "f'{fetch}'",
    "order of arguments": "fetch('x').mean(by=[], 1)",
    "wrong literal": "fetch('x').rate(5m)",
    "range of nothing": "fetch('x').between(5, 5)",
    "year 9999": "fetch('x').between('0001-01-01T00:00:00+23:59', '9999-12-31T23:59:59-23:59')",
    "window of raw samples": "samples('count').rate()",
    "a plain value": "1 + 1",
    "integer beyond 64 bits": "fetch('count') + 99999999999999999999",
}
"""Texts that are refused with a place in the text."""


def world() -> LiteralStore:
    """Return a store with long, many, large and textual series."""
    long = range(1, POINTS_OF_LONG + 1)
    series: Data = {
        "count": [(i * MINUTE, i) for i in long],
        "text": [(i * MINUTE, f"text{i}.abc") for i in long],
        "huge": [(i * MINUTE, 2**62 + i) for i in long],
        "long": [(i * MINUTE, "x" * 30_000 + str(i)) for i in range(9_900, POINTS_OF_LONG)],
        "mixed": [(i * MINUTE, (-1) ** i * 10.0 ** (i % 308)) for i in long],
    } | {
        f'many{{host="h{k}",rack="r{k % 7}"}}': [(i * 97 * MINUTE, i * k * 0.5) for i in range(1, 101)]
        for k in range(80)
    }
    return offline(series)


def sample(seed: int, count: int) -> list[str]:
    """Return `count` hostile texts: half of them of those written by hand, at most all, the others generated."""
    rng = random.Random(seed)
    written = [*HEAVY, *ERRORS.values(), *(text for _, text in attacks.texts() if len(text) < 200_000)]
    some = rng.sample(written, min(len(written), count // 2))
    return some + [generated(rng) for _ in range(count - len(some))]


def generated(rng: random.Random) -> str:
    """Return a query of random calls with extreme arguments."""
    text = rng.choice(
        ["fetch('count')", "fetch('text')", "fetch('many')", "fetch('huge')", "fetch('mixed')", "fetch('long')",
         "fetch('many.*')", "samples('count')", "samples('text')", "samples('many')", "absent('many')"]
    )  # fmt: skip
    for _ in range(rng.randint(1, 5)):
        text = rng.choice((_window, _window, _point, _point, _reduction, _step, _bucketize, _operator, _time))(
            text, rng
        )
    return text + rng.choice([R, R, ".range('1h')", "", ".at('now')", ".between(0, 6000000)"])


def _window(text: str, rng: random.Random) -> str:
    entry = rng.choice([*MAPPERS.values()])
    args = [
        repr(rng.choice(["1m", "7m", "90s", "1h", "1000m", "9000m", "20000m", "1ms", "10000w"])),
        *_args(entry, rng),
    ]
    return f"{text}.map({entry.name!r}, {', '.join(args)})"


def _point(text: str, rng: random.Random) -> str:
    entry = rng.choice([*POINTS.values()])
    return f"{text}.map({', '.join([repr(entry.name), *_args(entry, rng)])})"


def _reduction(text: str, rng: random.Random) -> str:
    entry = rng.choice([*REDUCERS.values()])
    classes = rng.choice(["by=[]", "by=['rack']", "without=[]", "without=['host']", "by=['nope']", "by=['__name__']"])
    return f"{text}.reduce({', '.join([repr(entry.name), *_args(entry, rng), classes])})"


def _step(text: str, rng: random.Random) -> str:
    family = rng.choice([family for family in STEPS if family in ("filter", "fill", "transform")])
    entry = rng.choice([*STEPS[family].values()])
    args = [*(f"{text} > 1" for _ in entry.operands), *_args(entry, rng)]
    return f"{text}.{family}({', '.join([repr(entry.name), *args])})"


def _bucketize(text: str, rng: random.Random) -> str:
    entry = rng.choice([*MAPPERS.values()])
    return (
        f"{text}.bucketize({', '.join([repr(entry.name), repr(rng.choice(['1m', '1h', '7s'])), *_args(entry, rng)])})"
    )


def _operator(text: str, rng: random.Random) -> str:
    other = rng.choice(["1", "nan", "-inf", "'a'", "fetch('count')", "fetch('many')", text])
    return f"apply({rng.choice([*OPERATORS])!r}, {text}, {other}{rng.choice(['', ', on=[]', ', fill=0'])})"


def _time(text: str, rng: random.Random) -> str:
    return text + rng.choice([".offset('1h')", ".offset('10000w')", ".named('x')", ".scalar()", ".shift('1w')"])


def _args(entry: Entry | Step | Any, rng: random.Random) -> list[str]:
    arguments: tuple[Argument, ...] = getattr(entry, "arguments", ()) or getattr(entry, "params", ())
    return [f"{a.name}={_value(a, rng)}" for a in arguments if a.required or rng.random() < 0.3]


_VALUES: Mapping[str, list[object]] = {
    "duration": ["1ms", "1m", "1h", "9000m", "10000w", "0s"],
    "number": [0, 1, -1, 0.5, 1e308, -1e-308, 2**63 - 1, 3],
    "integer": [0, 1, -1, 3, 15, 10_000, 2**63 - 1, 10**30],
    "text": ["", "a" * 900, "\\0\\0\\0\\0", "\\1", "ü" * 300, "x"],
    "flag": [True, False],
    "label": ["host", "__name__", "", "new"],
    "labels": [[], ["host"], ["nope"], ["host", "rack"]],
    "texts": [[], ["a"] * 900, ['host="h1"']],
    "regex": [".", "", ".*", "(a*)*", "((x?x?x?x?){60})", "[^a]+", "\\d", "("],
    "zone": ["Europe/Paris", "UTC", "Mars/X"],
    "instant": ["now", "now-10000w", 0, "0001-01-01", "9999-12-31"],
    "value": [0, 0.5, "a", True, 2**63 - 1],
    "selector": ['many{host="h1"}', '{host=~".*"}', "("],
}


def _value(argument: Argument, rng: random.Random) -> str:
    if argument.kind == "choice":
        return repr(rng.choice([*argument.choices, "zzz"]))
    return repr(rng.choice(_VALUES[argument.kind]))


# --- data sets

ROWS = 3_000


def _series(rng: random.Random, value: Callable[[int], object], n: int = ROWS) -> Data:
    shape = rng.choice(["even", "reversed", "one time", "bursts", "sparse"])
    times: dict[str, Callable[[int], int]] = {
        "even": lambda i: i * MINUTE,
        "reversed": lambda i: (n - i) * MINUTE,
        "one time": lambda _i: MINUTE,
        "bursts": lambda i: i // 100 * MINUTE + i % 3,
        "sparse": lambda i: i * i * 1_000,
    }
    return {"x": [(times[shape](i), value(i)) for i in range(1, n + 1)]}


def _dense(value: Callable[[int, int], object]) -> Data:
    """Return 40 series with a value in each of 2,000 minutes."""
    return {f"x{{i='{k}'}}": [(i * MINUTE, value(i, k)) for i in range(1, 2_001)] for k in range(40)}


LONG_TEXT = "y" * 60_000
"""One object, so that the memory that grows is not that of the data: 3,000 copies would be 172 MiB."""
WRITTEN: dict[str, Callable[[], Data]] = {
    "nothing": dict,
    "no sample": lambda: {"x": []},
    "ends only": lambda: {"x": [(i * MINUTE, None) for i in range(ROWS)]},
    "int64 edges": lambda: {"x": [(i * MINUTE, (-1) ** i * (2**63 - 1)) for i in range(ROWS)]},
    "beyond int64": lambda: {"x": [(MINUTE, 10**30)]},
    "NaN": lambda: {"x": [(i * MINUTE, float("nan")) for i in range(ROWS)]},
    "infinities": lambda: {"x": [(i * MINUTE, (-1) ** i * float("inf")) for i in range(ROWS)]},
    "subnormal": lambda: {"x": [(i * MINUTE, 5e-324 * i) for i in range(ROWS)]},
    "greatest doubles": lambda: {"x": [(i * MINUTE, (-1) ** i * 1.7e308) for i in range(ROWS)]},
    "texts of 60 KB": lambda: {"x": [(i * MINUTE, "y" * 60_000 + str(i)) for i in range(200)]},
    "equal long texts": lambda: {"x": [(i * MINUTE, LONG_TEXT) for i in range(ROWS)]},
    "texts with NUL and marks": lambda: {"x": [(i * MINUTE, "\0\u202e\n\"'\\" * (i % 50)) for i in range(ROWS)]},
    "lone surrogates": lambda: {"x": [(MINUTE, "\ud800")]},
    "lone surrogates in labels": lambda: {"x{a='\ud800'}": [(MINUTE, 1)]},
    "40 labels of 1 KB": lambda: {
        f"x{{i='{k}'," + ",".join(f"l{i}='{'v' * 1000}'" for i in range(39)) + "}": [(MINUTE, k)] for k in range(50)
    },
    "one label too many": lambda: {"x{" + ",".join(f"l{i}='v'" for i in range(41)) + "}": [(MINUTE, 1)]},
    "200 series": lambda: {f"x{{i='{i}'}}": [(i * MINUTE, i)] for i in range(200)},
    "times far apart": lambda: {"x": [(-(2**53), 1), (0, 2), (2**53, 3)]},
    "times beyond int64": lambda: {"x": [(2**70, 1)]},
    "years 1 to 9999": lambda: {"x": [("0001-01-01", 1), ("9999-12-31T23:59:59Z", 2)]},
    "times that are none": lambda: {"x": [("yesterday", 1)]},
    "values that are none": lambda: {"x": [(MINUTE, object())]},
    "pairs that are none": lambda: {"x": [(MINUTE,)]},
    "types mixed": lambda: {"x": [(MINUTE, 1), (2 * MINUTE, "a"), (3 * MINUTE, True), (4 * MINUTE, 0.5)]},
    "falls at each step": lambda: {"x": [(i * MINUTE, 1_000_000 - i) for i in range(ROWS)]},
    "saw": lambda: {"x": [(i * MINUTE, i % 2 * (2**62)) for i in range(ROWS)]},
    "dense doubles": lambda: _dense(lambda i, k: i * k * 0.1),
    "dense integers at the edge": lambda: _dense(lambda i, k: 2**63 - 1 - i * k),
    "dense truths": lambda: _dense(lambda i, k: (i + k) % 3 > 0),
    "dense texts": lambda: _dense(lambda i, k: f"v{i * k % 101}"),
}
CHOICES: list[Callable[[random.Random], Callable[[int], object]]] = [
    lambda rng: lambda _i: rng.randint(-(2**63), 2**63 - 1),
    lambda rng: lambda _i: rng.choice([0.0, -0.0, float("nan"), float("inf"), 1e-320, 1e308]),
    lambda rng: lambda _i: rng.random() < 0.5,
    lambda rng: lambda i: "ab\0ü"[i % 4] * rng.randint(0, 300),
    lambda rng: lambda i: rng.choice([i, None]),
    lambda rng: lambda i: i * rng.choice([1, 2**40]),
]
ASKED = [
    "fetch('x').range('3000m')",
    "fetch('x').increase('2000m').range('3000m')",
    "fetch('x').map('quantile', '2000m', 0.9).range('3000m')",
    "fetch('x').map('ewma', '2000m', 0.1).map('zscore', '500m').range('3000m')",
    "fetch('x').to_string().replace('.', '\\\\0\\\\0\\\\0\\\\0').replace('.', '\\\\0\\\\0\\\\0\\\\0').range('3000m')",
    "fetch('x').sum(by=[]).range('3000m') + fetch('x').count_values('v', by=[]).count(by=[])",
    "samples('x').map('sd', '500m').range('3000m')",
    "samples('x').rate('1000m').bucketize('max', '1h').range('3000m')",
    "(fetch('x') > 1).longest_streak('2000m').any(by=[]).range('3000m')",
    "fetch('x').time_of_max('2000m').range('3000m')",
    "fetch('x').since_change('2000m').count_distinct(by=[]).range('3000m')",
    "fetch('x').to_string().join(', ', by=[]).range('3000m')",
    "fetch('x').corr(fetch('x'), '500m').range('3000m')",
    "fetch('x').where(value > 1).where('< 9').range('3000m')",
]


def data_sets(seed: int, count: int) -> Iterator[tuple[str, Callable[[], Data]]]:
    """Yield (name, data) of `count` data sets: those written by hand, then generated ones."""
    rng = random.Random(seed)
    some = rng.sample([*WRITTEN.items()], min(len(WRITTEN), count // 2))
    yield from some
    for number in range(count - len(some)):
        value = rng.choice(CHOICES)(rng)
        yield f"generated {number}", partial(_series, rng, value)


# --- trying them


def complaint(text: str, store: LiteralStore, limits: Limits) -> str:
    """Run a query. Return what is wrong with its error; "" for an answer or a good error."""
    try:
        store.query(text, limits=limits)
    except QueryError as problem:
        return fault(problem, text)
    return ""


def fault(problem: QueryError, text: str) -> str:
    """Return what is wrong with an error: no place, a foreign sentence, or too much of the query."""
    said = str(problem)
    said.encode()
    if problem.position is None or problem.text is None:
        return f"no place: {said:.300}"
    if FOREIGN.search(problem.message):
        return f"a foreign sentence: {said:.300}"
    shown = echoed(said, text)
    return f"echoes {shown} characters: {said:.600}" if shown > MAX_ECHO else ""


def echoed(said: str, text: str) -> int:
    """Count the characters of `said` that are pieces of a long text."""
    count, at = 0, 0
    while len(text) > MAX_ECHO and at <= len(said) - PIECE:
        end = at + PIECE
        if said[at:end] not in text:
            at += 1
            continue
        while end < len(said) and said[at : end + 1] in text:
            end += 1
        count, at = count + end - at, end
    return count


def peak_bytes() -> int:
    """Return the most memory that the process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def try_all(tasks: Iterator[tuple[str, Task]], limits: Limits) -> dict[str, Any]:
    """Run the tasks; return the slowest, the growth of memory, and what was wrong."""
    base, wrong, slowest, grown = peak_bytes(), [], (0.0, ""), (0, "")
    for name, task in tasks:
        before, begun = peak_bytes(), time.process_time()
        try:
            said = task(limits)
        except Exception as error:  # any other error than a QueryError is a fault
            said = f"{type(error).__name__}: {error!s:.200}"
        took = time.process_time() - begun
        slowest, grown = max(slowest, (took, name)), max(grown, (peak_bytes() - before, name))
        if said or took > (limits.seconds or SECONDS) + GRACE_SECONDS:
            wrong.append(f"{name[:300]!r}: {took:.1f} s {said}")
        del task  # and its store, before the next one is made
    return {"wrong": wrong, "slowest": slowest, "grown": grown, "bytes": peak_bytes() - base}


def text_tasks(given: list[str]) -> Iterator[tuple[str, Task]]:
    """Yield a task for each hostile text."""
    store = world()
    store.query("fetch('count')")
    for text in given:
        yield text, partial(complaint, text, store)


def _same(said: str, _limits: Limits) -> str:
    return said


def data_tasks(seed: int, count: int) -> Iterator[tuple[str, Task]]:
    """Yield a task for each query over each hostile data set."""
    for name, make in data_sets(seed, count):
        try:
            store = offline(make())
        except QueryError as problem:
            yield name, partial(_same, "too long" if len(str(problem)) > 500 else "")
            continue
        except Exception as error:  # any other error is a fault
            yield name, partial(_same, repr(error))
            continue
        for text in ASKED:
            yield f"{name}: {text}", partial(complaint, text, store)
        del store  # before the next one is made


def main(kind: str, seed: str, count: str, seconds: str, only: str = "") -> int:
    """Try `count` texts or data sets, or the text `only`; print the outcome as JSON."""
    given = [only] if only else sample(int(seed), int(count))
    tasks = data_tasks(int(seed), int(count)) if kind == "data" else text_tasks(given)
    print(json.dumps(try_all(tasks, Limits(seconds=float(seconds)))))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
