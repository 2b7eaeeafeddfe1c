"""Random worlds and random queries, and the comparison of two evaluators' answers."""

from __future__ import annotations

import math
import re
from typing import Any

from hypothesis import strategies as st

from query_dsl import Matrix, QueryError, parse
from query_dsl.evaluation.evaluator import answer as answered
from query_dsl.results.raw_series import RawSeries
from query_dsl.stores.levels import SETTLE_MS
from tests.query_dsl.plainly import Answer, Raw, Refused, Sample, World, answer

MINUTE = 60_000
T = 1_800_000_000_000 // 3_600_000 * 3_600_000
NOW = T + SETTLE_MS
LEVELS = ((MINUTE, 1_000), (5 * MINUTE, 2_000))
COARSE = 5
"""Minutes of a bucket of coarse queries."""
COARSE_LEVELS = ((COARSE * MINUTE, 2_000),)
BIG = 2**53
KINDS = {"INTEGER": ("COUNTER", "GAUGE", "UNKNOWN"), "DOUBLE": ("COUNTER", "GAUGE"), "BOOLEAN": ("UNKNOWN",)}

# --- worlds ---


def values(kind: str, big: bool) -> st.SearchStrategy[Any]:
    """Sums of these are exact in any order: whole numbers, and fourths of them."""
    if kind == "INTEGER":
        small = st.integers(-20, 60)
        return st.integers(-20, 60).map(lambda v: BIG + v) | small if big else small
    if kind == "DOUBLE":
        return st.integers(-80, 400).map(lambda v: v / 4)
    return st.booleans() if kind == "BOOLEAN" else st.sampled_from(["a", "b", "12", "-3.5", "true"])


@st.composite
def histories(draw: Any, kind: str, counter: bool, big: bool, odd: bool, times: int) -> tuple[list[Sample], int]:
    """(samples of the last 26 x `times` minutes at times that differ, end or 0)."""
    quarters = sorted(
        draw(
            st.sets(
                st.integers(-26 * 4 * times, 0),
                min_size=draw(st.sampled_from([0, 5, 15])),
                max_size=draw(st.sampled_from([15, 40])),
            )
        )
    )
    birth, total = T - draw(st.sampled_from([200, 28, 5])) * MINUTE * times, 0
    out: list[Sample] = []
    for quarter in quarters:
        time = T + quarter * 15_000 - draw(st.sampled_from([0, 0, 1, 7_000]))
        value: Any = draw(values(kind, big))
        if draw(st.integers(0, 7)) == 0 or birth > time:
            birth, total = time - draw(st.integers(0, 40_000 * times)), 0
        if counter:
            total += abs(value)
            value = total
        elif odd and kind == "DOUBLE" and draw(st.integers(0, 5)) == 0:
            value = draw(st.sampled_from([math.nan, math.inf, -math.inf]))
        out.append(Sample(time, value, birth))
    ended = out[-1].time + 500 if out and draw(st.integers(0, 5)) == 0 else 0
    return out, ended


@st.composite
def worlds(draw: Any, big: bool = False, coarse: bool = False) -> World:
    series = []
    odd = draw(st.booleans())
    for i in range(draw(st.sampled_from([1, 4, 6, 8]))):
        kind = draw(st.sampled_from(["INTEGER", "INTEGER", "DOUBLE", "DOUBLE", "BOOLEAN", "STRING"]))
        kept = draw(st.sampled_from(KINDS.get(kind, ("UNKNOWN",))))
        labels = {"host": f"h{i}"}
        for label in ("rack", "dc"):
            chosen = draw(st.sampled_from(["", label + "1", label + "2"]))
            if chosen:
                labels[label] = chosen
        name = draw(st.sampled_from(["m.a", "m.a", "m.b"]))
        counter = kept == "COUNTER" and kind != "BOOLEAN"
        samples, ended = draw(histories(kind, counter, big, odd, COARSE if coarse else 1))
        series.append(Raw(name, labels, kind, tuple(samples), kept, ended))
    return World(tuple(series), COARSE_LEVELS if coarse else LEVELS)


# --- queries ---

SELECTORS = ["m.*", "m.*", "m.*", "m.a", "m.a", 'm.*{rack!="rack1"}', 'm.*{dc!="dc1"}', 'm.*{host=~"h[0-4]"}']
RARE = ["m.c", 'm.*{rack="rack1"}', 'm.*{host="h9"}']
EXACT = ["last", "first", "min", "max", "count", "delta", "increase", "changes", "resets"]
METHODS = [
    "inverted_cdf", "averaged_inverted_cdf", "closest_observation", "interpolated_inverted_cdf", "hazen", "weibull",
    "linear", "median_unbiased", "normal_unbiased", "lower", "higher", "midpoint", "nearest",
]  # fmt: skip
SHARES = st.sampled_from([0, 0.25, 0.5, 0.9, 1, 0.37])
RULES = ["", "", "", "", ", nulls='propagate'", ", min_count=2", ", nulls='error'", ", min_count=0"]
CLASSES = [
    "by=[]",
    "by=['rack']",
    "by=['dc', 'rack']",
    "by=['__name__']",
    "without=['host']",
    "without=[]",
    "by=['no']",
]


@st.composite
def window_functions(draw: Any) -> tuple[str, str]:
    """(name, arguments after the window)."""
    name = draw(
        st.sampled_from([*EXACT, "sum", "mean", "rate", "irate", "median", "sd", "var", "mad", "derivative"])
        | st.sampled_from(["quantile", "zscore", "ewma", "holt", "predict_linear"])
        | st.sampled_from(["time_of_max", "time_of_min", "since_change", "longest_streak"])
    )
    share = draw(SHARES)
    extra = {
        "quantile": f", q={share}, method='{draw(st.sampled_from(METHODS))}'",
        "sd": draw(st.sampled_from(["", ", ddof=0"])),
        "var": draw(st.sampled_from(["", ", ddof=2"])),
        "zscore": draw(st.sampled_from(["", ", robust=True", ", ddof=0"])),
        "ewma": f", alpha={draw(st.sampled_from([0.1, 0.5, 1]))}",
        "holt": f", alpha={draw(st.sampled_from([0.1, 0.5]))}, beta={draw(st.sampled_from([0.3, 0.7]))}",
        "predict_linear": f", horizon='{draw(st.sampled_from(['30s', '10m']))}'",
    }
    gap = draw(st.sampled_from(["", ", max_gap='90s'", ", max_gap='20m'"])) if name in _BACK else ""
    return name, extra.get(name, "") + gap


_BACK = ("increase", "delta", "rate", "resets")
POINTS = [
    "'abs'", "'ceil'", "'floor'", "'round'", "'round', digits=1", "'round', digits=-1", "'clamp', 0, 10.5", "'sqrt'",
    "'exp'", "'log'", "'log', base=2", "'pow', 2", "'pow', 0.5", "'mod', 7", "'mod', -2.5", "'finite'", "'add', 1",
    "'sub', 0.5", "'mul', 3", "'div', 4", "'div', 0", "'calendar', 'minute'", "'calendar', 'hour', zone='Asia/Kolkata'",
    "'calendar', 'weekday'", "'to_integer'", "'to_double'", "'to_boolean'", "'to_string'", "'match', '[ab]+'",
    r"'replace', '(.)(.*)', '\\2\\1'",
]  # fmt: skip
REDUCERS = [
    "'sum'", "'mean'", "'min'", "'max'", "'count'", "'median'", "'sd'", "'var', ddof=0", "'range'", "'group'",
    "'first'", "'last'", "'argmin', 'host'", "'argmax', '__name__'", "'quantile', 0.9", "'quantile', 0.3, 'hazen'",
    "'any'", "'all'", "'count_distinct'", "'join', '-'",
]  # fmt: skip
CHOOSERS = [
    f"'{name}', {k}{rank}"
    for name in ("topk", "bottomk")
    for k in (1, 2)
    for rank in ("", ", rank='mean'", ", rank='max'", ", rank='each'")
]
PLACERS = [
    "'share'", "'standardize'", "'standardize', ddof=0", "'rank'", "'rank', ascending=True", "'running_sum'",
    "'running_sum', share=True", "'running_sum', ascending=True",
]  # fmt: skip
FILTERS = [
    "'last', '>', 5", "'last', '==', 'a'", "'any', '<', 0.5", "'all', '>=', 1", "'max', '<', 30", "'min', '!=', 0",
    "'mean', '<=', 9", "'first', '==', 3", "'size', '>', 3", "'stale', '5m'", "'fresh', '90s'", "'top', 2",
    "'bottom', 1, 'mean'", "'top', 1, 'max'", "'{rack=\"rack1\"}'", "'m.a'",
]  # fmt: skip
FILLS = [
    "'value', 0", "'value', 1.5", "'value', 0, max_gap='2m'", "'previous'", "'previous', max_gap='2m'", "'next'",
    "'next', max_gap='1m'", "'linear'", "'linear', max_gap='3m'",
]  # fmt: skip
TRANSFORMS = [
    "'shift', '2m'", "'relabel', 'dc', 'x'", "'relabel', 'rack', ''", "'rename', 'n'", "'sort'",
    "'sort', 'last', descending=True", "'sort', 'name'", "'sort', 'mean'", "'sort', 'first', descending=True",
    "'limit', 2", "'integrate'", "'integrate', initial=3",
    "'label_replace', 'disk', 'v$1', 'host', 'h(.*)'",
    f"'clip', {T - 6 * MINUTE}, {T - 2 * MINUTE}",
]  # fmt: skip
OPS = ["+", "-", "*", "/", "%", "**", "==", "!=", "<", "<=", ">", ">="]


@st.composite
def of_series(draw: Any, depth: int = 2) -> str:
    """Text whose series keep the labels of those fetched."""
    default = draw(st.sampled_from(["", "", "", "", ", default=0", ", default=2.5", ", default=True"]))
    text = "fetch('" + draw(st.sampled_from(RARE if draw(st.integers(0, 15)) == 0 else SELECTORS)) + f"'{default})"
    if draw(st.integers(0, 7)) == 0:
        text += f".offset('{draw(st.integers(1, 4))}m')"
    for _ in range(draw(st.integers(0, depth))):
        text += draw(links())
    return str(text)


@st.composite
def links(draw: Any) -> str:
    what = draw(st.integers(0, 9))
    if what <= 4:
        name, extra = draw(window_functions())
        window = draw(st.sampled_from([1, 1, 2, 3, 5, 9]))
        after = draw(st.sampled_from(["", "", "", ", after='2m'"])) if name not in _BACK else ""
        return f".map('{name}', '{window}m'{extra}{after}{draw(st.sampled_from(RULES))})"
    if what <= 6:
        return f".map({draw(st.sampled_from(POINTS))})"
    family = draw(st.sampled_from([("filter", FILTERS), ("fill", FILLS), ("transform", TRANSFORMS)]))
    return f".{family[0]}({draw(st.sampled_from(family[1]))})"


@st.composite
def reduced(draw: Any) -> str:
    text = draw(of_series(1))
    classes = draw(st.sampled_from(CLASSES))
    if draw(st.integers(0, 3)) == 0:
        return f"{text}.reduce({draw(st.sampled_from(CHOOSERS))}, {classes})"
    if draw(st.integers(0, 3)) == 0:
        return f"{text}.reduce({draw(st.sampled_from(PLACERS))}, {classes}{draw(st.sampled_from(RULES))})"
    if draw(st.integers(0, 7)) == 0:
        return f"fetch('m.*').reduce('count_values', 'v', {classes})"
    return f"{text}.reduce({draw(st.sampled_from(REDUCERS))}, {classes}{draw(st.sampled_from(RULES))})"


MATCHES = [
    "", "", ", on=['host']", ", on=['rack']", ", ignoring=['host']", ", on=['rack'], group_left=['dc']",
    ", on=['rack'], group_right=[]", ", unmatched='error'", ", on=['host'], fill=0", ", on=['host'], unmatched='error'",
]  # fmt: skip
NAMED_OPS = ["add", "sub", "div", "mod", "min", "max", "lt", "eq", "mask", "negmask"]


@st.composite
def combined(draw: Any) -> str:
    left = draw(of_series(1) | reduced()) + draw(st.sampled_from(["", "", "", "", ".or_(0)", ".or_(-1.5)"]))
    match draw(st.integers(0, 6)):
        case 6:
            op, classes = draw(st.sampled_from(NAMED_OPS[:8])), draw(st.sampled_from(CLASSES[:-1]))
            return f"({left}).{op}({draw(of_series(0))}.reduce('max', {classes}))"
        case 0:
            other = draw(st.sampled_from(["2", "0.5", "'a'", "True", "0", "-3", "inf", "nan"]))
            op = draw(st.sampled_from(OPS))
            return f"({left} {op} {other})" if draw(st.booleans()) else f"({other} {op} {left})"
        case 1:
            return f"(({left}) {draw(st.sampled_from(OPS))} ({draw(of_series(1))}))"
        case 2:
            bools = f"({left} > 3) {draw(st.sampled_from('&|'))} ({draw(of_series(1))} < 9)"
            return str(draw(st.sampled_from([f"({bools})", f"(~({left} > 3))"])))
        case 3:
            op, matched = draw(st.sampled_from(NAMED_OPS)), draw(st.sampled_from(MATCHES))
            right = draw(of_series(0) | reduced())
            condition = f"({right} > 5)" if "mask" in op else right
            return f"apply('{op}', {left}, {condition}{matched})"
        case 4:
            on = draw(st.sampled_from(["", ", on=['rack']", ", on=['host']"]))
            return f"({left}).{draw(st.sampled_from(['and_', 'or_', 'unless']))}({draw(of_series(1))}{on})"
    last = [f"({left}).where({left} > 4)", f"({left} - fetch('m.a').reduce('max', by=[]).scalar())"]
    return str(draw(st.sampled_from(last)))


TIMES = [".range('10m')", ".range('20m')", ".at('now')", f".between({T - 12 * MINUTE}, {T - 2 * MINUTE})"]


@st.composite
def questions(draw: Any) -> str:
    text = draw(of_series(3) | of_series(1) | reduced() | combined())
    if draw(st.integers(0, 5)) == 0:
        name, extra = draw(window_functions())
        step = draw(st.sampled_from(["2m", "5m", "10m"]))
        text = f"{text}.bucketize('{name}', '{step}'{extra})"
    if draw(st.integers(0, 9)) == 0:
        text = f"({text}).named('{draw(st.sampled_from(['z', '{host}-{rack}', '{__name__}']))}')"
    return f"({text})" + str(draw(st.sampled_from(TIMES)))


COARSE_TIMES = [".range('90m')", ".range('2h')", ".at('now-70m')", f".between({T - 100 * MINUTE}, {T - 25 * MINUTE})"]


@st.composite
def coarse_questions(draw: Any) -> str:
    """The same over buckets of five minutes, for ranges that no finer level covers."""
    text = draw(of_series(3) | of_series(1) | reduced() | combined())
    wider = re.sub(r"'(\d+)m'", lambda found: f"'{int(found[1]) * COARSE}m'", text)
    return f"({wider})" + str(draw(st.sampled_from(COARSE_TIMES)))


BY_VALUE = ["'compact'", "'compact', ranges=True", "'value_split'", "'mode'"]
"""Calls that distinguish values by their last bits: used on samples only."""
SAMPLED = [
    "'shift', '90s'", "'dedup'", "'split', '3m'", "'modulo', '5m'", "'merge'", "'integrate'", "'integrate', initial=3",
    "'limit', 2", "'rename', 'n'",
    "'relabel', 'dc', 'x'", "'relabel', 'host', ''", "'label_replace', 'disk', 'v$1', 'host', 'h(.*)'",
    f"'clip', {T - 9 * MINUTE}, {T - 2 * MINUTE}",
]  # fmt: skip
FITS = ["'{rack=\"rack1\"}'", "'m.a'"]
OF_LIVES = ("increase", "delta", "rate", "irate", "resets", "last")
"""Calls that depend on births or ends: used on samples only, as the plain evaluator drops both in other steps."""


@st.composite
def sampled_questions(draw: Any) -> str:
    """Raw samples: chains of what takes them, perhaps put on a grid at last."""
    text = "samples('" + draw(st.sampled_from(SELECTORS)) + "')"
    links = draw(st.integers(0, 3))
    for place in range(links):
        text += draw(sampled_links(place))
    if draw(st.booleans()):
        name, extra = draw(window_functions())
        if name in OF_LIVES and links:
            name, extra = "mean", ""
        step = draw(st.sampled_from(["1m", "90s", "5m"]))
        text += f".bucketize('{name}', '{step}'{extra}{draw(st.sampled_from(['', '', ', min_count=2']))})"
        text += draw(st.sampled_from(["", "", ".reduce('max', by=['rack'])", ".map('abs')"]))
    start, end = draw(st.sampled_from([(20, 0), (12, 3), (9.5, 2), (13, 0)]))
    return f"({text}).between({T - int(start * MINUTE)}, {T - int(end * MINUTE)})"


@st.composite
def sampled_links(draw: Any, place: int) -> str:
    what = draw(st.integers(0, 5))
    if what <= 2:
        name, extra = draw(window_functions())
        if name in OF_LIVES and place:
            name, extra = "mean", ""
        after = draw(st.sampled_from(["", "", ", after='70s'"])) if name not in _BACK else ""
        rule = draw(st.sampled_from(["", "", ", min_count=2"]))
        return f".map('{name}', '{draw(st.sampled_from(['15s', '1m', '250s', '20m']))}'{extra}{after}{rule})"
    if what == 3:
        return f".map({draw(st.sampled_from(POINTS))})"
    if what == 4:
        return f".filter({draw(st.sampled_from(FITS))})"
    return f".transform({draw(st.sampled_from(SAMPLED if place else [*SAMPLED, *BY_VALUE]))})"


@st.composite
def exact_questions(draw: Any) -> str:
    """Queries with integer answers that must not pass through float64."""
    name = draw(st.sampled_from([n for n in EXACT if n != "resets"]))
    text = f"fetch('m.*').map('{name}', '{draw(st.sampled_from([1, 3, 5]))}m')"
    more = [
        "", "", ".map('abs')", ".reduce('max', by=['rack'])", ".reduce('min', by=[])", ".reduce('first', without=[])",
        ".reduce('topk', 2, by=[])", ".reduce('count_values', 'v', by=[])", ".fill('previous')", ".fill('value', 7)",
        ".filter('max', '>', 9007199254740995)", ".map('to_string')", ".map('finite')", ".map('round')",
        ".transform('sort')", ".map('max', '2m')", ".reduce('range', by=['rack'])",
    ]  # fmt: skip
    text += draw(st.sampled_from(more))
    compared = f"({text} {draw(st.sampled_from(OPS[6:]))} 9007199254741000)"
    both = f"apply('max', {text}, {text})"
    return str(draw(st.sampled_from([text, text, compared, both])) + draw(st.sampled_from(TIMES)))


# --- agreement ---

ANY_ROUNDING = 1e-9


def ours(text: str, store: Any, now: int = NOW) -> Matrix | RawSeries | str:
    try:
        return answered(parse(text), store, now)
    except QueryError as problem:
        return f"refused: {problem}"


def theirs(text: str, world: World, now: int = NOW) -> Answer | str:
    try:
        return answer(text, world, now)
    except (Refused, QueryError) as problem:
        return f"refused: {problem}"


def differences(text: str, got: Matrix | RawSeries | str, wanted: Answer | str) -> list[str]:
    """Descriptions of the differences."""
    if isinstance(got, str) or isinstance(wanted, str):
        return [] if isinstance(got, str) and isinstance(wanted, str) else [f"ours {got!r}, plain {wanted!r}"]
    if isinstance(got, RawSeries):
        return irregular_differences(text, got, wanted)
    if got.times != wanted.times:
        return [f"ours has times {got.times[0]}..{got.times[-1]}, plain {wanted.times[0]}..{wanted.times[-1]}"]
    types = [row["type"] for row in got.to_dict()["series"]]
    if (got.series, types) != (wanted.series, wanted.types):
        return [
            f"ours {list(zip(got.series, types, strict=True))}",
            f"plain {list(zip(wanted.series, wanted.types, strict=True))}",
        ]
    return [
        f"{name} at {time}: ours {a!r}, plain {b!r}"
        for i, name in enumerate(got.series)
        for time, a, b in zip(got.times, got.tolist(i), wanted.values[i], strict=True)
        if not as_good(text, a, b)
    ]


def irregular_differences(text: str, got: RawSeries, wanted: Answer) -> list[str]:
    types = [row["type"] for row in got.to_dict()["series"]]
    if (got.series, types) != (wanted.series, wanted.types):
        return [
            f"ours {list(zip(got.series, types, strict=True))}",
            f"plain {list(zip(wanted.series, wanted.types, strict=True))}",
        ]
    rows = [(name, got.tolist(i), wanted.points[i]) for i, name in enumerate(got.series)]
    return [
        f"{name}: ours {mine[:20]!r}, plain {other[:20]!r}"
        for name, mine, other in rows
        if [t for t, _ in mine] != [t for t, _ in other]
        or not all(as_good(text, a, b) for (_, a), (_, b) in zip(mine, other, strict=True))
    ]


def as_good(text: str, a: Any, b: Any) -> bool:
    """True if ours is equal to the plain value, or may be another one."""
    if agree(a, b) or ("quantile" in text and at_infinity(a, b)):
        return True
    return MAGNIFIES.search(text) is not None and None not in (a, b)


_ROUNDED = "zscore|holt|ewma|sd|var|derivative|predict_linear|rate|mean|quantile|median|mad|sqrt|exp|log|pow|div"
MAGNIFIES = re.compile(rf"'({_ROUNDED})'.*'zscore'")
"""Values that differ in their last bits have a zscore of 1 where equal ones have none."""


def at_infinity(a: Any, b: Any) -> bool:
    """numpy interpolates next to an infinity to NaN, and so does `a`."""
    return isinstance(a, float) and isinstance(b, float) and not math.isfinite(a)


def agree(a: Any, b: Any) -> bool:
    """Equal, of one type; floats but for rounding."""
    if type(a) is not type(b):
        return False
    if isinstance(a, float):
        return (a != a and b != b) or a == b or math.isclose(a, b, rel_tol=ANY_ROUNDING, abs_tol=1e-9)
    return bool(a == b) or (isinstance(a, str) and close_texts(a, b))


def close_texts(a: str, b: str) -> bool:
    """Texts of floats."""
    try:
        return math.isclose(float(a), float(b), rel_tol=ANY_ROUNDING, abs_tol=1e-9)
    except ValueError:
        return False
