"""Buckets and windows of calendar units, against days counted with zoneinfo sample by sample."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from artimon.compute.matrix_columns import MIN_ROLLING_SERIES
from query_dsl import Matrix, QueryError, evaluate, offline, parse
from query_dsl.stores.levels import SETTLE_MS
from query_dsl.tree.calendar_units import CalendarGrid, CalendarUnit
from tests.query_dsl.plain_store import PlainStore

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
ZONES = ["UTC", "Europe/Paris", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe", "America/Havana"]


def ms(year: int, month: int, day: int, hour: int = 0, minute: int = 0, zone: str = "UTC") -> int:
    return int(datetime(year, month, day, hour, minute, tzinfo=ZoneInfo(zone)).timestamp() * 1000)


def local_date(time_ms: int, zone: str) -> date:
    """Date of a time; the end of a day belongs to it."""
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=time_ms - 1)).astimezone(ZoneInfo(zone)).date()


def unit_of(time_ms: int, unit: str, zone: str) -> tuple[int, ...]:
    day = local_date(time_ms, zone)
    months = {"1mo": 1, "3mo": 3}.get(unit)
    if months:
        return day.year, (day.month - 1) // months
    return {"1d": (day.toordinal(),), "1w": day.isocalendar()[:2], "1y": (day.year,)}[unit]


@pytest.mark.parametrize(
    ("zone", "day", "hours"),
    [
        ("Europe/Paris", (2026, 3, 29), 23),
        ("Europe/Paris", (2026, 10, 25), 25),
        ("Australia/Lord_Howe", (2026, 4, 5), 24.5),
        ("Australia/Lord_Howe", (2026, 10, 4), 23.5),
        ("America/Sao_Paulo", (2018, 11, 4), 23),  # this day began at 01:00
        ("America/Havana", (2022, 11, 6), 25),  # this day had 00:30 twice
        ("Asia/Beirut", (2022, 3, 27), 23),
        ("UTC", (2026, 3, 29), 24),
    ],
)
def test_days_have_their_true_length(zone: str, day: tuple[int, int, int], hours: float) -> None:
    start, end = CalendarUnit(1, "d", zone).edges(ms(*day, 12, zone=zone), ms(*day, 12, zone=zone) + DAY)[:2]
    assert end - start == hours * HOUR
    assert local_date(start + 1, zone) == date(*day) == local_date(end, zone)
    assert local_date(start, zone) < date(*day) < local_date(end + 1, zone)


@settings(max_examples=60, deadline=None)
@given(zone=st.sampled_from(ZONES), unit=st.sampled_from(["1d", "1w", "1mo", "3mo", "1y"]), at=st.integers(0, 2**41))
def test_units_meet_and_hold_their_times(zone: str, unit: str, at: int) -> None:
    node: Any = parse(f"fetch('x').bucketize('sum', '{unit}', zone='{zone}')").node
    edges = node.unit.edges(at, at + 2 * node.unit.most_ms)
    assert edges[0] <= at < edges[1]
    for start, end in pairwise(edges):
        assert unit_of(start + 1, unit, zone) == unit_of(end, unit, zone) != unit_of(end + 1, unit, zone)


FUNCTIONS: dict[str, Any] = {"sum": sum, "count": len, "max": max, "min": min, "last": lambda values: values[-1]}


def rows_of(found: Matrix) -> dict[int, Any]:
    """By end; None where the series is left out, because it has no sample in the range."""
    return dict(zip(found.times, found.tolist(0) if len(found) else [None] * found.grid.n, strict=True))


@settings(max_examples=30, deadline=None)
@given(
    zone=st.sampled_from(ZONES),
    unit=st.sampled_from(["1d", "1w", "1mo"]),
    name=st.sampled_from(sorted(FUNCTIONS)),
    start=st.sampled_from([(2026, 3, 20), (2026, 10, 20), (2026, 4, 1), (2025, 12, 28)]),
    level=st.sampled_from([15 * MINUTE, 30 * MINUTE]),
    apart=st.lists(st.integers(1, 700), min_size=5, max_size=40),
    source=st.sampled_from(["levels", "offline", "samples"]),
)
def test_buckets_hold_the_samples_of_their_unit(
    zone: str, unit: str, name: str, start: tuple[int, int, int], level: int, apart: list[int], source: str
) -> None:
    times = [ms(*start) + MINUTE * sum(apart[: i + 1]) for i in range(len(apart))]
    samples = [(time, i % 7) for i, time in enumerate(times)]
    now = ms(*start) + 25 * DAY + SETTLE_MS
    query = f"fetch('x').bucketize('{name}', '{unit}', zone='{zone}').range('35d')"
    if source == "levels":
        store = PlainStore(level_table=((level, 80 * DAY // level),)).add("x", {}, samples)
        found = evaluate(parse(query), store, now)
    else:
        text = query if source == "offline" else query.replace("fetch", "samples")
        found = offline({"x": list(samples)}, step="5m").query(text, at=now)
    assert isinstance(found.grid, CalendarGrid)
    for end, value in rows_of(found).items():
        mine = [v for t, v in samples if unit_of(t, unit, zone) == unit_of(end, unit, zone)]
        assert value == (FUNCTIONS[name](mine) if mine else 0 if name == "count" and len(found) else None)
    assert found.times == sorted(found.times)
    assert now - SETTLE_MS - found.times[-1] < CalendarUnit(1, unit[1:], zone).most_ms  # type: ignore[arg-type]


@settings(max_examples=40, deadline=None)
@given(
    zone=st.sampled_from(ZONES),
    unit=st.sampled_from(["1d", "1w"]),
    name=st.sampled_from(sorted(FUNCTIONS)),
    hours=st.integers(1, 30),
    apart=st.lists(st.integers(1, 300), min_size=5, max_size=40),
    coarse=st.booleans(),
)
def test_windows_begin_with_their_unit(
    zone: str, unit: str, name: str, hours: int, apart: list[int], coarse: bool
) -> None:
    end = ms(2026, 3, 30, 14)
    times = [end - 6 * DAY + MINUTE * sum(apart[: i + 1]) for i in range(len(apart))]
    samples = [(time, i % 7) for i, time in enumerate(times) if time <= end]
    levels = ((30 * MINUTE, 400),) if coarse else ((5 * MINUTE, 30), (30 * MINUTE, 400))
    store = PlainStore(level_table=levels).add("x", {}, samples)
    query = f"fetch('x').map('{name}', since='{unit}', zone='{zone}').range('{hours}h')"
    found = evaluate(parse(query), store, end + SETTLE_MS)
    for time, value in rows_of(found).items():
        mine = [v for t, v in samples if t <= time and unit_of(t, unit, zone) == unit_of(time, unit, zone)]
        assert value == (FUNCTIONS[name](mine) if mine else 0 if name == "count" and len(found) else None)


def test_daily_increases_add_up_over_a_change_of_clocks() -> None:
    first = ms(2026, 3, 27, zone="Europe/Paris")
    store = offline({"c": [(first + 5 * MINUTE * i, 3 * i) for i in range(4 * 288)]}, step="5m")
    query = "fetch('c').bucketize('increase', '1d', zone='Europe/Paris').between('2026-03-26T23:00:00Z', 'now')"
    found = store.query(query, at=ms(2026, 3, 31, 1, zone="Europe/Paris"))
    assert found.tolist(0) == [3 * 288, 3 * 288, 3 * 276, 3 * 288]
    assert [(b - a) // HOUR for a, b in zip((first, *found.times), found.times, strict=False)] == [24, 24, 23, 24]


def test_functions_of_one_time_and_of_classes_take_calendar_buckets() -> None:
    first = ms(2026, 3, 27, zone="Europe/Paris")
    points = [(first + 5 * MINUTE * i, 1) for i in range(1, 5 * 288)]
    store = offline({'o{s="a"}': list(points), 'o{s="b"}': list(points)}, step="5m")
    daily = "fetch('o').bucketize('sum', '1d', zone='Europe/Paris')"
    at = ms(2026, 3, 31, 1, zone="Europe/Paris")
    total = store.query(f"{daily}.sum(by=[]).range('3d')", at=at)
    assert total.tolist(0) == [576, 552, 576]
    days = store.query(f"{daily}.sum(by=[]).calendar('weekday', zone='Europe/Paris').range('3d')", at=at)
    assert days.tolist(0) == [6, 7, 1]
    assert store.query(f"({daily} / {daily}).range('3d')", at=at).tolist(1) == [1, 1, 1]
    assert total.to_dict()["grid"]["ends_ms"] == total.times
    assert "23h to 1d" in str(total)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("bucketize('sum', '1d', zone='Europe/Pariss')", "near: Europe/Paris"),
        ("bucketize('sum', '2d', zone='UTC')", 'write one unit, "1d"'),
        ("bucketize('sum', '5mo')", "or 2, 3, 4 or 6 months"),
        ("bucketize('sum', '1h', zone='UTC')", "'1h' is not a unit of the calendar: write \"1d\""),
        ("bucketize('sum', '1d', zone=3)", "zone takes the name"),
        ("map('sum', '1h', since='1d')", "not by both"),
        ("map('sum', zone='UTC')", "zone= needs since="),
        ("map('sum', since='1h')", "'1h' is not a unit of the calendar: write \"1d\""),
        ("bucketize('sum', '1d', zone='UTC').map('mean', '3d')", "apply windows, offsets"),
        ("bucketize('sum', '1d', zone='UTC').offset('3d')", "apply windows, offsets"),
        ("bucketize('sum', '1d', zone='UTC') / fetch('x')", "bucketize every operand"),
        ("bucketize('sum', '1d', zone='UTC') / fetch('x').bucketize('sum', '1w', zone='UTC')", "two grids"),
        ("bucketize('sum', '1d', zone='UTC').range('300000d')", "use at most 11000|years 3 to 9997"),
        ("bucketize('sum', '1d', zone='UTC').between('2026-03-28T01:00:00Z', 'now')", "use 2026-03-28T00:00:00Z or"),
        (
            "bucketize('sum', '1d', zone='UTC').between(9007199254740000, 9007199254740992)",
            "outside of the calendar|yet",
        ),
    ],
)
def test_what_has_no_calendar_is_refused(call: str, message: str) -> None:
    store = offline({"x": [(ms(2026, 3, 29), 1)]}, step="5m")
    with pytest.raises(QueryError, match=message) as caught:
        store.query(f"fetch('x').{call}", at=ms(2026, 3, 31))
    assert caught.value.position is not None


def test_a_bucket_that_memory_cuts_is_missing_or_partial() -> None:
    end = ms(2026, 3, 30)
    samples = [(end - 30 * HOUR + MINUTE * i, 1) for i in range(1, 30 * 60 + 1)]
    store = PlainStore(level_table=((HOUR, 30),)).add("x", {}, samples)
    query = parse("fetch('x').bucketize('sum', '1d', zone='UTC').range('2d')")
    whole = evaluate(query, store, end + SETTLE_MS)
    assert whole.tolist(0) == [None, 24 * 60]
    assert not whole.complete
    assert evaluate(query, store, end + SETTLE_MS, partial_windows=True).tolist(0) == [6 * 60, 24 * 60]


@pytest.mark.parametrize("name", ["sum", "max", "count"])
def test_many_series_have_the_windows_of_each(name: str) -> None:
    end = ms(2026, 3, 30, 14)
    samples = [(end - 26 * HOUR + 20 * MINUTE * i, i % 7) for i in range(1, 26 * 3 + 1)]
    one, many = PlainStore(level_table=((30 * MINUTE, 100),)), PlainStore(level_table=((30 * MINUTE, 100),))
    one.add("x", {"i": "0"}, samples)
    for i in range(MIN_ROLLING_SERIES):
        many.add("x", {"i": str(i)}, samples)
    query = parse(f"fetch('x').map('{name}', since='1d', zone='Europe/Paris').range('20h')")
    expected = evaluate(query, one, end + SETTLE_MS).tolist(0)
    found = evaluate(query, many, end + SETTLE_MS)
    assert None not in expected
    assert len(found) == MIN_ROLLING_SERIES
    assert all(found.tolist(i) == expected for i in (0, MIN_ROLLING_SERIES - 1))


def test_a_zone_whose_days_end_between_buckets_is_refused() -> None:
    store = PlainStore(level_table=((HOUR, 100),)).add("x", {}, [(ms(2026, 3, 29), 1)])
    with pytest.raises(QueryError, match="1d in Asia/Kolkata ends between the buckets of all levels: 1h") as caught:
        evaluate(parse("fetch('x').bucketize('sum', '1d', zone='Asia/Kolkata')"), store, ms(2026, 3, 31))
    assert caught.value.position is not None


@pytest.mark.parametrize(
    "text",
    [
        "fetch('x').bucketize('sum', '3mo', zone='Asia/Tokyo')",
        "fetch('x').bucketize('quantile', '1d', q=0.9, min_count=3, zone='UTC')",
        "fetch('x').increase(since='1w', zone='Europe/Paris')",
        "fetch('x').map('sum', min_count=2, since='1y', zone='UTC')",
    ],
)
def test_text_and_tree_are_the_same(text: str) -> None:
    assert str(parse(text)) == text
    assert parse(str(parse(text))).equals(parse(text))


@settings(max_examples=40, deadline=None)
@given(
    zone=st.sampled_from(ZONES),
    part=st.sampled_from(["hour", "weekday", "month"]),
    name=st.sampled_from(["mean", "sum", "min", "max", "count"]),
    days=st.integers(1, 9),
    values=st.lists(st.none() | st.integers(0, 50), min_size=30, max_size=300),
)
def test_a_profile_is_of_the_values_of_each_part(
    zone: str, part: str, name: str, days: int, values: list[int | None]
) -> None:
    end = ms(2026, 4, 2, 6)
    samples = {end - (len(values) - 1 - i) * HOUR: v for i, v in enumerate(values) if v is not None}
    store = PlainStore(level_table=((HOUR, 400),)).add("x", {"a": "1"}, list(samples.items()))
    query = f"fetch('x').profile('{part}', '{days}d', '{name}', zone='{zone}').range('2h')"
    found = evaluate(parse(query), store, end + SETTLE_MS)
    made = {key.labels: found.tolist(i) for i, key in enumerate(found.keys)}
    for column, last in enumerate((end - HOUR, end)):
        parts: dict[str, list[int]] = {}
        for time, value in samples.items():
            local = datetime.fromtimestamp((time - 1) / 1000, ZoneInfo(zone))
            if last - days * DAY < time <= last:
                text = {"hour": f"{local.hour:02}", "weekday": str(local.isoweekday()), "month": f"{local.month:02}"}
                parts.setdefault(text[part], []).append(value)
        functions: dict[str, Any] = {**FUNCTIONS, "mean": lambda row: sum(row) / len(row)}
        expected = {(("a", "1"), (part, key)): functions[name](row) for key, row in parts.items()}
        assert {key: pytest.approx(row[column]) for key, row in made.items() if row[column] is not None} == expected
