"""Charts of alerts: pictures that a decoder reads, of the samples of the alert's own series."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np
import pytest

from alerts.evaluation.alert_charts import MAX_SECONDS, REST_S, AlertCharts
from alerts.receivers.chart_image import HEIGHT, MARGIN, MAX_BYTES, WIDTH, draw
from artimon.model.select import Buckets, SelectRequest
from tests.alerts.worlds import MINUTE, World
from tests.query_dsl.plain_store import PlainStore

RULES = """
rules:
  - {name: level, expr: "fetch('level')", threshold: "> 5", missing: keep, labels: {severity: page}}
  - {name: mean, expr: "fetch('level').map('mean', '5m').range('30m')", threshold: "> 5", missing: keep}
  - {name: state, expr: "fetch('state')", threshold: "== 'bad'", missing: keep}
  - {name: high, promql: "level > 5"}
  - {name: all, promql: "sum(level)", threshold: "> 6", missing: keep}
"""


def pixels_of(png: bytes) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    """Decode a PNG with a palette and filter 0, with all checksums."""
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    at, parts = 8, list[tuple[bytes, bytes]]()
    while at < len(png):
        (length,) = struct.unpack(">I", png[at : at + 4])
        kind, data = png[at + 4 : at + 8], png[at + 8 : at + 8 + length]
        assert struct.unpack(">I", png[at + 8 + length : at + 12 + length]) == (zlib.crc32(kind + data),)
        parts.append((kind, data))
        at += 12 + length
    assert [kind for kind, _ in parts] == [b"IHDR", b"PLTE", b"IDAT", b"IEND"]
    assert struct.unpack(">IIBBBBB", parts[0][1]) == (WIDTH, HEIGHT, 8, 3, 0, 0, 0)
    lines = np.frombuffer(zlib.decompress(parts[2][1]), np.uint8).reshape(HEIGHT, WIDTH + 1)
    assert not lines[:, 0].any()
    return np.array(lines[:, 1:])


def test_a_line_from_the_lowest_to_the_highest_value() -> None:
    blue = pixels_of(draw(np.arange(10.0), np.arange(10.0))) == 2
    columns = np.flatnonzero(blue.any(axis=0))
    assert columns[0] == MARGIN - 1
    assert columns[-1] == WIDTH - MARGIN
    assert len(columns) == columns[-1] - columns[0] + 1  # without a gap
    assert blue[HEIGHT - 1 - MARGIN, MARGIN]
    assert blue[MARGIN, WIDTH - 1 - MARGIN]


def test_missing_values_are_a_gap_and_the_threshold_is_dashed() -> None:
    values = np.where((np.arange(60) > 20) & (np.arange(60) < 40), np.nan, 1.0)
    found = pixels_of(draw(np.arange(60.0), values, 3.0))
    assert not (found[:, WIDTH // 2] == 2).any()
    assert 0.4 < (found[MARGIN] == 3).mean() < 0.6


@pytest.mark.parametrize(
    "values",
    [[], [np.nan], [5.0], [np.inf, 1.0], [-1e308, 1e308], [0.0] * 5, list(np.random.default_rng(1).random(5_000))],
)
def test_any_values_have_a_picture_of_limited_size(values: list[float]) -> None:
    png = draw(np.arange(float(len(values))), np.array(values, np.float64), 1.0)
    pixels_of(png)
    assert len(png) <= MAX_BYTES


@pytest.fixture
def high(world: World) -> World:
    """Three hours of two hosts, of which one is above the threshold at last."""
    world.write(RULES)
    for minute in range(180):
        world.time += MINUTE
        world.clock.advance(MINUTE)
        world.put({"a": 9 if minute > 170 else 1, "b": 2}, "level")
        world.put({"a": "bad" if minute > 170 else "good"}, "state")
    assert world.engine.evaluate_due()
    return world


def test_each_alert_has_the_chart_of_its_series(high: World) -> None:
    charts = AlertCharts(high.store, lambda: high.engine.active, high.clock)
    found = {note.rule: charts.chart(note) for note in high.notes()}
    assert found.keys() == {"level", "mean", "state", "high", "all"}
    shown = {rule: chart.text for rule, chart in found.items() if chart is not None}
    assert shown == {
        "level": "last 3h: 1 to 9", "mean": "last 3h: 1 to 9", "high": "last 3h: 1 to 9", "all": "last 3h: 3 to 11",
    }  # fmt: skip
    for rule in ("level", "high"):
        chart = found[rule]
        assert chart is not None
        pixels = pixels_of(chart.png)
        assert (pixels == 3).any()  # the threshold, also of a comparison in PromQL
        assert (pixels[:, WIDTH // 3] == 2).any()


def test_a_rule_that_is_gone_has_no_chart(high: World) -> None:
    note = high.notes()[0]
    assert AlertCharts(high.store, lambda: None, high.clock).chart(note) is None


class SlowStore(PlainStore):
    """A store each of whose answers takes two seconds."""

    def __init__(self, world: World) -> None:
        super().__init__(world.store.series)
        self._clock, self.asked = world.clock, 0

    def select(self, request: SelectRequest) -> Buckets:
        self.asked += 1
        self._clock.advance(int(2_000 * MAX_SECONDS))
        return super().select(request)


def test_after_a_slow_answer_mails_go_out_without_charts_for_a_while(high: World) -> None:
    slow = SlowStore(high)
    charts = AlertCharts(slow, lambda: high.engine.active, high.clock)
    first, second = [note for note in high.notes() if note.rule in ("level", "all")]
    assert charts.chart(first) is not None
    asked = slow.asked
    assert charts.chart(second) is None
    assert charts.chart(first) is not None  # it is known
    assert slow.asked == asked
    high.clock.advance(int(1_000 * REST_S))
    assert charts.chart(second) is not None


def test_an_error_leaves_the_mail_without_a_chart(high: World, tmp_path: Path) -> None:
    high.store.level_table = ()
    charts = AlertCharts(high.store, lambda: high.engine.active, high.clock)
    assert [charts.chart(note) for note in high.notes()] == [None] * len(high.notes())
