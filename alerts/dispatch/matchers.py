"""Matchers of labels in the form of Alertmanager: `severity="page"`, `host=~"a|b"`. An absent label is empty."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping

from artimon.model.select import Matcher
from query_dsl.tree.query_errors import QueryError
from query_dsl.tree.selector import accepts, compile_regex

MAX_MATCHERS = 50
MAX_TEXT = 4_000
_MATCHER = re.compile(r"\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*(=~|!=|!~|=)\s*(\"(?:[^\"\\]|\\.)*\"|[^\s\",{}]*)\s*", re.DOTALL)


def matcher(label: str, op: str, value: str) -> Matcher:
    """Return a checked matcher. Raises ValueError."""
    made = Matcher(label, op, value)
    if "~" in op:
        try:
            compile_regex(value)
        except QueryError as problem:
            raise ValueError(problem.message) from None
    return made


def parse_matchers(text: str) -> tuple[Matcher, ...]:
    """Parse matchers separated by commas, with or without braces around them. Raises ValueError."""
    if len(text) > MAX_TEXT:
        raise ValueError(f"{len(text)} characters: at most {MAX_TEXT:,}")
    inner = text.strip()
    if inner.startswith("{") and inner.endswith("}"):
        inner = inner[1:-1].strip().removesuffix(",")
    found: list[Matcher] = []
    at = 0
    while at < len(inner):
        one = _MATCHER.match(inner, at)
        if one is None or (one.end() < len(inner) and inner[one.end()] != ","):
            raise ValueError(f'{inner[at:]!r:.80} is not a matcher: write label="value", with = != =~ or !~')
        found.append(matcher(one[1], one[2], _unquoted(one[3])))
        at = one.end() + 1
    if len(found) > MAX_MATCHERS:
        raise ValueError(f"{len(found)} matchers: at most {MAX_MATCHERS}")
    return tuple(found)


def _unquoted(text: str) -> str:
    if not text.startswith('"'):
        return text
    return re.sub(r"\\(.)", lambda found: {"n": "\n"}.get(found[1], found[1]), text[1:-1], flags=re.DOTALL)


def matches(matchers: Iterable[Matcher], labels: Mapping[str, str]) -> bool:
    """Return True if every matcher accepts the labels."""
    return all(accepts(one, labels.get(one.label, "")) for one in matchers)


def matchers_text(matchers: Iterable[Matcher]) -> str:
    """Return the canonical text, sorted by label, value and operator: `{a="x",b=~"y"}`."""
    ordered = sorted(matchers, key=lambda one: (one.label, one.value, one.op))
    return "{" + ",".join(f"{one.label}{one.op}{json.dumps(one.value, ensure_ascii=False)}" for one in ordered) + "}"


def labels_text(labels: Mapping[str, str]) -> str:
    """Return the canonical text of labels, as in keys of groups: `{a="x", b="y"}`."""
    return "{" + ", ".join(f"{k}={json.dumps(v, ensure_ascii=False)}" for k, v in sorted(labels.items())) + "}"
