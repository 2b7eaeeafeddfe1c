"""Queries that documents show, and data for each of them: whole, and with something missing."""

from __future__ import annotations

import ast
import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from typing import Any, NamedTuple

from artimon.model.select import NAME, Matcher
from query_dsl import QueryError, offline, parse
from query_dsl.evaluation.offline import LiteralStore
from query_dsl.language.expression import Expr
from query_dsl.tree.nodes import Absent, Binary, Fetch, Node, Range, Reduce, Samples, Transform, Window, children, walk
from query_dsl.tree.selector import Selector, accepts, series_text

FENCE = re.compile(r"^ *```(\w*)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"`([^`\n]+)`")
READS = re.compile(r"\b(?:fetch|samples|absent)\(")
RULE = re.compile(r"^\s*(?:- )?expr: (.*)$", re.MULTILINE)
SESSION = re.compile(r"\b(?:db|session|store|client)\.(?=fetch\(|samples\(|absent\()")
ONE = "one "
"""Before a label that has the same value in all series: what another query takes from them."""
MINUTE = 60_000
DAY = 24 * 60 * MINUTE
NEWEST = 1_700_000_040_000
MINUTES = 150
VALUES = ("r1", "1", "500", "v0-a", "web-1", "jb", "shop", "idle", "a", "b", "/", "x", "200", "r2")
"""For labels that a selector says something of: the first ones that fit."""


def queries_of(document: str) -> list[str]:
    """Every text of a document that is a query, once."""
    found = RULE.findall(document)
    found += [text for language, block in FENCE.findall(document) for text in _of_block(language, block)]
    for span in SPAN.findall(FENCE.sub("", document)):
        span = span.replace("\\|", "|")
        found += _of_line(span) if span.startswith(("artimon ", "curl ")) else [span]
    return [text for text in dict.fromkeys(found) if READS.search(text) and _parses(text)]


def _parses(text: str) -> bool:
    try:
        parse(text)
    except QueryError:
        return False
    return True


def _of_block(language: str, block: str) -> Iterator[str]:
    if language == "python":
        yield from _of_python(block)
        return
    for line in block.replace("\\\n", " ").splitlines():
        yield line.strip()
        yield from _of_line(line)


def _of_line(line: str) -> Iterator[str]:
    """Words of a command line, and what stands in JSON or behind `q=`."""
    try:
        words = shlex.split(line, comments=True)
    except ValueError:
        return
    for word in words:
        yield word.removeprefix("q=")
        if word.startswith("{"):
            try:
                yield str(json.loads(word).get("q"))
            except ValueError:
                continue


def _of_python(block: str) -> Iterator[str]:
    """Texts in quotes, and expressions of a session without what is no query at their end, such as `.plot()`."""
    try:
        tree = ast.parse(block)
    except SyntaxError:
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.Call):
            yield SESSION.sub("", ast.unparse(node))


# --- data


class Read(NamedTuple):
    """Return the variables that a query reads, and the labels that it needs there."""

    selector: Selector
    labels: frozenset[str]
    above: frozenset[str]
    """Names of functions and operators over it."""


def reads_of(query: Expr) -> list[Read]:
    """Every selector of a query, once."""
    found: dict[str, Read] = {}
    for read in _reads(query.node, frozenset(), frozenset()):
        before = found.setdefault(str(read.selector), read)
        found[str(read.selector)] = Read(read.selector, read.labels | before.labels, read.above | before.above)
    return list(found.values())


def _reads(node: Node, labels: frozenset[str], above: frozenset[str]) -> Iterator[Read]:
    if isinstance(node, Fetch | Samples | Absent):
        yield Read(node.selector, labels, above)
        return
    function = getattr(node, "function", getattr(node, "op", ""))
    deeper = labels | _compared(node) | ({"le"} if str(function).startswith("histogram_") else set())
    for at, child in enumerate(children(node)):
        taken = _named(node, "labels") if at and isinstance(node, Transform) else ()
        yield from _reads(child, deeper | {f"{ONE}{label}" for label in taken}, above | {str(function)})


def _compared(node: Node) -> frozenset[str]:
    """Labels by which a node makes classes."""
    if isinstance(node, Reduce):
        without = (*node.without, "kept") if node.without is not None else ()
        return frozenset((*(node.by or ()), *without, *_named(node, "label")))
    if isinstance(node, Binary):
        match = node.match
        groups = (match.on, match.ignoring, match.group_left, match.group_right)
        return frozenset(label for group in groups for label in group or ())
    if isinstance(node, Transform):
        return frozenset(_named(node, "on"))
    return frozenset()


def _named(node: Reduce | Transform, argument: str) -> tuple[str, ...]:
    """Labels that an argument names, one or several."""
    found = dict(node.args).get(argument, ())
    return (found,) if isinstance(found, str) else tuple(found)


Series = dict[str, str]


def series_of(read: Read) -> list[Series]:
    """Series that fit a selector: two values of every label, or those that the selector lets pass."""
    said = [matcher for matcher in read.selector.matchers if matcher.label != NAME]
    names = sorted(read.labels - {NAME} | {matcher.label for matcher in said})
    choices = [_values(label, [one for one in said if one.label == label]) for label in names]
    labels = [name.removeprefix(ONE) for name in names]
    return [{NAME: _name(read.selector), **dict(zip(labels, one, strict=True))} for one in product(*choices)]


def _name(selector: Selector) -> str:
    named = next(matcher for matcher in selector.matchers if matcher.label == NAME)
    return named.value + "x" if named.op == "prefix" else named.value


def _values(label: str, said: list[Matcher]) -> list[str]:
    if label == "le":
        return ["0.1", "1.0", "+Inf"]
    exact = [matcher.value for matcher in said if matcher.op == "="]
    fits = [value for value in (*exact, *VALUES) if all(accepts(matcher, value) for matcher in said)]
    return fits[: 1 if exact or label.startswith(ONE) else 2]


def text_of(series: Mapping[str, str]) -> str:
    labels = {label: value for label, value in series.items() if label != NAME and value}
    return series_text(series[NAME], labels)


Points = list[tuple[int, Any]]


def points(text: str, read: Read, born: int = MINUTES) -> Points:
    """A value a minute, of the type that the query wants, for the newest `born` minutes."""
    ends = range(NEWEST - (born - 1) * MINUTE, NEWEST + 1, MINUTE)
    base = sum(text.encode()) % 7 + 1
    if read.above & {"match", "replace", "to_integer", "to_double"} or "version" in text:
        return [(end - 1, f"v{base}") for end in ends]
    if text.startswith(("artimon.endpoint.up", "up", "maintenance")):
        return [(end - 1, base % 2 == 0) for end in ends]
    return [(end - 1, base * (i + 1)) for i, end in enumerate(ends)]


class World(NamedTuple):
    """A name for what is missing, and a store where it is."""

    name: str
    store: LiteralStore


def worlds_of(query: Expr) -> Iterator[World]:
    """Nothing is missing; then one thing after another."""
    reads = reads_of(query)
    whole = {(at, text_of(one)): one for at, read in enumerate(reads) for one in series_of(read)}
    step = "1h" if any(isinstance(node, Range) and node.range_ms > 7 * DAY for node in walk(query.node)) else "1m"

    def world(name: str, told: Iterable[tuple[int, str]], born: int = MINUTES, long_ago: int = -1) -> World:
        data: dict[str, Points] = {}
        for at, text in told:
            made = points(text, reads[at], born)
            data[text] = [(time - 3 * DAY, value) for time, value in made] if at == long_ago else made
        return World(name, offline(data, step, kinds=dict.fromkeys(data, "counter") if _counts(query) else {}))

    yield world("nothing is missing", whole)
    yield world("all processes have just started", whole, born=1)
    for at, read in enumerate(reads):
        mine = [key for key in whole if key[0] == at]
        if len(mine) > 1:
            yield world(f"a series of {read.selector} is missing", [key for key in whole if key != mine[-1]])
        yield world(f"{read.selector} has said nothing for days", whole, long_ago=at)
        for label in sorted(read.labels - {NAME, "le"} - {one.label for one in read.selector.matchers}):
            bare = text_of({**whole[mine[-1]], label.removeprefix(ONE): ""})
            others = [key for key in whole if key != mine[-1] or not label.startswith(ONE)]
            yield world(f"a series of {read.selector} lacks {label}", [*others, (at, bare)])


def _counts(query: Expr) -> bool:
    counting = {"rate", "increase", "irate", "resets"}
    return any(isinstance(node, Window) and node.function in counting for node in walk(query.node))
