"""The fleet of `artimon demo`: its samples are plausible, the same each time, and an agent takes all of them."""

from __future__ import annotations

import asyncio
import os
import re
import socket
from collections.abc import Callable
from functools import cache
from pathlib import Path

import cramjam
import numpy as np
import pytest
from typer.testing import CliRunner

from alerts.rules.rule_folder import examine_files
from artimon.cli import app
from artimon.dashboards.dashboard_file import REFERENCE, Dashboard, read_dashboard
from artimon.dashboards.dashboard_store import DashboardText, read_shipped
from artimon.model.clock import SYSTEM_CLOCK, ManualClock
from artimon.model.values import Kind
from artimon.stack import demo_sender
from artimon.stack.child_process import start_time
from artimon.stack.demo_files import PLACES, place_file, place_files
from artimon.stack.demo_fleet import (
    COARSE_MS,
    DAY_MS,
    HOUR_MS,
    MAX_SENT_DAYS,
    METRICS,
    MINUTE_MS,
    SENT_DAYS,
    DemoFleet,
    Times,
)
from artimon.stack.demo_history import import_samples
from artimon.stack.demo_sender import DemoError, DemoSender, RequestTemplate, metadata_request
from artimon.stack.stack_state import PartState, StackState, write_state
from query_dsl.stores.history.engine import History
from sources.receive.remote_write import RemoteWriteReader
from sources.scrape.jmx.mapping_file import rule_set
from tests.alerts.worlds import START, World
from tests.query_dsl.plain_store import PlainStore, Sample, ask, by_series
from tests.sockets import free_port
from tests.sources.helpers import KeepingSink, running
from tests.waiting import until

END = 1_795_000_020_000 // MINUTE_MS * MINUTE_MS


def rows_of(fleet: DemoFleet, name: str, **labels: str) -> list[int]:
    return [row for row, (one, found) in enumerate(fleet.series) if one == name and labels.items() <= found.items()]


def test_the_same_seed_and_times_give_the_same_samples() -> None:
    first, second = (list(DemoFleet(10, 1, END).samples()) for _ in range(2))
    assert all(np.array_equal(a.values, b.values) for a, b in zip(first, second, strict=True))
    other = next(DemoFleet(10, 1, END, seed=2).samples())
    assert not np.array_equal(first[0].values, other.values)


def test_times_are_coarse_before_and_fine_at_last() -> None:
    times = np.concatenate([chunk.times_ms for chunk in DemoFleet(1, 5, END).samples()])
    steps = np.diff(times)
    assert set(steps.tolist()) == {COARSE_MS, MINUTE_MS}
    assert times[0] == END - 5 * DAY_MS
    assert times[-1] == END
    assert int((steps == MINUTE_MS).sum()) == 3 * 1_440


def test_a_year_has_a_sample_an_hour_before_its_last_month() -> None:
    fleet = DemoFleet(40, 365, END)
    past = list(fleet.past())
    first, times = past[0], np.concatenate([chunk.times_ms for chunk in past])
    assert set(np.diff(times).tolist()) == {HOUR_MS}
    assert times[0] == END - 365 * DAY_MS
    sent = next(fleet.samples())
    assert sent.times_ms[0] == times[-1] + HOUR_MS == END - SENT_DAYS * DAY_MS
    counters = [row for row, (name, _) in enumerate(fleet.series) if METRICS[name].kind == "counter"]
    assert (sent.values[counters, 0] >= past[-1].values[counters, -1]).all()
    assert 0.7 < first.present[:, 0].mean() < 0.9
    assert sent.present.mean() > 0.97
    used, size = (
        rows_of(fleet, f"host.volume.{name}.bytes", volume="/data", role="db")[1] for name in ("used", "size")
    )
    grown = (sent.values[used, -1] - first.values[used, 0]) / sent.values[size, 0]
    assert 0.3 < grown < 0.7


def test_a_month_has_no_past() -> None:
    assert list(DemoFleet(1, MAX_SENT_DAYS, END).past()) == []


def test_a_year_cannot_go_to_an_agent_alone() -> None:
    done = CliRunner().invoke(app, ["demo", "--days", "90", "--to", "http://127.0.0.1:1"])
    assert done.exit_code == 2
    assert "at most 89 days" in done.output


def test_the_past_is_imported_once(tmp_path: Path) -> None:
    fleets = (DemoFleet(4, 100, END) for _ in range(2))
    stored = [
        import_samples(fleet, fleet.past(), f"file://{tmp_path}/files", tmp_path, ManualClock(END + 1))
        for fleet in fleets
    ]
    wanted = sum(int(chunk.present.sum()) for chunk in DemoFleet(4, 100, END).past())
    assert stored == [wanted, 0]
    with History(f"file://{tmp_path}/files") as history:
        answer = history.read("host.load", 0, END, samples=10_000_000)
    assert len(answer) == 3 * 70 * 24 * 4 - missing_before(DemoFleet(4, 100, END))


def missing_before(fleet: DemoFleet) -> int:
    """Samples of `host.load` that hosts would have had before they were set up."""
    rows = rows_of(fleet, "host.load")
    return sum(int((~chunk.present[rows]).sum()) for chunk in fleet.past())


def test_counters_are_whole_and_never_fall() -> None:
    fleet = DemoFleet(20, 4, END)
    values = np.concatenate([chunk.values for chunk in fleet.samples()], axis=1)
    counters = [row for row, (name, _) in enumerate(fleet.series) if METRICS[name].kind == "counter"]
    assert (np.diff(values[counters], axis=1) >= 0).all()
    assert (values[counters] == np.floor(values[counters])).all()
    assert np.isfinite(values).all()
    assert (values >= 0).all()


def test_buckets_of_a_histogram_rise_with_their_bound() -> None:
    fleet = DemoFleet(5, 1, END)
    chunk = next(fleet.samples())
    host = fleet.fleet[0].labels
    buckets = rows_of(fleet, "http.request.seconds.bucket", host=host["host"])
    grown = chunk.values[buckets, -1] - chunk.values[buckets, 0]
    assert (np.diff(grown) >= -1).all()  # each is rounded down by itself
    assert fleet.series[buckets[-1]][1]["le"] == "+Inf"


def test_each_incident_shows_in_the_series() -> None:
    fleet = DemoFleet(40, 10, END)
    chunks = list(fleet.samples())
    times = np.concatenate([chunk.times_ms for chunk in chunks])
    values = np.concatenate([chunk.values for chunk in chunks], axis=1)
    present = np.concatenate([chunk.present for chunk in chunks], axis=1)
    used = rows_of(fleet, "host.volume.used.bytes", volume="/data", role="db")[0]
    size = rows_of(fleet, "host.volume.size.bytes", volume="/data", role="db")[0]
    assert values[used, -1] / values[size, -1] > 0.95
    assert values[used, 0] / values[size, 0] < 0.5
    rack = fleet.incidents["rack"]
    dark = present[rows_of(fleet, "host.load", rack="r03")][:, rack.share(times) > 0]
    assert dark.size
    assert not dark.any()
    silent = rows_of(fleet, "host.load", role="batch")[0]
    assert not present[silent, -1]
    assert present[silent, times < END - 27 * HOUR_MS].any()
    deploy = fleet.incidents["deploy"].share(times) > 0
    failed = rows_of(fleet, "http.requests", status="500", datacenter="dc1")
    grown = np.diff(values[failed], axis=1, prepend=values[failed, :1]).sum(axis=0)
    fine = times > END - 2 * DAY_MS - 6 * HOUR_MS
    assert grown[deploy & fine].mean() > 20 * grown[~deploy & fine].mean()


def test_a_request_holds_the_samples_that_it_was_filled_with() -> None:
    fleet = DemoFleet(3, 1, END)
    template = RequestTemplate(fleet.series, END)
    values = np.arange(len(fleet.series), dtype=np.float64) * 1.5
    times = END + fleet.phases_ms
    here = [row for row in range(len(fleet.series)) if row % 3]
    for chosen in (None, here):
        reader = RemoteWriteReader(None)
        packed = bytes(cramjam.snappy.compress_raw(template.fill(values, times, chosen)))
        found = reader.read(packed, "1").columns
        rows = list(range(len(fleet.series))) if chosen is None else chosen
        assert sorted(zip(found.cell.view(np.float64).tolist(), found.time_ms.tolist(), strict=True)) == sorted(
            zip(values[rows].tolist(), times[rows].tolist(), strict=True)
        )


def test_metadata_name_every_variable() -> None:
    reader = RemoteWriteReader(None)
    reader.read(bytes(cramjam.snappy.compress_raw(metadata_request())), "1")
    assert {name for name, _ in DemoFleet(5, 1, END).series} <= METRICS.keys()


async def sent_twice(place: Path, fleet: DemoFleet) -> tuple[KeepingSink, DemoSender, int]:
    """Send two minutes of the fleet twice to an agent."""
    sink, address = KeepingSink(), f"127.0.0.1:{free_port()}"
    chunk = fleet.at(np.array([fleet.end_ms - MINUTE_MS, fleet.end_ms]), MINUTE_MS)
    sender = DemoSender(f"http://{address}", fleet)
    async with running("127.0.0.1:1", place, sink, receive=(address,)):
        await until(lambda: is_answering(address), "the receiver listens")
        await asyncio.to_thread(sender.send, chunk)
        await asyncio.to_thread(sender.send, chunk)
        sender.close()
    return sink, sender, int(chunk.present.sum())


def is_answering(address: str) -> bool:
    host, port = address.split(":")
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) == 0


def test_an_agent_takes_every_sample_once(tmp_path: Path) -> None:
    fleet = DemoFleet(6, 1, SYSTEM_CLOCK.now_ms() // MINUTE_MS * MINUTE_MS)
    sink, sender, samples = asyncio.run(sent_twice(tmp_path, fleet))
    stored = [one for one in sink.accepted if one.source.startswith("received/")]
    assert sum(len(one.samples) for one in stored) == samples
    assert len({one.source for one in stored}) == demo_sender.SENDERS
    assert sender.samples == 2 * samples


def test_an_address_without_an_agent_is_an_error() -> None:
    fleet = DemoFleet(1, 1, END)
    sender = DemoSender(f"http://127.0.0.1:{free_port()}", fleet)
    with pytest.raises(DemoError, match="no agent receives at"):
        sender.load(lambda _share, _samples: None)


STACK = Path(demo_sender.__file__).parent
SHIPPED = {name: DashboardText(name, found.text, True).read() for name, found in read_shipped().items()}


def fill(store: PlainStore, fleet: DemoFleet, times: Times, chosen: Callable[[str], bool] = lambda _name: True) -> None:
    """Add the samples of the names that are chosen, each at its phase in the minute that ends at a time."""
    chunk, phases = fleet.at(times, MINUTE_MS), fleet.phases_ms
    for row, (name, labels) in enumerate(fleet.series):
        if chosen(name):
            at = chunk.present[row]
            ends = (times[at] - MINUTE_MS + phases[row]).tolist()
            points = [Sample(time, value, 1) for time, value in zip(ends, chunk.values[row][at].tolist(), strict=True)]
            store.add(name, labels, points, Kind[METRICS[name].kind.upper()])


@cache
def last_minutes() -> PlainStore:
    """Return the last ten minutes of a fleet in which every role has a host."""
    store = PlainStore()
    fill(store, DemoFleet(40, 30, END), np.arange(END - 10 * MINUTE_MS, END + 1, MINUTE_MS))
    return store


def asked(board: Dashboard, query: str, store: PlainStore) -> str:
    """Return the query of a panel with all values of each variable, or with the first one where it takes only one."""
    values = {}
    for one in board.variables:
        assert one.series
        assert one.label
        found = [series.labels for series in store.series if series.name == one.series.partition("{")[0]]
        values[one.name] = ".*" if one.multi else found[0][one.label]
    return REFERENCE.sub(lambda match: values[match[1] or match[2]], query)


@pytest.mark.parametrize(
    ("name", "query"),
    [
        pytest.param(name, query.q, id=f"{name}-{panel.title}-{number}")
        for name, board in SHIPPED.items()
        if name != "artimon"
        for panel in board.panels
        for number, query in enumerate(panel.queries)
    ],
)
def test_each_panel_of_the_shipped_dashboards_shows_the_demo(name: str, query: str) -> None:
    store = last_minutes()
    found = by_series(ask(asked(SHIPPED[name], query, store), store, END))
    assert any(value is not None for values in found.values() for value in values)


def test_names_of_services_are_those_of_the_jmx_rules() -> None:
    rules = {v.name: v for name in ("jvm", "hdfs", "kafka") for bean in rule_set(name) for v in bean.variables}
    names = [name for name in METRICS if name.startswith(("jvm.", "hdfs.", "kafka."))]
    assert len(names) > 15
    for name in names:
        assert (METRICS[name].kind, METRICS[name].unit) == (rules[name].kind.name.lower(), rules[name].unit), name


def test_versions_change_with_each_release_and_each_deploy_that_fails() -> None:
    fleet = DemoFleet(4, 30, END)
    chunks = list(fleet.samples())
    versions = {}
    for row in rows_of(fleet, "shop.version"):
        values = np.concatenate([chunk.values[row] for chunk in chunks])
        versions[fleet.series[row][1]["datacenter"]] = values[np.flatnonzero(np.diff(values, prepend=0))].tolist()
    assert versions == {
        "dc1": [4.0, 4.1, 4.2, 4.3, 4.4, 4.5, 4.4, 4.5, 4.6, 4.5],
        "dc2": [4.0, 4.1, 4.2, 4.3, 4.4, 4.5],
    }


def test_the_files_of_the_demo_are_good() -> None:
    assert examine_files([STACK / "demo_rules.yaml"]) == ([], [])
    board = read_dashboard((STACK / "demo_dashboard.yaml").read_text(), "demo.yaml")
    assert board.marks
    assert board.marks.starts
    queries = [query.q for panel in board.panels for query in panel.queries]
    for query in (*queries, board.marks.starts):
        assert by_series(ask(query, last_minutes(), END)), query
    texts = [*queries, (STACK / "demo_rules.yaml").read_text()]
    assert {name for text in texts for name in re.findall(r"fetch\('([a-z.]+)", text)} <= METRICS.keys()


def test_rules_fire_with_the_last_incidents_and_resolve_after_them(tmp_path: Path) -> None:
    """Thirty hours up to now, and an hour of --live."""
    world, fleet = World(tmp_path), DemoFleet(10, 2, START)
    world.write((STACK / "demo_rules.yaml").read_text())
    names = set(re.findall(r"fetch\('([a-z.]+)", (STACK / "demo_rules.yaml").read_text()))
    fill(world.store, fleet, np.arange(START - 30 * HOUR_MS, START + HOUR_MS + 1, MINUTE_MS), names.__contains__)

    def told() -> set[tuple[str, str, str]]:
        errors = {name: result.error for name, result in world.engine.view().results.items() if result.error}
        assert not errors
        labels = [(note, dict(note.labels)) for note in world.changes()]
        return {(note.rule, str(note.kind), found.get("host", found.get("datacenter", ""))) for note, found in labels}

    world.time -= MINUTE_MS
    world.tick()
    assert told() == {
        ("demo-disk-full", "firing", "demo-db-006"),
        ("demo-host-silent", "firing", "demo-batch-009"),
        ("demo-failed-requests", "firing", "dc1"),
    }
    world.tick(minutes=40)
    assert told() == {("demo-failed-requests", "resolved", "dc1")}
    world.close()


def test_rules_resolve_by_themselves_without_further_samples(tmp_path: Path) -> None:
    """The end of the demo is not the silence of all hosts."""
    world, fleet = World(tmp_path), DemoFleet(10, 2, START)
    world.write((STACK / "demo_rules.yaml").read_text())
    fill(world.store, fleet, np.arange(START - 27 * HOUR_MS, START + 1, MINUTE_MS), {"host.load"}.__contains__)
    world.tick(minutes=120)
    assert [note.rule for note in world.changes()] == ["demo-host-silent"]
    world.close()


def test_a_file_that_was_changed_stays(tmp_path: Path) -> None:
    place = tmp_path / "rules" / "demo.yaml"
    assert place_file(place, "rules: []\n")
    assert place_file(place, "rules: []\n")
    assert [one.name for one in place.parent.iterdir()] == ["demo.yaml"]
    place.write_text("# mine\n")
    assert not place_file(place, "rules: []\n")
    assert place.read_text() == "# mine\n"


@pytest.mark.parametrize("parts", [("agent",), ("agent", "alerts"), ("agent", "alerts", "api")])
def test_files_are_written_for_the_parts_that_run(tmp_path: Path, parts: tuple[str, ...]) -> None:
    me = os.getpid()
    write_state(tmp_path, StackState(me, start_time(me), {}, {}, [PartState(part, "up") for part in parts]))
    written = [place.relative_to(tmp_path).as_posix() for place, _ in place_files(tmp_path)]
    assert written == [place for part, (_, place) in PLACES.items() if part in parts]
    assert all((tmp_path / place).exists() for place in written)
