"""Translation of simple Graphite, InfluxQL and SQL texts to queries, for error messages; nothing is evaluated."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from itertools import pairwise
from types import MappingProxyType

_BRACKETS = MappingProxyType({"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1})
_TOKEN = re.compile(
    r""""(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|\d[\d.]*[eE][+-]?\d+|[\w.:]+|[=!]~|[=!<>]=|[^\S]+|.""", re.DOTALL
)
_DURATION = re.compile(r"'?\"?(\d+)\s*(ms|s|m|h|d|w)[a-z]*'?\"?")
MAX_DEPTH = 10
"""Maximum nesting of a text that is translated."""


def top_level(text: str) -> list[tuple[int, str]]:
    """Return (position, token) of the tokens outside of all brackets; brackets themselves are not among them."""
    found, depth = [], 0
    for token in _TOKEN.finditer(text):
        step = _BRACKETS.get(token[0], 0)
        depth += step
        if depth == 0 and not step and not token[0].isspace():
            found.append((token.start(), token[0]))
    return found


def split_arguments(text: str) -> list[str]:
    """Split a text at the commas outside of brackets and quotes."""
    cuts = [-1, *(at for at, mark in top_level(text) if mark == ","), len(text)]
    return [text[a + 1 : b].strip() for a, b in pairwise(cuts)]


def outer_call(text: str) -> tuple[str, str] | None:
    """Return the function name and the text between its parentheses if the whole text is one call or one pair of
    parentheses (name ""); else None."""
    found = re.match(r"([A-Za-z_]\w*)?\s*\(", text)
    if found is None or not text.endswith(")") or top_level(text)[bool(found[1]) :]:
        return None
    inner, depth = text[found.end() : -1], 0
    for token in _TOKEN.finditer(inner):
        depth += _BRACKETS.get(token[0], 0)
        if depth < 0:
            return None
    return found[1] or "", inner.strip()


def _duration(text: str) -> str:
    """Translate '5min' to "5m"; a number of points to that many minutes."""
    found = _DURATION.fullmatch(text.strip())
    return f'"{found[1]}{found[2]}"' if found is not None else f'"{text.strip()}m"'


# --- Graphite

_PATH = re.compile(r"[\w-]+(?:\.[\w*?{},-]+)+|[\w-]+")
Args = list[str]
_SERIES: Mapping[str, str] = MappingProxyType(
    {"sum": "sum", "average": "mean", "avg": "mean", "max": "max", "min": "min", "count": "count", "median": "median"}
)
_ONE: Mapping[str, str] = MappingProxyType(
    {
        "perSecond": ".rate()",
        "nonNegativeDerivative": ".increase()",
        "derivative": ".delta()",
        "absolute": ".abs()",
        "keepLastValue": '.fill("previous")',
        "sortByMaxima": '.sort("max", descending=True)',
        "aliasByNode": "",
        "aliasByMetric": "",
    }
    | {f"{name}Series": f".{here}(by=[])" for name, here in _SERIES.items()}
)
_WITH: Mapping[str, Callable[[str, Args], str]] = MappingProxyType(
    {
        "movingAverage": lambda of, args: f'{of}.map("mean", {_duration(args[0])})',
        "movingMedian": lambda of, args: f'{of}.map("median", {_duration(args[0])})',
        "summarize": lambda of, args: f"{of}.bucketize({_summary(args[1:])}, {_duration(args[0])})",
        "timeShift": lambda of, args: f"{of}.offset({_duration(args[0])})",
        "groupByNode": lambda of, args: f'{of}.{_series(args[-1])}(by=["label"])',
        "transformNull": lambda of, args: f'{of}.fill("value", {args[0]})',
        "highestCurrent": lambda of, args: f'{of}.filter("top", {args[0]})',
        "highestAverage": lambda of, args: f'{of}.filter("top", {args[0]}, rank="mean")',
        "highestMax": lambda of, args: f'{of}.filter("top", {args[0]}, rank="max")',
        "limit": lambda of, args: f"{of}.limit({args[0]})",
        "alias": lambda of, args: f"{of}.named({args[0]})",
        "scale": lambda of, args: f"({of} * {args[0]})",
        "divideSeries": lambda of, args: f"({of} / {graphite(args[0])})",
        "diffSeries": lambda of, args: f"({of} - {graphite(args[0])})",
        "asPercent": lambda of, args: f"(100 * {of} / {graphite(args[0])})",
    }
)
GRAPHITE = re.compile(rf"(?<![.\w])({'|'.join([*_ONE, *_WITH, 'integral'])})\s*\(")
"""Calls that only Graphite has."""


def _series(name: str) -> str:
    """Return our reducer of an aggregation such as 'averageSeries'."""
    return _SERIES.get(name.strip("'\"").removesuffix("Series"), "sum")


def _summary(args: Args) -> str:
    name = args[0].strip("'\"") if args else "sum"
    return f'"{_SERIES.get(name, name)}"'


def graphite(text: str, depth: int = 0) -> str | None:
    """Translate a Graphite target; None if it is not understood."""
    if _PATH.fullmatch(text):
        if not re.search(r"[*?{}]", text):
            return f"fetch('{text}')"
        pattern = re.sub(r"[.*?{},]", lambda mark: _WILD[mark[0]], text)
        return f"fetch('{{__name__=~\"{pattern}\"}}')"
    call = outer_call(text)
    if call is None or depth > MAX_DEPTH:
        return None
    first, *args = split_arguments(call[1])
    of = graphite(first, depth + 1)
    if of is None:
        return None
    if call[0] in _ONE:
        return of + _ONE[call[0]]
    return _WITH[call[0]](of, args) if call[0] in _WITH and args else None


_WILD = MappingProxyType({".": "[.]", "*": "[^.]*", "?": "[^.]", "{": "(", "}": ")", ",": "|"})

# --- InfluxQL and SQL

_CLAUSES = re.compile(r"\b(select|from|where|group\s+by|fill|order\s+by|limit|having)\b", re.IGNORECASE)
_REDUCERS: Mapping[str, str] = MappingProxyType(
    {"avg": "mean", "stddev": "sd"}
    | {name: name for name in ("mean", "sum", "min", "max", "count", "last", "first", "median")}
)
_FIELD = r"[\"`]?([\w.]+|\*)[\"`]?"
_AGGREGATE = re.compile(rf"(\w+)\s*\(\s*{_FIELD}\s*\)(?:\s+as\s+\S+)?", re.IGNORECASE)
_LABEL = re.compile(r"[\"`]?(\w+)[\"`]?\s*(=~|!~|!=|<>|=)\s*(?:'([^'\"\\]*)'|/([^/'\"\\]*)/)")
_SINCE = re.compile(r"[\"`]?\w+[\"`]?\s*>=?\s*now\(\)\s*-\s*(?:interval\s*)?('?\d+\s*[a-z]+'?)", re.IGNORECASE)
_BUCKETS = re.compile(
    r"time\s*\(\s*(\$?\w+)\s*\)"
    r"|(?:time_bucket\s*\(\s*'([\w ]+)'|date_trunc\s*\(\s*'(\w+)')\s*,\s*[\"\w.]+\s*\)(?:\s+as\s+\w+)?",
    re.IGNORECASE,
)
_UNITS = MappingProxyType({"second": "1s", "minute": "1m", "hour": "1h", "day": "1d", "week": "1w"})
_DERIVATIVE = re.compile(
    rf"(?:non_negative_)?derivative\s*\(\s*\w+\s*\(\s*{_FIELD}\s*\)\s*(?:,\s*1s\s*)?\)", re.IGNORECASE
)
_AMONG = re.compile(r"[\"`]?(\w+)[\"`]?\s+in\s*\(\s*('\w+'(?:\s*,\s*'\w+')*)\s*\)", re.IGNORECASE)


def is_sql(text: str) -> bool:
    """Return True for a text of the form SELECT … FROM …"""
    found = [part.lower() for part in _CLAUSES.findall(text)]
    return found[:2] == ["select", "from"] and text.lstrip()[:6].lower() == "select"


def sql(text: str) -> str | None:
    """Translate a simple SELECT statement; None if it is not understood."""
    parts = _CLAUSES.split(text.strip().rstrip(";"))
    clauses = {" ".join(name.lower().split()): of.strip() for name, of in zip(parts[1::2], parts[2::2], strict=True)}
    items = split_arguments(clauses["select"])
    groups = split_arguments(clauses.get("group by", ""))
    steps = [step for item in (*items, *groups) if (step := _step_of(item)) is not None]
    columns = {item.strip('"`').split()[-1].strip('"`') for item in items[:-1]} | {
        str(i + 1) for i in range(len(items))
    }
    labels = [name for group in groups if (name := group.strip('"`')) and _step_of(group) is None]
    if steps:  # a bucket of time is named by its alias or its place among the columns
        labels = [name for name in labels if name not in columns]
    source, where = re.fullmatch(rf"(?:[\"\w]+\.)*{_FIELD}", clauses["from"]), _conditions(clauses.get("where", ""))
    chosen = _chosen(items[-1])
    plain = len(items) == 1 or bool(steps) or columns - {str(i + 1) for i in range(len(items))} <= {*labels}
    if source is None or chosen is None or where is None or source[1] == "*" or not plain:
        return None
    if not all(re.fullmatch(r"\w+|\*", label) for label in labels):
        return None
    function, field = chosen
    name = source[1] if field in ("value", "*") else f"{source[1]}.{field}"
    series = f"fetch('{name}{{{','.join(where[0])}}}')" if where[0] else f"fetch('{name}')"
    return series + _aggregated(function, labels, steps[:1], where[1]) + _shown(clauses)


def _step_of(item: str) -> str | None:
    """Return the step of a bucket of time; None for other columns."""
    found = _BUCKETS.fullmatch(item.strip())
    if found is None:
        return None
    given = found[1] or found[2] or _UNITS.get((found[3] or "").lower(), "")
    return '"auto"' if given.startswith("$") else _duration(given) if _DURATION.fullmatch(given) else None


def _chosen(item: str) -> tuple[str, str] | None:
    """Return (our function, "" for none; field) of the column that is asked for; None if it is not understood."""
    change, bare = _DERIVATIVE.fullmatch(item), re.fullmatch(_FIELD, item)
    if change is not None:
        return "rate", change[1]
    if bare is not None:
        return None if bare[1] == "*" else ("", bare[1])
    found = _AGGREGATE.fullmatch(item)
    function = _REDUCERS.get(found[1].lower()) if found is not None else None
    return None if found is None or function is None else (function, found[2])


def _aggregated(function: str, labels: list[str], steps: list[str], within: str) -> str:
    """Return the calls that aggregate over time and over series. A range without steps is one window."""
    span = f".range({within})" if within else ""
    by = "without=[]" if labels == ["*"] else f"by=[{', '.join(f'{chr(34)}{label}{chr(34)}' for label in labels)}]"
    total = {"count": "sum", "rate": "sum"}.get(function, function)
    over_series = "" if function in ("sd", "median") else f".{total}({by})"
    if not function:
        return span
    if steps == ['"auto"']:
        return f'.map("{function}", "auto"){over_series}{span}'
    if steps:
        return f'.bucketize("{function}", {steps[0]}){over_series}{span}'
    if within:
        return f'.map("{function}", {within}){over_series}.at("now")'
    return ".rate()" + over_series if function == "rate" else f".{function}({by})"


def _shown(clauses: Mapping[str, str]) -> str:
    """Return the calls of FILL, ORDER BY and LIMIT."""
    fill, order = clauses.get("fill", "").strip("() ").lower(), clauses.get("order by", "").lower()
    filled = (
        f'.fill("{fill}")' if fill in ("previous", "linear") else f'.fill("value", {fill})' if fill.isdigit() else ""
    )
    ranked = "" if not order or order.startswith("time") else f".sort({'descending=True' if 'desc' in order else ''})"
    limit = clauses.get("limit", "")
    return filled + ranked + (f".limit({limit})" if limit.isdigit() else "")


def _conditions(text: str) -> tuple[list[str], str] | None:
    """Return the matchers of a WHERE clause and the length of its time range ("" for none); None if a condition is not
    understood."""
    matchers, within = [], ""
    for part in re.split(r"\band\b", text, flags=re.IGNORECASE) if text else []:
        label, since, among = (pattern.fullmatch(part.strip()) for pattern in (_LABEL, _SINCE, _AMONG))
        if label is not None:
            value = label[3] or "" if label[4] is None else _full_match(label[4])
            matchers.append(f'{label[1]}{label[2].replace("<>", "!=")}"{value}"')
        elif since is not None and _DURATION.fullmatch(since[1]):
            within = _duration(since[1])
        elif among is not None:
            values = "|".join(re.findall(r"\w+", among[2]))
            matchers.append(f'{among[1]}=~"{values}"')
        elif part.strip() != "$timeFilter":
            return None
    return matchers, within


def _full_match(pattern: str) -> str:
    """Return the pattern of the whole value for one that is searched in it."""
    begin = pattern.removeprefix("^") if pattern.startswith("^") else f".*{pattern}"
    return begin.removesuffix("$") if begin.endswith("$") else f"{begin}.*"
