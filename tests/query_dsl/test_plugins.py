"""Functions of installed packages: found by name, usable in text, and harmless if broken."""

from __future__ import annotations

import logging
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from query_dsl.functions.plugins import GROUP, load
from query_dsl.functions.tables import built_in_names

ROOT = Path(__file__).parents[2]
MODULE = """
import numpy as np
from artimon.compute.window_frames import window_view
from artimon.compute.arrays import Mapped
from query_dsl import Matrix
from query_dsl.functions.mappers import Mapper
from query_dsl.functions.operators import Operator
from query_dsl.functions.reducers_base import Reduced, Reducer
from query_dsl.functions.registry import Argument, PointFunction
from query_dsl.functions.step import Step
from query_dsl.results.result_cells import Cells, Example, as_floats, doubles


def _spread(data, frame, *args):
    values = window_view(as_floats(data.types, np.ascontiguousarray(data.stats["last"])), frame)
    return Mapped(doubles(values.max(axis=2) - values.min(axis=2), np.ones(values.shape[:2], bool)))


SPREAD = Mapper(
    name="spread", statistics=("last",), run=_spread, summary="Greatest less smallest.",
    example="fetch('x').map('spread', '5m')", case=Example(((1.0, 3.0),), (0.0, 2.0)),
)


def _plus(column, args, points):
    return doubles(as_floats(column.types, column.cells) + args["number"], column.present)


PLUS = PointFunction(
    name="plus", summary="Adds.", example="fetch('x').map('plus', 1)", case=Example(((1.0,),), (2.0,)),
    arguments=(Argument("number", "number", "what is added"),), run=_plus,
)
OTHER = PointFunction(
    name="another", summary="Adds.", example="fetch('x').map('another')", case=Example(((1.0,),), (2.0,)), run=_plus,
)
def _middle(members, args):
    high = np.maximum.reduceat(np.where(members.column.present, members.floats, -np.inf), members.starts, axis=0)
    low = np.minimum.reduceat(np.where(members.column.present, members.floats, np.inf), members.starts, axis=0)
    return Reduced(doubles((high + low) / 2 * args["times"], members.counts > 0))


MIDDLE = Reducer(
    name="middle", summary="Half way.", example="fetch('x').reduce('middle', by=[])", case=Example(((1.0,),), (1.0,)),
    arguments=(Argument("times", "number", "a factor", 1),), run=_middle,
)
HYPOT = Operator(
    name="hypotenuse", summary="Root of the squares.", example="apply('hypotenuse', fetch('x'), fetch('x'))",
    case=Example(((3.0,), (4.0,)), (5.0,)), symbol="", precedence=0, family="arithmetic", run=np.hypot,
)


def _newest(asked):
    found = asked.child()
    keep = np.zeros(found.present.shape, bool)
    keep[:, -asked.args["n"]:] = True
    return Matrix(found.keys, found.grid, Cells(found.types, found.cells, found.present & keep), found.strings)


NEWEST = Step(
    name="newest_only", summary="The newest.", example="fetch('x').transform('newest_only', 1)", family="transform",
    case=Example(((1.0, 2.0),), (None, 2.0)), case_args="1", run=_newest,
    arguments=(Argument("n", "integer", "how many", least=1),),
)
NO_ENTRY = 5
"""
ENTRY_POINTS = f"""
[{GROUP}]
spread = artimon_test_plugin:SPREAD
plus = artimon_test_plugin:PLUS
middle = artimon_test_plugin:MIDDLE
hypotenuse = artimon_test_plugin:HYPOT
newest_only = artimon_test_plugin:NEWEST
mean = artimon_test_plugin:PLUS
gone = artimon_test_plugin:GONE
missing = artimon_test_missing:X
number = artimon_test_plugin:NO_ENTRY
renamed = artimon_test_plugin:OTHER
"""
PROGRAM = """
import json, logging, sys
logging.basicConfig(stream=sys.stderr, format="%(levelname)s %(message)s")
from query_dsl import QueryError, fetch, offline, parse
store = offline({"x": [(60_000, 1.0), (120_000, 4.0)]})
out = {"before": "artimon_test_plugin" in sys.modules, "mean": store.query("fetch('x').map('mean', '2m')").latest()}
out["still"] = "artimon_test_plugin" in sys.modules
out["spread"] = store.query("fetch('x').map('spread', '2m').at('now')").latest()
out["plus"] = store.query("fetch('x').map('plus', 5).at('now')").latest()
out["python"] = store.query(fetch("x").map("plus", number=5).at("now")).latest()
out["reduced"] = store.query("fetch('x').map('spread', '2m').sum(by=[]).at('now')").latest()
texts = [
    "fetch('x').map('plus', 5)", "fetch('y.*').reduce('middle', by=['k'], times=2)",
    "apply('hypotenuse', fetch('y.a'), fetch('y.b'), on=['k'])", "fetch('x').transform('newest_only', 1)",
]
out["same"] = all(parse(str(parse(text))).equals(parse(text)) for text in texts)
pairs = offline({"y.a{k='1'}": [(60_000, 3)], "y.b{k='1'}": [(60_000, 4.0)], "y.a{k='2'}": [(60_000, 6)]})
out["middle"] = dict(list(pairs.query(f"({texts[1]}).at('now')")))
out["hypotenuse"] = list(pairs.query("apply('hypotenuse', fetch('y.a'), fetch('y.b'), on=['k'], unmatched='drop')"
                                     ".at('now')"))
out["newest"] = list(store.query(texts[3] + ".range('2m')"))
from query_dsl.language.completion import complete
out["completed"] = [
    complete(text, None, store).words
    for text in (
        "fetch('x').reduce('mid", "apply('hyp", "fetch('x').transform('new", "fetch('x').map('spr", "apply(hyp",
    )
]
wrong = []
for text in ("fetch('x').map('plus')", "fetch('x').map('gone', '5m')", "fetch('x').reduce('spread', by=[])"):
    try:
        parse(text)
    except QueryError as problem:
        wrong.append(problem.message)
print(json.dumps({**out, "wrong": wrong}))
"""


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A folder for sys.path in which a package with entry points is installed."""
    (tmp_path / "artimon_test_plugin.py").write_text(MODULE)
    about = tmp_path / "artimon_test_plugin-1.2.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: artimon-test-plugin\nVersion: 1.2\n")
    (about / "entry_points.txt").write_text(ENTRY_POINTS)
    return tmp_path


def test_they_are_found_when_they_are_asked(installed: Path) -> None:
    import json
    import os

    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{installed}"}
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["before"], told["still"]) == (False, False)
    assert told["mean"] == [2.5]
    assert (told["spread"], told["plus"], told["python"], told["reduced"]) == ([3.0], [9.0], [9.0], [3.0])
    assert told["same"] is True
    assert told["middle"] == {'{k="1"}': [7.0], '{k="2"}': [12.0]}
    assert told["hypotenuse"] == [['{k="1"}', [5.0]]]
    assert told["newest"] == [["x", [None, 4.0]]]
    assert told["completed"] == [["middle"], ["hypotenuse"], ["newest_only"], ["spread"], ["hypotenuse"]]
    assert [text.split(":")[0].split(";")[0] for text in told["wrong"]] == [
        *("plus needs number", "unknown function 'gone'", "unknown reducer 'spread'")
    ]
    warnings = done.stderr.splitlines()
    assert len(warnings) == 5
    assert all(line.startswith("WARNING the function ") for line in warnings)
    assert all("artimon-test-plugin 1.2" in line for line in warnings)


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("mean", "query_dsl.functions.reducers:ENTRIES", "cannot be replaced"),
        ("fetch", "query_dsl.functions.reducers:ENTRIES", "cannot be replaced"),
        ("collect", "query_dsl.functions.reducers:ENTRIES", "cannot be replaced"),
        ("topk", "query_dsl.functions.reducers:ENTRIES", "cannot be replaced"),
        ("own_one", "query_dsl.functions.reducers:ENTRIES", "not an entry"),
        ("own_one", "query_dsl.nothing:X", "ModuleNotFoundError"),
        ("own_one", "query_dsl.tree.query_errors:NOTHING", "AttributeError"),
        ("own-one", "query_dsl.tree.query_errors:similar_hint", "not a valid function name"),
        ("_one", "query_dsl.tree.query_errors:similar_hint", "not a valid function name"),
    ],
)
def test_unusable_plugins_are_skipped_with_a_reason(name: str, value: str, told: str) -> None:
    found, problems = load([EntryPoint(name, value, GROUP)], built_in_names())
    assert not found
    assert told in problems[0]
    assert name in problems[0]


def test_no_plugin_is_no_message(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert load([], frozenset()) == ({}, ())
    assert not caplog.records
