"""Random series of hours, and random queries whose meaning does not depend on the width of buckets.

Every window is a multiple of the widest level, or the answer says that it was rounded up. Without a bucketize only
functions of one time follow; after it the grid is the same at every level, so any function may."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from tests.query_dsl.plainly import Raw, Sample

MINUTE = 60_000
HOUR = 60 * MINUTE
T = 1_800_000_000_000
HOURS = 16
"""Data of so many hours end at T."""

# --- series


def some_series(random: Random, many: int = 10) -> tuple[Raw, ...]:
    """Counters with resets, gauges of all types of numbers; gaps, late starts, ends, several periods."""
    return tuple(_series(random, number) for number in range(many))


def _series(random: Random, number: int) -> Raw:
    name = "cg"[number % 2]
    kind = random.choice(["INTEGER", "INTEGER", "DOUBLE"] if name == "c" else ["INTEGER", "DOUBLE", "BOOLEAN"])
    labels = {"host": f"h{number // 2}", "rack": f"r{number // 2 % 2}"}
    times = _times(random)
    samples = _counter(random, times, kind) if name == "c" else _gauge(random, times, kind)
    ended = times[-1] + 1_000 if times[-1] < T - 2 * HOUR and random.random() < 0.7 else 0
    return Raw(name, labels, kind, tuple(samples), "COUNTER" if name == "c" else "GAUGE", ended)


def _times(random: Random) -> list[int]:
    """Samples of one period, some of which are late or missing; a gap now and then."""
    period = random.choice([MINUTE, MINUTE, MINUTE, 5 * MINUTE, 30_000])
    at = T - random.choice([HOURS * HOUR, HOURS * HOUR, random.randrange(HOUR, HOURS * HOUR), 10 * MINUTE])
    at += random.randrange(MINUTE)
    end = T if random.random() < 0.8 else random.randrange(at + HOUR // 10, T + HOUR)
    found = []
    while at < min(end, T):
        found.append(at)
        at += period + random.randrange(-2_000, 2_000)
        if random.random() < 0.004:
            at += random.choice([10 * MINUTE, 45 * MINUTE, 3 * HOUR])
    return found


def _counter(random: Random, times: list[int], kind: str) -> list[Sample]:
    scale: Any = 1 if kind == "INTEGER" else 0.25
    value = random.choice([0, 40, 2**53 if kind == "INTEGER" else 0])
    birth = random.choice([0, times[0] - 10 * HOUR, times[0] - 20_000])
    found: list[Sample] = []
    for at in times:
        value += random.choice([0, 1, 1, 7]) * scale
        if found and random.random() < 0.01:
            birth = random.choice([found[-1].time, random.randrange(found[-1].time, at)])
            value = random.choice([0, 3]) * scale
        found.append(Sample(at, value, birth))
    return found


def _gauge(random: Random, times: list[int], kind: str) -> list[Sample]:
    draws: dict[str, Callable[[], Any]] = {
        "INTEGER": lambda: random.randrange(-50, 1_000),
        "DOUBLE": lambda: random.randrange(-50, 1_000) / 4,
        "BOOLEAN": lambda: random.random() < 0.5,
    }
    return [Sample(at, draws[kind](), times[0] - HOUR) for at in times]


# --- queries

EXACT = ["last", "min", "max", "sum", "mean", "count", "increase", "delta", "rate", "resets"]
OF_LASTS = ["first", "changes", "median", "sd", "mad", "irate", "derivative", "since_change", "time_of_max"]
BACK = ("increase", "delta", "rate", "resets")
WINDOWS = ["1h", "1h", "2h", "3h", "6h", "30m", "15m", "5m"]
STEPS = ["1h", "1h", "2h", "30m", "15m"]
SELECTORS = ["c", "c", "g", "g", 'c{rack="r0"}', 'g{host!="h1"}']
CLASSES = ["by=[]", "by=['rack']", "by=['host']", "without=['host']"]
REDUCERS = ["sum", "mean", "min", "max", "median", "sd", "range"]
POINTS = [".abs()", ".map('mul', 3)", ".map('clamp', 0, 100)", ".map('mod', 7)"]
OPS = ["+", "-", "*", "/", ">", "<=", "=="]
AFTER = [
    ".map('max', '{}')", ".map('mean', '{}')", ".map('sd', '{}')", ".fill('previous')", ".fill('linear')",
    ".topk(2, by=[])", ".bottomk(1, by=['rack'], rank='mean')", ".filter('max', '>', 10)",
    ".shift('2h')", ".integrate()",
]  # fmt: skip
GAP = ", max_gap='2h'"
"""The default gap is two steps of the answer, and the same query has another step at each level. Left out with it:
windows over windows without a bucketize, because the outer one reads a value of the inner one at each step.

A count of nothing is 0, and so is a filled value, but only of a series that is in the answer: one with a sample in the
range, which begins at the first window, or at the value before it. Counts are asked where these are the same times."""


def question(random: Random) -> str:
    """Text of one query."""
    if random.random() < 0.4:
        return _on_one_grid(random)
    time = random.choice([".at('now')", ".at('now')", ".range('1h')", ".range('4h')", ".at('now-1h')"])
    counts = time.startswith(".at")
    text = _operand(random, counts)
    if random.random() < 0.3:
        other = _operand(random, counts)
        text = f"({text} {random.choice(OPS)} {other})" if random.random() < 0.6 else _joined(random, text, other)
    return f"({text}){time}"


def _on_one_grid(random: Random) -> str:
    name = _name(random)
    text = f"{_fetched(random)}.bucketize({_call(random, name, random.choice(STEPS), '')})"
    if random.random() < 0.5:
        text += random.choice(AFTER if name in BACK else [*AFTER, ".fill('value', 0)"]).format(
            random.choice(["2h", "4h"])
        )
    if random.random() < 0.3:
        text += _reduced(random, name not in BACK)
    time = random.choice([".range('3h')", ".range('6h')", f".between({T - 8 * HOUR}, {T - 2 * HOUR})"])
    return f"({text}){time}"


def _operand(random: Random, counts: bool) -> str:
    """A window function, perhaps of classes; `counts`: the same series have samples in the windows at every level."""
    name = _name(random)
    if name == "count" and not counts:
        name = "sum"
    text = f"{_fetched(random)}.map({_call(random, name, random.choice(WINDOWS), GAP)})"
    if random.random() < 0.2:
        text += random.choice(POINTS)
    return text + _reduced(random, counts and name not in BACK) if random.random() < 0.4 else text


def _fetched(random: Random) -> str:
    offset = random.choice(["", "", "", "", ".offset('1h')", ".offset('3h')"])
    return f"fetch('{random.choice(SELECTORS)}'){offset}"


def _name(random: Random) -> str:
    return random.choice(EXACT if random.random() < 0.8 else OF_LASTS)


def _call(random: Random, name: str, window: str, gap: str) -> str:
    rule = random.choice(["", "", "", "", ", min_count=30"])
    if gap and name not in BACK and random.random() < 0.2:
        rule += f", after='{random.choice(['1h', '30m', '15m'])}'"
    return f"'{name}', '{window}'{gap if name in BACK else ''}{rule}"


def _reduced(random: Random, counts: bool) -> str:
    return f".{random.choice([*REDUCERS, 'count'] if counts else REDUCERS)}({random.choice(CLASSES)})"


def _joined(random: Random, left: str, right: str) -> str:
    match = random.choice(["", ", on=['host']", ", on=['host'], unmatched='error'"])
    return random.choice([f"{left}.sub({right}{match})", f"({left}).or_({right})", f"({left}).unless({right})"])
