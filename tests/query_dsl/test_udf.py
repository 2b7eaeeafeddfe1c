"""Own functions in whole queries: built in Python only, paired and grouped like built-in functions, ended in time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import monotonic
from typing import Any

import numpy as np
import pytest

from query_dsl import Expr, QueryError, apply, fetch, offline, parse, samples
from query_dsl.stores.query_limits import Limits
from tests.query_dsl.plain_store import by_series

MINUTE = 60_000
BIG = 2**53 + 1


def disk_store() -> Any:
    return offline(
        {
            'disk.size{host="a",volume="x"}': [(t * MINUTE, 100) for t in range(1, 6)],
            'disk.size{host="a",volume="y"}': [(t * MINUTE, BIG + t) for t in range(1, 6)],
            'disk.size{host="b",volume="x"}': [(t * MINUTE, 300) for t in range(1, 6)],
            'disk.used{host="a",volume="x"}': [(t * MINUTE, 10.0 * t) for t in range(1, 6)],
            'disk.used{host="a",volume="y"}': [(t * MINUTE, 50.0) for t in (1, 2, 5)],
            'host.limit{host="a"}': [(t * MINUTE, 0.5) for t in range(1, 6)],
            'state{host="a"}': [(t * MINUTE, "up" if t < 4 else "down") for t in range(1, 6)],
        }
    )


def spread(_times: Any, values: Any, _labels: Any) -> float:
    return float(values.max() - values.min())


USED = fetch("disk.used").range("3m")


def test_over_windows() -> None:
    found = disk_store().query(USED.map(spread, "2m"))
    assert by_series(found) == {
        'disk.used{host="a",volume="x"}': [10.0, 10.0, 10.0],
        'disk.used{host="a",volume="y"}': [0.0, None, 0.0],
    }
    assert not found.notes


@pytest.mark.parametrize(
    ("function", "expect"),
    [
        (lambda w: w.max() - w.min(), [10.0, 10.0, 10.0]),
        (np.ptp, [10.0, 10.0, 10.0]),
        (len, [2.0, 2.0, 2.0]),
        (lambda times, values: values[-1] / (times[-1] // MINUTE), [10.0, 10.0, 10.0]),
        (lambda times, values, labels: float(labels["host"] == "a"), [1.0, 1.0, 1.0]),
        (lambda w, times=2: w[-1] * times, [60.0, 80.0, 100.0]),
        (lambda *given: float(len(given)), [3.0, 3.0, 3.0]),
    ],
)
def test_a_function_is_given_what_it_takes(function: Callable[..., Any], expect: list[float]) -> None:
    """Values; times and values; or labels too. What has a default is its own."""
    found = disk_store().query(fetch('disk.used{volume="x"}').map(function, "2m").range("3m"))
    assert found.tolist(0) == expect
    raw = disk_store().query(samples('disk.used{volume="x"}').map(function, "2m").between(2 * MINUTE, 5 * MINUTE))
    assert [value for _, value in raw.tolist(0)] == expect


def test_a_reducer_of_the_values_alone() -> None:
    found = disk_store().query(fetch("disk.size").reduce(lambda v: v.max(axis=0), by=["host"]).at("now"))
    assert by_series(found) == {'{host="a"}': [float(BIG + 5)], '{host="b"}': [300.0]}


def test_exact_integers_and_types() -> None:
    newest = fetch("disk.size").map(lambda _t, v, _l: int(v[-1]), "1m", gives="INTEGER").at("now")
    assert by_series(disk_store().query(newest))['disk.size{host="a",volume="y"}'] == [BIG + 5]
    word = fetch("state").map(lambda _t, v, _l: v[-1].upper(), "1m", gives="STRING").at("now")
    assert by_series(disk_store().query(word)) == {'state{host="a"}': ["DOWN"]}
    assert by_series(disk_store().query(word == "DOWN")) == {'{host="a"}': [True]}


def test_rules_of_windows() -> None:
    y = fetch('disk.used{volume="y"}').range("3m")
    assert by_series(disk_store().query(y.map(spread, "2m", nulls="propagate"))).popitem()[1] == [None, None, None]
    assert by_series(disk_store().query(y.map(spread, "2m", min_count=2))).popitem()[1] == [None, None, None]
    assert by_series(disk_store().query(y.map(lambda t, _v, _l: len(t), "2m", min_count=0))).popitem()[1] == [1, 0, 1]
    with pytest.raises(QueryError, match="empty bucket"):
        disk_store().query(y.map(spread, "2m", nulls="error"))


def test_a_window_may_reach_forward_and_be_computed() -> None:
    ahead = fetch('disk.used{volume="x"}').map(spread, "1m", after="1m").between(MINUTE, 3 * MINUTE)
    assert by_series(disk_store().query(ahead)).popitem()[1] == [10.0, 10.0]
    computed = (fetch('disk.used{volume="x"}') * 2).map(spread, "2m").range("2m")
    assert by_series(disk_store().query(computed)).popitem()[1] == [20.0, 20.0]


def test_bucketize_with_an_own_function() -> None:
    found = disk_store().query(fetch('disk.used{volume="x"}').bucketize(spread, "5m").at("now"))
    assert by_series(found).popitem()[1] == [40.0]


def test_over_classes() -> None:
    def widest(_times: Any, values: Any, labels: Any) -> Any:
        assert {one["__name__"] for one in labels} == {"disk.used"}
        return values.max(axis=0) - values.min(axis=0)

    found = disk_store().query(USED.reduce(widest, by=["host"]))
    assert by_series(found) == {'{host="a"}': [0.0, 0.0, 0.0]}
    assert found.grid.n == 3
    with pytest.raises(QueryError, match="near: host"):
        disk_store().query(USED.reduce(widest, by=["hots"]))
    with pytest.raises(QueryError, match="exactly one of by"):
        USED.reduce(widest)


def share(used: Any, size: Any) -> Any:
    return used / size


def test_pairs_by_labels() -> None:
    size = fetch('disk.size{host="a"}')
    found = disk_store().query(apply(share, USED, size, on=["host", "volume"]))
    assert by_series(found)['{host="a",volume="x"}'] == [0.3, 0.4, 0.5]
    assert by_series(found)['{host="a",volume="y"}'][:2] == [None, None]


def test_pairs_that_do_not_match() -> None:
    with pytest.raises(QueryError, match="1 series have no partner"):
        disk_store().query(apply(share, USED, fetch("disk.size"), on=["host", "volume"], unmatched="error"))
    dropped = disk_store().query(apply(share, USED, fetch("disk.size"), on=["host", "volume"]))
    assert len(dropped) == 2
    assert 'left out 1 series on the right without a partner on the left: {host="b",volume="x"}' in str(dropped.notes)
    filled = disk_store().query(apply(share, USED, fetch("disk.size"), on=["host", "volume"], fill=0))
    assert by_series(filled)['{host="b",volume="x"}'] == [0.0, 0.0, 0.0]


def test_many_to_one_and_three_operands() -> None:
    def free(size: Any, used: Any, limit: Any) -> Any:
        return (size - used) * limit

    size = fetch('disk.size{host="a"}').range("1m")
    found = disk_store().query(apply(free, size, fetch("disk.used"), 2, on=["host", "volume"]))
    assert by_series(found)['{host="a",volume="x"}'] == [100.0]
    over = apply(
        lambda v, limit: v > limit * 50, USED, fetch("host.limit"), on=["host"], group_left=[], gives="BOOLEAN"
    )
    assert by_series(disk_store().query(over)) == {
        '{host="a",volume="x"}': [True, True, True],
        '{host="a",volume="y"}': [None, None, True],
    }


def test_one_operand() -> None:
    found = disk_store().query(apply(lambda a: a.filled(0) + 1, USED))
    assert by_series(found)['{host="a",volume="y"}'] == [1.0, 1.0, 51.0]


def test_they_mix_with_the_language() -> None:
    query = (USED.map(spread, "2m") / fetch('disk.size{host="a"}')).sum(by=["host"])
    assert by_series(disk_store().query(query)) == {'{host="a"}': [0.1, 0.1, 0.1]}
    assert str(query).startswith("(fetch('disk.used')")
    assert query.equals((USED.map(spread, "2m") / fetch('disk.size{host="a"}')).sum(by=["host"]))
    assert not query.equals((USED.map(share, "2m") / fetch('disk.size{host="a"}')).sum(by=["host"]))


def test_python_s_own_functions_mean_the_language_s() -> None:
    assert str(fetch("x").map(max, "5m")) == "fetch('x').map('max', '5m')"
    assert str(fetch("x").map(np.median, "5m")) == "fetch('x').map('median', '5m')"


@pytest.mark.parametrize(
    "text",
    [
        "fetch('x').map(own('spread'), '5m')",
        "fetch('x').map(lambda t, v, l: 1, '5m')",
        "fetch('x').map('spread', '5m')",
        "fetch('x').map(spread, '5m')",
        "fetch('x').map(print, '5m')",
        "fetch('x').map(__import__, '5m')",
        "fetch('x').map(fetch.__class__, '5m')",
        "fetch('x').map('os.system', '5m')",
        "fetch('x').reduce(eval, by=[])",
        "apply(exec, fetch('x'), fetch('y'))",
        "apply('spread', fetch('x'), fetch('y'))",
        "fetch('x').map('mean', '5m', gives='STRING')",
    ],
)
def test_text_names_no_own_function(text: str) -> None:
    with pytest.raises(QueryError):
        parse(text)


def test_invalid_arguments_of_own_functions_are_refused() -> None:
    wrongs: tuple[Callable[[], Expr], ...] = (
        lambda: USED.map(spread, "2m", 5),
        lambda: USED.map(spread, "2m", gives="FLOAT"),
        lambda: USED.map(5, "2m"),
        lambda: USED.reduce(spread, 3, by=[]),
        lambda: apply("add", USED, USED, gives="INTEGER"),
        lambda: apply(share, 1, 2),
    )
    for wrong in wrongs:
        with pytest.raises(QueryError):
            disk_store().query(wrong())


def test_one_that_never_returns_ends_with_the_query() -> None:
    def stuck(*_: Any) -> float:
        while True:
            pass

    begun = monotonic()
    with pytest.raises(QueryError, match=r"'stuck'.*disk\.used\{host=\"a\",volume=\"x\"\}.*seconds"):
        disk_store().query(USED.map(stuck, "2m"), limits=Limits(seconds=1.0))
    with pytest.raises(QueryError, match=r"'stuck'.*class of 2 series"):
        disk_store().query(USED.reduce(stuck, by=[]), limits=Limits(seconds=1.0))
    with pytest.raises(QueryError, match=r"'stuck'"):
        disk_store().query(apply(stuck, USED, USED), limits=Limits(seconds=1.0))
    assert monotonic() - begun < 60  # and not for ever
    assert len(disk_store().query(USED)) == 2


def test_an_own_function_can_be_cancelled() -> None:
    stop, entered = threading.Event(), threading.Event()

    def stuck(*_: Any) -> float:
        entered.set()
        while True:
            pass

    def call_off() -> None:
        entered.wait(20)
        stop.set()

    helper = threading.Thread(target=call_off)
    helper.start()
    with pytest.raises(QueryError, match="cancelled"):
        disk_store().query(USED.map(stuck, "2m"), stop=stop)
    helper.join()


# --- raw samples


def irregular() -> Any:
    times = (1, 2, 5, 61, 62, 130)
    points: dict[str, Any] = {
        'x{a="1"}': [(t * 1000, float(t)) for t in times],
        'x{a="2"}': [(1_000, BIG), (2_000, BIG + 1)],
    }
    return offline({**points, "word": [(1_000, "b"), (2_000, "a")]})


def samples_of(answer: Any) -> dict[str, Any]:
    return {name: answer.tolist(i) for i, name in enumerate(answer.series)}


def test_a_window_at_each_sample() -> None:
    query = samples("x").map(lambda t, v, _l: len(t), "4s", after="1s", gives="INTEGER").between(0, 200_000)
    assert samples_of(irregular().query(query)) == {
        'x{a="1"}': [(1000, 2), (2000, 2), (5000, 2), (61_000, 2), (62_000, 2), (130_000, 1)],
        'x{a="2"}': [(1000, 2), (2000, 2)],
    }


def test_windows_reach_before_the_range_and_may_have_no_value() -> None:
    query = samples('x{a="1"}').map(lambda _t, v, _l: v[0] if len(v) > 1 else None, "4s").between(4_000, 70_000)
    assert samples_of(irregular().query(query)) == {'x{a="1"}': [(5000, 2.0), (62_000, 61.0)]}


def test_exact_integers_and_texts_of_samples() -> None:
    newest = samples('x{a="2"}').map(lambda _t, v, _l: v[-1], "1s", gives="INTEGER").between(0, 10_000)
    assert samples_of(irregular().query(newest)) == {'x{a="2"}': [(1000, BIG), (2000, BIG + 1)]}
    words = (
        samples("word").map(lambda _t, v, own: own["__name__"] + "".join(v), "5s", gives="STRING").between(0, 10_000)
    )
    assert samples_of(irregular().query(words)) == {"word": [(1000, "wordb"), (2000, "wordba")]}


def test_buckets_of_all_samples() -> None:
    found = irregular().query(samples("x").bucketize(lambda _t, v, _l: len(v), "1m").between(0, 180_000))
    assert samples_of(found) == {'x{a="1"}': [3.0, 2.0, 1.0], 'x{a="2"}': [2.0, None, None]}
    assert not found.notes
    counted = irregular().query(samples("x").bucketize(lambda _t, v, _l: len(v), "1m", min_count=0).between(0, 180_000))
    assert samples_of(counted)['x{a="2"}'] == [2.0, 0.0, 0.0]


def test_an_error_at_a_sample_names_it() -> None:
    with pytest.raises(QueryError, match=r'x\{a="1"\} in the window that ends at 1970-01-01T00:00:05Z: ValueError'):
        irregular().query(samples("x").map(_bad, "1s").between(0, 10_000))


def _bad(times: Any, _values: Any, _labels: Any) -> float:
    if times[-1] == 5_000:
        raise ValueError("five")
    return 0.0


def test_members_come_by_name_and_labels_whatever_order_they_had() -> None:
    disk_store = offline({f"x{{k='{k}'}}": [(60_000, value)] for k, value in (("a", 5), ("b", 9), ("c", 1))})
    seen: list[list[str]] = []

    def keep(_times: Any, values: Any, labels: Any) -> Any:
        seen.append([one["k"] for one in labels])
        return values[0]

    found = disk_store.query(fetch("x").sort("last", descending=True).reduce(keep, by=[]).at("now"))
    assert seen == [["a", "b", "c"]]
    assert found.latest() == [5.0]
