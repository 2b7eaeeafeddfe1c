"""The example notebook, run in a kernel of this environment against the whole stack and a shop with visitors."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from nbformat import NotebookNode

import artimon
from artimon.session import Session
from artimon.stack.stack import Stack
from query_dsl import QueryError
from tests.examples.shopping import shop, visit
from tests.notebooks import code_cells, read_notebook, run_notebook
from tests.waiting import eventually

NAME = "first_look.ipynb"
INSTANCE = f"notebook-{uuid.uuid4().hex[:8]}"  # other tests may have had shops on the same stack
COUNTED = f"""fetch('shop.requests{{instance="{INSTANCE}"}}').increase('30m').sum(by=['route', 'status']).at('now')"""
CHECK = f"""
import json
counted = session.query({COUNTED!r})
both = session.fetch("shop.requests").increase("5m").sum(by=["route", "status"]).at("now").collect(at=moment)
print(json.dumps({{
    "counted": {{f"{{at['route']}} {{at['status']}}": value for at, _, value in counted.points()}},
    "both": [[at["route"], at["status"], value] for at, _, value in both.points() if value is not None],
    "share": {{at["route"]: value for at, _, value in error_share.at("now").collect(at=moment).points() if value}},
    "busy": [value for _, _, value in busy.collect().points() if value is not None],
    "modes": sorted(at["mode"] for at in by_mode.collect().labels),
    "busiest": dict(busiest),
    "again": frame.equals(by_route.to_pandas(at=moment)),
    "text": repr(by_route),
}}))
"""


def test_the_notebook_is_kept_without_outputs() -> None:
    assert 8 <= len(code_cells(read_notebook(NAME))) <= 12


Ran = tuple[NotebookNode, dict[str, Any]]


@pytest.fixture(scope="module")
def seen(whole_stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, int]]:
    """Responses by "route status" that visitors got of a shop that still runs, all of them in settled buckets."""
    places = {"ARTIMON_ZOOKEEPER": whole_stack.zookeeper, "ARTIMON_INSTANCE": INSTANCE}
    places["ARTIMON_RUN"] = str(tmp_path_factory.mktemp("run"))
    with shop("--latency", "0.1", "--seed", "3", "--failures", "10", **places) as (_, url):
        found = visit(url, "--rate", "200", "--seconds", "4", ARTIMON_DISABLED="1")["responses"]
        wanted = sum(found.values())
        with artimon.connect(data=whole_stack.data) as session:
            eventually(lambda: _counted(session) == wanted, seconds=150, pause=2)
        yield found


def _counted(session: Session) -> object:
    """Requests to this test's shop in settled buckets."""
    try:
        return sum(value for value in session.query(COUNTED).latest() if isinstance(value, int | float))
    except QueryError:  # no series yet
        return None


@pytest.fixture(scope="module")
def ran(seen: Mapping[str, int], whole_stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """The notebook with its outputs, and what the check cell behind it says."""
    notebook = read_notebook(NAME)
    places = {"ARTIMON_ZOOKEEPER": whole_stack.zookeeper}
    return notebook, run_notebook(notebook, CHECK, tmp_path_factory.mktemp("jupyter"), places)


def shown(notebook: NotebookNode, source: str) -> NotebookNode:
    """The data of the last output of the cell in which `source` stands."""
    (cell,) = [cell for cell in notebook.cells[:-1] if cell.cell_type == "code" and source in cell.source]
    data: NotebookNode = cell.outputs[-1].data
    return data


@pytest.mark.stack
@pytest.mark.turn(5)
@pytest.mark.timeout(400)
class TestRun:
    """The output of the cells equals what the visitors saw."""

    def test_it_counts_what_the_visitors_saw(self, ran: Ran, seen: Mapping[str, int]) -> None:
        assert ran[1]["counted"] == seen

    def test_the_share_of_errors_is_right(self, ran: Ran) -> None:
        total, bad = Counter[str](), Counter[str]()
        for route, status, value in ran[1]["both"]:
            total[route] += value
            bad[route] += value if status >= "500" else 0
        wanted = {route: bad[route] / total[route] for route in bad if bad[route]}
        assert wanted
        assert ran[1]["share"] == pytest.approx(wanted)

    def test_the_machine_is_neither_idle_nor_more_than_busy(self, ran: Ran) -> None:
        assert ran[1]["busy"]
        assert all(0 < share <= 1 for share in ran[1]["busy"])
        assert {"idle", "user", "system"} <= set(ran[1]["modes"])

    def test_pandas_and_at(self, ran: Ran) -> None:
        assert next(iter(ran[1]["busiest"])) == '{route="/product/<id>"}'
        assert ran[1]["again"] is True

    def test_what_a_reader_sees(self, ran: Ran) -> None:
        notebook, told = ran
        assert "<table>" in shown(notebook, "by_route.collect()")["text/html"]
        assert "&lt;id&gt;" in shown(notebook, "by_route.collect()")["text/html"]
        for chart in ("by_route.plot()", "busy.plot("):
            assert len(shown(notebook, chart)["image/png"]) > 5_000
        assert "shop.requests{" in shown(notebook, "session.find(")["text/plain"]
        assert told["text"].startswith("<query fetch('shop.requests')")
        stderr = [
            o for cell in notebook.cells if cell.cell_type == "code" for o in cell.outputs if o.get("name") == "stderr"
        ]
        assert stderr == []
