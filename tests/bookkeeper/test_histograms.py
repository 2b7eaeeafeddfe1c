"""Histograms: what is observed is what a poll shows and what `histogram_quantile` reads."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

import numpy as np
import pytest
from prometheus_client import CollectorRegistry
from prometheus_client import Histogram as PrometheusHistogram

import bookkeeper
from bookkeeper import DEFAULT_BOUNDS, Bookkeeper
from bookkeeper.variables.canonical import canonical
from bookkeeper.variables.cell import COUNTER, GAUGE
from bookkeeper.variables.histogram_table import validate_bounds
from bookkeeper.variables.snapshot import SnapshotReader
from query_dsl import offline
from tests.bookkeeper.books import replaced, shown
from tests.seeds import fixed_and_drawn


@pytest.fixture
def book() -> Iterator[Bookkeeper]:
    with replaced() as mine:
        yield mine


def cumulative(book: Bookkeeper, name: str) -> dict[str, int]:
    """Buckets by their upper bound."""
    return {entry.labels["le"]: int(entry.value) for entry in book.collect() if entry.name == name + ".bucket"}


def test_what_a_poll_shows(book: Bookkeeper) -> None:
    """A value on a bound belongs to the bucket of that bound; the last bucket has everything."""
    histogram = bookkeeper.histogram("lat", {"route": "/"}, (0.1, 1, 2.5))
    assert shown(book) == {}
    for value in (0.05, 0.1, 0.2, 1, 3.0, True):
        histogram.observe(value)
    assert cumulative(book, "lat") == {"0.1": 2, "1.0": 5, "2.5": 5, "+Inf": 6}
    assert shown(book)[("lat.count", "route", "/")] == 6
    assert shown(book)[("lat.sum", "route", "/")] == pytest.approx(5.35)
    assert histogram.count() == 6
    assert histogram.sum() == pytest.approx(5.35)
    assert {entry.kind for entry in book.collect()} == {"histogram"}
    assert book.refusals() == {}


@pytest.mark.parametrize("seed", fixed_and_drawn([1], "histogram"))
def test_it_agrees_with_prometheus_client(book: Bookkeeper, seed: int) -> None:
    """The same bounds, the same values, the same buckets."""
    theirs = PrometheusHistogram("lat", "x", buckets=DEFAULT_BOUNDS, registry=CollectorRegistry())
    ours, values = bookkeeper.histogram("lat"), random.Random(seed)
    for _ in range(2_000):
        value = values.choice([values.expovariate(1.0), values.choice(DEFAULT_BOUNDS), 0.0])
        theirs.observe(value)
        ours.observe(value)
    samples = [sample for metric in theirs.collect() for sample in metric.samples]
    expected = {sample.labels["le"]: sample.value for sample in samples if "le" in sample.labels}
    assert cumulative(book, "lat") == expected


def test_histogram_quantile_reads_it(book: Bookkeeper) -> None:
    """Through the query language, over two label sets that are united: near the true quantile."""
    values, samples = random.Random(2), []
    for _ in range(4_000):
        value = values.uniform(0.0, 0.5)
        bookkeeper.histogram("lat", {"route": values.choice("ab")}).observe(value)
        samples.append(value)
    series = {
        canonical(entry.name, entry.labels): [(0, 0), (60_000, int(entry.value))]
        for entry in book.collect()
        if entry.name == "lat.bucket"
    }
    store = offline(series, kinds=dict.fromkeys(series, "counter"))
    for q in (0.5, 0.9):
        text = f"fetch('lat.bucket').increase().histogram_quantile({q}, by=[])"
        found = [value for value in store.query(text, at=120_000).tolist(0) if value is not None and value == value]
        assert found[-1] == pytest.approx(float(np.quantile(samples, q)), abs=0.03)


def test_values_that_would_spoil_it_are_refused(book: Bookkeeper) -> None:
    """NaN and infinities are counted, and change nothing."""
    histogram = bookkeeper.histogram("lat")
    histogram.observe(1.0)
    for value in (math.nan, math.inf, -math.inf, "1", None, 10**400):
        histogram.observe(value)  # type: ignore[arg-type]
    assert (histogram.count(), histogram.sum()) == (1, 1.0)
    assert book.refusals() == {"value": 6}


def test_negative_values_make_the_sum_a_gauge(book: Bookkeeper) -> None:
    """A sum that falls must not look like a counter that began anew."""
    histogram = bookkeeper.histogram("temp", bounds=(-10, 0, 10))
    histogram.observe(5.0)
    assert book.double("temp.sum").get() == 5.0
    assert book.double("temp.sum").kind == COUNTER
    for value in (-20, -10.0):
        histogram.observe(value)
    assert cumulative(book, "temp") == {"-10.0": 2, "0.0": 2, "10.0": 3, "+Inf": 3}
    assert book.double("temp.sum").kind == GAUGE
    assert book.get_double_var("temp.sum", {}) == -25.0


def test_variables_of_a_histogram_are_read_like_any(book: Bookkeeper) -> None:
    """Up to date without a poll; and nobody else may write or end them."""
    histogram = bookkeeper.histogram("lat", {"a": "x"}, [1])
    histogram.observe(0.5)
    count = bookkeeper.integer("lat.count", {"a": "x"})
    assert bookkeeper.get_integer_var("lat.count", {"a": "x"}) == count.get() == 1
    for _ in range(2):
        assert bookkeeper.add_to_integer_var("lat.count", {"a": "x"}, 5) == 0
        count.add(1)
        count.set(7)
    bookkeeper.set_string_var("lat.sum", {"a": "x"}, "x")
    bookkeeper.remove_integer_var("lat.count", {"a": "x"})
    histogram.observe(0.5)
    assert bookkeeper.get_integer_var("lat.bucket", {"a": "x", "le": "1.0"}) == 2
    assert bookkeeper.get_integer_var("lat.count", {"a": "x"}) == 2
    assert book.refusals() == {"type": 7}


def test_a_name_that_is_taken_is_refused(book: Bookkeeper) -> None:
    """The application's own variable stays."""
    bookkeeper.add_to_integer_var("lat.count", {}, 5)
    bookkeeper.histogram("lat").observe(1.0)
    assert bookkeeper.get_integer_var("lat.count", {}) == 5
    assert book.refusals() == {"type": 1}
    assert cumulative(book, "lat") == {}


def test_one_name_has_one_set_of_bounds(book: Bookkeeper) -> None:
    """Others are counted and not used; without bounds one gets those that there are."""
    first = bookkeeper.histogram("lat", bounds=(1, 2))
    assert bookkeeper.histogram("lat", {"a": "x"}).bounds == (1.0, 2.0)
    assert bookkeeper.histogram("lat", bounds=(1.0, 2.0, math.inf)) is first
    assert book.refusals() == {}
    assert bookkeeper.histogram("lat", bounds=(1, 3)) is first
    assert book.refusals() == {"bounds": 1}


@pytest.mark.parametrize("bounds", [(), (2, 1), (1, 1), (math.nan,), (1, math.inf, 2), ("x",), 7, range(1000), (None,)])
def test_bounds_that_make_no_sense(book: Bookkeeper, bounds: tuple[float, ...]) -> None:
    """Counted; the handle can be used, and counts refusals."""
    bookkeeper.histogram("lat", bounds=bounds).observe(1.0)
    assert book.refusals() == {"bounds": 1}
    assert shown(book) == {("bookkeeper.refused", "reason", "bounds"): 1}


def test_bounds_are_floats_that_grow() -> None:
    """Bounds of any numeric type give the same histogram."""
    assert validate_bounds("n", [0, np.float64(0.5), 1]) == (0.0, 0.5, 1.0)
    assert [type(bound) for bound in validate_bounds("n", [0, np.float64(0.5)])] == [float, float]


@pytest.mark.parametrize(
    ("name", "labels", "reason"),
    [("a b", {}, "name"), ("n", {"le": "1"}, "labels"), ("n", {"a": 1}, "labels"), ("n" * 252, {}, "name")],
)
def test_bad_names_and_labels(book: Bookkeeper, name: str, labels: dict[str, str], reason: str) -> None:
    """As for every variable; `le` belongs to the buckets."""
    bookkeeper.histogram(name, labels).observe(1.0)
    assert book.refusals() == {reason: 1}


def test_the_cap_counts_label_sets(book: Bookkeeper) -> None:
    """Beyond it all is in one histogram: no observation is lost."""
    book.resolve()
    book.table.per_name = 3
    for i in range(40):
        bookkeeper.histogram("lat", {"user": str(i % 10)}, (1, 2)).observe(1.5)
    found = shown(book)
    counts = {key: value for key, value in found.items() if key[0] == "lat.count"}
    assert counts == {
        **{("lat.count", "user", str(i)): 4 for i in range(3)},
        ("lat.count", "overflow", "true"): 28,
    }
    assert found[("lat.bucket", "le", "2.0", "overflow", "true")] == 28
    assert found[("bookkeeper.overflow", "variable", "lat")] == 28
    assert book.refusals() == {}


def test_the_cap_of_the_process_holds_for_histograms(book: Bookkeeper) -> None:
    """A histogram takes as many places as it has variables."""
    book.resolve()
    book.table.limit = 20
    for i in range(30):
        bookkeeper.histogram("lat", {"user": str(i)}).observe(1.0)  # 16 variables each
    counts = {key: value for key, value in shown(book).items() if key[0] == "lat.count"}
    assert counts == {("lat.count", "user", "0"): 1, ("lat.count", "overflow", "true"): 29}


def test_removed_and_begun_again(book: Bookkeeper) -> None:
    """A handle outlives its histogram; an old handle finds the new one."""
    old = bookkeeper.histogram("lat", bounds=(1,))
    old.observe(0.5)
    old.remove()
    assert shown(book) == {}
    assert (old.count(), old.sum()) == (0, 0.0)
    new = bookkeeper.histogram("lat")
    new.observe(0.5)
    old.observe(2.0)
    assert cumulative(book, "lat") == {"1.0": 1, "+Inf": 2}
    assert len(book.table.all_cells()) == 4


def test_the_schema_of_a_poll_stays(book: Bookkeeper) -> None:
    """Observations change values only; a new histogram changes the schema."""
    snapshots = SnapshotReader(book)
    bookkeeper.histogram("lat").observe(1.0)
    before = snapshots.columns()[0]
    bookkeeper.histogram("lat").observe(100.0)
    layout, values, _ = snapshots.columns()
    assert layout is before
    assert len(values) == 8 * (len(DEFAULT_BOUNDS) + 3)
    bookkeeper.histogram("lat", {"a": "x"}).observe(1.0)
    assert snapshots.columns()[0].schema_id != before.schema_id


def test_help_of_a_histogram(book: Bookkeeper) -> None:
    """Told of its name, shown with each of its variables."""
    bookkeeper.describe("lat", "how long", "s")
    bookkeeper.histogram("lat").observe(1.0)
    assert {(entry.help, entry.unit, entry.family) for entry in book.collect()} == {("how long", "s", "lat")}
