"""The colours of the series can be told apart, whatever the eyes, and from the ground."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import numpy as np
import numpy.typing as npt
import pytest
from playwright.sync_api import Browser, Page

from tests.page.watched import Watched, module

Floats = npt.NDArray[np.float64]
COUNT = 7
# Linear RGB as it is seen without one of the three kinds of cones (Machado, Oliveira, Fernandes 2009, severity 1).
EYES: dict[str, Floats] = {
    "all cones": np.eye(3),
    "protanopia": np.array([[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]]),
    "deuteranopia": np.array([[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]]),
    "tritanopia": np.array([[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]]),
}
GROUNDS = {False: "#ffffff", True: "#161b22"}
APART = 20.0
"""Least CIE76 difference of two colours; 2.3 is just noticeable."""


@pytest.fixture(scope="module")
def page(browser: Browser, plain_address: str) -> Iterator[Page]:
    watched = Watched(browser, plain_address, "light", 800, 600)
    yield watched.open()
    watched.close()


def linear(text: str) -> Floats:
    part = np.array([int(text[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return np.where(part <= 0.04045, part / 12.92, ((part + 0.055) / 1.055) ** 2.4)


def lab(rgb: Floats) -> Floats:
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    xyz = to_xyz @ np.clip(rgb, 0, 1) / np.array([0.9505, 1.0, 1.089])
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def luminance(rgb: Floats) -> float:
    return float(rgb @ np.array([0.2126, 0.7152, 0.0722]))


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("eyes", EYES)
def test_they_differ_for_any_eyes(page: Page, dark: bool, eyes: str) -> None:
    styles = module(page, "series.js", "Array.from({length: 7}, (_, i) => m.styleOf(Array(7).fill({}), i, a))", dark)
    seen = [lab(EYES[eyes] @ linear(style["colour"])) for style in styles]
    for i, j in combinations(range(COUNT), 2):
        apart = float(np.linalg.norm(seen[i] - seen[j]))
        assert apart >= APART, f"{styles[i]['colour']} and {styles[j]['colour']}: {apart:.1f}"


@pytest.mark.parametrize("dark", [False, True])
def test_they_stand_out_from_the_ground(page: Page, dark: bool) -> None:
    for style in module(
        page, "series.js", "Array.from({length: 7}, (_, i) => m.styleOf(Array(7).fill({}), i, a))", dark
    ):
        one, other = sorted((luminance(linear(style["colour"])), luminance(linear(GROUNDS[dark]))))
        assert (other + 0.05) / (one + 0.05) >= 3, style["colour"]


def test_28_series_all_look_different(page: Page) -> None:
    styles = module(
        page,
        "series.js",
        "Array.from({length: 28}, (_, i) => JSON.stringify(m.styleOf(Array(28).fill({}), i, a)))",
        False,
    )
    assert len(set(styles)) == 28
