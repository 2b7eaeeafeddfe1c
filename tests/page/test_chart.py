"""Chart and legend: drawing, isolating, filtering, zoom, the cursor, many series, gaps."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.page.watched import MINUTE, START_MS, Watched, answer_with, colours, drawn, matrix, racks
from tests.waiting import eventually


@pytest.fixture
def watched(browser: Browser, plain_address: str) -> Iterator[Watched]:
    """A page whose questions the tests answer."""
    made = Watched(browser, plain_address, "light", 1440, 900)
    yield made
    made.close()


def shown(page: Page) -> list[str]:
    """Series that the legend says are drawn."""
    return page.locator("#legend tbody tr:not(.off) .name-cell").all_text_contents()


def given(watched: Watched, count: int = 4, n: int = 30, **state: str) -> Page:
    """A page with `count` racks drawn."""
    answer_with(watched.page, "query", matrix(racks(count, n)))
    page = watched.open("fetch('heat')", **state)
    drawn(page)
    return page


def test_the_legend_has_what_differs_and_statistics(watched: Watched) -> None:
    page = given(watched)
    assert shown(page) == [f'{{rack="r{i}"}}' for i in range(4)]
    expect(page.locator("#legend .common")).to_have_text("heat")
    assert page.locator("#legend tbody tr").nth(1).locator(".number").all_text_contents() == ["5", "1", "3", "5"]
    page.click('#legend button:has-text("max")')
    assert shown(page)[0] == '{rack="r3"}'


def test_a_click_isolates_and_another_brings_all_back(watched: Watched) -> None:
    page = given(watched)
    before = colours(page)
    page.click('#legend button:has-text("r2")')
    assert shown(page) == ['{rack="r2"}']
    assert "only=heat" in page.url
    eventually(lambda: colours(page) < before)
    page.click('#legend button:has-text("r2")')
    assert len(shown(page)) == 4


def test_the_mark_hides_one(watched: Watched) -> None:
    page = given(watched)
    page.get_by_role("button", name='Show {rack="r1"}').click()
    assert shown(page) == ['{rack="r0"}', '{rack="r2"}', '{rack="r3"}']
    page.click("#show-all")
    assert len(shown(page)) == 4


def test_the_filter_chooses_what_is_drawn(watched: Watched) -> None:
    page = given(watched, 12)
    page.fill("#filter", "r1")
    assert shown(page) == [f'{{rack="r{i}"}}' for i in (1, 10, 11)]
    expect(page.locator("#legend-note")).to_have_text("3 of 12 series fit the filter.")
    page.reload()
    drawn(page)
    assert len(shown(page)) == 3


def test_many_series_are_bounded_and_say_so(watched: Watched) -> None:
    page = given(watched, 1500, 20)
    expect(page.locator("#legend-note")).to_contain_text("200 of 1,500 series drawn")
    assert page.locator("#legend tbody tr").count() == 200
    page.fill("#filter", "r1499")
    assert shown(page) == ['{rack="r1499"}']


def test_a_hundred_thousand_points_are_drawn(watched: Watched) -> None:
    """`artimon bench chart` measures the time."""
    page = given(watched, 200, 500)
    assert colours(page) > 20
    assert float(page.get_attribute("#chart", "data-ms") or "nan") > 0


def test_drag_zooms_and_a_double_click_shows_all(watched: Watched) -> None:
    page = given(watched)
    box = page.locator("#chart .u-over").bounding_box()
    assert box is not None
    y = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + box["width"] * 0.4, y)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.6, y, steps=4)
    page.mouse.up()
    expect(page.locator("#zoom-out")).to_be_visible()
    found = re.search(r"zoom=(\d+)-(\d+)", page.url)
    assert found is not None
    assert START_MS < int(found[1]) < int(found[2]) < START_MS + 30 * MINUTE
    page.reload()
    expect(page.locator("#zoom-out")).to_be_visible()
    page.dblclick("#chart .u-over")
    expect(page.locator("#zoom-out")).to_be_hidden()
    assert "zoom=" not in page.url


def test_the_cursor_follows_the_keys_and_says_values(watched: Watched) -> None:
    page = given(watched)
    page.focus("#chart")
    page.keyboard.press("ArrowLeft")
    expect(page.locator("#live")).to_contain_text('{rack="r0"}: 4')
    page.keyboard.press("ArrowDown")
    expect(page.locator("#live")).to_contain_text('{rack="r1"}: 5')
    page.keyboard.press("Home")
    expect(page.locator("#live")).to_contain_text('{rack="r1"}: 1')
    expect(page.locator(".tooltip")).to_contain_text('{rack="r3"}')
    page.keyboard.press("+")
    expect(page.locator("#zoom-out")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#zoom-out")).to_be_hidden()


def test_the_mouse_shows_values(watched: Watched) -> None:
    page = given(watched, 20)
    page.hover("#chart .u-over")
    expect(page.locator(".tooltip .tooltip-line")).to_have_count(8)
    expect(page.locator(".tooltip")).to_contain_text("12 more")
    page.mouse.move(5, 5)
    expect(page.locator(".tooltip")).to_be_hidden()


def described(page: Page) -> list[list[str]]:
    """Last, min, mean and max of every series of the legend."""
    rows = page.locator("#legend tbody tr").all()
    return [row.locator(".number").all_text_contents() for row in rows]


def test_what_is_no_number_is_told_as_it_is(watched: Watched) -> None:
    made: list[dict[str, Any]] = [
        {"labels": {"a": "1"}, "values": ["NaN", "NaN", "NaN"]},
        {"labels": {"a": "2"}, "values": [1.0, "Infinity", None]},
        {"labels": {"a": "3"}, "values": ["-Infinity", 3.0, "NaN"]},
        {"labels": {"a": "4"}, "type": "BOOLEAN", "values": [True, False, True]},
        {"labels": {"a": "5"}, "values": [None, None, None]},
    ]
    answer_with(watched.page, "query", matrix(made))
    page = watched.open("fetch('heat')")
    drawn(page)
    assert described(page) == [
        ["NaN", "NaN", "NaN", "NaN"],
        ["∞", "1", "∞", "∞"],
        ["NaN", "−∞", "−∞", "3"],
        ["true", "false", "0.6667", "true"],
        ["–", "–", "–", "–"],
    ]
    page.click('#legend button:has-text("max")')
    assert [row[3] for row in described(page)] == ["∞", "3", "true", "NaN", "–"]
    page.focus("#chart")
    page.keyboard.press("End")
    for told in ("NaN", "missing", "NaN", "true", "missing"):
        expect(page.locator("#live")).to_contain_text(f": {told}")
        page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowUp")
    expect(page.locator(".tooltip")).to_contain_text("true")


WRITTEN = """
window.written = [];
const plain = CanvasRenderingContext2D.prototype.fillText;
CanvasRenderingContext2D.prototype.fillText = function (text, x, y, ...rest) {
  const box = this.measureText(text), width = this.canvas.width;
  const at = this.getTransform().transformPoint({x, y}).x;
  window.written.push({text, left: at - box.actualBoundingBoxLeft, right: at + box.actualBoundingBoxRight - width});
  return plain.call(this, text, x, y, ...rest);
};
"""


def cut_off(page: Page) -> list[str]:
    """Labels of the axes that do not stand on the canvas as a whole."""
    written = page.evaluate("() => window.written")
    assert len(written) > 4
    return [one["text"] for one in written if one["left"] < 0 or one["right"] > 0]


@pytest.mark.parametrize(
    ("top", "label"), [(1.0, "0.2"), (-2e18, "-1.00e+18"), (1e18, "5.00e+17"), (1e-9, "5.00e-10"), (123456.0, "120k")]
)
def test_no_label_of_an_axis_is_cut_off(watched: Watched, top: float, label: str) -> None:
    page = watched.page
    page.add_init_script(WRITTEN)
    values = [top * i / 59 for i in range(60)]
    answer_with(page, "query", matrix([{"values": values}]))
    watched.open("fetch('heat')")
    drawn(page)
    assert label in page.evaluate("() => window.written.map((one) => one.text)")
    assert not cut_off(page)


def test_no_time_is_cut_off_in_any_zoom_and_width(watched: Watched) -> None:
    page = watched.page
    page.add_init_script(WRITTEN)
    answer_with(page, "query", matrix(racks(1, 60)))
    end = START_MS + 60 * MINUTE  # near it stands the last label, with seconds where the span is short
    for span, width in (
        (60, 1440),
        (30, 1010),
        (7, 700),
        (3, 360),
    ):
        page.set_viewport_size({"width": width, "height": 700})
        watched.open("fetch('heat')", zoom=f"{end - span * MINUTE}-{end}")
        drawn(page)
        assert not cut_off(page), (span, width)


def test_missing_values_leave_a_gap(watched: Watched) -> None:
    values: list[float | str | None] = [1.0, None, 3.0, "NaN", 4.0, 4.5, None, None, 2.0, 2.0]
    answer_with(watched.page, "query", matrix([{"values": values}, {"labels": {"a": "b"}, "values": [None] * 10}]))
    page = watched.open("fetch('heat')")
    drawn(page)
    drawing = (
        "[...document.querySelectorAll('#legend tbody tr')].map((row) => row.querySelector('.number').textContent)"
    )
    assert page.evaluate(drawing) == ["2", "–"]
    page.focus("#chart")
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    expect(page.locator("#live")).to_contain_text("missing")


def test_notes_partial_and_incomplete_are_told(watched: Watched) -> None:
    told = matrix(racks(1), partial=True, complete=False, notes=["shard 1 did not answer"])
    answer_with(watched.page, "query", told)
    page = watched.open("fetch('heat')")
    for text in ("Partial", "whole range", "shard 1 did not answer"):
        expect(page.locator("#notes")).to_contain_text(text)


@pytest.mark.parametrize("notes", [["heat: none of 3 series has a sample in the range"], []])
def test_an_empty_answer_says_why(watched: Watched, notes: list[str]) -> None:
    answer_with(watched.page, "query", matrix([], notes=notes))
    page = watched.open("fetch('heat')")
    expect(page.locator("#empty")).to_contain_text("The answer has no series")
    expect(page.locator("#empty")).to_contain_text(notes[0] if notes else "No series fits")
    expect(page.locator("#notes")).to_be_hidden()
    expect(page.locator("#panel-chart")).to_be_hidden()


def test_an_empty_answer_tells_what_else_is_known(watched: Watched) -> None:
    told = matrix([], partial=True, complete=False, notes=["nothing was kept before today"])
    answer_with(watched.page, "query", told)
    page = watched.open("fetch('heat')", range="3d")
    for text in ("Partial", "whole range", "nothing was kept before today"):
        expect(page.locator("#empty")).to_contain_text(text)
    page.unroute("**/api/query*")
    answer_with(page, "query", matrix(racks(2), notes=["another note"]))
    page.get_by_role("radio", name="1 h", exact=True).check()
    drawn(page)
    expect(page.locator("#empty")).to_be_empty()
    expect(page.locator("#notes")).to_have_text("another note")
