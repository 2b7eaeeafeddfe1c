"""The text for Prometheus, as its own parsers read it: every kind of variable, hard texts, names that collide."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper import Bookkeeper
from bookkeeper.export.openmetrics import LEFT_OUT_METRIC, OPENMETRICS, PLAIN, content_type, render
from bookkeeper.variables.snapshot import VariableEntry, VarType
from tests.integrations.reading import read_openmetrics, read_plain

INT, DOUBLE, BOOL, TEXT = VarType.INTEGER, VarType.DOUBLE, VarType.BOOLEAN, VarType.STRING


def entry(
    name: str, type_: VarType, value: Any, kind: str = "gauge", labels: Mapping[str, str] | None = None
) -> VariableEntry:
    return VariableEntry(name, labels or {}, type_, value, kind, "", "", name)


def read(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Samples of OpenMetrics text, read by the reference parser, which refuses much."""
    assert text.endswith("# EOF\n")
    found = {}
    for family in read_openmetrics(text):
        for sample in family.samples:
            key = sample.name, tuple(sorted(sample.labels.items()))
            assert key not in found
            found[key] = sample.value
    return found


def plain(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """The same of the older format."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in read_plain(text)
        for sample in family.samples
    }


@pytest.fixture
def book() -> Bookkeeper:
    return Bookkeeper(online=False, strict=True)


def test_every_type_and_kind_in_both_formats(book: Bookkeeper) -> None:
    book.add_to_integer_var("http.requests", {"route": "/"}, 3)
    book.add_to_double_var("cpu.seconds.total", {}, 1.5)
    book.set_integer_var("queue-depth", {}, -4)
    book.set_double_var("load", {"host": "a"}, 0.1)
    book.set_boolean_var("up", {}, True)
    book.set_string_var("version", {"part": "x"}, "1.2.3")
    text = render(book.collect())
    expected = {
        ("http_requests_total", (("route", "/"),)): 3,
        ("cpu_seconds_total", ()): 1.5,
        ("queue_depth", ()): -4,
        ("load", (("host", "a"),)): 0.1,
        ("up", ()): 1,
        ("version_info", (("part", "x"), ("value", "1.2.3"))): 1,
    }
    assert read(text) == expected
    assert plain(render(book.collect(), openmetrics=False)) == expected
    types = {family.name: family.type for family in read_openmetrics(text)}
    assert types["http_requests"] == types["cpu_seconds"] == "counter"
    assert types["version"] == "info"
    assert types["queue_depth"] == types["load"] == types["up"] == "gauge"


def test_whole_numbers_stay_exact_in_the_text(book: Bookkeeper) -> None:
    book.set_integer_var("big", {}, (1 << 63) - 1)
    assert f"big {(1 << 63) - 1}\n" in render(book.collect())


def test_a_histogram_is_one(book: Bookkeeper) -> None:
    timing = book.histogram("http.request.seconds", {"route": "/"}, (0.1, 1.0))
    book.describe("http.request.seconds", "How long\nrequests took", "seconds")
    for value in (0.05, 0.5, 0.7, 5.0):
        timing.observe(value)
    route = ("route", "/")
    expected = {
        ("http_request_seconds_bucket", (("le", "0.1"), route)): 1,
        ("http_request_seconds_bucket", (("le", "1.0"), route)): 3,
        ("http_request_seconds_bucket", (("le", "+Inf"), route)): 4,
        ("http_request_seconds_count", (route,)): 4,
        ("http_request_seconds_sum", (route,)): 6.25,
    }
    text = render(book.collect())
    assert read(text) == expected
    (family,) = read_openmetrics(text)
    assert (family.type, family.unit, family.documentation) == ("histogram", "seconds", "How long\nrequests took")
    assert plain(render(book.collect(), openmetrics=False)) == expected


def test_a_histogram_read_in_the_middle_of_an_observation_is_still_one() -> None:
    """Its buckets never fall, and its count is that of the last of them."""
    family = [("lat.bucket", {"le": "1.0"}, 7), ("lat.bucket", {"le": "+Inf"}, 6), ("lat.count", {}, 9)]
    made = [VariableEntry(name, labels, INT, value, "histogram", "", "", "lat") for name, labels, value in family]
    found = read(render([*made, VariableEntry("lat.sum", {}, DOUBLE, 2.5, "histogram", "", "", "lat")]))
    assert found == {
        ("lat_bucket", (("le", "1.0"),)): 7,
        ("lat_bucket", (("le", "+Inf"),)): 7,
        ("lat_count", ()): 7,
        ("lat_sum", ()): 2.5,
    }


@pytest.mark.parametrize("value", [math.nan, -1.0, -math.inf])
def test_a_counter_that_is_none_keeps_its_name(value: float) -> None:
    """Told to be a counter and then set to what none can be: the text stays one that Prometheus takes."""
    text = render([entry("odd", DOUBLE, value, "counter")])
    (family,) = read_openmetrics(text)
    assert (family.type, [sample.name for sample in family.samples]) == ("unknown", ["odd_total"])


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan, 5e-324, 1.7976931348623157e308, 0.1])
def test_doubles_arrive_to_the_last_bit(value: float) -> None:
    found = read(render([entry("d", DOUBLE, value)]))["d", ()]
    assert found == value or (math.isnan(found) and math.isnan(value))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (entry("a.b", INT, 1), entry("a_b", INT, 2)),
        (entry("a", INT, 1, "counter"), entry("a.total", INT, 2)),
        (entry("a", INT, 1, "counter"), entry("a_created", INT, 2)),
        (entry("a", INT, 1), entry("a", TEXT, "x", labels={"b": "c"})),
        (entry("a", INT, 1), entry("a.info", TEXT, "x")),
    ],
)
def test_of_names_that_become_the_same_one_is_left_out_and_counted(first: VariableEntry, second: VariableEntry) -> None:
    found = read(render([second, first]))
    assert found.pop((LEFT_OUT_METRIC, ())) == 1
    assert list(found.values()) == [1]
    assert plain(render([second, first], openmetrics=False))[LEFT_OUT_METRIC, ()] == 1


def test_a_label_named_value_does_not_collide_with_the_text() -> None:
    found = read(render([entry("s", TEXT, "text", labels={"value": "mine"})]))
    assert found == {("s_info", (("value", "mine"), ("value_", "text"))): 1}


@given(
    st.lists(
        st.tuples(st.sampled_from(["a", "a.b", "a_b", "a.total", "b", "b.info"]), st.text(max_size=20)), max_size=6
    )
)
def test_any_text_comes_back_and_no_output_is_refused(pairs: list[tuple[str, str]]) -> None:
    """Labels and strings of any characters, names that collide: the parsers take it, and what is shown is right."""
    kinds = ("counter", "gauge", "unknown")
    numbers = {pair: entry(pair[0], INT, i, kinds[i % 3], {"l": pair[1]}) for i, pair in enumerate(pairs)}
    texts = {pair: entry(pair[0], TEXT, pair[1], labels={"i": str(i)}) for i, pair in enumerate(pairs)}
    entries = [*numbers.values(), *texts.values()]
    found = read(render(entries))
    assert plain(render(entries, openmetrics=False)) == found
    values = [value for (name, _), value in found.items() if name != LEFT_OUT_METRIC]
    assert len(values) + found.get((LEFT_OUT_METRIC, ()), 0) == len(entries)
    shown = {dict(labels).get("value") for (name, labels) in found if name.endswith("_info")} - {None}
    assert shown <= {text for _, text in pairs}


def test_nothing_is_a_text_too() -> None:
    assert render([]) == "# EOF\n"
    assert render([], openmetrics=False) == ""


@pytest.mark.parametrize(
    ("accept", "given_type"),
    [
        ("application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.1", OPENMETRICS),
        ("text/plain", PLAIN),
        ("", PLAIN),
    ],
)
def test_prometheus_gets_what_it_asks_for(accept: str, given_type: str) -> None:
    assert content_type(accept) == (given_type == OPENMETRICS, given_type)
