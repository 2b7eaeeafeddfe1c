"""Effect of each call on a variable, without any network."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

import bookkeeper
from bookkeeper import Bookkeeper, VariableRefused
from bookkeeper.variables import snapshot
from bookkeeper.variables.cell import COUNTER, GAUGE, INT_MAX, INT_MIN, UNKNOWN


@pytest.fixture
def book() -> Iterator[Bookkeeper]:
    """The default object of the module, replaced for one test."""
    mine = Bookkeeper(online=False)
    before = bookkeeper.use(mine)
    yield mine
    bookkeeper.use(before)


def test_module_functions_for_integers(book: Bookkeeper) -> None:
    """set, add, get, remove through the module; `add` returns the new value."""
    labels = {"route": "/"}
    assert bookkeeper.get_integer_var("n", labels) is None
    assert bookkeeper.add_to_integer_var("n", labels, 2) == 2
    assert bookkeeper.add_to_integer_var("n", labels, 3) == 5
    bookkeeper.set_integer_var("n", labels, -7)
    assert bookkeeper.add_to_integer_var("n", labels, -1) == -8
    assert bookkeeper.get_integer_var("n", labels) == -8
    bookkeeper.remove_integer_var("n", labels)
    assert bookkeeper.get_integer_var("n", labels) is None
    assert bookkeeper.add_to_integer_var("n", labels, 1) == 1
    assert bookkeeper.refusals() == {}


def test_module_functions_for_doubles(book: Bookkeeper) -> None:
    """The same for doubles; NaN may be set."""
    assert bookkeeper.add_to_double_var("d", {}, 0.5) == 0.5
    assert bookkeeper.add_to_double_var("d", {}, 2) == 2.5
    assert bookkeeper.get_double_var("d", {}) == 2.5
    bookkeeper.set_double_var("d", {}, math.nan)
    assert math.isnan(bookkeeper.get_double_var("d", {}) or 0.0)
    bookkeeper.remove_double_var("d", {})
    assert bookkeeper.get_double_var("d", {}) is None


def test_module_functions_for_booleans_and_strings(book: Bookkeeper) -> None:
    """set, get, remove."""
    bookkeeper.set_boolean_var("b", {}, False)
    bookkeeper.set_string_var("s", {"a": "ü"}, "größe\n\0")
    assert bookkeeper.get_boolean_var("b", {}) is False
    assert bookkeeper.get_string_var("s", {"a": "ü"}) == "größe\n\0"
    bookkeeper.remove_boolean_var("b", {})
    bookkeeper.remove_string_var("s", {"a": "ü"})
    assert bookkeeper.get_boolean_var("b", {}) is None
    assert bookkeeper.get_string_var("s", {"a": "ü"}) is None


def test_handles_and_functions_share_a_variable(book: Bookkeeper) -> None:
    """A handle is the variable, however its labels are written."""
    handle = bookkeeper.integer("n", {"a": "1", "b": "2"})
    assert handle.get() is None
    assert handle.add() == 1
    assert bookkeeper.add_to_integer_var("n", {"b": "2", "a": "1", "c": ""}, 2) == 3
    assert bookkeeper.integer("n", {"b": "2", "a": "1"}) is handle
    handle.set(10)
    assert bookkeeper.get_integer_var("n", {"a": "1", "b": "2"}) == 10
    handle.remove()
    assert handle.get() is None
    other = bookkeeper.integer("n", {"a": "1", "b": "2"})
    other.add(5)
    assert handle.add(1) == 6  # an old handle finds the variable that took its place


def test_equal_values_under_other_names_are_other_variables(book: Bookkeeper) -> None:
    """The look-up cache is keyed by values only; the labels decide."""
    for _ in range(2):
        bookkeeper.add_to_integer_var("n", {"a": "x"}, 1)
        bookkeeper.add_to_integer_var("n", {"b": "x"}, 10)
    assert bookkeeper.get_integer_var("n", {"a": "x"}) == 2
    assert bookkeeper.get_integer_var("n", {"b": "x"}) == 20


def test_labels_are_copied(book: Bookkeeper) -> None:
    """A program may reuse and change its dict."""
    labels = {"a": "1"}
    bookkeeper.add_to_integer_var("n", labels, 1)
    labels["a"] = "2"
    bookkeeper.add_to_integer_var("n", labels, 5)
    assert bookkeeper.get_integer_var("n", {"a": "1"}) == 1
    assert bookkeeper.get_integer_var("n", {"a": "2"}) == 5


@pytest.mark.parametrize(
    ("start", "offset", "result", "count"),
    [
        (INT_MAX, 1, INT_MAX, 1),
        (INT_MAX - 1, 1, INT_MAX, 0),
        (INT_MAX, -1, INT_MAX - 1, 0),
        (INT_MIN, -1, INT_MIN, 1),
        (5, 1 << 70, INT_MAX, 1),
        (5, -(1 << 70), INT_MIN, 1),
    ],
)
def test_sums_stop_at_the_end_of_int64(book: Bookkeeper, start: int, offset: int, result: int, count: int) -> None:
    """Saturated and counted; `add` returns what is kept."""
    bookkeeper.set_integer_var("n", {}, start)
    assert bookkeeper.add_to_integer_var("n", {}, offset) == result
    assert bookkeeper.integer("n").get() == result
    assert bookkeeper.refusals().get("saturated", 0) == count


def test_setting_beyond_int64(book: Bookkeeper) -> None:
    """Set is cut the same way, on the first and on later calls."""
    for _ in range(2):
        bookkeeper.set_integer_var("n", {}, 1 << 63)
    assert bookkeeper.get_integer_var("n", {}) == INT_MAX
    assert bookkeeper.refusals() == {"saturated": 2}


@pytest.mark.parametrize("value", [True, np.int64(1), np.uint8(1)])
def test_integers_of_other_kinds(book: Bookkeeper, value: int) -> None:
    """Every integer type counts and is stored as a plain int."""
    for expected in (1, 2):
        result = bookkeeper.add_to_integer_var("n", {}, value)
        assert result == expected
        assert type(result) is int


@pytest.mark.parametrize("value", [1.0, "1", None, Decimal(1), object()])
def test_what_is_no_integer_is_refused(book: Bookkeeper, value: int) -> None:
    """Counted, never raised, no variable made."""
    assert bookkeeper.add_to_integer_var("n", {}, value) == 0
    bookkeeper.set_integer_var("n", {}, value)
    assert bookkeeper.get_integer_var("n", {}) is None
    assert bookkeeper.refusals() == {"value": 2}


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, "1", None, 10**400])
def test_what_may_not_be_added_to_a_double(book: Bookkeeper, value: float) -> None:
    """One NaN would spoil the sum for ever."""
    bookkeeper.add_to_double_var("d", {}, 1.0)
    assert bookkeeper.add_to_double_var("d", {}, value) == 0.0
    assert bookkeeper.get_double_var("d", {}) == 1.0
    assert bookkeeper.refusals() == {"value": 1}


@pytest.mark.parametrize(
    ("name", "labels", "reason"),
    [
        ("", {}, "name"),
        ("a b", {}, "name"),
        (None, {}, "name"),
        (7, {}, "name"),
        ("n", {"a-b": "x"}, "labels"),
        ("n", {"a": 1}, "labels"),
        ("n", {"a": ["x"]}, "labels"),
        ("n", "ab", "labels"),
        ("n", 7, "labels"),
        (["n"], {}, "name"),
    ],
)
def test_bad_names_and_labels_are_counted(book: Bookkeeper, name: str, labels: dict[str, str], reason: str) -> None:
    """No call raises, whatever it is given."""
    assert bookkeeper.add_to_integer_var(name, labels, 1) == 0
    assert bookkeeper.add_to_double_var(name, labels, 1.0) == 0.0
    bookkeeper.set_boolean_var(name, labels, True)
    bookkeeper.set_string_var(name, labels, "x")
    bookkeeper.integer(name, labels).add(1)
    assert bookkeeper.get_integer_var(name, labels) is None
    bookkeeper.remove_string_var(name, labels)
    assert bookkeeper.refusals() == {reason: 5}
    assert bookkeeper.get_integer_var("bookkeeper.refused", {"reason": reason}) == 5


def test_strict_mode_raises() -> None:
    """For tests of an application."""
    book = Bookkeeper(online=False, strict=True)
    with pytest.raises(VariableRefused, match="variable name") as caught:
        book.add_to_integer_var("a b", {}, 1)
    assert caught.value.reason == "name"


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda b: b.add_to_integer_var("a.b", {"k": "v"}, 1.5), "a.b {'k': 'v'}: 1.5 is not an integer"),
        (lambda b: b.double("a.d", {}).add(float("nan")), "a.d {}: adding nan"),
        (lambda b: b.set_boolean_var("a.t", {}, 1), "a.t {}: 1 is not a boolean"),
        (lambda b: b.set_string_var("a.s", {}, 5), "a.s {}: value 5 is of type int: give a str"),
        (lambda b: b.histogram("a.h", {"k": "v"}).observe("x"), "a.h {'k': 'v'}: 'x' is not a number"),
        (
            lambda b: b.add_to_integer_var("a.b", {"status": 200}, 1),
            "a.b: label 'status' has the value 200 of type int",
        ),
        (lambda b: b.add_to_integer_var("a.b", "host", 1), "a.b: labels 'host': give a dict of texts"),
        (lambda b: b.add_to_integer_var("a.b", 7, 1), "a.b: labels 7: give a dict of texts"),
        (lambda b: b.add_to_integer_var(b"a", {}, 1), "variable name b'a' is of type bytes: give a str"),
    ],
)
def test_a_refusal_names_the_variable_and_what_is_wrong(call: Callable[[Bookkeeper], object], told: str) -> None:
    with pytest.raises(VariableRefused) as caught:
        call(Bookkeeper(online=False, strict=True))
    assert str(caught.value).startswith(told)


def test_integer_becomes_double_once(book: Bookkeeper) -> None:
    """The value goes along; afterwards integers are refused and the old handle cannot split the variable."""
    old = bookkeeper.integer("n", {"a": "1"})
    old.add(3)
    assert bookkeeper.add_to_double_var("n", {"a": "1"}, 0.5) == 3.5
    assert old.add(1) == 0
    assert bookkeeper.add_to_integer_var("n", {"a": "1"}, 1) == 0
    bookkeeper.set_string_var("n", {"a": "1"}, "x")
    assert bookkeeper.get_double_var("n", {"a": "1"}) == 3.5
    assert bookkeeper.get_integer_var("n", {"a": "1"}) is None
    assert bookkeeper.refusals() == {"type": 3}


@pytest.mark.parametrize("other", ["boolean", "string"])
def test_no_other_change_of_type(book: Bookkeeper, other: str) -> None:
    """Refused and counted, the variable stays what it is."""
    bookkeeper.set_boolean_var("n", {}, True) if other == "boolean" else bookkeeper.set_string_var("n", {}, "x")
    bookkeeper.add_to_integer_var("n", {}, 1)
    bookkeeper.add_to_double_var("n", {}, 1.0)
    assert bookkeeper.refusals() == {"type": 2}
    assert book.list_cells()[1][0].value in (True, "x")


def test_kind_is_inferred_or_told(book: Bookkeeper) -> None:
    """Only non-negative adds: counter. A set or a negative add: gauge, until it is removed."""
    counter, gauge, told = bookkeeper.integer("c"), bookkeeper.double("g"), bookkeeper.integer("t")
    bookkeeper.describe("t", kind="counter")
    counter.add(1)
    gauge.add(1.0)
    told.set(5)
    assert (counter.kind, gauge.kind, told.kind) == (COUNTER, COUNTER, COUNTER)
    counter.add(-1)
    gauge.set(1.0)
    gauge.add(1.0)
    assert (counter.kind, gauge.kind) == (GAUGE, GAUGE)
    counter.remove()
    assert counter.kind == UNKNOWN
    counter.add(1)
    assert counter.kind == COUNTER
    bookkeeper.describe("c", kind="gauge")
    assert counter.kind == GAUGE


def test_bad_descriptions(book: Bookkeeper) -> None:
    """Counted like everything else."""
    bookkeeper.describe("n", kind="histogram")
    bookkeeper.describe("a b")
    bookkeeper.describe("n", help=7)  # type: ignore[arg-type]
    assert bookkeeper.refusals() == {"describe": 1, "name": 1, "value": 1}


def test_long_or_broken_strings_are_refused(book: Bookkeeper) -> None:
    """A string must fit into a batch and into UTF-8."""
    bookkeeper.set_string_var("s", {}, "x" * 40_000)
    bookkeeper.set_string_var("s", {}, "\ud800")
    assert bookkeeper.get_string_var("s", {}) is None
    assert bookkeeper.refusals() == {"value": 2}


def test_a_snapshot_while_variables_are_removed_all_the_time(book: Bookkeeper, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each time values are read one more is gone, as a signal handler may do it even under the lock."""
    for i in range(30):
        bookkeeper.add_to_integer_var("n", {"i": str(i)}, 1)
        bookkeeper.set_string_var("s", {"i": str(i)}, "x")
    gone = iter(range(30))

    def removing(read: Callable[[snapshot.VariableLayout], Any]) -> Callable[[snapshot.VariableLayout], Any]:
        def after_one_more(layout: snapshot.VariableLayout) -> Any:
            i = str(next(gone))
            bookkeeper.remove_integer_var("n", {"i": i})
            bookkeeper.remove_string_var("s", {"i": i})
            return read(layout)

        return after_one_more

    monkeypatch.setattr(snapshot, "pack", removing(snapshot.pack))
    monkeypatch.setattr(snapshot, "present_rows", removing(snapshot.present_rows))
    snapshots = snapshot.SnapshotReader(book)
    layout, values, texts = snapshots.columns()
    assert len(values) == 8 * len(layout.cells) == 8 * len(layout.types) > 0
    assert texts == ["x"]
    assert None not in snapshots.rows()[1]
    assert next(gone) == 2 * (snapshot.MAX_ATTEMPTS + 1)
