"""Test scripts in the language of Prometheus: our own, and those of Prometheus where they are beside the checkout."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from query_dsl.promql import NotSupported, PromqlError, instant_query, range_query
from query_dsl.promql.series_notation import points_of, series_of
from scripts.promql_scripts import Evaluation, Script, same
from tests.conftest import SHARED

ROOT = Path(__file__).resolve().parents[3]
OWN = sorted((Path(__file__).parent / "scripts").glob("*.test"))
OTHERS = sorted((SHARED / "conformance" / "promql").glob("*.test"))
STEP_MS = 60_000


@pytest.mark.parametrize("path", OWN, ids=lambda path: path.stem)
def test_our_scripts_pass(path: Path) -> None:
    script = Script(path.read_text())
    script.run()
    assert script.failures == []
    assert script.passed > 10


@pytest.mark.parametrize("path", OWN, ids=lambda path: path.stem)
def test_our_scripts_pass_on_shards(path: Path) -> None:
    script = Script(path.read_text(), shards=True)
    script.run()
    assert [line for line in script.failures if "sum(s)" not in line] == []  # its terms cancel: see docs/promql.md
    assert script.shards["passed"] > 10


@pytest.mark.shared
@pytest.mark.parametrize("path", OTHERS or [pytest.param(Path(), marks=pytest.mark.shared)], ids=lambda path: path.stem)
def test_scripts_of_prometheus_pass(path: Path) -> None:
    script = Script(path.read_text())
    script.run()
    assert script.failures == []
    assert script.passed > 10
    assert all("native histograms" in reason for reason in script.unsupported)


class RangeScript(Script):
    """Answers an instant evaluation by the middle of a range query, as Prometheus' own runner does too."""

    compared = 0

    def _check(self, one: Evaluation) -> None:
        if one.range_ms is not None or one.native or one.fails or one.ordered or "sort" in one.text:
            return
        try:
            instant = instant_query(one.text, one.at_ms, self.samples)
            if instant.type not in ("vector", "scalar"):
                return
            ranged = range_query(one.text, one.at_ms - STEP_MS, one.at_ms + STEP_MS, STEP_MS, self.samples)
        except NotSupported:
            return
        except PromqlError:  # at another step series may collide
            return
        if "start()" in one.text or "end()" in one.text:
            return
        expected = {tuple(labels.items()): points[0][1] for labels, points in instant.series()}
        found = {tuple(labels.items()): dict(points).get(one.at_ms) for labels, points in ranged.series()}
        for key, value in expected.items():
            assert same(found.get(key), value), (one.text, key, found.get(key), value)
        assert {key for key, value in found.items() if value is not None} == expected.keys(), one.text
        self.compared += 1


@pytest.mark.parametrize("path", OWN, ids=lambda path: path.stem)
def test_instant_answers_are_those_of_ranges(path: Path) -> None:
    script = RangeScript(path.read_text())
    script.run()
    assert script.compared > 8


@pytest.mark.shared
def test_instant_answers_of_the_scripts_of_prometheus_are_those_of_ranges() -> None:
    compared = 0
    for path in OTHERS:
        script = RangeScript(path.read_text())
        script.run()
        compared += script.compared
    assert compared > 200


def test_the_runner_finds_what_is_wrong(tmp_path: Path) -> None:
    path = tmp_path / "wrong.test"
    path.write_text(
        "load 1m\n  x 1 2\n\neval instant at 1m x\n  x 3\n\neval instant at 1m x\n  expect fail\n\n"
        "eval instant at 1m x\n  x 2\n\neval instant at 1m info(x)\n\neval instant at 1m x\n  expect warn\n  x 2\n"
    )
    done = subprocess.run(
        [ROOT / "scripts" / "promqltest", path, "--json"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert json.loads(done.stdout) == {"file": str(path), "passed": 1, "failed": 3, "unsupported": 1}
    assert "line 4: x: gave" in done.stderr


def test_values_and_series_of_scripts() -> None:
    assert points_of("1+2x2 _ _x2 5x1 -1-1x1 0x2") == [1, 3, 5, None, None, None, 5, 5, -1, -2, 0, 0, 0]
    assert series_of('a{b="c",d="e\\"f"} 1 2') == ({"__name__": "a", "b": "c", "d": 'e"f'}, "1 2")
    assert series_of("a{b='}', c=`{\"`} 1") == ({"__name__": "a", "b": "}", "c": '{"'}, "1")
    assert series_of('{"a.b", "c d"="e"} 1') == ({"__name__": "a.b", "c d": "e"}, "1")
