"""Syntax hints for users of PromQL, pandas, Graphite, InfluxQL and SQL. They appear in error messages only."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from math import prod
from types import MappingProxyType

from artimon.runtime.text import closest_names
from query_dsl.tree.foreign_queries import (
    GRAPHITE,
    MAX_DEPTH,
    graphite,
    is_sql,
    outer_call,
    split_arguments,
    sql,
    top_level,
)
from query_dsl.tree.query_errors import has_long_words, similar_hint

_OVER_TIME = re.compile(r"(avg|min|max|sum|count|last|first|quantile|stddev|stdvar|mad)_over_time")
_CALENDAR = ("minute", "hour", "weekday", "day", "month", "year", "yearday")


_WHOLE = ", ddof=0"
"""Arguments of sd and var for the numbers of PromQL, which divides by the count."""


def _reduce_or_map(here: str, more: str = "") -> str:
    return f'.{here}(by=["label"]{more}) over series, .map("{here}", "5m"{more}) over time'


EQUIVALENTS: Mapping[str, str] = MappingProxyType(
    {name: _reduce_or_map("mean") for name in ("avg", "average")}
    | {name: _reduce_or_map("sd") for name in ("std", "stdev")}
    | {"stddev": _reduce_or_map("sd", _WHOLE), "stdvar": _reduce_or_map("var", _WHOLE)}
    | dict.fromkeys(("percentile", "p95", "p99"), '.quantile(0.95, by=["label"]), .map("quantile", "5m", 0.95)')
    | {name: f'.calendar("{name}")' for name in _CALENDAR}
    | {name: f'apply("{here}", a, b), or {sign}' for name, here, sign in (
        ("plus", "add", "a + b"), ("subtract", "sub", "a - b"), ("minus", "sub", "a - b"), ("times", "mul", "a * b"),
        ("multiply", "mul", "a * b"), ("divide", "div", "a / b"))}
    | {
        "total": _reduce_or_map("sum"),
        "variance": _reduce_or_map("var"),
        "day_of_week": '.calendar("weekday")',
        "day_of_month": '.calendar("day")',
        "day_of_year": '.calendar("yearday")',
        "deriv": '.derivative("5m")',
        "diff": ".delta()",
        "idelta": ".delta()",
        "per_second": '.rate("5m")',
        "moving_average": '.map("mean", "5m")',
        "rolling": '.map("mean", "5m")',
        "holt_winters": '.holt("1h", alpha=0.5, beta=0.1)',
        "double_exponential_smoothing": '.holt("1h", alpha=0.5, beta=0.1)',
        "clamp_min": ".clamp(low, inf)",
        "clamp_max": ".clamp(-inf, high)",
        "ln": ".log()",
        "log2": ".log(base=2)",
        "log10": ".log(base=10)",
        "timestamp": ".last_seen().div(1000)",
        "absent_over_time": "absent('NAME')",
        "sort_desc": ".sort(descending=True)",
        "label_join": '.label_replace("target", "$1", "source", "(.*)")',
        "groupby": '.sum(by=["label"]), .mean(by=["label"])',
        "group_by": '.sum(by=["label"]), .mean(by=["label"])',
        "fillna": '.fill("value", 0)',
        "ffill": '.fill("previous")',
        "interpolate": '.fill("linear")',
        "cumsum": '.integrate() over time, .running_sum(by=["label"]) over series',
        "pareto": '.running_sum(share=True, by=["label"])',
        "standardise": '.standardize(by=["label"])',
        "normalize": '.share(by=["label"]), .standardize(by=["label"])',
        "percentage": '.share(by=["label"]) * 100',
        "alias": '.named("name")',
        "head": ".limit(10)",
        "time_shift": '.shift("1w")',
        "summarize": '.bucketize("mean", "5m")',
    }
)  # fmt: skip
"""Function name of another language -> equivalent expression."""


def name_hint(name: str, known: Iterable[str] = ()) -> str:
    """Return `; here: …` if a function of another language is the closest match of `name`; else `; near: …` with
    similar `known` names; else ""."""
    over_time = _over_time(name)
    if over_time is not None:
        more = ", 0.95" if over_time == "quantile" else _ARGUMENTS.get(over_time, "")
        return f'; here: .map("{over_time}", "5m"{more})'
    pool = list(known)
    found = closest_names(name.lower(), [*pool, *EQUIVALENTS], 1)
    return f"; here: {EQUIVALENTS[found[0]]}" if found and found[0] in EQUIVALENTS else similar_hint(name, pool)


def _over_time(name: str) -> str | None:
    """Return our name of PromQL's `NAME_over_time`; None for other names."""
    found = _OVER_TIME.fullmatch(name)
    return None if found is None else _RENAMED.get(found[1], found[1])


_RENAMED = MappingProxyType({"avg": "mean", "stddev": "sd", "stdvar": "var"})
_ARGUMENTS = MappingProxyType({"sd": _WHOLE, "var": _WHOLE, "topk": ', rank="each"', "bottomk": ', rank="each"'})
"""Arguments of our functions that PromQL has as a matter of course."""

_SYNTAX = (
    ("leading zeros", "write numbers without leading zeros"),
    ("literal", 'put durations and names that begin with a digit in quotes, as in "5m"'),
    ("f-string", "write a plain text without f"),
    ("bytes can only", "write a plain text without b"),
    ("unicode error", r"this escape is not known: write \\ for a backslash"),
    ("positional argument follows", "arguments without a name come before those with one"),
    ("keyword argument repeated", "an argument is given twice"),
    ("expected 'else'", "a query cannot contain if"),
    ("nested parentheses", "brackets nest too deeply"),
    ("cannot assign", "compare with ==; a single = gives an argument by its name"),
    ("Maybe you meant '=='", "compare with ==; a single = gives an argument by its name"),
    ("Perhaps you forgot a comma", "something is missing here: an operator, a comma, a dot or a quote"),
)
_UNREADABLE = "something is missing or too much here: an operator, a comma, a dot or a quote"
_MISFITS = (
    (re.compile(r"missing a required.*argument: '(\w+)'"), r"it needs \1"),
    (re.compile(r"multiple values for argument '(\w+)'"), r"\1 is given twice"),
    (re.compile("too many positional arguments"), "too many arguments without a name"),
)
_SIGNS = MappingProxyType(
    {
        "&": "write & for and, | for or, with each comparison in parentheses",
        "|": "write & for and, | for or, with each comparison in parentheses",
        "!": "write ~(…) for not",
        "<>": "write != for not equal",
        ";": "one query at a time, without ;",
    }
)


def usual_arguments(name: str) -> str:
    """Return the arguments that give our method `name` the numbers of PromQL, such as `, rank="each"`; "" for none."""
    return _ARGUMENTS.get(name, "")


def syntax_hint(message: str, text: str, position: int) -> str:
    """Translate Python's syntax error `message` at `position` of `text` to a hint for queries."""
    for part, hint in _SYNTAX:
        if part in message:
            return hint
    return _SIGNS.get(text[position : position + 2]) or _SIGNS.get(text[position : position + 1]) or _UNREADABLE


def argument_hint(message: str) -> str:
    """Translate Python's error `message` about the arguments of a call."""
    for pattern, hint in _MISFITS:
        found = pattern.fullmatch(message)
        if found is not None:
            return found.expand(hint)
    return "these arguments do not fit"


_METRIC = r"[a-zA-Z_:][\w:.]*"
_SELECTOR = re.compile(
    rf"({_METRIC}|(?:{_METRIC})?\{{[^{{}}]*\}})\s*(?:\[(\d[\w:]*|\$__\w+)\])?\s*(?:offset\s+(\d\w*))?"
)
_QUOTED_NAME = re.compile(r'\s*(?:__name__\s*=\s*)?"((?:[^"\\]|\\.)*)"\s*(?:,\s*|(?=\}))(?!\s*[=!])')
"""Name in quotes as the first part of the braces of a selector."""
_LOOK_BACK = '.map("last", "5m")'
_OTHER_NUMBERS = frozenset(("delta", "irate", "resets", "last_over_time", "timestamp", "absent", "count_values"))
"""Functions whose equivalent here differs: it does not extrapolate, knows starts and ends of series, or does not look
back."""
_CLASSES = r"(by|without)\s*\(([\w\s,]*)\)"
_PREFIX_BY = re.compile(rf"([a-z_]+)\s*{_CLASSES}\s*\((.*)\)", re.DOTALL)
_SUFFIX_BY = re.compile(rf"([a-z_]+)\s*\((.*)\)\s*{_CLASSES}", re.DOTALL)
_CALL = re.compile(r"([a-z_0-9]+)\s*\((.*)\)", re.DOTALL)
_NUMBER = re.compile(r"([\d.]+)\s*,\s*(.*)", re.DOTALL)
_REDUCERS = MappingProxyType(
    {name: name for name in ("sum", "min", "max", "count", "group", "quantile", "topk", "bottomk")} | _RENAMED
)
_WINDOWED = ("rate", "increase", "delta", "irate", "changes", "resets")
_MAX_LENGTH = 4_000
"""Maximum length of a text that is checked for PromQL, in characters: longer ones are not typed by hand."""
_MAX_HINT = 400
"""Maximum length of a translated query, in characters."""
_MARKS = re.compile(
    r"\[\d+(ms|[smhdwy])|\[\$__|\b(by|without|on|ignoring|group_left|group_right)\s*\(|\boffset\s+\d|[\w:.]\{\s*(\w+\s*[=!]|\})"
)


def foreign_hint(text: str) -> str:
    """Return a hint with our form of a text that looks like PromQL, Graphite, InfluxQL or SQL; "" for other texts."""
    if len(text) > _MAX_LENGTH or re.search(r"\b(fetch|samples|absent|apply)\s*\(\s*['\"]|\bapply\s*\(", text):
        return ""
    if is_sql(text):
        language = "InfluxQL" if re.search(r"\btime\s*\(|\bnow\(\) - \d|/", text) else "SQL"
        return _told(language, sql(text), 'fetch(\'NAME{a="b"}\').bucketize("mean", "5m").mean(by=["label"])')
    if GRAPHITE.search(text):
        return _told("Graphite", graphite(text.strip()), 'fetch(\'NAME\').map("mean", "5m").sum(by=["label"])')
    if _MARKS.search(text):
        return _told("PromQL", translate_promql(text), 'fetch(\'NAME{a="b"}\').rate("5m").sum(by=["label"])')
    return ""


def _told(language: str, here: str | None, example: str) -> str:
    if here is None or len(here) > _MAX_HINT or has_long_words(here):
        return f"this looks like {language}; write a query like {example}"
    bare = outer_call(here)
    return f"this looks like {language}; write {bare[1] if bare is not None and not bare[0] else here}"


def translate_promql(text: str, depth: int = 0, same: bool = False) -> str | None:
    """Translate simple PromQL (selectors, window functions, aggregations, operators) to a query; None for anything
    else. Operators are in parentheses. `same`: only to queries with the numbers of PromQL, over buckets of a minute and
    with exact increases: selectors look back, and functions with other numbers here give None."""
    text = text.strip()
    if depth > MAX_DEPTH:
        return None
    if _SCALAR.fullmatch(text) or text == "time()":
        return text
    selector = _SELECTOR.fullmatch(text)
    if selector is not None and selector[2] is None:
        return _with_offset(_fetch(selector[1]) + (_LOOK_BACK if same else ""), selector[3])
    split = _split_operator(text)
    if split is not None:
        return _translate_operator(*split, depth, same)
    whole = outer_call(text)
    if whole is not None and not whole[0]:
        return translate_promql(whole[1], depth + 1, same)
    if text.startswith("-"):
        of = translate_promql(text[1:], depth + 1, same)
        return of and f"(-{of})"
    return _translate_call(text, depth, same)


def _fetch(selector: str) -> str:
    """Return the fetch of a selector; a name in quotes within the braces goes before them."""
    name, brace, inner = selector.partition("{")
    quoted = _QUOTED_NAME.match(inner)
    if quoted is not None:
        rest = inner[quoted.end() :]
        plain = re.fullmatch(_METRIC, quoted[1])
        name, inner = (quoted[1], rest) if plain else ("", f'__name__="{quoted[1]}"{", " if rest != "}" else ""}{rest}')
    return f"fetch({name if inner == '}' and name else name + brace + inner!r})"


def _translate_call(text: str, depth: int, same: bool) -> str | None:
    classes, call = _parse_call(text)
    if call is None:
        return None
    name, inner = call
    if same and name in _OTHER_NUMBERS:
        return None
    single = None if classes else _translate_single(name, inner, depth, same)
    if single is not None:
        return single
    number = _NUMBER.fullmatch(inner)
    before, inner = (f"{number[1]}, ", number[2]) if number is not None else ("", inner)
    windowed = _SELECTOR.fullmatch(inner)
    if windowed is not None and windowed[2] is not None and not classes:
        over = _map_call(name, _window(windowed[2]), before)
        kept = '.where("> 0")' if same and name == "count_over_time" else ""
        return over and _with_offset(f"{_fetch(windowed[1])}{over}{kept}", windowed[3])
    of = translate_promql(inner, depth + 1, same)
    if of is None:
        return None
    if name == "histogram_quantile":
        return f"{of}.histogram_quantile({before}without=[])"
    here = _REDUCERS.get(name)
    return here and f"{of}.{here}({before}{classes or 'by=[]'}{_ARGUMENTS.get(here, '')})"


def _translate_single(name: str, inner: str, depth: int, same: bool) -> str | None:
    """Translate a function of single values, or of windows with more arguments; None for others."""
    first, *args = split_arguments(inner)
    windowed = _SELECTOR.fullmatch(first)
    if name == "absent" and windowed is not None and windowed[2] is None:
        return f"absent({windowed[1]!r})"
    if name == "count_values" and len(args) == 1:
        of = translate_promql(args[0], depth + 1, same)
        return of and f"{of}.count_values({first}, by=[])"
    subquery = _SUBQUERY.fullmatch(inner)
    if subquery is not None:
        of, over = translate_promql(subquery[1], depth + 1, same), _map_call(name, subquery[2], "")
        return f"{of}{over}" if of is not None and over is not None else None
    if windowed is not None and windowed[2] is not None:
        over = _with_window(name, _window(windowed[2]), [_constant(arg) for arg in args])
        return over and _with_offset(f"{_fetch(windowed[1])}{over}", windowed[3])
    here = _of_values(name, args)
    of = translate_promql(first, depth + 1, same) if here is not None else None
    if same and name == "round":  # halves go up there, and to even numbers here
        return f"({of} + 0.5).floor()" if of is not None and not args else None
    return f"{of}{here}" if of is not None else None


def _constant(text: str) -> str:
    """Return a product of whole numbers as one number; other texts as they are."""
    return str(prod(map(int, text.split("*")))) if re.fullmatch(r"\d{1,9}(\s*\*\s*\d{1,9}){1,3}", text) else text


def _window(window: str) -> str:
    return "auto" if window.startswith("$") else window


def _with_window(name: str, window: str, args: list[str]) -> str | None:
    """Translate a function of a window that has arguments of its own, or another name here."""
    match name, args:
        case "deriv", []:
            return f'.derivative("{window}")'
        case "predict_linear", [seconds] if seconds.isdigit():
            return f'.predict_linear("{window}", horizon="{seconds}s")'
        case "holt_winters" | "double_exponential_smoothing", [alpha, beta]:
            return f'.holt("{window}", alpha={alpha}, beta={beta})'
    return None


def _of_values(name: str, args: list[str]) -> str | None:
    """Translate a function of single values or of whole series."""
    match name, args:
        case "clamp_min", [low]:
            return f".clamp({low}, inf)"
        case "clamp_max", [high]:
            return f".clamp(-inf, {high})"
        case "clamp", [low, high]:
            return f".clamp({low}, {high})"
        case "round", [nearest]:
            found = re.fullmatch(r"1(0*)|0\.(0*1)", nearest)
            return found and f".round({len(found[2]) if found[2] else -len(found[1])})"
        case "label_replace", [_, _, _, _]:
            return f".label_replace({', '.join(args)})"
    return _PLAIN.get(name) if not args else None


_PLAIN: Mapping[str, str] = MappingProxyType(
    {name: f".{name}()" for name in ("abs", "ceil", "floor", "round", "sqrt", "exp", "sort", "scalar")}
    | {name: EQUIVALENTS[name] for name in ("ln", "log2", "log10", "sort_desc", "timestamp")}
)
"""Functions without further arguments."""

_SUBQUERY = re.compile(r"(.+)\[\s*(\d+(?:ms|[smhdw]))\s*:\s*\]")
"""A window over results at the step of the query; one with a step of its own has no equivalent in one text."""
_SCALAR = re.compile(r"-?\d[\d.]*(?:[eE][+-]?\d+)?")
_PRECEDENCE = (("or",), ("and", "unless"), ("==", "!=", ">", "<", ">=", "<="), ("+", "-"), ("*", "/", "%"), ("^",))
_NAMES = MappingProxyType({"+": "add", "-": "sub", "*": "mul", "/": "div", "%": "mod", "^": "pow"})
_MATCHING = re.compile(
    r"\s*(bool\b)?\s*(?:(on|ignoring)\s*\(([^()]*)\))?\s*(?:(group_left|group_right)\b\s*(?:\(([^()]*)\))?)?"
)


def _split_operator(text: str) -> tuple[str, str, str] | None:
    """Return the left side, the operator that binds least, and the right side; None without an operator."""
    tokens = top_level(text)
    for signs in _PRECEDENCE:
        if signs == ("^",) and text.startswith("-"):
            return None  # powers bind more than a sign
        found = [(at, token) for at, token in tokens if token in signs and text[:at].strip()]
        if found:
            at, sign = found[0 if signs == ("^",) else -1]  # only powers group from the right
            return text[:at], sign, text[at + len(sign) :]
    return None


def _translate_operator(left: str, sign: str, right: str, depth: int, same: bool) -> str | None:
    matching = _MATCHING.match(right)
    if matching is None:  # it matches the empty text
        return None
    a, b = (translate_promql(side, depth + 1, same) for side in (left, right[matching.end() :]))
    stands = re.fullmatch(r"vector\(([\d.]+)\)", right.strip())
    if same and sign == "%":
        return None  # the sign of the remainder is that of the divisor here
    if sign == "or" and stands is not None:
        return a and f"{a}.or_({stands[1]})"
    if a is None or b is None:
        return None
    options = f", {matching[2]}={_listed(matching[3])}" if matching[2] else ""
    options += f", {matching[4]}={_listed(matching[5] or '')}" if matching[4] else ""
    if sign in ("or", "and", "unless"):
        return f"{a}.{sign if sign == 'unless' else sign + '_'}({b}{options})"
    if sign not in _NAMES:
        return _translate_comparison(a, sign, b, options, bool(matching[1]))
    return f'apply("{_NAMES[sign]}", {a}, {b}{options})' if options else f"({a} {sign.replace('^', '**')} {b})"


def _translate_comparison(a: str, sign: str, b: str, options: str, as_value: bool) -> str | None:
    """Translate a comparison: it keeps the values for which it is true, or with `bool` is true or false."""
    if options:
        return None
    if as_value or (_SCALAR.fullmatch(a) and _SCALAR.fullmatch(b)):
        return f"({a} {sign} {b})"
    if _SCALAR.fullmatch(b):
        return f'{a}.where("{sign} {b}")'
    if _SCALAR.fullmatch(a):
        return f'{b}.where("{sign.translate(_TURNED)} {a}")'
    return f"{a}.where({a} {sign} {b})"


_TURNED = str.maketrans("<>", "><")


def _listed(labels: str) -> str:
    return f"[{', '.join(f'{chr(34)}{label.strip()}{chr(34)}' for label in labels.split(',') if label.strip())}]"


def _parse_call(text: str) -> tuple[str, tuple[str, str] | None]:
    """Return (by=[..] or without=[..] or "", (function name, text between its parentheses) or None)."""
    for pattern, name, inner, word, labels in ((_PREFIX_BY, 1, 4, 2, 3), (_SUFFIX_BY, 1, 2, 3, 4)):
        found = pattern.fullmatch(text)
        if found is not None:
            return f"{found[word]}={_listed(found[labels])}", (found[name], found[inner].strip())
    call = _CALL.fullmatch(text)
    return "", None if call is None else (call[1], call[2].strip())


def _map_call(name: str, window: str, before: str) -> str | None:
    if name in _WINDOWED:
        return f'.{name}("{window}")'
    over_time = _over_time(name)
    more = (", " + before.rstrip(", ") if before else "") + _ARGUMENTS.get(over_time or "", "")
    return over_time and f'.map("{over_time}", "{window}"{more})'


def _with_offset(query: str, offset: str | None) -> str:
    return f'{query}.offset("{offset}")' if offset else query
