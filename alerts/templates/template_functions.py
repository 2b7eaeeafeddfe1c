"""Functions of templates: those of Prometheus and of Go, and arithmetic for our own templates."""

from __future__ import annotations

import html
import json
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from types import MappingProxyType
from typing import Any
from urllib.parse import quote, quote_plus

import re2

from alerts.templates import value_formats
from alerts.templates.template_nodes import TemplateError
from alerts.templates.value_formats import go_printf, go_text, to_float
from artimon.runtime.text import parse_duration

MAX_TEXT = 64 * 1024
"""Limit of the characters of a text, and of the output."""
MAX_NUMBER = 2**63
Sample = Mapping[str, Any]
"""Labels and Value."""


def _no_query(_text: str) -> Sequence[Sample]:
    raise TemplateError("query: no data can be queried here")


@dataclass(frozen=True, slots=True)
class TemplateContext:
    """Data that all templates of an evaluation share. `query`: answers PromQL at its time; raises ValueError."""

    external_labels: Mapping[str, str] = field(default_factory=dict)
    external_url: str = ""
    query: Callable[[str], Sequence[Sample]] = _no_query


NO_CONTEXT = TemplateContext()


@dataclass(frozen=True, slots=True)
class TemplateData:
    """Data of a template. `own`: further variables."""

    labels: Mapping[str, str] = field(default_factory=dict)
    value: Any = None
    context: TemplateContext = NO_CONTEXT
    own: Mapping[str, Any] = field(default_factory=dict)


def truth(value: Any) -> bool:
    """Return False for 0, NaN excepted, and for what is empty."""
    return bool(value)


def _pattern(text: Any) -> Any:
    options = re2.Options()
    options.max_mem, options.log_errors = 1 << 20, False
    try:
        return re2.compile(str(text), options)
    except re2.error as problem:
        raise TemplateError(f"{text!r:.80} is not a regular expression: {problem!s:.100}") from None


def replace_all(pattern: Any, by: Any, text: Any) -> str:
    """Replace all matches; `$1` and `${name}` in `by` are groups, as in Go."""
    made, size = _pattern(pattern), 0
    parts = re2.compile(r"\$(?:\$|\{(\w+)\}|(\w+))").split(str(by)) if "$" in str(by) else [str(by)]

    def one(found: Any) -> str:
        nonlocal size
        out = [parts[0]]
        for at in range(1, len(parts), 3):
            name = parts[at] or parts[at + 1]
            out.append("$" if name is None else _group(found, name))
            out.append(parts[at + 2])
        text = "".join(out)
        size += len(text)
        check_size(size)
        return text

    return str(made.sub(one, str(text)))


def _group(found: Any, name: str) -> str:
    try:
        return found.group(int(name) if name.isdecimal() else name) or ""
    except (IndexError, KeyError, re2.error):
        return ""


def check_size(size: int) -> None:
    """Raise TemplateError beyond the limit of a text."""
    if size > MAX_TEXT:
        raise TemplateError(f"more than {MAX_TEXT} characters: shorten the text")


def _first(found: Any) -> Any:
    if not isinstance(found, Sequence) or isinstance(found, str) or not found:
        raise TemplateError("first() called on vector with no elements")
    return found[0]


def _entry(sample: Any, name: str) -> Any:
    if not isinstance(sample, Mapping) or name not in sample:
        raise TemplateError(f"{go_text(sample)!r:.80} is not a sample of a query")
    return sample[name]


def _order(function: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    def compare(left: Any, right: Any) -> bool:
        texts = isinstance(left, str) and isinstance(right, str)
        numbers = not any(isinstance(one, bool) or not isinstance(one, int | float) for one in (left, right))
        if not (texts or numbers):
            raise TemplateError(f"{go_text(left)!r:.60} and {go_text(right)!r:.60} are not comparable")
        return function(left, right)

    return compare


def _equal(left: Any, *right: Any) -> bool:
    for one in right:
        if isinstance(left, str) != isinstance(one, str) or isinstance(left, bool) != isinstance(one, bool):
            raise TemplateError(
                f"{go_text(left)!r:.60} and {go_text(one)!r:.60} have incompatible types for comparison"
            )
    return any(left == one for one in right)


def _index(of: Any, *keys: Any) -> Any:
    for key in keys:
        if isinstance(of, Mapping):
            of = of.get(key, "")
        elif isinstance(of, Sequence) and isinstance(key, int) and 0 <= key < len(of):
            of = of[key]
        else:
            raise TemplateError(f"no element {go_text(key)!r:.60}")
    return of


def _slice(of: Any, start: Any = 0, end: Any = None) -> Any:
    end = len(of) if end is None and isinstance(of, Sequence) else end
    if not isinstance(of, Sequence) or not all(isinstance(one, int) for one in (start, end)):
        raise TemplateError("slice: give a text or list, and numbers")
    if not 0 <= start <= end <= len(of):
        raise TemplateError("slice: out of range")
    return of[start:end]


def _length(of: Any) -> int:
    if not isinstance(of, Mapping | Sequence):
        raise TemplateError("len: give a text, a list or a map")
    return len(of.encode()) if isinstance(of, str) else len(of)


def _arithmetic(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def compute(left: Any, right: Any) -> Any:
        if any(isinstance(one, bool) or not isinstance(one, int | float) for one in (left, right)):
            raise TemplateError("arithmetic needs numbers")
        try:
            found = function(left, right)
        except (ZeroDivisionError, OverflowError):
            return math.nan
        if isinstance(found, int) and abs(found) >= MAX_NUMBER:
            raise TemplateError("a number beyond 64 bits")
        return found

    return compute


def _strip_port(text: Any) -> str:
    host, colon, port = str(text).rpartition(":")
    return (
        host.strip("[]") if colon and (port.isdecimal() or not port) and ("]" in host or ":" not in host) else str(text)
    )


def _strip_domain(text: Any) -> str:
    host, _, port = str(text).partition(":")
    if host.replace(".", "").isdecimal():
        return str(text)
    return host.split(".")[0] + (f":{port}" if port else "")


def _duration(text: Any) -> float:
    try:
        return parse_duration(str(text)) / 1000
    except ValueError as problem:
        raise TemplateError(str(problem)) from None


def _default(value: Any, other: Any = "") -> Any:
    return other if value in (None, "") else value


def _join(of: Any, by: Any = "") -> str:
    return str(by).join(map(go_text, of)) if isinstance(of, Sequence) and not isinstance(of, str) else go_text(of)


def _round(value: Any, digits: Any = 0) -> float:
    if not isinstance(digits, int) or abs(digits) > 20:
        raise TemplateError("round: give a number of digits up to 20")
    return round(to_float(value), digits)


def _print(*given: Any) -> str:
    """Join values, with a space between two of which neither is a text, as Go's fmt.Sprint does."""
    out = [go_text(one) for one in given[:1]]
    for before, one in pairwise(given):
        out.append(go_text(one) if isinstance(before, str) or isinstance(one, str) else f" {go_text(one)}")
    return "".join(out)


def _link(kind: str) -> Callable[[Any], str]:
    return lambda expr: f"/graph?g0.expr={quote_plus(str(expr))}&g0.tab={kind}"


GO_FUNCTIONS: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        "and": lambda *given: next((one for one in given if not truth(one)), given[-1]),
        "or": lambda *given: next((one for one in given if truth(one)), given[-1]),
        "not": lambda one: not truth(one),
        "eq": _equal,
        "ne": lambda left, right: not _equal(left, right),
        "lt": _order(operator.lt),
        "le": _order(operator.le),
        "gt": _order(operator.gt),
        "ge": _order(operator.ge),
        "len": _length,
        "index": _index,
        "slice": _slice,
        "print": _print,
        "println": lambda *given: " ".join(map(go_text, given)) + "\n",
        "printf": lambda form, *given: go_printf(str(form), *given),
        "html": lambda *given: (
            html.escape("".join(map(go_text, given))).replace("&quot;", "&#34;").replace("&#x27;", "&#39;")
        ),
        "js": lambda *given: json.dumps("".join(map(go_text, given)))[1:-1],
        "urlquery": lambda *given: quote_plus("".join(map(go_text, given))),
        "first": _first,
        "label": lambda name, sample: _entry(sample, "Labels").get(name, ""),
        "value": lambda sample: _entry(sample, "Value"),
        "strvalue": lambda sample: _entry(sample, "Labels").get("__value__", ""),
        "args": lambda *given: {f"arg{at}": one for at, one in enumerate(given)},
        "reReplaceAll": replace_all,
        "match": lambda pattern, text: bool(_pattern(pattern).search(str(text))),
        "safeHtml": str,
        "title": lambda text: re2.sub(r"(^|[^\pL\pN_'])(\pL)", lambda m: m.group(0).upper(), str(text)),
        "toUpper": lambda text: str(text).upper(),
        "toLower": lambda text: str(text).lower(),
        "graphLink": _link("0"),
        "tableLink": _link("1"),
        "sortByLabel": lambda name, found: sorted(found, key=lambda one: _entry(one, "Labels").get(name, "")),
        "stripPort": _strip_port,
        "stripDomain": _strip_domain,
        "humanize": value_formats.humanize,
        "humanize1024": value_formats.humanize_1024,
        "humanizeDuration": value_formats.humanize_duration,
        "humanizePercentage": value_formats.humanize_percentage,
        "humanizeTimestamp": value_formats.humanize_timestamp,
        "parseDuration": _duration,
    }
)
"""Functions that depend on their arguments only. `query`, `externalURL` and `pathPrefix` are those of the data."""
OF_DATA = frozenset(("query", "externalURL", "pathPrefix"))
NO_FUNCTION = ""
"""Name of the call of a value which is not a function."""
UNSUPPORTED = frozenset(("tmpl", "toTime", "call"))
OWN_FUNCTIONS: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        **GO_FUNCTIONS,
        "add": _arithmetic(operator.add),
        "sub": _arithmetic(operator.sub),
        "mul": _arithmetic(operator.mul),
        "div": _arithmetic(operator.truediv),
        "mod": _arithmetic(operator.mod),
        "neg": lambda one: -to_float(one),
        "concat": lambda *given: "".join(map(go_text, given)),
        "same": lambda left, right: left == right,
        "in": lambda one, of: (str(one) in of) if isinstance(of, str) else one in of,
        "upper": lambda text: go_text(text).upper(),
        "lower": lambda text: go_text(text).lower(),
        "default": _default,
        "join": _join,
        "length": _length,
        "round": _round,
        "int": lambda value: int(to_float(value)) if math.isfinite(to_float(value)) else 0,
        "float": to_float,
        "string": go_text,
        "trim": lambda text: go_text(text).strip(),
        "replace": lambda text, old, new: _replaced(go_text(text), str(old), str(new)),
        "urlencode": lambda text: quote(go_text(text), safe=""),
        "format": lambda form, *given: go_printf(str(form), *given),
        "list": lambda *given: list(given),
        "range": lambda count: min(int(to_float(count)), MAX_TEXT),
        "iterate": lambda of: sorted(of) if isinstance(of, Mapping) else of,
        "items": lambda of: [[key, of[key]] for key in sorted(of)],
        "choose": lambda condition, then, otherwise: then if truth(condition) else otherwise,
    }
)
"""Functions of our own templates."""


def _replaced(text: str, old: str, new: str) -> str:
    check_size(len(text) + text.count(old) * len(new))
    return text.replace(old, new)
