"""The example notebooks that need no stack, run in a kernel of this environment; what they say is computed again here,
by other means."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nbformat import NotebookNode

from tests.notebooks import code_cells, read_notebook, run_notebook

CAPACITY, MAPPER = "disk_capacity.ipynb", "own_mapper.ipynb"

CAPACITY_CHECK = """
import json
raw = made_up(seed)
sizes = {name.partition("{")[2]: points[-1][1] for name, points in raw.items() if name.startswith("disk.size")}
day = {name.partition("{")[2]: [v for _, v in points[-24:]] for name, points in raw.items() if "used" in name}
print(json.dumps({
    "sizes": sizes, "day": day,
    "share": {labels["rack"]: value for labels, time, value in share.at("now").collect().points()},
    "free": len(answer), "danger": sorted(f"{key.get('host')} {key.get('volume')}" for key in in_danger.keys),
    "by_rack": {key.get("rack"): value for key, value in zip(by_rack.collect().keys, by_rack.collect().latest())},
    "soonest": [[key.get("host"), key.get("volume"), value] for key, value in zip(soonest.keys, soonest.latest())],
    "days": len(frame),
}))
"""
MAPPER_CHECK = """
import json
print(json.dumps({
    "stuck": sorted(key.get("sensor") for key in stuck.range("2h").collect().keys),
    "minutes": sorted(set(stuck.range("2h").collect().latest())),
    "states": {key.get("sensor"): value for key, value in zip(states.keys, states.latest())},
    "last": {key.get("sensor"): values[-30:] for key, (_, values) in
        zip(temperature.range("2h").collect().keys, temperature.range("2h").collect(), strict=True)},
    "racks": {key.get("rack"): value for key, value in
        zip(by_rack.at("now").collect().keys, by_rack.at("now").collect().latest())},
    "far": [key.get("sensor") for key in far.range("2h").collect().keys],
    "mistake": str(mistake),
    "repr": repr(by_rack),
}))
"""


@pytest.mark.parametrize("name", [CAPACITY, MAPPER])
def test_they_are_kept_without_outputs(name: str) -> None:
    assert code_cells(read_notebook(name))[0].metadata.tags == ["parameters"]


Ran = tuple[NotebookNode, dict[str, Any]]


def ran(name: str, check: str, folder: Path) -> Ran:
    notebook = read_notebook(name)
    return notebook, run_notebook(notebook, check, folder, {}, timeout_s=240)


def outputs(notebook: NotebookNode, kind: str) -> list[str]:
    """Return the output of the cells of one kind."""
    found = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    return [output.data[kind] for output in found if kind in output.get("data", {})]


def quiet(notebook: NotebookNode) -> bool:
    """Return True if standard error is empty."""
    return not [o for cell in notebook.cells for o in cell.get("outputs", ()) if o.get("name") == "stderr"]


@pytest.mark.timeout(600)
def test_disk_capacity(tmp_path: Path) -> None:
    notebook, told = ran(CAPACITY, CAPACITY_CHECK, tmp_path)
    assert told["free"] == len(told["sizes"]) == 5_000
    hours = np.arange(-23, 1)
    wanted, days = set(), []
    for labels, used in told["day"].items():
        named = dict(pair.split("=") for pair in labels.strip("}").replace('"', "").split(","))
        slope, level = np.polyfit(hours, np.array(used, float), 1)
        size = told["sizes"][labels]
        if level + slope * 24 * 30 > size:
            wanted.add(f"{named['host']} {named['volume']}")
        if slope > 0:
            days.append(((size - used[-1]) / (slope * 24), named["host"], named["volume"]))
    assert told["danger"] == sorted(wanted)
    assert 50 < len(wanted) < 150
    assert sum(told["by_rack"].values()) == len(wanted)
    assert told["days"] == len(days)
    first = sorted(days)[:10]
    assert [[host, volume] for _, host, volume in first] == [one[:2] for one in told["soonest"]]
    assert [one[2] for one in told["soonest"]] == pytest.approx([value for value, _, _ in first], rel=1e-6)
    assert len(told["share"]) == 40
    assert all(0.3 < share < 0.8 for share in told["share"].values())
    pages = outputs(notebook, "text/html")
    assert len(pages) == 3
    assert pages[0].count("<svg") == 40
    assert len(outputs(notebook, "image/png")) == 1
    assert quiet(notebook)


@pytest.mark.timeout(600)
def test_an_own_mapper(tmp_path: Path) -> None:
    notebook, told = ran(MAPPER, MAPPER_CHECK, tmp_path)
    assert told["stuck"] == ["s007", "s047", "s087", "s127", "s167"]
    assert told["minutes"] == [29.0]
    for sensor, values in told["last"].items():
        spread = max(values) - min(values)
        assert told["states"][sensor] == ("stuck" if spread == 0 else "calm" if spread < 1.5 else "swinging")
    for rack, mean in told["racks"].items():
        members = sorted(values[-1] for sensor, values in told["last"].items() if f"r{int(sensor[1:]) % 10}" == rack)
        assert mean == pytest.approx(np.mean(members[2:-2]))
    assert told["far"] == ["s100"]
    assert "own function 'hasty'" in told["mistake"]
    assert "ZeroDivisionError" in told["mistake"]
    assert 'return 1.0 / (labels["sensor"] == "s000")' in told["mistake"]
    assert told["repr"] == "<query fetch('temperature').reduce(own('trimmed'), by=['rack'])>"
    assert len(outputs(notebook, "image/png")) == 1
    assert quiet(notebook)
