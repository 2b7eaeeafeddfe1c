"""The post-mortem notebook, run in a kernel of this environment against a history with a known accident."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from artimon.model.values import ValueType
from tests.history.world import HOUR_MS, START_MS, Given, HistoryWorld
from tests.notebooks import code_cells, read_notebook, run_notebook
from tests.series.world import block

NAME = "post_mortem.ipynb"
HOT_MS = START_MS + 97 * 60_000
SILENT_MS = 21 * 60_000
PARAMETERS = f"""
selector, by = "rack.temp", "rack"
start, end = {START_MS - 1}, {START_MS + 3 * HOUR_MS}
limit = 100_000
"""
CHECK = """
import json
print(json.dumps({
    "samples": len(answer),
    "suspect": [suspects.index[0], int(suspects["minute"].iloc[0].timestamp() * 1000), float(suspects.iloc[0, 1])],
    "ended": len(ended),
    "lives": {source: int(row["nunique"]) for source, row in births.iterrows()},
    "silent": [silence.index[0], silence.iloc[0].total_seconds() * 1000],
}))
"""


def test_the_notebook_is_kept_without_outputs() -> None:
    assert code_cells(read_notebook(NAME))[0].metadata.tags == ["parameters"]


@pytest.fixture(scope="module")
def accident(hdfs: str) -> HistoryWorld:
    """Three hours of four racks: rack r2 is hot for a minute, source s1 silent for a while, one series ends."""
    world = HistoryWorld(f"{hdfs}/m{uuid.uuid4().hex[:10]}")
    texts = [f'rack.temp{{host="h{n}",rack="r{n}"}}' for n in range(4)]
    world.announce([block(f"s{n}", 0, 1, [text], type=ValueType.DOUBLE) for n, text in enumerate(texts)])
    for hour in range(3):
        begin = START_MS + hour * HOUR_MS
        rows: list[Given] = []
        for at in range(begin, begin + HOUR_MS, 60_000):
            for n, text in enumerate(texts):
                if n != 1 or not START_MS + HOUR_MS <= at < START_MS + HOUR_MS + SILENT_MS - 60_000:
                    hot = 60.0 if n == 2 and at == HOT_MS else 0.0
                    rows.append((f"s{n}", text, at, 20 + n + at // 60_000 % 3 + hot))
        world.append(begin + HOUR_MS, rows)
    world.append(START_MS + 3 * HOUR_MS, [("s3", texts[3], START_MS + 3 * HOUR_MS, None)])
    return world


@pytest.mark.stack
@pytest.mark.timeout(400)
def test_the_notebook_finds_the_accident(accident: HistoryWorld, tmp_path: Path) -> None:
    notebook = read_notebook(NAME)
    next(cell for cell in notebook.cells if cell.cell_type == "code").source = PARAMETERS
    told = run_notebook(notebook, CHECK, tmp_path, {"ARTIMON_HDFS": accident.hdfs}, timeout_s=120)
    assert told["samples"] == len(accident.samples)
    assert told["suspect"][:2] == ["r2", HOT_MS]
    assert told["suspect"][2] > 80
    assert told["ended"] == 1
    assert told["silent"] == ["s1", SILENT_MS]
    assert set(told["lives"]) == {"s0", "s1", "s2", "s3"}
    pictures = [o for cell in notebook.cells for o in cell.get("outputs", ()) if "image/png" in o.get("data", {})]
    assert len(pictures) == 1
