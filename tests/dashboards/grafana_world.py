"""Series for dashboards of Grafana: each metric that a query names, with the labels and values that queries ask for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

import numpy as np
import xxhash

from artimon.model.select import Matcher
from benchmarks.peers.series import PeerSeries
from query_dsl.promql import PromqlError, parse
from query_dsl.promql.tree import Aggregation, Binary, Call, Node, Number, Selector, Subquery
from query_dsl.tree.selector import accepts

MINUTE_MS = 60_000
COUNT = 74
"""Samples of a series, one a minute: what the finest level of memory holds."""
OFFSET_MS = 7_300
"""Time after a minute: no sample lies on the edge of a window."""
ENTITIES = 3
MOST_VARIANTS = 80
LE = ("0.01", "0.1", "1", "10", "+Inf")
COUNTED = ("rate", "irate", "increase", "resets")
COUNTERS = ("_total", "_count", "_sum", "_bucket")
EVERYWHERE = ("instance", "job")


@dataclass(slots=True)
class Metric:
    """Labels of a metric; matchers of its selectors, by entity; numbers with which it is compared."""

    labels: set[str] = field(default_factory=set)
    selectors: set[tuple[int, tuple[Matcher, ...]]] = field(default_factory=set)
    compared: set[float] = field(default_factory=set)
    is_counter: bool = False


def usual_value(label: str, entity: int) -> str:
    """Return the value of a label of an entity: a host with all that runs on it."""
    return f"{label}-{entity}:9100" if label == "instance" else f"{label}-{entity}"


class Metrics:
    """Metrics of queries in PromQL."""

    def __init__(self) -> None:
        self.found: dict[str, Metric] = {}
        self._entity = 0
        self._likely: list[set[str]] = [set() for _ in range(ENTITIES)]
        """Values of variables of each entity, which regular expressions are made of."""

    def add(self, query: str, entity: int, values: Iterable[str]) -> None:
        """Read a query whose variables have the `values` of an entity; what cannot be parsed is left out."""
        self._entity = entity
        self._likely[entity] |= set(values)
        try:
            self._read(parse(query).node, frozenset(), "")
        except PromqlError:
            return

    def _read(self, node: Node, labels: frozenset[str], function: str) -> list[Metric]:
        """Return the metrics below, whose labels survive."""
        match node:
            case Selector():
                return self._selected(node, labels, function)
            case Aggregation():
                more = frozenset() if node.without else frozenset(node.labels)
                self._read(node.child, labels | more, function)
                return []
            case Call():
                found = [self._read(arg, labels, node.function) for arg in node.args]
                return [metric for part in found for metric in part]
            case Binary():
                return self._joined(node, labels)
            case Subquery() | _ if child := getattr(node, "child", None):
                return self._read(child, labels, function)
        return []

    def _joined(self, node: Binary, labels: frozenset[str]) -> list[Metric]:
        here = labels | frozenset((*node.matching.labels, *node.matching.include) if node.matching.on else ())
        found = [*self._read(node.left, here, ""), *self._read(node.right, here, "")]
        for side in (node.left, node.right):
            if isinstance(side, Number) and node.op in ("==", "!=", ">", "<", ">=", "<="):
                for metric in found:
                    metric.compared.add(side.value)
        if not node.matching.on:  # equal label sets meet
            every = set[str]().union(*(metric.labels for metric in found))
            for metric in found:
                metric.labels |= every
        return found

    def _selected(self, node: Selector, labels: frozenset[str], function: str) -> list[Metric]:
        name = next((one.value for one in node.matchers if one.label == "__name__" and one.op == "="), "")
        if not name:
            return []
        metric = self.found.setdefault(name, Metric())
        others = tuple(one for one in node.matchers if one.label != "__name__")
        metric.labels |= {one.label for one in others} | labels
        metric.selectors.add((self._entity, others))
        metric.is_counter |= function in COUNTED or name.endswith(COUNTERS)
        return [metric]

    def series(self, end_ms: int) -> Iterator[PeerSeries]:
        """Yield the series, whose newest sample is in the minute that ends at `end_ms`."""
        times = end_ms - MINUTE_MS + OFFSET_MS + MINUTE_MS * np.arange(1 - COUNT, 1, dtype=np.int64)
        for name, metric in sorted(self.found.items()):
            for labels in self._label_sets(name, metric):
                seed = xxhash.xxh3_64_intdigest(repr((name, sorted(labels.items()))).encode())
                values = _values(np.random.default_rng(seed), metric, labels.get("le"), name)
                yield PeerSeries(name, labels, times, values, bool((values == np.floor(values)).all()))

    def _label_sets(self, name: str, metric: Metric) -> Iterator[dict[str, str]]:
        labels = sorted((metric.labels | set(EVERYWHERE)) - {"__name__", "le", "quantile"})
        seen: set[tuple[tuple[str, str], ...]] = set()
        for entity in range(ENTITIES):
            base = {label: usual_value(label, entity) for label in labels}
            made = [base]
            for at, matchers in sorted(metric.selectors, key=repr):
                if at == entity:
                    made += _matching(base, matchers, sorted(self._likely[entity]))
            for found in made[:MOST_VARIANTS]:
                for more in _parts(name, metric):
                    whole = {**found, **more}
                    key = tuple(sorted(whole.items()))
                    if key not in seen:
                        seen.add(key)
                        yield {label: value for label, value in whole.items() if value}


def _parts(name: str, metric: Metric) -> list[dict[str, str]]:
    if name.endswith("_bucket"):
        return [{"le": le} for le in LE]
    if "quantile" in metric.labels:
        asked = {one.value for _, matchers in metric.selectors for one in matchers if one.label == "quantile"}
        return [{"quantile": value} for value in sorted({"0.5", "0.99", *asked})]
    return [{}]


def _matching(base: Mapping[str, str], matchers: Iterable[Matcher], likely: Sequence[str]) -> list[dict[str, str]]:
    """Return label sets that the matchers accept: one for each alternative of a regular expression."""
    found = [dict(base)]
    for one in matchers:
        if one.label in ("le", "quantile"):
            continue
        found = [
            {**made, one.label: value} for made in found for value in _accepted(one, made.get(one.label, ""), likely)
        ]
    return found


def _accepted(matcher: Matcher, base: str, likely: Sequence[str]) -> list[str]:
    if matcher.op == "=":
        return [matcher.value]
    parts = re.sub(r"[()^$]|\?:", "", matcher.value).split("|") if matcher.op == "=~" else []
    plain = [part for part in parts if not re.search(r"[.*+?\[\\]", part)]
    found = [value for value in dict.fromkeys((*plain, base)) if accepts(matcher, value)]
    others = [_example(part) for part in parts]
    return found[:4] or [value for value in (*likely, *others, "x", "1", "a-1-b", "") if accepts(matcher, value)][:1]


def _example(part: str) -> str:
    """Return a text that a simple regular expression accepts."""
    text = re.sub(r"\[[^\]]*\][+*?]?", "1", part)
    text = re.sub(r"\\d[+*]?", "1", re.sub(r"\.[+*]\??", "x", text))
    return re.sub(r"\\(.)", r"\1", text)


def _values(random: np.random.Generator, metric: Metric, le: str | None, name: str) -> np.ndarray:
    if metric.is_counter:
        share = (LE.index(le) + 1) / len(LE) if le in LE else 1.0
        each = random.integers(0, 60, COUNT) if le is None else np.full(COUNT, random.integers(5, 9)) * 10
        grown = np.cumsum(np.floor(each * share)).astype(np.float64) + 1_000
        return grown + 0.25 if le is None and name.endswith(("_seconds_total", "_seconds_sum")) else grown
    if metric.compared:
        near = Random(int(random.integers(1 << 30)))
        return np.array([near.choice([*sorted(metric.compared), *(n + 1 for n in sorted(metric.compared))])] * COUNT)
    return np.round(random.random(COUNT) * 90 + 10, 3)
