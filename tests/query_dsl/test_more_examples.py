"""Typical questions of operators: racks, volumes, counters that restart, histograms, joins, calendars, weeks, texts,
truths, what is absent or stale, the worst of each site. Expected values were worked out by hand, or by numpy below.

Each is asked of samples in lists and of two shards that hold the same. Values stand a minute apart and end at 08:00 on
Friday, 2027-01-15 (UTC); `None` is no sample."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from artimon.model.values import Kind
from query_dsl import QueryError, evaluate, offline, parse
from query_dsl.tree.selector import parse_selector
from tests.query_dsl.test_pushdown import MINUTE, NOW, T, Told, fed_shards

NA = None
HOUR = 60 * MINUTE
WEEK = 7 * 24 * HOUR
Values = Sequence[Any]
Rows = dict[str, list[Any]]


@dataclass(frozen=True)
class Given:
    """Values by series, kinds, births (minutes before the end, one a value), ends, samples at any time."""

    values: Mapping[str, Values]
    kinds: Mapping[str, str] = field(default_factory=dict)
    births: Mapping[str, Sequence[float]] = field(default_factory=dict)
    ended: Mapping[str, int] = field(default_factory=dict)
    more: Mapping[str, Sequence[tuple[int, Any]]] = field(default_factory=dict)

    def samples(self, name: str) -> list[tuple[int, int, Any]]:
        """(time, birth, value)."""
        values = self.values.get(name, ())
        born = self.births.get(name, [0.0] * len(values))
        timed = [
            (T - (len(values) - 1 - i) * MINUTE, T - int(b * MINUTE) if b else 0, v)
            for i, (v, b) in enumerate(zip(values, born, strict=True))
            if v is not None
        ]
        return [*((t, 0, v) for t, v in self.more.get(name, ())), *timed]

    def stores(self) -> list[Any]:
        names = [*dict.fromkeys((*self.values, *self.more))]
        lists = offline(
            {name: [(t, v) for t, _, v in self.samples(name)] for name in names},
            kinds=self.kinds,
            births={name: [b for _, b, _ in self.samples(name)] for name in names},
            ended={name: T - minutes * MINUTE + 1 for name, minutes in self.ended.items()},
        )
        told = []
        for i, name in enumerate(names):
            labels = {m.label: m.value for m in parse_selector(name).matchers}
            title = labels.pop("__name__")
            kind = Kind[self.kinds.get(name, "unknown").upper()]
            end = [(T - self.ended[name] * MINUTE + 1, 0, None)] if name in self.ended else []
            samples = (*self.samples(name), *end)
            told.append(Told(title, tuple(sorted(labels.items())), kind, samples, f"s{i % 3}", i))
        return [lists, fed_shards(told, 2)]


def near(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return a == b or (a != a and b != b) or bool(np.isclose(a, b, rtol=1e-12, atol=0))
    return type(a) is type(b) and a == b


def expect(given: Given, text: str, expected: Rows, notes: Sequence[str] = (), shards: bool = True) -> None:
    """The answer of each store, series in order."""
    for store in given.stores()[: 2 if shards else 1]:
        found = evaluate(parse(text), store, NOW)
        rows = dict(list(found))
        assert list(rows) == list(expected), (store, list(rows))
        for name, values in expected.items():
            assert len(rows[name]) == len(values), (name, rows[name])
            assert all(near(a, b) for a, b in zip(rows[name], values, strict=True)), (name, rows[name], values)
        for note in notes:
            assert any(note in said for said in found.notes), found.notes


def refuse(given: Given, text: str, *parts: str) -> None:
    for store in given.stores():
        with pytest.raises(QueryError) as caught:
            evaluate(parse(text), store, NOW)
        for part in parts:
            assert part in str(caught.value), str(caught.value)


RACKS = Given(
    {
        'temperature{dc="jb",host="h1",rack="r1"}': [20.0, 21.0, NA],
        'temperature{dc="jb",host="h2",rack="r1"}': [22.0, NA, 24.0],
        'temperature{dc="jb",host="h3",rack="r2"}': [30.0, 31.0, 32.5],
        'temperature{dc="mu",host="h4",rack="r1"}': [18.0, 18.0, 18.0],
        'temperature{dc="mu",host="h5"}': [40.0, 40.0, 40.0],
        'door.open{dc="jb",rack="r1"}': [True, True, False],
        'door.open{dc="jb",rack="r2"}': [False, True, False],
        'door.open{dc="mu",rack="r1"}': [NA, True, True],
    }
)


def test_mean_temperature_of_each_rack() -> None:
    """Series without a rack form a reported class of their own; the mean leaves out missing values."""
    expect(
        RACKS,
        "fetch('temperature').mean(by=['dc', 'rack']).range('3m')",
        {
            '{dc="jb",rack="r1"}': [21.0, 21.0, 24.0],
            '{dc="jb",rack="r2"}': [30.0, 31.0, 32.5],
            '{dc="mu"}': [40.0] * 3,
            '{dc="mu",rack="r1"}': [18.0] * 3,
        },
        ["1 series without rack"],
    )


def test_a_rack_counts_only_where_all_its_sensors_do() -> None:
    expect(
        RACKS,
        "fetch('temperature{dc=\"jb\"}').mean(by=['rack'], nulls='propagate').range('3m')",
        {'{rack="r1"}': [21.0, NA, NA], '{rack="r2"}': [30.0, 31.0, 32.5]},
    )


def test_share_of_open_doors() -> None:
    """BOOLEAN is 1 and 0: the mean is the share of true, the sum how many."""
    expect(
        RACKS,
        "fetch('door.open').mean(by=['dc']).range('3m')",
        {'{dc="jb"}': [0.5, 1.0, 0.0], '{dc="mu"}': [NA, 1.0, 1.0]},
    )
    expect(RACKS, "fetch('door.open').sum(by=[]).range('3m')", {"{}": [1.0, 3.0, 1.0]})


def test_hot_and_open() -> None:
    """Two conditions of different names, joined by rack; the negation of one."""
    hot = "(fetch('temperature{dc=\"jb\"}').max(by=['dc', 'rack']) > 21)"
    door = "fetch('door.open{dc=\"jb\"}').last(by=['dc', 'rack'])"
    expect(RACKS, f"({hot} & {door}).range('3m')",
        {'{dc="jb",rack="r1"}': [True, False, False], '{dc="jb",rack="r2"}': [False, True, False]})  # fmt: skip
    expect(RACKS, f"({hot} & ~{door}).range('3m')",
        {'{dc="jb",rack="r1"}': [False, False, True], '{dc="jb",rack="r2"}': [True, False, True]})  # fmt: skip


VOLUMES = Given(
    {
        'disk.size{host="h1",rack="r1",volume="a"}': [100, 100, 100],
        'disk.size{host="h1",rack="r1",volume="b"}': [300, 300, 300],
        'disk.size{host="h2",rack="r2",volume="a"}': [200, 200, 400],
        'disk.used{host="h1",rack="r1",volume="a"}': [90, 92, 95],
        'disk.used{host="h1",rack="r1",volume="b"}': [30, NA, 90],
        'disk.used{host="h2",rack="r2",volume="a"}': [50, 50, 50],
        'disk.used{host="h3",rack="r2",volume="z"}': [1, 1, 1],
        'owner{host="h1",team="web"}': [1, 1, 1],
        'owner{host="h2",team="db"}': [1, 1, 1],
    }
)
PRESENT = '{volume!="z"}'


def test_free_space_of_every_volume() -> None:
    expect(
        VOLUMES,
        f"apply(sub, fetch('disk.size'), fetch('disk.used{PRESENT}'), on=['host', 'volume']).range('3m')",
        {
            '{host="h1",volume="a"}': [10.0, 8.0, 5.0],
            '{host="h1",volume="b"}': [270.0, NA, 210.0],
            '{host="h2",volume="a"}': [150.0, 150.0, 350.0],
        },
    )


def test_share_of_used_space_of_each_rack() -> None:
    expect(
        VOLUMES,
        f"(fetch('disk.used{PRESENT}').sum(by=['rack']) / fetch('disk.size').sum(by=['rack']) * 100).range('3m')",
        {'{rack="r1"}': [30.0, 23.0, 46.25], '{rack="r2"}': [25.0, 25.0, 12.5]},
    )


def test_a_volume_without_a_size() -> None:
    """Without a partner it is left out; an error that names it, or taken as empty, on request."""
    sub = "apply(sub, fetch('disk.used'), fetch('disk.size'), on=['host', 'volume']{})"
    refuse(VOLUMES, sub.format(", unmatched='error'") + ".at('now')", "h3", 'volume="z"', "unmatched")
    dropped = {'{host="h1",volume="a"}': [-5.0], '{host="h1",volume="b"}': [-210.0], '{host="h2",volume="a"}': [-350.0]}
    expect(VOLUMES, sub.format("") + ".at('now')", dropped)
    expect(VOLUMES, sub.format(", fill=0") + ".at('now')", {**dropped, '{host="h3",volume="z"}': [1.0]})


def test_two_volumes_for_one_host() -> None:
    """Several partners are an error that shows both, and the label that tells them apart."""
    refuse(VOLUMES, "apply(div, fetch('disk.used'), fetch('owner'), on=['host']).at('now')", 'volume="a"', 'volume="b"',
           "volume")  # fmt: skip


def test_volumes_with_the_team_of_their_host() -> None:
    """Many to one: the team comes along, the name goes."""
    expect(
        VOLUMES,
        f"apply(mul, fetch('disk.used{PRESENT}'), fetch('owner'), on=['host'], group_left=['team']).at('now')",
        {
            '{host="h1",rack="r1",team="web",volume="a"}': [95.0],
            '{host="h1",rack="r1",team="web",volume="b"}': [90.0],
            '{host="h2",rack="r2",team="db",volume="a"}': [50.0],
        },
    )


def test_used_space_of_each_team() -> None:
    expect(
        VOLUMES,
        f"fetch('disk.used{PRESENT}').join_labels(fetch('owner'), on=['host'], labels=['team'])"
        ".sum(by=['team']).at('now')",
        {'{team="db"}': [50.0], '{team="web"}': [185.0]},
    )


def test_the_fullest_volume_of_each_rack_by_name() -> None:
    expect(VOLUMES, f"fetch('disk.used{PRESENT}').argmax('volume', by=['host']).range('2m')",
        {'{host="h1"}': ["a", "a"], '{host="h2"}': ["a", "a"]})  # fmt: skip
    expect(VOLUMES, "fetch('disk.used').bottomk(2, by=[]).at('now')",
        {'disk.used{host="h2",rack="r2",volume="a"}': [50],
         'disk.used{host="h3",rack="r2",volume="z"}': [1]})  # fmt: skip


def test_share_of_the_whole() -> None:
    """One series as a plain value; more than one is an error that says how many."""
    total = f"fetch('disk.used{PRESENT}').sum(by=BY).scalar()"
    expect(VOLUMES, f"(fetch('disk.used{PRESENT}').sum(by=['rack']) / {total.replace('BY', '[]')}).at('now')",
        {'{rack="r1"}': [185 / 235], '{rack="r2"}': [50 / 235]})  # fmt: skip
    bad = total.replace("BY", "['rack']")
    refuse(VOLUMES, f"(fetch('disk.used').sum(by=['rack']) / {bad}).at('now')", "exactly one series and got 2")


REQUESTS = Given(
    {
        'requests{dc="jb",host="h1"}': [100, 160, 220, 30, 90],
        'requests{dc="jb",host="h2"}': [NA, NA, 60, 120, 240],
        'requests{dc="mu",host="h3"}': [1000, 1000, NA, 1030, 1090],
    },
    kinds=dict.fromkeys(
        ('requests{dc="jb",host="h1"}', 'requests{dc="jb",host="h2"}', 'requests{dc="mu",host="h3"}'), "counter"
    ),
    # h1 restarts half a minute before its fourth value, h2 is born at 07:57:00, h3 long ago
    births={
        'requests{dc="jb",host="h1"}': [60, 60, 60, 1.5, 1.5],
        'requests{dc="jb",host="h2"}': [3, 3, 3, 3, 3],
        'requests{dc="mu",host="h3"}': [600, 600, 600, 600, 600],
    },
)  # fmt: skip


def test_requests_of_each_minute_over_a_restart() -> None:
    """The restart counts from 0: nothing is negative, nothing lost. A process already old when first seen has no first
    difference; one that was born in the window has."""
    expect(
        REQUESTS,
        "fetch('requests').increase().range('5m')",
        {
            'requests{dc="jb",host="h1"}': [NA, 60, 60, 30, 60],
            'requests{dc="jb",host="h2"}': [NA, NA, 60, 60, 120],
            'requests{dc="mu",host="h3"}': [NA, 0, NA, 30, 60],
        },
    )


def test_windows_of_increase_add_up() -> None:
    expect(
        REQUESTS,
        "fetch('requests').increase('4m').at('now')",
        {
            'requests{dc="jb",host="h1"}': [210],
            'requests{dc="jb",host="h2"}': [240],
            'requests{dc="mu",host="h3"}': [90],
        },
    )


def test_rate_by_site() -> None:
    """Rates first, then the sum: two minutes of h1 from 07:58 to 08:00 give 90 in 120 s, of h2 180 in 120 s; h3 grew by
    90 since 07:57, the newest sample before the window."""
    expect(REQUESTS, "fetch('requests').rate('2m').sum(by=['dc']).at('now')",
        {'{dc="jb"}': [90 / 120 + 180 / 120], '{dc="mu"}': [90 / 180]})  # fmt: skip


def test_a_sum_under_rate_gives_a_warning() -> None:
    expect(REQUESTS, "fetch('requests').sum(by=['dc']).rate('2m').at('now')",
        {'{dc="jb"}': [(330 - 280) / 120], '{dc="mu"}': [90 / 180]}, ["does not see resets"])  # fmt: skip


def test_delta_and_resets() -> None:
    expect(REQUESTS, "fetch('requests{host=\"h1\"}').delta('4m').at('now')", {'requests{dc="jb",host="h1"}': [-10]})
    expect(REQUESTS, "fetch('requests{dc=\"jb\"}').resets('4m').at('now')",
        {'requests{dc="jb",host="h1"}': [1], 'requests{dc="jb",host="h2"}': [0]})  # fmt: skip


BIG = 2**53
HUGE = Given({"bytes": [BIG + 1, BIG + 2, BIG + 5]}, births={"bytes": [600, 600, 600]}, kinds={"bytes": "counter"})


def test_counters_beyond_2_53_stay_exact() -> None:
    expect(HUGE, "fetch('bytes').increase('2m').at('now')", {"bytes": [4]})
    expect(HUGE, "fetch('bytes').map('max', '3m').at('now')", {"bytes": [BIG + 5]})
    expect(HUGE, f"(fetch('bytes') > {BIG + 4}).range('3m')", {"{}": [False, False, True]})


LATENCY = Given(
    {
        f'latency{{dc="{dc}",host="{host}",le="{le}"}}': [0, count]
        for dc, host, counts in (
            ("jb", "h1", (10, 30, 40, 40)),
            ("jb", "h2", (0, 10, 10, 20)),
            ("mu", "h3", (0, 0, 0, 5)),
        )
        for le, count in zip(("0.1", "0.5", "1", "+Inf"), counts, strict=True)
    }
)


def test_median_latency_of_each_host() -> None:
    """h1: the 20th of 40 lies half way in (0.1, 0.5]. h2: the 10th of 20 is the last of (0.1, 0.5]. h3 knows only that
    all are above 1: the greatest bound."""
    expect(
        LATENCY,
        "fetch('latency').histogram_quantile(0.5, by=['host']).at('now')",
        {'{host="h1"}': [0.1 + 0.4 * 10 / 20], '{host="h2"}': [0.5], '{host="h3"}': [1.0]},
    )


def test_latency_of_each_site_from_increases() -> None:
    """Buckets of all hosts together: 10, 40, 50, 60 in jb; the 54th of 60 lies above the greatest bound."""
    text = "fetch('latency').delta('1m').sum(by=['dc', 'le']).histogram_quantile({}, by=['dc']).at('now')"
    expect(LATENCY, text.format(0.9), {'{dc="jb"}': [1.0], '{dc="mu"}': [1.0]})
    expect(LATENCY, text.format(0.75), {'{dc="jb"}': [0.5 + 0.5 * 5 / 10], '{dc="mu"}': [1.0]})
    expect(LATENCY, "fetch('latency{le!=\"+Inf\"}').histogram_quantile(0.5, by=[]).at('now')", {"{}": [float("nan")]},
        ["1 classes without a bucket le=\"+Inf\" are NaN"])  # fmt: skip


LOAD = Given(
    {'load{host="h1"}': [1.0, 2.0, 3.0], 'load{host="h2"}': [5.0, 5.0, NA], 'maintenance{host="h2"}': [NA, 1, 1]}
)


def test_office_hours_in_another_zone() -> None:
    """08:00 UTC is 09:00 in Berlin: the bucket that ends then is the last of the hour before."""
    for condition, kept in ((">= 9", NA), ("== 8", 3.0)):
        expect(LOAD, f"fetch('load').where(fetch('load').calendar('hour', zone='Europe/Berlin') {condition}).at('now')",
            {'load{host="h1"}': [kept]})  # fmt: skip
    expect(LOAD, "fetch('load').calendar('weekday').at('now')", {'load{host="h1"}': [5]})


def test_hosts_under_maintenance_are_left_out() -> None:
    """At each step: h2 still shows where it was not under maintenance."""
    expect(LOAD, "fetch('load').unless(fetch('maintenance'), on=['host']).range('3m')",
        {'load{host="h1"}': [1.0, 2.0, 3.0], 'load{host="h2"}': [5.0, NA, NA]})  # fmt: skip
    expect(
        LOAD, "fetch('load').and_(fetch('maintenance'), on=['host']).range('3m')", {'load{host="h2"}': [NA, 5.0, NA]}
    )


def test_the_last_value_bridges_a_gap_but_no_end() -> None:
    """A window looks back; not beyond what the source said was the end."""
    expect(LOAD, "fetch('load').map('last', '2m').at('now')", {'load{host="h1"}': [3.0], 'load{host="h2"}': [5.0]})
    over = Given(LOAD.values, ended={'load{host="h2"}': 1})
    expect(over, "fetch('load').map('last', '2m').at('now')", {'load{host="h1"}': [3.0], 'load{host="h2"}': [NA]})


def test_filled_gaps() -> None:
    gaps = Given({"x": [1.0, NA, 3.0, NA, NA, NA, 7.0]})
    expect(gaps, "fetch('x').fill('previous', max_gap='1m').range('7m')", {"x": [1.0, 1.0, 3.0, 3.0, NA, NA, 7.0]})
    expect(gaps, "fetch('x').fill('linear', max_gap='2m').range('7m')", {"x": [1.0, 2.0, 3.0, NA, NA, NA, 7.0]})
    expect(gaps, "fetch('x').fill('linear').range('7m')", {"x": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]})
    expect(gaps, "fetch('x').fill('value', 0, max_gap='1m').range('7m')", {"x": [1.0, 0.0, 3.0, NA, NA, NA, 7.0]})


THREE = Given(
    {
        'cpu.user{host="h1"}': [10, 20], 'cpu.user{host="h2"}': [1, 2],
        'cpu.system{host="h1"}': [5, 5], 'cpu.system{host="h2"}': [7, NA],
        'cpu.wait{host="h1"}': [1, 50], 'cpu.wait{host="h2"}': [0, 0],
    }
)  # fmt: skip


def test_three_operands() -> None:
    three = "fetch('cpu.user'), fetch('cpu.system'), fetch('cpu.wait')"
    expect(
        THREE,
        f"apply('add', {three}, on=['host']).range('2m')",
        {'{host="h1"}': [16.0, 75.0], '{host="h2"}': [8.0, NA]},
    )
    expect(THREE, f"apply('max', {three}, on=['host']).range('2m')", {'{host="h1"}': [10, 50], '{host="h2"}': [7, NA]})
    expect(
        THREE, "fetch('cpu.*').sum(by=['host']).range('2m')", {'{host="h1"}': [16.0, 75.0], '{host="h2"}': [8.0, 2.0]}
    )


BUILDS = Given(
    {
        'build{dc="jb",host="h1"}': ["2.1-rc1", "2.1", "2.1"],
        'build{dc="jb",host="h2"}': ["2.0", "2.0", "2.1"],
        'build{dc="mu",host="h3"}': ["2.0", NA, "2.0"],
        'ready{dc="mu",host="h3"}': [True, NA, False],
    }
)


def test_hosts_of_each_version() -> None:
    expect(BUILDS, "fetch('build').count_values('version', by=['dc']).at('now')",
        {'{dc="jb",version="2.1"}': [2], '{dc="mu",version="2.0"}': [1]})  # fmt: skip
    expect(BUILDS, "fetch('build').replace('-.*', '').count_values('version', by=[]).range('3m')",
        {'{version="2.0"}': [2, 1, 1], '{version="2.1"}': [1, 1, 2]})  # fmt: skip


def test_hosts_with_an_old_version() -> None:
    expect(BUILDS, "(fetch('build') != \"2.1\").at('now')", {
        '{dc="jb",host="h1"}': [False], '{dc="jb",host="h2"}': [False], '{dc="mu",host="h3"}': [True]})  # fmt: skip
    expect(BUILDS, "fetch('build').filter('last', '!=', '2.1').at('now')", {'build{dc="mu",host="h3"}': ["2.0"]})
    expect(BUILDS, "fetch('build').match('2\\\\.1.*').sum(by=['dc']).range('3m')",
        {'{dc="jb"}': [1.0, 1.0, 2.0], '{dc="mu"}': [0.0, NA, 0.0]})  # fmt: skip
    expect(BUILDS, "fetch('build').changes('3m').at('now')", {
        'build{dc="jb",host="h1"}': [1], 'build{dc="jb",host="h2"}': [1], 'build{dc="mu",host="h3"}': [0]})  # fmt: skip


def test_texts_under_numbers() -> None:
    """Text has no mean: an error if there is nothing else, else they are left out, and counted."""
    refuse(BUILDS, "fetch('build').mean(by=[]).at('now')", "STRING")
    expect(
        BUILDS, "fetch('{host=\"h3\"}').mean(by=[]).range('3m')", {"{}": [1.0, NA, 0.0]}, ["1 STRING series left out"]
    )


def test_absent_stale_and_last_seen() -> None:
    expected = "absent('load', expected=['host=\"h1\"', 'host=\"h2\"', 'host=\"h9\"']).range('2m')"
    expect(LOAD, expected, {'load{host="h1"}': [False, False], 'load{host="h2"}': [False, True],
                         'load{host="h9"}': [True, True]})  # fmt: skip
    expect(LOAD, "fetch('load').stale('30s').range('2m')",
        {'load{host="h1"}': [False, False], 'load{host="h2"}': [False, True]})  # fmt: skip
    expect(LOAD, "fetch('load').last_seen().at('now')", {'load{host="h1"}': [T], 'load{host="h2"}': [T - MINUTE]})
    expect(LOAD, "absent('load{host=\"h9\"}').at('now')", {'load{host="h9"}': [True]})


QUEUES = Given(
    {
        f'queue{{dc="{dc}",host="{host}"}}': values
        for dc, host, values in (
            ("jb", "h1", [9, 1, 5]), ("jb", "h2", [1, 9, 6]), ("jb", "h3", [5, 5, 5]),
            ("mu", "h4", [0, 0, 2]), ("mu", "h5", [NA, 3, NA]),
        )
    }
)  # fmt: skip


def test_the_longest_queues_of_each_site() -> None:
    """By the newest value; ties by name and labels. `each` masks all but the best of every minute."""
    expect(QUEUES, "fetch('queue').topk(1, by=['dc']).range('3m')",
        {'queue{dc="jb",host="h2"}': [1, 9, 6], 'queue{dc="mu",host="h5"}': [NA, 3, NA]})  # fmt: skip
    expect(QUEUES, "fetch('queue{dc=\"jb\"}').topk(1, by=[], rank='each').range('3m')",
        {'queue{dc="jb",host="h1"}': [9, NA, NA], 'queue{dc="jb",host="h2"}': [NA, 9, 6]})  # fmt: skip
    expect(QUEUES, "fetch('queue').topk(2, by=['dc'], rank='mean').sort('mean', descending=True).limit(2).range('3m')",
        {'queue{dc="jb",host="h2"}': [1, 9, 6], 'queue{dc="jb",host="h1"}': [9, 1, 5]})  # fmt: skip


def test_order_of_all_and_of_texts() -> None:
    """Numbers first, then what has no order; a reducer behind a sort sees names in their order again."""
    mixed = Given({**QUEUES.values, "queue": ["z", "z", "z"]})
    expect(mixed, "fetch('queue').sort('max').range('3m')", {
        'queue{dc="mu",host="h4"}': [0, 0, 2], 'queue{dc="mu",host="h5"}': [NA, 3, NA],
        'queue{dc="jb",host="h3"}': [5, 5, 5], 'queue{dc="jb",host="h1"}': [9, 1, 5],
        'queue{dc="jb",host="h2"}': [1, 9, 6], "queue": ["z", "z", "z"]})  # fmt: skip
    expect(
        QUEUES,
        "fetch('queue').sort('max').first(by=['dc']).range('3m')",
        {'{dc="jb"}': [9, 1, 5], '{dc="mu"}': [0, 0, 2]},
    )


def test_spread_and_quantiles_of_each_site() -> None:
    values = np.array([[9, 1, 5], [1, 9, 6], [5, 5, 5]], float)
    expect(QUEUES, "fetch('queue{dc=\"jb\"}').sd(by=['dc']).range('3m')",
        {'{dc="jb"}': np.std(values, axis=0, ddof=1).tolist()})  # fmt: skip
    expect(QUEUES, "fetch('queue{dc=\"jb\"}').quantile(0.9, by=['dc']).range('3m')",
        {'{dc="jb"}': np.quantile(values, 0.9, axis=0).tolist()})  # fmt: skip
    expect(QUEUES, "fetch('queue{dc=\"jb\"}').quantile(0.9, method='lower', by=['dc']).range('3m')",
        {'{dc="jb"}': np.quantile(values, 0.9, axis=0, method="lower").tolist()})  # fmt: skip


def test_disk_full_in_some_hours() -> None:
    """A straight line: 100 now, 10 less a minute, so 500 below zero in an hour; empty in ten minutes."""
    filling = Given({"disk.free": [140, 130, 120, 110, 100]})
    expect(filling, "fetch('disk.free').predict_linear('5m', horizon='1h').at('now')", {"disk.free": [-500.0]})
    expect(
        filling,
        "(fetch('disk.free').predict_linear('5m', horizon='1h') < 0).at('now')",
        {"{}": [True]},
    )
    expect(filling, "(fetch('disk.free') / (fetch('disk.free').derivative('5m') * -60)).at('now')", {"{}": [10.0]})


def test_outliers_and_smoothing() -> None:
    values = [10.0, 11.0, 9.0, 10.0, 30.0]
    given = Given({"x": values})
    score = (values[-1] - np.mean(values)) / np.std(values, ddof=1)
    expect(given, "fetch('x').zscore('5m').at('now')", {"x": [float(score)]})
    median = np.median(values)
    robust = 0.6745 * (values[-1] - median) / np.median(np.abs(np.array(values) - median))
    expect(given, "fetch('x').zscore('5m', robust=True).at('now')", {"x": [float(robust)]})
    expect(given, "fetch('x').ewma('3m', alpha=0.5).at('now')", {"x": [0.5 * 30 + 0.5 * (0.5 * 10 + 0.5 * 9)]})


def test_against_last_week() -> None:
    """Visits of this minute and of the same one a week ago; how far the hour is off four earlier weeks."""
    past = {"visits": [(T - k * WEEK, v) for k, v in ((4, 90), (3, 110), (2, 100), (1, 80))]}
    given = Given({"visits": [120]}, more=past)
    expect(given, "(fetch('visits') / fetch('visits').offset('1w')).at('now')", {"{}": [1.5]}, shards=False)
    expect(given, "(fetch('visits') - fetch('visits').shift('1w')).at('now')", {"{}": [40.0]}, shards=False)
    off = (120 - 95) / np.std([90, 110, 100, 80], ddof=1)
    expect(given, "fetch('visits').deviation(window='1h', weeks=4).at('now')", {"visits": [float(off)]}, shards=False)


def test_five_minutes_in_one_bucket() -> None:
    given = Given({"x": [1, 5, 3, NA, 4, 10, NA, 2, 0, 8], 'y{k="1"}': [True, False] * 5})
    expect(given, "fetch('x').bucketize('max', '5m').range('10m')", {"x": [5, 10]})
    expect(given, "fetch('x').bucketize('mean', '5m').range('10m')", {"x": [13 / 4, 20 / 4]})
    expect(given, "fetch('x').bucketize('count', '5m').range('10m')", {"x": [4, 4]})
    expect(given, "fetch('x').bucketize('median', '5m').range('10m')", {"x": [3.5, 5.0]})
    expect(given, "fetch('y').bucketize('mean', '10m').range('10m')", {'y{k="1"}': [0.5]})


def test_hosts_named_by_their_rack() -> None:
    """A label made of another one, a class by it, the old one gone."""
    given = Given(
        {'up{host="r1-n7"}': [1, 1], 'up{host="r1-n8"}': [1, 0], 'up{host="r2-n1"}': [1, 1], 'up{host="x"}': [1, 1]}
    )
    expect(given, "fetch('up').label_replace('rack', '$1', 'host', '(r[0-9]+)-.*').sum(by=['rack']).range('2m')",
        {"{}": [1.0, 1.0], '{rack="r1"}': [2.0, 1.0], '{rack="r2"}': [1.0, 1.0]},
        ["1 series without rack"])  # fmt: skip
    refuse(given, "fetch('up').relabel('host', 'same').at('now')", "up")


def test_missing_is_not_zero() -> None:
    """A count of nothing is 0, all else is missing; division by zero is no error."""
    expect(LOAD, "fetch('load').count(by=[]).range('3m')", {"{}": [2, 2, 1]})
    expect(LOAD, "fetch('load{host=\"h2\"}').map('count').range('2m')", {'load{host="h2"}': [1, 0]})
    expect(
        LOAD, "(fetch('load') / 0).range('2m')", {'{host="h1"}': [float("inf")] * 2, '{host="h2"}': [float("inf"), NA]}
    )
    expect(LOAD, "(fetch('load{host=\"h1\"}') * 0 / 0).at('now')", {'{host="h1"}': [float("nan")]})
