"""The notebooks over a year of the demo, run in a kernel of this environment; what they say is computed again here."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from artimon.model.clock import ManualClock
from artimon.stack.demo_fleet import DAY_MS, HOUR_MS, MINUTE_MS, DemoFleet, DemoSamples
from artimon.stack.demo_history import import_samples
from pipeline.compaction.compaction_settings import CompactorConfig, parse_keep, parse_rollups
from pipeline.compaction.compactor import Compactor
from tests.history.world import HistoryWorld
from tests.notebooks import code_cells, read_notebook, run_notebook
from tests.spark.local_files import local_files

END = 1_795_000_020_000 // MINUTE_MS * MINUTE_MS
DAYS = 240
"""Enough for the oldest incident: each day costs the compactor a commit."""
CAPACITY, INCIDENT = "capacity_year.ipynb", "incident_year.ipynb"
CAPACITY_PARAMETERS = 'selector, full, days_of_trend, horizon_days = "{context=\\"demo\\"}", 0.95, 90, 180'
INCIDENT_PARAMETERS = f"""
requests, failed_label, failed_value = "http.requests", "status", "500"
version, by, limit, objective = "shop.version", "datacenter", 0.02, 0.999
start, end = {END - 3 * DAY_MS}, {END}
"""
CAPACITY_CHECK = """
import json
print(json.dumps({
    "forecast": {f"{row.host} {row.volume}": [row.share, row.days] for row in forecast.itertuples()},
    "soon": len(soon), "series": growth["series"].tolist(), "samples": int(growth["samples"].sum()),
}))
"""
INCIDENT_CHECK = """
import json
ms = lambda times: [int(time.timestamp() * 1000) for time in times]
print(json.dumps({
    "places": incidents["place"].tolist(), "begin": ms(incidents["begin"]), "end": ms(incidents["end"]),
    "changed": near["value"].tolist(), "earlier": ms(earlier["begin"]), "last": ms(earlier["end"]),
    "failed": float(hours["failed"].sum()), "budget": float(months["budget"].max()),
}))
"""


@dataclass(frozen=True)
class Year:
    """A fleet with all of its samples, stored in the history on `hdfs`."""

    hdfs: str
    fleet: DemoFleet
    times_ms: Any
    values: Any
    present: Any

    def rows(self, name: str, **labels: str) -> list[int]:
        series = enumerate(self.fleet.series)
        return [row for row, (one, found) in series if one == name and labels.items() <= found.items()]


@pytest.fixture(scope="module")
def year(tmp_path_factory: pytest.TempPathFactory) -> Year:
    folder, clock = tmp_path_factory.mktemp("year"), ManualClock(END + 2 * DAY_MS)
    fleet, chunks = DemoFleet(10, DAYS, END), list[DemoSamples]()

    def kept() -> Iterator[DemoSamples]:
        for chunk in chain(fleet.past(), fleet.samples()):
            chunks.append(chunk)
            yield chunk

    with local_files(clock):
        world = HistoryWorld(f"file://{folder}/files")
        stored = import_samples(fleet, kept(), world.hdfs, folder, clock)
        world.builder.settle(clock.now_ms() // DAY_MS * DAY_MS)
        keeping, rollups = parse_keep("*=99999"), parse_rollups("1h=ever,1d=ever")
        config = CompactorConfig("", world.hdfs, folder / "compactor", keeping=keeping, rollups=rollups, sweep_s=0.0)
        Compactor(config, None, clock).run_due(threading.Event())
    times = np.concatenate([chunk.times_ms for chunk in chunks])
    values, present = (
        np.concatenate([getattr(chunk, name) for chunk in chunks], axis=1) for name in ("values", "present")
    )
    assert stored == present.sum()
    return Year(world.hdfs, fleet, times, values, present)


def ran(year: Year, name: str, parameters: str, check: str, folder: Path) -> dict[str, Any]:
    notebook = read_notebook(name)
    next(cell for cell in notebook.cells if cell.cell_type == "code").source = parameters
    told = run_notebook(notebook, check, folder, {"ARTIMON_HDFS": year.hdfs}, timeout_s=240)
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    assert not [output for output in outputs if output.get("name") == "stderr"]
    assert len([output for output in outputs if "image/png" in output.get("data", {})]) == 2
    return told


@pytest.mark.parametrize("name", [CAPACITY, INCIDENT])
def test_they_are_kept_without_outputs(name: str) -> None:
    assert code_cells(read_notebook(name))[0].metadata.tags == ["parameters"]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_capacity(year: Year, tmp_path: Path) -> None:
    told = ran(year, CAPACITY, CAPACITY_PARAMETERS, CAPACITY_CHECK, tmp_path)
    wanted = {}
    for row in year.rows("host.volume.used.bytes"):
        labels = year.fleet.series[row][1]
        (size,) = year.rows("host.volume.size.bytes", host=labels["host"], volume=labels["volume"])
        share, slope = trend(year, year.values[row] / year.values[size, -1], year.present[row])
        if slope > 0:
            wanted[f"{labels['host']} {labels['volume']}"] = [share, max(0.0, (0.95 - share) / slope)]
    assert told["forecast"].keys() == wanted.keys()
    for key, found in told["forecast"].items():
        assert found == pytest.approx(wanted[key], rel=1e-6, abs=1e-9), key
    assert told["soon"] == sum(days < 180 for _, days in wanted.values()) > 0
    assert told["series"][0] < told["series"][-1] == len(year.fleet.series)
    assert told["samples"] == year.present.sum()


def trend(year: Year, share: Any, present: Any) -> tuple[float, float]:
    """Greatest share of the last day, and its growth a day by a line through the last 90 days of all."""
    days = -(-(year.times_ms - MINUTE_MS + 5_000) // DAY_MS)
    ends = np.unique(days[present])
    most = np.array([share[present & (days == end)].max() for end in ends])
    chosen = ends > days[-1] - 90  # one host is silent at last
    return float(most[-1]), float(np.polyfit(ends[chosen], most[chosen], 1)[0])


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_incident(year: Year, tmp_path: Path) -> None:
    told = ran(year, INCIDENT, INCIDENT_PARAMETERS, INCIDENT_CHECK, tmp_path)
    newest = [year.fleet.incidents[name] for name in ("deploy", "again")]
    assert told["places"] == ["dc1", "dc1"]
    assert told["begin"] == pytest.approx([one.begin_ms for one in newest], abs=MINUTE_MS)
    assert told["end"] == pytest.approx([one.end_ms - MINUTE_MS for one in newest], abs=MINUTE_MS)
    assert len(told["changed"]) >= len(newest)
    former = [year.fleet.incidents[name] for name in ("first", "spring")]
    assert told["earlier"][:2] == pytest.approx([one.begin_ms for one in former], abs=HOUR_MS)
    assert told["last"][:2] == pytest.approx([one.end_ms for one in former], abs=HOUR_MS)
    grown = [year.values[row][year.present[row]] for row in year.rows("http.requests", status="500")]
    assert told["failed"] == pytest.approx(sum(one[-1] - one[0] for one in grown), rel=1e-9)
    assert told["budget"] > 1
