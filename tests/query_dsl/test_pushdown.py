"""A query gives the same answer with and without push-down: values, mask, labels, types, notes, and errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from artimon.model.batch import BatchId, Samples, SeriesBlock, SeriesInfo
from artimon.model.feed_codec import FeedEntry, FeedRange, concat_samples
from artimon.model.fingerprint import fingerprint
from artimon.model.grid import DEFAULT_LEVELS, Level
from artimon.model.labels import canonical
from artimon.model.select import SelectError
from artimon.model.values import Kind, Value, ValueType
from query_dsl import Matrix, QueryError, evaluate, parse
from query_dsl.stores.levels import SETTLE_MS
from tests.query_dsl.pushing import Plain, Together
from tests.varstore.worlds import positions
from varstore.shard.shard import Shard

MINUTE = 60_000
HOUR = 60 * MINUTE
T = 1_800_000_000_000 // HOUR * HOUR
NOW = T + SETTLE_MS
TYPES = {int: ValueType.INTEGER, float: ValueType.DOUBLE, bool: ValueType.BOOLEAN, str: ValueType.STRING}


@dataclass(frozen=True)
class Told:
    """Samples of one series by one source: (time, birth, value), None for its end."""

    name: str
    labels: tuple[tuple[str, str], ...]
    kind: Kind
    samples: tuple[tuple[int, int, Value | None], ...]
    source: str
    shard: int


def fed_shards(told: list[Told], shards: int, levels: Sequence[Level] = DEFAULT_LEVELS) -> Together:
    """Shards fed with all samples, one batch a minute and source."""
    made = [Shard(str(i), levels, capacity=200) for i in range(shards)]
    for i, shard in enumerate(made):
        mine = [t for t in told if t.shard % shards == i]
        for source in sorted({t.source for t in mine}):
            infos = tuple(
                SeriesInfo(canonical(t.name, dict(t.labels)), type_of(t), t.kind) for t in mine if t.source == source
            )
            shard.announce(SeriesBlock(source, 0, 1, infos))
        feed(shard, mine)
    return Together(made)


def type_of(told: Told) -> ValueType:
    return next((TYPES[type(v)] for _, _, v in told.samples if v is not None), ValueType.DOUBLE)


def feed(shard: Shard, told: list[Told]) -> None:
    rows: dict[tuple[int, str], list[tuple[int, int, int, Value | None]]] = {}
    for t in told:
        for time, birth, value in t.samples:
            row = (fingerprint(canonical(t.name, dict(t.labels))), time, birth, value)
            rows.setdefault((-(-time // MINUTE), t.source), []).append(row)
    start = max(positions(shard).values(), default=0)
    for offset, ((minute, source), batch) in enumerate(sorted(rows.items(), key=lambda item: item[0]), start):
        samples = Samples.of(batch)
        append = minute * MINUTE + 1_000
        digest = xxhash.xxh3_64_intdigest(samples.fingerprint.tobytes())
        entry = FeedEntry(offset, append, BatchId("a", 1, 0, offset), source, append, len(batch), True, digest)
        shard.feed(FeedRange("t", 0, offset, offset + 1, (entry,), concat_samples([samples]), vshards=shard.vshards))


def outcome(text: str, store: Any) -> Matrix | str:
    try:
        return evaluate(parse(text), store, NOW)
    except (QueryError, SelectError) as problem:
        return str(problem)


def both(text: str, store: Together) -> tuple[Matrix | str, Matrix | str]:
    return outcome(text, store), outcome(text, Plain(store))


def same(text: str, store: Together) -> Matrix | str:
    """The answer with push-down, checked against the answer without."""
    pushed, plain = both(text, store)
    if isinstance(pushed, str) or isinstance(plain, str):
        assert pushed == plain, text
        return pushed
    assert list(pushed) == list(plain) or pushed == plain, (text, list(pushed), list(plain))
    assert pushed == plain, (text, list(pushed), list(plain))
    told = [(m.notes, m.complete, m.partial) for m in (pushed, plain)]
    assert told[0] == told[1], (text, told)
    return pushed


VALUES: dict[type, st.SearchStrategy[Any]] = {
    int: st.integers(-50, 10**6) | st.sampled_from([2**53 + 1, 2**62, -(2**63), 2**63 - 1]),
    float: st.floats(-1e6, 1e6, width=32).map(lambda v: v / 3 + 0.0) | st.sampled_from([float("nan"), float("inf")]),
    bool: st.booleans(),
    str: st.sampled_from(["a", "b"]),
}


@st.composite
def lives(draw: Any, kind: type) -> tuple[tuple[int, int, Value | None], ...]:
    """Samples in the last minutes, times distinct, births rising, perhaps an end."""
    times = sorted(draw(st.sets(st.integers(-30 * 4, 0), max_size=25)))
    birth, out = T - 2 * HOUR, []
    for quarter in times:
        time = T + quarter * (MINUTE // 4) - draw(st.integers(0, 14_000))
        if draw(st.integers(0, 9)) == 0:
            birth = time - draw(st.integers(0, 20_000))
        out.append((time, birth, draw(VALUES[kind])))
    if out and draw(st.integers(0, 4)) == 0:
        out.append((out[-1][0] + 500, birth, None))
    return tuple(out)


@st.composite
def worlds(draw: Any) -> tuple[list[Told], int]:
    shards = draw(st.integers(1, 3))
    told = []
    for i in range(draw(st.integers(1, 9))):
        kind = draw(st.sampled_from([int, int, float, float, bool, str]))
        labels = [("host", f"h{i}")]
        if draw(st.booleans()):
            labels.append(("rack", draw(st.sampled_from(["r1", "r2"]))))
        if draw(st.booleans()):
            labels.append(("dc", draw(st.sampled_from(["d1", "d2"]))))
        name = draw(st.sampled_from(["m.a", "m.b"]))
        for source in draw(st.sampled_from([["s0"], ["s1"], ["s7"], ["s0", "s1"]])):
            labels_now = tuple(sorted(labels))
            shard = draw(st.integers(0, 2))
            told.append(Told(name, labels_now, draw(st.sampled_from(Kind)), draw(lives(kind)), source, shard))
    return told, shards


RULES = ["", "", "", ", nulls='propagate'", ", min_count=2", ", nulls='error'", ", min_count=0"]


REDUCED = (
    *("'mean'", "'sum'", "'min'", "'max'", "'count'", "'group'"),
    *("'quantile', 0.3", "'quantile', 0.9, 'closest_observation'", "'median'", "'mad'"),
    *("'topk', 1", "'topk', 2, 'each'", "'topk', 1, 'max'", "'bottomk', 1, 'each'", "'bottomk', 2, 'min'"),
    "'topk', 1, 'mean'",
)


@st.composite
def questions(draw: Any) -> str:
    text = "fetch('" + draw(st.sampled_from(["m.*", "m.a", 'm.*{rack="r1"}', 'm.*{dc!="d1"}', "m.c"])) + "')"
    if draw(st.integers(0, 5)) == 0:
        text += f".offset('{draw(st.integers(1, 4))}m')"
    function = draw(
        st.sampled_from(["", "last", "first", "min", "max", "sum", "mean", "count", "increase", "rate", "delta"])
    )
    rules = draw(
        st.sampled_from(["", "", "", ", nulls='propagate'", ", min_count=2", ", nulls='error'", ", min_count=0"])
    )
    bucketized = draw(st.integers(0, 3)) == 0
    if function and bucketized:
        text += f".bucketize('{function}', '{draw(st.sampled_from([2, 5]))}m'{rules})"
    elif function:
        window = draw(st.sampled_from([1, 1, 2, 3, 5]))
        text += f".map('{function}', '{window}m'{rules})"
    if draw(st.integers(0, 5)) == 0:
        text += ".offset('10m')"
    classes = draw(
        st.sampled_from(
            [
                "by=[]",
                "by=['rack']",
                "by=['dc', 'rack']",
                "by=['__name__']",
                "without=['host']",
                "without=[]",
                "by=['no']",
            ]
        )
    )
    rules = draw(
        st.sampled_from(["", "", "", ", nulls='propagate'", ", min_count=2", ", nulls='error'", ", min_count=0"])
    )
    text += f".reduce({draw(st.sampled_from(REDUCED))}, {classes}{rules})"
    times = [".range('10m')", ".range('20m')", ".at('now')", ".between('now-80m', 'now-20m')"]
    return str(text + draw(st.sampled_from(times)))


@settings(max_examples=40, deadline=None)
@given(worlds(), st.lists(questions(), min_size=1, max_size=4))
def test_push_down_changes_nothing(made: tuple[list[Told], int], asked: list[str]) -> None:
    store = fed_shards(*made)
    for text in asked:
        same(text, store)


@pytest.mark.slow
@settings(max_examples=600, deadline=None)
@given(worlds(), st.lists(questions(), min_size=1, max_size=4))
def test_push_down_changes_nothing_at_length(made: tuple[list[Told], int], asked: list[str]) -> None:
    test_push_down_changes_nothing.hypothesis.inner_test(made, asked)  # type: ignore[attr-defined]


@settings(max_examples=40, deadline=None)
@given(worlds(), st.lists(questions(), min_size=1, max_size=3), st.integers(0, 30))
def test_caches_between_queries_do_not_change_answers(made: tuple[list[Told], int], asked: list[str], ago: int) -> None:
    """The same questions before and after the newest samples, and those of some series, came."""
    told, shards = made
    cut = T - ago * MINUTE
    first = [replace(t, samples=tuple(s for s in t.samples if s[0] <= cut)) for t in told]
    rest = [replace(t, samples=tuple(s for s in t.samples if s[0] > cut)) for t in told]
    store = fed_shards(first, shards)
    for text in asked:
        same(text, store)
    for i, shard in enumerate(store.shards):
        feed(shard, [t for t in rest if t.shard % shards == i])
    for text in asked:
        same(text, store)


def test_push_down_happens() -> None:
    """The tests above compare two ways, not one with itself."""
    told = [
        Told("m.a", (("host", f"h{i}"), ("rack", f"r{i % 2}")), Kind.COUNTER, samples, "s0", i)
        for i, samples in enumerate([((T - 90_000, T, 1), (T - 30_000, T, 9))] * 4)
    ]
    store = fed_shards(told, 2)
    for text in (
        "fetch('m.a').mean(by=['rack'])",
        "fetch('m.a').rate('5m').sum(by=['rack'])",
        "apply(sub, fetch('m.a').max(by=['rack']), fetch('m.a').min(by=['rack']), on=['rack'])",
        "fetch('m.a').bucketize('max', '5m').sum(without=['host'])",
        "fetch('m.a').topk(1, by=['rack'])",
        "fetch('m.a').map('max', '5m').bottomk(1, by=[], rank='each')",
    ):
        before = store.pushed
        same(text + ".range('10m')" if not text.startswith("apply") else f"({text}).range('10m')", store)
        assert store.pushed - before == text.count("fetch"), (text, store.refused)
    twins = [*told, replace(told[0], source="s1", shard=1), replace(told[1], source="s7", shard=1)]
    for shards in (fed_shards(told, 1), store, fed_shards(twins, 1), fed_shards(twins, 2)):
        for text in (
            "fetch('m.a').quantile(0.9, by=['rack']).range('10m')",
            "fetch('m.a').map('mean', '5m').median(by=[]).range('10m')",
            "fetch('m.a').mad(without=['host']).range('10m')",
        ):
            before = shards.pushed
            same(text, shards)
            assert shards.pushed - before == 1, (text, shards.refused)
