"""Calls of own functions: arguments, permitted results, error messages, and that one
which never returns is ended."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Mapping
from time import monotonic
from typing import Any

import numpy as np
import pytest

from artimon.compute.window_frames import WindowFrame
from artimon.model.grid import Grid
from query_dsl.evaluation.udf import UdfResult, run_udf_apply, run_udf_reduce, run_udf_window
from query_dsl.results.bucket_data import BucketData, from_cells
from query_dsl.results.result_cells import BOOLEAN, DOUBLE, INTEGER, STRING, Cells, SeriesKey, doubles, of_type
from query_dsl.stores.query_limits import LimitExceeded, Limits, QueryBudget
from query_dsl.tree.query_errors import QueryError

BIG = 2**53 + 1
GRID = Grid(40_000, 10_000, 4)
KEY = SeriesKey("x", (("a", "1"),))


def floats(*rows: tuple[float | None, ...]) -> Cells:
    values = np.array([[0.0 if v is None else v for v in row] for row in rows], np.float64)
    return doubles(values, np.array([[v is not None for v in row] for row in rows]))


def integers(*rows: tuple[int | None, ...], kind: int = INTEGER) -> Cells:
    values = np.array([[v or 0 for v in row] for row in rows], np.int64)
    return of_type(kind, values, np.array([[v is not None for v in row] for row in rows]))


def data_of(column: Cells, strings: tuple[str, ...] = ()) -> BucketData:
    keys = tuple(SeriesKey("x", (("a", str(i + 1)),)) for i in range(len(column.types)))
    return from_cells(keys, GRID, column, strings)


def frame(width: int = 2) -> WindowFrame:
    """Every window of `width` buckets that lies within the data."""
    ends = np.arange(width - 1, 4, dtype=np.int64)
    return WindowFrame(ends, width, GRID.ends()[ends], width * 10_000, 0)


def values(owned: UdfResult, row: int = 0) -> list[Any]:
    kind, cells, present = (part[row] for part in owned.column)
    shown = cells.view(np.float64) if kind == DOUBLE else cells.astype(bool) if kind == BOOLEAN else cells
    known = [owned.strings[v] if kind == STRING and p else v for v, p in zip(shown.tolist(), present, strict=True)]
    return [v if p else None for v, p in zip(known, present.tolist(), strict=True)]


def window(call: Callable[..., Any], column: Cells, **options: Any) -> UdfResult:
    return run_udf_window(call, data_of(column), frame(), **options)


def test_a_window_has_times_values_and_labels() -> None:
    seen: list[tuple[list[int], list[Any], Mapping[str, str]]] = []

    def spread(times: Any, values: Any, labels: Mapping[str, str]) -> float:
        assert times.dtype == np.int64
        assert values.dtype == np.int64
        seen.append((times.tolist(), values.tolist(), dict(labels)))
        return float(values.max() - values.min())

    owned = window(spread, integers((BIG, BIG + 2, None, 7)))
    labels = {"__name__": "x", "a": "1"}
    assert seen == [
        ([10_000, 20_000], [BIG, BIG + 2], labels),
        ([20_000], [BIG + 2], labels),
        ([40_000], [7], labels),
    ]
    assert values(owned) == [2.0, 0.0, 0.0]


def test_values_have_the_type_of_their_series() -> None:
    kinds: list[Any] = []

    def note(_times: Any, values: Any, _labels: Any) -> None:
        kinds.append((values.dtype.kind, values.tolist()[-1]))

    window(note, integers((0, 1, 1, 0), kind=BOOLEAN))
    window(note, floats((1.0, float("inf"), 2.0, 3.0)))
    run_udf_window(note, data_of(integers((0, 1, 0, 1), kind=STRING), ("up", "down")), frame())
    assert kinds[0::3] == [("b", True), ("f", float("inf")), ("O", "down")]


def test_empty_windows_are_missing_and_not_asked() -> None:
    calls: list[int] = []

    def count(times: Any, _values: Any, _labels: Any) -> int:
        calls.append(len(times))
        return len(times)

    assert values(window(count, floats((None, None, 1.0, 2.0)))) == [None, 1.0, 2.0]
    assert calls == [1, 2]
    assert values(window(count, floats((None, None, 1.0, 2.0)), min_count=0)) == [0.0, 1.0, 2.0]
    assert values(window(count, floats((None, None, 1.0, 2.0)), min_count=2)) == [None, None, 2.0]


@pytest.mark.parametrize(
    ("returned", "gives", "wanted"),
    [
        (1, "DOUBLE", 1.0),
        (True, "DOUBLE", 1.0),
        (np.float32(0.5), "DOUBLE", 0.5),
        (np.array(3), "DOUBLE", 3.0),
        (None, "DOUBLE", None),
        (np.ma.masked, "DOUBLE", None),
        (BIG, "INTEGER", BIG),
        (np.int64(BIG), "INTEGER", BIG),
        (4.0, "INTEGER", 4),
        (np.bool_(True), "BOOLEAN", True),
        ("warm", "STRING", "warm"),
    ],
)
def test_valid_return_values(returned: Any, gives: str, wanted: Any) -> None:
    assert values(window(lambda *_: returned, floats((1.0, 2.0, 3.0, 4.0)), gives=gives)) == [wanted] * 3


def test_nan_is_a_value() -> None:
    found = values(window(lambda *_: float("nan"), floats((1.0, None, 3.0, 4.0))))
    assert [v != v for v in found] == [True, True, True]


@pytest.mark.parametrize(
    ("returned", "gives", "told"),
    [
        ("warm", "DOUBLE", r"'warm' \(str\).*gives=\"STRING\""),
        (1.5, "INTEGER", r"1\.5 \(float\)"),
        (2**63, "INTEGER", "not a 64-bit integer"),
        (10**400, "DOUBLE", "does not fit into DOUBLE"),
        (1, "BOOLEAN", "True, False or None"),
        (b"x", "STRING", "bytes"),
        ("x" * 100_000, "STRING", "at most 65536"),
        (np.zeros(3), "DOUBLE", r"shape \(3,\)"),
        (1j, "DOUBLE", "complex"),
        (object(), "DOUBLE", "object"),
    ],
)
def test_invalid_return_values_are_refused(returned: Any, gives: str, told: str) -> None:
    with pytest.raises(QueryError, match=told) as wrong:
        window(lambda *_: returned, floats((1.0, 2.0, 3.0, 4.0)), gives=gives)
    assert 'x{a="1"}' in str(wrong.value)


def test_gives_is_checked() -> None:
    with pytest.raises(QueryError, match=r"gives='FLOAT'.*DOUBLE, INTEGER"):
        window(lambda *_: 1, floats((1.0, 2.0, 3.0, 4.0)), gives="FLOAT")


def test_arrays_belong_to_the_answer() -> None:
    def sort(_times: Any, values: Any, _labels: Any) -> float:
        values.sort()
        return 0.0

    with pytest.raises(QueryError, match="read-only"):
        window(sort, floats((2.0, 1.0, 3.0, 4.0)))


def ratio(_times: Any, values: Any, labels: Mapping[str, str]) -> float:
    return float(labels["missing"])


def test_an_error_names_function_series_window_and_line() -> None:
    with pytest.raises(QueryError) as wrong:
        window(ratio, floats((2.0, 1.0, 3.0, 4.0)))
    text = str(wrong.value)
    assert "own function 'ratio' (line" in text
    assert 'x{a="1"} in the window that ends at 1970-01-01T00:00:20Z' in text
    assert "KeyError: 'missing'" in text
    assert text.endswith('of test_udf_calls.py: return float(labels["missing"])')
    assert isinstance(wrong.value.__cause__, KeyError)


def _leave(*_: Any) -> float:
    raise SystemExit(3)


class Spiteful(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def _spite(*_: Any) -> float:
    raise Spiteful


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (_leave, "SystemExit: 3"),
        (_spite, "Spiteful"),
        (lambda: 1.0, r"TypeError: .*takes 0 positional arguments but 3 were given"),
        (functools.partial(pow, mod=1), "TypeError"),
        (lambda *_: [][0], "IndexError"),
    ],
)
def test_whatever_a_function_does_is_a_query_error(call: Callable[..., Any], told: str) -> None:
    with pytest.raises(QueryError, match=told):
        window(call, floats((2.0, 1.0, 3.0, 4.0)))


def test_division_by_zero_is_no_warning(recwarn: pytest.WarningsRecorder) -> None:
    owned = window(lambda _t, values, _l: values[-1] / np.float64(0), floats((2.0, 1.0, 3.0, 4.0)))
    assert values(owned) == [float("inf")] * 3
    assert not list(recwarn)


def test_buckets_of_several_samples_are_approximate() -> None:
    data = data_of(floats((2.0, 1.0, 3.0, 4.0)))
    data.stats["count"][0, 0] = 2
    owned = run_udf_window(lambda *_: 1.0, data, frame())
    assert owned.approximate is not None
    assert owned.approximate.tolist() == [[True, False, False]]


# --- classes


def _median(values: Any) -> Any:
    library: Any = np.ma  # its functions have no types
    return library.median(values, axis=0)


def members(column: Cells) -> list[tuple[list[SeriesKey], Cells]]:
    return [([SeriesKey("x", (("a", str(i)),)) for i in range(len(column.types))], column)]


def test_a_class_is_a_masked_array() -> None:
    def mad(times: Any, values: Any, labels: Any) -> Any:
        assert times.tolist() == GRID.ends().tolist()
        assert [label["a"] for label in labels] == ["0", "1"]
        assert values.dtype == np.float64
        return _median(np.abs(values - _median(values)))

    column = floats((1.0, None, 3.0, None), (2.0, 5.0, None, None))
    assert values(run_udf_reduce(mad, GRID, members(column))) == [0.5, 0.0, 0.0, None]


def test_types_of_a_class() -> None:
    kinds = []

    def note(_times: Any, values: Any, _labels: Any) -> Any:
        kinds.append((values.dtype.kind, values[0, 0]))
        return np.zeros(4)

    run_udf_reduce(note, GRID, members(integers((BIG, 1, 1, 1), (1, 1, 1, 1))))
    run_udf_reduce(note, GRID, members(integers((1, 1, 1, 1), kind=BOOLEAN)))
    whole, real = integers((1, 1, 1, 1)), floats((2.5,) * 4)
    mixed = Cells(
        np.concatenate([whole.types, real.types]),
        np.concatenate([whole.cells, real.cells]),
        np.concatenate([whole.present, real.present]),
    )
    run_udf_reduce(note, GRID, members(mixed))
    run_udf_reduce(note, GRID, members(integers((0, 0, 0, 0), kind=STRING)), strings=("up",))
    assert kinds == [("i", BIG), ("b", True), ("f", 1.0), ("O", "up")]


def test_rules_of_a_class() -> None:
    def present(_times: Any, values: Any, _labels: Any) -> Any:
        return (~np.ma.getmaskarray(values)).sum(axis=0)

    column = floats((1.0, None, 3.0, None), (2.0, 5.0, None, None))
    assert values(run_udf_reduce(present, GRID, members(column), "INTEGER")) == [2, 1, 1, None]
    assert values(run_udf_reduce(present, GRID, members(column), "INTEGER", min_count=0)) == [2, 1, 1, 0]
    assert values(run_udf_reduce(present, GRID, members(column), "INTEGER", min_count=2)) == [2, None, None, None]
    assert values(run_udf_reduce(present, GRID, members(column), "INTEGER", full=True)) == [2, None, None, None]


@pytest.mark.parametrize(
    ("returned", "gives", "wanted"),
    [
        ([1, None, 3.5, 4], "DOUBLE", [1.0, None, 3.5, 4.0]),
        (np.array([BIG, 1, 2, 3]), "INTEGER", [BIG, 1, 2, 3]),
        (np.array([1.0, 2.0, 3.0, 4.0]), "INTEGER", [1, 2, 3, 4]),
        (np.ma.masked_array([1.0, 2.0, 3.0, 4.0], [False, True, False, False]), "DOUBLE", [1.0, None, 3.0, 4.0]),
        (["a", "b", "a", None], "STRING", ["a", "b", "a", None]),
        (np.array([True, False, True, True]), "BOOLEAN", [True, False, True, True]),
        (np.array([1, 2, 3, 4], np.uint64), "INTEGER", [1, 2, 3, 4]),
    ],
)
def test_rows_that_may_be_returned(returned: Any, gives: str, wanted: list[Any]) -> None:
    assert values(run_udf_reduce(lambda *_: returned, GRID, members(floats((1.0,) * 4)), gives)) == wanted


@pytest.mark.parametrize(
    ("returned", "gives", "told"),
    [
        (np.zeros(3), "DOUBLE", r"shape \(3,\): return an array of 4 values"),
        (5.0, "DOUBLE", r"5\.0 \(float\)"),
        ([[1], [2, 3]], "DOUBLE", "array of 4 values"),
        (np.array([1.5, 2, 3, 4]), "INTEGER", "whole number"),
        (np.array([2**63, 1, 2, 3], np.uint64), "INTEGER", "64-bit"),
        (["a"] * 4, "DOUBLE", "STRING"),
    ],
)
def test_rows_that_may_not_be_returned(returned: Any, gives: str, told: str) -> None:
    with pytest.raises(QueryError, match=told) as wrong:
        run_udf_reduce(lambda *_: returned, GRID, members(floats((1.0,) * 4)), gives)
    assert 'class of 1 series, the first is x{a="0"}' in str(wrong.value)


# --- pairs


def test_pairs_are_masked_arrays() -> None:
    left, right, third = floats((1.0, None, 3.0, 4.0)), integers((1, 2, 0, None)), integers((1, 1, 1, 1))

    def share(a: Any, b: Any, c: Any) -> Any:
        assert (a.dtype.kind, b.dtype.kind) == ("f", "i")
        return a / (a + b) * c

    owned = run_udf_apply(share, [(left, ()), (right, ()), (third, ())], [KEY])
    assert values(owned) == [0.5, None, 1.0, None]


def test_an_error_of_a_pair_names_it() -> None:
    with pytest.raises(QueryError, match=r'x\{a="1"\}: ZeroDivisionError'):
        run_udf_apply(lambda a, b: 1 / 0, [(floats((1.0,) * 4), ()), (floats((1.0,) * 4), ())], [KEY])


# --- time


def _for_ever(*_: Any) -> float:
    while True:
        pass


def own_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("artimon-own-function")]


def test_a_function_that_never_returns_is_ended() -> None:
    begun = monotonic()
    with pytest.raises(QueryError, match=r"own function '_for_ever' .*x\{a=\"1\"\} in the window.* 0\.\d+ s.*seconds"):
        window(_for_ever, floats((1.0,) * 4), watch=QueryBudget(Limits(seconds=0.2)))
    assert monotonic() - begun < 30
    for thread in own_threads():
        thread.join(20)
    assert own_threads() == []


def test_a_function_that_ignores_the_interrupt_is_abandoned() -> None:
    released = threading.Event()

    def stubborn(*_: Any) -> float:
        while not released.is_set():
            try:
                while not released.is_set():
                    pass
            except BaseException:
                continue
        return 0.0

    begun = monotonic()
    with pytest.raises(QueryError, match="timed out after"):
        window(stubborn, floats((1.0,) * 4), watch=QueryBudget(Limits(seconds=0.1)))
    assert monotonic() - begun < 30
    (left,) = own_threads()
    assert left.daemon
    released.set()
    left.join(60)
    assert not left.is_alive()  # and it was not called for the other windows


def test_an_error_of_the_check_ends_the_function() -> None:
    looks = []

    class Stopped(Exception):
        pass

    def check() -> None:
        looks.append(1)
        if len(looks) > 1:
            raise Stopped

    with pytest.raises(Stopped):
        window(_for_ever, floats((1.0,) * 4), watch=QueryBudget(Limits(seconds=30), (check,)))


def test_a_limit_of_the_caller_is_no_timeout() -> None:
    def check() -> None:
        raise LimitExceeded("too many series")

    with pytest.raises(LimitExceeded, match="too many series"):
        window(_for_ever, floats((1.0,) * 4), watch=QueryBudget(Limits(seconds=30), (check,)))


def test_abandoned_threads_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()
    threads = [
        threading.Thread(target=release.wait, name="artimon-own-function-given-up", daemon=True) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    try:
        with pytest.raises(QueryError, match="restart"):
            window(lambda *_: 1.0, floats((1.0,) * 4))
    finally:
        release.set()
        for thread in threads:
            thread.join()
    assert values(window(lambda *_: 1.0, floats((1.0,) * 4))) == [1.0] * 3
