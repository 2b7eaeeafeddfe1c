"""Store of the list pages: two days of some variables up to now, counted as shards count them, with hostile texts."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from artimon.model.cardinality import Cardinality, greatest
from artimon.model.values import Kind
from tests.lists.conftest import MARK
from tests.query_dsl.plain_store import MINUTE, PlainStore, Sample

HOUR = 60 * MINUTE
ODD = 'a.*"\\ \u2028' + MARK
"""Value of a label with characters of regular expressions, YAML, queries and HTML."""
BOUNDS = ("0.1", "1", "+Inf")


@dataclass
class CountedStore(PlainStore):
    """Counts its series, and has help and units."""

    texts: dict[str, tuple[str, str]] = field(default_factory=dict)

    def cardinality(self, top: int) -> Cardinality:
        names = Counter(one.name for one in self.series)
        pairs = Counter(f"{label}={value}" for one in self.series for label, value in one.labels.items())
        values = Counter({"__name__": len(names)}) + Counter(pair.partition("=")[0] for pair in pairs)
        sizes = {label: n * 10 for label, n in values.items()}
        counted = (greatest(one, top) for one in (names, values, sizes, pairs))
        return Cardinality(len(self.series), len(pairs), *counted)

    def metadata(self, names: Sequence[str] | None) -> dict[str, tuple[str, str]]:
        return {name: text for name, text in self.texts.items() if names is None or name in names}


def counted_store() -> CountedStore:
    """Requests of ten hosts, four of them since an hour; a gauge, a histogram, a text, and hostile names."""
    end_ms = int(time.time() * 1000) // MINUTE * MINUTE
    store = CountedStore()

    def add(name: str, labels: dict[str, str], kind: Kind, hours: int, of: float | str = 2.0) -> None:
        times = [end_ms - hour * HOUR for hour in range(hours, 0, -1)]
        times += [end_ms - at * MINUTE for at in range(59, -1, -1)]
        values: list[float | str] = [of] * len(times)
        if kind == Kind.COUNTER:
            values = [60 * (len(store.series) % 7 + 1) * i + 200 * math.sin(i / 5) for i in range(len(times))]
        samples = [Sample(at - 1, value, end_ms - 100 * HOUR) for at, value in zip(times, values, strict=True)]
        store.add(name, labels, samples, kind)

    for number in range(10):
        labels = {"host": f"h{number}", "context": "shop"}
        add("http.requests", {**labels, "route": "/"}, Kind.COUNTER, 48 if number < 6 else 0)
        add("host.load", labels, Kind.GAUGE, 48, float(number))
    for bound in BOUNDS:
        add("http.seconds.bucket", {"host": "h0", "context": "shop", "le": bound}, Kind.COUNTER, 48)
    add("shop.version", {"host": "h0", "context": "shop"}, Kind.GAUGE, 48, MARK)
    add(f"odd.{MARK}", {}, Kind.GAUGE, 48)  # no agent accepts this name
    add("odd.value", {"odd": ODD, "context": "shop"}, Kind.GAUGE, 48)
    store.texts = {
        "http.requests": ("Requests answered", ""),
        "host.load": (f"Processes that run {MARK}", ""),
        "odd.value": (MARK, MARK),
        "http.seconds.bucket": ("Requests by duration", "s"),
    }
    return store
