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
        "integral": ".integrate()",
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
        "groupByNode": lambda of, args: f'{of}.{_SERIES.get(args[-1].strip(chr(34) + chr(39)), "sum")}(by=["label"])',
        "transformNull": lambda of, args: f'{of}.fill("value", {args[0]})',
        "highestCurrent": lambda of, args: f'{of}.filter("top", {args[0]})',
        "alias": lambda of, args: f"{of}.named({args[0]})",
        "scale": lambda of, args: f"({of} * {args[0]})",
        "divideSeries": lambda of, args: f"({of} / {graphite(args[0])})",
        "diffSeries": lambda of, args: f"({of} - {graphite(args[0])})",
        "asPercent": lambda of, args: f"(100 * {of} / {graphite(args[0])})",
    }
)
GRAPHITE = re.compile(rf"\b({'|'.join([*_ONE, *_WITH])})\s*\(")
"""Calls that only Graphite has."""


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
_BUCKETS = re.compile(r"time\s*\(\s*(\w+)\s*\)", re.IGNORECASE)


def is_sql(text: str) -> bool:
    """Return True for a text of the form SELECT … FROM …"""
    found = [part.lower() for part in _CLAUSES.findall(text)]
    return found[:2] == ["select", "from"] and text.lstrip()[:6].lower() == "select"


def sql(text: str) -> str | None:
    """Translate a simple SELECT statement; None if it is not understood."""
    parts = _CLAUSES.split(text.strip().rstrip(";"))
    clauses = {" ".join(name.lower().split()): of.strip() for name, of in zip(parts[1::2], parts[2::2], strict=True)}
    chosen, source = _AGGREGATE.fullmatch(clauses["select"]), re.fullmatch(rf"(?:[\"\w]+\.)*{_FIELD}", clauses["from"])
    function = _REDUCERS.get(chosen[1].lower()) if chosen is not None else None
    where = _conditions(clauses.get("where", ""))
    if chosen is None or source is None or function is None or where is None or source[1] == "*":
        return None
    name = source[1] if chosen[2] in ("value", "*") else f"{source[1]}.{chosen[2]}"
    matchers = f"{{{','.join(where[0])}}}" if where[0] else ""
    groups = split_arguments(clauses.get("group by", ""))
    steps = [found[1] for group in groups if (found := _BUCKETS.fullmatch(group))]
    labels = [group.strip('"`') for group in groups if group and not _BUCKETS.fullmatch(group)]
    if not all(re.fullmatch(r"\w+|\*", label) for label in labels):
        return None
    buckets = f'.bucketize("{function}", {_duration(steps[0])})' if steps else ""
    by = "without=[]" if labels == ["*"] else f"by=[{', '.join(f'{chr(34)}{label}{chr(34)}' for label in labels)}]"
    total = "sum" if function == "count" and steps else function
    return f"fetch('{name}{matchers}'){buckets}.{total}({by}){where[1]}"


def _conditions(text: str) -> tuple[list[str], str] | None:
    """Return the matchers of a WHERE clause and its time range; None if a condition is not understood."""
    matchers, within = [], ""
    for part in re.split(r"\band\b", text, flags=re.IGNORECASE) if text else []:
        label, since = _LABEL.fullmatch(part.strip()), _SINCE.fullmatch(part.strip())
        if label is not None:
            value = label[3] or "" if label[4] is None else _full_match(label[4])
            matchers.append(f'{label[1]}{label[2].replace("<>", "!=")}"{value}"')
        elif since is not None and _DURATION.fullmatch(since[1]):
            within = f".range({_duration(since[1])})"
        else:
            return None
    return matchers, within


def _full_match(pattern: str) -> str:
    """Return the pattern of the whole value for one that is searched in it."""
    begin = pattern.removeprefix("^") if pattern.startswith("^") else f".*{pattern}"
    return begin.removesuffix("$") if begin.endswith("$") else f"{begin}.*"
